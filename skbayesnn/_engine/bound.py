"""Estimate the evidence lower bound of trained networks by draws on training rows.

The bound is -F of eq. 1 at the final parameters. E_q[-log p] is averaged over several
weight draws per row, and KL(q || p) is added. A single draw per row, as in the last
epoch, would be off by tens of nats if units are dropped.

The number of draws depends on a network's rows and steps only, so that the bound does
not depend on the other members of the program. The draws take 1 to 2 % of the time of
the training. For large tables a random sample of the rows is used.
"""

from dataclasses import dataclass

import numpy as np
import torch

from skbayesnn._engine.config import Batch, MemberParams, MemberRows, TrainingConfig
from skbayesnn._engine.members import ByMember, select
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.step import RowPerturbation
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._priors import Prior

# Cost of the estimate as a share of the cost of the training. A cost is the number of
# units of all layers times the number of rows. A training step counts three times,
# because of its gradient.
_COST_SHARE = 0.015
# Overhead of a training step, in units.
_STEP_UNITS = 20_000
# Bounds of the cost of the estimate, in units.
_MIN_UNITS = 1 << 17
_MAX_UNITS = 1 << 23
# Number of groups of draws (or draws and rows) for the standard error.
_N_GROUPS = 16
# Activations of the widest layer that are in memory at once.
_MAX_VALUES = 1 << 20
# An epoch that no training reaches, so its random numbers are used only here.
_UNUSED_EPOCH = 1 << 40


@dataclass(frozen=True)
class Bound(ByMember):
    """Parts of -F, (members,) each, nats in the network's scale.

    Parameters
    ----------
    nll : ndarray
        E_q[-log p] per row.
    kl : ndarray
        KL(q || p), not divided by the number of rows.
    nll_error, kl_error : ndarray
        Standard errors of the two estimates.
    """

    nll: np.ndarray
    kl: np.ndarray
    nll_error: np.ndarray
    kl_error: np.ndarray


