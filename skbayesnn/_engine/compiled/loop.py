"""The training loop of one perceptron: all steps of some epochs in one compiled call.

It does what `_engine.training` and `_engine.step` do with torch, in the same order and
with the same random numbers, for one member. The call holds no lock, so that members
train on several threads.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from skbayesnn._engine.compiled import activations, families, likelihoods
from skbayesnn._engine.compiled.numerics import OPTIONS, fill_order, fill_words
from skbayesnn._engine.optimizer import BETA_1, BETA_2


class NetworkCode(NamedTuple):
    """A perceptron, its families and its likelihood, as numbers.

    Parameters
    ----------
    sizes : ndarray of shape (maps + 1,), int
    activation, likelihood : int
        Codes.
    learned : bool
        Whether tau is learned.
    given_df : float
        Given degrees of freedom of Student's t, or 0.
    families : ndarray of shape (maps,), int
        Codes.
    options : ndarray of shape (maps, N_OPTIONS), int
    highest : ndarray of shape (maps,)
        Upper bounds of log alpha.
    n_targets : int
    """

    sizes: np.ndarray
    activation: int
    likelihood: int
    learned: bool
    given_df: float
    families: np.ndarray
    options: np.ndarray
    highest: np.ndarray
    n_targets: int


class MemberCode(NamedTuple):
    """What differs between members.

    Parameters
    ----------
    keep : ndarray of shape (maps,), float64
    blocks : ndarray of shape (parameters, 2), int
        Start and size of each array of parameters in the vector of all members: for
        every map mean, bias, third and fourth array (of size 0 if there is none), then
        the arrays of the likelihood.
    trained : ndarray of shape (parameters,), bool
        Whether the array has gradients.
    kl_scale : float
        Factor of the KL's gradient, 1 / (N tau) or 1 / N.
    total_weight : float
        N.
    data_scale : float
        1 / tau, or 1 if tau is learned.
    """

    keep: np.ndarray
    blocks: np.ndarray
    trained: np.ndarray
    kl_scale: float
    total_weight: float
    data_scale: float


class Vectors(NamedTuple):
    """Vectors of all members' parameters: values, Adam's moments, and the prior.

    The KL's quadratic part is the sum of curvature / 2 (value - centre)^2. ``precision``
    is that of the prior of every weight and bias.
    """

    values: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    curvature: np.ndarray
    centre: np.ndarray
    precision: np.ndarray


class Table(NamedTuple):
    """The member's training rows.

    Parameters
    ----------
    x : ndarray of shape (rows of the table, inputs)
    y : ndarray of shape (rows of the table, targets); (0, 1) for classes
    labels : ndarray of shape (rows of the table,), int64; empty for regression
    rows : ndarray of shape (R,), int64
    weights : ndarray of shape (R,), divided by their mean; or empty
    shift : ndarray of shape (R, targets)
        Perturbation of y, or (0, 1).
    x_affine, y_affine : ndarray of shape (2, columns)
        Shift and factor of the columns, or (2, 0).
    """

    x: np.ndarray
    y: np.ndarray
    labels: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    shift: np.ndarray
    x_affine: np.ndarray
    y_affine: np.ndarray


class Steps(NamedTuple):
    """Schedule of the epochs to run; one entry per step, or per epoch.

    Parameters
    ----------
    seeds : ndarray of shape (epochs, 2), uint64
        Seeds of the words, and of the order of the rows.
    gain : ndarray of shape (epochs,)
        Gain of heteroscedastic noise.
    step_size, epsilon, kl_weight : ndarray of shape (epochs * batches,)
    n_batches, n_draws : int
    """

    seeds: np.ndarray
    gain: np.ndarray
    step_size: np.ndarray
    epsilon: np.ndarray
    kl_weight: np.ndarray
    n_batches: int
    n_draws: int


@njit(**OPTIONS)
def _adam(value, grad, mean, square, curvature, centre, kl, step_size, epsilon):
    dtype = value.dtype.type
    one, decay_1, decay_2 = dtype(1), dtype(1 - BETA_1), dtype(1 - BETA_2)
    kl, step_size, epsilon = dtype(kl), dtype(step_size), dtype(epsilon)
    for i in range(value.size):
        g = grad[i] + kl * curvature[i] * (value[i] - centre[i])
        m = mean[i] + decay_1 * (g - mean[i])
        v = square[i] + decay_2 * (g * g - square[i])
        mean[i], square[i] = m, v
        value[i] += step_size * m / (np.sqrt(v) + epsilon)


@njit(**OPTIONS)
def _gather(table, index, x, y, labels, factor, shift, data_scale):
    """Copy the rows of a batch; ``index`` are positions in the member's rows."""
    dtype = x.dtype.type
    share = dtype(data_scale / index.size)
    for i in range(index.size):
        position = index[i]
        row = table.rows[position]
        source, target = table.x[row], x[i]
        for j in range(target.size):
            target[j] = source[j]
        factor[i] = share
        if table.weights.size:
            factor[i] *= table.weights[position]
        if table.labels.size:
            labels[i] = table.labels[row]
        else:
            for t in range(y.shape[1]):
                y[i, t] = table.y[row, t]
        if table.shift.size:
            for t in range(y.shape[1]):
                shift[i, t] = table.shift[position, t]
    if table.x_affine.size:
        for i in range(index.size):
            for j in range(x.shape[1]):
                x[i, j] = (x[i, j] - table.x_affine[0, j]) * table.x_affine[1, j]
    if table.y_affine.size and not table.labels.size:
        for i in range(index.size):
            for t in range(y.shape[1]):
                y[i, t] = (y[i, t] - table.y_affine[0, t]) * table.y_affine[1, t]


