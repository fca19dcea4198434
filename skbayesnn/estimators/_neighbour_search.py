"""Training rows as the posterior draws embed them, in cells for the search."""

import math
from typing import Any, NamedTuple

import numpy as np

# From this number of rows on, the neighbours are searched in cells.
SEARCHED_FROM = 100_000
# Largest expected share of the weights in cells that are not visited. It is far below
# what matters, since similar rows are clumped: rows are nearer than expected.
SHARE = 1e-8
# Cells per square root of the number of rows.
CELLS_PER_ROOT = 1.0
# The centres of the cells: steps of Lloyd's algorithm, on some rows per cell.
N_STEPS, ROWS_PER_CELL = 5, 32


class Draw(NamedTuple):
    """One posterior draw of one network.

    Parameters
    ----------
    member : int
    masks : ndarray of shape (2, hidden_size)
    stored : StoredRows
        The training rows, embedded.
    """

    member: int
    masks: np.ndarray
    stored: Any


class Cache:
    """Embeddings and targets of the training rows; all caches compare equal."""

    def __init__(self):
        self.draws: tuple[Any, ...] = ()
        self.targets: tuple[Any, ...] = ()

    def __eq__(self, other):
        return isinstance(other, Cache)

    __hash__ = None  # type: ignore[assignment]


def stored_rows(z: np.ndarray, weights: np.ndarray, n_cells: int = 1):
    """Sort embedded training rows by their cells.

    z : (rows, embedding)
    weights : (rows,), s, with a mean of 1
    n_cells : at most this number of cells; with one, the order of the rows stays
    """
    from skbayesnn._engine.compiled.neighbour_search import StoredRows

    offsets = np.log(weights) - np.square(z.astype(np.float64)).sum(1)
    cell = np.zeros(len(z), np.int64)
    if n_cells > 1:
        _, cell = np.unique(_nearest(z, _centres(z, n_cells)), return_inverse=True)
    order, sizes = np.argsort(cell, kind="stable"), np.bincount(cell)
    ends = np.cumsum(sizes)
    means, precisions = np.empty((2, z.shape[1], len(sizes)))
    for j, column in enumerate(z.T.astype(np.float64)):
        means[j] = np.bincount(cell, column) / sizes
        variance = np.bincount(cell, np.square(column - means[j, cell])) / sizes
        precisions[j] = 1 / (1 + 2 * variance)
    log_weights = np.log(np.bincount(cell, weights)) + 0.5 * np.log(precisions).sum(0)
    return StoredRows(
        np.ascontiguousarray(z[order].T),
        offsets[order].astype(z.dtype),
        order.astype(np.int32),
        np.append(0, ends),
        *(a.astype(z.dtype) for a in (means, precisions, log_weights)),
    )


def shares_of_classes(z: np.ndarray, stored, labels, n_classes: int) -> np.ndarray:
    """Share of every class among the neighbours of some queries.

    z : (queries, embedding)
    stored : StoredRows
    labels : (rows,), of the training rows
    returns : (queries, classes), float64
    """
    from skbayesnn._engine.compiled import neighbour_search

    shares = np.empty((len(z), n_classes))
    neighbour_search.neighbour_labels(z, stored, SHARE, labels, shares)
    return shares


def groups_of_values(z, stored, y, ranks, widths, merged, n_groups) -> np.ndarray:
    """Distribution of y among the neighbours of some queries, as groups.

    z, stored : as in ``shares_of_classes``
    y, ranks, widths, merged : see ``neighbour_search.neighbour_values``
    returns : weights, means and variances, (3, queries, targets, groups)
    """
    from skbayesnn._engine.compiled import neighbour_search

    groups = np.empty((3, len(z), len(y), n_groups))
    rest = y, ranks, widths, merged, *groups
    neighbour_search.neighbour_values(z, stored, SHARE, *rest)
    return groups


def _centres(z: np.ndarray, n_cells: int) -> np.ndarray:
    """Centres by Lloyd's algorithm, on evenly spaced rows; (cells, embedding)."""
    n = min(len(z), ROWS_PER_CELL * n_cells)
    sample = z[np.arange(n) * len(z) // n]
    centres = sample[np.arange(n_cells) * n // n_cells]
    for _ in range(N_STEPS):
        cell = _nearest(sample, centres)
        size = np.bincount(cell, minlength=n_cells)
        sums = [np.bincount(cell, column, n_cells) for column in sample.T]
        means = np.stack(sums, axis=1) / np.maximum(size, 1)[:, None]
        centres = np.where(size[:, None] > 0, means, centres).astype(z.dtype)
    return centres


def _nearest(z: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Nearest centre of each row."""
    from skbayesnn._engine.compiled.neighbour_search import fill_nearest

    cells = np.empty(len(z), np.int64)
    fill_nearest(z, np.ascontiguousarray(centres.T), cells)
    return cells


def n_cells_for(n_rows: int) -> int:
    """Number of cells; one below ``SEARCHED_FROM`` rows."""
    return int(CELLS_PER_ROOT * math.sqrt(n_rows)) if n_rows >= SEARCHED_FROM else 1
