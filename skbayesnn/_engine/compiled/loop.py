"""The training loop of one perceptron: all steps of some epochs in one compiled call.

It does what `_engine.training` and `_engine.step` do with torch, in the same order and
with the same random numbers, for one member. The call holds no lock, so that members
train on several threads.
"""

from typing import NamedTuple

import numpy as np

from skbayesnn._engine.compiled import activations, families, likelihoods
from skbayesnn._engine.compiled.numerics import (
    compiled,
    copy,
    entry,
    fill,
    fill_order,
    fill_words,
)
from skbayesnn._engine.optimizer import BETA_1, BETA_2


class Program(NamedTuple):
    """What all members of a program share, as numbers.

    Parameters
    ----------
    maps : ndarray of shape (maps, N_COLUMNS), int64
        Row of integers of every map, see `families`; without the starts in the space.
    activation, likelihood : int
        Codes.
    learned : bool
        Whether tau is learned.
    given_df : float
        Given degrees of freedom of Student's t, or 0.
    n_targets, n_outputs : int
    highest : ndarray of shape (maps,)
        Upper bounds of log alpha.
    n_batches, n_draws : int
    likelihood_address : int
        Address of the likelihood's function; see ``compiled``.
    """

    maps: np.ndarray
    activation: int
    likelihood: int
    learned: bool
    given_df: float
    n_targets: int
    n_outputs: int
    highest: np.ndarray
    n_batches: int
    n_draws: int
    likelihood_address: int = 0

    def compiled(self, dtype) -> "Program":
        """Compile the functions of the program; return it with their addresses."""
        maps = self.maps.copy()
        families.compile_functions(maps, self.activation, dtype)
        function = list(likelihoods.FUNCTIONS.values())[self.likelihood]
        address = likelihoods.KIND.address(function, dtype)
        return self._replace(maps=maps, likelihood_address=address)


class Member(NamedTuple):
    """One member: its parameters, as vectors that a call changes, and its prior.

    The vectors contain, for every map, mean, bias, and up to two further arrays; then
    the parameters of the likelihood.

    Parameters
    ----------
    values, mean, square : ndarray of shape (parameters,)
        Parameters, and Adam's moments.
    curvature, centre : ndarray of shape (parameters,)
        The quadratic part of the KL is the sum of curvature / 2 (value - centre)^2.
    precision : ndarray of shape (parameters,)
        Of the prior of weights and biases.
    fixed : ndarray of int64, (n, 2)
        First and last parameter of parts that are not trained.
    keep : ndarray of shape (maps,), float64
    kl_scale, total_weight, data_scale : float
        Factor of the KL's gradient, 1 / (N tau) or 1 / N; N; and 1 / tau, or 1 if tau
        is learned.
    """

    values: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    curvature: np.ndarray
    centre: np.ndarray
    precision: np.ndarray
    fixed: np.ndarray
    keep: np.ndarray
    kl_scale: float
    total_weight: float
    data_scale: float


class Steps(NamedTuple):
    """Schedule of the epochs to run; one entry per step, or per epoch.

    Parameters
    ----------
    seeds : ndarray of shape (epochs, 2), uint64
        Seeds of the words, and of the order of the rows.
    gain : ndarray of shape (epochs,)
        Gain of heteroscedastic noise.
    step_size, epsilon, kl_weight : ndarray of shape (epochs * batches,)
    """

    seeds: np.ndarray
    gain: np.ndarray
    step_size: np.ndarray
    epsilon: np.ndarray
    kl_weight: np.ndarray


@compiled
def _adam(value, grad, mean, square, curvature, centre, kl, step_size, epsilon):
    dtype = value.dtype.type
    decay_1, decay_2 = dtype(1 - BETA_1), dtype(1 - BETA_2)
    kl, step_size, epsilon = dtype(kl), dtype(step_size), dtype(epsilon)
    for i in range(value.size):
        g = grad[i] + kl * curvature[i] * (value[i] - centre[i])
        m = mean[i] + decay_1 * (g - mean[i])
        v = square[i] + decay_2 * (g * g - square[i])
        mean[i], square[i] = m, v
        value[i] += step_size * m / (np.sqrt(v) + epsilon)


