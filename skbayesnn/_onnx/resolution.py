"""Warning for columns of X that single precision rounds too coarsely."""

from collections.abc import Iterator

import numpy as np
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from skbayesnn._data.validation import table_of
from skbayesnn._onnx.parts import parts_with_same_X
from skbayesnn._runtime import warn
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators.laplace import LaplaceModel
from skbayesnn.estimators.neighbours import NeighbourModel
from skbayesnn.preprocessing import PiecewiseLinearEncoder, TableEncoder

# Largest rounding error of a column, as a share of its standard deviation.
_MAX_ROUNDING = 0.01


def warn_of_rounded_columns(model) -> None:
    """Warn of columns that a float32 input rounds by a large share of their spread."""
    rounded: set[int] = set()
    for centre, spread in _centres_and_spreads(model):
        rounded |= set(_rounded(centre, spread).tolist())
    if rounded:
        warn(
            "SKB503",
            f"the graph takes float32, which rounds columns {sorted(rounded)[:10]} of "
            "X by more than a hundredth of their standard deviation, because their "
            "values are far from zero. Use inputs in double precision, "
            "initial_types=[('X', skl2onnx.common.data_types.DoubleTensorType([None, "
            "n_features]))], or subtract a constant from these columns before fit.",
        )


def warn_of_rounded_features(table: TableEncoder, step) -> None:
    """Warn of columns that are rounded before a step in single precision."""
    rounded = _rounded(*_range_of_columns(table)).tolist()
    if rounded:
        names = [table.columns_[j].column for j in rounded[:10]]
        warn(
            "SKB503",
            f"skl2onnx converts {type(step).__name__} in single precision, which "
            f"rounds columns {', '.join(map(repr, names))} by more than a hundredth of "
            "their standard deviation, because their values are far from zero. Put a "
            "StandardScaler before this step, or subtract a constant from these "
            "columns before fit.",
        )


def _rounded(centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Positions of the columns that float32 rounds by a large share of their spread."""
    # Half of the distance between float32 values at the centre.
    error = np.finfo(np.float32).eps / 2 * np.abs(centre)
    return np.flatnonzero(error > _MAX_ROUNDING * spread)


def _range_of_columns(table: TableEncoder) -> tuple[np.ndarray, np.ndarray]:
    """Smallest value and spread of the columns that a table keeps as numbers.

    The spread of others is infinite: codes of levels and elapsed days are small.

    returns : two arrays (columns,)
    """
    is_number = ["" in column.suffixes for column in table._columns]
    bounds = np.array([column.bounds for column in table._columns])
    bounds = np.where(np.array(is_number)[:, None], bounds, [0.0, np.inf])
    # The standard deviation of a uniform distribution.
    return bounds[:, 0], np.ptp(bounds, axis=1) / np.sqrt(12)


def _centres_and_spreads(model) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Centre and spread of the columns of X, (columns,), if the model stores them.

    Only the first step of a pipeline has values of the original X.
    """
    table = table_of(model)
    if table is None:
        yield from _of_inputs(model)
        return
    # The first feature of each column; columns without features are not used.
    widths = np.array([len(column.suffixes) for column in table._columns])
    first, is_used = np.cumsum(widths) - widths, widths > 0
    for centre, spread in _of_inputs(model):
        centres, spreads = np.zeros(len(widths)), np.ones(len(widths))
        centres[is_used], spreads[is_used] = (
            values[first[is_used]] for values in (centre, spread)
        )
        yield centres, spreads


def _of_inputs(model) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Centre and spread of the columns that a model gets from its table."""
    for part in parts_with_same_X(model):
        yield from _centres_and_spreads(part)
    if isinstance(model, BayesianNetwork | LaplaceModel | NeighbourModel):
        yield model.x_mean_, model.x_scale_
    elif isinstance(model, TableEncoder):
        yield _range_of_columns(model)
    elif isinstance(model, StandardScaler) and model.with_mean and model.with_std:
        yield model.mean_, model.scale_
    elif (
        isinstance(model, RobustScaler) and model.with_centering and model.with_scaling
    ):
        yield model.center_, model.scale_
    elif isinstance(model, MinMaxScaler):
        yield model.data_min_ + model.data_range_ / 2, _not_zero(model.data_range_)
    elif isinstance(model, PiecewiseLinearEncoder):
        bounds = np.array([edges[[0, -1]] for edges in model.bin_edges_ if len(edges)])
        if len(bounds) == len(model.bin_edges_):
            yield bounds.mean(1), _not_zero(np.ptp(bounds, axis=1))


def _not_zero(ranges: np.ndarray) -> np.ndarray:
    """Replace the range of constant columns by 1."""
    return np.where(ranges > 0, ranges, 1.0)
