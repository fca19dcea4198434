"""The parameters of all members as one vector, and Adam on it."""

import math
from dataclasses import replace

import numpy as np
import torch

from skbayesnn._families import Params
from skbayesnn._inference.posterior import Posterior


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
        ``state()`` of an earlier run, to go on with.
    """

    def __init__(
        self, flat: FlatParameters, state: dict[str, np.ndarray] | None = None
    ):
        self._flat = flat
        self._values = flat.values
        self.n_steps = int(state["step"]) if state else 0
        self._mean, self._square = (
            flat.vector_of(state, name) if state else torch.zeros_like(self._values)
            for name in ("exp_avg", "exp_avg_sq")
        )
        self._root = torch.empty_like(self._values)
        self._epsilon = self._values.new_tensor(1e-8)

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Move the parameters against the gradient, in place."""
        beta_1, beta_2 = 0.9, 0.999
        self.n_steps += 1
        self._mean.lerp_(gradient, 1 - beta_1)
        squares = torch.mul(gradient, gradient, out=self._root)
        self._square.lerp_(squares, 1 - beta_2)
        unbiased = math.sqrt(1 - beta_2**self.n_steps)
        root = torch.sqrt(self._square, out=self._root)
        root.add_(self._epsilon, alpha=unbiased)
        size = learning_rate * unbiased / (1 - beta_1**self.n_steps)
        self._values.addcdiv_(self._mean, root, value=-size)

    def state(self) -> dict[str, np.ndarray]:
        """Moments by name, (members, ...) each, and the number of steps."""
        moments = {"exp_avg": self._mean, "exp_avg_sq": self._square}
        return {"step": np.asarray(self.n_steps)} | {
            f"{moment}/{name}": value
            for moment, vector in moments.items()
            for name, value in self._flat.arrays_of(vector).items()
        }
