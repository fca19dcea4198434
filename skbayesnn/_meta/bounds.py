"""Conformal and CV+ intervals through meta-estimators.

They have no predictive distribution. Transformers are applied to X, and a target
transform is inverted at the two bounds.
"""

from inspect import signature

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.multioutput import MultiOutputRegressor

from skbayesnn._meta.base import BaseHeldOutMetaEstimator
from skbayesnn._meta.unwrap import fitted_estimators, inner_estimator, unwrap
from skbayesnn._predictive.mixin import PredictiveMixin
from skbayesnn._predictive.mixture import Domain
from skbayesnn._sklearn_compat import target_dimensions

# Points of an interval at which the inverse of a transform is checked to be monotone.
_POINTS = np.linspace(0, 1, 9)


def has_bounds_only(model) -> bool:
    """Whether a model has conformal intervals without a predictive distribution."""
    model = inner_estimator(model)
    if isinstance(model, TransformedTargetRegressor | MultiOutputRegressor):
        return any(map(has_bounds_only, fitted_estimators(model)))
    has_intervals = isinstance(model, BaseHeldOutMetaEstimator) and hasattr(
        model, "predict_interval"
    )
    return has_intervals and not isinstance(model, PredictiveMixin)


def bounds(model, X, coverages: list[float], kind: str, method: str) -> np.ndarray:
    """Intervals, (rows[, targets], coverages, 2), in y's units.

    Raises
    ------
    TypeError
        If the model has no intervals by this method.
    ValueError
        If a target transform is not monotone within an interval.
    """
    model, X = unwrap(model, X)
    options = coverages, kind, method
    if isinstance(model, TransformedTargetRegressor):
        [regressor] = fitted_estimators(model)
        return _back_transformed(model, bounds(regressor, X, *options))
    if isinstance(model, MultiOutputRegressor):
        parts = [bounds(member, X, *options) for member in fitted_estimators(model)]
        return np.stack(parts, axis=1)
    predict_interval = getattr(model, "predict_interval", None)
    if isinstance(model, BaseEstimator) and predict_interval is not None:
        if method == "mixture":
            return predict_interval(X, coverages, kind)
        if "method" in signature(predict_interval).parameters:
            return predict_interval(X, coverages, kind, method=method)
    raise TypeError(
        f"method={method!r} needs a BayesianStackingRegressor, alone or inside of a "
        "Pipeline, a search, FrozenEstimator, TransformedTargetRegressor or "
        f"MultiOutputRegressor; got {type(model).__name__}. For other regressors use "
        "ConformalRegressor(estimator, method='cv+'), and leave out `method` here."
    )


def _back_transformed(
    model: TransformedTargetRegressor, interval: np.ndarray
) -> np.ndarray:
    """Bounds of y from bounds of the transformed target, the lower bound first.

    If a bound is infinite, the interval becomes infinite on both sides.
    """
    inner = interval if interval.ndim == 4 else interval[:, None]
    infinite = ~np.isfinite(inner).all(-1)
    inner = np.where(infinite[..., None], 0.0, inner)
    points = inner[..., :1] + _POINTS * (inner[..., 1:] - inner[..., :1])
    # From (rows, targets, coverages, points) to targets last, as transformers need it.
    points = np.moveaxis(points, 1, -1)
    domain = Domain.of(model.transformer_, points.shape[-1])
    y = domain.inverse(model.transformer_, points.reshape(-1, points.shape[-1]))
    y = np.moveaxis(y.reshape(points.shape), -1, 1)
    _check_monotone(model.transformer_, y)
    outer = np.sort(y[..., [0, -1]], axis=-1)
    outer[infinite] = -np.inf, np.inf
    return outer[:, 0] if target_dimensions(model) == 1 else outer


def _check_monotone(transformer, y: np.ndarray) -> None:
    """Raise if the inverse transform rises and falls in an interval.

    y : (..., points)
    """
    with np.errstate(invalid="ignore"):  # count infinity minus infinity as zero
        steps = np.nan_to_num(np.diff(y, axis=-1), nan=0.0)
    rounding = 1e-9 * np.abs(np.where(np.isfinite(y), y, 0.0)).max(-1, keepdims=True)
    turns = (steps < -rounding).any(-1) & (steps > rounding).any(-1)
    n_rows = turns.reshape(len(turns), -1).any(-1).sum()
    if n_rows:
        raise ValueError(
            "intervals need a target transform that is monotone within them; got "
            f"{' '.join(repr(transformer).split())}, whose inverse rises and falls in "
            f"the intervals of {n_rows} of {len(turns)} rows. Use a transform that is "
            "monotone for all y."
        )
