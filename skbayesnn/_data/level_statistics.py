"""Statistics of y for the levels of a category with many levels [Micci-Barreca 2001].

A level is encoded by the mean of y of its rows minus the mean of all rows, shrunk to
zero. A row is encoded by statistics of the folds that do not contain it.
"""

import numpy as np

from skbayesnn._data.groups import shuffled_folds

N_FOLDS = 5
# Largest number of rows of the overall mean that shrink the mean of a level.
MAX_PSEUDO_ROWS = 1000.0
# More different integers are not taken for class labels.
MAX_CLASSES = 30


def is_continuous(y: np.ndarray) -> bool:
    """Whether y contains numbers instead of class labels."""
    if y.dtype.kind not in "iuf":
        return False
    return y.ndim > 1 or len(np.unique(y)) > MAX_CLASSES or bool((y % 1 != 0).any())


def targets_of(y: np.ndarray, weights: np.ndarray, continuous: bool) -> list:
    """Values whose means encode a level: a list of arrays (rows, columns).

    Each target of a regression is an array of one column. Classes are one array with an
    indicator of each class, or of the second of two classes.

    weights : (rows,); labels of rows of weight zero do not count
    """
    if continuous:
        return list(y.reshape(len(y), -1).T[..., np.newaxis].astype(np.float64))
    classes = np.unique(y[weights > 0])
    if len(classes) == 2:
        classes = classes[1:]
    return [(y[:, np.newaxis] == classes).astype(np.float64)]


def level_statistics(
    index: np.ndarray,
    n_levels: int,
    targets: list,
    weights: np.ndarray,
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Encodings of the levels, and of the training rows.

    index : (rows,), level of each row
    targets : result of ``targets_of``
    weights : (rows,); rows of weight zero are encoded by the encodings of the levels
    groups : (rows,); the folds do not split them
    returns : (levels + 1, columns), the last row for unseen levels; and (rows, columns)
    """
    used = np.flatnonzero(weights > 0)
    by_level = _means(index[used], n_levels, [t[used] for t in targets], weights[used])
    by_row = by_level[index]
    groups = None if groups is None else groups[used]
    for rest, fold in shuffled_folds(len(used), N_FOLDS, 0, groups):
        others, rows = used[rest], used[fold]
        values = [target[others] for target in targets]
        of_others = _means(index[others], n_levels, values, weights[others])
        by_row[rows] = of_others[index[rows]]
    return by_level, by_row


def _means(index, n_levels: int, targets: list, weights) -> np.ndarray:
    """Shrunk deviations of the levels from the mean, (levels + 1, columns).

    A level without rows, and the last row, are zero.
    """
    counts = np.bincount(index, weights, n_levels)[:, np.newaxis]
    blocks = []
    for values in targets:
        centred = values - np.average(values, axis=0, weights=weights)
        sums = [np.bincount(index, weights * v, n_levels) for v in centred.T]
        total = counts + pseudo_rows(index, values, weights)
        total = np.where(total > 0, total, 1.0)
        blocks.append(np.stack(sums, axis=1) / total)
    means = np.concatenate(blocks, axis=1)
    return np.concatenate([means, np.zeros((1, means.shape[1]))])


def pseudo_rows(index: np.ndarray, values: np.ndarray, weights: np.ndarray) -> float:
    """Number of rows of the overall mean that shrink the mean of a level.

    It is the variance of y within levels, divided by the variance of the true means of
    the levels: the analysis of variance with random effects [Searle, Casella &
    McCulloch 1992, section 3.6].

    index : (rows,), level of each row
    values : (rows, columns); the variances are summed over columns
    weights : (rows,), positive
    """
    counts = np.bincount(index, weights)
    n_levels, n_rows = np.count_nonzero(counts), counts.sum()
    if n_levels < 2 or n_rows <= n_levels:
        return MAX_PSEUDO_ROWS
    centred = values - np.average(values, axis=0, weights=weights)
    sums = np.stack([np.bincount(index, weights * v) for v in centred.T], axis=1)
    total = (weights[:, np.newaxis] * np.square(centred)).sum()
    between = (np.square(sums[counts > 0]) / counts[counts > 0, np.newaxis]).sum()
    within = max(total - between, 0.0) / (n_rows - n_levels)
    effective = (n_rows - np.square(counts).sum() / n_rows) / (n_levels - 1)
    of_means = (between / (n_levels - 1) - within) / effective
    if of_means * MAX_PSEUDO_ROWS <= within:
        return MAX_PSEUDO_ROWS
    return float(within / of_means)
