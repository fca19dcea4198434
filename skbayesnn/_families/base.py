"""What a variational family is: q(W, b) of one affine map, and the noise it is given.

All tensors carry the members axis in front. ``keep`` is p = 1 - dropout,
``(members,)``; ``params`` is a dict of tensors, made by ``init``, with the bias,
(members, outputs), under "bias".
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple, Protocol

import torch

from skbayesnn._priors import Prior

Params = dict[str, torch.Tensor]
# Weights (draws, members, inputs, outputs); biases (draws, members, outputs), or
# (members, outputs) where they are the same in all draws. Third, where masks are placed
# on something else than the inputs of the map: these, (draws, members, *units).
Draw = tuple[torch.Tensor, ...]


class Needed(IntEnum):
    """Which entries of the inputs' gradient are asked for."""

    NONE = 0
    WHERE_NONZERO = 1  # of those inputs, as they were left, that are not zero
    ALL = 2


# (gradient of the outputs, what is needed of the inputs') -> gradients of the
# parameters by name, and of the inputs. A parameter left out has gradient zero.
Pullback = Callable[[torch.Tensor, Needed], tuple[Params, torch.Tensor | None]]


class MaskLayout(NamedTuple):
    """How a mask is shared: drawn in one shape, then spread to that of the inputs.

    A channel that is dropped at all positions, with x unfolded to (members, rows *
    positions, channels * k), is drawn as (rows, 1, channels, 1) and spread to (rows,
    positions, channels, k); a unit dropped at all steps as (rows, 1, inputs), spread
    to (rows, steps, inputs).

    Parameters
    ----------
    drawn : tuple of int, broadcasts to ``spread``
    spread : tuple of int, reshapes to the inputs of a member
    """

    drawn: tuple[int, ...]
    spread: tuple[int, ...]


def per_input(
    x: torch.Tensor,
    layout: MaskLayout | None,
    numbers: Callable[..., torch.Tensor],
    *arguments,
) -> torch.Tensor:
    """Noise for every one of the inputs, shared as the layout says.

    x : (members or 1, rows, inputs)
    numbers : arguments, shape -> (\\*lead, \\*shape)
    returns : (lead, rows, inputs)
    """
    if layout is None:
        return numbers(*arguments, *x.shape[1:])
    drawn = numbers(*arguments, *layout.drawn)
    return drawn.expand(-1, *layout.spread).reshape(-1, *x.shape[1:])


