"""The parameters of all members as one vector, and Adam on it."""

from dataclasses import replace

import numpy as np
import torch

from skbayesnn._engine.posterior import Posterior
from skbayesnn._families import Params

# Decay of the two moments. With 0.999 the second one follows too slowly where noise is
# small and learned: single steps undo hundreds (docs/defaults.md, "Optimiser").
BETA_1, BETA_2 = 0.9, 0.99
# Added to the root of the second moment.
EPSILON = 1e-8
_MOMENTS = ("exp_avg", "exp_avg_sq")


class FlatParameters:
    """All parameters in one vector, ``values``; the posterior has views of it."""

    def __init__(self, posterior: Posterior):
        self._template = posterior
        groups = [*posterior.layers, posterior.likelihood_params]
        self._names = [(i, name) for i, group in enumerate(groups) for name in group]
        self._shapes = [groups[i][name].shape for i, name in self._names]
        self.values = torch.cat([groups[i][n].flatten() for i, n in self._names])
        # Of those parts that a gradient has left out.
        self._zeros: dict[tuple[int, str], torch.Tensor] = {}
        members = torch.arange(posterior.n_members, device=self.values.device)
        self.member_of = torch.cat(
            [
                members.repeat_interleave(shape.numel() // posterior.n_members)
                for shape in self._shapes
            ]
        )

    def sum_by_member(self, vector: torch.Tensor) -> torch.Tensor:
        """Sums of the entries of every member, (members,)."""
        parts = vector.split([shape.numel() for shape in self._shapes])
        n_members = self._template.n_members
        return torch.stack([part.view(n_members, -1).sum(1) for part in parts]).sum(0)

    def posterior(self, vector: torch.Tensor | None = None) -> Posterior:
        """The posterior whose parameters are views of ``vector`` (the values)."""
        vector = self.values if vector is None else vector
        groups: list[Params] = [{} for _ in range(len(self._template.layers) + 1)]
        end = 0
        for (i, name), shape in zip(self._names, self._shapes, strict=True):
            start, end = end, end + shape.numel()
            groups[i][name] = vector[start:end].view(shape)
        return replace(self._template, layers=groups[:-1], likelihood_params=groups[-1])

    def arrays_of(self, vector: torch.Tensor) -> dict[str, np.ndarray]:
        """The parts of a vector like ``values``, by place and name."""
        parts = self.posterior(vector)
        return {
            f"{i}/{name}": value.cpu().numpy()
            for i, group in enumerate([*parts.layers, parts.likelihood_params])
            for name, value in group.items()
        }

    def vector_of(self, arrays: dict[str, np.ndarray], kind: str) -> torch.Tensor:
        """Undo ``arrays_of``: the arrays ``kind/place/name`` as one vector."""
        parts = [arrays[f"{kind}/{i}/{name}"].ravel() for i, name in self._names]
        return torch.as_tensor(np.concatenate(parts)).to(self.values, copy=True)

    def vector(self, layers: list[Params], of_likelihood: Params) -> torch.Tensor:
        """Gradients by name as one vector like ``values``; zero where there is none."""
        groups = [*layers, of_likelihood]
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

    The few in-place products cost a fraction of what ``torch.optim`` spends on
    bookkeeping, which is as much as a whole step of a small network. Numbers that are
    not tensors cost twice as much in a product as those that are.

    Parameters
    ----------
    flat : FlatParameters
    state : dict of ndarray, optional
        With the ``moments()`` of an earlier run, to go on with.
    """

    def __init__(
        self, flat: FlatParameters, state: dict[str, np.ndarray] | None = None
    ):
        self._flat = flat
        self._values = flat.values
        self._mean, self._square = (
            flat.vector_of(state, name) if state else torch.zeros_like(self._values)
            for name in _MOMENTS
        )
        self._root = torch.empty_like(self._values)
        # Which entries are of members that have ended, and their moments by then.
        self._ended: torch.Tensor | None = None
        self._kept = [self._mean, self._square]

    def step(
        self,
        gradient: torch.Tensor,
        step_size: torch.Tensor,
        epsilon: torch.Tensor,
    ) -> None:
        """Move the parameters against the gradient, which is overwritten.

        step_size : minus the step size, divided by the bias of both moments
        epsilon : EPSILON times the root of 1 - BETA_2^t
        """
        self._mean.lerp_(gradient, 1 - BETA_1)
        squares = torch.mul(gradient, gradient, out=self._root)
        self._square.lerp_(squares, 1 - BETA_2)
        root = torch.sqrt(self._square, out=self._root)
        root.add_(epsilon)
        self._values.addcdiv_(torch.mul(self._mean, step_size, out=gradient), root)

    def keep_moments(self, members: np.ndarray) -> None:
        """Those of some members, (members,) bool, count as they are now."""
        ended = torch.as_tensor(members).to(self._values.device)[self._flat.member_of]
        now = (self._mean, self._square)
        self._kept = [
            torch.where(ended, *pair) for pair in zip(now, self._kept, strict=True)
        ]
        self._ended = ended if self._ended is None else self._ended | ended

    def moments(self) -> dict[str, np.ndarray]:
        """By name, (members, ...) each."""
        vectors = [self._mean, self._square]
        if self._ended is not None:
            vectors = [
                torch.where(self._ended, *pair)
                for pair in zip(self._kept, vectors, strict=True)
            ]
        return {
            f"{moment}/{name}": value
            for moment, vector in zip(_MOMENTS, vectors, strict=True)
            for name, value in self._flat.arrays_of(vector).items()
        }
