"""The training loop of one perceptron: all steps of some epochs in one compiled call.

It does what `_engine.training` and `_engine.step` do with torch, in the same order and
with the same random numbers, for one member. The call holds no lock, so that members
train on several threads. A step is

    _gather               rows of the batch -> inputs of the first map
    for every draw:
      _forward_pass       maps in order, with activations between them -> outputs
      nll_and_gradient    outputs and y -> nll of the rows, gradient of the outputs
      _backward_pass      maps in reverse -> gradients of the parameters
    kl_extra, _adam       gradient of the KL, and the update
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
        Row of integers of every map, see `families`; without starts in the workspace.
    activation, likelihood : int
        Codes.
    learned : bool
        Whether tau is learned.
    given_df : float
        Given degrees of freedom of Student's t, or 0.
    n_targets, n_outputs : int
    max_log_alpha : ndarray of shape (maps,)
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
    max_log_alpha: np.ndarray
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
def _adam(
    values, gradients, means, squares, curvature, centre, kl_scale, step_size, epsilon
):
    """One step of Adam, with the gradient of the quadratic part of the KL."""
    dtype = values.dtype.type
    decay_1, decay_2 = dtype(1 - BETA_1), dtype(1 - BETA_2)
    kl_scale, step_size, epsilon = dtype(kl_scale), dtype(step_size), dtype(epsilon)
    for i in range(values.size):
        to_kl = kl_scale * curvature[i] * (values[i] - centre[i])
        gradient = gradients[i] + to_kl
        mean = means[i] + decay_1 * (gradient - means[i])
        square = squares[i] + decay_2 * (gradient * gradient - squares[i])
        means[i], squares[i] = mean, square
        values[i] += step_size * mean / (np.sqrt(square) + epsilon)


@compiled
def _gather(table, positions, x, y, labels, row_factors, y_shift, row_share):
    """Copy the rows of a batch, at some positions in the member's rows."""
    dtype = x.dtype.type
    share, n_inputs = dtype(row_share), table.x.shape[1]
    is_sparse = table.indptr.size > 0
    for i in range(positions.size):
        position = positions[i]
        row = table.rows[position]
        target = x[i * n_inputs : (i + 1) * n_inputs]
        source = table.x_of_zero if is_sparse else table.x[row]
        for j in range(source.size):
            target[j] = source[j]
        row_factors[i] = share
        if table.weights.size:
            row_factors[i] *= table.weights[position]
        if table.labels.size:
            labels[i] = table.labels[row]
        else:
            for t in range(y.shape[1]):
                y[i, t] = table.y[row, t]
        if table.y_shift.size:
            for t in range(y.shape[1]):
                y_shift[i, t] = table.y_shift[position, t]
    if is_sparse:
        for i in range(positions.size):
            row, target = table.rows[positions[i]], x[i * n_inputs : (i + 1) * n_inputs]
            for k in range(table.indptr[row], table.indptr[row + 1]):
                target[table.indices[k]] = table.data[k]
    if table.x_affine.size:
        shift, factor = table.x_affine[0], table.x_affine[1]
        for i in range(positions.size):
            target = x[i * n_inputs : (i + 1) * n_inputs]
            for j in range(n_inputs):
                target[j] = (target[j] - shift[j]) * factor[j]
    if table.y_affine.size and not table.labels.size:
        for i in range(positions.size):
            for t in range(y.shape[1]):
                y[i, t] = (y[i, t] - table.y_affine[0, t]) * table.y_affine[1, t]


@compiled
def _kl(maps, max_log_alpha, member):
    """KL of all maps, up to a constant, nats."""
    values, centre, curvature = member.values, member.centre, member.curvature
    value = 0.0
    for i in range(values.size):
        deviation = values[i] - centre[i]
        value += 0.5 * curvature[i] * deviation * deviation
    for i in range(len(maps)):
        value += families.kl_extra(
            maps[i], max_log_alpha[i], values, member.precision, values, 0.0, True
        )
    return value


@entry
def kl_value(program, member):
    """KL of all maps at the present parameters, up to a constant, nats."""
    return _kl(program.maps, program.max_log_alpha, member)


@compiled
def _fill_order(order, n_batches, seed, words, keys, spare):
    """Positions of the rows in all batches; the last is filled up from the start."""
    n = words.size
    if n_batches == 1:
        for i in range(n):
            order[i] = i
        return
    fill_words(words, seed, np.int64(0))
    fill_order(order[:n], words, keys, spare)
    for i in range(order.size - n):
        order[n + i] = order[i]


@compiled
def _forward_pass(
    maps, keep, max_log_alpha, values, workspace, outputs, words, seed, n_used
):
    """Outputs of the network; return the number of words used so far."""
    for i in range(len(maps)):
        map_row = maps[i]
        if i:
            activations.apply(
                map_row[families.ACTIVATION_ADDRESS],
                families.array_of(workspace, map_row, families.LAYER_INPUTS),
                families.array_of(workspace, map_row, families.SLOPES),
            )
        map_outputs = outputs
        if i + 1 < len(maps):
            map_outputs = families.array_of(
                workspace, maps[i + 1], families.LAYER_INPUTS
            )
        n_used = families.forward(
            map_row,
            keep[i],
            max_log_alpha[i],
            values,
            workspace,
            map_outputs,
            words,
            seed,
            n_used,
            i == 0,
        )
    return n_used


