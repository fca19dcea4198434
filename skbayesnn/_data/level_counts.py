"""Numbers of training rows with a level, and with a combination of levels.

A level of many rows differs from a rare one, and statistics of y of a rare level are
uncertain. The feature is log(1 + n), where n is the number of other training rows with
the same level, or with the same combination of levels of two or more columns. CatBoost
also counts levels and combines columns [Prokhorenkova et al. 2018].
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np

from skbayesnn import _stored as stored

# Most columns whose levels are combined: those with the most levels.
MAX_COMBINED = 5


@dataclass(frozen=True)
class LevelCounts:
    """Number of training rows with each combination of levels.

    Parameters
    ----------
    columns : tuple of int
        Positions of the columns.
    keys : ndarray of shape (combinations,), int64
        Sorted. The key of levels i, j, ... is ((i n_2) + j) n_3 + ..., where n_k is the
        number of levels of column k.
    counts : ndarray of shape (combinations,)
        Total weight of the rows.
    """

    columns: tuple[stored.Count, ...]
    keys: Annotated[stored.Integers, "combinations", stored.NOT_NEGATIVE, stored.RISING]
    counts: Annotated[stored.Floats, "combinations", stored.NOT_NEGATIVE]

    def __call__(self, keys: np.ndarray) -> np.ndarray:
        """Counts of new rows; 0 for a combination that no training row has."""
        if not len(self.keys):
            return np.zeros(len(keys))
        place = np.searchsorted(self.keys, keys)
        place = np.minimum(place, len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.counts[place], 0.0)


def keys_of(index: Sequence[np.ndarray], n_levels: Sequence[int]) -> np.ndarray:
    """Key of the combination of levels of each row, (rows,); -1 with an unseen level.

    index : for each column, (rows,); the number of levels of the column if unseen
    """
    key = np.zeros(len(index[0]), np.int64)
    is_seen = np.ones(len(key), bool)
    for column, n in zip(index, n_levels, strict=True):
        key = key * n + column
        is_seen &= column < n
    return np.where(is_seen, key, -1)


def fit_counts(
    columns: tuple[int, ...],
    keys: np.ndarray,
    weights: np.ndarray,
    groups: np.ndarray | None,
) -> tuple[LevelCounts, np.ndarray]:
    """Counts of the combinations, and of the other rows for each row.

    keys : (rows,); -1 for levels without a key, which are not counted
    weights : (rows,); a row of weight 2 is two rows, so one other row has its levels.
        Rows of weight zero get counts of all used rows
    groups : (rows,), or None; other rows are then rows of other groups
    """
    used = (weights > 0) & (keys >= 0)
    unique, place = np.unique(keys[used], return_inverse=True)
    totals = np.bincount(place, weights[used])
    counts = LevelCounts(columns, unique, totals)
    of_rows = counts(keys)
    if groups is None:
        own = np.minimum(weights[used], 1.0)
    else:
        _, group = np.unique(groups[used], return_inverse=True)
        _, cell = np.unique(place * (group.max() + 1) + group, return_inverse=True)
        own = np.bincount(cell, weights[used])[cell]
    of_rows[used] = np.maximum(of_rows[used] - own, 0.0)
    return counts, of_rows


def candidates(n_levels: dict[int, int]) -> Iterator[tuple[int, ...]]:
    """Columns to count: each, each pair, and all together.

    n_levels : number of levels of each column, by position
    """
    yield from ((j,) for j in n_levels)
    most = sorted(n_levels, key=lambda j: -n_levels[j])[:MAX_COMBINED]
    combined = sorted(most)
    yield from combinations(combined, 2)
    n_keys = np.prod([float(n_levels[j]) for j in combined])
    if len(combined) > 2 and n_keys < np.iinfo(np.int64).max:
        yield tuple(combined)


def feature(counts: np.ndarray) -> np.ndarray:
    """log(1 + n), (rows, 1)."""
    return np.log1p(counts)[:, np.newaxis]
