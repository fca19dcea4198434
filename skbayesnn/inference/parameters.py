"""The parameters of all members as one vector, and Adam's state of them."""

from dataclasses import replace

import numpy as np
import torch

from skbayesnn.families import Params
from skbayesnn.inference.posterior import Posterior


class FlatParameters:
    """All parameters in one vector: one leaf for autograd, one kernel for Adam."""

    def __init__(self, posterior: Posterior):
        self._template = posterior
        groups = [*posterior.layers, posterior.noise]
        self._names = [(i, name) for i, group in enumerate(groups) for name in group]
        self._shapes = [groups[i][name].shape for i, name in self._names]
        self.values = torch.cat([groups[i][n].flatten() for i, n in self._names])
        self.values.requires_grad_()
        members = torch.arange(posterior.n_members, device=self.values.device)
        self.member_of = torch.cat(
            [
                members.repeat_interleave(shape.numel() // posterior.n_members)
                for shape in self._shapes
            ]
        )

    def posterior(self, vector: torch.Tensor | None = None) -> Posterior:
        """The posterior whose parameters are views of ``vector`` (the values)."""
        vector = self.values if vector is None else vector
        trainable = self._template.likelihood.trainable
        groups: list[Params] = [{} for _ in range(len(self._template.layers) + 1)]
        end = 0
        for (i, name), shape in zip(self._names, self._shapes, strict=True):
            start, end = end, end + shape.numel()
            part = vector[start:end].view(shape)
            fixed = i == len(self._template.layers) and name not in trainable
            groups[i][name] = part.detach() if fixed else part
        return replace(self._template, layers=groups[:-1], noise=groups[-1])

    def detached(self) -> Posterior:
        """The posterior outside of any graph; shares memory with the values."""
        return self.posterior(self.values.detach())


def save_optimizer(
    optimizer: torch.optim.Optimizer, flat: FlatParameters
) -> dict[str, np.ndarray]:
    """Adam's moments by name, (members, ...) each, and the number of steps."""
    state = optimizer.state[flat.values]
    saved = {"step": np.asarray(state["step"].cpu())}
    for moment in ("exp_avg", "exp_avg_sq"):
        part = flat.posterior(state[moment])
        for i, group in enumerate([*part.layers, part.noise]):
            for name, value in group.items():
                saved[f"{moment}/{i}/{name}"] = value.cpu().numpy()
    return saved


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    flat: FlatParameters,
    saved: dict[str, np.ndarray],
) -> None:
    """Undo :func:`save_optimizer`."""
    part = flat.detached()
    groups = [*part.layers, part.noise]
    state = {"step": torch.as_tensor(saved["step"], device=flat.values.device)}
    for moment in ("exp_avg", "exp_avg_sq"):
        state[moment] = torch.cat(
            [
                torch.as_tensor(saved[f"{moment}/{i}/{name}"]).flatten()
                for i, group in enumerate(groups)
                for name in group
            ]
        ).to(flat.values)
    optimizer.state[flat.values] = state