@dataclass(frozen=True)
class _DrawCounts:
    """The rows of a member that are used, and the number of draws per row.

    Parameters
    ----------
    rows : ndarray of int
        Indices of all its rows, or of a random sample.
    n_rows : int
        Number of its rows.
    n_passes, n_copies : int
        Every row has ``n_copies`` draws in each of ``n_passes`` passes.
    chunk : int
        Rows that are computed at once.
    """

    rows: np.ndarray
    n_rows: int
    n_passes: int
    n_copies: int
    chunk: int

    @classmethod
    def of(cls, config: TrainingConfig, n_rows: int, n_epochs: int) -> "_DrawCounts":
        """Choose the counts for a member's number of rows and epochs."""
        network = config.network
        per_step = _STEP_UNITS + 3 * config.batch_rows(n_rows) * network.n_units
        n_units = int(_COST_SHARE * n_epochs * config.n_batches * per_step)
        n_values = max(min(n_units, _MAX_UNITS), _MIN_UNITS) // network.n_units
        n_used = min(n_rows, max(1, n_values))
        n_draws = 1
        if network.stochastic and n_units >= _MIN_UNITS:
            n_draws = max(1, n_values // n_rows)
        n_passes = min(n_draws, _N_GROUPS)
        n_copies = n_draws // n_passes
        # With few passes, several chunks are needed to estimate the standard error.
        n_chunks = 1 if n_passes == 1 else -(-_N_GROUPS // n_passes)
        # A chunk holds the rows of all members, as a training step does.
        max_chunk = max(1, _MAX_VALUES // (n_copies * network.widest))
        max_chunk = min(max_chunk, 2 * config.batch_rows(n_rows))
        chunk = min(-(-n_used // n_chunks), max_chunk)
        rows = np.random.default_rng(n_rows).permutation(n_rows)[:n_used]
        return cls(np.sort(rows), n_rows, n_passes, n_copies, chunk)


def estimate_bound(
    config: TrainingConfig,
    members: MemberParams,
    rows: MemberRows,
    posterior: Posterior,
    priors: tuple[Prior, ...],
    perturbation: RowPerturbation | None = None,
) -> Bound:
    """Estimate the bound of a trained posterior.

    Call this before the noise variance is estimated from residuals.

    priors : prior of every parameter group
    perturbation : row perturbation of the training
    """
    n_members = posterior.n_members
    nll, nll_error = np.empty(n_members), np.empty(n_members)
    sizes = np.stack([rows.n_rows, members.n_epochs])
    distinct, size_index = np.unique(sizes, axis=1, return_inverse=True)
    for i, (n_rows, n_epochs) in enumerate(distinct.T):
        draws = _DrawCounts.of(config, int(n_rows), int(n_epochs))
        group = np.flatnonzero(size_index.ravel() == i)
        nll[group], nll_error[group] = _expected_nll(
            rows, posterior, perturbation, draws, group
        )
    kl, kl_error = _kl(config, posterior, priors)
    return Bound(nll, kl, nll_error, kl_error)


def _expected_nll(rows, posterior, perturbation, draws: _DrawCounts, group: np.ndarray):
    """E_q[-log p] per row and its standard error, for members of one size."""
    n_used, stochastic = len(draws.rows), posterior.network.stochastic
    row_nll, error = np.empty((len(group), n_used)), np.zeros(len(group))
    for i, start in enumerate(range(0, n_used, draws.chunk)):
        chunk = slice(start, start + draws.chunk)
        batch = _batch(rows, perturbation, draws, draws.rows[chunk])
        pass_nll = _pass_nlls(posterior, batch, rows.mean_weight, draws, group, i)
        row_nll[:, chunk] = pass_nll.mean(0)
        if draws.n_passes > 1:
            error += pass_nll.sum(2).var(0, ddof=1) / draws.n_passes
    error /= n_used**2
    if draws.n_passes == 1 and (stochastic or n_used < draws.n_rows):
        # The variance over rows includes the variances of the draws and the sample.
        error = row_nll.var(1, ddof=min(1, n_used - 1)) / n_used
    return row_nll.mean(1), np.sqrt(error)


def _batch(rows, perturbation, draws: _DrawCounts, indices: np.ndarray) -> Batch:
    """The rows with these indices, of all members."""
    order = torch.as_tensor(indices).to(rows.mean_weight.device).unsqueeze(0)
    if (rows.n_rows < draws.n_rows).any():
        # Clip the indices for members with fewer rows; they are not in the group.
        last = torch.as_tensor(rows.n_rows - 1).to(order).unsqueeze(1)
        order = order.minimum(last)
    batches = rows.batches(order, len(indices))
    if perturbation is not None:
        batches = perturbation.batches(batches, order, len(indices))
    return next(iter(batches))


def _pass_nlls(posterior, batch: Batch, mean_weight, draws: _DrawCounts, group, i: int):
    """Weighted nll of the rows of chunk i, (passes, members, rows)."""
    n_rows, n_copies = batch.x.shape[1], draws.n_copies
    results = np.empty((draws.n_passes, len(group), n_rows))
    step = max(1, _MAX_VALUES // (n_rows * n_copies * posterior.network.widest))
    for start in range(0, len(group), step):
        part = slice(start, start + step)
        subset = posterior.select(group[part])
        x, y, weights = select(batch[:3], group[part], shared=True)
        y = y.repeat_interleave(n_copies, 1)
        random = TrainingRandom(subset.seeds, subset.device, subset.dtype)
        for k in range(draws.n_passes):
            random.start_epoch(_UNUSED_EPOCH + i * draws.n_passes + k, 0)
            copies = x.repeat_interleave(n_copies, 1)
            outputs, _ = subset.network.vjp(subset.layers, subset.keep, copies, random)
            nll = subset.likelihood.nll(subset.likelihood_params, outputs, y)
            nll = nll.unflatten(1, (n_rows, n_copies)).mean(2)
            if weights is not None:
                nll *= weights / mean_weight[group[part]].unsqueeze(1)
            results[k, part] = nll.cpu().numpy()
    return results


def _kl(config: TrainingConfig, posterior: Posterior, priors: tuple[Prior, ...]):
    """KL(q || p) and its standard error; averaged over draws unless it is exact."""
    random = TrainingRandom(posterior.seeds, posterior.device, posterior.dtype)
    values: list[np.ndarray] = []
    while len(values) < _N_GROUPS:
        random.start_epoch(_UNUSED_EPOCH - 1 - len(values), 0)
        kl = posterior.network.kl(
            posterior.layers, posterior.keep, priors, random.shared_by_rows
        )
        values.append(kl.cpu().double().numpy())
        if len(values) == 2 and np.array_equal(values[0], values[1]):
            break
    draws = np.stack(values)
    return draws.mean(0), draws.std(0, ddof=1) / np.sqrt(len(draws))
