"""Soft nearest neighbours in a learned embedding: training and predictions.

The embedding of a row x has two hidden layers and a linear map,

    z(x) = W_3' (m_2 a_2) + L' x,  a_2 = relu(W_2' (m_1 a_1) + b_2),
    a_1 = relu(W_1' x + b_1),

with masks m of dropout. A training step embeds C rows. For the first B of them, the
queries, it maximises the mean log density given the rows of other groups,

    log p(y_i) = log sum_c w_ic k(y_i - y_c) - log sum_c w_ic,  g_c != g_i,
    w_ic = s_c exp(-|z_i - z_c|^2),  k = a N(0, h_1^2) + (1 - a) N(0, h_2^2).

With several targets, k is the product of such densities, each with its own widths.
Without groups g, each row is a group alone. For K classes, k is 1 - a + a / K for equal
labels and a / K for others. All rows of a step have the same masks, because distances
between embeddings of different draws have no meaning. The gradient of log p in the
exponents -|z_i - z_c|^2 is r - q, with the shares r = w k / sum w k and q = w / sum w;
all other gradients follow from it.
"""

from typing import NamedTuple

import numpy as np

from skbayesnn._engine.compiled.adam import adam
from skbayesnn._engine.compiled.numerics import (
    compiled,
    compiled_sums,
    copy,
    entry,
    exp,
    fill,
    fill_order,
    fill_uniform,
    fill_words,
    log,
    product,
    product_back,
    product_over_rows,
    sigmoid,
)

# Smallest density of a query that has a gradient, in units of the standardised y. It
# is positive in float32; rows below are outliers.
MIN_DENSITY = 1e-25
# Neighbours with a smaller weight, relative to the largest one, are left out.
MIN_WEIGHT = 1e-10
# Factor on the bound of groups while there are too many.
GROWTH = 1.25


class Rows(NamedTuple):
    """Training rows.

    Parameters
    ----------
    x : ndarray of shape (rows, inputs)
    y : ndarray of shape (targets, rows)
        Standardised targets; (1, 0) for labels.
    labels : ndarray of shape (rows,), int64
        Codes of the classes; empty for a regression.
    weights : ndarray of shape (rows,)
        Positive, with a mean of 1.
    groups : ndarray of shape (rows,), int64
        Rows of the same group do not predict each other in training. Empty if each row
        is a group alone.
    n_classes : int
        0 for a regression.
    """

    x: np.ndarray
    y: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    groups: np.ndarray
    n_classes: int


class Sizes(NamedTuple):
    """Sizes of a network and of its training steps.

    Parameters
    ----------
    n_inputs, n_hidden, n_embedding : int
    n_queries, n_subset : int
        B and C.
    """

    n_inputs: int
    n_hidden: int
    n_embedding: int
    n_queries: int
    n_subset: int


def part_shapes(
    n_inputs: int, n_hidden: int, n_embedding: int, n_targets: int = 1
) -> dict[str, tuple]:
    """Shapes of the parameters, in their order in the vector of parameters.

    The kernel has the log of h_1 for each target, of h_2 for each target (0 for
    classes), and the logit of a.
    """
    return {
        "w1": (n_inputs, n_hidden),
        "b1": (n_hidden,),
        "w2": (n_hidden, n_hidden),
        "b2": (n_hidden,),
        "w3": (n_hidden, n_embedding),
        "linear": (n_inputs, n_embedding),
        "kernel": (2 * n_targets + 1,),
    }


@compiled
def _split(values, sizes):
    """Views of the parameters, flat."""
    n, h, d = sizes.n_inputs, sizes.n_hidden, sizes.n_embedding
    e1 = n * h
    e2 = e1 + h
    e3 = e2 + h * h
    e4 = e3 + h
    e5 = e4 + h * d
    e6 = e5 + n * d
    return (
        values[:e1],
        values[e1:e2],
        values[e2:e3],
        values[e3:e4],
        values[e4:e5],
        values[e5:e6],
        values[e6:],
    )


