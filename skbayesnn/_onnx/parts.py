"""Fitted models inside of meta-estimators, before any of them is converted."""

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skbayesnn._meta.calibration import CalibratedUncertaintyRegressor
from skbayesnn._stacking.base import BayesianStacking


def parts_with_same_X(model) -> list:
    """The fitted models inside that get the X of the model; none for other models."""
    if hasattr(model, "best_estimator_"):  # also searches of other libraries
        return [model.best_estimator_]
    if isinstance(model, FrozenEstimator):
        return [model.estimator]
    if isinstance(model, CalibratedUncertaintyRegressor):
        return [model.estimator_]
    if isinstance(model, BayesianStacking):
        return list(model.estimators_)
    if isinstance(model, Pipeline):
        steps = [step for _, step in model.steps if step not in (None, "passthrough")]
        return steps[:1]
    return []


def thawed(step):
    """The estimator in a ``FrozenEstimator``; other steps as they are."""
    return thawed(step.estimator) if isinstance(step, FrozenEstimator) else step