@compiled
def _backward_pass(
    maps, keep, max_log_alpha, values, workspace, gradients, outputs, even, odd
):
    """Gradients of the parameters of all maps.

    outputs : gradient of the outputs of the network
    even, odd : space for the gradients of the inputs of maps with these numbers
    """
    output_gradients = outputs
    for i in range(len(maps) - 1, -1, -1):
        n = maps[i, families.N_ROWS] * maps[i, families.N_INPUTS]
        input_gradients = (odd if i % 2 else even)[:n]
        families.backward(
            maps[i],
            keep[i],
            max_log_alpha[i],
            values,
            workspace,
            gradients,
            output_gradients,
            input_gradients,
            i > 0,
        )
        output_gradients = input_gradients


@entry
def train_epochs(program, member, table, steps, n_rows, nll, kl):
    """Run epochs of one member; write the mean nll per row and the KL of each epoch.

    n_rows : rows of a batch
    nll, kl : ndarray of shape (epochs,)
    returns : number of epochs until the loss was not finite, or all
    """
    values, precision, keep = member.values, member.precision, member.keep
    dtype, max_log_alpha = values.dtype, program.max_log_alpha
    n_batches, n_draws = program.n_batches, program.n_draws
    maps = np.empty_like(program.maps)
    copy(program.maps.ravel(), maps.ravel())
    n_maps = maps.shape[0]
    # A literal zero has another type than its sums, and would be compiled separately.
    widest, end = 0, np.int64(0)
    for i in range(n_maps):
        maps[i, families.N_ROWS] = n_rows
        end = families.lay_out(maps[i], end)
        widest = max(widest, maps[i, families.N_INPUTS], maps[i, families.N_OUTPUTS])
    workspace, words = np.empty(end, dtype), np.empty(n_rows * widest + 1, np.uint64)
    even, odd = np.empty(n_rows * widest, dtype), np.empty(n_rows * widest, dtype)
    outputs = np.empty(n_rows * program.n_outputs, dtype)
    # The parameters of the likelihood are the last ones.
    first_of_likelihood = maps[n_maps - 1, families.PARAMETERS_END]
    gradients = np.empty(values.size, dtype)
    gradient_sums = np.empty(first_of_likelihood if n_draws > 1 else 0, dtype)
    n_all_rows = table.rows.size
    order = np.empty(n_rows * n_batches, np.int64)
    order_words, keys = np.empty(n_all_rows, np.uint64), np.empty(n_all_rows, np.uint32)
    spare = np.empty(n_all_rows, np.uint64)
    x = families.array_of(workspace, maps[0], families.LAYER_INPUTS)
    x_of_batch = np.empty(x.size if n_draws > 1 else 0, dtype)
    y = np.empty((n_rows, program.n_targets), dtype)
    n_shifted = n_rows if table.y_shift.size else 0
    y_shift = np.empty((n_shifted, program.n_targets), dtype)
    labels = np.empty(n_rows if table.labels.size else 0, np.int64)
    row_factors, row_nll = np.empty(n_rows, dtype), np.empty(n_rows, dtype)
    n_used, nll_sum = np.int64(0), 0.0
    for step in range(steps.gain.size * n_batches):
        epoch, batch = step // n_batches, step % n_batches
        if batch == 0:
            n_used, nll_sum = np.int64(0), 0.0
            _fill_order(
                order, n_batches, steps.seeds[epoch, 1], order_words, keys, spare
            )
            if program.likelihood == likelihoods.HETEROSCEDASTIC:
                values[first_of_likelihood + program.n_targets] = steps.gain[epoch]
        positions = order[batch * n_rows : (batch + 1) * n_rows]
        row_share = member.data_scale / (n_draws * n_rows)
        _gather(table, positions, x, y, labels, row_factors, y_shift, row_share)
        if n_draws > 1:
            copy(x, x_of_batch)
            fill(gradient_sums, dtype.type(0))
        fill(gradients, dtype.type(0))
        for draw in range(n_draws):
            if draw:
                copy(x_of_batch, x)
            seed = steps.seeds[epoch, 0]
            n_used = _forward_pass(
                maps,
                keep,
                max_log_alpha,
                values,
                workspace,
                outputs,
                words,
                seed,
                n_used,
            )
            likelihoods.nll_and_gradient(
                program.likelihood_address,
                program.learned,
                program.given_df,
                values[first_of_likelihood:],
                outputs.reshape(n_rows, program.n_outputs),
                y,
                labels,
                row_factors,
                y_shift,
                row_nll,
                gradients[first_of_likelihood:],
            )
            for i in range(n_rows):
                weight = table.weights[positions[i]] if table.weights.size else 1.0
                nll_sum += row_nll[i] * weight
            _backward_pass(
                maps,
                keep,
                max_log_alpha,
                values,
                workspace,
                gradients,
                outputs,
                even,
                odd,
            )
            if n_draws > 1:
                for i in range(first_of_likelihood):
                    gradient_sums[i] += gradients[i]
        if n_draws > 1:
            copy(gradient_sums, gradients)
        kl_scale = member.kl_scale * steps.kl_weight[step]
        for i in range(n_maps):
            families.kl_extra(
                maps[i],
                max_log_alpha[i],
                values,
                precision,
                gradients,
                kl_scale,
                False,
            )
        for k in range(member.fixed.shape[0]):
            fill(gradients[member.fixed[k, 0] : member.fixed[k, 1]], dtype.type(0))
        _adam(
            values,
            gradients,
            member.mean,
            member.square,
            member.curvature,
            member.centre,
            kl_scale,
            steps.step_size[step],
            steps.epsilon[step],
        )
        if batch == n_batches - 1:
            nll[epoch] = nll_sum / (order.size * n_draws)
            kl[epoch] = _kl(maps, max_log_alpha, member) / member.total_weight
            if not np.isfinite(nll[epoch] + kl[epoch]):
                return epoch + 1
    return steps.gain.size
