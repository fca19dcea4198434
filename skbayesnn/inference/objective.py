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

import torch

from skbayesnn.families import Noise, Params
from skbayesnn.inference.posterior import Posterior
from skbayesnn.likelihoods import nll_vjp
from skbayesnn.priors import GaussianPrior


@dataclass(frozen=True)
class Objective:
    """F / (N tau) of every member, estimated on a batch.

    Parameters
    ----------
    prior : tuple of GaussianPrior
        Of every layer.
    mean_weight : tensor of shape (members,)
        Mean weight of the rows that a batch is drawn from.
    total_weight : tensor of shape (members,)
        N, the sum of the weights of all rows that the posterior has seen.
    scale : tensor of shape (members,)
        1 / tau, or 1 where tau is learned.
    """

    prior: tuple[GaussianPrior, ...]
    mean_weight: torch.Tensor
    total_weight: torch.Tensor
    scale: torch.Tensor

    def nll(
        self,
        q: Posterior,
        x: torch.Tensor,
        y: torch.Tensor,
        row_weights: torch.Tensor | None,
        noise: Noise,
    ) -> torch.Tensor:
        """Expected negative log-likelihood per row, eq. 1 and 2; (members,), nats.

        x : (members or 1, batch rows, inputs)
        y : (members or 1, batch rows, targets), or class numbers without last axis
        row_weights : (members or 1, batch rows), or None where all are one
        """
        outputs = q.network.forward(q.layers, q.keep, x, noise)
        return self._per_row(q.likelihood.nll(q.noise, outputs, y), row_weights)

    def nll_gradient(
        self,
        q: Posterior,
        x: torch.Tensor,
        y: torch.Tensor,
        row_weights: torch.Tensor | None,
        noise: Noise,
    ) -> tuple[torch.Tensor, list[Params], Params]:
        """``nll``, and the gradients of ``scale * nll`` summed over members.

        returns : nll (members,); gradients of every layer's parameters; of the
            likelihood's learned parameters. x may be overwritten.
        """
        with torch.no_grad():
            outputs, to_layers = q.network.vjp(q.layers, q.keep, x, noise)
            rows, to_outputs = nll_vjp(q.likelihood, q.noise, outputs, y)
            share = (self.scale / rows.shape[1]).unsqueeze(1)
            if row_weights is not None:
                share = share * row_weights / self.mean_weight.unsqueeze(1)
            of_outputs, of_noise = to_outputs(share)
            return self._per_row(rows, row_weights), to_layers(of_outputs), of_noise

    def _per_row(self, nll, row_weights):
        """(members, batch rows) -> (members,): eq. 2 divided by N."""
        if row_weights is None:
            return nll.mean(1)
        return (row_weights * nll).mean(1) / self.mean_weight

    def kl(self, q: Posterior) -> torch.Tensor:
        """KL(q || p) per row: divided by N; (members,), nats."""
        return q.network.kl(q.layers, q.keep, self.prior) / self.total_weight


def weight_decay(keep, length_scale, n_rows, tau):
    """lambda = p l^2 / (2 N tau), eq. 4.

    The coefficient of ||M||^2 beside half the mean squared error, in y's units.
    Works on numbers and on arrays that broadcast.
    """
    return keep * length_scale**2 / (2 * n_rows * tau)