@compiled
def _gather(table, index, x, y, labels, factor, shift, data_scale):
    """Copy the rows of a batch; ``index`` are positions in the member's rows."""
    dtype = x.dtype.type
    share, n = dtype(data_scale / index.size), table.x.shape[1]
    is_sparse = table.indptr.size > 0
    for i in range(index.size):
        position = index[i]
        row = table.rows[position]
        target = x[i * n : (i + 1) * n]
        source = table.x_of_zero if is_sparse else table.x[row]
        for j in range(source.size):
            target[j] = source[j]
        factor[i] = share
        if table.weights.size:
            factor[i] *= table.weights[position]
        if table.labels.size:
            labels[i] = table.labels[row]
        else:
            for t in range(y.shape[1]):
                y[i, t] = table.y[row, t]
        if table.y_shift.size:
            for t in range(y.shape[1]):
                shift[i, t] = table.y_shift[position, t]
    if is_sparse:
        for i in range(index.size):
            row, target = table.rows[index[i]], x[i * n : (i + 1) * n]
            for k in range(table.indptr[row], table.indptr[row + 1]):
                target[table.indices[k]] = table.data[k]
    if table.x_affine.size:
        move, stretch = table.x_affine[0], table.x_affine[1]
        for i in range(index.size):
            target = x[i * n : (i + 1) * n]
            for j in range(n):
                target[j] = (target[j] - move[j]) * stretch[j]
    if table.y_affine.size and not table.labels.size:
        for i in range(index.size):
            for t in range(y.shape[1]):
                y[i, t] = (y[i, t] - table.y_affine[0, t]) * table.y_affine[1, t]


@compiled
def _kl(maps, highest, member):
    """KL of all maps, up to a constant, nats."""
    values, centre, curvature = member.values, member.centre, member.curvature
    value = 0.0
    for i in range(values.size):
        deviation = values[i] - centre[i]
        value += 0.5 * curvature[i] * deviation * deviation
    for i in range(len(maps)):
        value += families.kl_extra(
            maps[i], highest[i], values, member.precision, values, 0.0, True
        )
    return value


@entry
def kl_value(program, member):
    """KL of all maps at the present parameters, up to a constant, nats."""
    return _kl(program.maps, program.highest, member)


@compiled
def _fill_order(order, n_batches, seed, words, keys, spare):
    """Rows of the batches of an epoch; the last is filled up from the start."""
    n = words.size
    if n_batches == 1:
        for i in range(n):
            order[i] = i
        return
    fill_words(words, seed, np.int64(0))
    fill_order(order[:n], words, keys, spare)
    for i in range(order.size - n):
        order[n + i] = order[i]


