"""The parameters of all members as one vector, and Adam on it."""

from dataclasses import replace

import numpy as np
import torch

from skbayesnn._engine.posterior import Posterior
from skbayesnn._families import Params

# Decay rates of the two moments. With 0.999, the second moment adapts too slowly if a
# small observation noise is learned: a single step can undo hundreds (docs/defaults.md,
# "Optimiser").
BETA_1, BETA_2 = 0.9, 0.99
# Added to the square root of the second moment.
EPSILON = 1e-8
_MOMENTS = ("exp_avg", "exp_avg_sq")


class FlatParameters:
    """All parameters in one vector, ``values``; the posterior holds views of it."""

    def __init__(self, posterior: Posterior):
        self._template = posterior
        groups = [*posterior.layers, posterior.likelihood_params]
        self._names = [(i, name) for i, group in enumerate(groups) for name in group]
        self._shapes = [groups[i][name].shape for i, name in self._names]
        self.values = torch.cat([groups[i][n].flatten() for i, n in self._names])
        # Zeros for parameters without a gradient.
        self._zeros: dict[tuple[int, str], torch.Tensor] = {}
        members = torch.arange(posterior.n_members, device=self.values.device)
        self.member_of = torch.cat(
            [
                members.repeat_interleave(shape.numel() // posterior.n_members)
                for shape in self._shapes
            ]
        )

    def places(self, members: np.ndarray) -> torch.Tensor:
        """Positions of the parameters of some members, in their own order."""
        positions = torch.arange(len(self.values), device=self.values.device)
        return FlatParameters(self.posterior(positions).select(members)).values

    def sum_by_member(self, vector: torch.Tensor) -> torch.Tensor:
        """Sum the entries of every member, (members,)."""
        parts = vector.split([shape.numel() for shape in self._shapes])
        n_members = self._template.n_members
        return torch.stack([part.view(n_members, -1).sum(1) for part in parts]).sum(0)

    def posterior(self, vector: torch.Tensor | None = None) -> Posterior:
        """The posterior whose parameters are views of ``vector`` (None: ``values``)."""
        vector = self.values if vector is None else vector
        groups: list[Params] = [{} for _ in range(len(self._template.layers) + 1)]
        end = 0
        for (i, name), shape in zip(self._names, self._shapes, strict=True):
            start, end = end, end + shape.numel()
            groups[i][name] = vector[start:end].view(shape)
        return replace(self._template, layers=groups[:-1], likelihood_params=groups[-1])

    def to_arrays(self, vector: torch.Tensor) -> dict[str, np.ndarray]:
        """Split a vector like ``values`` into arrays named "group/parameter"."""
        parts = self.posterior(vector)
        return {
            f"{i}/{name}": value.cpu().numpy()
            for i, group in enumerate([*parts.layers, parts.likelihood_params])
            for name, value in group.items()
        }

    def to_vector(self, arrays: dict[str, np.ndarray], prefix: str) -> torch.Tensor:
        """Inverse of ``to_arrays``: join the arrays "prefix/group/parameter"."""
        parts = [arrays[f"{prefix}/{i}/{name}"].ravel() for i, name in self._names]
        return torch.as_tensor(np.concatenate(parts)).to(self.values, copy=True)

    def vector(self, layers: list[Params], likelihood_grads: Params) -> torch.Tensor:
        """Join gradients into one vector like ``values``; missing ones are zero."""
        groups = [*layers, likelihood_grads]
        parts = []
        for (i, name), shape in zip(self._names, self._shapes, strict=True):
            if name in groups[i]:
                parts.append(groups[i][name].flatten())
                continue
            if (i, name) not in self._zeros:
                self._zeros[i, name] = self.values.new_zeros(shape.numel())
            parts.append(self._zeros[i, name])
        return torch.cat(parts)


class Adam:
    """Adam [Kingma & Ba 2015, arXiv 1412.6980, alg. 1] on one vector.

    The few in-place products cost a fraction of the bookkeeping of ``torch.optim``,
    which takes as long as a whole step of a small network. The scalars are tensors,
    since a product with a Python float costs twice as much.

    Parameters
    ----------
    flat : FlatParameters
    state : dict of ndarray, optional
        The ``moments()`` of an earlier run to continue.
    """

    def __init__(
        self, flat: FlatParameters, state: dict[str, np.ndarray] | None = None
    ):
        self._flat = flat
        self._values = flat.values
        self._mean, self._square = (
            flat.to_vector(state, name) if state else torch.zeros_like(self._values)
            for name in _MOMENTS
        )
        self._root = torch.empty_like(self._values)
        # Entries of members whose training has ended, and their moments at the end.
        self._has_ended: torch.Tensor | None = None
        self._final_moments = [self._mean, self._square]

    def step(
        self,
        gradient: torch.Tensor,
        step_size: torch.Tensor,
        epsilon: torch.Tensor,
    ) -> None:
        """Update the parameters; the gradient is overwritten.

        step_size : minus the step size, with the bias corrections of both moments
        epsilon : EPSILON sqrt(1 - BETA_2^t) at step t
        """
        self._mean.lerp_(gradient, 1 - BETA_1)
        squares = torch.mul(gradient, gradient, out=self._root)
        self._square.lerp_(squares, 1 - BETA_2)
        root = torch.sqrt(self._square, out=self._root)
        root.add_(epsilon)
        self._values.addcdiv_(torch.mul(self._mean, step_size, out=gradient), root)

    @property
    def vectors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both moments, as vectors like the parameters."""
        return self._mean, self._square

    def keep_moments(self, members: np.ndarray) -> None:
        """Keep the current moments of some members, (members,) bool, for good."""
        ended = torch.as_tensor(members).to(self._values.device)[self._flat.member_of]
        current = (self._mean, self._square)
        self._final_moments = [
            torch.where(ended, *pair)
            for pair in zip(current, self._final_moments, strict=True)
        ]
        self._has_ended = ended if self._has_ended is None else self._has_ended | ended

    def moments(self) -> dict[str, np.ndarray]:
        """Moments by name, (members, ...) each."""
        vectors = [self._mean, self._square]
        if self._has_ended is not None:
            vectors = [
                torch.where(self._has_ended, *pair)
                for pair in zip(self._final_moments, vectors, strict=True)
            ]
        return {
            f"{moment}/{name}": value
            for moment, vector in zip(_MOMENTS, vectors, strict=True)
            for name, value in self._flat.to_arrays(vector).items()
        }