class RandomSource(Protocol):
    """Source of random numbers; ``lead`` axes are put in front of ``shape``.

    In training lead is ``(members or 1,)``, at prediction ``(draws, members)``. In
    training the first axis of a shape is the batch's rows, or rows and what each has
    several of (steps, positions), flattened; for other shapes there is ``of_weights``.
    """

    @property
    def of_weights(self) -> "RandomSource":
        """The same source for what all rows of a member share."""

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (\\*lead, \\*shape); P(1) = probability, (members,)."""

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (\\*lead, \\*shape)."""

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (\\*lead, \\*shape)."""


@dataclass(frozen=True)
class Family(ABC):
    """A posterior of one affine map; its fields are options, plain values.

    Four functions make a family. Gradients come from autograd, unless a family takes
    them by hand, which saves most of a small network's step.
    """

    # Whether two draws can differ.
    stochastic: ClassVar[bool] = True
    # Whether ``kl`` is a weighted sum of the squared parameters, with weights that do
    # not depend on them: its gradient is then one product per step. Such a q has no
    # width that is learned, so that a learned noise is made anew of the residuals.
    quadratic_kl: ClassVar[bool] = False
    # Whether a draw drops inputs, and does nothing else.
    drops: ClassVar[bool] = False
    # Whether the probability of being kept is a parameter.
    learns_keep: ClassVar[bool] = False
    # Names of the parameters that stay as ``init`` made them.
    constants: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def init(
        self, mean: torch.Tensor, scale: float, bias: torch.Tensor, keep: torch.Tensor
    ) -> Params:
        """Start values.

        mean : (members, inputs, outputs), normal weights of standard deviation
            ``scale``; E ||W||^2 should come out as theirs
        bias : (members, outputs)
        """

    @abstractmethod
    def linear(
        self,
        params: Params,
        keep: torch.Tensor,
        x: torch.Tensor,
        noise: RandomSource,
        layout: MaskLayout | None = None,
    ) -> torch.Tensor:
        """One stochastic affine map, noise per row (training).

        x : (members or 1, rows, inputs)
        layout : over what families with noise on the inputs share it
        returns : (members, rows, outputs)
        """

    @abstractmethod
    def draw(self, params: Params, keep: torch.Tensor, noise: RandomSource) -> Draw:
        """Weights and biases, one draw serves all rows (prediction)."""

    def training_draw(
        self, params: Params, keep: torch.Tensor, noise: RandomSource, n_rows: int
    ) -> Draw:
        """A draw for training that a network uses in several places of a row.

        Of weights, the same for all rows of the step; or of masks, which every row has
        of its own: (members or 1, n_rows, \\*units), third. With autograd.

        returns : weights (members, inputs, outputs), biases (members, outputs)
        """
        return self.draw(params, keep, noise.of_weights)

    def placed(self, units: tuple[int, ...] | None) -> "Family":
        """The family with its masks, if it has some, on units of this shape.

        units : None is the inputs of the map
        """
        return self

    @abstractmethod
    def kl(
        self, params: Params, keep: torch.Tensor, prior: Prior, noise: RandomSource
    ) -> torch.Tensor:
        """KL(q || prior), or an unbiased estimate of it, (members,), nats.

        Where q's entropy does not depend on the parameters it is left out, and the
        prior's normaliser with it: see ``kl_constant``.
        """

    def kl_constant(
        self, params: Params, keep: torch.Tensor, prior: Prior
    ) -> torch.Tensor:
        """What ``kl`` leaves out of what depends on the rate or the prior, (members,).

        So that it can be compared over both, nats. What then is left out still is the
        entropy of a point, which is infinite, but the same for all of them.

        Here of biases that are points, beside weights whose KL is whole.
        """
        return -prior.bias.log_scale(params["bias"])

    def keep_of(self, params: Params, keep: torch.Tensor) -> torch.Tensor:
        """p, (members,): given, or learned."""
        return keep

    def n_masks(self, params: Params) -> int:
        """Inputs with a mask of their own in one draw."""
        return 0

    def log_alpha_of(self, params: Params) -> torch.Tensor:
        """log alpha of weights with noise of a learned rate, -inf without.

        returns : (members, inputs, outputs)
        """
        return torch.full_like(params["mean"], -torch.inf)

    def without(self, params: Params, used: torch.Tensor) -> Params:
        """Params whose weights are zero, without noise, where they are not used.

        used : (members, inputs, outputs), bool
        """
        return params | {"mean": params["mean"] * used}

    def as_prior(self, params: Params) -> Params:
        """Fields of the `PosteriorPrior` that q is, for families of normal weights.

        Each (members, ...): mean, std, bias_mean, bias_std.
        """
        raise NotImplementedError(f"{type(self).__name__} is no normal distribution.")

    def log_density(
        self,
        params: Params,
        keep: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
    ) -> torch.Tensor:
        """log q(W, b), nats, for families whose q has a density.

        weight : (..., members, inputs, outputs); bias : (..., members, outputs)
        returns : (..., members)
        """
        raise NotImplementedError(f"{type(self).__name__} has no density.")

    def linear_vjp(
        self,
        params: Params,
        keep: torch.Tensor,
        x: torch.Tensor,
        noise: RandomSource,
        layout: MaskLayout | None = None,
    ) -> tuple[torch.Tensor, Pullback]:
        """``linear`` and what takes gradients back through it; without autograd.

        x : the caller's no more, it may be overwritten
        """
        leaves = _leaves(params)
        inputs = x.detach().requires_grad_()
        with torch.enable_grad():
            outputs = self.linear(leaves, keep, inputs, noise, layout)

        def pullback(gradient, needed):
            wanted = [*leaves.values(), *([inputs] if needed else [])]
            gradients = torch.autograd.grad(
                outputs, wanted, gradient, materialize_grads=True
            )
            of_x = gradients[-1] if needed else None
            return dict(zip(leaves, gradients, strict=False)), of_x

        return outputs.detach(), pullback

    def kl_gradient(
        self, params: Params, keep: torch.Tensor, prior: Prior, noise: RandomSource
    ) -> Params:
        """Gradient of ``kl``, summed over members, by name; without autograd.

        A parameter left out has gradient zero.
        """
        leaves = _leaves(params)
        with torch.enable_grad():
            kl = self.kl(leaves, keep, prior, noise).sum()
        gradients = torch.autograd.grad(
            kl, list(leaves.values()), materialize_grads=True
        )
        return dict(zip(leaves, gradients, strict=True))


def _leaves(params: Params) -> Params:
    return {name: value.detach().requires_grad_() for name, value in params.items()}


def binary_entropy(p: torch.Tensor) -> torch.Tensor:
    """H(p) = -p log p - (1 - p) log(1 - p), nats; 0 at both ends."""
    return -torch.xlogy(p, p) - torch.xlogy(1 - p, 1 - p)


def per_member(values: torch.Tensor, n_axes: int) -> torch.Tensor:
    """(members,) with ``n_axes`` axes of length 1 behind."""
    return values.view(-1, *(1,) * n_axes)