@entry
def train_epochs(program, member, table, steps, n_rows, nll, kl):
    """Run epochs of one member; write the mean nll per row and the KL of each epoch.

    n_rows : rows of a batch
    nll, kl : ndarray of shape (epochs,)
    returns : number of epochs until the loss was not finite, or all
    """
    values, precision, keep = member.values, member.precision, member.keep
    dtype, highest = values.dtype, program.highest
    n_batches, n_draws = program.n_batches, program.n_draws
    maps = np.empty_like(program.maps)
    copy(program.maps.ravel(), maps.ravel())
    n_maps = maps.shape[0]
    # A literal zero has another type than its sums, and would be compiled separately.
    widest, end = 0, np.int64(0)
    for i in range(n_maps):
        maps[i, families.ROWS] = n_rows
        end = families.workspace(maps[i], end)
        widest = max(widest, maps[i, families.INPUTS], maps[i, families.OUTPUTS])
    space, words = np.empty(end, dtype), np.empty(n_rows * widest + 1, np.uint64)
    g_of_even, g_of_odd = (
        np.empty(n_rows * widest, dtype),
        np.empty(n_rows * widest, dtype),
    )
    n_outputs = n_rows * program.n_outputs
    outputs = np.empty(n_outputs, dtype)
    last = maps[n_maps - 1]
    first_like = last[families.FOURTH] + last[families.N_FOURTH]
    grad = np.empty(values.size, dtype)
    grad_sum = np.empty(first_like if n_draws > 1 else 0, dtype)
    n_of_rows = table.rows.size
    order = np.empty(n_rows * n_batches, np.int64)
    order_words, keys = np.empty(n_of_rows, np.uint64), np.empty(n_of_rows, np.uint32)
    spare = np.empty(n_of_rows, np.uint64)
    n_inputs = n_rows * maps[0, families.INPUTS]
    x = space[:n_inputs]
    x_kept = np.empty(n_inputs if n_draws > 1 else 0, dtype)
    y = np.empty((n_rows, program.n_targets), dtype)
    n_shifted = n_rows if table.y_shift.size else 0
    shift = np.empty((n_shifted, program.n_targets), dtype)
    labels = np.empty(n_rows if table.labels.size else 0, np.int64)
    factor, row_nll = np.empty(n_rows, dtype), np.empty(n_rows, dtype)
    done, total = np.int64(0), 0.0
    for step in range(steps.gain.size * n_batches):
        epoch, batch = step // n_batches, step % n_batches
        if batch == 0:
            done, total = np.int64(0), 0.0
            _fill_order(
                order, n_batches, steps.seeds[epoch, 1], order_words, keys, spare
            )
            if program.likelihood == likelihoods.HETEROSCEDASTIC:
                values[first_like + program.n_targets] = steps.gain[epoch]
        index = order[batch * n_rows : (batch + 1) * n_rows]
        _gather(table, index, x, y, labels, factor, shift, member.data_scale / n_draws)
        if n_draws > 1:
            copy(x, x_kept)
            fill(grad_sum, dtype.type(0))
        fill(grad, dtype.type(0))
        for draw in range(n_draws):
            if draw:
                copy(x_kept, x)
            for i in range(n_maps):
                at = maps[i]
                n = n_rows * at[families.INPUTS]
                if i:
                    activations.apply(
                        at[families.ACTIVATION],
                        families.part(space, at[families.H], n),
                        families.part(space, at[families.SLOPE], n),
                    )
                z = outputs
                if i + 1 < n_maps:
                    z = families.part(
                        space, maps[i + 1, families.H], n_rows * at[families.OUTPUTS]
                    )
                done = families.forward(
                    at,
                    keep[i],
                    highest[i],
                    values,
                    space,
                    z,
                    words,
                    steps.seeds[epoch, 0],
                    done,
                    i == 0,
                )
            likelihoods.nll_and_gradient(
                program.likelihood_address,
                program.learned,
                program.given_df,
                values[first_like:],
                outputs.reshape(n_rows, program.n_outputs),
                y,
                labels,
                factor,
                shift,
                row_nll,
                grad[first_like:],
            )
            for i in range(n_rows):
                weight = table.weights[index[i]] if table.weights.size else 1.0
                total += row_nll[i] * weight
            gradient = outputs
            for i in range(n_maps - 1, -1, -1):
                grad_h = families.part(
                    g_of_odd if i % 2 else g_of_even,
                    0,
                    n_rows * maps[i, families.INPUTS],
                )
                families.backward(
                    maps[i],
                    keep[i],
                    highest[i],
                    values,
                    space,
                    grad,
                    gradient,
                    grad_h,
                    i > 0,
                )
                gradient = grad_h
            if n_draws > 1:
                for i in range(first_like):
                    grad_sum[i] += grad[i]
        if n_draws > 1:
            copy(grad_sum, grad)
        kl_scale = member.kl_scale * steps.kl_weight[step]
        for i in range(n_maps):
            families.kl_extra(
                maps[i], highest[i], values, precision, grad, kl_scale, False
            )
        for k in range(member.fixed.shape[0]):
            fill(grad[member.fixed[k, 0] : member.fixed[k, 1]], dtype.type(0))
        _adam(
            values,
            grad,
            member.mean,
            member.square,
            member.curvature,
            member.centre,
            kl_scale,
            steps.step_size[step],
            steps.epsilon[step],
        )
        if batch == n_batches - 1:
            nll[epoch] = total / (order.size * n_draws)
            kl[epoch] = _kl(maps, highest, member) / member.total_weight
            if not np.isfinite(nll[epoch] + kl[epoch]):
                return epoch + 1
    return steps.gain.size
