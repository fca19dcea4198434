"""Likelihoods p(y | f): network outputs -> nats, and -> predictive components."""

import torch

from skbayesnn._likelihoods.categorical import Categorical
from skbayesnn._likelihoods.gaussian import Gaussian, LikelihoodPullback, Precision
from skbayesnn._likelihoods.heteroscedastic import Heteroscedastic

__all__ = [
    "Categorical",
    "Gaussian",
    "Heteroscedastic",
    "Likelihood",
    "Precision",
    "nll_vjp",
]

Likelihood = Gaussian | Heteroscedastic | Categorical


def nll_vjp(
    likelihood: Likelihood,
    params: dict[str, torch.Tensor],
    outputs: torch.Tensor,
    y: torch.Tensor,
) -> tuple[torch.Tensor, LikelihoodPullback]:
    """A likelihood's ``nll`` and what takes gradients back through it.

    By the likelihood's own ``nll_vjp`` where it has one, else by autograd. To be
    called without autograd.

    returns : nll (members, rows), and its pullback
    """
    by_hand = getattr(likelihood, "nll_vjp", None)
    if by_hand is not None:
        return by_hand(params, outputs, y)
    learned = {
        name: params[name].detach().requires_grad_() for name in likelihood.trainable
    }
    outputs = outputs.detach().requires_grad_()
    with torch.enable_grad():
        nll = likelihood.nll(params | learned, outputs, y)

    def pullback(gradient):
        of_outputs, *of_learned = torch.autograd.grad(
            nll, [outputs, *learned.values()], gradient.expand_as(nll)
        )
        return of_outputs, dict(zip(learned, of_learned, strict=True))

    return nll.detach(), pullback
