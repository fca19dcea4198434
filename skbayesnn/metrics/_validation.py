"""Checks that all metrics share: row weights, shapes, levels."""

import numpy as np

from skbayesnn._validation import check_levels

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
    if sample_weight is None:
        return np.ones(n_rows), *arrays
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"`sample_weight` must be of shape ({n_rows},), one weight per row; got "
            f"{weights.shape}."
        )
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if wrong.size:
        raise ValueError(
            f"`sample_weight` must be finite and not negative; got {wrong[0]}."
        )
    positive = weights > 0
    if not positive.any():
        raise ValueError(
            "`sample_weight` must be positive for at least one row; got only zeros."
        )
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
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must hold numbers; got {error}.") from error


def one_column(name, values):
    """Convert to float64, of shape (rows,)."""
    values = as_floats(name, values)
    if values.ndim != 1:
        raise ValueError(
            f"`{name}` must be of shape (n_samples,), one value per row; got "
            f"{values.shape}."
        )
    return values


def with_targets(name, values):
    """Convert to float64, of shape (rows,) or (rows, targets)."""
    values = as_floats(name, values)
    if values.ndim not in (1, 2):
        raise ValueError(
            f"`{name}` must be of shape (n_samples[, n_targets]); got {values.shape}."
        )
    return values


def level_array(name, levels) -> np.ndarray:
    """Convert one level, (), or several, (levels,), each in (0, 1)."""
    return np.reshape(check_levels(name, levels), np.shape(levels))
