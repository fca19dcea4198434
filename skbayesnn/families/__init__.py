"""Variational families q(W) of one linear map, one file each, and their table.

A family is a module with four functions. All tensors carry the members axis in
front; ``keep`` is p = 1 - dropout, ``(members,)``; ``params`` is a dict of tensors
with a leading members axis, made by ``init``.

===========  ==================================================================
function     what it does
===========  ==================================================================
``init``     mean weights (members, inputs, outputs) -> params
``linear``   one stochastic linear map, noise per row (training):
             (members or 1, rows, inputs) -> (members, rows, outputs)
``draw``     weights of whole networks, one draw serves all rows (prediction):
             -> (draws, members, inputs, outputs)
``kl``       KL(q || prior) in nats, constants of the variational parameters
             left out -> (members,)
===========  ==================================================================

and two facts: ``stochastic``, whether two draws can differ, and ``quadratic_kl``,
whether ``kl`` is a weighted sum of the squared parameters, with weights that do not
depend on them (its gradient is then one product per step).

A family may also have ``linear_vjp``: ``linear`` with its gradient by hand, for speed
(see :func:`linear_vjp`); without it autograd takes the gradient.

Noise is an argument: an object with ``bernoulli(probability, *shape)`` and
``normal(*shape)`` (see :class:`Noise`), so that a family never holds a generator.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from skbayesnn.families import bernoulli, point
from skbayesnn.priors import GaussianPrior

Params = dict[str, torch.Tensor]
# (gradient of the outputs, whether the inputs need one) -> gradients of the
# parameters by name, and of the inputs.
Pullback = Callable[[torch.Tensor, bool], tuple[Params, torch.Tensor | None]]


class Noise(Protocol):
    """Source of random numbers; ``lead`` axes are put in front of ``shape``.

    In training lead is ``(members or 1,)``, at prediction ``(draws, members)``.
    """

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (\\*lead, \\*shape); P(1) = probability, (members,)."""

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (\\*lead, \\*shape)."""


class Family(Protocol):
    """What every module of the table provides."""

    stochastic: bool
    quadratic_kl: bool

    def init(self, mean: torch.Tensor, keep: torch.Tensor) -> Params: ...

    def linear(
        self,
        params: Params,
        keep: torch.Tensor,
        x: torch.Tensor,
        bias: torch.Tensor,
        noise: Noise,
    ) -> torch.Tensor: ...

    def draw(
        self, params: Params, keep: torch.Tensor, noise: Noise
    ) -> torch.Tensor: ...

    def kl(
        self, params: Params, keep: torch.Tensor, prior: GaussianPrior
    ) -> torch.Tensor: ...


FAMILIES: dict[str, Family] = {
    "point": point,
    "bernoulli": bernoulli,
}


def linear_vjp(
    name: str, params: Params, keep: torch.Tensor, x: torch.Tensor, noise: Noise
) -> tuple[torch.Tensor, Pullback]:
    """A family's ``linear`` and what takes gradients back through it.

    To be called without autograd. ``x`` is the caller's no more: it may be
    overwritten.

    name : key of ``FAMILIES``
    params : with the bias, (members, outputs), under "bias"
    x : (members or 1, rows, inputs)
    returns : outputs (members, rows, outputs), and their pullback
    """
    family = FAMILIES[name]
    by_hand = getattr(family, "linear_vjp", None)
    if by_hand is not None:
        return by_hand(params, keep, x, params["bias"], noise)
    leaves = {key: value.detach().requires_grad_() for key, value in params.items()}
    inputs = x.detach().requires_grad_()
    with torch.enable_grad():
        outputs = family.linear(leaves, keep, inputs, leaves["bias"], noise)

    def pullback(gradient, needs_input):
        wanted = [*leaves.values(), *([inputs] if needs_input else [])]
        gradients = torch.autograd.grad(outputs, wanted, gradient)
        of_x = gradients[-1] if needs_input else None
        return dict(zip(leaves, gradients, strict=False)), of_x

    return outputs.detach(), pullback
