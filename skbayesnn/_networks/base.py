"""Base class of networks: affine maps, each with a variational family.

The parameters are a list of groups, one per affine map. Each group has its own family,
keep probability and prior. The engine trains, samples and stores groups; only the
network defines how the maps are connected.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, cast

import torch

from skbayesnn._families import Draw, Family, Params, RandomSource
from skbayesnn._priors import Prior

# Per group (members,): the probability that an input is kept.
Keep = Sequence[torch.Tensor]
# Function from the gradient of the outputs to the gradients of every group.
NetworkPullback = Callable[[torch.Tensor], list[Params]]


class InitialNormal(Protocol):
    """Source of standard normal numbers for initial weights, by the members' seeds."""

    def __call__(self, group: int, *shape: int) -> torch.Tensor:
        """Return numbers (members, \\*shape), always the same for the same group."""


class SparseInputs(Protocol):
    """Sparse inputs, which are never converted to a dense array.

    ``shape`` is (1, rows, inputs); ``split`` works as for a tensor.
    """

    shape: tuple[int, int, int]

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        """The product x W, (draws, members, rows, outputs).

        weight : (draws, members, inputs, outputs)
        """

    def split(self, size: int, dim: int) -> "Sequence[SparseInputs]":
        """Split into parts of ``size`` rows."""


