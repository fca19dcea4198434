"""Multi-layer perceptron over the members axis.

Draws whose masks drop little, computed together.

Most masks of a low rate drop nothing: of a hundred units at a rate of .01 one. Draws
whose masks agree up to some layer have the same inputs there, of which the product
with the weights is the same, too; from it each takes off the units that its own mask
drops. The numbers are those of one product per draw, but for rounding: what is taken
off must not be much larger than the rest, so that rows with huge inputs have a product
per draw.
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
    Keep,
    Network,
    NetworkPullback,
    SparseInputs,
    StartNormal,
    start_values,
)

# ---- draws whose masks drop little, computed together

# What a pass over an output costs, in products of the same output.
_PASS = 20
# Inputs up to here leave the rest five digits in float32, ten in float64.
_LARGEST = {torch.float32: 1e2, torch.float64: 1e6}
# Masked inputs of several draws that are held at once.
_NUMBERS = 1 << 21


def pays(sizes: Sequence[int], keep: Sequence[float], n_draws: int) -> bool:
    """Whether it takes less than half of the time of a product per draw.

    sizes : units of all layers
    keep : probability that an input of each map is kept
    """
    apart, together = 0.0, 0.0
    n_inputs, all_kept = 1.0, 1.0
    for n_in, n_out, p in zip(sizes[:-1], sizes[1:], keep, strict=True):
        all_kept *= p**n_in
        n_outputs = 1 + n_draws * (1 - all_kept)
        apart += n_draws * (n_in + _PASS) * n_out
        dropped = n_in * (1 - p)
        together += (n_inputs * n_in + n_outputs * (dropped + _PASS)) * n_out
        n_inputs = n_outputs
    return n_draws > 1 and 2 * together < apart


@dataclass(frozen=True)
class _Map:
    """An affine map, and what the outputs that differ are made of.

    Parameters
    ----------
    weight, bias : (inputs, outputs), (outputs,)
    of_inputs : (different outputs,)
        Which of the different inputs.
    dropped : (different outputs, most)
        Units that are dropped, then any others.
    lost : (different outputs, most, outputs)
        Their weights, then zeros.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    of_inputs: torch.Tensor
    dropped: torch.Tensor
    lost: torch.Tensor

    def __call__(self, h: torch.Tensor) -> torch.Tensor:
        """(different inputs, rows, inputs) -> (different outputs, rows, outputs)."""
        shared = torch.addmm(self.bias, h.flatten(0, 1), self.weight)
        outputs = shared.unflatten(0, h.shape[:2])[self.of_inputs]
        if self.dropped.shape[1]:
            units = h[self.of_inputs.unsqueeze(1), :, self.dropped]
            outputs.baddbmm_(units.mT, self.lost, alpha=-1)
        return outputs


