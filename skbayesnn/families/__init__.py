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

Noise is an argument: an object with ``bernoulli(probability, *shape)`` and
``normal(*shape)`` (see :class:`Noise`), so that a family never holds a generator.
"""

from typing import Protocol

import torch

from skbayesnn.families import bernoulli, point
from skbayesnn.priors import GaussianPrior

Params = dict[str, torch.Tensor]


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
