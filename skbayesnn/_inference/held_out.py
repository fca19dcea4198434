"""Trained networks -> what they say of the rows that are held out."""

import math

import torch

from skbayesnn._inference.plan import Rows
from skbayesnn._inference.posterior import Posterior


def validation_score(
    posterior: Posterior, rows: Rows, n_draws: int
) -> torch.Tensor:
    """Mean log predictive density of the validation rows (eq. 8), (members,)."""
    x, y, weights = rows.validation()
    n_draws = posterior.distinct_draws(n_draws)
    with torch.no_grad():
        outputs = posterior.outputs(x, range(n_draws))
        density = posterior.likelihood.log_density(
            posterior.likelihood_params, outputs, y
        )
        density = density.logsumexp(0) - math.log(n_draws)
        return (density * weights).sum(1) / weights.sum(1)


def validation_moments(
    posterior: Posterior, rows: Rows, n_draws: int
) -> tuple[torch.Tensor, ...]:
    """Residuals of the validation rows, and their variance by draws and by noise.

    returns : (members, rows, targets) each; rows that a member has fewer than others
        are filled up behind its own
    """
    x, y, _ = rows.validation()
    with torch.no_grad():
        # One after the other: hidden layers are much larger than what comes out.
        draws = range(posterior.distinct_draws(n_draws))
        outputs = torch.cat([posterior.outputs(x, draws[i : i + 1]) for i in draws])
        mean, noise = posterior.components(outputs)
        return y - mean.mean(0), mean.var(0, correction=0), noise.mean(0)
