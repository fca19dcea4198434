"""The training loop of one perceptron: all steps of some epochs in one compiled call.

It does what `_engine.training` and `_engine.step` do with torch, in the same order and
with the same random numbers, for one member. The call holds no lock, so that members
train on several threads. A step is

    _gather               rows of the batch -> inputs of the first map
    for every draw:
      _forward_pass       maps in order, with activations between them -> outputs
      nll_and_gradient    outputs and y -> nll of the rows, gradient of the outputs
      backward            maps in reverse -> gradients of the parameters
    kl_extra, adam        gradient of the KL, and the update
"""

from typing import NamedTuple

import numpy as np

from skbayesnn._engine.compiled import activations, families, likelihoods
from skbayesnn._engine.compiled.adam import adam
from skbayesnn._engine.compiled.numerics import (
    compiled,
    copy,
    entry,
    fill,
    fill_order,
    fill_words,
)


class Program(NamedTuple):
    """What all members of a program share.

    Parameters
    ----------
    options : likelihoods.Options
    likelihood_address : int
        Address of the function of the likelihood.
    is_heteroscedastic : bool
    first_of_likelihood : int
        First of the parameters of the likelihood, which are the last ones.
    n_targets, n_outputs, n_batches, n_draws : int
    """

    options: likelihoods.Options
    likelihood_address: int
    is_heteroscedastic: bool
    first_of_likelihood: int
    n_targets: int
    n_outputs: int
    n_batches: int
    n_draws: int


class Member(NamedTuple):
    """One member: its parameters, which a call changes, and its prior.

    Parameters
    ----------
    values, mean, square : ndarray of shape (parameters,)
        Parameters, and Adam's moments; the parameters of the likelihood are the last.
    maps : ndarray of MAP
        Records of the maps, see `families`.
    precision : ndarray of shape (parameters,)
        Of the prior of weights and biases.
    curvature, centre : ndarray of shape (parameters,)
        The quadratic part of the KL is the sum of curvature / 2 (value - centre)^2.
    fixed : ndarray of int64, (n, 2)
        First and last parameter of parts that are not trained.
    kl_scale, total_weight, data_scale : float
        Factor of the KL's gradient, 1 / (N tau) or 1 / N; N; and 1 / tau, or 1 if tau
        is learned.
    """

    values: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    maps: np.ndarray
    precision: np.ndarray
    curvature: np.ndarray
    centre: np.ndarray
    fixed: np.ndarray
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
def _gather(table, positions, x, batch, row_share):
    """Copy the rows of a batch, at some positions in the member's rows."""
    y, dtype = batch.y, x.dtype.type
    share, n_inputs = dtype(row_share), table.x.shape[1]
    is_sparse = table.indptr.size > 0
    for i in range(positions.size):
        position = positions[i]
        row = table.rows[position]
        target = x[i * n_inputs : (i + 1) * n_inputs]
        source = table.x_of_zero if is_sparse else table.x[row]
        for j in range(source.size):
            target[j] = source[j]
        batch.factors[i] = share
        if table.weights.size:
            batch.factors[i] *= table.weights[position]
        if table.labels.size:
            batch.labels[i] = table.labels[row]
        else:
            for t in range(y.shape[1]):
                y[i, t] = table.y[row, t]
        if table.y_shift.size:
            for t in range(y.shape[1]):
                batch.y_shift[i, t] = table.y_shift[position, t]
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
def _kl(member, arrays):
    """KL of all maps, up to a constant, nats."""
    values, centre, curvature = member.values, member.centre, member.curvature
    value = 0.0
    for i in range(values.size):
        deviation = values[i] - centre[i]
        value += 0.5 * curvature[i] * deviation * deviation
    for i in range(len(member.maps)):
        value += families.kl_extra(member.maps[i], arrays, 0.0, True)
    return value


@entry
def kl_value(member, arrays):
    """KL of all maps at the present parameters, up to a constant, nats."""
    return _kl(member, arrays)


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
def _forward_pass(maps, arrays):
    """Outputs of the network."""
    for i in range(len(maps)):
        m = maps[i]
        if i:
            activations.apply(
                m.activation_address,
                families.array_of(arrays.workspace, m.layer_inputs),
                families.array_of(arrays.workspace, m.slopes),
            )
        families.forward(m, arrays)


