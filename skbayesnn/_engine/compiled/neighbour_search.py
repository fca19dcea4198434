"""Soft nearest neighbours of new rows: their classes, and distributions of their y.

Training rows z_i have the weights w_i = s_i exp(-|z - z_i|^2) for a query z. Many rows
are in cells: each row belongs to the nearest of some centres. If the rows of a cell are
normal with mean m and variances v, the expected sum of their weights is

    S exp(-sum_j (z_j - m_j)^2 / (1 + 2 v_j)) / sqrt(prod_j (1 + 2 v_j)),

where S is the sum of their s. A query visits cells in decreasing order of this sum,
until the sum over all other cells is at most a share of the weights so far.
"""

from typing import NamedTuple

import numpy as np

from skbayesnn._engine.compiled.neighbours import exponents_of, largest
from skbayesnn._engine.compiled.numerics import (
    compiled,
    compiled_sums,
    copy,
    entry,
    exp,
    fill,
)

# Neighbours with a smaller weight, relative to the largest one, are left out; with
# cells, as many as have together at most a share of the weights.
MIN_WEIGHT, LEFT_OUT = 1e-10, 1e-3
# Factor on the bound of groups while there are too many.
GROWTH = 1.25


class StoredRows(NamedTuple):
    """Embedded training rows, in the order of their cells.

    Parameters
    ----------
    columns : ndarray of shape (embedding, rows)
    offsets : ndarray of shape (rows,)
        log s - |z|^2.
    rows : ndarray of shape (rows,), int32
        Positions among the training rows.
    starts : ndarray of shape (cells + 1,), int64
        Positions of the first rows of the cells, and the number of rows.
    means : ndarray of shape (embedding, cells)
        m.
    precisions : ndarray of shape (embedding, cells)
        1 / (1 + 2 v).
    log_weights : ndarray of shape (cells,)
        log(S / sqrt(prod_j (1 + 2 v_j))).
    """

    columns: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    means: np.ndarray
    precisions: np.ndarray
    log_weights: np.ndarray


@compiled
def _fill_order(keys, order):
    """Write the positions of the keys in increasing order, by a heap sort.

    NumPy's functions take seconds to compile.
    """
    for i in range(keys.size):
        order[i] = i
    start, end = keys.size // 2, keys.size
    while end > 1:
        if start:
            start -= 1
        else:
            end -= 1
            order[0], order[end] = order[end], order[0]
        root, child = start, 2 * start + 1
        while child < end:
            if child + 1 < end and keys[order[child]] < keys[order[child + 1]]:
                child += 1
            if keys[order[root]] >= keys[order[child]]:
                break
            order[root], order[child] = order[child], order[root]
            root, child = child, 2 * child + 1


@entry
def fill_nearest(z, centres, cells):
    """Write the nearest centre of each row.

    z : (rows, embedding); centres : (embedding, cells)
    """
    distances = np.empty(centres.shape[1], z.dtype)
    for i in range(z.shape[0]):
        fill(distances, z.dtype.type(0))
        for j in range(z.shape[1]):
            column, value = centres[j], z[i, j]
            for k in range(distances.size):
                difference = value - column[k]
                distances[k] += difference * difference
        cells[i] = np.argmin(distances)


@compiled
def _order_cells(query, stored, work):
    """Write the order of the cells, and the expected weight of each and all later ones.

    returns : log of the unit of these weights
    """
    n, losses = stored.log_weights.size, work.losses
    for k in range(n):
        losses[k] = -stored.log_weights[k]
    for j in range(query.size):
        mean, precision, value = stored.means[j], stored.precisions[j], query[j]
        for k in range(n):
            difference = value - mean[k]
            losses[k] += difference * difference * precision[k]
    _fill_order(losses, work.order)
    least, rest = np.float64(losses[work.order[0]]), 0.0
    for visit in range(n - 1, -1, -1):
        rest += np.exp(least - losses[work.order[visit]])
        work.rest[visit] = rest
    return -least


@compiled_sums
def _total_weight(exponents, top):
    total = exponents.dtype.type(0)
    for c in range(exponents.size):
        total += exp(exponents[c] - top)
    return total


class Workspace(NamedTuple):
    """Weights and positions of the neighbours of a query; order of the cells."""

    weights: np.ndarray
    rows: np.ndarray
    losses: np.ndarray
    order: np.ndarray
    rest: np.ndarray


@compiled
def _workspace(stored):
    dtype, n, n_cells = (
        stored.offsets.dtype,
        stored.offsets.size,
        stored.starts.size - 1,
    )
    return Workspace(
        np.empty(n, dtype),
        np.empty(n, np.int32),
        np.empty(n_cells, dtype),
        np.zeros(n_cells, np.int32),
        np.empty(n_cells),
    )


@compiled
def _find(query, stored, share, work):
    """Find the neighbours of a query: write their weights, relative to the largest one.

    returns : their number, and the smallest weight that counts
    """
    n_cells, n = work.order.size, 0
    dtype = stored.offsets.dtype.type
    unit = 0.0
    if n_cells > 1:
        unit = _order_cells(query, stored, work)
        for j in range(query.size):
            unit += np.float64(query[j]) * query[j]
    top, total = dtype(-np.inf), 0.0
    for visit in range(n_cells):
        if visit and np.log(work.rest[visit]) + unit <= np.log(share * total) + top:
            break
        k = work.order[visit]
        start, end = stored.starts[k], stored.starts[k + 1]
        exponents = work.weights[n : n + end - start]
        exponents_of(query, stored.columns, stored.offsets, start, exponents)
        for c in range(end - start):
            work.rows[n + c] = stored.rows[start + c]
        n += end - start
        new = max(top, largest(exponents))
        if n_cells > 1:
            total *= np.exp(np.float64(top - new))
            total += _total_weight(exponents, new)
        top = new
    for c in range(n):
        work.weights[c] = exp(work.weights[c] - top)
    # With one cell, the total is not computed.
    return n, max(MIN_WEIGHT, LEFT_OUT * total / n)


