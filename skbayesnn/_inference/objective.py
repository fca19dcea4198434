"""The objective, in one place.

For one network with row weights w_n, N = sum w_n (design equations):

(1)  F = sum_n w_n E_q[-log p(y_n | f(x_n))] + KL(q || p)     nats; -F is the ELBO
(2)  mini-batch S of M out of R rows: the sum becomes (R / M) sum over S, so that
     F / N = (1 / M) sum_S w_n nll_n / (mean weight) + KL / N               (unbiased)
(3)  with a given tau: F / (N tau) = (1/M) sum 1/2 ||y - f||^2 + KL / (N tau) + const
(4)  dropout: KL / (N tau) = lambda ||M||^2 + ...,  lambda = p l^2 / (2 N tau)

What is minimised is F / (N tau), or F / N where tau is learned and stands inside F:
gradients of order one whatever the units of y, and nothing is coupled over members.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from skbayesnn._families import Noise, Params
from skbayesnn._inference.posterior import Posterior
from skbayesnn._likelihoods import Likelihood
from skbayesnn._priors import Prior


@dataclass(frozen=True)
class Objective:
    """F / (N tau) of every member, estimated on a batch.

    Parameters
    ----------
    prior : tuple of Prior
        Of every group of parameters.
    mean_weight : tensor of shape (members,)
        Mean weight of the rows that a batch is drawn from.
    total_weight : tensor of shape (members,)
        N, the sum of the weights of all rows that the posterior has seen.
    scale : tensor of shape (members,)
        1 / tau, or 1 where tau is learned.
    """

    prior: tuple[Prior, ...]
    mean_weight: torch.Tensor
    total_weight: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def of(
        cls,
        likelihood: Likelihood,
        prior: tuple[Prior, ...],
        tau: np.ndarray,
        mean_weight: torch.Tensor,
        total_weight: torch.Tensor,
    ) -> "Objective":
        """With the scale that the likelihood asks for.

        tau : (members, targets), given precisions, or where learning starts
        """
        scale = torch.ones_like(total_weight)
        if not likelihood.learned:
            scale = torch.as_tensor(1 / tau.mean(1)).to(scale)
        return cls(prior, mean_weight, total_weight, scale)

    @property
    def kl_scale(self) -> torch.Tensor:
        """1 / (N tau), or 1 / N: what the KL is multiplied by, (members,)."""
        return self.scale / self.total_weight

    @cached_property
    def _shares(self) -> dict[int, torch.Tensor]:
        """``scale`` divided by the number of rows of a batch, (members, 1)."""
        return {}

    def share(
        self, nll: torch.Tensor, row_weights: torch.Tensor | None
    ) -> torch.Tensor:
        """d (scale * nll per row, eq. 2) / d nll, (members, batch rows or 1)."""
        n_rows = nll.shape[1]
        if n_rows not in self._shares:
            self._shares[n_rows] = self.scale.unsqueeze(1) / n_rows
        share = self._shares[n_rows]
        if row_weights is None:
            return share
        return share * row_weights / self.mean_weight.unsqueeze(1)

    def weighted(
        self, nll: torch.Tensor, row_weights: torch.Tensor | None
    ) -> torch.Tensor:
        """(members, batch rows), whose means over rows are eq. 2 divided by N."""
        if row_weights is None:
            return nll
        return row_weights * nll / self.mean_weight.unsqueeze(1)

    def kl(self, q: Posterior, noise: Noise) -> torch.Tensor:
        """KL(q || p) per row: divided by N; (members,), nats."""
        return q.network.kl(q.layers, q.keep, self.prior, noise) / self.total_weight

    def kl_gradient(self, q: Posterior, noise: Noise) -> list[Params]:
        """Gradients of KL(q || p) itself: to be multiplied by ``kl_scale``."""
        with torch.no_grad():
            return q.network.kl_gradient(q.layers, q.keep, self.prior, noise)


def kl_weight(weighting: str, batch: int, n_batches: int) -> float:
    """Weight of the KL in the loss of batch ``batch`` of an epoch; its mean is one.

    "uniform", or "geometric" [BBB15 eq. 9]: the first batches of an epoch are led by
    the prior, the later ones by the data, 2^(B - i) / (2^B - 1) of B, i from 1.
    """
    if weighting == "uniform":
        return 1.0
    return n_batches * 0.5 ** (batch + 1) / (1 - 0.5**n_batches)


def weight_decay(keep, length_scale, n_rows, tau):
    """lambda = p l^2 / (2 N tau), eq. 4.

    The coefficient of ||M||^2 beside half the mean squared error, in y's units.
    Works on numbers and on arrays that broadcast.
    """
    return keep * length_scale**2 / (2 * n_rows * tau)
