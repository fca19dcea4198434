"""Estimate the noise precision tau of anchored ensembles on held-out rows.

A member that is fitted to perturbed y (`RowPerturbation`) needs tau in its training. If
tau is learned with the weights by eq. 1, 1 / tau is the mean squared residual of the
member. The residual contains a share gamma / N of the perturbation, whose variance is
1 / tau; gamma is the effective number of parameters. Under a wide prior gamma is near
N: the estimate of tau then equals the tau of the perturbation, whatever its value.

Instead, ensembles are trained without the held-out rows. Their tau starts at
1 / variance of y and moves stepwise towards an estimate on these rows, which maximises

      sum_n w_n max(log N(y_n; mean_t f_tn, var_t f_tn + s^2 v_n), c) + log s

in the factor s on the standard deviation. f_tn is the output of network t at row n, v_n
the present noise variance, and c is 30 nats below most rows. An ensemble has few,
nearly normal outputs, so a normal distribution replaces their mixture. If the spread of
the outputs alone explains the residuals, the estimated noise would be zero. The term
log s, a gamma prior, keeps it about one standard error above zero [Chung et al. 2013,
"A nondegenerate penalized likelihood estimator for variance parameters in multilevel
models", Psychometrika 78].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from skbayesnn._distributions.map_factor import map_estimate
from skbayesnn._engine.config import Hook, MemberRows
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.training import validation_draws

# Share of the training before the first update of tau. Earlier, the networks are still
# near their anchors.
_START = 0.2
# Share of the training after which tau is not updated.
_END = 0.75
# Number of updates per training, if they were made from its start to its end.
_N_UPDATES = 20
# A step of log s is this share of the distance to the estimate.
_STEP_SHARE = 0.5
# Largest step of log s.
_MAX_STEP = np.log(2.0)
# Range of log s.
_LOG_FACTORS = np.log(1e-4), np.log(1e4)


def estimate_noise_variance(
    draws: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the mean noise variance on held-out rows.

    draws : residuals, noise variances, and mean noise variances over rows, of the draws
        of all networks, (rows, 3, draws, targets); the ``held_out_draws`` of a Gaussian
        likelihood
    weights : (rows,)
    returns : log densities (rows, targets), nats, clipped for outliers; and the log of
        the mean noise variance, (targets,)
    """
    densities, levels = [], []
    for residual, variance, noise_level in draws.transpose(3, 1, 2, 0):
        log_level = np.average(np.log(noise_level[0]), weights=weights)
        at_level = (variance / noise_level).mean(0) * np.exp(log_level)
        density = partial(
            _log_density, np.square(residual.mean(0)), residual.var(0), at_level
        )
        of_target, log_factor = map_estimate(
            density, weights, *_LOG_FACTORS, log_prior=lambda log: log, decimals=2
        )
        densities.append(of_target)
        levels.append(log_level + 2 * log_factor)
    return np.stack(densities, axis=1), np.array(levels)


def _log_density(
    squares, draw_variance, noise_variance, log_factor: float
) -> np.ndarray:
    """Log density of every row with the noise std times a factor, (rows,)."""
    variance = draw_variance + noise_variance * np.exp(2 * log_factor)
    return -0.5 * (squares / variance + np.log(2 * np.pi * variance))


def draws_together(networks: np.ndarray) -> np.ndarray:
    """Concatenate the ``held_out_draws`` of networks at the same rows.

    networks : (networks, rows, fields, draws, ...), or one network's (1, rows, ...)
    returns : (rows, fields, networks * draws, ...)
    """
    return networks[0] if len(networks) == 1 else np.concatenate(networks, axis=2)


def finite(draws: np.ndarray) -> np.ndarray:
    """Remove the draws of networks that have diverged in any fold.

    draws : (rows, fields, draws, targets)
    """
    return draws[:, :, np.isfinite(draws).all((0, 1, 3))]


@dataclass(frozen=True)
class Ensemble:
    """Networks that share one tau.

    Parameters
    ----------
    members : ndarray of shape (folds, networks), int
        Member indices in the program. The members of a fold share validation rows.
    n_epochs : int
        Number of epochs of their training.
    """

    members: np.ndarray
    n_epochs: int


class HeldOutTauUpdater(Hook):
    """Hook that moves the tau of ensembles towards the estimate on held-out rows.

    It writes tau into the parameters in training, so that the next steps use it.

    Parameters
    ----------
    rows : MemberRows
    ensembles : sequence of Ensemble
    n_draws : int
        Draws per network, if its weights are random.
    least_tau : ndarray of shape (members, targets)
        Lower bound of tau, 1 / variance of y.
    """

    def __init__(
        self,
        rows: MemberRows,
        ensembles: Sequence[Ensemble],
        n_draws: int,
        least_tau: np.ndarray,
    ):
        self._rows, self._ensembles, self._n_draws = rows, ensembles, n_draws
        self._least_log_tau = np.log(least_tau)

    def epoch_end(self, n_done, posterior):
        due_ensembles = [e for e in self._ensembles if _is_due(n_done, e.n_epochs)]
        if not due_ensembles:
            return
        parts = [ensemble.members.ravel() for ensemble in due_ensembles]
        weights = self._rows.validation()[2].double().cpu().numpy()
        draws_by_ensemble = validation_draws(
            posterior, self._rows, self._n_draws, parts
        )
        for ensemble, members, outputs in zip(
            due_ensembles, parts, draws_by_ensemble, strict=True
        ):
            by_fold = outputs.cpu().double().numpy()
            by_fold = by_fold.reshape(*ensemble.members.shape, *outputs.shape[1:])
            draws = np.concatenate([draws_together(fold) for fold in by_fold])
            fold_weights = weights[ensemble.members[:, 0] if len(weights) > 1 else [0]]
            self._follow(posterior, members, draws, fold_weights.ravel())

    def _follow(self, posterior: Posterior, members, draws, weights) -> None:
        draws = finite(draws)
        if not draws.size:
            return
        params = posterior.likelihood_params
        index = torch.as_tensor(members, device=posterior.device)
        log_tau = params["log_tau"][index[0]].double().cpu().numpy()
        log_factor = 0.5 * (estimate_noise_variance(draws, weights)[1] + log_tau)
        log_tau = log_tau - 2 * np.clip(_STEP_SHARE * log_factor, -_MAX_STEP, _MAX_STEP)
        bounded = np.maximum(log_tau, self._least_log_tau[members])
        params["log_tau"][index] = torch.as_tensor(bounded).to(params["log_tau"])


def _is_due(n_done: int, n_epochs: int) -> bool:
    """Whether tau is updated after ``n_done`` epochs."""
    interval = max(1, n_epochs // _N_UPDATES)
    return n_done % interval == 0 and _START * n_epochs <= n_done <= _END * n_epochs
