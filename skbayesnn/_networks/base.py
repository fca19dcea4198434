"""What a network is: affine maps, each with a variational family, wired together.

Its parameters are a list of groups, one for every affine map, each with a family and
a keep probability and a prior of its own. How the maps are wired is the network's own
matter: the engine trains, draws and stores groups.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Protocol, cast

import torch

from skbayesnn._families import Draw, Family, Params, RandomSource
from skbayesnn._priors import Prior

# Per group (members,): the probability that an input is kept.
Keep = Sequence[torch.Tensor]
# Gradient of the outputs -> gradients of the parameters of every group.
NetworkPullback = Callable[[torch.Tensor], list[Params]]


class StartNormal(Protocol):
    """Source of start values: standard normal numbers of the members' seeds."""

    def __call__(self, group: int, *shape: int) -> torch.Tensor:
        """(members, \\*shape); the same group gets the same numbers again."""


class SparseInputs(Protocol):
    """Inputs of some rows that are mostly zero, and are never made dense.

    ``shape`` is (1, rows, inputs), ``split`` that of a tensor.
    """

    shape: tuple[int, int, int]

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        """x W of drawn weights, (draws, members, rows, outputs).

        weight : (draws, members, inputs, outputs)
        """

    def split(self, size: int, dim: int) -> "Sequence[SparseInputs]":
        """Parts of so many rows."""


