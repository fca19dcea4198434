"""Trained networks -> what they say of the rows that are held out."""

import math

import torch

from skbayesnn._inference.plan import Rows
from skbayesnn._inference.posterior import Posterior


def validation_score(posterior: Posterior, rows: Rows, n_draws: int) -> torch.Tensor:
    """Mean of ``validation_density`` over rows, (members,)."""
    weights = rows.validation()[2]
    density = validation_density(posterior, rows, n_draws)
    return (density * weights).sum(1) / weights.sum(1)


def validation_density(posterior: Posterior, rows: Rows, n_draws: int) -> torch.Tensor:
    """Log predictive density of the validation rows (eq. 8), (members, rows).

    Rows that a member has fewer than others are filled up behind its own.
    """
    x, y, _ = rows.validation()
    with torch.no_grad():
        outputs = posterior.outputs_of(x, n_draws)
        density = posterior.likelihood.log_density(
            posterior.likelihood_params, outputs, y
        )
        return density.logsumexp(0) - math.log(len(outputs))


def validation_moments(posterior: Posterior, rows: Rows, n_draws: int) -> torch.Tensor:
    """Residuals of the validation rows, their variance by draws, and their noise.

    The noise as the components have it beside their mean, on average over draws: its
    variance, or scale and degrees of freedom.

    returns : (members, rows, numbers, targets), filled up as ``validation_density``
    """
    x, y, _ = rows.validation()
    with torch.no_grad():
        mean, *noise = posterior.components(posterior.outputs_of(x, n_draws))
        of_noise = [values.mean(0) for values in noise]
        said = y - mean.mean(0), mean.var(0, correction=0), *of_noise
        return torch.stack(said, dim=2)
