"""The objective of the training, and its gradients.

For one network with row weights w_n, N = sum w_n (design equations):

(1)  F = sum_n w_n E_q[-log p(y_n | f(x_n))] + KL(q || p)     nats; -F is the ELBO
(2)  mini-batch S of M out of R rows: the sum becomes (R / M) sum over S, so that
     F / N = (1 / M) sum_S w_n nll_n / (mean weight) + KL / N               (unbiased)
(3)  with a given tau: F / (N tau) = (1/M) sum 1/2 ||y - f||^2 + KL / (N tau) + const
(4)  dropout: KL / (N tau) = lambda ||M||^2 + ...,  lambda = p l^2 / (2 N tau)

The training minimises F / (N tau), or F / N where tau is learned and part of F. Then
gradients are of order one in any unit of y, and members do not interact.

Gradients of the expected negative log-likelihood are computed in three ways [Gal16
3.1]. Each takes the objective, the posterior, a batch and its random numbers. It
returns eq. 1 and 2 before the mean over rows, nats, (members, batch rows), and the
gradients of ``scale * nll`` summed over members, for all parameters of the layers and
of the likelihood. All run without autograd.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from skbayesnn._engine.config import MemberParams, TrainingConfig
from skbayesnn._engine.optimizer import FlatParameters
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.random import anchor_normal
from skbayesnn._families import Params, RandomSource
from skbayesnn._likelihoods import Likelihood
from skbayesnn._priors import PRIORS, AnchoredPrior, Prior
from skbayesnn.gradient_estimators import leave_one_out

# ---- the objective


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

    def kl(self, q: Posterior, noise: RandomSource) -> torch.Tensor:
        """KL(q || p) per row: divided by N; (members,), nats."""
        return q.network.kl(q.layers, q.keep, self.prior, noise) / self.total_weight

    def kl_gradient(self, q: Posterior, noise: RandomSource) -> list[Params]:
        """Gradients of KL(q || p) itself: to be multiplied by ``kl_scale``."""
        with torch.no_grad():
            return q.network.kl_gradient(q.layers, q.keep, self.prior, noise)


def weight_decay(keep, length_scale, n_rows, tau):
    """lambda = p l^2 / (2 N tau), eq. 4.

    The coefficient of ||M||^2 beside half the mean squared error, in y's units.
    Works on numbers and on arrays that broadcast.
    """
    return keep * length_scale**2 / (2 * n_rows * tau)


# ---- the prior of every group of parameters


def priors_of(
    plan: TrainingConfig, members: MemberParams, posterior: Posterior
) -> tuple[Prior, ...]:
    """The prior of every group.

    posterior : of the members; its values do not matter, their shapes do
    """
    kind = PRIORS[plan.prior]
    found = []
    for group, params in enumerate(posterior.layers):
        like, fields = params["mean"], members.prior[group]
        if issubclass(kind, AnchoredPrior):
            inputs, outputs = like.shape[1:]
            numbers = anchor_normal(members.seeds, group, inputs + 1, outputs)
            drawn = {"numbers": numbers[:, :-1], "bias_numbers": numbers[:, -1]}
            fields = fields | drawn
        tensors = {name: torch.as_tensor(v).to(like) for name, v in fields.items()}
        found.append(kind(**tensors))
    return tuple(found)


def at_anchors(posterior: Posterior, priors: tuple[Prior, ...]) -> Posterior:
    """Every member at its own draw from the prior, where it has one."""
    layers = [
        params | {"mean": prior.weight.centre, "bias": prior.bias.centre}
        if isinstance(prior, AnchoredPrior)
        else params
        for params, prior in zip(posterior.layers, priors, strict=True)
    ]
    return replace(posterior, layers=layers)


# ---- a batch


class Batch(NamedTuple):
    """Rows of a step, with a members axis, of length 1 where all have the same.

    Parameters
    ----------
    x : (members or 1, rows, inputs)
    y : (members or 1, rows, targets), or class numbers (members or 1, rows)
    weights : (members or 1, rows), or None where all are one
    noise_on_y : (members, rows, targets), in stds of the likelihood's noise, or None
    """

    x: torch.Tensor
    y: torch.Tensor
    weights: torch.Tensor | None
    noise_on_y: torch.Tensor | None = None

    def with_own_x(self) -> "Batch":
        """The same with a copy of x, to be overwritten."""
        return Batch(self.x.clone(), self.y, self.weights, self.noise_on_y)


# ---- KL / (N tau), the part that does not depend on the rows


class Penalty:
    """The KL of all members: its gradient in every step, its value after each epoch.

    Where every family's KL is quadratic, KL / (N tau) is lambda ||theta - a||^2 (eq.
    4), a the prior's centre: its gradient is one product per step, its value another.

    Parameters
    ----------
    flat : FlatParameters
        The parameters in training.
    q : Posterior
        With views of them.
    objective : Objective
    noise : Noise
        Of whole networks, for families that estimate their KL by a draw.

    Attributes
    ----------
    curvature : list of dict of tensor, or None
        Where the KL is quadratic: its second derivatives, like the parameters.
    """

    def __init__(
        self,
        flat: FlatParameters,
        q: Posterior,
        objective: Objective,
        noise: RandomSource,
    ):
        self._flat, self._q, self._objective, self._noise = flat, q, objective, noise
        # 1 / (N tau) per parameter, or 2 lambda where the KL is quadratic.
        self._factor = objective.kl_scale[flat.member_of]
        self._quadratic = q.network.quadratic_kl
        # Where it is: its minimum, or None where that is zero.
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
            # What is left of the KL where it pulls to.
            rest = torch.where(pulled, centre, flat.values)
            self._constant = objective.kl(flat.posterior(rest), noise)

    def add_gradient(self, gradient: torch.Tensor, weight: torch.Tensor | None) -> None:
        """Add the gradient of ``weight`` (None: one) times the penalty, in place."""
        of = self._from_centre() if self._quadratic else self._kl_gradient(self._q)
        gradient.addcmul_(of if weight is None else of * weight, self._factor)

    def kl(self) -> torch.Tensor:
        """KL(q || p) per row, (members,), nats."""
        if not self._quadratic:
            return self._objective.kl(self._q, self._noise)
        squares = self._from_centre().square().mul_(self._factor)
        half = self._flat.sum_by_member(squares) / 2
        return self._constant + half / self._objective.scale

    def _from_centre(self) -> torch.Tensor:
        values = self._flat.values
        return values if self._centre is None else values - self._centre

    def _kl_gradient(self, q: Posterior) -> torch.Tensor:
        return self._flat.vector(self._objective.kl_gradient(q, self._noise), {})


# ---- gradients of the expected negative log-likelihood, three ways [Gal16 3.1]

Gradients = tuple[torch.Tensor, list[Params], Params]
DataGradient = Callable[[Objective, Posterior, Batch, RandomSource], Gradients]

# Weight draws of one step with the score function; it needs at least two.
SCORE_DRAWS = 8


def pathwise(
    objective: Objective, q: Posterior, batch: Batch, noise: RandomSource
) -> Gradients:
    """Through the network, noise per row or as the families have it.

    Noise on y has a gradient of the outputs only, so that it is not taken for noise to
    be learned. x may be overwritten.
    """
    outputs, to_layers = q.network.vjp(q.layers, q.keep, batch.x, noise)
    params, likelihood = q.likelihood_params, q.likelihood
    nll, to_outputs = likelihood.nll_vjp(params, outputs, batch.y)
    share = objective.share(nll, batch.weights)
    of_outputs, of_likelihood = to_outputs(share)
    if batch.noise_on_y is not None:
        slope = likelihood.noise_slope(params, outputs, batch.noise_on_y)
        of_outputs = of_outputs + slope * share.unsqueeze(-1)
    nll = objective.weighted(nll, batch.weights)
    return nll, to_layers(of_outputs), of_likelihood


def score(
    objective: Objective, q: Posterior, batch: Batch, noise: RandomSource
) -> Gradients:
    """By the score function: nll needs no derivative in W.

    E_q[nll] has the gradient E_q[nll d log q(W)]. All rows of the batch share a draw of
    the weights; ``SCORE_DRAWS`` of them are taken.
    """
    values, of_likelihood, densities = [], [], []
    leaves = [_leaves(params) for params in q.layers]
    for _ in range(SCORE_DRAWS):
        weights = q.network.draw(q.layers, q.keep, noise.of_weights)
        rows, to_outputs = q.likelihood.nll_vjp(
            q.likelihood_params, _outputs(q, weights, batch), batch.y
        )
        values.append(objective.weighted(rows, batch.weights))
        of_likelihood.append(to_outputs(objective.share(rows, batch.weights))[1])
        with torch.enable_grad():
            densities.append(q.network.log_density(leaves, q.keep, weights))
    nll = torch.stack(values)
    advantage = leave_one_out(nll.mean(2)) * objective.scale / SCORE_DRAWS
    with torch.enable_grad():
        surrogate = (advantage * torch.stack(densities)).sum()
    return nll.mean(0), _gradients(surrogate, leaves), mean_of(of_likelihood)


def characteristic(
    objective: Objective, q: Posterior, batch: Batch, noise: RandomSource
) -> Gradients:
    """By the theorems of Bonnet and Price, for normal weights and smooth networks.

    E_q[nll] has the gradients E nll'(W) in the mean and 1/2 E nll''(W) in the variance
    of a weight. Of the Hessian H, v (H v) with random signs v has the diagonal as its
    mean [Bekas et al. 2007]. All rows of the batch share a draw of the weights.
    """
    of_weights = noise.of_weights
    drawn = q.network.draw(q.layers, q.keep, of_weights)
    signs = [of_weights.normal(*v.shape[1:]).sign() for draw in drawn for v in draw]
    learned = _leaves({n: q.likelihood_params[n] for n in q.likelihood.trainable})
    with torch.enable_grad():
        flat = [v.detach().requires_grad_() for draw in drawn for v in draw]
        outputs = _outputs(q, list(zip(flat[::2], flat[1::2], strict=True)), batch)
        nll = q.likelihood.nll(q.likelihood_params | learned, outputs, batch.y)
        total = (objective.share(nll, batch.weights) * nll).sum()
        found = torch.autograd.grad(
            total, [*flat, *learned.values()], create_graph=True
        )
        slopes, of_learned = found[: len(flat)], found[len(flat) :]
        along = [(s * v).sum() for s, v in zip(slopes, signs, strict=True)]
        products = torch.autograd.grad(
            torch.stack(along).sum(), flat, materialize_grads=True
        )
        leaves = [_leaves(params) for params in q.layers]
        moments = [
            (normal[name], normal[std])
            for family, params in zip(q.network.families, leaves, strict=True)
            for normal in [family.as_prior(params)]
            for name, std in [("mean", "std"), ("bias_mean", "bias_std")]
        ]
        terms = [
            (slope.detach() * mean + 0.5 * sign * product * std.square()).sum()
            for slope, sign, product, (mean, std) in zip(
                slopes, signs, products, moments, strict=True
            )
        ]
        of_layers = _gradients(torch.stack(terms).sum(), leaves)
    of_likelihood = dict(zip(learned, (g.detach() for g in of_learned), strict=True))
    return objective.weighted(nll.detach(), batch.weights), of_layers, of_likelihood


DATA_GRADIENTS: dict[str, DataGradient] = {
    "pathwise": pathwise,
    "score": score,
    "characteristic": characteristic,
}


def mean_of(found: Sequence[Params]) -> Params:
    """The means of several tensors of each name."""
    return {n: torch.stack([each[n] for each in found]).mean(0) for n in found[0]}


def _outputs(q: Posterior, weights, batch: Batch) -> torch.Tensor:
    """Of one draw for all rows, (members, batch rows, outputs)."""
    return q.network.apply([(w.unsqueeze(0), b) for w, b in weights], batch.x)[0]


def _leaves(params: Params) -> Params:
    return {name: value.detach().requires_grad_() for name, value in params.items()}


def _gradients(total: torch.Tensor, layers: list[Params]) -> list[Params]:
    """Of every layer's parameters."""
    flat = [value for params in layers for value in params.values()]
    found = iter(torch.autograd.grad(total, flat, materialize_grads=True))
    return [{name: next(found) for name in params} for params in layers]
