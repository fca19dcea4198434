"""Multi-layer perceptron over the members axis."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from skbayesnn._families import Draw, Family, Needed, Noise, Params
from skbayesnn._priors import Prior

Keep = Sequence[torch.Tensor]


class Activation(NamedTuple):
    """A function of the units, its gradient, and its start scale.

    ``pullback`` takes the gradient and the function's values; it works in place.
    ``needed`` says at which values it looks at the gradient.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    in_place: Callable[[torch.Tensor], torch.Tensor]
    pullback: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    gain: float  # of the variance of the weights behind it
    needed: Needed = Needed.ALL


_aten = torch.ops.aten

ACTIVATIONS = {
    "relu": Activation(
        torch.relu,
        torch.relu_,
        lambda g, h: _aten.threshold_backward.grad_input(g, h, 0, grad_input=g),
        2.0,
        Needed.WHERE_NONZERO,
    ),
    "tanh": Activation(
        torch.tanh,
        torch.tanh_,
        lambda g, h: _aten.tanh_backward.grad_input(g, h, grad_input=g),
        1.0,
    ),
    "logistic": Activation(
        torch.sigmoid,
        torch.sigmoid_,
        lambda g, h: _aten.sigmoid_backward.grad_input(g, h, grad_input=g),
        1.0,
    ),
    "identity": Activation(lambda x: x, lambda x: x, lambda g, h: g, 1.0),
}


@dataclass(frozen=True)
class MLP:
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
    families: tuple[Family, ...]

    @property
    def fan_ins(self) -> tuple[int, ...]:
        """Inputs of every linear map."""
        return self.sizes[:-1]

    @property
    def stochastic(self) -> bool:
        """Whether two draws of the weights can differ."""
        return any(family.stochastic for family in self.families)

    @property
    def quadratic_kl(self) -> bool:
        """Whether KL(q || p) is a weighted sum of the squared parameters."""
        return all(family.quadratic_kl for family in self.families)

    def init(
        self,
        normal: Sequence[torch.Tensor],
        keep: Keep,
    ) -> list[Params]:
        """Start values of every layer (He et al. 2015, arXiv 1502.01852, eq. 10).

        normal : per layer (members, inputs + 1, outputs), standard normal; the last
            row starts the bias, so that units bend at different places
        keep : per layer (members,)
        """
        layers = []
        gain = ACTIVATIONS[self.activation].gain
        last = len(self.families) - 1
        for i, family in enumerate(self.families):
            scale = math.sqrt((gain if i < last else 1.0) / self.fan_ins[i])
            bias_std = math.sqrt(1 / (3 * self.fan_ins[i])) if i < last else 0.0
            mean, bias = normal[i][:, :-1] * scale, normal[i][:, -1] * bias_std
            layers.append(family.init(mean, scale, bias, keep[i]))
        return layers

    def forward(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, noise: Noise
    ) -> torch.Tensor:
        """One stochastic pass, noise per row.

        keep : per layer (members,)
        x : (members or 1, rows, inputs)
        returns : (members, rows, outputs)
        """
        activate = ACTIVATIONS[self.activation].function
        for i, (family, params) in enumerate(zip(self.families, layers, strict=True)):
            if i:
                x = activate(x)
            x = family.linear(params, keep[i], x, noise)
        return x

    def vjp(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, noise: Noise
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], list[Params]]]:
        """``forward``, and what takes a gradient of its outputs to the parameters.

        The same numbers as autograd through ``forward``, without its graph and with
        activations in place: for small networks most of a step is bookkeeping. To be
        called without autograd; x may be overwritten.

        returns : outputs (members, rows, outputs), and a function from their
            gradient to the gradients of every layer's parameters
        """
        activation = ACTIVATIONS[self.activation]
        passed = []
        for i, (family, params) in enumerate(zip(self.families, layers, strict=True)):
            if i:
                x = activation.in_place(x)
            outputs, pullback = family.linear_vjp(params, keep[i], x, noise)
            passed.append((x, pullback))
            x = outputs

        def gradients(gradient: torch.Tensor) -> list[Params]:
            found = []
            for i, (h, pullback) in reversed(list(enumerate(passed))):
                needed = activation.needed if i else Needed.NONE
                of_params, of_h = pullback(gradient, needed)
                found.append(of_params)
                if of_h is not None:
                    gradient = activation.pullback(of_h, h)
            return found[::-1]

        return x, gradients

    def draw(self, layers: list[Params], keep: Keep, noise: Noise) -> list[Draw]:
        """Weights (draws, members, inputs, outputs) and biases of every layer.

        Layers without randomness have one draw, which stands for all.
        """
        return [
            family.draw(params, keep[i], noise)
            for i, (family, params) in enumerate(
                zip(self.families, layers, strict=True)
            )
        ]

    def log_density(
        self, layers: list[Params], keep: Keep, weights: list[Draw]
    ) -> torch.Tensor:
        """log q of a draw of all weights and biases, nats; for families that have one.

        weights : of every layer (members, inputs, outputs) and (members, outputs)
        returns : (members,)
        """
        terms = [
            family.log_density(params, keep[i], *weights[i])
            for i, (family, params) in enumerate(
                zip(self.families, layers, strict=True)
            )
        ]
        return torch.stack(terms).sum(0)

    def apply(self, weights: list[Draw], x: torch.Tensor) -> torch.Tensor:
        """The drawn networks on the same rows; no gradients.

        x : (members or 1, rows, inputs)
        returns : (draws, members, rows, outputs)
        """
        activate_ = ACTIVATIONS[self.activation].in_place
        h = x.unsqueeze(0)
        for i, (weight, bias) in enumerate(weights):
            if i:
                h = activate_(h)
            h = _batched_product(h, weight).add_(bias.unsqueeze(-2))
        return h

    def kl(
        self, layers: list[Params], keep: Keep, prior: Sequence[Prior], noise: Noise
    ) -> torch.Tensor:
        """KL(q || p) of all weights and biases, (members,), nats.

        prior : of every layer
        """
        terms = [
            family.kl(params, keep[i], prior[i], noise)
            for i, (family, params) in enumerate(
                zip(self.families, layers, strict=True)
            )
        ]
        return torch.stack(terms).sum(0)

    def kl_gradient(
        self, layers: list[Params], keep: Keep, prior: Sequence[Prior], noise: Noise
    ) -> list[Params]:
        """Gradients of ``kl``, summed over members, of every layer's parameters."""
        return [
            family.kl_gradient(params, keep[i], prior[i], noise)
            for i, (family, params) in enumerate(
                zip(self.families, layers, strict=True)
            )
        ]


def _batched_product(h: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(draws, members, rows, inputs) @ (draws, members, inputs, outputs).

    Axes of length 1 stand for all; activations are never copied to spread them.
    """
    pairs = zip(h.shape[:2], weight.shape[:2], strict=True)
    lead = tuple(max(pair) for pair in pairs)
    if h.shape[:2] in ((1, 1), lead):
        spread = h.expand(*lead, -1, -1).flatten(0, 1)
        product = torch.bmm(spread, weight.expand(*lead, -1, -1).flatten(0, 1))
        return product.view(*lead, *product.shape[1:])
    product = h.new_empty(*lead, h.shape[2], weight.shape[3])
    for out, weight_of_draw in zip(product, weight, strict=True):
        torch.bmm(h[0], weight_of_draw, out=out)
    return product
