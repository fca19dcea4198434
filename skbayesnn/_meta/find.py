"""The fitted network or stack inside of meta-estimators."""

from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.utils.validation import check_is_fitted

from skbayesnn._meta.base import BaseHeldOutMetaEstimator
from skbayesnn._meta.unwrap import inside
from skbayesnn._predictive.mixin import PredictiveMixin
from skbayesnn._sklearn_compat import BaseEstimator

# Attributes in which meta-estimators keep what they have fitted. Ensembles also have an
# `estimator_`, which is not fitted: it comes last.
_FITTED = ("final_estimator_", "regressor_", "estimators_", "estimator_")
# Parameters of meta-estimators.
_GIVEN = ("estimator", "regressor", "final_estimator", "estimators")


def find_estimator(model: Any) -> Any:
    """The fitted estimator of this package inside of a pipeline, a search or the like.

    ``Pipeline``, searches and target transforms hide the attributes of the estimator
    inside. This function returns that estimator, whose attributes and methods can then
    be used: ``summary_`` and ``weights_`` of a stack, ``noise_std_`` and
    ``loss_curve_`` of a network. Its methods take X as the last step gets it; to
    predict from the original X use the functions of :mod:`skbayesnn`, as
    :func:`predict_interval`.

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
        Where there is none, or more than one, as in an ensemble.
    NotFittedError
        For a model that is not fitted.

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
    found = inside(model)
    while isinstance(found, BaseHeldOutMetaEstimator) or not isinstance(
        found, PredictiveMixin
    ):
        found = inside(_only_one(found))
    check_is_fitted(found)
    return found


def _only_one(model):
    """The only estimator that a meta-estimator has fitted."""
    inner = _fitted_inside(model)
    name = type(model).__name__
    if not inner:
        raise TypeError(
            "find_estimator needs a network or a stack of skbayesnn, alone or inside "
            f"of meta-estimators; got {name}, which has none."
        )
    if len(inner) > 1:
        raise TypeError(
            "find_estimator needs a model with one estimator of skbayesnn inside; got "
            f"{name} with {len(inner)}. Call it for each of them."
        )
    return inner[0]


def _fitted_inside(model) -> list:
    if isinstance(model, CalibratedClassifierCV):
        check_is_fitted(model)
        return [one.estimator for one in model.calibrated_classifiers_]
    for name in _FITTED:
        if hasattr(model, name):
            inner = getattr(model, name)
            return list(inner) if name == "estimators_" else [inner]
    if isinstance(model, BaseEstimator) and any(hasattr(model, one) for one in _GIVEN):
        check_is_fitted(model)
    return []
