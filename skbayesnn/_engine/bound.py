"""The evidence lower bound of trained networks, by draws on their training rows.

-F of eq. 1 at the parameters that are kept: E_q[-log p] is averaged over several draws
of the training's noise, and KL(q || p) is added. One draw per row, as the last epoch
has, is off by tens of nats where units are dropped.

The number of draws depends on a network's own rows and steps alone, so that it has the
same bound among other networks as by itself. The draws take one or two hundredths of
the time of the training. Of large tables a random sample of the rows is used.
"""

from dataclasses import dataclass

import numpy as np
import torch

from skbayesnn._engine.config import MemberParams, Rows, TrainingConfig
from skbayesnn._engine.objective import Batch, priors_of
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.step import RowPerturbation
from skbayesnn._engine.training_random import TrainingRandom

# Share of the cost of the training. Cost is counted in units of the layers, three times
# as many for a step with its gradient; what else a step costs, in units; bounds.
_SHARE, _UNITS_OF_STEP, _FEWEST_UNITS, _MOST_UNITS = 0.015, 20_000, 1 << 17, 1 << 23
# Groups of draws, or of draws and rows, whose spread makes the standard error.
_GROUPS = 16
# Numbers of the widest layer that are held at once.
_NUMBERS = 1 << 20
# An epoch that no training reaches: its noise is used nowhere else.
_FIRST_EPOCH = 1 << 40


@dataclass(frozen=True)
class Bound:
    """Parts of -F, (members,) each, nats in the network's scale.

    Parameters
    ----------
    nll : ndarray
        E_q[-log p], per row.
    kl : ndarray
        KL(q || p), of all rows together.
    nll_error, kl_error : ndarray
        Standard errors of these two.
    """

    nll: np.ndarray
    kl: np.ndarray
    nll_error: np.ndarray
    kl_error: np.ndarray

    def select(self, members: np.ndarray) -> "Bound":
        """Some of the members, by index."""
        return Bound(*(values[members] for values in vars(self).values()))


