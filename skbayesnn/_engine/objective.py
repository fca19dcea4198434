"""The objective of the training, and its gradients.

For one network with row weights w_n and N = sum w_n:

(1)  F = sum_n w_n E_q[-log p(y_n | f(x_n))] + KL(q || p)     nats; -F is the ELBO
(2)  for a mini-batch S of M out of R rows, the sum becomes (R / M) sum over S:
     F / N = (1 / M) sum_S w_n nll_n / (mean weight) + KL / N               (unbiased)
(3)  with a given tau: F / (N tau) = (1/M) sum 1/2 ||y - f||^2 + KL / (N tau) + const
(4)  dropout: KL / (N tau) = lambda ||M||^2 + ...,  lambda = p l^2 / (2 N tau)

The training minimises F / (N tau), or F / N if tau is learned and part of F. Then
gradients are of order one in any unit of y, and members do not interact.

``data_gradient`` returns the nll of eq. 2 before the mean over rows, nats, (members,
batch rows), and the gradients of ``scale * nll``, summed over members, with respect to
all parameters of the layers and of the likelihood. Call it without autograd.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from skbayesnn._engine.config import Batch, MemberParams, TrainingConfig
from skbayesnn._engine.optimizer import FlatParameters
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.random import anchor_normal
from skbayesnn._families import Params, RandomSource
from skbayesnn._likelihoods import Likelihood
from skbayesnn._priors import PRIORS, AnchoredPrior, DiscretePrior, Prior

# ---- the objective


@dataclass(frozen=True)
class Objective:
    """F / (N tau) of every member, estimated on a batch.

    Parameters
    ----------
    prior : tuple of Prior
        Prior of every parameter group.
    mean_weight : tensor of shape (members,)
        Mean weight of the rows that a batch is drawn from.
    total_weight : tensor of shape (members,)
        N, the sum of the weights of all rows that the posterior has seen.
    scale : tensor of shape (members,)
        1 / tau, or 1 if tau is learned.
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
        """Construct the objective with the scale that the likelihood requires.

        tau : (members, targets), given precisions, or initial values
        """
        scale = torch.ones_like(total_weight)
        if not likelihood.learned:
            scale = torch.as_tensor(1 / tau.mean(1)).to(scale)
        return cls(prior, mean_weight, total_weight, scale)

    @property
    def kl_scale(self) -> torch.Tensor:
        """Factor of the KL, 1 / (N tau) or 1 / N, (members,)."""
        return self.scale / self.total_weight

    @cached_property
    def _nll_factors(self) -> dict[int, torch.Tensor]:
        """Cache by batch size: ``scale`` / number of rows, (members, 1)."""
        return {}

    def nll_factor(
        self, nll: torch.Tensor, row_weights: torch.Tensor | None
    ) -> torch.Tensor:
        """d (scale * F / N) / d nll (eq. 2), (members, batch rows or 1)."""
        n_rows = nll.shape[1]
        if n_rows not in self._nll_factors:
            self._nll_factors[n_rows] = self.scale.unsqueeze(1) / n_rows
        factor = self._nll_factors[n_rows]
        if row_weights is None:
            return factor
        return factor * row_weights / self.mean_weight.unsqueeze(1)

    def weighted(
        self, nll: torch.Tensor, row_weights: torch.Tensor | None
    ) -> torch.Tensor:
        """Weighted nll, (members, batch rows), whose mean over rows is in eq. 2."""
        if row_weights is None:
            return nll
        return row_weights * nll / self.mean_weight.unsqueeze(1)

    def kl(self, q: Posterior, random: RandomSource) -> torch.Tensor:
        """KL(q || p) / N, (members,), nats."""
        return q.network.kl(q.layers, q.keep, self.prior, random) / self.total_weight

    def kl_gradient(self, q: Posterior, random: RandomSource) -> list[Params]:
        """Gradients of KL(q || p); multiply them by ``kl_scale``."""
        with torch.no_grad():
            return q.network.kl_gradient(q.layers, q.keep, self.prior, random)


def weight_decay(keep, length_scale, n_rows, tau):
    """lambda = p l^2 / (2 N tau), eq. 4.

    The coefficient of ||M||^2 in a loss whose other term is half the mean squared
    error, in y's units. The arguments are floats or arrays that broadcast.
    """
    return keep * length_scale**2 / (2 * n_rows * tau)


# ---- the prior of every parameter group


def make_priors(
    config: TrainingConfig, members: MemberParams, posterior: Posterior
) -> tuple[Prior, ...]:
    """Construct the prior of every parameter group.

    posterior : posterior of the members; only its shapes are used
    """
    prior_type = PRIORS[config.prior]
    priors = []
    for group, params in enumerate(posterior.layers):
        mean, fields = params["mean"], members.prior[group]
        if issubclass(prior_type, AnchoredPrior):
            inputs, outputs = mean.shape[1:]
            normal = anchor_normal(members.seeds, group, inputs + 1, outputs)
            anchors = {"normal": normal[:, :-1], "bias_normal": normal[:, -1]}
            fields = fields | anchors
        tensors = {name: torch.as_tensor(v).to(mean) for name, v in fields.items()}
        priors.append(prior_type(**tensors))
    return tuple(priors)


