"""Multi-layer perceptron over the members axis.

If dropout rates are low, the draws share most of their computations: a mask of a
hundred units at a rate of 0.01 drops one unit on average. Draws whose masks agree up to
some layer have the same inputs there, and the same product with the weights. Each draw
subtracts the units that its mask drops from this product. This equals one product
per draw up to rounding, unless the subtracted part is much larger than the
rest. Therefore rows with huge inputs use one product per draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from skbayesnn._families import (
    Draw,
    Family,
    Needed,
    Params,
    RandomSource,
    describe_family,
    family_from,
)
from skbayesnn._networks.activations import ACTIVATIONS, Activation
from skbayesnn._networks.base import (
    InitialNormal,
    Keep,
    Network,
    NetworkPullback,
    SparseInputs,
    initial_params,
)

# ---- draws that share computations, for low dropout rates

# Cost of a pass over an output, in multiply-adds.
_PASS_COST = 20
# Inputs up to here leave results five exact digits in float32, ten in float64.
MAX_SHARED_INPUT = {torch.float32: 1e2, torch.float64: 1e6}
# Values of the masked inputs of several draws that are in memory at once.
_MAX_VALUES = 1 << 21


def is_sharing_faster(
    sizes: Sequence[int], keep: Sequence[float], n_draws: int
) -> bool:
    """Whether sharing takes less than half of the time of one product per draw.

    sizes : units of all layers
    keep : keep probability of the inputs of each map
    """
    separate_cost, shared_cost = 0.0, 0.0
    n_inputs, all_kept = 1.0, 1.0
    for n_in, n_out, p in zip(sizes[:-1], sizes[1:], keep, strict=True):
        all_kept *= p**n_in
        n_outputs = 1 + n_draws * (1 - all_kept)
        separate_cost += n_draws * (n_in + _PASS_COST) * n_out
        dropped = n_in * (1 - p)
        shared_cost += (n_inputs * n_in + n_outputs * (dropped + _PASS_COST)) * n_out
        n_inputs = n_outputs
    return n_draws > 1 and 2 * shared_cost < separate_cost


@dataclass(frozen=True)
class _Map:
    """An affine map and its distinct dropout patterns.

    Parameters
    ----------
    weight, bias : (inputs, outputs), (outputs,)
    input_index : (distinct outputs,)
        Index of the distinct input of each distinct output.
    dropped : (distinct outputs, most dropped units)
        Indices of the dropped units, padded with arbitrary other units.
    dropped_weights : (distinct outputs, most dropped units, outputs)
        Their weights, padded with zeros.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    input_index: torch.Tensor
    dropped: torch.Tensor
    dropped_weights: torch.Tensor

    def __call__(self, h: torch.Tensor) -> torch.Tensor:
        """Apply the map.

        h : (distinct inputs, rows, inputs)
        returns : (distinct outputs, rows, outputs)
        """
        shared = torch.addmm(self.bias, h.flatten(0, 1), self.weight)
        outputs = shared.unflatten(0, h.shape[:2])[self.input_index]
        if self.dropped.shape[1]:
            units = h[self.input_index.unsqueeze(1), :, self.dropped]
            outputs.baddbmm_(units.mT, self.dropped_weights, alpha=-1)
        return outputs


