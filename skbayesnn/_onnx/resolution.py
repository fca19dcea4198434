"""Columns of X that single precision rounds, as an exported model knows them."""

from collections.abc import Iterator

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from skbayesnn._meta.calibration import CalibratedUncertaintyRegressor
from skbayesnn._runtime import warn
from skbayesnn._stacking.base import BayesianStacking
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.preprocessing import PiecewiseLinearEncoder

# Largest rounding error of a column, as a share of its standard deviation.
_LARGEST_ROUNDING = 0.01


def warn_of_rounded_columns(model) -> None:
    """Say which columns a float32 input rounds by more than a share of their spread."""
    rounded: set[int] = set()
    for centre, spread in _units(model):
        # Half a step of float32 at the centre.
        error = np.finfo(np.float32).eps / 2 * np.abs(centre)
        rounded |= set(np.flatnonzero(error > _LARGEST_ROUNDING * spread).tolist())
    if rounded:
        warn(
            f"the graph takes float32, which rounds columns {sorted(rounded)[:10]} of "
            "X by more than a hundredth of their standard deviation: they lie far from "
            "zero. Take inputs in double precision, initial_types=[('X', "
            "skl2onnx.common.data_types.DoubleTensorType([None, n_features]))], or "
            "subtract a constant from these columns before fit."
        )


def _units(model) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Centre and spread of the columns of X, (columns,) each, wherever they are known.

    What a model learned behind other steps says nothing of X.
    """
    if hasattr(model, "best_estimator_"):
        yield from _units(model.best_estimator_)
    elif isinstance(model, FrozenEstimator):
        yield from _units(model.estimator)
    elif isinstance(model, CalibratedUncertaintyRegressor):
        yield from _units(model.estimator_)
    elif isinstance(model, BayesianStacking):
        for one in model.estimators_:
            yield from _units(one)
    elif isinstance(model, Pipeline):
        steps = [step for _, step in model.steps if step not in (None, "passthrough")]
        yield from _units(steps[0])
    elif isinstance(model, BayesianNetwork):
        yield model.x_mean_, model.x_scale_
    elif isinstance(model, StandardScaler) and model.with_mean and model.with_std:
        yield model.mean_, model.scale_
    elif (
        isinstance(model, RobustScaler) and model.with_centering and model.with_scaling
    ):
        yield model.center_, model.scale_
    elif isinstance(model, MinMaxScaler):
        yield model.data_min_ + model.data_range_ / 2, _not_zero(model.data_range_)
    elif isinstance(model, PiecewiseLinearEncoder):
        ends = np.array([edges[[0, -1]] for edges in model.bin_edges_ if len(edges)])
        if len(ends) == len(model.bin_edges_):
            yield ends.mean(1), _not_zero(np.ptp(ends, axis=1))


def _not_zero(ranges: np.ndarray) -> np.ndarray:
    """Constant columns are scaled by 1."""
    return np.where(ranges > 0, ranges, 1.0)
