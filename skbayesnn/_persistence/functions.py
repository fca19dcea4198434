"""What users call: ``save``, ``load`` and ``trusted_types``."""

import os
from pathlib import Path

import sklearn
from sklearn.utils.validation import check_is_fitted

from skbayesnn import scoring
from skbayesnn._persistence.archive import packed, unpacked, written
from skbayesnn._persistence.decoding import decoded
from skbayesnn._persistence.encoding import encoded
from skbayesnn._persistence.rules import is_fitted
from skbayesnn._persistence.table import KINDS
from skbayesnn._sklearn_compat import SCORER_TYPES
from skbayesnn._version import __version__

# Of the file; what it holds of a network has a format of its own.
FORMAT = 1
_HEADER = {"format": int, "skbayesnn": str, "scikit-learn": str}


def save(model, path: str | os.PathLike) -> None:
    """Store a fitted estimator in one file, of which nothing is executed on loading.

    The file is a zip archive of a JSON document and of arrays in NumPy's format, with
    checksums; the same model makes the same file. It is written beside ``path`` and
    then put in its place: where saving fails, a file that was there stays as it was.

    Parameters
    ----------
    model : fitted estimator
        Of this package, with all that it is made of: networks, stacks,
        meta-estimators, searches, :class:`~skbayesnn.preprocessing.
        PiecewiseLinearEncoder`. Pipelines of these with
        ``FrozenEstimator``, ``StandardScaler``, ``MinMaxScaler``, ``RobustScaler`` and
        ``QuantileTransformer``, too; for all other estimators of scikit-learn there is
        ``skops.io.dump``, see :func:`trusted_types`.
    path : str or path-like

    Returns
    -------
    None

    Raises
    ------
    ValueError
        For what no file can hold, such as functions of your own; the message names it.
    sklearn.exceptions.NotFittedError
        A model that is not fitted.

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
    check_is_fitted(model)
    document, arrays = encoded(model)
    header = {
        "format": FORMAT,
        "skbayesnn": __version__,
        "scikit-learn": sklearn.__version__,
    }
    content = packed(header | {"model": document}, arrays)
    try:  # What `load` would refuse is refused now.
        _model_of(content)
    except Exception as error:
        name = type(model).__name__
        raise ValueError(f"this {name} cannot be saved: {_said(error)}") from error
    written(Path(path), content)


def load(path: str | os.PathLike):
    """A fitted estimator that :func:`save` has stored.

    Nothing of the file is imported, called or executed: it says which classes of a list
    are constructed, and their parameters and attributes, which are checked.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    model : fitted estimator
        With the same parameters and fitted attributes; its predictions are the same,
        bit by bit, on the same machine. What was fitted on a GPU that is not there
        predicts on the CPU.

    Raises
    ------
    ValueError
        A file that is cut off, changed, of a later version or not of ``save``. The
        message names the file and what is wrong.
    """
    content = Path(path).read_bytes()
    try:
        return _model_of(content)
    # A changed file can be wrong in any way, and meet any error of what it describes.
    except Exception as error:
        raise ValueError(
            f"{os.fspath(path)!r} must be a whole file of skbayesnn.save, as it was "
            f"saved: {_said(error)}"
        ) from error


def trusted_types() -> list[str]:
    """Types that skops has to trust to load what is made of this package.

    For pipelines and meta-estimators of scikit-learn around estimators of this package:
    ``skops.io.load(path, trusted=skbayesnn.trusted_types())``.

    Parameters
    ----------
    There are none.

    Returns
    -------
    names : list of str
        Of classes of this package, of what they are made of, and of its scorers.
    """
    types = [kind.type for kind in KINDS.values() if kind.is_there]
    listed = [getattr(scoring, name) for name in scoring.__all__]
    scorers = [one.function for one in listed if isinstance(one, scoring.Scorer)]
    named = {*types, *scorers, scoring.Scorer, *SCORER_TYPES}
    return sorted(f"{one.__module__}.{one.__qualname__}" for one in named)


def _model_of(content: bytes):
    """The model of a file's content."""
    document, arrays = unpacked(content)
    _check_header(document)
    model = decoded(
        document["model"],
        arrays,
        document["scikit-learn"],
        all_params=document["skbayesnn"] == __version__,
    )
    if not is_fitted(model):
        raise ValueError("it holds no fitted estimator. Save the model again.")
    return model


def _said(error: Exception) -> str:
    """The message of our own errors; of others what they are, too."""
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
