"""Intervals that come without a predictive distribution: conformal ones, and CV+.

They go through meta-estimators as bounds: X through the transformers in front, the two
bounds back through a target transform.
"""

from inspect import signature

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils.validation import check_is_fitted

from skbayesnn._meta.base import BaseHeldOutMetaEstimator
from skbayesnn._meta.unwrap import inside, unwrap
from skbayesnn._predictive.mixin import PredictiveMixin
from skbayesnn._predictive.mixture import Domain
from skbayesnn._sklearn_compat import target_dimensions

# Places of an interval at which the inverse of a transform must go one way.
_PATH = np.linspace(0, 1, 9)


def has_bounds_only(model) -> bool:
    """Whether the intervals of a model are conformal, without a distribution."""
    model = inside(model)
    if isinstance(model, TransformedTargetRegressor | MultiOutputRegressor):
        return any(has_bounds_only(one) for one in _inner_models(model))
    conformal = isinstance(model, BaseHeldOutMetaEstimator) and hasattr(
        model, "predict_interval"
    )
    return conformal and not isinstance(model, PredictiveMixin)


def bounds(model, X, coverages: list[float], kind: str, method: str) -> np.ndarray:
    """Intervals, (rows[, targets], coverages, 2), in y's units.

    Raises
    ------
    TypeError
        For models that have no intervals by this method.
    ValueError
        For a target transform that is not monotone within an interval.
    """
    model, X = unwrap(model, X)
    how = coverages, kind, method
    if isinstance(model, TransformedTargetRegressor):
        [inner] = _inner_models(model)
        return _behind(model, bounds(inner, X, *how))
    if isinstance(model, MultiOutputRegressor):
        parts = [bounds(one, X, *how) for one in _inner_models(model)]
        return np.stack(parts, axis=1)
    of_model = getattr(model, "predict_interval", None)
    if isinstance(model, BaseEstimator) and of_model is not None:
        if method == "mixture":
            return of_model(X, coverages, kind)
        if "method" in signature(of_model).parameters:
            return of_model(X, coverages, kind, method=method)
    raise TypeError(
        f"method={method!r} needs a BayesianStackingRegressor, alone or inside of a "
        "Pipeline, a search, FrozenEstimator, TransformedTargetRegressor or "
        f"MultiOutputRegressor; got {type(model).__name__}. For other regressors there "
        "is ConformalRegressor(estimator, method='cv+'), whose intervals need no "
        "`method` here."
    )


def _inner_models(model) -> list:
    """What a target transform or a regressor per target has inside."""
    check_is_fitted(model)
    if isinstance(model, TransformedTargetRegressor):
        return [model.regressor_]
    return model.estimators_


def _behind(model: TransformedTargetRegressor, inner: np.ndarray) -> np.ndarray:
    """Bounds of the transformed target -> bounds of y, the lower one first.

    An infinite bound stays infinite on both sides: everything is inside.
    """
    ends = inner if inner.ndim == 4 else inner[:, None]
    infinite = ~np.isfinite(ends).all(-1)
    ends = np.where(infinite[..., None], 0.0, ends)
    path = ends[..., :1] + _PATH * (ends[..., 1:] - ends[..., :1])
    # (rows, targets, coverages, places) -> targets last, as transformers have them.
    path = np.moveaxis(path, 1, -1)
    domain = Domain.of(model.transformer_, path.shape[-1])
    y = domain.inverse(model.transformer_, path.reshape(-1, path.shape[-1]))
    y = np.moveaxis(y.reshape(path.shape), -1, 1)
    _refuse_turns(model.transformer_, y)
    outer = np.sort(y[..., [0, -1]], axis=-1)
    outer[infinite] = -np.inf, np.inf
    return outer[:, 0] if target_dimensions(model) == 1 else outer


def _refuse_turns(transformer, y: np.ndarray) -> None:
    """Refuse an inverse that rises and falls along an interval; y (..., places)."""
    with np.errstate(invalid="ignore"):  # two infinite values differ by nothing
        steps = np.nan_to_num(np.diff(y, axis=-1), nan=0.0)
    rounding = 1e-9 * np.abs(np.where(np.isfinite(y), y, 0.0)).max(-1, keepdims=True)
    turns = (steps < -rounding).any(-1) & (steps > rounding).any(-1)
    n_rows = turns.reshape(len(turns), -1).any(-1).sum()
    if n_rows:
        raise ValueError(
            "intervals need a target transform that is monotone within them; got "
            f"{' '.join(repr(transformer).split())}, whose inverse rises and falls in "
            f"the intervals of {n_rows} of {len(turns)} rows. Take a transform that is "
            "monotone for all y."
        )
