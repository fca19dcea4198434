"""Trained networks -> the densities and draws of their validation rows."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch

from skbayesnn._inference.plan import Rows
from skbayesnn._inference.posterior import Posterior


def validation_score(posterior: Posterior, rows: Rows, n_draws: int) -> torch.Tensor:
    """Mean log predictive density of each member's validation rows, (members,)."""
    x, y, weights = rows.validation()
    density = _log_density(posterior, x, y, n_draws)
    return (density * weights).sum(1) / weights.sum(1)


def validation_density(
    posterior: Posterior, rows: Rows, n_draws: int, parts: Iterable[np.ndarray]
) -> Iterator[torch.Tensor]:
    """Log predictive density of the validation rows (eq. 8), (members, rows).

    Rows that a member has fewer than others are filled up behind its own.

    parts : members by index, some at a time
    """
    x, y, _ = rows.validation()
    for members in parts:
        yield _log_density(
            posterior.select(members), _of(x, members), _of(y, members), n_draws
        )


def validation_draws(
    posterior: Posterior, rows: Rows, n_draws: int, parts: Iterable[np.ndarray]
) -> Iterator[torch.Tensor]:
    """The likelihood's ``held_out_draws`` for the validation rows.

    returns : (members, rows, ..., targets) by part, as ``validation_density``
    """
    x, y, _ = rows.validation()
    for members in parts:
        some = posterior.select(members)
        with torch.no_grad():
            outputs = some.outputs_of(_of(x, members), n_draws)
            yield some.likelihood.held_out_draws(
                some.likelihood_params, outputs, _of(y, members)
            )


def _log_density(posterior: Posterior, x, y, n_draws: int) -> torch.Tensor:
    with torch.no_grad():
        outputs = posterior.outputs_of(x, n_draws)
        density = posterior.likelihood.log_density(
            posterior.likelihood_params, outputs, y
        )
        return density.logsumexp(0) - math.log(len(outputs))


def _of(values: torch.Tensor, members: np.ndarray) -> torch.Tensor:
    """Some members' share of what may be the same for all."""
    return values if len(values) == 1 else values[torch.as_tensor(members)]