class SharedDraws:
    """Draws of one perceptron.

    Parameters
    ----------
    maps : sequence of (weight, bias, mask)
        (inputs, outputs), (outputs,), and zeros and ones (draws, inputs), or
        (1, inputs) for all draws.
    activation : Activation
    """

    def __init__(self, maps, activation: Activation):
        self._activation = activation
        self._maps: list[_Map] = []
        self._masks = [mask for *_, mask in maps]
        n_draws = max(len(mask) for *_, mask in maps)
        which = maps[0][0].new_zeros(n_draws, dtype=torch.long)
        for weight, bias, mask in maps:
            dropped = (mask == 0).expand(n_draws, -1)
            pairs = torch.cat([which.unsqueeze(1), dropped.long()], 1)
            different, which = torch.unique(pairs, dim=0, return_inverse=True)
            self._maps.append(_map_of(weight, bias, different))
        self._of_draws = which

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, inputs) -> (draws, rows, outputs)."""
        h = x.unsqueeze(0)
        for i, layer in enumerate(self._maps):
            h = layer(self._activation.in_place(h) if i else h)
        outputs = h[self._of_draws]
        far = (x.abs().amax(1) > _LARGEST[x.dtype]).nonzero().flatten()
        if len(far):
            outputs[:, far] = self._apart(x[far])
        return outputs

    def _apart(self, x: torch.Tensor) -> torch.Tensor:
        """The same by a product per draw, of so many draws as memory is there for."""
        n_draws, step = len(self._of_draws), max(1, _NUMBERS // x.numel())
        parts = []
        for start in range(0, n_draws, step):
            h = x.unsqueeze(0)
            for i, (layer, masks) in enumerate(
                zip(self._maps, self._masks, strict=True)
            ):
                h = self._activation.in_place(h) if i else h
                mask = masks if len(masks) == 1 else masks[start : start + step]
                kept = h * mask.unsqueeze(1)
                h = torch.matmul(kept, layer.weight).add_(layer.bias)
            n = min(step, n_draws - start)
            parts.append(h.expand(n, -1, -1))
        return torch.cat(parts)


def _map_of(weight, bias, different: torch.Tensor) -> _Map:
    """different : (different outputs, 1 + inputs), number of the input, dropped."""
    of_inputs, is_dropped = different[:, 0], different[:, 1:]
    most = int(is_dropped.sum(1).max())
    dropped = is_dropped.argsort(dim=1, descending=True, stable=True)[:, :most]
    lost = weight[dropped] * is_dropped.gather(1, dropped).unsqueeze(2)
    return _Map(weight, bias, of_inputs, dropped, lost)


# ---- Multi-layer perceptron over the members axis

# A product of wide inputs is one of all draws' weights side by side: the inputs are
# not copied for every draw.
_WIDE = 100


@dataclass(frozen=True)
class MLP(Network):
    """Layers of linear maps with an activation between them.

    Parameters
    ----------
    sizes : tuple of int
        Inputs, hidden units of each layer, outputs.
    activation : str
        A key of ``ACTIVATIONS``.
    families : tuple of Family
        The variational family of every affine map.
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
        """Of all layers, and the inputs."""
        return sum(self.sizes)

    @property
    def smooth(self) -> bool:
        """Without hidden layers, or with a smooth activation."""
        return len(self.sizes) == 2 or ACTIVATIONS[self.activation].smooth

    @property
    def jacobian_size(self) -> int:
        """By hand: units, not weights."""
        return self.n_units

    @property
    def widest(self) -> int:
        """Units of the widest layer, or the inputs."""
        return max(self.sizes)

    @property
    def peak_activation_size(self) -> int:
        """Of two neighbouring layers, at most."""
        return sum(sorted(self.sizes[1:])[-2:])

    def describe(self) -> dict[str, Any]:
        """Sizes and names."""
        return {
            "name": "mlp",
            "sizes": list(self.sizes),
            "activation": self.activation,
            "families": [describe_family(family) for family in self.families],
        }

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "MLP":
        """Undo ``describe``."""
        return cls(
            sizes=tuple(about["sizes"]),
            activation=about["activation"],
            families=tuple(family_from(each) for each in about["families"]),
        )

    def init(self, normal: StartNormal, keep: Keep) -> list[Params]:
        """Start values of every layer (He et al. 2015, arXiv 1502.01852, eq. 10)."""
        gain = ACTIVATIONS[self.activation].gain
        gains = *(gain for _ in self.sizes[2:]), 1.0
        return start_values(
            self.families, self.fan_ins, self.sizes[1:], gains, normal, keep
        )

    def vjp(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, noise: RandomSource
    ) -> tuple[torch.Tensor, NetworkPullback]:
        """One stochastic pass, and its pullback to the parameters.

        The same numbers as by autograd, without its graph and with activations in
        place: for small networks most of a step is bookkeeping.
        """
        activation = ACTIVATIONS[self.activation]
        passed, known = [], x
        for i, (family, params) in enumerate(zip(self.families, layers, strict=True)):
            if i:
                x, known = activation.passed(x)
            outputs, pullback = family.linear_vjp(params, keep[i], x, noise)
            passed.append((known, pullback))
            x = outputs

        def gradients(gradient: torch.Tensor) -> list[Params]:
            found = []
            for i, (known, pullback) in reversed(list(enumerate(passed))):
                needed = activation.needed if i else Needed.NONE
                of_params, of_h = pullback(gradient, needed)
                found.append(of_params)
                if of_h is not None:
                    gradient = activation.pullback(of_h, known)
            return found[::-1]

        return x, gradients

    def apply(
        self, weights: list[Draw], x: torch.Tensor | SparseInputs
    ) -> torch.Tensor:
        """The drawn networks on the same rows; no gradients.

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

    def drawn(self, layers, keep, noise, n_draws):
        """``apply`` of ``draw``; where masks drop little, what draws share once."""
        if not self.shares_draws(layers, keep, n_draws):
            return super().drawn(layers, keep, noise, n_draws)
        pairs = zip(self.families, self.fan_ins, strict=True)
        placed = self.with_families(tuple(family.placed((n,)) for family, n in pairs))
        maps = placed.draw(layers, keep, noise)
        members = [self._shared(maps, i) for i in range(len(keep[0]))]

        def outputs(x: torch.Tensor) -> torch.Tensor:
            inputs = x.expand(len(members), -1, -1)
            pairs = zip(members, inputs, strict=True)
            return torch.stack([member(rows) for member, rows in pairs], 1)

        return outputs

    def shares_draws(self, layers, keep, n_draws):
        """Where masks of all maps drop so little that it pays."""
        if not all(family.drops or not family.stochastic for family in self.families):
            return False
        kept = [p.mean().item() for p in self.learned_keep(layers, keep)]
        return pays(self.sizes, kept, n_draws)

    def _shared(self, maps: list[Draw], member: int) -> SharedDraws:
        """The draws of one member; weights without a mask have one that drops none."""
        own = []
        for weight, bias, *masks in maps:
            w = weight[0, member]
            mask = masks[0][:, member] if masks else w.new_ones(1, len(w))
            own.append((w, bias[member], mask))
        return SharedDraws(own, ACTIVATIONS[self.activation])

    def tangent_kernel(
        self,
        weights: list[Draw],
        variances: Sequence[tuple[torch.Tensor, torch.Tensor]],
        x: torch.Tensor,
        outputs: slice,
    ) -> torch.Tensor:
        """By hand: of a layer, products of its units times those of their slopes."""
        activation = ACTIVATIONS[self.activation]
        units, known = [x], [x]
        for weight, bias in weights[:-1]:
            sums = units[-1] @ weight[0] + bias.flatten(0, -2).unsqueeze(1)
            values, taken = activation.passed(sums)
            units.append(values)
            known.append(taken)
        slope = torch.eye(self.sizes[-1], dtype=x.dtype, device=x.device)[outputs]
        n_outputs = len(slope)
        # (members or 1, outputs, rows, units of the layer)
        slope = slope.view(1, n_outputs, 1, -1).expand(1, -1, x.shape[1], -1)
        kernel = x.new_zeros(())
        for i in reversed(range(len(weights))):
            of_weight, of_bias = (v.view(-1, 1, 1) for v in variances[i])
            inside = (units[i] @ units[i].mT).mul(of_weight).add_(of_bias)
            flat = slope.flatten(1, 2)
            outside = inside.repeat(1, n_outputs, n_outputs).mul_(flat @ flat.mT)
            kernel = outside.add_(kernel)
            if i:
                back = slope @ weights[i][0][0].mT.unsqueeze(1)
                slope = activation.pullback(back, known[i].unsqueeze(1).expand_as(back))
        return kernel


def _batched_product(h: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(draws, members, rows, inputs) @ (draws, members, inputs, outputs).

    Axes of length 1 stand for all; activations are never copied to spread them.
    """
    pairs = zip(h.shape[:2], weight.shape[:2], strict=True)
    lead = tuple(max(pair) for pair in pairs)
    n_inputs, n_outputs = weight.shape[2:]
    if h.shape[:2] == (1, 1) and n_inputs >= max(_WIDE, n_outputs):
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