@njit(**OPTIONS)
def _part(vector, block):
    return vector[block[0] : block[0] + block[1]]


@njit(**OPTIONS)
def kl_value(network, member, vectors):
    """KL of all maps, up to a constant, nats."""
    value = 0.0
    n_maps = network.families.size
    for k in range(4 * n_maps):
        theta = _part(vectors.values, member.blocks[k])
        curvature = _part(vectors.curvature, member.blocks[k])
        centre = _part(vectors.centre, member.blocks[k])
        total = 0.0
        for i in range(theta.size):
            deviation = theta[i] - centre[i]
            total += curvature[i] * deviation * deviation
        value += 0.5 * total
    for i in range(n_maps):
        arrays = [_part(vectors.values, member.blocks[4 * i + k]) for k in range(4)]
        value += families.kl_extra(
            network.families[i],
            network.options[i],
            arrays[0],
            arrays[1],
            arrays[2],
            arrays[3],
            network.highest[i],
            _part(vectors.precision, member.blocks[4 * i]),
            _part(vectors.precision, member.blocks[4 * i + 1]),
            0.0,
            arrays[0],
            arrays[2],
            arrays[3],
            True,
        )
    return value


@njit(**OPTIONS)
def train_epochs(network, member, vectors, table, steps, n_rows, nll, kl):
    """Run epochs of one member; write the mean nll per row and the KL of each epoch.

    n_rows : rows of a batch
    nll, kl : ndarray of shape (epochs,)
    returns : number of epochs until the loss was not finite, or all
    """
    values, sizes, n_maps = vectors.values, network.sizes, network.families.size
    empty = np.empty(0, values.dtype)
    empty_2d = empty.reshape(0, 1)
    dtype = values.dtype.type
    n_epochs, n_batches = steps.gain.size, steps.n_batches
    R = table.rows.size
    n_order = n_rows * n_batches
    order = np.empty(n_order, np.int64)
    order_words, keys = np.empty(R, np.uint64), np.empty(R, np.uint32)
    spare = np.empty(R, np.uint64)
    # Activations, gradients and parameters of all maps are parts of flat arrays.
    in_start, out_start = np.zeros(n_maps + 1, np.int64), np.zeros(n_maps + 1, np.int64)
    weight_start = np.zeros(n_maps + 1, np.int64)
    widest, largest, n_most_words = 0, 0, 0
    for i in range(n_maps):
        inputs, outputs = sizes[i], sizes[i + 1]
        # One more: normal numbers come in pairs.
        in_start[i + 1] = in_start[i] + n_rows * inputs + 1
        out_start[i + 1] = out_start[i] + n_rows * outputs + 1
        weight_start[i + 1] = weight_start[i] + inputs * outputs
        widest = max(widest, inputs, outputs)
        largest = max(largest, inputs * outputs)
        n_most_words = max(n_most_words, n_rows * max(inputs, outputs) + 1)
    any_scaled = any_sampled = False
    for i in range(n_maps):
        sampled = families.samples_outputs(network.families[i])
        any_sampled = any_sampled or sampled
        any_scaled = any_scaled or network.families[i] != families.POINT
    n_in, n_out = in_start[n_maps], out_start[n_maps]
    h_all, slope_all = np.empty(n_in, values.dtype), np.empty(n_in, values.dtype)
    s_all = np.empty(n_in if any_scaled else 0, values.dtype)
    e_all, before_all = np.empty_like(s_all), np.empty_like(s_all)
    squares_all = np.empty_like(s_all)
    n_weights = weight_start[n_maps] if any_sampled else 0
    m_all, v_all = np.empty(n_weights, values.dtype), np.empty(n_weights, values.dtype)
    n_noise = n_out if any_sampled else 0
    normal_all, std_all = np.empty(n_noise, values.dtype), np.empty(n_noise, values.dtype)
    bv = np.empty((n_maps, widest if any_sampled else 0), values.dtype)
    words = np.empty(n_most_words if any_scaled else 0, np.uint64)
    grad_v = np.empty(largest if any_sampled else 0, values.dtype)
    scaled = np.empty(n_rows * widest if any_sampled else 0, values.dtype)
    grad_bv = np.empty(widest if any_sampled else 0, values.dtype)
    g_now, g_next = (
        np.empty(n_rows * widest, values.dtype),
        np.empty(n_rows * widest, values.dtype),
    )
    # Gradients of the member's parameters, in the order of its blocks.
    n_blocks = member.blocks.shape[0]
    local = np.zeros((n_blocks, 2), np.int64)
    end = 0
    for k in range(n_blocks):
        local[k, 0], local[k, 1] = end, member.blocks[k, 1]
        end += member.blocks[k, 1]
    grad = np.zeros(end, values.dtype)
    first_like = local[4 * n_maps, 0]
    grad_like = grad[first_like:]
    params = np.empty(end - first_like, values.dtype)
    y = np.empty((n_rows, network.n_targets), values.dtype)
    shift = np.empty((n_rows if table.shift.size else 0, network.n_targets), values.dtype)
    labels = np.empty(n_rows if table.labels.size else 0, np.int64)
    factor, row_nll = np.empty(n_rows, values.dtype), np.empty(n_rows, values.dtype)
    x_batch = h_all[: n_rows * sizes[0]].reshape(n_rows, sizes[0])
    x_kept = np.empty((n_rows, sizes[0]) if steps.n_draws > 1 else (0, 1), values.dtype)
    draw_share = dtype(1.0 / steps.n_draws)
    step = 0
    for epoch in range(n_epochs):
        if n_batches == 1:
            for i in range(R):
                order[i] = i
        else:
            fill_words(order_words, steps.seeds[epoch, 1], 0)
            fill_order(order[:R], order_words, keys, spare)
            # The last batch is filled up from the start of the order.
            for i in range(n_order - R):
                order[R + i] = order[i]
        if network.likelihood == likelihoods.HETEROSCEDASTIC:
            values[member.blocks[4 * n_maps + 1, 0]] = steps.gain[epoch]
        done = 0
        total = 0.0
        for batch in range(n_batches):
            index = order[batch * n_rows : (batch + 1) * n_rows]
            _gather(
                table, index, x_batch, y, labels, factor, shift, member.data_scale
            )
            if steps.n_draws > 1:
                x_kept[:] = x_batch
                for i in range(n_rows):
                    factor[i] *= draw_share
            for k in range(n_blocks - 4 * n_maps):
                block = member.blocks[4 * n_maps + k]
                start = local[4 * n_maps + k, 0] - first_like
                for i in range(block[1]):
                    params[start + i] = values[block[0] + i]
            grad[:] = dtype(0)
            for draw in range(steps.n_draws):
                if draw:
                    x_batch[:] = x_kept
                # Forward.
                for i in range(n_maps):
                    n, inputs, outputs = n_rows, sizes[i], sizes[i + 1]
                    a, o, w = in_start[i], out_start[i], weight_start[i]
                    h = h_all[a : a + n * inputs].reshape(n, inputs)
                    if i:
                        slope = slope_all[a : a + n * inputs].reshape(n, inputs)
                        activations.apply(
                            network.activation, h.ravel(), slope.ravel()
                        )
                    else:
                        slope = empty_2d
                    if i + 1 < n_maps:
                        b = in_start[i + 1]
                        z = h_all[b : b + n * outputs].reshape(n, outputs)
                    else:
                        z = g_now[: n * outputs].reshape(n, outputs)
                    code = network.families[i]
                    sampled = families.samples_outputs(code)
                    n_s = n * inputs + 1 if code != families.POINT else 0
                    n_w = inputs * outputs if sampled else 0
                    n_o = n * outputs + 1 if sampled else 0
                    work = (
                        s_all[a : a + n_s],
                        e_all[a : a + n_s],
                        before_all[a : a + n_s - 1] if n_s else empty,
                        squares_all[a : a + n_s - 1] if n_s else empty,
                        m_all[w : w + n_w],
                        v_all[w : w + n_w],
                        bv[i, : outputs if sampled else 0],
                        normal_all[o : o + n_o],
                        std_all[o : o + n_o - 1] if n_o else empty,
                        words,
                    )
                    done = families.forward(
                        code,
                        network.options[i],
                        member.keep[i],
                        _part(values, member.blocks[4 * i]).reshape(inputs, outputs),
                        _part(values, member.blocks[4 * i + 1]),
                        _part(values, member.blocks[4 * i + 2]),
                        _part(values, member.blocks[4 * i + 3]),
                        network.highest[i],
                        h,
                        slope,
                        z,
                        work,
                        steps.seeds[epoch, 0],
                        done,
                    )
                outputs = sizes[n_maps]
                f = g_now[: n_rows * outputs].reshape(n_rows, outputs)
                likelihoods.nll_and_gradient(
                    network.likelihood,
                    network.learned,
                    network.given_df,
                    params,
                    f,
                    y,
                    labels,
                    factor,
                    shift,
                    row_nll,
                    grad_like,
                )
                for i in range(n_rows):
                    value = np.float64(row_nll[i])
                    if table.weights.size:
                        value *= table.weights[index[i]]
                    total += value
                # Backward.
                g_flat, h_flat = g_now, g_next
                for i in range(n_maps - 1, -1, -1):
                    n, inputs, outputs = n_rows, sizes[i], sizes[i + 1]
                    a, o, w = in_start[i], out_start[i], weight_start[i]
                    code = network.families[i]
                    sampled = families.samples_outputs(code)
                    n_s = n * inputs + 1 if code != families.POINT else 0
                    n_w = inputs * outputs if sampled else 0
                    n_o = n * outputs + 1 if sampled else 0
                    work = (
                        s_all[a : a + n_s],
                        e_all[a : a + n_s],
                        before_all[a : a + n_s - 1] if n_s else empty,
                        squares_all[a : a + n_s - 1] if n_s else empty,
                        m_all[w : w + n_w],
                        v_all[w : w + n_w],
                        bv[i, : outputs if sampled else 0],
                        normal_all[o : o + n_o],
                        std_all[o : o + n_o - 1] if n_o else empty,
                        words,
                    )
                    g = g_flat[: n * outputs].reshape(n, outputs)
                    if i:
                        grad_h = h_flat[: n * inputs].reshape(n, inputs)
                        slope = slope_all[a : a + n * inputs].reshape(n, inputs)
                    else:
                        grad_h, slope = empty_2d, empty_2d
                    target = grad
                    if draw:
                        target = np.empty_like(grad)
                    grad_mean = _part(target, local[4 * i]).reshape(inputs, outputs)
                    families.backward(
                        code,
                        network.options[i],
                        member.keep[i],
                        _part(values, member.blocks[4 * i]).reshape(inputs, outputs),
                        _part(values, member.blocks[4 * i + 1]),
                        _part(values, member.blocks[4 * i + 2]),
                        _part(values, member.blocks[4 * i + 3]),
                        network.highest[i],
                        h_all[a : a + n * inputs].reshape(n, inputs),
                        slope,
                        g,
                        work,
                        (scaled, grad_v[:n_w], grad_bv[: outputs if sampled else 0]),
                        grad_mean,
                        _part(target, local[4 * i + 1]),
                        _part(target, local[4 * i + 2]),
                        _part(target, local[4 * i + 3]),
                        grad_h,
                    )
                    if draw:
                        for k in range(4 * i, 4 * i + 4):
                            if member.trained[k]:
                                for j in range(local[k, 0], local[k, 0] + local[k, 1]):
                                    grad[j] += target[j]
                    g_flat, h_flat = h_flat, g_flat
            # The KL and Adam.
            kl_scale = member.kl_scale * steps.kl_weight[step]
            for i in range(n_maps):
                if (
                    network.families[i] == families.MEAN_FIELD
                    or network.families[i] == families.CONCRETE
                    or network.families[i] == families.CORRELATED
                    or network.families[i] == families.INDEPENDENT
                ):
                    families.kl_extra(
                        network.families[i],
                        network.options[i],
                        _part(values, member.blocks[4 * i]),
                        _part(values, member.blocks[4 * i + 1]),
                        _part(values, member.blocks[4 * i + 2]),
                        _part(values, member.blocks[4 * i + 3]),
                        network.highest[i],
                        _part(vectors.precision, member.blocks[4 * i]),
                        _part(vectors.precision, member.blocks[4 * i + 1]),
                        kl_scale,
                        _part(grad, local[4 * i]),
                        _part(grad, local[4 * i + 2]),
                        _part(grad, local[4 * i + 3]),
                        False,
                    )
            for k in range(n_blocks):
                if member.trained[k]:
                    _adam(
                        _part(values, member.blocks[k]),
                        _part(grad, local[k]),
                        _part(vectors.mean, member.blocks[k]),
                        _part(vectors.square, member.blocks[k]),
                        _part(vectors.curvature, member.blocks[k]),
                        _part(vectors.centre, member.blocks[k]),
                        kl_scale,
                        steps.step_size[step],
                        steps.epsilon[step],
                    )
            step += 1
        nll[epoch] = total / (n_order * steps.n_draws)
        kl[epoch] = kl_value(network, member, vectors) / member.total_weight
        if not np.isfinite(nll[epoch] + kl[epoch]):
            return epoch + 1
    return n_epochs
