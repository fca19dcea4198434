"""Predictions of many draws of a perceptron in one compiled call, without torch.

Rows are computed in blocks that fit into a core's first cache, for all draws. A block
stores a layer as (units, rows), and the rows of a unit are one vector of the processor,
or a few of them. So every row is computed alone, and its result does not depend on
the other rows, nor on the number of threads.

A ``Plan`` lists the operations of all draws. Draws that drop units share operations, as
in `_networks.mlp`: draws with the same units up to some layer have the same activations
there, and follow each other. A draw subtracts the units that it drops from the products
with all units, or it adds the units that it keeps, whichever are fewer.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from skbayesnn._engine.compiled.numerics import (
    by_precision,
    compiled,
    entry,
    exp_single,
    softplus_single,
    tanh_single,
)
from skbayesnn._likelihoods import Categorical, Gaussian, Heteroscedastic, StudentT
from skbayesnn._likelihoods.gaussian import (
    LOG_VARIANCE_RANGE,
    MAX_LOG_PRECISION,
    SHARPNESS,
    SOFTPLUS_LINEAR_FROM,
)
from skbayesnn._networks import Perceptron
from skbayesnn._networks.mlp import MAX_SHARED_INPUT

# ---- vectors

# Bytes of the rows of a block, for one unit.
_BYTES = 256


def _rows_of(dtype) -> int:
    return _BYTES // np.dtype(dtype).itemsize


def _affine(n_outputs: int):
    """Function that computes consecutive outputs of an affine map.

    LLVM would vectorise a loop over the rows, but write the sum to memory for every
    unit. Here it stays in registers, which takes half of the time.
    """

    @intrinsic
    def affine(
        typing_context,
        weights,
        at,
        stride,
        biases,
        bias,
        units,
        first,
        last,
        subtracts,
        space,
        h,
        base,
        z,
    ):
        """Sum of weights[at + k + j stride] h[j], k < n_outputs, added to the biases.

        j are units[first:last]. If ``subtracts``, the sums are subtracted from
        ``base[k]`` instead. h[j], base[k] and the results z[k] are the rows of a block
        for a unit; h, base and z are positions of units in ``space``.
        """
        dtype, number = space.dtype, types.int64
        size, align = _rows_of(f"f{dtype.bitwidth // 8}"), dtype.bitwidth // 8
        signature = types.void(
            weights,
            number,
            number,
            biases,
            number,
            units,
            number,
            number,
            types.boolean,
            space,
            number,
            number,
            number,
        )

        def generate(context, builder, signature, values):
            _, at, stride, _, bias, _, first, last, subtracts, _, h, base, z = values
            index = ir.IntType(64)
            scalar = context.get_value_type(dtype)
            vector = ir.VectorType(scalar, size)
            weights, biases, units, space = (
                context.make_array(signature.args[k])(context, builder, values[k]).data
                for k in (0, 3, 5, 9)
            )

            def plus(value, k):
                return builder.add(value, ir.Constant(index, k))

            def value_at(array, position):
                return builder.load(builder.gep(array, [position]))

            def rows(unit):
                start = builder.mul(unit, ir.Constant(index, size))
                return builder.bitcast(builder.gep(space, [start]), vector.as_pointer())

            def spread(value):
                empty = ir.Constant(vector, ir.Undefined)
                zeros = ir.Constant(ir.VectorType(ir.IntType(32), size), None)
                one = builder.insert_element(
                    empty, value, ir.Constant(ir.IntType(32), 0)
                )
                return builder.shuffle_vector(one, empty, zeros)

            sign = builder.select(
                subtracts, ir.Constant(scalar, -1.0), ir.Constant(scalar, 1.0)
            )
            sums = [cgutils.alloca_once(builder, vector) for _ in range(n_outputs)]
            with builder.if_else(subtracts) as (then, otherwise):
                with then:
                    for k, total in enumerate(sums):
                        value = builder.load(rows(plus(base, k)), align=align)
                        builder.store(value, total)
                with otherwise:
                    for k, total in enumerate(sums):
                        builder.store(spread(value_at(biases, plus(bias, k))), total)
            with cgutils.for_range_slice(
                builder, first, last, ir.Constant(index, 1), intp=index
            ) as (position, _):
                unit = value_at(units, position)
                x = builder.load(rows(builder.add(h, unit)), align=align)
                x = builder.fmul(x, spread(sign))
                start = builder.add(at, builder.mul(unit, stride))
                for k, total in enumerate(sums):
                    weight = spread(value_at(weights, plus(start, k)))
                    term = builder.fmul(weight, x, flags=("contract",))
                    term = builder.fadd(builder.load(total), term, flags=("contract",))
                    builder.store(term, total)
            for k, total in enumerate(sums):
                builder.store(builder.load(total), rows(plus(z, k)), align=align)
            return context.get_dummy_value()

        return signature, generate

    return affine


_one_output, _two_outputs = _affine(1), _affine(2)


# ---- elementary functions, without branches in double precision too

_LOG2_E = 1 / math.log(2)
# log(2) is the sum of both; products of the first with |n| <= 1024 are exact.
_LN2_HIGH, _LN2_LOW = 0.6931471806019545, -4.2009150726810846e-11
# 1.5 * 2^52: a sum with it is rounded to an integer, which its lowest bits contain.
_ROUND = 6755399441055744.0
# Taylor's series of exp(x), |x| <= log(2) / 2, and of atanh(x) / x in powers of x^2,
# x <= 1 / 3, from the highest power.
_EXP = tuple(1 / math.factorial(k) for k in range(13, -1, -1))
_ATANH = tuple(1 / (2 * k + 1) for k in range(16, -1, -1))


def _exp_double(x):
    t = min(max(x, -708.0), 709.0)
    rounded = t * _LOG2_E + _ROUND
    n = rounded - _ROUND
    r = t - n * _LN2_HIGH - n * _LN2_LOW
    p = _EXP[0]
    for k in range(1, 14):
        p = p * r + _EXP[k]
    power = (np.float64(rounded).view(np.int64) + 1023) << 52
    return p * np.int64(power).view(np.float64)


exp = by_precision(exp_single, _exp_double)


def _tanh_double(x):
    # Its error is a rounding of 1.
    u = exp(-2.0 * abs(x))
    value = (1.0 - u) / (1.0 + u)
    return -value if x < 0.0 else value


tanh = by_precision(tanh_single, _tanh_double)


def _softplus_double(x):
    # log(1 + u) = 2 atanh(u / (2 + u)); even and odd powers have their own sums.
    u = exp(-abs(x))
    s = u / (2.0 + u)
    z = s * s
    even, odd = _ATANH[0], _ATANH[1]
    for k in range(2, 17, 2):
        even = even * (z * z) + _ATANH[k]
    for k in range(3, 17, 2):
        odd = odd * (z * z) + _ATANH[k]
    return max(x, 0.0) + 2.0 * s * (even + z * odd)


softplus = by_precision(softplus_single, _softplus_double)


# ---- activations, and the outputs as parameters of a distribution

RELU, TANH, LOGISTIC, SILU, IDENTITY = range(5)
ACTIVATIONS = {
    "relu": RELU,
    "tanh": TANH,
    "logistic": LOGISTIC,
    "silu": SILU,
    "identity": IDENTITY,
}


@compiled
def _activate(code, space, first, last):
    one, zero = space.dtype.type(1), space.dtype.type(0)
    for k in range(first, last):
        if code == RELU:
            for i in range(space.shape[1]):
                space[k, i] = max(space[k, i], zero)
        elif code == TANH:
            for i in range(space.shape[1]):
                space[k, i] = tanh(space[k, i])
        elif code == LOGISTIC:
            for i in range(space.shape[1]):
                space[k, i] = one / (one + exp(-space[k, i]))
        elif code == SILU:
            for i in range(space.shape[1]):
                space[k, i] = space[k, i] / (one + exp(-space[k, i]))


# The outputs themselves; means and variances of `Heteroscedastic`; probabilities of
# `Categorical`.
OUTPUTS, MOMENTS, PROBABILITIES = range(3)


@compiled
def _softmax(space, first, last, spare):
    """Replace outputs by probabilities; the row ``spare`` is overwritten."""
    size = space.shape[1]
    for i in range(size):
        space[spare, i] = space[first, i]
    for k in range(first + 1, last):
        for i in range(size):
            space[spare, i] = max(space[spare, i], space[k, i])
    for k in range(first, last):
        for i in range(size):
            space[k, i] = exp(space[k, i] - space[spare, i])
    for i in range(size):
        space[spare, i] = space[first, i]
    for k in range(first + 1, last):
        for i in range(size):
            space[spare, i] += space[k, i]
    for k in range(first, last):
        for i in range(size):
            space[k, i] /= space[spare, i]


@compiled
def _variances(space, first, noise):
    """Replace the second half of the outputs, from ``first``, by variances.

    noise : (4, targets), log tau, gain, least log tau, log of the variance factor
    """
    kind = space.dtype.type
    limit, most = kind(LOG_VARIANCE_RANGE), kind(MAX_LOG_PRECISION)
    sharpness = kind(SHARPNESS)
    linear_from = kind(SOFTPLUS_LINEAR_FROM / SHARPNESS)
    for t in range(noise.shape[1]):
        k, log_tau, gain = first + t, noise[0, t], noise[1, t]
        least, log_factor = noise[2, t], noise[3, t]
        for i in range(space.shape[1]):
            value = log_tau - gain * limit * tanh(space[k, i] / limit)
            space[k, i] = min(value, most) - least
        for i in range(space.shape[1]):
            above = space[k, i]
            smooth = softplus(sharpness * above) / sharpness
            above = above if above > linear_from else smooth
            space[k, i] = exp(log_factor - (least + above))


# ---- the loop over rows and draws

# Columns of an operation: layer; kind; starts of the weights and biases; first and last
# of the units that are added or subtracted.
LAYER, KIND, WEIGHTS, BIASES, FIRST, LAST = range(6)
# Kinds: the biases plus the kept units; the biases plus all units, which several draws
# use; these minus the dropped units.
KEPT, ALL, DROPPED = range(3)


class Plan(NamedTuple):
    """Operations of the draws of all members, in an order in which draws share them.

    Parameters
    ----------
    sizes : ndarray of shape (layers + 1,), int64
        Inputs, units of hidden layers, outputs.
    places : ndarray of shape (layers + 2,), int64
        Units before each of them.
    activation, outcome : int
        Codes of the activation, and of what is computed from the outputs.
    weights, biases : ndarray
        Of all draws, flat.
    operations : ndarray of shape (operations, 6), int64
    units : ndarray, int64
        Indices of units, parts of which belong to an operation.
    ends : ndarray of shape (draws,), int64
        Number of operations up to each draw.
    position : ndarray of shape (draws,), int64
        Position of each draw in the results; members are the last axis.
    noise : ndarray of shape (members, 4, targets)
    """

    sizes: np.ndarray
    places: np.ndarray
    activation: int
    outcome: int
    weights: np.ndarray
    biases: np.ndarray
    operations: np.ndarray
    units: np.ndarray
    ends: np.ndarray
    position: np.ndarray
    noise: np.ndarray


@entry
def predict(plan, x, to, space, draws, sums):
    """Outputs of all draws, or sums over the draws.

    x : (blocks, inputs, rows of a block)
    to : position of the first row in the results
    space : (2 * all units + 1, rows of a block)
    draws : (outputs, draws, all rows), written; or (outputs, draws, 0)
    sums : (3, outputs, all rows), float64, written if ``draws`` is not. Outputs of the
        first draw, and sums of the differences to it and of their squares; the rows of
        the last block are filled up.
    """
    sizes, places, n_layers = plan.sizes, plan.places, plan.sizes.size - 1
    operations, ends = plan.operations, plan.ends
    size, n_units, n_outputs = space.shape[1], places[n_layers + 1], sizes[n_layers]
    f, is_stored = places[n_layers], draws.shape[2] > 0
    for block in range(x.shape[0]):
        start = to + block * size
        for j in range(sizes[0]):
            for i in range(size):
                space[j, i] = x[block, j, i]
        done = 0
        for draw in range(ends.size):
            is_new, position = done < ends[draw], plan.position[draw]
            while done < ends[draw]:
                layer, kind = operations[done, LAYER], operations[done, KIND]
                at, bias = operations[done, WEIGHTS], operations[done, BIASES]
                first, last = operations[done, FIRST], operations[done, LAST]
                h, z, n = places[layer], places[layer + 1], sizes[layer + 1]
                done += 1
                # The second half of the units have what several draws use.
                base = z + n_units
                z = base if kind == ALL else z
                for k in range(n % 2, n, 2):
                    _two_outputs(
                        *(plan.weights, at + k, n, plan.biases, bias + k, plan.units),
                        *(first, last, kind == DROPPED, space, h, base + k, z + k),
                    )
                if n % 2:
                    _one_output(
                        *(plan.weights, at, n, plan.biases, bias, plan.units),
                        *(first, last, kind == DROPPED, space, h, base, z),
                    )
                if kind != ALL and layer + 1 < n_layers:
                    _activate(plan.activation, space, z, z + n)
            if is_new and plan.outcome == PROBABILITIES:
                _softmax(space, f, f + n_outputs, 2 * n_units)
            elif is_new and plan.outcome == MOMENTS:
                noise = plan.noise[position % len(plan.noise)]
                _variances(space, f + n_outputs // 2, noise)
            for k in range(n_outputs):
                if is_stored:
                    for i in range(min(size, draws.shape[2] - start)):
                        draws[k, position, start + i] = space[f + k, i]
                elif draw == 0:
                    for i in range(size):
                        sums[0, k, start + i] = space[f + k, i]
                else:
                    for i in range(size):
                        shifted = np.float64(space[f + k, i]) - sums[0, k, start + i]
                        sums[1, k, start + i] += shifted
                        sums[2, k, start + i] += shifted * shifted


# ---- plans


class _Layer(NamedTuple):
    """Draws of one layer; all arrays have the draws of all members as first axis.

    Parameters
    ----------
    parent, node : ndarray of int
        Number of the distinct inputs of the layer, and of its distinct outputs.
    weights, biases : ndarray of int
        Their starts.
    is_dropped : ndarray of shape (draws, inputs)
    subtracts : ndarray of bool, for every distinct input
        Whether its draws subtract the units that they drop.
    """

    parent: np.ndarray
    node: np.ndarray
    weights: np.ndarray
    biases: np.ndarray
    is_dropped: np.ndarray
    subtracts: np.ndarray

    @classmethod
    def of(cls, parent, weights, biases, is_dropped, may_share: bool) -> "_Layer":
        patterns = np.packbits(is_dropped, axis=1)
        keys = np.column_stack([parent, weights, biases, patterns])
        _, first, node = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        # Of every distinct input: its distinct outputs, and the units that they drop.
        n_outputs = np.bincount(parent[first])
        n_dropped = np.bincount(parent[first], is_dropped[first].sum(1))
        n_inputs = is_dropped.shape[1]
        subtracts = n_inputs + 2 * n_dropped < n_outputs * n_inputs
        return cls(
            parent, node.ravel(), weights, biases, is_dropped, subtracts & may_share
        )


def _starts(values: torch.Tensor, n_draws: int) -> np.ndarray:
    """Start of the values of every draw and member, flat.

    values : (draws or 1, members, ...)
    """
    starts = np.arange(values.shape[0] * values.shape[1]) * values[0, 0].numel()
    return np.broadcast_to(starts.reshape(len(values), -1), (n_draws, values.shape[1]))


def plan_of(posterior, maps: list, n_draws: int, share: bool) -> Plan:
    """Operations of draws.

    maps : of every layer, weights (draws or 1, members, inputs, outputs), biases, and
        possibly masks (draws, members, inputs)
    share : whether draws may share operations
    """
    network, likelihood = posterior.network, posterior.likelihood
    n_members = posterior.n_members
    node = np.tile(np.arange(n_members), n_draws)
    layers: list[_Layer] = []
    weights: list[torch.Tensor] = []
    biases: list[torch.Tensor] = []
    n_weights = n_biases = 0
    for weight, bias, *masks in maps:
        bias = bias if bias.ndim == 3 else bias.unsqueeze(0)
        is_dropped = np.zeros((n_draws, n_members, weight.shape[2]), dtype=bool)
        if masks:
            is_dropped[:] = masks[0].numpy() == 0
        layer = _Layer.of(
            node,
            n_weights + _starts(weight, n_draws).ravel(),
            n_biases + _starts(bias, n_draws).ravel(),
            is_dropped.reshape(n_draws * n_members, -1),
            share and len(weight) == len(bias) == 1,
        )
        layers, node = [*layers, layer], layer.node
        weights, biases = [*weights, weight.ravel()], [*biases, bias.ravel()]
        n_weights, n_biases = n_weights + weight.numel(), n_biases + bias.numel()
    # Nodes are numbered in the order of their parents.
    order = np.argsort(node, kind="stable")
    operations, ends, units = _operations(layers, order)
    return Plan(
        sizes=np.array(network.sizes),
        places=np.cumsum([0, *network.sizes]),
        activation=ACTIVATIONS[network.activation],
        outcome=_OUTCOMES.get(type(likelihood), OUTPUTS),
        weights=torch.cat(weights).numpy(),
        biases=torch.cat(biases).numpy(),
        operations=operations,
        units=units,
        ends=ends,
        position=order,
        noise=_noise(posterior),
    )


def _operations(layers: list[_Layer], order) -> tuple[np.ndarray, ...]:
    """Operations, their number up to each draw, and the indices of units.

    order : of the draws
    """
    units = [np.arange(layer.is_dropped.shape[1]) for layer in layers]
    ends_of_all = np.cumsum([len(part) for part in units])
    n_units = int(ends_of_all[-1])
    operations: list[list[int]] = []
    ends, previous = [], None
    for draw in order:
        for i, layer in enumerate(layers):
            if previous is not None and layer.node[draw] == layer.node[previous]:
                continue
            starts = [layer.weights[draw], layer.biases[draw]]
            parent, is_dropped = layer.parent[draw], layer.is_dropped[draw]
            everything = ends_of_all[i] - len(is_dropped), ends_of_all[i]
            kind = DROPPED if layer.subtracts[parent] else KEPT
            if kind == DROPPED and (
                previous is None or layer.parent[previous] != parent
            ):
                operations.append([i, ALL, *starts, *everything])
            if kind == KEPT and not is_dropped.any():
                operations.append([i, KEPT, *starts, *everything])
                continue
            part = np.flatnonzero(is_dropped if kind == DROPPED else ~is_dropped)
            operations.append([i, kind, *starts, n_units, n_units + len(part)])
            units.append(part)
            n_units += len(part)
        ends.append(len(operations))
        previous = draw
    return np.array(operations), np.array(ends), np.concatenate(units)


_OUTCOMES: dict[type, int] = {Heteroscedastic: MOMENTS, Categorical: PROBABILITIES}


def _noise(posterior) -> np.ndarray:
    """Parameters of heteroscedastic noise, (members, 4, targets)."""
    likelihood, params = posterior.likelihood, posterior.likelihood_params
    if not isinstance(likelihood, Heteroscedastic):
        return np.empty((posterior.n_members, 4, 0), posterior.keep[0].numpy().dtype)
    log_tau = likelihood.log_tau(params)
    values = (
        log_tau,
        params["gain"].unsqueeze(1).expand_as(log_tau),
        -params["largest_log_variance"].unsqueeze(1),
        torch.zeros_like(log_tau) + likelihood.log_noise_factor(params),
    )
    return torch.cat(values, 1).numpy()


# ---- draws of a posterior

Rows = Callable[[slice], torch.Tensor]
# The loop is faster than torch's products up to this width of a layer, and up to this
# size of the weights of all draws.
_MAX_WIDTH, _MAX_WEIGHT_BYTES = 512, 1 << 25
# Rows that a thread computes at once.
_ROWS = 512


def can_predict(posterior, n_draws: int, budget: int) -> bool:
    """Whether the loop can predict draws of a posterior.

    budget : bytes that the weights may take
    """
    network = posterior.network
    if type(network) is not Perceptron or posterior.device.type != "cpu":
        return False
    if network.activation not in ACTIVATIONS or network.widest > _MAX_WIDTH:
        return False
    only_drops = all(
        family.drops or not family.stochastic for family in network.families
    )
    n_bytes = posterior.keep[0].element_size() * posterior.n_members * network.n_weights
    n_bytes *= 1 if only_drops else n_draws
    return n_bytes <= min(budget, _MAX_WEIGHT_BYTES)


class CompiledDraws:
    """Draws of a posterior that the loop computes, on torch's number of threads.

    Parameters
    ----------
    posterior : Posterior
    n_draws : int
    random : callable
        Returns the random source of the draws.
    """

    def __init__(self, posterior, n_draws: int, random: Callable[[], Any]):
        self._posterior, self._n_draws, self._random = posterior, n_draws, random
        self._plan = self._plan_of(share=True)
        self._shares = bool((self._plan.operations[:, KIND] == ALL).any())

    def _plan_of(self, share: bool) -> Plan:
        posterior = self._posterior
        network = posterior.network
        pairs = zip(network.families, network.fan_ins, strict=True)
        network = network.with_families(
            tuple(
                family.with_mask_shape((n,)) if family.drops else family
                for family, n in pairs
            )
        )
        maps = network.draw(posterior.layers, posterior.keep, self._random())
        return plan_of(posterior, maps, self._n_draws, share)

    @cached_property
    def _separate(self) -> Plan:
        """Plan in which no draw subtracts units, for rows with huge inputs."""
        return self._plan_of(share=False)

    def components(self, x: torch.Tensor) -> Any:
        """The likelihood's ``components_class`` of all draws.

        x : (rows, inputs)
        """
        plan, posterior = self._plan, self._posterior
        shape = plan.sizes[-1], len(plan.position), len(x)
        draws, sums = np.empty(shape, plan.weights.dtype), np.empty((3, shape[0], 0))

        def work(part: slice) -> None:
            self._predict(x[part].numpy(), part.start, draws, sums)

        _in_parallel(work, len(x))
        if plan.outcome == OUTPUTS:
            outputs = torch.as_tensor(draws).unflatten(1, (-1, posterior.n_members))
            return posterior.predictive_components(outputs.permute(1, 2, 3, 0))
        values = np.moveaxis(draws, 0, -1)
        if plan.outcome == MOMENTS:
            return posterior.likelihood.components_class(*np.split(values, 2, axis=-1))
        return posterior.likelihood.components_class(self._of_labels(values))

    def moments(self, rows: Rows, n_rows: int) -> tuple[np.ndarray, ...] | None:
        """Mean of y, and epistemic and aleatoric variances, (rows, targets) each.

        None for likelihoods whose draws must be stored.

        rows : takes a slice, returns inputs (rows, inputs)
        """
        likelihood, params = (
            self._posterior.likelihood,
            self._posterior.likelihood_params,
        )
        if self._plan.outcome == MOMENTS:
            means, variances = self._accumulated(rows, n_rows)
            mean, noise = np.split(means, 2, axis=1)
            return mean, np.split(variances, 2, axis=1)[0], noise
        if not isinstance(likelihood, Gaussian | StudentT):
            return None
        mean, variance = self._accumulated(rows, n_rows)
        noise = likelihood.noise_level(params).mean(0).numpy()
        return mean, variance, np.broadcast_to(noise, mean.shape)

    def mean_probability(self, rows: Rows, n_rows: int) -> np.ndarray | None:
        """Mean probabilities, (rows, labels), up to rounding of their sum; or None."""
        if self._plan.outcome != PROBABILITIES:
            return None
        return self._of_labels(self._accumulated(rows, n_rows)[0])

    def _of_labels(self, probability: np.ndarray) -> np.ndarray:
        likelihood = self._posterior.likelihood
        if likelihood.ranks is None:
            return probability
        return likelihood.label_probability(torch.as_tensor(probability)).numpy()

    def _accumulated(self, rows: Rows, n_rows: int) -> np.ndarray:
        """Means and variances over the draws, (2, rows, outputs)."""
        plan = self._plan
        n_outputs, n_draws = plan.sizes[-1], len(plan.position)
        draws = np.empty((n_outputs, n_draws, 0), plan.weights.dtype)
        sums = np.zeros((3, n_outputs, n_rows + _ROWS))

        def work(part: slice) -> None:
            self._predict(rows(part).numpy(), part.start, draws, sums)

        _in_parallel(work, n_rows)
        origin, total, squares = sums[:, :, :n_rows].transpose(0, 2, 1)
        centre = total / n_draws
        variance = np.maximum(squares / n_draws - np.square(centre), 0.0)
        return np.stack([origin + centre, variance])

    def _predict(self, x: np.ndarray, to: int, draws, sums) -> None:
        """Write results of some rows, from the position ``to``."""
        _run(self._plan, x, to, draws, sums)
        if not self._shares:
            return
        limit = MAX_SHARED_INPUT[self._posterior.dtype]
        large = np.flatnonzero(np.abs(x).max(1) > limit)
        if not len(large):
            return
        if draws.shape[2]:
            part = np.empty((*draws.shape[:2], len(large)), draws.dtype)
            _run(self._separate, x[large], 0, part, sums)
            draws[:, :, to + large] = part
        else:
            part = np.zeros((*sums.shape[:2], len(large) + _ROWS))
            _run(self._separate, x[large], 0, draws, part)
            sums[:, :, to + large] = part[:, :, : len(large)]


def _run(plan: Plan, x: np.ndarray, to: int, draws, sums) -> None:
    """Call ``predict`` for x, (rows, inputs)."""
    size = _rows_of(x.dtype)
    blocks = np.zeros((-(-len(x) // size), size, x.shape[1]), x.dtype)
    blocks.reshape(-1, x.shape[1])[: len(x)] = x
    blocks = np.ascontiguousarray(blocks.transpose(0, 2, 1))
    space = np.empty((2 * plan.places[-1] + 1, size), x.dtype)
    predict(plan, blocks, to, space, draws, sums)


def _in_parallel(work: Callable[[slice], None], n_rows: int) -> None:
    """Call ``work`` with parts of the rows, on torch's number of threads."""
    parts = [slice(i, min(i + _ROWS, n_rows)) for i in range(0, n_rows, _ROWS)]
    n_threads = min(torch.get_num_threads(), len(parts))
    if n_threads == 1:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in pool.map(work, parts):
            pass
