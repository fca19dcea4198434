"""The noise of y that ensembles are trained under, estimated on held-out rows.

A member that is fitted to y with noise of its own (`_inference/perturbation.py`) needs
tau in its training. Learned with the weights by eq. 1, 1 / tau is the mean square of y
less the member's function. That residual holds a share gamma / N of the member's own
noise, with gamma the effective number of parameters. Where that is near N, as under a
wide prior, any tau reproduces itself.

Instead, ensembles are trained without some rows. Their tau starts at 1 / variance of y
and follows, step by step, an estimate by these rows, which maximises

      sum_n w_n max(log N(y_n; mean_t f_tn, var_t f_tn + s^2 v_n), c) + log s

in the factor s on the standard deviation. f_tn is the function of network t at row n,
v_n the variance of the noise so far, and c is 30 nats below most rows. The functions of
an ensemble are few and nearly normal, so that a normal distribution stands for their
mixture. Where their spread explains the residuals by itself, the noise would be zero:
log s, a gamma prior, keeps it about one standard error above [Chung et al. 2013, "A
nondegenerate penalized likelihood estimator for variance parameters in multilevel
models", Psychometrika 78].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from skbayesnn._distributions.map_factor import (
    least_density,
    minimise_on_grid,
    without_outliers,
)
from skbayesnn._engine.config import Hook, Rows
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.training import validation_draws

# Shares of the training between which tau follows the estimate, and how often in all of
# it. Before, the networks are still near their anchors.
_FIRST, _LAST, _UPDATES = 0.2, 0.75, 20
# Of a step of log s: the share of the way to the estimate, and the most.
_SHARE, _LARGEST = 0.5, np.log(2.0)
# The range of factors, and by how many nats a row is an outlier.
_FACTORS, _OUTLIER = (1e-4, 1e4), 30.0


def likeliest_level(
    draws: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The level of the noise, as held-out rows have it.

    draws : residuals, noise variances and levels, (rows, 3, draws, targets), as of the
        ``held_out_draws`` of a Gaussian likelihood; the draws are those of all networks
    weights : (rows,)
    returns : log densities (rows, targets), nats, bounded for outliers; and the log of
        the level, a variance, (targets,)
    """
    densities, levels = [], []
    for residual, variance, level in draws.transpose(3, 1, 2, 0):
        log_level = np.average(np.log(level[0]), weights=weights)
        at_level = (variance / level).mean(0) * np.exp(log_level)
        density = partial(
            _log_density, np.square(residual.mean(0)), residual.var(0), at_level
        )
        log_factor = _log_factor(density, weights)
        densities.append(without_outliers(density(log_factor), weights, _OUTLIER))
        levels.append(log_level + 2 * log_factor)
    return np.stack(densities, axis=1), np.array(levels)


def _log_density(squares, of_draws, of_noise, log_factor: float) -> np.ndarray:
    """Of every row, with the std of the noise times a factor, (rows,)."""
    variance = of_draws + of_noise * np.exp(2 * log_factor)
    return -0.5 * (squares / variance + np.log(2 * np.pi * variance))


def _log_factor(density, weights) -> float:
    """log s of the highest density of the rows and the prior."""
    least = least_density(density(0.0), weights, _OUTLIER)

    def loss(log_factor):
        return -(weights @ np.maximum(density(log_factor), least) + log_factor)

    # Finer than rows can tell, and the same whatever the order of sums.
    return float(np.round(minimise_on_grid(loss, *np.log(_FACTORS)), 2))


def draws_together(networks: np.ndarray) -> np.ndarray:
    """The ``held_out_draws`` of networks at the same rows, one after the other.

    networks : (networks, rows, fields, draws, ...), or one network's (1, rows, ...)
    returns : (rows, fields, networks * draws, ...)
    """
    return networks[0] if len(networks) == 1 else np.concatenate(networks, axis=2)


def finite(draws: np.ndarray) -> np.ndarray:
    """Without the draws of networks that have diverged in any fold.

    draws : (rows, fields, draws, targets)
    """
    return draws[:, :, np.isfinite(draws).all((0, 1, 3))]


@dataclass(frozen=True)
class Ensemble:
    """Networks that estimate one tau.

    Parameters
    ----------
    members : ndarray of shape (folds, networks), int
        Their numbers in the program. Those of a fold have the same validation rows.
    n_epochs : int
        Of their training.
    """

    members: np.ndarray
    n_epochs: int


class TauOfHeldOut(Hook):
    """Lets the tau of ensembles in training follow what their held-out rows estimate.

    Parameters
    ----------
    rows : Rows
    ensembles : sequence of Ensemble
    n_draws : int
        Of each network, where its weights are random.
    least_tau : ndarray of shape (members, targets)
        Below which tau does not fall: 1 / variance of y.
    """

    def __init__(
        self,
        rows: Rows,
        ensembles: Sequence[Ensemble],
        n_draws: int,
        least_tau: np.ndarray,
    ):
        self._rows, self._ensembles, self._n_draws = rows, ensembles, n_draws
        self._least_log_tau = np.log(least_tau)

    def epoch_end(self, n_done, posterior):
        """Each ensemble at its own times."""
        due = [one for one in self._ensembles if _is_due(n_done, one.n_epochs)]
        if not due:
            return
        parts = [one.members.ravel() for one in due]
        weights = self._rows.validation()[2].double().cpu().numpy()
        found = validation_draws(posterior, self._rows, self._n_draws, parts)
        for one, members, values in zip(due, parts, found, strict=True):
            by_fold = values.cpu().double().numpy()
            by_fold = by_fold.reshape(*one.members.shape, *values.shape[1:])
            draws = np.concatenate([draws_together(fold) for fold in by_fold])
            of_folds = weights[one.members[:, 0] if len(weights) > 1 else [0]]
            self._follow(posterior, members, draws, of_folds.ravel())

    def _follow(self, posterior: Posterior, members, draws, weights) -> None:
        draws = finite(draws)
        if not draws.size:
            return
        params = posterior.likelihood_params
        index = torch.as_tensor(members, device=posterior.device)
        log_tau = params["log_tau"][index[0]].double().cpu().numpy()
        way = 0.5 * (likeliest_level(draws, weights)[1] + log_tau)
        log_tau = log_tau - 2 * np.clip(_SHARE * way, -_LARGEST, _LARGEST)
        moved = np.maximum(log_tau, self._least_log_tau[members])
        params["log_tau"][index] = torch.as_tensor(moved).to(params["log_tau"])


def _is_due(n_done: int, n_epochs: int) -> bool:
    """Whether tau moves after so many epochs."""
    apart = max(1, n_epochs // _UPDATES)
    return n_done % apart == 0 and _FIRST * n_epochs <= n_done <= _LAST * n_epochs
