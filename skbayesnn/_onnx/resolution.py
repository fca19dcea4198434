"""Warning for columns of X that single precision rounds too coarsely."""

from collections.abc import Iterator

import numpy as np
from sklearn.preprocessing import StandardScaler

from skbayesnn._data.validation import table_of
from skbayesnn._onnx.parts import parts_with_same_X
from skbayesnn._runtime import warn
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators.laplace import LaplaceModel
from skbayesnn.estimators.neighbours import NeighbourModel
from skbayesnn.preprocessing import TableEncoder

# Largest rounding error of a column, as a share of its standard deviation.
_MAX_ROUNDING = 0.01


def warn_of_rounded_columns(model) -> None:
    """Warn of columns that a float32 input rounds by a large share of their spread."""
    rounded: set[int] = set()
    for centre, spread in _centres_and_spreads(model):
        # Half of the distance between float32 values at the centre.
        error = np.finfo(np.float32).eps / 2 * np.abs(centre)
        rounded |= set(np.flatnonzero(error > _MAX_ROUNDING * spread).tolist())
    if rounded:
        warn(
            "SKB503",
            f"the graph takes float32, which rounds columns {sorted(rounded)[:10]} of "
            "X by more than a hundredth of their standard deviation, because their "
            "values are far from zero. Use inputs in double precision, "
            "initial_types=[('X', skl2onnx.common.data_types.DoubleTensorType([None, "
            "n_features]))], or subtract a constant from these columns before fit.",
        )


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
    """Centre and spread of the columns of X, (columns,), if the model stores them."""
    table = model if isinstance(model, TableEncoder) else table_of(model)
    if table is not None:
        yield _range_of_columns(table)
        return
    for part in parts_with_same_X(model):
        yield from _centres_and_spreads(part)
    if isinstance(model, BayesianNetwork | LaplaceModel | NeighbourModel):
        yield model.x_mean_, model.x_scale_
    elif isinstance(model, StandardScaler) and model.with_mean and model.with_std:
        yield model.mean_, model.scale_