class Network(ABC):
    """Affine maps and their families.

    Subclasses are frozen dataclasses of plain values. Models can be trained in one
    program if their networks are equal.
    """

    # Family of every parameter group.
    families: tuple[Family, ...]
    # Whether ``apply`` also takes ``SparseInputs``.
    takes_sparse: ClassVar[bool] = False
    # Whether compiled loops train such a network, and predict, on a CPU.
    is_compiled: ClassVar[bool] = False

    @property
    @abstractmethod
    def fan_ins(self) -> tuple[int, ...]:
        """Inputs of every affine map."""

    @property
    def prior_fan_ins(self) -> tuple[int, ...]:
        """Number of inputs of every map that ``length_scale="fan_in"`` uses."""
        return self.fan_ins

    @property
    @abstractmethod
    def n_weights(self) -> int:
        """Number of weights and biases of one member, without other parameters."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Units of all layers together, including the inputs (values per row)."""

    @property
    @abstractmethod
    def widest(self) -> int:
        """Units of the widest layer, including the inputs (values per row)."""

    @property
    @abstractmethod
    def peak_activation_size(self) -> int:
        """Values per row that ``apply`` holds at once, without the inputs."""

    @property
    def jacobian_size(self) -> int:
        """Values per row and output that ``tangent_kernel`` holds at once."""
        return self.n_weights

    @property
    def input_groups(self) -> tuple[tuple[int, ...], int] | None:
        """Groups of inputs that are standardised together.

        A shape of a row of inputs, and the axis along which they form a group. None:
        each input is its own group.
        """
        return None

    @property
    def stochastic(self) -> bool:
        """Whether two draws of the weights can differ."""
        return any(family.stochastic for family in self.families)

    def distinct_draws(self, n_draws: int) -> int:
        """Number of the first ``n_draws`` draws that can differ."""
        return n_draws if self.stochastic else 1

    @property
    def quadratic_kl(self) -> bool:
        """Whether KL(q || p) is a weighted sum of the squared parameters."""
        return all(family.quadratic_kl for family in self.families)

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Plain values from which ``from_description`` constructs an equal network."""

    @classmethod
    @abstractmethod
    def from_description(cls, description: dict[str, Any]) -> "Network":
        """Inverse of ``describe``; other keys are ignored."""

    @abstractmethod
    def init(self, normal: InitialNormal, keep: Keep) -> list[Params]:
        """Initial parameters of every group."""

    @abstractmethod
    def vjp(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, random: RandomSource
    ) -> tuple[torch.Tensor, NetworkPullback]:
        """One stochastic forward pass with weights per row, and its pullback.

        Call it without autograd. x may be overwritten.

        x : (members or 1, rows, inputs)
        returns : outputs (members, rows, outputs), and the function from their gradient
            to the gradients of every group
        """

    @abstractmethod
    def apply(self, weights: list[Draw], x: torch.Tensor) -> torch.Tensor:
        """Outputs for drawn weights, without gradients. x is not changed.

        weights : draws of every group
        x : (members or 1, rows, inputs)
        returns : (draws, members, rows, outputs); the first two axes may have length 1
            if all draws or members are equal
        """

    def with_families(self, families: tuple[Family, ...]) -> "Network":
        """The same maps with other families."""
        return replace(cast(Any, self), families=families)

    def draw(
        self, layers: list[Params], keep: Keep, random: RandomSource
    ) -> list[Draw]:
        """Sample weights (draws, members, inputs, outputs) and biases of every group.

        Deterministic groups return one draw, which represents all.
        """
        groups = zip(self.families, layers, keep, strict=True)
        return [family.draw(params, p, random) for family, params, p in groups]

    @abstractmethod
    def tangent_kernel(
        self,
        weights: list[Draw],
        variances: Sequence[tuple[torch.Tensor, torch.Tensor]],
        x: torch.Tensor,
        outputs: slice,
    ) -> torch.Tensor:
        """Covariance of outputs over rows for small variations of the weights.

        To first order about one draw, J V J^T for every member.

        weights : one draw of every group, (1, members, inputs, outputs), and biases
        variances : variances of every group's weights and biases, (members,) each
        x : (members or 1, rows, inputs)
        outputs : the outputs to include
        returns : (members, outputs * rows, outputs * rows)
        """

    def kl(
        self,
        layers: list[Params],
        keep: Keep,
        prior: Sequence[Prior],
        random: RandomSource,
    ) -> torch.Tensor:
        """KL(q || p) of all weights and biases, (members,), nats.

        prior : prior of every group
        """
        groups = zip(self.families, layers, keep, prior, strict=True)
        terms = [
            family.kl(params, p, group_prior, random)
            for family, params, p, group_prior in groups
        ]
        return torch.stack(terms).sum(0)

    def kl_constant(
        self, layers: list[Params], keep: Keep, prior: Sequence[Prior]
    ) -> torch.Tensor:
        """Terms that depend on rates or priors but are not in ``kl``, (members,)."""
        groups = zip(self.families, layers, keep, prior, strict=True)
        terms = [
            family.kl_constant(params, p, group_prior)
            for family, params, p, group_prior in groups
        ]
        return torch.stack(terms).sum(0)

    def kl_gradient(
        self,
        layers: list[Params],
        keep: Keep,
        prior: Sequence[Prior],
        random: RandomSource,
    ) -> list[Params]:
        """Gradients of ``kl``, summed over members, for every group's parameters."""
        groups = zip(self.families, layers, keep, prior, strict=True)
        return [
            family.kl_gradient(params, p, group_prior, random)
            for family, params, p, group_prior in groups
        ]

    def learned_keep(self, layers: list[Params], keep: Keep) -> list[torch.Tensor]:
        """Keep probability of every group, (members,), as learned or given."""
        groups = zip(self.families, layers, keep, strict=True)
        return [family.keep_of(params, p) for family, params, p in groups]

    def with_constants_of(
        self, layers: list[Params], sources: list[Params]
    ) -> list[Params]:
        """Replace the families' constants in ``layers`` by those in ``source``."""
        groups = zip(self.families, layers, sources, strict=True)
        return [
            params | {name: source[name] for name in family.constants}
            for family, params, source in groups
        ]


def initial_params(
    families: Sequence[Family],
    fan_ins: Sequence[int],
    fan_outs: Sequence[int],
    gains: Sequence[float],
    normal: InitialNormal,
    keep: Keep,
) -> list[Params]:
    """Initial parameters of all groups, with weight variances gain / inputs.

    Biases are random, so that units have their kinks at different inputs. The biases of
    the last map, which returns the outputs, are zero.
    """
    params = []
    last = len(families) - 1
    for i, (family, n_in, n_out) in enumerate(
        zip(families, fan_ins, fan_outs, strict=True)
    ):
        scale = math.sqrt(gains[i] / n_in)
        bias_std = math.sqrt(1 / (3 * n_in)) if i < last else 0.0
        values = normal(i, n_in + 1, n_out)
        mean, bias = values[:, :-1] * scale, values[:, -1] * bias_std
        params.append(family.init(mean, scale, bias, keep[i]))
    return params