@compiled
def _relu_masked(units, bias, mask):
    """units = relu(units + bias) * mask, in place, for flat units (rows, hidden)."""
    zero = units.dtype.type(0)
    n = bias.size
    for i in range(units.size // n):
        row = units[i * n : (i + 1) * n]
        for j in range(n):
            row[j] = max(row[j] + bias[j], zero) * mask[j]


@compiled
def _relu_back(gradients, units, mask, bias_gradients):
    """Gradients before the activation, in place, and their sums over rows.

    A masked unit is 0, as is a unit whose relu is 0: neither has a gradient.
    """
    zero = units.dtype.type(0)
    n = bias_gradients.size
    for i in range(units.size // n):
        row, unit = gradients[i * n : (i + 1) * n], units[i * n : (i + 1) * n]
        for j in range(n):
            row[j] = row[j] * mask[j] if unit[j] > zero else zero
            bias_gradients[j] += row[j]


@compiled_sums
def _largest(values):
    """The largest of some finite values."""
    result = values[0]
    for i in range(values.size):
        result = max(result, values[i])
    return result


@compiled_sums
def _squared_lengths(z, squares):
    n = z.size // squares.size
    for i in range(squares.size):
        row = z[i * n : (i + 1) * n]
        total = z.dtype.type(0)
        for j in range(n):
            total += row[j] * row[j]
        squares[i] = total


@compiled_sums
def _match_values(exponents, top, y, value, kernel, products, sums):
    """Exponents to w, and products w k(y_i - y_c); sums for the gradients.

    kernel : h_1, h_2, a, for this call
    sums : written, w; w k; w N_1; w N_2; w N_1 e^2; w N_2 e^2
    """
    dtype = y.dtype.type
    half = dtype(-0.5)
    h1, h2, share = kernel[0], kernel[1], kernel[2]
    f1, f2 = half / (h1 * h1), half / (h2 * h2)
    root = dtype(0.3989422804014327)
    c1, c2 = root / h1 * share, root / h2 * (dtype(1) - share)
    total, matched = dtype(0), dtype(0)
    near, wide, near_e, wide_e = dtype(0), dtype(0), dtype(0), dtype(0)
    for c in range(exponents.size):
        w = exp(exponents[c] - top)
        e = y[c] - value
        square = e * e
        p1, p2 = w * c1 * exp(f1 * square), w * c2 * exp(f2 * square)
        exponents[c] = w
        products[c] = p1 + p2
        total += w
        matched += p1 + p2
        near += p1
        wide += p2
        near_e += p1 * square
        wide_e += p2 * square
    sums[0], sums[1], sums[2], sums[3] = total, matched, near, wide
    sums[4], sums[5] = near_e, wide_e


@compiled_sums
def _add_log_kernel(values, value, h1, h2, share, logs):
    """Add log k of one target to ``logs``; values : (subset,), y of the rows."""
    dtype = logs.dtype.type
    half, root = dtype(-0.5), dtype(0.3989422804014327)
    f1, f2 = half / (h1 * h1), half / (h2 * h2)
    c1, c2 = log(root / h1 * share), log(root / h2 * (dtype(1) - share))
    for c in range(logs.size):
        e = values[c] - value
        u1, u2 = c1 + f1 * e * e, c2 + f2 * e * e
        logs[c] += max(u1, u2) + log(dtype(1) + exp(-abs(u1 - u2)))


@compiled_sums
def _kernel_sums(values, value, h1, h2, share, products, sums):
    """Write sums of products times the derivatives of log k of one target.

    sums : in log h_1, in log h_2, in the logit of a
    """
    dtype = products.dtype.type
    half, one = dtype(-0.5), dtype(1)
    f1, f2 = half / (h1 * h1), half / (h2 * h2)
    c = log(share / h1) - log((one - share) / h2)
    in_h1, in_h2, in_share = dtype(0), dtype(0), dtype(0)
    for k in range(products.size):
        e = values[k] - value
        square = e * e
        near = sigmoid(c + (f1 - f2) * square)
        in_h1 += products[k] * near * (square / (h1 * h1) - one)
        in_h2 += products[k] * (one - near) * (square / (h2 * h2) - one)
        in_share += products[k] * (near - share)
    sums[0], sums[1], sums[2] = in_h1, in_h2, in_share


@compiled
def _match_targets(exponents, top, y, value, kernel, products, sums):
    """Exponents to w, and products w k, up to a factor; return the log density.

    The product over targets can be as small as no float32: k is computed as its log.

    y : (targets, subset); value : (targets,), of the query
    kernel : h_1 and h_2 of the targets, a
    sums : written, w; w k, up to the factor
    """
    n_targets, zero = y.shape[0], products.dtype.type(0)
    for c in range(products.size):
        products[c] = exponents[c] - top
    for t in range(n_targets):
        h1, h2 = kernel[t], kernel[n_targets + t]
        _add_log_kernel(y[t], value[t], h1, h2, kernel[2 * n_targets], products)
    highest, total, matched = _largest(products), zero, zero
    for c in range(products.size):
        exponents[c] = exp(exponents[c] - top)
        products[c] = exp(products[c] - highest)
        total += exponents[c]
        matched += products[c]
    sums[0], sums[1] = total, matched
    return highest + np.log(np.float64(matched) / total)


@compiled_sums
def _match_labels(exponents, top, labels, label, kernel, products, sums):
    """Exponents to w, and products w k; sums for the gradients.

    kernel : k for equal labels and for others
    sums : written, w; w k; w of equal labels
    """
    zero = exponents.dtype.type(0)
    equal, other = kernel[0], kernel[1]
    total, matched, same = zero, zero, zero
    for c in range(exponents.size):
        w = exp(exponents[c] - top)
        is_equal = labels[c] == label
        product = w * (equal if is_equal else other)
        exponents[c] = w
        products[c] = product
        total += w
        matched += product
        same += w if is_equal else zero
    sums[0], sums[1], sums[2] = total, matched, same


@compiled
def _kernel_values(kernel, n_classes):
    """h_1 and h_2 of the targets, and a; for classes k for equal labels and others."""
    dtype, n = kernel.dtype.type, kernel.size - 1
    a, at = sigmoid(kernel[n]), np.empty_like(kernel)
    at[n] = a
    if n_classes:
        at[1] = a / dtype(n_classes)
        at[0] = dtype(1) - a + at[1]
    else:
        for k in range(n):
            at[k] = exp(kernel[k])
    return at


@compiled
def _first_of_others(groups, i, n):
    """First row outside of the group of row i; n without such a row."""
    if not groups.size:
        return 0 if i else 1
    c = 0
    while c < n and groups[c] == groups[i]:
        c += 1
    return c


@compiled
def _fill_group(row, groups, i, value):
    """Write a value at all positions of the group of row i."""
    row[i] = value
    for c in range(groups.size):
        if groups[c] == groups[i]:
            row[c] = value


@compiled
def _query_gradients(work, n_classes, kernel, kernel_gradients):
    """Mean negative log density of the queries; exponents become its gradients.

    work : with exponents 2 z_i z_c, (queries, subset); the queries are its first rows
    """
    exponents, y, labels, groups = work.exponents, work.y, work.labels, work.groups
    dtype = exponents.dtype.type
    (n_queries, n), n_targets = exponents.shape, y.shape[0]
    products, sums = np.empty(n, exponents.dtype), np.zeros(6, exponents.dtype)
    value = np.empty(n_targets, exponents.dtype)
    tiny, one = dtype(MIN_DENSITY), dtype(1)
    at = _kernel_values(kernel, n_classes)
    a, of_a = at[2 * n_targets], 2 * n_targets
    loss = 0.0
    for i in range(n_queries):
        row = exponents[i]
        for c in range(n):
            row[c] += work.log_weights[c] - work.squares[c]
        other = _first_of_others(groups, i, n)
        if other == n:
            fill(row, dtype(0))
            continue
        # Leave the group of the query out: its w are about 1e-38.
        _fill_group(row, groups, i, row[other])
        top = _largest(row)
        _fill_group(row, groups, i, top - dtype(100 * n_targets))
        share = work.weights[i] / dtype(n_queries)
        if n_targets > 1:
            for t in range(n_targets):
                value[t] = y[t, i]
            log_density = _match_targets(row, top, y, value, at, products, sums)
            floor = n_targets * np.log(MIN_DENSITY)
            loss -= share * np.logaddexp(log_density, floor)
            share *= dtype(1 / (1 + np.exp(floor - log_density)))
            factor, to_all = share / sums[1], share / sums[0]
        else:
            if n_classes:
                _match_labels(row, top, labels, labels[i], at, products, sums)
            else:
                _match_values(row, top, y[0], y[0, i], at, products, sums)
            loss -= share * np.log(np.float64(sums[1] / sums[0]) + MIN_DENSITY)
            factor = share / (sums[1] + tiny * sums[0])
            to_all = factor * sums[1] / sums[0]
        for c in range(n):
            row[c] = to_all * row[c] - factor * products[c]
        _fill_group(row, groups, i, dtype(0))
        if n_classes:
            to_share = sums[0] / dtype(n_classes) - sums[2]
            kernel_gradients[2] -= factor * to_share * a * (one - a)
        elif n_targets > 1:
            for t in range(n_targets):
                h1, h2 = at[t], at[n_targets + t]
                _kernel_sums(y[t], value[t], h1, h2, a, products, sums)
                kernel_gradients[t] -= factor * sums[0]
                kernel_gradients[n_targets + t] -= factor * sums[1]
                kernel_gradients[of_a] -= factor * sums[2]
        else:
            h1, h2 = at[0], at[1]
            kernel_gradients[0] -= factor * (sums[4] / (h1 * h1) - sums[2])
            kernel_gradients[1] -= factor * (sums[5] / (h2 * h2) - sums[3])
            kernel_gradients[2] -= factor * (sums[2] * (one - a) - sums[3] * a)
    return loss


class Workspace(NamedTuple):
    """Arrays of a step, flat except for the exponents."""

    x: np.ndarray
    a1: np.ndarray
    a2: np.ndarray
    z: np.ndarray
    z_linear: np.ndarray
    exponents: np.ndarray
    squares: np.ndarray
    gradient_z: np.ndarray
    gradient_a: np.ndarray
    gradient_a1: np.ndarray
    column_sums: np.ndarray
    ones: np.ndarray
    y: np.ndarray
    labels: np.ndarray
    groups: np.ndarray
    weights: np.ndarray
    log_weights: np.ndarray


@compiled
def _workspace(rows, sizes):
    dtype, n = rows.x.dtype, sizes.n_subset
    ones = np.empty(sizes.n_queries, dtype)
    fill(ones, rows.x.dtype.type(1))
    return Workspace(
        np.empty(n * sizes.n_inputs, dtype),
        np.empty(n * sizes.n_hidden, dtype),
        np.empty(n * sizes.n_hidden, dtype),
        np.empty(n * sizes.n_embedding, dtype),
        np.empty(n * sizes.n_embedding, dtype),
        np.empty((sizes.n_queries, n), dtype),
        np.empty(n, dtype),
        np.empty(n * sizes.n_embedding, dtype),
        np.empty(n * sizes.n_hidden, dtype),
        np.empty(n * sizes.n_hidden, dtype),
        np.empty(n, dtype),
        ones,
        np.empty((rows.y.shape[0], n if rows.y.size else 0), dtype),
        np.empty(n if rows.labels.size else 0, np.int64),
        np.empty(n if rows.groups.size else 0, np.int64),
        np.empty(n, dtype),
        np.empty(n, dtype),
    )


@compiled
def _gather(rows, positions, work):
    """Copy the rows of a step."""
    n_inputs = rows.x.shape[1]
    for i in range(positions.size):
        position = positions[i]
        copy(rows.x[position], work.x[i * n_inputs : (i + 1) * n_inputs])
        if rows.y.size:
            for t in range(rows.y.shape[0]):
                work.y[t, i] = rows.y[t, position]
        if rows.labels.size:
            work.labels[i] = rows.labels[position]
        if rows.groups.size:
            work.groups[i] = rows.groups[position]
        work.weights[i] = rows.weights[position]
    for i in range(positions.size):
        work.log_weights[i] = log(work.weights[i])


@compiled
def _embed(sizes, values, masks, work):
    """Embeddings of the rows of a step."""
    n, n_in = sizes.n_subset, sizes.n_inputs
    h, d = sizes.n_hidden, sizes.n_embedding
    w1, b1, w2, b2, w3, linear, _ = _split(values, sizes)
    product(work.x, w1, work.a1, (n, n_in, h))
    _relu_masked(work.a1, b1, masks[0])
    product(work.a1, w2, work.a2, (n, h, h))
    _relu_masked(work.a2, b2, masks[1])
    product(work.a2, w3, work.z, (n, h, d))
    product(work.x, linear, work.z_linear, (n, n_in, d))
    for i in range(n * d):
        work.z[i] += work.z_linear[i]


@compiled
def _step(sizes, n_classes, values, masks, work, gradients):
    """Mean negative log density of the queries, and its gradient."""
    n, n_in = sizes.n_subset, sizes.n_inputs
    h, d, b = sizes.n_hidden, sizes.n_embedding, sizes.n_queries
    dtype = values.dtype.type
    _embed(sizes, values, masks, work)
    queries, two = work.z[: b * d], dtype(2)
    exponents = work.exponents.reshape(b * n)
    product_back(queries, work.z, exponents, (b, n, d))
    for i in range(b * n):
        exponents[i] *= two
    _squared_lengths(work.z, work.squares)
    fill(gradients, dtype(0))
    g_w1, g_b1, g_w2, g_b2, g_w3, g_linear, g_kernel = _split(gradients, sizes)
    _, _, w2, _, w3, _, kernel = _split(values, sizes)
    loss = _query_gradients(work, n_classes, kernel, g_kernel)
    # Exponents are -|z_i - z_c|^2, and the gradients of a query sum to zero.
    product_over_rows(exponents, queries, work.gradient_z, (b, n, d))
    product_over_rows(exponents, work.ones, work.column_sums, (b, n, 1))
    for c in range(n):
        for j in range(d):
            k = c * d + j
            work.gradient_z[k] = two * (
                work.gradient_z[k] - work.column_sums[c] * work.z[k]
            )
    to_queries = work.z_linear[: b * d]
    product(exponents, work.z, to_queries, (b, n, d))
    for k in range(b * d):
        work.gradient_z[k] += two * to_queries[k]
    product_over_rows(work.x, work.gradient_z, g_linear, (n, n_in, d))
    product_over_rows(work.a2, work.gradient_z, g_w3, (n, h, d))
    product_back(work.gradient_z, w3, work.gradient_a, (n, h, d))
    _relu_back(work.gradient_a, work.a2, masks[1], g_b2)
    product_over_rows(work.a1, work.gradient_a, g_w2, (n, h, h))
    product_back(work.gradient_a, w2, work.gradient_a1, (n, h, h))
    _relu_back(work.gradient_a1, work.a1, masks[0], g_b1)
    product_over_rows(work.x, work.gradient_a1, g_w1, (n, n_in, h))
    return loss


@compiled
def _fill_masks(masks, keep, words, seed, n_used):
    """Masks of both hidden layers: 1 with probability ``keep``."""
    one, zero = masks.dtype.type(1), masks.dtype.type(0)
    n_used = fill_words(words, seed, n_used)
    for layer in range(masks.shape[0]):
        row = masks[layer]
        fill_uniform(row, words[layer * row.size : (layer + 1) * row.size])
        for j in range(row.size):
            row[j] = one if row[j] < keep[layer] else zero
    return n_used


@entry
def loss_and_gradient(rows, sizes, values, masks, positions, gradients):
    """Loss of one step, and its gradient; see the module docstring.

    positions : (subset,), positions of the rows of the step; the queries are first
    gradients : written
    """
    work = _workspace(rows, sizes)
    _gather(rows, positions, work)
    return _step(sizes, rows.n_classes, values, masks, work, gradients)


@entry
def train_steps(
    rows,
    sizes,
    values,
    means,
    moments,
    curvature,
    learns_kernel,
    least_kernel,
    keep,
    seeds,
    step_sizes,
    epsilons,
):
    """Train for some passes over the rows; write the mean loss of each pass.

    A pass splits the rows, in random order, into subsets of C rows, one for each step.

    values, means, moments : ndarray of shape (parameters,)
        Parameters and Adam's moments, which change.
    curvature : ndarray of shape (parameters,)
        Of the quadratic penalty.
    learns_kernel : bool
    least_kernel : ndarray
        Lower bounds of the parameters of the kernel.
    keep : ndarray of shape (2,)
        Probabilities that the units of a hidden layer are kept.
    seeds : ndarray of shape (passes, 2), uint64
        Seeds of the masks, and of the order of the rows.
    step_sizes, epsilons : ndarray of shape (steps,)
    returns : ndarray of shape (passes,)
    """
    n_rows, n = rows.weights.size, sizes.n_subset
    n_subsets, first_of_kernel = n_rows // n, values.size - least_kernel.size
    work = _workspace(rows, sizes)
    gradients, losses = np.empty_like(values), np.zeros(seeds.shape[0])
    centre = np.empty_like(values)
    fill(centre, values.dtype.type(0))
    masks = np.empty((2, sizes.n_hidden), values.dtype)
    mask_words = np.empty(masks.size, np.uint64)
    order, words = np.empty(n_rows, np.int64), np.empty(n_rows, np.uint64)
    keys, spare = np.empty(n_rows, np.uint32), np.empty(n_rows, np.uint64)
    step = 0
    for k in range(seeds.shape[0]):
        fill_words(words, seeds[k, 1], np.int64(0))
        fill_order(order, words, keys, spare)
        n_used = np.int64(0)
        for subset in range(n_subsets):
            _gather(rows, order[subset * n : (subset + 1) * n], work)
            n_used = _fill_masks(masks, keep, mask_words, seeds[k, 0], n_used)
            loss = _step(sizes, rows.n_classes, values, masks, work, gradients)
            losses[k] += loss / n_subsets
            if not learns_kernel:
                fill(gradients[first_of_kernel:], values.dtype.type(0))
            adam(
                values,
                gradients,
                means,
                moments,
                curvature,
                centre,
                1.0,
                step_sizes[step],
                epsilons[step],
            )
            for j in range(least_kernel.size):
                i = first_of_kernel + j
                values[i] = max(values[i], least_kernel[j])
            step += 1
        if not np.isfinite(losses[k]):
            break
    return losses


# ---- trained networks


@compiled
def _add_product(inputs, weights, outputs):
    """outputs += inputs W, for one row; the sum over inputs has a fixed order."""
    n = outputs.size
    for i in range(inputs.size):
        row, factor = weights[i * n : (i + 1) * n], inputs[i]
        for j in range(n):
            outputs[j] += factor * row[j]


@entry
def embed(sizes, values, masks, x, z):
    """Write the embeddings of rows; each is computed alone.

    x : (rows, inputs); z : (rows, embedding)
    """
    zero = values.dtype.type(0)
    w1, b1, w2, b2, w3, linear, _ = _split(values, sizes)
    a1, a2 = np.empty(sizes.n_hidden, x.dtype), np.empty(sizes.n_hidden, x.dtype)
    for i in range(x.shape[0]):
        fill(a1, zero)
        fill(a2, zero)
        fill(z[i], zero)
        _add_product(x[i], w1, a1)
        _relu_masked(a1, b1, masks[0])
        _add_product(a1, w2, a2)
        _relu_masked(a2, b2, masks[1])
        _add_product(a2, w3, z[i])
        _add_product(x[i], linear, z[i])


@compiled
def _fill_exponents(query, columns, offsets, exponents):
    """Write offsets + 2 z_i z for training rows z_i.

    query : (embedding,); columns : (embedding, rows)
    offsets, exponents : (rows,); offsets are log s - |z|^2
    """
    two = query.dtype.type(2)
    copy(offsets, exponents)
    for j in range(query.size):
        column, factor = columns[j], two * query[j]
        for c in range(exponents.size):
            exponents[c] += factor * column[c]


@entry
def log_densities(queries, columns, offsets, rows, y, labels, kernel, densities):
    """Write the log density of y, or the log probability of a label, of each query.

    queries : (queries, embedding); columns, offsets : as in ``_fill_exponents``
    rows : Rows; y or labels are used
    y, labels : of the queries, (targets, queries) or (queries,); one is empty
    """
    dtype, n_targets = offsets.dtype.type, rows.y.shape[0]
    at, sums = _kernel_values(kernel, rows.n_classes), np.zeros(6, offsets.dtype)
    exponents, products = np.empty_like(offsets), np.empty_like(offsets)
    value = np.empty(n_targets, offsets.dtype)
    for i in range(queries.shape[0]):
        _fill_exponents(queries[i], columns, offsets, exponents)
        top = _largest(exponents)
        if n_targets > 1:
            for t in range(n_targets):
                value[t] = y[t, i]
            density = _match_targets(exponents, top, rows.y, value, at, products, sums)
            densities[i] = max(density, n_targets * np.log(MIN_DENSITY))
            continue
        if rows.n_classes:
            _match_labels(exponents, top, rows.labels, labels[i], at, products, sums)
        else:
            _match_values(exponents, top, rows.y[0], y[0, i], at, products, sums)
        densities[i] = np.log(max(sums[1] / sums[0], dtype(MIN_DENSITY)))


@compiled
def _fill_weights(query, columns, offsets, weights):
    """Write the weights w of the training rows, relative to the largest one."""
    _fill_exponents(query, columns, offsets, weights)
    top = _largest(weights)
    for c in range(weights.size):
        weights[c] = exp(weights[c] - top)


@entry
def neighbour_labels(queries, columns, offsets, labels, probabilities):
    """Write the share of every class among the neighbours, (queries, classes).

    labels : (rows,), of the training rows
    """
    weights = np.empty_like(offsets)
    for i in range(queries.shape[0]):
        _fill_weights(queries[i], columns, offsets, weights)
        fill(probabilities[i], 0.0)
        total = 0.0
        for c in range(weights.size):
            probabilities[i, labels[c]] += weights[c]
            total += weights[c]
        for k in range(probabilities.shape[1]):
            probabilities[i, k] /= total


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
    queries, columns, offsets, y, order, widths, merged, weight, location, variance
):
    """Write the distribution of y among the neighbours, as at most K groups per target.

    A group contains neighbours with similar y, and has their total weight, mean and
    variance. The third moment of a group changes the density; it is at most 0.1 w d^3,
    for weight w and range d. Groups grow up to w d^3 = (merged h)^3, with the smaller
    width h, and further if there are more than K groups.

    queries : (queries, embedding)
    y : (targets, rows), of the training rows, increasing
    order : (targets, rows), the row of each of these values
    widths : (targets,), h
    weight, location, variance : (queries, targets, K), float64
    """
    weights, near = np.empty_like(offsets), np.empty_like(offsets)
    values, starts = np.empty(offsets.size), np.empty(weight.shape[2])
    for i in range(queries.shape[0]):
        _fill_weights(queries[i], columns, offsets, weights)
        for t in range(y.shape[0]):
            n, total = 0, 0.0
            for k in range(weights.size):
                w = weights[order[t, k]]
                if w >= MIN_WEIGHT:
                    near[n], values[n] = w, y[t, k]
                    total += w
                    n += 1
            _fill_groups(
                values[:n],
                near[:n],
                total,
                merged * widths[t],
                weight[i, t],
                location[i, t],
                variance[i, t],
                starts,
            )
