"""Checks that all metrics share: row weights, shapes, levels."""

import numpy as np

from skbayesnn._validation import check_levels, check_row_weights

# Quantile levels that stand for a whole distribution: 0.05, 0.1, ..., 0.95.
LEVELS = tuple(k / 20 for k in range(1, 20))


def drop_zero_weights(sample_weight, *arrays):
    """Return the weights (rows,) and the arrays without the rows of weight zero.

    Rows of weight zero may contain anything, NaN included.

    arrays : (rows, ...), of one length
    """
    n_rows = len(arrays[0])
    if n_rows == 0:
        raise ValueError("a metric needs at least one row; got none.")
    weights = check_row_weights(sample_weight, arrays[0])
    positive = weights > 0
    return weights[positive], *(array[positive] for array in arrays)


def weighted_mean(values, weights) -> float:
    """Mean over targets (and levels), then over rows; values (rows, ...)."""
    return float(np.average(values.reshape(len(values), -1).mean(1), weights=weights))


def no_nan(name, values) -> None:
    """Raise if values contain NaN."""
    if np.isnan(values).any():
        raise ValueError(
            f"`{name}` must not contain NaN; got {np.isnan(values).sum()} of them. "
            "Rows without a value can be left out by a weight of zero."
        )


def as_floats(name, values) -> np.ndarray:
    """Convert to float64, of any shape."""
    if getattr(getattr(values, "dtype", None), "names", None):
        raise ValueError(
            f"`{name}` must hold exact values; got intervals. Of intervals take the "
            "log density, logpdf or log_density_scorer."
        )
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must hold numbers; got {error}.") from error


def with_targets(name, values, several: bool = True) -> np.ndarray:
    """Convert to float64, of shape (rows,), or (rows, targets) of several targets."""
    values = as_floats(name, values)
    if not 1 <= values.ndim <= 1 + several:
        raise ValueError(
            f"`{name}` must be of shape (n_samples{'[, n_targets]' if several else ','}"
            f"), one value per row; got {values.shape}."
        )
    return values


def level_array(name, levels) -> np.ndarray:
    """Convert one level, (), or several, (levels,), each in (0, 1)."""
    return np.reshape(check_levels(name, levels), np.shape(levels))
