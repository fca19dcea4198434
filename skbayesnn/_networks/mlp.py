"""Multi-layer perceptron over the members axis."""

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
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._networks.base import (
    InitialNormal,
    Keep,
    Network,
    NetworkPullback,
    SparseInputs,
    initial_params,
)

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
    is_compiled = True

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
