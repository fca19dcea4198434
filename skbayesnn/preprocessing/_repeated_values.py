"""A column -> those of its values that have a feature of their own."""

import numpy as np

# Share of the rows that have the most frequent value, at least.
_MOSTLY = 0.5
# Median distance between neighbouring values, in units of the smallest, at least.
_APART = 10.0
# Rows with a value, at least.
_FEWEST_ROWS = 2
# Relative error of summed weights.
_ROUNDING = 1e-10


def repeated_values(column, weights, n_values: int):
    """The most frequent values but the very first, (values,), float32, increasing.

    None, unless the column is mostly one value, and the others are far apart although
    they could be close: codes, or amounts that a rule has set; not what is measured.

    column, weights : (rows,)
    """
    none = np.empty(0, dtype=np.float32)
    if n_values == 0:
        return none
    values, which = np.unique(as_compared(column), return_inverse=True)
    of_value = np.bincount(which, weights) * (1 + _ROUNDING)
    if len(values) < 3 or of_value.max() < _MOSTLY * weights.sum():
        return none
    if not np.isfinite(values[[0, -1]]).all():
        return none
    steps = np.diff(values.astype(np.float64))
    if np.median(steps) < _APART * steps.min():
        return none
    # The very first has no feature: without any, a row has that value, or a rare one.
    frequent = np.argsort(-of_value, kind="stable")[1 : n_values + 1]
    return np.sort(values[frequent[of_value[frequent] >= _FEWEST_ROWS]])


def as_compared(column):
    """In float32, where a value is the same whatever type it comes in."""
    with np.errstate(over="ignore"):
        return column.astype(np.float32)