@dataclass(frozen=True)
class _Draws:
    """The rows of a member that are used, and the number of draws of each.

    Parameters
    ----------
    rows : ndarray of int
        All of its rows, or a random sample.
    n_rows : int
        The number of all its rows.
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
    def of(cls, plan: TrainingConfig, n_rows: int, n_epochs: int) -> "_Draws":
        """Of a member that is trained on so many rows, for so many epochs."""
        network = plan.network
        per_step = _UNITS_OF_STEP + 3 * plan.batch_rows(n_rows) * network.n_units
        n_units = int(_SHARE * n_epochs * plan.n_batches * per_step)
        n_values = max(min(n_units, _MOST_UNITS), _FEWEST_UNITS) // network.n_units
        n_used = min(n_rows, max(1, n_values))
        n_draws = 1
        if network.stochastic and n_units >= _FEWEST_UNITS:
            n_draws = max(1, n_values // n_rows)
        n_passes = min(n_draws, _GROUPS)
        n_copies = n_draws // n_passes
        # Few passes need several chunks for their spread to be known.
        n_chunks = 1 if n_passes == 1 else -(-_GROUPS // n_passes)
        # Rows of all members are gathered, as in the steps of the training.
        most = max(1, _NUMBERS // (n_copies * network.widest))
        most = min(most, 2 * plan.batch_rows(n_rows))
        chunk = min(-(-n_used // n_chunks), most)
        rows = np.random.default_rng(n_rows).permutation(n_rows)[:n_used]
        return cls(np.sort(rows), n_rows, n_passes, n_copies, chunk)


def bound_of(
    plan: TrainingConfig,
    members: MemberParams,
    rows: Rows,
    posterior: Posterior,
    perturbation: RowPerturbation | None = None,
) -> Bound:
    """Of a trained posterior, with the noise of y that it was trained with.

    perturbation : of the training
    """
    n_members = posterior.n_members
    nll, nll_error = np.empty(n_members), np.empty(n_members)
    sizes = np.stack([rows.n_rows, members.n_epochs])
    distinct, of_member = np.unique(sizes, axis=1, return_inverse=True)
    for i, (n_rows, n_epochs) in enumerate(distinct.T):
        draws = _Draws.of(plan, int(n_rows), int(n_epochs))
        group = np.flatnonzero(of_member.ravel() == i)
        found = _expected_nll(rows, posterior, perturbation, draws, group)
        nll[group], nll_error[group] = found
    kl, kl_error = _kl(plan, members, posterior)
    return Bound(nll, kl, nll_error, kl_error)


def _expected_nll(rows, posterior, perturbation, draws: _Draws, group: np.ndarray):
    """E_q[-log p] per row, and its standard error, of some members of one size."""
    n_used, stochastic = len(draws.rows), posterior.network.stochastic
    of_rows, error = np.empty((len(group), n_used)), np.zeros(len(group))
    for i, start in enumerate(range(0, n_used, draws.chunk)):
        chunk = slice(start, start + draws.chunk)
        batch = _batch(rows, perturbation, draws, draws.rows[chunk])
        found = _of_passes(posterior, batch, rows.mean_weight, draws, group, i)
        of_rows[:, chunk] = found.mean(0)
        if draws.n_passes > 1:
            error += found.sum(2).var(0, ddof=1) / draws.n_passes
    error /= n_used**2
    if draws.n_passes == 1 and (stochastic or n_used < draws.n_rows):
        # The spread over rows has both the draws' and the sample's.
        error = of_rows.var(1, ddof=min(1, n_used - 1)) / n_used
    return of_rows.mean(1), np.sqrt(error)


def _batch(rows, perturbation, draws: _Draws, numbers: np.ndarray) -> Batch:
    """Rows by their numbers, of all members."""
    order = torch.as_tensor(numbers).to(rows.mean_weight.device).unsqueeze(0)
    if (rows.n_rows < draws.n_rows).any():
        # Members with fewer rows are not among the group.
        last = torch.as_tensor(rows.n_rows - 1).to(order).unsqueeze(1)
        order = order.minimum(last)
    batches = (Batch(*parts) for parts in rows.batches(order, len(numbers)))
    if perturbation is not None:
        batches = perturbation.batches(batches, order, len(numbers))
    return next(iter(batches))


def _of_passes(posterior, batch: Batch, mean_weight, draws: _Draws, group, i: int):
    """Weighted nll of the rows of the i-th chunk, (passes, members, rows)."""
    n_rows, n_copies = batch.x.shape[1], draws.n_copies
    found = np.empty((draws.n_passes, len(group), n_rows))
    step = max(1, _NUMBERS // (n_rows * n_copies * posterior.network.widest))
    for start in range(0, len(group), step):
        part = slice(start, start + step)
        one = posterior.select(group[part])
        x, y, weights = (_of(values, group[part]) for values in batch[:3])
        y = y.repeat_interleave(n_copies, 1)
        noise = TrainingRandom(one.seeds, one.device, one.dtype)
        for k in range(draws.n_passes):
            noise.start_epoch(_FIRST_EPOCH + i * draws.n_passes + k, 0)
            copies = x.repeat_interleave(n_copies, 1)
            outputs, _ = one.network.vjp(one.layers, one.keep, copies, noise)
            nll = one.likelihood.nll(one.likelihood_params, outputs, y)
            nll = nll.unflatten(1, (n_rows, n_copies)).mean(2)
            if weights is not None:
                nll *= weights / _of(mean_weight, group[part]).unsqueeze(1)
            found[k, part] = nll.cpu().numpy()
    return found


def _of(values: torch.Tensor | None, members: np.ndarray):
    """Some members' share of what may be the same for all, or None."""
    if values is None or len(values) == 1:
        return values
    return values[torch.as_tensor(members, device=values.device)]


def _kl(plan: TrainingConfig, members: MemberParams, posterior: Posterior):
    """KL(q || p) and its standard error, by several draws where it is estimated."""
    priors = priors_of(plan, members, posterior)
    noise = TrainingRandom(members.seeds, posterior.device, posterior.dtype)
    values: list[np.ndarray] = []
    most = 2 if plan.horizon else _GROUPS
    while len(values) < most:
        noise.start_epoch(_FIRST_EPOCH - 1 - len(values), 0)
        kl = posterior.network.kl(
            posterior.layers, posterior.keep, priors, noise.of_weights
        )
        values.append(kl.cpu().double().numpy())
        if len(values) == 2 and np.array_equal(values[0], values[1]):
            break
    draws = np.stack(values)
    return draws.mean(0), draws.std(0, ddof=1) / np.sqrt(len(draws))
