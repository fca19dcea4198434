"""Find the fitted network or stack inside of meta-estimators."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._data.validation import table_of
from skbayesnn._meta.base import BaseHeldOutMetaEstimator
from skbayesnn._meta.unwrap import changes_columns, fitted_estimators, inner_estimator
from skbayesnn._predictive.mixin import PredictiveMixin


def find_estimator(model: Any) -> Any:
    """Return the fitted estimator of this package inside of a pipeline or a search.

    ``Pipeline``, searches and target transforms hide the attributes of the estimator
    inside, such as ``summary_`` and ``weights_`` of a stack, or ``noise_std_`` and
    ``loss_curve_`` of a network. Methods of the returned estimator take X after the
    transformers. To predict from the original X use functions of :mod:`skbayesnn` such
    as :func:`predict_interval`.

    Parameters
    ----------
    model : fitted estimator
        A network or a stack of this package, or a meta-estimator around one:
        ``Pipeline``, a search, ``FrozenEstimator``, ``TransformedTargetRegressor``,
        :class:`CalibratedUncertaintyRegressor`, :class:`Abstainer` and others, nested
        in any way.

    Returns
    -------
    estimator : fitted estimator
        The object itself, not a copy.

    Raises
    ------
    TypeError
        If the model contains no such estimator, or several, as an ensemble does.
    NotFittedError
        If the model is not fitted.

    See Also
    --------
    predict_uncertainty : Uncertainty through the same meta-estimators.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skbayesnn import MCDropoutRegressor, find_estimator
    >>> X, y = load_diabetes(return_X_y=True)
    >>> network = MCDropoutRegressor((16,), max_iter=20, random_state=0)
    >>> pipeline = make_pipeline(StandardScaler(), network).fit(X, y)
    >>> find_estimator(pipeline).n_iter_
    20
    """
    *_, estimator = _down_to_estimator(model)
    check_is_fitted(estimator)
    return estimator


def target_transform(model: Any) -> str | None:
    """Name of the function of y that the estimator inside of a model is fitted to.

    None if it is fitted to y itself, and for an ensemble.
    """
    with suppress(TypeError):
        for inner in _down_to_estimator(model):
            if isinstance(inner, TransformedTargetRegressor):
                transform = inner.transformer if inner.func is None else inner.func
                if transform is not None:
                    return getattr(transform, "__name__", type(transform).__name__)
    return None


def _down_to_estimator(model) -> Iterator:
    """Meta-estimators with one estimator inside, and at last that of this package."""
    estimator = inner_estimator(model)
    while isinstance(estimator, BaseHeldOutMetaEstimator) or not isinstance(
        estimator, PredictiveMixin
    ):
        yield estimator
        estimator = inner_estimator(_single_estimator(estimator))
    yield estimator


def described_estimator(model: Any) -> Any:
    """The estimator whose attributes describe a model: the one inside, or an ensemble.

    An ensemble of several estimators, and a model of another library, describes itself.
    """
    try:
        return find_estimator(model)
    except TypeError:
        return model


def find_encoder(model: Any) -> TableEncoder | None:
    """The encoder of the columns of X that a model contains; None without one.

    An encoder after a transformer of a pipeline encodes other columns.
    """
    while not changes_columns(model):
        model = inner_estimator(model)
        is_wrapper = isinstance(model, BaseHeldOutMetaEstimator)
        if isinstance(model, PredictiveMixin) and not is_wrapper:
            return table_of(model)
        inside = fitted_estimators(model)
        if len(inside) != 1:
            break
        [model] = inside
    return None


def _single_estimator(model):
    """Return the fitted estimator of a meta-estimator, or raise if it has several."""
    estimators = fitted_estimators(model)
    name = type(model).__name__
    if not estimators:
        raise TypeError(
            "find_estimator needs a network or a stack of skbayesnn, alone or inside "
            f"of meta-estimators; got {name}, which contains none."
        )
    if len(estimators) > 1:
        raise TypeError(
            "find_estimator needs a model with one estimator of skbayesnn inside; got "
            f"{name} with {len(estimators)}. Call it for each of them."
        )
    return estimators[0]
