"""Cells of repeated values of y.

A repeated value stands for its cell, all y that are nearest to it: y is rounded, or a
few values are possible. A density at such a value is unbounded, because a distribution
can have a narrow spike at it. The probability of a cell is at most 1. NumPy.
"""

from typing import NamedTuple

import numpy as np

# Values that differ by a smaller share of the range of y are equal up to rounding.
ROUNDING = 1e-9


class Cells(NamedTuple):
    """Intervals, low < y <= high, or single values, low = high.

    Parameters
    ----------
    low, high : ndarray of shape (rows, targets)
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, y: np.ndarray, training_y: np.ndarray, most: np.ndarray) -> "Cells":
        """Cells of y, by the values in the training rows.

        The cell of a value ends half-way to its neighbours. The outer cells are
        symmetric. A value that occurs once, or is new, is its own cell.

        y : (rows, targets); training_y : (training rows, targets)
        most : (targets,), largest distance of the bounds of a cell from its value
        """
        columns = zip(y.T, training_y.T, most, strict=True)
        low, high = zip(*(_cells_of_target(*column) for column in columns), strict=True)
        return cls(np.stack(low, axis=1), np.stack(high, axis=1))


def _cells_of_target(y, training_y, most: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds of the cells of y, (rows,) both."""
    distinct, counts = np.unique(training_y, return_counts=True)
    apart = np.diff(distinct) > ROUNDING * (distinct[-1] - distinct[0])
    if not apart.any():
        # A constant y counts as one with a standard deviation of 1, as in Scaling.
        return y - 0.5, y + 0.5
    first, last = distinct[np.append(True, apart)], distinct[np.append(apart, True)]
    counts = np.add.reduceat(counts, np.flatnonzero(np.append(True, apart)))
    middle = (first[1:] + last[:-1]) / 2
    low = np.append(first[0] + last[0] - middle[0], middle)
    high = np.append(middle, first[-1] + last[-1] - middle[-1])
    nearest = np.searchsorted(middle, y)
    is_repeated = counts[nearest] > 1
    return (
        np.where(is_repeated, np.maximum(low[nearest], y - most), y),
        np.where(is_repeated, np.minimum(high[nearest], y + most), y),
    )
