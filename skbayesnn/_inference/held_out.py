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
    """What validation rows tell the likelihood of its ``noise_of_predictions``.

    returns : (members, rows, numbers, targets), filled up as ``validation_density``
    """
    x, y, _ = rows.validation()
    likelihood, params = posterior.likelihood, posterior.likelihood_params
    with torch.no_grad():
        outputs = posterior.outputs_of(x, n_draws)
        return likelihood.held_out_moments(params, outputs, y)