@compiled
def _empty_batch(table, n_rows, n_targets, dtype):
    return likelihoods.Batch(
        np.empty((n_rows, table.y.shape[1]), dtype),
        np.empty(n_rows if table.labels.size else 0, np.int64),
        np.empty(n_rows, dtype),
        np.empty((n_rows if table.y_shift.size else 0, n_targets), dtype),
        np.empty(n_rows, dtype),
    )


@entry
def train_epochs(program, member, arrays, table, steps, nll, kl):
    """Run epochs of one member; write the mean nll per row and the KL of each epoch.

    arrays : families.Arrays, with the member's values and precision
    nll, kl : ndarray of shape (epochs,)
    returns : number of epochs until the loss was not finite, or all
    """
    maps, stream = member.maps, arrays.stream[0]
    values, gradients = member.values, arrays.gradients
    n_maps, n_rows = maps.size, maps[0].n_rows
    n_batches, n_draws = program.n_batches, program.n_draws
    dtype, first_of_likelihood = values.dtype, program.first_of_likelihood
    outputs = families.array_of(arrays.workspace, maps[n_maps - 1].outputs)
    gradient_sums = np.empty(first_of_likelihood if n_draws > 1 else 0, dtype)
    n_all_rows = table.rows.size
    order = np.empty(n_rows * n_batches, np.int64)
    order_words, keys = np.empty(n_all_rows, np.uint64), np.empty(n_all_rows, np.uint32)
    spare = np.empty(n_all_rows, np.uint64)
    x = families.array_of(arrays.workspace, maps[0].layer_inputs)
    x_of_batch = np.empty(x.size if n_draws > 1 else 0, dtype)
    batch = _empty_batch(table, n_rows, program.n_targets, dtype)
    nll_sum = 0.0
    for step in range(steps.gain.size * n_batches):
        epoch, number = step // n_batches, step % n_batches
        if number == 0:
            nll_sum = 0.0
            stream.seed, stream.n_used = steps.seeds[epoch, 0], 0
            _fill_order(
                order, n_batches, steps.seeds[epoch, 1], order_words, keys, spare
            )
            if program.is_heteroscedastic:
                values[first_of_likelihood + program.n_targets] = steps.gain[epoch]
        positions = order[number * n_rows : (number + 1) * n_rows]
        _gather(table, positions, x, batch, member.data_scale / (n_draws * n_rows))
        if n_draws > 1:
            copy(x, x_of_batch)
            fill(gradient_sums, dtype.type(0))
        fill(gradients, dtype.type(0))
        for draw in range(n_draws):
            if draw:
                copy(x_of_batch, x)
            _forward_pass(maps, arrays)
            likelihoods.nll_and_gradient(
                program.likelihood_address,
                program.options,
                values[first_of_likelihood:],
                outputs.reshape(n_rows, program.n_outputs),
                batch,
                gradients[first_of_likelihood:],
            )
            for i in range(n_rows):
                weight = table.weights[positions[i]] if table.weights.size else 1.0
                nll_sum += batch.nll[i] * weight
            for i in range(n_maps - 1, -1, -1):
                families.backward(maps[i], arrays)
            if n_draws > 1:
                for i in range(first_of_likelihood):
                    gradient_sums[i] += gradients[i]
        if n_draws > 1:
            copy(gradient_sums, gradients)
        kl_scale = member.kl_scale * steps.kl_weight[step]
        for i in range(n_maps):
            families.kl_extra(maps[i], arrays, kl_scale, False)
        for k in range(member.fixed.shape[0]):
            fill(gradients[member.fixed[k, 0] : member.fixed[k, 1]], dtype.type(0))
        adam(
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
        if number == n_batches - 1:
            nll[epoch] = nll_sum / (order.size * n_draws)
            kl[epoch] = _kl(member, arrays) / member.total_weight
            if not np.isfinite(nll[epoch] + kl[epoch]):
                return epoch + 1
    return steps.gain.size
