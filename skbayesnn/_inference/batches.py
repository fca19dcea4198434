"""The batches of an epoch, of one size for all members."""

from collections.abc import Iterator
from itertools import starmap

import numpy as np
import torch

from skbayesnn._inference.batch import Batch
from skbayesnn._inference.perturbation import Perturbation
from skbayesnn._inference.plan import Plan, Rows
from skbayesnn._inference.training_noise import TrainingNoise
from skbayesnn._inference.unequal_noise import UnequalNoise


class Batches:
    """Cuts the rows of every member into equally many batches.

    A member with fewer rows has smaller batches. They are padded with rows of weight
    zero, and the others weigh more: the mean over all rows is that over its own.

    Parameters
    ----------
    rows : Rows
    plan : Plan
    perturbation : Perturbation, optional
        What every member has of its own on the rows.
    """

    def __init__(
        self, rows: Rows, plan: Plan, perturbation: Perturbation | None = None
    ):
        self._rows, self._n, self._perturbation = rows, plan.n_batches, perturbation
        own = plan.batch_rows(rows.n_rows)
        self.n_rows = int(own.max())
        self._padding: torch.Tensor | None = None
        if (own < self.n_rows).any():
            present = np.arange(self.n_rows) < own[:, None]
            share = present * (self.n_rows / own[:, None])
            self._padding = torch.as_tensor(share).to(rows.mean_weight)

    def of_epoch(self, noise: TrainingNoise | UnequalNoise) -> Iterator[Batch]:
        """One batch after the other."""
        order = noise.order(self._rows.n_rows, self._n)
        rows = self._rows.batches(order, self.n_rows)
        batches: Iterator[Batch] = starmap(Batch, rows)
        if self._perturbation is not None:
            batches = self._perturbation.batches(batches, order, self.n_rows)
        if self._padding is None:
            return batches
        return self._padded(batches, self._padding)

    def _padded(self, batches: Iterator[Batch], padding: torch.Tensor):
        for x, y, weights, noise_on_y in batches:
            weights = padding if weights is None else weights * padding
            yield Batch(x, y, weights, noise_on_y)
