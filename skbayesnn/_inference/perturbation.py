"""Each member's own noise on its rows: randomised maximum a posteriori.

A mode of many that are found under different noise stands for a draw of the posterior.
Gaussian noise is put on y, with the likelihood's own variance: with anchors from the
prior the draws are exact in a linear model [Bardsley et al. 2014, arXiv 1312.2134].
Other likelihoods get random weights of the rows, Exp(1) for a row of weight one: the
weighted likelihood bootstrap [Newton & Raftery 1994, JRSS B 56].
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from skbayesnn._inference.batch import Batch
from skbayesnn._inference.noise import ROWS, philox
from skbayesnn._inference.plan import Plan, Rows


class Perturbation:
    """Noise of every member and row, the same in all epochs.

    Parameters
    ----------
    plan : Plan
    seeds : ndarray of shape (members,), int
    rows : Rows
    place : int
        Other rows of the same members, as those of a stream, have another.
    """

    def __init__(self, plan: Plan, seeds: np.ndarray, rows: Rows, place: int):
        n_targets = plan.likelihood.gaussian_targets
        self._on_y = n_targets > 0
        weights = np.ones((len(seeds), int(rows.n_rows.max())))
        if rows.weights is not None:
            weights *= torch.as_tensor(rows.weights).cpu().numpy()
        numbers = []
        for seed, own in zip(seeds, weights[..., None], strict=True):
            random = np.random.Generator(philox(int(seed), ROWS, place))
            if self._on_y:
                # That of the mean of so many rows as the weight says.
                normal = random.standard_normal((len(own), n_targets))
                numbers.append(normal / np.sqrt(own))
            else:
                numbers.append(random.standard_gamma(own) / own)
        self._numbers = torch.as_tensor(np.stack(numbers)).to(rows.mean_weight)

    def batches(
        self, batches: Iterable[Batch], order: torch.Tensor, size: int
    ) -> Iterator[Batch]:
        """The batches of an epoch, with the noise of their rows.

        order : (members or 1, rows of all batches)
        """
        lead, _, width = self._numbers.shape
        index = order.expand(lead, -1).unsqueeze(-1).expand(-1, -1, width)
        numbers = self._numbers.gather(1, index).split(size, dim=1)
        return map(self._perturbed, batches, numbers)

    def _perturbed(self, batch: Batch, own: torch.Tensor) -> Batch:
        x, y, weights, _ = batch
        if self._on_y:
            return Batch(x, y, weights, own)
        factors = own.squeeze(-1)
        return Batch(x, y, factors if weights is None else weights * factors)