def at_anchors(posterior: Posterior, priors: tuple[Prior, ...]) -> Posterior:
    """Set the means of every member to its draw from an anchored prior, if any."""
    layers = [
        params | {"mean": prior.weight.centre, "bias": prior.bias.centre}
        if isinstance(prior, AnchoredPrior)
        else params
        for params, prior in zip(posterior.layers, priors, strict=True)
    ]
    return replace(posterior, layers=layers)


def at_values(posterior: Posterior, priors: tuple[Prior, ...]) -> Posterior:
    """Round the means to the nearest values of a discrete prior, if any."""
    layers = [
        params
        | {
            "mean": prior.weight.nearest(params["mean"]),
            "bias": prior.bias.nearest(params["bias"]),
        }
        if isinstance(prior, DiscretePrior)
        else params
        for params, prior in zip(posterior.layers, priors, strict=True)
    ]
    return replace(posterior, layers=layers)


# ---- KL / (N tau), the part of the objective that does not depend on the rows


class Penalty:
    """The KL of all members: its gradient in every step, its value after each epoch.

    If every family's KL is quadratic, KL / (N tau) is lambda ||theta - a||^2 (eq. 4)
    with a the prior's centre. Gradient and value then cost one product each.

    Parameters
    ----------
    flat : FlatParameters
        The parameters in training.
    q : Posterior
        Posterior whose parameters are views of them.
    objective : Objective
    random : RandomSource
        Random numbers for weight draws, for families that estimate their KL by a draw.

    Attributes
    ----------
    curvature : list of dict of tensor, or None
        Second derivatives of the KL, one per parameter, if it is quadratic.
    """

    def __init__(
        self,
        flat: FlatParameters,
        q: Posterior,
        objective: Objective,
        random: RandomSource,
    ):
        self._flat, self._q, self._objective, self._random = flat, q, objective, random
        # 1 / (N tau) per parameter, or 2 lambda if the KL is quadratic.
        self._factor = objective.kl_scale[flat.member_of]
        self._quadratic = q.network.quadratic_kl
        # The minimum of a quadratic KL; None if it is at zero.
        self._centre: torch.Tensor | None = None
        self.curvature: list[Params] | None = None
        if self._quadratic:
            ones = torch.ones_like(flat.values)
            at_zero = self._kl_gradient(flat.posterior(torch.zeros_like(ones)))
            slope = self._kl_gradient(flat.posterior(ones)).sub_(at_zero)
            pulled = slope != 0
            centre = torch.where(pulled, -at_zero / slope, 0.0)
            if centre.any():
                self._centre = centre
            self.curvature = flat.posterior(slope).layers
            self._factor.mul_(slope)
            # The value of the KL at its minimum.
            at_minimum = torch.where(pulled, centre, flat.values)
            self._constant = objective.kl(flat.posterior(at_minimum), random)

    def add_gradient(self, gradient: torch.Tensor, weight: torch.Tensor | None) -> None:
        """Add the gradient of ``weight`` (None: 1) times the penalty, in place."""
        slope = self._from_centre() if self._quadratic else self._kl_gradient(self._q)
        gradient.addcmul_(slope if weight is None else slope * weight, self._factor)

    def kl(self) -> torch.Tensor:
        """KL(q || p) per row, (members,), nats."""
        if not self._quadratic:
            return self._objective.kl(self._q, self._random)
        squares = self._from_centre().square().mul_(self._factor)
        half = self._flat.sum_by_member(squares) / 2
        return self._constant + half / self._objective.scale

    def _from_centre(self) -> torch.Tensor:
        values = self._flat.values
        return values if self._centre is None else values - self._centre

    def _kl_gradient(self, q: Posterior) -> torch.Tensor:
        return self._flat.vector(self._objective.kl_gradient(q, self._random), {})


# ---- the gradient of the expected negative log-likelihood


def data_gradient(
    objective: Objective, q: Posterior, batch: Batch, random: RandomSource
) -> tuple[torch.Tensor, list[Params], Params]:
    """Pathwise gradients, through the network; weights are drawn per row if possible.

    The perturbation of y affects the gradient of the outputs only. Otherwise it would
    be learned as observation noise. x may be overwritten.
    """
    outputs, to_layers = q.network.vjp(q.layers, q.keep, batch.x, random)
    params, likelihood = q.likelihood_params, q.likelihood
    nll, to_outputs = likelihood.nll_vjp(params, outputs, batch.y)
    factor = objective.nll_factor(nll, batch.weights)
    output_grads, likelihood_grads = to_outputs(factor)
    if batch.y_perturbation is not None:
        slope = likelihood.perturbation_slope(params, outputs, batch.y_perturbation)
        output_grads = output_grads + slope * factor.unsqueeze(-1)
    nll = objective.weighted(nll, batch.weights)
    return nll, to_layers(output_grads), likelihood_grads
