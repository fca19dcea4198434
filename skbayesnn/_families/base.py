"""Base class of variational families q(W, b), and the protocol of random sources.

All tensors have the members axis first. ``keep`` is the keep probability
p = 1 - dropout, ``(members,)``. ``params`` is the dict of tensors that ``init``
returns; it contains the bias, (members, outputs), as "bias".
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
# (members, outputs) if all draws share them. Third, for masks that are not part of the
# weights: the masks, (draws, members, *units).
Draw = tuple[torch.Tensor, ...]


class Needed(IntEnum):
    """Which entries of the inputs' gradient are required."""

    NONE = 0
    WHERE_NONZERO = 1  # at inputs that are not zero after the forward pass
    ALL = 2


# Takes the gradient of the outputs, and which entries of the inputs' gradient are
# needed. Returns the gradients of the parameters by name (omitted ones are zero), and
# of the inputs.
Pullback = Callable[[torch.Tensor, Needed], tuple[Params, torch.Tensor | None]]


class MaskLayout(NamedTuple):
    """Shapes for sharing a mask: drawn in one shape, then expanded to the inputs.

    Example 1: channels are dropped at all positions, and x is unfolded to (members,
    rows * positions, channels * k). The mask is drawn as (rows, 1, channels, 1) and
    expanded to (rows, positions, channels, k). Example 2: units are dropped at all
    steps. The mask is drawn as (rows, 1, inputs) and expanded to (rows, steps, inputs).

    Parameters
    ----------
    drawn : tuple of int, broadcasts to ``spread``
    spread : tuple of int, can be reshaped to the inputs of a member
    """

    drawn: tuple[int, ...]
    spread: tuple[int, ...]


def per_input(
    x: torch.Tensor,
    layout: MaskLayout | None,
    sample: Callable[..., torch.Tensor],
    *arguments,
) -> torch.Tensor:
    """Sample a random number for every input, shared according to the layout.

    x : (members or 1, rows, inputs)
    sample : takes the arguments and a shape, returns (\\*lead, \\*shape)
    returns : (lead, rows, inputs)
    """
    if layout is None:
        return sample(*arguments, *x.shape[1:])
    mask = sample(*arguments, *layout.drawn)
    return mask.expand(-1, *layout.spread).reshape(-1, *x.shape[1:])


