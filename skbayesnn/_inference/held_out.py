"""Trained networks -> what they say of the rows that are held out."""

import math

import torch

from skbayesnn._inference.plan import Rows
from skbayesnn._inference.posterior import Posterior


def validation_score(posterior: Posterior, rows: Rows, n_draws: int) -> torch.Tensor:
    """Mean of ``validation_density`` over rows, (members,)."""
    weights = rows.validation()[2]
    density = validation_density(posterior, rows, n_draws)[:, 0]
    return (density * weights).sum(1) / weights.sum(1)


def validation_density(posterior: Posterior, rows: Rows, n_draws: int) -> torch.Tensor:
    """Log predictive density of the validation rows (eq. 8), (members, 1, rows).

    Rows that a member has fewer than others are filled up behind its own.
    """
    x, y, _ = rows.validation()
    n_draws = posterior.distinct_draws(n_draws)
    with torch.no_grad():
        outputs = posterior.outputs(x, range(n_draws))
        density = posterior.likelihood.log_density(
            posterior.likelihood_params, outputs, y
        )
        return (density.logsumexp(0) - math.log(n_draws)).unsqueeze(1)


def validation_moments(posterior: Posterior, rows: Rows, n_draws: int) -> torch.Tensor:
    """Residuals of the validation rows, and their variance by draws and by noise.

    returns : (members, 3, rows, targets), filled up as ``validation_density``
    """
    x, y, _ = rows.validation()
    with torch.no_grad():
        # One after the other: hidden layers are much larger than what comes out.
        draws = range(posterior.distinct_draws(n_draws))
        outputs = torch.cat([posterior.outputs(x, draws[i : i + 1]) for i in draws])
        mean, noise = posterior.components(outputs)
        said = y - mean.mean(0), mean.var(0, correction=0), noise.mean(0)
        return torch.stack(said, dim=1)
