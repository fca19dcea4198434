"""What users call: ``save`` and ``load`` of files, ``dumps`` and ``loads`` of bytes."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import sklearn
from sklearn.utils.validation import check_is_fitted

from skbayesnn._persistence import foreign
from skbayesnn._persistence.codec import decoded, encoded
from skbayesnn._persistence.file_format import (
    File,
    name_of,
    packed,
    read,
    unpacked,
    write,
)
from skbayesnn._persistence.schema import is_fitted, trusted_names
from skbayesnn._version import __version__

# Of the file; what it holds of a network has a format of its own.
FORMAT = 1
Trusted = Iterable[str | type] | None
_HEADER = {"format": int, "skbayesnn": str, "scikit-learn": str}


def save(model: Any, file: File) -> None:
    """Store a fitted estimator in a file that can be loaded without running its code.

    The file is a zip archive of a JSON document and of arrays in NumPy's format, with
    checksums. A path is replaced as a whole: if saving fails, the file that was there
    stays as it was.

    Parameters
    ----------
    model : fitted estimator
        Any of this package: networks, stacks, meta-estimators, searches,
        :class:`~skbayesnn.preprocessing.PiecewiseLinearEncoder`. Also ``Pipeline``,
        ``TransformedTargetRegressor``, ``FrozenEstimator``, ``StandardScaler``,
        ``MinMaxScaler``, ``RobustScaler``, ``QuantileTransformer`` and
        ``FunctionTransformer`` of scikit-learn. All other estimators, as the steps of
        a pipeline or around estimators of this package, are stored by skops
        (``pip install "skbayesnn[skops]"``); :func:`load` then asks for the types that
        it may trust.
    file : str, path-like or binary file object
        To a file object it is written from its current position.

    Returns
    -------
    None

    Raises
    ------
    ValueError
        For what no file can hold, such as a lambda or a torch module; the message
        names it and its place.
    sklearn.exceptions.NotFittedError
        A model that is not fitted.
    ImportError
        Without skops, for a model that has estimators of other packages.

    See Also
    --------
    dumps : The same as bytes.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_diabetes
    >>> import skbayesnn
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = skbayesnn.MCDropoutRegressor((16,), max_iter=10, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.skbayesnn")
    ...     skbayesnn.save(model.fit(X, y), path)
    ...     again = skbayesnn.load(path)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    write(file, dumps(model))


def dumps(model: Any) -> bytes:
    """A fitted estimator as bytes: the content of the file that :func:`save` writes.

    Parameters
    ----------
    model : fitted estimator
        As for :func:`save`, which raises the same errors.

    Returns
    -------
    data : bytes
        The same for the same model, unless skops has stored a part of it.

    See Also
    --------
    loads : The estimator of these bytes.
    """
    check_is_fitted(model)
    document, members = encoded(model)
    header = {
        "format": FORMAT,
        "skbayesnn": __version__,
        "scikit-learn": sklearn.__version__,
    }
    content = packed(header | {"model": document}, members)
    try:  # What `load` would refuse is refused now.
        _model_of(content, foreign.untrusted_types(members))
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        name = type(model).__name__
        raise ValueError(f"this {name} cannot be saved: {_said(error)}") from error
    return content


def load(file: File, trusted: Trusted = None) -> Any:
    """A fitted estimator that :func:`save` has stored.

    Nothing of the file is executed. Classes are looked up in a fixed list of those of
    this package and a few of scikit-learn; their parameters and attributes are checked:
    types, shapes, and whether numbers make sense. Other types, in parts that skops has
    stored, are constructed only if ``trusted`` names every one of them. Of these,
    values are not checked: trust them as you trust the file.

    Parameters
    ----------
    file : str, path-like or binary file object
        A file object is read from its current position to its end.
    trusted : list of str or type, default=None
        Types outside of the fixed list that may be constructed, by their full names
        or as types. :func:`get_untrusted_types` lists those of a file, and so does the
        error without them.

    Returns
    -------
    model : fitted estimator
        With the same parameters and fitted attributes; its predictions are the same,
        bit by bit, on the same machine. What was fitted on a GPU that is not there
        predicts on the CPU.

    Raises
    ------
    ValueError
        A file that is cut off, changed, of a later version or not of ``save``, or that
        has types which are not trusted. The message names the file and what is wrong.
    ImportError
        A package of which the file has a type is not installed.

    See Also
    --------
    loads : The same from bytes.
    """
    return _loaded(read(file), trusted, name_of(file))


def loads(data: bytes, trusted: Trusted = None) -> Any:
    """A fitted estimator from the bytes of :func:`dumps`.

    Parameters
    ----------
    data : bytes
    trusted : list of str or type, default=None
        As for :func:`load`, which raises the same errors.

    Returns
    -------
    model : fitted estimator
    """
    return _loaded(_bytes(data), trusted, "`data`")


def get_untrusted_types(
    file: File | None = None, *, data: bytes | None = None
) -> list[str]:
    """Types that :func:`load` constructs only if they are trusted.

    Nothing of the file is constructed or imported. Look at the list before you trust
    it: constructing an object of a type may run any code of its package.

    Parameters
    ----------
    file : str, path-like or binary file object, default=None
    data : bytes, default=None
        In its place, the bytes of :func:`dumps`.

    Returns
    -------
    names : list of str
        Full names, sorted. It is empty for a model made of estimators of this package
        and of those of scikit-learn that :func:`save` names.

    Raises
    ------
    ValueError
        A file that ``save`` has not written, or that was changed since then.
    ImportError
        Without skops, for a file that has such types.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.feature_selection import VarianceThreshold
    >>> from sklearn.pipeline import make_pipeline
    >>> import skbayesnn
    >>> X, y = load_diabetes(return_X_y=True)
    >>> network = skbayesnn.MCDropoutRegressor((16,), max_iter=10, random_state=0)
    >>> model = make_pipeline(VarianceThreshold(), network).fit(X, y)
    >>> data = skbayesnn.dumps(model)
    >>> types = skbayesnn.get_untrusted_types(data=data)
    >>> types
    ['sklearn.feature_selection._variance_threshold.VarianceThreshold']
    >>> again = skbayesnn.loads(data, trusted=types)
    """
    if (file is None) == (data is None):
        raise TypeError("exactly one of `file` and `data` must be given.")
    if file is None:
        content, name = _bytes(data), "`data`"
    else:
        content, name = read(file), name_of(file)
    with _errors_of(name):
        return foreign.untrusted_types(unpacked(content)[1])


def trusted_types() -> list[str]:
    """Types that skops has to trust to load what is made of this package.

    For files that ``skops.io.dump`` has written, of estimators of this package inside
    of others: ``skops.io.load(path, trusted=skbayesnn.trusted_types())``. Files of
    :func:`save` do not need it.

    Parameters
    ----------
    There are none.

    Returns
    -------
    names : list of str
        Of classes of this package, of what they are made of, and of its scorers.
    """
    return trusted_names()


def _loaded(content: bytes, trusted: Trusted, name: str):
    """The model of a file's content; name : of the file, for messages"""
    names = foreign.names_of(trusted)
    with _errors_of(name):
        return _model_of(content, names)


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """A changed file can be wrong in any way, and meet any error of its classes."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except foreign.UntrustedTypes as error:
        raise ValueError(
            f"{name} has objects of types that are not trusted: {error}. If you trust "
            "them and the file, load it with trusted=[...], their names; "
            "skbayesnn.get_untrusted_types lists them."
        ) from error
    except Exception as error:
        raise ValueError(
            f"{name} must be a whole file of skbayesnn.save, as it was saved: "
            f"{_said(error)}"
        ) from error


def _model_of(content: bytes, trusted: Collection[str]):
    """The model of a file's content; trusted : names of types"""
    document, members = unpacked(content)
    _check_header(document)
    # All that lack trust are told at once, before anything is constructed.
    if untrusted := foreign.untrusted_types(members, trusted):
        raise foreign.UntrustedTypes(", ".join(untrusted))
    model = decoded(
        document["model"],
        members,
        document["scikit-learn"],
        trusted,
        all_params=document["skbayesnn"] == __version__,
    )
    if not is_fitted(model):
        raise ValueError("it holds no fitted estimator. Save the model again.")
    return model


def _bytes(data) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"`data` must be bytes; got {type(data).__name__}.")
    return bytes(data)


def _said(error: Exception) -> str:
    """The message of our own errors; of others what they are, too."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    return str(error) if isinstance(error, ValueError) else repr(error)


def _check_header(document) -> None:
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise ValueError("its document has no format. Save the model again.")
    if document["format"] > FORMAT:
        raise ValueError(
            f"its format is {document['format']}, of skbayesnn "
            f"{document.get('skbayesnn')}; this is skbayesnn {__version__}, which "
            f"reads formats up to {FORMAT}. Upgrade skbayesnn."
        )
    of_types = {
        name: type(value) for name, value in document.items() if name != "model"
    }
    if document["format"] < 1 or "model" not in document or of_types != _HEADER:
        raise ValueError(
            f"its document has the header {sorted(document)}. Save the model again."
        )