class RandomSource(Protocol):
    """Source of random numbers; it adds ``lead`` axes before the requested shape.

    ``lead`` is ``(members or 1,)`` in training and ``(draws, members)`` in predictions.
    In training the first axis of a shape must be the batch's rows, possibly flattened
    with steps or positions. For other shapes, use ``shared_by_rows``.
    """

    @property
    def shared_by_rows(self) -> "RandomSource":
        """The source for numbers that all rows of a member share."""

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (\\*lead, \\*shape); P(1) = probability, (members,)."""

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (\\*lead, \\*shape)."""

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (\\*lead, \\*shape)."""


@dataclass(frozen=True)
class Family(ABC):
    """Variational posterior of one affine map; the fields are options, plain values.

    A family implements four functions. Gradients come from autograd by default. A
    family may override them without autograd, which is much faster for small networks.
    """

    # Whether two draws can differ.
    stochastic: ClassVar[bool] = True
    # Whether ``kl`` is a weighted sum of squared parameters with constant weights. Its
    # gradient then costs one product per step. The width of such a q is not learned, so
    # the observation noise variance is estimated from residuals after the training.
    quadratic_kl: ClassVar[bool] = False
    # Whether a draw only drops inputs.
    drops: ClassVar[bool] = False
    # Whether the keep probability is a parameter.
    learns_keep: ClassVar[bool] = False
    # Names of the parameters that keep their initial values.
    constants: ClassVar[tuple[str, ...]] = ()
    # Options that some families have as fields (without an annotation, these are none):
    # whether rows drop inputs before the noise, whether all rows of a step share a draw
    # of the weights, and whether the KL is estimated from a draw.
    spike = False
    shared_draw = False
    sampled_kl = False

    @abstractmethod
    def init(
        self, mean: torch.Tensor, scale: float, bias: torch.Tensor, keep: torch.Tensor
    ) -> Params:
        """Initial parameters.

        mean : (members, inputs, outputs), normal weights of standard deviation
            ``scale``; q should have the same E ||W||^2
        bias : (members, outputs)
        """

    @abstractmethod
    def linear(
        self,
        params: Params,
        keep: torch.Tensor,
        x: torch.Tensor,
        random: RandomSource,
        layout: MaskLayout | None = None,
    ) -> torch.Tensor:
        """One stochastic affine map with weights per row, for training.

        x : (members or 1, rows, inputs)
        layout : how families with random factors on the inputs share them
        returns : (members, rows, outputs)
        """

    @abstractmethod
    def draw(self, params: Params, keep: torch.Tensor, random: RandomSource) -> Draw:
        """Sample weights and biases that all rows share, for predictions."""

    def training_draw(
        self, params: Params, keep: torch.Tensor, random: RandomSource, n_rows: int
    ) -> Draw:
        """Sample for a training step of a network that uses the map several times.

        Either all rows of the step share the weights, or every row has its own mask.
        Call it with autograd.

        returns : weights (members, inputs, outputs), biases (members, outputs) and,
            for masks, (members or 1, n_rows, \\*units)
        """
        return self.draw(params, keep, random.shared_by_rows)

    def with_mask_shape(self, units: tuple[int, ...] | None) -> "Family":
        """The family with masks on units of this shape, if it has masks.

        units : None is the inputs of the map
        """
        return self

    @abstractmethod
    def kl(
        self, params: Params, keep: torch.Tensor, prior: Prior, random: RandomSource
    ) -> torch.Tensor:
        """KL(q || prior), or an unbiased estimate of it, (members,), nats.

        If the entropy of q does not depend on the parameters, it is omitted together
        with the prior's normalising constant; see ``kl_constant``.
        """

    def kl_constant(
        self, params: Params, keep: torch.Tensor, prior: Prior
    ) -> torch.Tensor:
        """Terms that depend on the rate or the prior but are not in ``kl``, (members,).

        Adding them makes the KL comparable between rates and priors, nats. Only the
        entropy of point masses is still omitted; it is infinite, but always the same.

        This default is for weights with a complete KL and biases that are points.
        """
        return -prior.bias.log_scale(params["bias"])

    def keep_of(self, params: Params, keep: torch.Tensor) -> torch.Tensor:
        """Keep probability p, (members,), as given or learned."""
        return keep

    def n_masks(self, params: Params) -> int:
        """Number of independent masks in one draw."""
        return 0

    def log_alpha_of(self, params: Params) -> torch.Tensor:
        """log alpha of weights with a learned noise variance; -inf for other weights.

        returns : (members, inputs, outputs)
        """
        return torch.full_like(params["mean"], -torch.inf)

    def without(self, params: Params, used: torch.Tensor) -> Params:
        """Set unused weights to zero, without variance.

        used : (members, inputs, outputs), bool
        """
        return params | {"mean": params["mean"] * used}

    def as_prior(self, params: Params) -> Params:
        """Fields of a `PosteriorPrior` equal to q, for families of normal weights.

        They are mean, std, bias_mean and bias_std, (members, ...) each.
        """
        raise NotImplementedError(
            f"{type(self).__name__} is not a normal distribution."
        )

    def linear_vjp(
        self,
        params: Params,
        keep: torch.Tensor,
        x: torch.Tensor,
        random: RandomSource,
        layout: MaskLayout | None = None,
    ) -> tuple[torch.Tensor, Pullback]:
        """``linear`` and its pullback. Call it without autograd.

        x : may be overwritten
        """
        leaves = require_grad(params)
        inputs = x.detach().requires_grad_()
        with torch.enable_grad():
            outputs = self.linear(leaves, keep, inputs, random, layout)

        def pullback(gradient, needed):
            variables = [*leaves.values(), *([inputs] if needed else [])]
            gradients = torch.autograd.grad(
                outputs, variables, gradient, materialize_grads=True
            )
            grad_x = gradients[-1] if needed else None
            return dict(zip(leaves, gradients, strict=False)), grad_x

        return outputs.detach(), pullback

    def kl_gradient(
        self, params: Params, keep: torch.Tensor, prior: Prior, random: RandomSource
    ) -> Params:
        """Gradient of ``kl``, summed over members, by name. Call it without autograd.

        Omitted parameters have gradient zero.
        """
        leaves = require_grad(params)
        with torch.enable_grad():
            kl = self.kl(leaves, keep, prior, random).sum()
        gradients = torch.autograd.grad(
            kl, list(leaves.values()), materialize_grads=True
        )
        return dict(zip(leaves, gradients, strict=True))


def require_grad(params: Params) -> Params:
    """Copies of the parameters that autograd differentiates; they share memory."""
    return {name: value.detach().requires_grad_() for name, value in params.items()}


def binary_entropy(p: torch.Tensor) -> torch.Tensor:
    """H(p) = -p log p - (1 - p) log(1 - p), nats; 0 at p = 0 and p = 1."""
    return -torch.xlogy(p, p) - torch.xlogy(1 - p, 1 - p)


def per_member(values: torch.Tensor, n_axes: int) -> torch.Tensor:
    """Append ``n_axes`` axes of length 1 to values (members,)."""
    return values.view(-1, *(1,) * n_axes)