class SharedDraws:
    """Draws of one perceptron that share computations.

    Parameters
    ----------
    maps : sequence of (weight, bias, mask)
        (inputs, outputs), (outputs,), and zeros and ones of shape (draws, inputs), or
        (1, inputs) if all draws have the same mask.
    activation : Activation
    """

    def __init__(self, maps, activation: Activation):
        self._activation = activation
        self._maps: list[_Map] = []
        self._masks = [mask for *_, mask in maps]
        n_draws = max(len(mask) for *_, mask in maps)
        index = maps[0][0].new_zeros(n_draws, dtype=torch.long)
        for weight, bias, mask in maps:
            dropped = (mask == 0).expand(n_draws, -1)
            pairs = torch.cat([index.unsqueeze(1), dropped.long()], 1)
            patterns, index = torch.unique(pairs, dim=0, return_inverse=True)
            self._maps.append(_map_from_patterns(weight, bias, patterns))
        self._output_index = index

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (draws, rows, outputs) for x (rows, inputs)."""
        h = x.unsqueeze(0)
        for i, layer in enumerate(self._maps):
            h = layer(self._activation.in_place(h) if i else h)
        outputs = h[self._output_index]
        large = (x.abs().amax(1) > MAX_SHARED_INPUT[x.dtype]).nonzero().flatten()
        if len(large):
            outputs[:, large] = self._separate_products(x[large])
        return outputs

    def _separate_products(self, x: torch.Tensor) -> torch.Tensor:
        """The same with one product per draw, in parts that fit into memory."""
        n_draws, step = len(self._output_index), max(1, _MAX_VALUES // x.numel())
        parts = []
        for start in range(0, n_draws, step):
            h = x.unsqueeze(0)
            for i, (layer, masks) in enumerate(
                zip(self._maps, self._masks, strict=True)
            ):
                h = self._activation.in_place(h) if i else h
                mask = masks if len(masks) == 1 else masks[start : start + step]
                masked = h * mask.unsqueeze(1)
                h = torch.matmul(masked, layer.weight).add_(layer.bias)
            n = min(step, n_draws - start)
            parts.append(h.expand(n, -1, -1))
        return torch.cat(parts)


def _map_from_patterns(weight, bias, patterns: torch.Tensor) -> _Map:
    """Construct a map.

    patterns : (distinct outputs, 1 + inputs), the index of the distinct input, then 1
        for each dropped unit
    """
    input_index, is_dropped = patterns[:, 0], patterns[:, 1:]
    max_dropped = int(is_dropped.sum(1).max())
    dropped = is_dropped.argsort(dim=1, descending=True, stable=True)[:, :max_dropped]
    dropped_weights = weight[dropped] * is_dropped.gather(1, dropped).unsqueeze(2)
    return _Map(weight, bias, input_index, dropped, dropped_weights)


# ---- the perceptron

# For at least this many inputs, the weights of all draws are concatenated for one
# product, which does not copy the inputs for every draw.
_MIN_WIDE_INPUTS = 100


@dataclass(frozen=True)
class Perceptron(Network):
    """Layers of linear maps with an activation between them.

    Parameters
    ----------
    sizes : tuple of int
        Inputs, hidden units of each layer, outputs.
    activation : str
        A key of ``ACTIVATIONS``.
    families : tuple of Family
        Variational family of every affine map.
    """

    sizes: tuple[int, ...]
    activation: str
    families: tuple[Family, ...] = ()

    takes_sparse = True

    @property
    def fan_ins(self) -> tuple[int, ...]:
        """Inputs of every linear map."""
        return self.sizes[:-1]

    @property
    def n_weights(self) -> int:
        """Weights and biases of one member."""
        return sum((a + 1) * b for a, b in pairwise(self.sizes))

    @property
    def n_units(self) -> int:
        """Units of all layers, including the inputs."""
        return sum(self.sizes)

    @property
    def jacobian_size(self) -> int:
        """Values per row and output; the layers' units, since no Jacobian is stored."""
        return self.n_units

    @property
    def widest(self) -> int:
        """Units of the widest layer, including the inputs."""
        return max(self.sizes)

    @property
    def peak_activation_size(self) -> int:
        """Upper bound of the units of two consecutive layers."""
        return sum(sorted(self.sizes[1:])[-2:])

    def describe(self) -> dict[str, Any]:
        """Plain values from which ``from_description`` constructs an equal network."""
        return {
            "name": "mlp",
            "sizes": list(self.sizes),
            "activation": self.activation,
            "families": [describe_family(family) for family in self.families],
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "Perceptron":
        """Inverse of ``describe``."""
        return cls(
            sizes=tuple(description["sizes"]),
            activation=description["activation"],
            families=tuple(family_from(family) for family in description["families"]),
        )

    def init(self, normal: InitialNormal, keep: Keep) -> list[Params]:
        """Initial values of every layer (He et al. 2015, arXiv 1502.01852, eq. 10)."""
        gain = ACTIVATIONS[self.activation].gain
        gains = *(gain for _ in self.sizes[2:]), 1.0
        return initial_params(
            self.families, self.fan_ins, self.sizes[1:], gains, normal, keep
        )

    def vjp(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, random: RandomSource
    ) -> tuple[torch.Tensor, NetworkPullback]:
        """One stochastic forward pass, and its pullback to the parameters.

        It returns the same values as autograd, without a graph and with activations in
        place. For small networks autograd's overhead would dominate a step.
        """
        activation = ACTIVATIONS[self.activation]
        layer_cache, saved = [], x
        for i, (family, params) in enumerate(zip(self.families, layers, strict=True)):
            if i:
                x, saved = activation.forward(x)
            outputs, pullback = family.linear_vjp(params, keep[i], x, random)
            layer_cache.append((saved, pullback))
            x = outputs

        def gradients(gradient: torch.Tensor) -> list[Params]:
            param_grads = []
            for i, (saved, pullback) in reversed(list(enumerate(layer_cache))):
                needed = activation.needed if i else Needed.NONE
                layer_grads, grad_h = pullback(gradient, needed)
                param_grads.append(layer_grads)
                if grad_h is not None:
                    gradient = activation.pullback(grad_h, saved)
            return param_grads[::-1]

        return x, gradients

    def apply(
        self, weights: list[Draw], x: torch.Tensor | SparseInputs
    ) -> torch.Tensor:
        """Outputs for drawn weights, without gradients.

        x : (members or 1, rows, inputs)
        returns : (draws, members, rows, outputs)
        """
        activate_ = ACTIVATIONS[self.activation].in_place
        (weight, bias), *others = weights
        if isinstance(x, torch.Tensor):
            h = _batched_product(x.unsqueeze(0), weight)
        else:
            h = x.times(weight)
        h.add_(bias.unsqueeze(-2))
        for weight, bias in others:
            h = _batched_product(activate_(h), weight).add_(bias.unsqueeze(-2))
        return h

    def sample_network(self, layers, keep, random, n_draws):
        """Sample networks; with low dropout rates, draws share computations."""
        if not self.shares_draws(layers, keep, n_draws):
            return super().sample_network(layers, keep, random, n_draws)
        pairs = zip(self.families, self.fan_ins, strict=True)
        network = self.with_families(
            tuple(family.with_mask_shape((n,)) for family, n in pairs)
        )
        maps = network.draw(layers, keep, random)
        sampled = [self._shared(maps, i) for i in range(len(keep[0]))]

        def outputs(x: torch.Tensor) -> torch.Tensor:
            inputs = x.expand(len(sampled), -1, -1)
            pairs = zip(sampled, inputs, strict=True)
            return torch.stack([network(rows) for network, rows in pairs], 1)

        return outputs

    def shares_draws(self, layers, keep, n_draws):
        """Whether all dropout rates are so low that sharing saves time."""
        if not all(family.drops or not family.stochastic for family in self.families):
            return False
        kept = [p.mean().item() for p in self.learned_keep(layers, keep)]
        return is_sharing_faster(self.sizes, kept, n_draws)

    def _shared(self, maps: list[Draw], member: int) -> SharedDraws:
        """The draws of one member; maps without a mask get one that drops nothing."""
        layers = []
        for weight, bias, *masks in maps:
            w = weight[0, member]
            mask = masks[0][:, member] if masks else w.new_ones(1, len(w))
            layers.append((w, bias[member], mask))
        return SharedDraws(layers, ACTIVATIONS[self.activation])

    def tangent_kernel(
        self,
        weights: list[Draw],
        variances: Sequence[tuple[torch.Tensor, torch.Tensor]],
        x: torch.Tensor,
        outputs: slice,
    ) -> torch.Tensor:
        """Covariance of outputs over rows, as in ``Network``, without autograd.

        A layer adds the products of its units times the products of their gradients.
        """
        activation = ACTIVATIONS[self.activation]
        units, saved = [x], [x]
        for weight, bias in weights[:-1]:
            pre_activation = units[-1] @ weight[0] + bias.flatten(0, -2).unsqueeze(1)
            values, layer_saved = activation.forward(pre_activation)
            units.append(values)
            saved.append(layer_saved)
        slope = torch.eye(self.sizes[-1], dtype=x.dtype, device=x.device)[outputs]
        n_outputs = len(slope)
        # (members or 1, outputs, rows, units of the layer)
        slope = slope.view(1, n_outputs, 1, -1).expand(1, -1, x.shape[1], -1)
        kernel = x.new_zeros(())
        for i in reversed(range(len(weights))):
            weight_variance, bias_variance = (v.view(-1, 1, 1) for v in variances[i])
            layer_kernel = (
                (units[i] @ units[i].mT).mul(weight_variance).add_(bias_variance)
            )
            flat_slope = slope.flatten(1, 2)
            expanded = layer_kernel.repeat(1, n_outputs, n_outputs).mul_(
                flat_slope @ flat_slope.mT
            )
            kernel = expanded.add_(kernel)
            if i:
                grad_units = slope @ weights[i][0][0].mT.unsqueeze(1)
                slope = activation.pullback(
                    grad_units, saved[i].unsqueeze(1).expand_as(grad_units)
                )
        return kernel


def _batched_product(h: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(draws, members, rows, inputs) @ (draws, members, inputs, outputs).

    The first two axes broadcast, without copying activations.
    """
    pairs = zip(h.shape[:2], weight.shape[:2], strict=True)
    lead = tuple(max(pair) for pair in pairs)
    n_inputs, n_outputs = weight.shape[2:]
    if h.shape[:2] == (1, 1) and n_inputs >= max(_MIN_WIDE_INPUTS, n_outputs):
        side_by_side = weight.permute(2, 0, 1, 3).reshape(n_inputs, -1)
        product = (h[0, 0] @ side_by_side).unflatten(1, (*lead, n_outputs))
        return product.permute(1, 2, 0, 3).contiguous()
    if h.shape[:2] in ((1, 1), lead):
        spread = h.expand(*lead, -1, -1).flatten(0, 1)
        product = torch.bmm(spread, weight.expand(*lead, -1, -1).flatten(0, 1))
        return product.view(*lead, *product.shape[1:])
    product = h.new_empty(*lead, h.shape[2], weight.shape[3])
    for out, weight_of_draw in zip(product, weight, strict=True):
        torch.bmm(h[0], weight_of_draw, out=out)
    return product
