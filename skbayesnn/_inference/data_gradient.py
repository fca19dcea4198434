"""Gradients of the expected negative log-likelihood, three ways [Gal16 3.1].

Each takes the objective, the posterior, a batch and its noise, and returns eq. 1 and 2
before the mean over rows, nats, (members, batch rows), with the gradients of ``scale *
nll`` summed over members: of every layer's parameters, and of what the likelihood
learns. All are called without autograd.
"""

from collections.abc import Callable, Sequence

import torch

from skbayesnn._families import Noise, Params
from skbayesnn._inference.batch import Batch
from skbayesnn._inference.objective import Objective
from skbayesnn._inference.posterior import Posterior
from skbayesnn.gradient_estimators import leave_one_out

Gradients = tuple[torch.Tensor, list[Params], Params]
DataGradient = Callable[[Objective, Posterior, Batch, Noise], Gradients]

# Weight draws of one step with the score function; it needs at least two.
SCORE_DRAWS = 8


def pathwise(
    objective: Objective, q: Posterior, batch: Batch, noise: Noise
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


def score(objective: Objective, q: Posterior, batch: Batch, noise: Noise) -> Gradients:
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
    objective: Objective, q: Posterior, batch: Batch, noise: Noise
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