@entry
def n_visited(queries, stored, share):
    """Rows whose distances are computed for each query, (queries,)."""
    work, numbers = _workspace(stored), np.empty(queries.shape[0], np.int64)
    for i in range(queries.shape[0]):
        numbers[i], _ = _find(queries[i], stored, share, work)
    return numbers


@entry
def neighbour_labels(queries, stored, share, labels, probabilities):
    """Write the share of every class among the neighbours, (queries, classes).

    labels : (rows,), of the training rows
    """
    work = _workspace(stored)
    for i in range(queries.shape[0]):
        n, _ = _find(queries[i], stored, share, work)
        fill(probabilities[i], 0.0)
        total = 0.0
        for c in range(n):
            probabilities[i, labels[work.rows[c]]] += work.weights[c]
            total += work.weights[c]
        for k in range(probabilities.shape[1]):
            probabilities[i, k] /= total


@compiled
def _sort_by_rank(ranks, n, rows, weights, spare_rows, spare_weights):
    """Sort the first n neighbours by the ranks of their rows: a radix sort."""
    is_sorted = True
    for k in range(1, n):
        is_sorted &= ranks[rows[k - 1]] < ranks[rows[k]]
    if is_sorted:
        return
    counts = np.empty(2048, np.int64)
    shift = 0
    while ranks.size >> shift:
        fill(counts, 0)
        for k in range(n):
            counts[(ranks[rows[k]] >> shift) & 2047] += 1
        total = 0
        for digit in range(2048):
            total, counts[digit] = total + counts[digit], total
        for k in range(n):
            digit = (ranks[rows[k]] >> shift) & 2047
            at = counts[digit]
            spare_rows[at], spare_weights[at] = rows[k], weights[k]
            counts[digit] += 1
        copy(spare_rows[:n], rows[:n])
        copy(spare_weights[:n], weights[:n])
        shift += 11


@compiled
def _keep_relevant(n, least, work):
    """Move neighbours that count to the front; return their number and weight."""
    kept, total = 0, 0.0
    for c in range(n):
        if work.weights[c] >= least:
            work.weights[kept], work.rows[kept] = work.weights[c], work.rows[c]
            total += work.weights[c]
            kept += 1
    return kept, total


@compiled
def _fill_groups(y, weights, total, bound, weight, location, variance, starts):
    """Write groups of increasing y; see ``neighbour_values``.

    y, weights : (neighbours,)
    total : sum of the weights
    weight, location, variance : (K,)
    starts : (K,), smallest y of a group
    """
    n_groups = weight.size
    while True:
        group, start = -1, -np.inf
        for k in range(y.size):
            value, share = y[k], weights[k] / total
            deviation = value - start
            if group < 0 or (weight[group] + share) * deviation**3 > bound**3:
                group += 1
                if group == n_groups:
                    break
                start, deviation = value, 0.0
                weight[group] = location[group] = variance[group] = 0.0
            # Relative to the start of the group, for precise variances.
            weight[group] += share
            location[group] += share * deviation
            variance[group] += share * deviation * deviation
            starts[group] = start
        if group < n_groups:
            break
        bound *= GROWTH
    for k in range(group + 1):
        mean = location[k] / weight[k]
        variance[k] = max(variance[k] / weight[k] - mean * mean, 0.0)
        location[k] = starts[k] + mean
    for k in range(group + 1, n_groups):
        weight[k], variance[k] = 0.0, 0.0
        location[k] = location[0]


@entry
def neighbour_values(
    queries, stored, share, y, ranks, widths, merged, weight, location, variance
):
    """Write the distribution of y among the neighbours, as at most K groups per target.

    A group contains neighbours with similar y, and has their total weight, mean and
    variance. The third moment of a group changes the density; it is at most 0.1 w d^3,
    for weight w and range d. Groups grow up to w d^3 = (merged h)^3, with the smaller
    width h, and further if there are more than K groups.

    queries : (queries, embedding)
    share : see the module docstring
    y : (targets, rows), of the training rows
    ranks : (targets, rows), int32, positions of the rows in increasing order of y
    widths : (targets,), h
    weight, location, variance : (queries, targets, K), float64
    """
    work, spare = _workspace(stored), _workspace(stored)
    values, starts = np.empty(stored.offsets.size), np.empty(weight.shape[2])
    for i in range(queries.shape[0]):
        n, least = _find(queries[i], stored, share, work)
        n, total = _keep_relevant(n, least, work)
        for t in range(y.shape[0]):
            _sort_by_rank(
                ranks[t], n, work.rows, work.weights, spare.rows, spare.weights
            )
            for k in range(n):
                values[k] = y[t, work.rows[k]]
            _fill_groups(
                values[:n],
                work.weights[:n],
                total,
                merged * widths[t],
                weight[i, t],
                location[i, t],
                variance[i, t],
                starts,
            )
