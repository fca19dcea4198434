"""Public functions: ``save`` and ``load`` for files, ``dumps`` and ``loads``."""

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
from skbayesnn._persistence.schema import trusted_names
from skbayesnn._stored import is_fitted
from skbayesnn._version import __version__

# Version of the file format; the description of a network has its own version.
FORMAT = 1
Trusted = Iterable[str | type] | None
_HEADER = {"format": int, "skbayesnn": str, "scikit-learn": str}


def save(model: Any, file: File) -> None:
    """Save a fitted estimator to a file that :func:`load` reads without running code.

    Unlike a pickle, the file is safe to load. It is a zip archive of a JSON document
    and of arrays in NumPy's format, with checksums. An existing file is replaced only
    if saving succeeds, and only if ``save`` has written it.

    Parameters
    ----------
    model : fitted estimator
        Any estimator of this package: networks, stacks, meta-estimators, searches,
        :class:`~skbayesnn.preprocessing.PiecewiseLinearEncoder` and
        :class:`~skbayesnn.preprocessing.TableEncoder`. Also ``Pipeline``,
        ``TransformedTargetRegressor``, ``FrozenEstimator``, ``StandardScaler``,
        ``MinMaxScaler``, ``RobustScaler``, ``QuantileTransformer`` and
        ``FunctionTransformer`` of scikit-learn. Other estimators, as steps of a
        pipeline or around estimators of this package, are stored by skops
        (``pip install "skbayesnn[skops]"``); :func:`load` then requires a list of
        trusted types.
    file : str, path-like or binary file object
        A file object is written from its current position.

    Returns
    -------
    None

    Raises
    ------
    ValueError
        If the model contains an object that cannot be saved, such as a lambda or a
        torch module. The message names the object and its attribute.
    FileExistsError
        If the file exists and has other content, such as a table.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    ImportError
        If the model contains estimators of other packages, and skops is missing.

    See Also
    --------
    dumps : Return the content of the file as bytes.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_diabetes
    >>> import skbayesnn
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = skbayesnn.MCDropoutRegressor((16,), max_iter=10, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.skb")
    ...     skbayesnn.save(model.fit(X, y), path)
    ...     again = skbayesnn.load(path)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    write(file, dumps(model))


def dumps(model: Any) -> bytes:
    """Return a fitted estimator as bytes, the content of a file of :func:`save`.

    Parameters
    ----------
    model : fitted estimator
        As for :func:`save`, which raises the same errors.

    Returns
    -------
    data : bytes
        Equal for equal models, unless skops has stored a part.

    See Also
    --------
    loads : Load an estimator from these bytes.
    """
    check_is_fitted(model)
    document, members = encoded(model)
    header = {
        "format": FORMAT,
        "skbayesnn": __version__,
        "scikit-learn": sklearn.__version__,
    }
    content = packed(header | {"model": document}, members)
    try:  # Raise now if `load` would fail.
        _model_of(content, foreign.untrusted_types(members))
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        name = type(model).__name__
        raise ValueError(f"this {name} cannot be saved: {_message(error)}") from error
    return content


def load(file: File, trusted: Trusted = None) -> Any:
    """Load a fitted estimator from a file of :func:`save`, without running code.

    Classes must be in a fixed list, which contains the classes of this package and a
    few of scikit-learn. Parameters and attributes are validated: types, shapes and
    ranges. Other types, in parts that skops has stored, are constructed only if
    ``trusted`` contains all of them. Their values are not validated: trust them only if
    you trust the file.

    Parameters
    ----------
    file : str, path-like or binary file object
        A file object is read from its current position to its end.
    trusted : list of str or type, default=None
        Leave the default unless the file contains estimators of other packages. Types
        outside of the fixed list that may be constructed, as full names or types.
        :func:`get_untrusted_types` returns the types of a file; the error without them
        lists them, too.

    Returns
    -------
    model : fitted estimator
        Parameters and fitted attributes are the same. On the same machine predictions
        are equal bit by bit. A model fitted on a GPU predicts on the CPU of a machine
        without GPU.

    Raises
    ------
    ValueError
        If the file is truncated, changed, of a later version or not written by
        ``save``, or if it contains types that are not trusted.
    ImportError
        If the package of a type in the file is not installed.

    See Also
    --------
    loads : Load an estimator from bytes.
    """
    return _loaded(read(file), trusted, name_of(file))


def loads(data: bytes, trusted: Trusted = None) -> Any:
    """Load a fitted estimator from the bytes of :func:`dumps`, without running code.

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
    """Return the types of a file that :func:`load` constructs only if trusted.

    This constructs and imports nothing. Read the list before you trust it: constructing
    an object may run any code of its package.

    Parameters
    ----------
    file : str, path-like or binary file object, default=None
    data : bytes, default=None
        Bytes of :func:`dumps`, instead of a file.

    Returns
    -------
    names : list of str
        Full names, sorted. The list is empty if the model contains only estimators of
        this package and the scikit-learn estimators that :func:`save` documents.

    Raises
    ------
    ValueError
        If the file was not written by ``save``, or was changed afterwards.
    ImportError
        If the file contains such types, and skops is missing.

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
    """Return the types that skops must trust to load estimators of this package.

    Use it for files of ``skops.io.dump``:
    ``skops.io.load(path, trusted=skbayesnn.trusted_types())``. Files of :func:`save` do
    not need it.

    Parameters
    ----------
    No parameters.

    Returns
    -------
    names : list of str
        Full names of the classes of this package, of the types of their attributes, and
        of its scorers.
    """
    return trusted_names()


def _loaded(content: bytes, trusted: Trusted, name: str):
    """Model from the content of a file; ``name`` of the file is for messages."""
    names = foreign.names_of(trusted)
    with _errors_of(name):
        return _model_of(content, names)


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Convert all errors to ValueError: a changed file can cause any of them."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except foreign.UntrustedTypes as error:
        raise ValueError(
            f"{name} has objects of types that are not trusted: {error}. If you trust "
            "them and the file, load it with trusted=[...], their names; "
            "skbayesnn.get_untrusted_types lists them. [SKB601]"
        ) from error
    except Exception as error:
        raise ValueError(
            f"{name} must be a whole file of skbayesnn.save, unchanged: "
            f"{_message(error)}"
        ) from error


def _model_of(content: bytes, trusted: Collection[str]):
    """Model from the content of a file; ``trusted`` contains names of types."""
    document, members = unpacked(content)
    _check_header(document)
    # Report all untrusted types at once, before any object is constructed.
    if untrusted := foreign.untrusted_types(members, trusted):
        raise foreign.UntrustedTypes(", ".join(untrusted))
    model = decoded(document["model"], members, document["scikit-learn"], trusted)
    if not is_fitted(model):
        raise ValueError("it contains no fitted estimator. Save the model again.")
    return model


def _bytes(data) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"`data` must be bytes; got {type(data).__name__}.")
    return bytes(data)


def _message(error: Exception) -> str:
    """Message of an error, with its type if the error is not a ValueError."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    if isinstance(error, ValueError):
        return str(error)
    return f"a value has another type or range than fits give it ({error!r})."


def _check_header(document) -> None:
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise ValueError("its document has no format. Save the model again.")
    if document["format"] > FORMAT:
        raise ValueError(
            f"its format is {document['format']}, of skbayesnn "
            f"{document.get('skbayesnn')}; this is skbayesnn {__version__}, which "
            f"reads formats up to {FORMAT}. Upgrade skbayesnn."
        )
    types = {name: type(value) for name, value in document.items() if name != "model"}
    if document["format"] < 1 or "model" not in document or types != _HEADER:
        raise ValueError(
            f"its document has the header {sorted(document)}. Save the model again."
        )
