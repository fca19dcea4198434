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
from skbayesnn._inference.batch import Batch
from skbayesnn._inference.posterior import Posterior
from skbayesnn._likelihoods import Likelihood
from skbayesnn._priors import Prior
from skbayesnn.gradient_estimators import leave_one_out

# Weight draws of one step with the score function; it needs at least two.
SCORE_DRAWS = 8


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

    def nll_gradient(
        self,
        q: Posterior,
        batch: Batch,
        noise: Noise,
    ) -> tuple[torch.Tensor, list[Params], Params]:
        """Expected negative log-likelihood, eq. 1 and 2, nats, and its gradients.

        Those of ``scale * nll`` summed over members; noise on y has a gradient of the
        outputs only, so that it is not taken for noise to be learned. To be called
        without autograd; x may be overwritten.

        returns : nll before the mean over rows, (members, batch rows); gradients of
            every layer's parameters; of the likelihood's learned parameters.
        """
        outputs, to_layers = q.network.vjp(q.layers, q.keep, batch.x, noise)
        params, likelihood = q.likelihood_params, q.likelihood
        nll, to_outputs = likelihood.nll_vjp(params, outputs, batch.y)
        share = self._share(nll, batch.weights)
        of_outputs, of_likelihood = to_outputs(share)
        if batch.noise_on_y is not None:
            slope = likelihood.noise_slope(params, outputs, batch.noise_on_y)
            of_outputs = of_outputs + slope * share.unsqueeze(-1)
        return self._weighted(nll, batch.weights), to_layers(of_outputs), of_likelihood

    def score_gradient(
        self,
        q: Posterior,
        batch: Batch,
        noise: Noise,
    ) -> tuple[torch.Tensor, list[Params], Params]:
        """As ``nll_gradient``, by the score function: nll needs no derivative in W.

        E_q[nll] has the gradient E_q[nll d log q(W)] [Gal16 3.1]. All rows of the batch
        share a draw of the weights; ``SCORE_DRAWS`` of them are taken.
        """
        values, of_likelihood = [], []
        leaves = [
            {name: value.detach().requires_grad_() for name, value in params.items()}
            for params in q.layers
        ]
        densities = []
        for _ in range(SCORE_DRAWS):
            weights = q.network.draw(q.layers, q.keep, noise.of_weights)
            with_draw = [(w.unsqueeze(0), b) for w, b in weights]
            outputs = q.network.apply(with_draw, batch.x)[0]
            rows, to_outputs = q.likelihood.nll_vjp(
                q.likelihood_params, outputs, batch.y
            )
            values.append(self._weighted(rows, batch.weights))
            of_likelihood.append(to_outputs(self._share(rows, batch.weights))[1])
            with torch.enable_grad():
                densities.append(q.network.log_density(leaves, q.keep, weights))
        nll = torch.stack(values)
        advantage = leave_one_out(nll.mean(2)) * self.scale / SCORE_DRAWS
        with torch.enable_grad():
            surrogate = (advantage * torch.stack(densities)).sum()
        flat = [value for params in leaves for value in params.values()]
        gradients = iter(torch.autograd.grad(surrogate, flat))
        of_layers = [{name: next(gradients) for name in params} for params in leaves]
        mean_of_likelihood = {
            name: torch.stack([found[name] for found in of_likelihood]).mean(0)
            for name in of_likelihood[0]
        }
        return nll.mean(0), of_layers, mean_of_likelihood

    @cached_property
    def _shares(self) -> dict[int, torch.Tensor]:
        """``scale`` divided by the number of rows of a batch, (members, 1)."""
        return {}

    def _share(self, nll, row_weights):
        """d (scale * nll per row, eq. 2) / d nll, (members, batch rows or 1)."""
        n_rows = nll.shape[1]
        if n_rows not in self._shares:
            self._shares[n_rows] = self.scale.unsqueeze(1) / n_rows
        share = self._shares[n_rows]
        if row_weights is None:
            return share
        return share * row_weights / self.mean_weight.unsqueeze(1)

    def _weighted(self, nll, row_weights):
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