class Network(ABC):
    """Affine maps and their families; a frozen dataclass of plain values.

    Two programs share a network if theirs are equal.
    """

    # Of every group of parameters.
    families: tuple[Family, ...]
    # Whether ``apply`` also takes ``SparseInputs``.
    takes_sparse: ClassVar[bool] = False

    @property
    @abstractmethod
    def fan_ins(self) -> tuple[int, ...]:
        """Inputs of every affine map."""

    @property
    def prior_fan_ins(self) -> tuple[int, ...]:
        """Inputs of every map as they count in ``length_scale="fan_in"``."""
        return self.fan_ins

    @property
    @abstractmethod
    def n_weights(self) -> int:
        """Weights and biases of one member, without what families learn beside."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Numbers that one row takes in all layers together, its inputs included."""

    @property
    @abstractmethod
    def widest(self) -> int:
        """Numbers that one row takes in the widest layer, the inputs included."""

    @property
    @abstractmethod
    def peak_activation_size(self) -> int:
        """Numbers of one row that ``apply`` holds at once, its inputs apart."""

    @property
    def jacobian_size(self) -> int:
        """Numbers that ``tangent_kernel`` holds of a row and output."""
        return self.n_weights

    @property
    def input_groups(self) -> tuple[tuple[int, ...], int] | None:
        """A shape of a row of inputs, and the axis along which they are of one kind.

        None: each is of its own kind.
        """
        return None

    @property
    @abstractmethod
    def smooth(self) -> bool:
        """Whether the outputs have second derivatives in the weights."""

    @property
    def stochastic(self) -> bool:
        """Whether two draws of the weights can differ."""
        return any(family.stochastic for family in self.families)

    @property
    def quadratic_kl(self) -> bool:
        """Whether KL(q || p) is a weighted sum of the squared parameters."""
        return all(family.quadratic_kl for family in self.families)

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Plain values that ``from_description`` makes the same network of."""

    @classmethod
    @abstractmethod
    def from_description(cls, about: dict[str, Any]) -> "Network":
        """Undo ``describe``; other keys are not looked at."""

    @abstractmethod
    def init(self, normal: StartNormal, keep: Keep) -> list[Params]:
        """Start values of every group."""

    @abstractmethod
    def vjp(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, noise: RandomSource
    ) -> tuple[torch.Tensor, NetworkPullback]:
        """One stochastic pass, noise per row, and its pullback to the parameters.

        To be called without autograd; x may be overwritten.

        x : (members or 1, rows, inputs)
        returns : outputs (members, rows, outputs), and what takes their gradient to
            those of every group
        """

    @abstractmethod
    def apply(self, weights: list[Draw], x: torch.Tensor) -> torch.Tensor:
        """Drawn networks on the same rows; no gradients, x is not changed.

        weights : of every group
        x : (members or 1, rows, inputs)
        returns : (draws, members, rows, outputs), or one draw or member that stands
            for all
        """

    def with_families(self, families: tuple[Family, ...]) -> "Network":
        """The same maps with other families."""
        return replace(cast(Any, self), families=families)

    def draw(self, layers: list[Params], keep: Keep, noise: RandomSource) -> list[Draw]:
        """Weights (draws, members, inputs, outputs) and biases of every group.

        Groups without randomness have one draw, which stands for all.
        """
        groups = zip(self.families, layers, keep, strict=True)
        return [family.draw(params, p, noise) for family, params, p in groups]

    def drawn(
        self, layers: list[Params], keep: Keep, noise: RandomSource, n_draws: int
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """``apply`` of ``draw``, from noise of so many draws."""
        return partial(self.apply, self.draw(layers, keep, noise))

    def shares_draws(self, layers: list[Params], keep: Keep, n_draws: int) -> bool:
        """Whether ``drawn`` is quickest for many draws and few rows at a time."""
        return False

    @abstractmethod
    def tangent_kernel(
        self,
        weights: list[Draw],
        variances: Sequence[tuple[torch.Tensor, torch.Tensor]],
        x: torch.Tensor,
        outputs: slice,
    ) -> torch.Tensor:
        """Covariance of some outputs over rows, if the weights varied a little.

        To first order about one draw: J V J^T, of every member.

        weights : of every group (1, members, inputs, outputs), and biases
        variances : of every group's weights and biases, (members,) each
        x : (members or 1, rows, inputs)
        returns : (members, outputs * rows, outputs * rows)
        """

    def log_density(
        self, layers: list[Params], keep: Keep, weights: list[Draw]
    ) -> torch.Tensor:
        """log q of a draw of all weights and biases, nats; for families that have one.

        weights : of every group (members, inputs, outputs) and (members, outputs)
        returns : (members,)
        """
        groups = zip(self.families, layers, keep, weights, strict=True)
        terms = [family.log_density(params, p, *w) for family, params, p, w in groups]
        return torch.stack(terms).sum(0)

    def kl(
        self,
        layers: list[Params],
        keep: Keep,
        prior: Sequence[Prior],
        noise: RandomSource,
    ) -> torch.Tensor:
        """KL(q || p) of all weights and biases, (members,), nats.

        prior : of every group
        """
        groups = zip(self.families, layers, keep, prior, strict=True)
        terms = [
            family.kl(params, p, of_group, noise)
            for family, params, p, of_group in groups
        ]
        return torch.stack(terms).sum(0)

    def kl_constant(
        self, layers: list[Params], keep: Keep, prior: Sequence[Prior]
    ) -> torch.Tensor:
        """What ``kl`` leaves out of what depends on rates or priors, (members,)."""
        groups = zip(self.families, layers, keep, prior, strict=True)
        terms = [
            family.kl_constant(params, p, of_group)
            for family, params, p, of_group in groups
        ]
        return torch.stack(terms).sum(0)

    def kl_gradient(
        self,
        layers: list[Params],
        keep: Keep,
        prior: Sequence[Prior],
        noise: RandomSource,
    ) -> list[Params]:
        """Gradients of ``kl``, summed over members, of every group's parameters."""
        groups = zip(self.families, layers, keep, prior, strict=True)
        return [
            family.kl_gradient(params, p, of_group, noise)
            for family, params, p, of_group in groups
        ]

    def learned_keep(self, layers: list[Params], keep: Keep) -> list[torch.Tensor]:
        """p = 1 - dropout of every group, (members,), learned where a family does."""
        groups = zip(self.families, layers, keep, strict=True)
        return [family.keep_of(params, p) for family, params, p in groups]

    def with_constants_of(
        self, layers: list[Params], others: list[Params]
    ) -> list[Params]:
        """The parameters, but what families hold constant is that of others."""
        groups = zip(self.families, layers, others, strict=True)
        return [
            params | {name: of_other[name] for name in family.constants}
            for family, params, of_other in groups
        ]


def start_values(
    families: Sequence[Family],
    fan_ins: Sequence[int],
    fan_outs: Sequence[int],
    gains: Sequence[float],
    normal: StartNormal,
    keep: Keep,
) -> list[Params]:
    """Of maps with weights of variance gain / inputs.

    A row of numbers beside those of the weights starts the biases, so that units bend
    at different places; those of the outputs, the last map, start at zero.
    """
    layers = []
    last = len(families) - 1
    for i, (family, n_in, n_out) in enumerate(
        zip(families, fan_ins, fan_outs, strict=True)
    ):
        scale = math.sqrt(gains[i] / n_in)
        bias_std = math.sqrt(1 / (3 * n_in)) if i < last else 0.0
        numbers = normal(i, n_in + 1, n_out)
        mean, bias = numbers[:, :-1] * scale, numbers[:, -1] * bias_std
        layers.append(family.init(mean, scale, bias, keep[i]))
    return layers
