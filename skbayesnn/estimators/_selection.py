"""Prior length scale, training length and noise, as rows that are held out have them.

How wide a prior of the weights has to be, how soon training over-fits, and what is left
of y, is for the data to say: where classes are well apart a wide prior, and long; where
they overlap a narrow one, or not so long. A task that leaves this open gets, for every
setting and fold, a network without the fold, in one program for each length; the
setting whose networks give the held-out y the highest density is that of the fit to all
rows, and so is the noise under which they do.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby, zip_longest

import numpy as np
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skbayesnn._data.training_rows import RowSubset
from skbayesnn._engine.config import MemberParams
from skbayesnn._engine.held_out_tau import (
    Ensemble,
    TauOfHeldOut,
    draws_together,
    finite,
    likeliest_level,
)
from skbayesnn._engine.training import (
    start,
    train,
    validation_density,
    validation_draws,
)
from skbayesnn._likelihoods import Likelihood
from skbayesnn._runtime import warn
from skbayesnn.estimators._job import MOST_ENTRIES, Setting, TrainingJob, joined

# Parts of the rows, and how many of them are held out: all, or from so many rows on two
# or one, which say as much at less of the cost (docs/defaults.md, "Selection on
# held-out rows").
_N_FOLDS, _FOLDS_FROM = 5, {700: 2, 5000: 1}
# Of the predictive of held-out rows.
_N_DRAWS = 50
# An ensemble, of which only the noise is open, has parts held out until these are about
# so many rows. At most so many of its networks are trained without a part, and so many
# in all, for this share of their epochs, but for so many steps at least.
_ENSEMBLE_ROWS, _OF_A_PART, _OF_ALL_PARTS = 60, 10, 25
_ENSEMBLE_SHARE, _ENSEMBLE_STEPS = 0.5, 600
# Mean square of held-out residuals, in variances of y, from which a fit is warned of:
# of a few rows of nothing but noise it may be two.
_FAR_OFF = 3.0
# That are looked at in each part; all of them are left out of the training.
_MOST_HELD_OUT = 10_000


@dataclass(frozen=True)
class HeldOutScore:
    """What the held-out rows say of a setting.

    Parameters
    ----------
    density : ndarray of shape (rows,)
        Of every row, log density in nats; not a number where the loss became infinite;
        no rows where none can be held out.
    weights : ndarray of shape (rows,)
    noise : dict of ndarray of shape (targets,), or None
        The likelihood's ``predictive_params``, under which the density is; None
        where the noise is not for them to say.
    error : float
        Of an ensemble: mean square of the residuals, in variances of y, of the target
        where it is largest.
    """

    density: np.ndarray
    weights: np.ndarray
    noise: dict[str, np.ndarray] | None = None
    error: float = 0.0

    @cached_property
    def score(self) -> float:
        """Of all rows, nats; minus infinity where there is none."""
        total = float(self.weights @ self.density)
        return total if self.weights.any() and np.isfinite(total) else -np.inf

    def is_better_than(self, other: "HeldOutScore") -> bool:
        """By more than the standard error, over rows, of the difference."""
        if self.score <= other.score:
            return False
        if not np.isfinite(other.score):
            return True
        apart = self.density - other.density
        mean = np.average(apart, weights=self.weights)
        squares = self.weights @ np.square(apart - mean)
        return self.score - other.score > np.sqrt(squares)


_NOTHING = HeldOutScore(np.empty(0), np.empty(0))


def select_settings(
    jobs: Sequence[TrainingJob], device: torch.device, dtype: torch.dtype
) -> list[TrainingJob]:
    """The tasks of one program; those that leave something open have chosen."""
    jobs = list(jobs)
    still_open = [i for i, job in enumerate(jobs) if job.needs_selection]
    # No more networks at once than the program itself has.
    n_members = sum(job.n_members for job in jobs)
    while still_open:
        n_each = max(_n_networks(jobs[i]) for i in still_open)
        n_at_once = max(1, n_members // n_each)
        part, still_open = still_open[:n_at_once], still_open[n_at_once:]
        judged = judgements([jobs[i] for i in part], device, dtype)
        for i, of_job in zip(part, judged, strict=True):
            jobs[i] = _with_best_setting(jobs[i], of_job)
        _warn_if_far_off(max(one.error for of_job in judged for one in of_job))
    untold = [t for t in jobs if t.estimates_variance and t.noise is None]
    if untold:
        _warn_of_noise(untold[0])
    return jobs


def _warn_of_noise(job: TrainingJob) -> None:
    """Say that no row outside of the training has told what the noise is."""
    n_rows, n_inputs = len(job.shares[0].rows), job.table.X.shape[1]
    if n_rows * n_inputs >= MOST_ENTRIES:
        why = f"X has {n_rows * n_inputs:,} numbers, and of {MOST_ENTRIES:,} or more"
    else:
        why = f"of {n_rows} rows too few differ, or the networks diverged, so that"
    likelihood = job.config.likelihood
    given = "tau" if likelihood.learned else ""
    if "predictive_log_df" in likelihood.predictive_params:
        given += f"{' and ' if given else ''}likelihood_options={{'df': ...}}"
    warn(
        f"{why} none are held out to tell the noise of y: it is that of rows that the "
        "weights were fitted to, and intervals may be too narrow. Put "
        f"CalibratedUncertaintyRegressor around the estimator, or give {given}."
    )


def _warn_if_far_off(error: float) -> None:
    """Where a constant would predict held-out rows better."""
    if error > _FAR_OFF:
        warn(
            "held-out rows are predicted worse than by their mean: the mean squared "
            f"error is {error:.2g} times the variance of y. Functions of the prior are "
            "too wide for so few rows, or the training has diverged. Raise "
            "length_scale ('auto' and 'fan_in' follow the width of the layers), or "
            "lower learning_rate_init.",
            ConvergenceWarning,
        )


def judgements(
    jobs: Sequence[TrainingJob], device: torch.device, dtype: torch.dtype
) -> list[list[HeldOutScore]]:
    """On all settings of each task, in their order."""
    judged: list[list[HeldOutScore]] = [[] for _ in jobs]
    for program in zip_longest(*map(_without_folds, jobs)):
        there = [i for i, job in enumerate(program) if job]
        found = _of_program([program[i] for i in there], device, dtype)
        for i, of_job in zip(there, found, strict=True):
            judged[i] += of_job
    return judged


def _of_program(jobs, device, dtype) -> list[list[HeldOutScore]]:
    """As ``judgements``, on tasks that leave the folds out already."""
    trained = [job for job in jobs if job.shares]
    if not trained:
        return [[_NOTHING] * len(job.settings) for job in jobs]
    members, design = joined(trained, device, dtype)
    config = trained[0].config
    hooks = []
    if trained[0].estimates_tau:
        ensembles = _ensembles(trained)
        hooks.append(TauOfHeldOut(design, ensembles, _N_DRAWS, members.tau))
    posterior = start(config, members, device, dtype)
    of_all = train(config, members, design, posterior, hooks=hooks)
    judgement: Callable[..., HeldOutScore]
    if trained[0].estimates_tau:
        judgement, predicted = _by_level, validation_draws
    elif trained[0].estimates_variance:
        judgement = partial(_by_noise, config.likelihood)
        predicted = validation_draws
    else:
        judgement, predicted = _by_density, validation_density
    ends = np.cumsum([job.n_members for job in jobs])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    # Draws take much memory: those of one task at a time.
    by_job = predicted(
        of_all.posterior, design, _N_DRAWS, [part for part in parts if len(part)]
    )
    failed = np.split(of_all.failed > 0, ends[:-1])
    judged = []
    for job in jobs:
        if not job.shares:
            judged.append([_NOTHING] * len(job.settings))
            continue
        values = next(by_job).cpu().double().numpy()
        values[failed[len(judged)]] = np.nan
        judged.append(_of_settings(job, values, judgement))
    return judged


def _ensembles(jobs: Sequence[TrainingJob]) -> list[Ensemble]:
    """Of every task in turn those of its settings."""
    found, first = [], 0
    for job in jobs:
        numbers = first + np.arange(job.n_members)
        first += job.n_members
        by_setting = numbers.reshape(len(job.shares), len(job.settings), -1)
        n_epochs = int(job.members.n_epochs[0])
        found += [Ensemble(one, n_epochs) for one in by_setting.swapaxes(0, 1)]
    return found


def _of_settings(job: TrainingJob, said: np.ndarray, judgement) -> list[HeldOutScore]:
    """said : (networks, rows, ...), the networks by fold and setting"""
    rows = [one.validation for one in job.shares]
    of_all = np.concatenate(rows)
    y, weights = job.table.y[of_all], job.table.sample_weight[of_all]
    by_setting = said.reshape(
        len(rows), len(job.settings), -1, *said.shape[1:]
    ).swapaxes(0, 1)
    judged = []
    for of_folds in by_setting:
        own = np.concatenate(
            [
                draws_together(networks[:, : len(held)])
                for networks, held in zip(of_folds, rows, strict=True)
            ]
        )
        one = judgement(own, y, weights)
        if job.estimates_tau:
            one = replace(one, error=_error(job, own, weights))
        judged.append(one)
    return judged


def _error(job: TrainingJob, draws: np.ndarray, weights: np.ndarray) -> float:
    """Of a ``HeldOutScore``.

    draws : (rows, fields, draws, targets), the residuals first
    """
    draws = finite(draws)
    if not (weights.any() and draws.size):
        return 0.0
    squares = np.square(draws[:, 0].mean(1))
    error = np.average(squares, axis=0, weights=weights) * job.members.tau[0]
    return float(error.max())


def folds_of(X, labels: np.ndarray | None = None) -> np.ndarray:
    """The part that every row is held out with, (rows,); -1: with none.

    Rows that are the same are held out together, and the classes are spread over the
    parts; the only row of a class stays. Nothing but the rows has a say: neither their
    order nor how often they are there.
    """
    X = X.toarray() if sparse.issparse(X) else X
    labels = np.zeros(len(X)) if labels is None else labels
    rows, number = np.unique(np.column_stack([labels, X]), axis=0, return_inverse=True)
    labels = rows[:, 0]
    order = np.random.RandomState(0).permutation(len(rows))
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(rows), dtype=int)
    fold[order] = np.arange(len(rows)) % _N_FOLDS
    _, of_class, n_rows = np.unique(labels, return_inverse=True, return_counts=True)
    fold[n_rows[of_class] == 1] = -1
    return fold[number.ravel()]


def _without_folds(job: TrainingJob) -> list[TrainingJob]:
    """Networks for every fold and setting; none where no row can be held out.

    One network each, or several of an ensemble whose noise is open. There is one task
    for each training length: in one program, short trainings would be computed for as
    long as the longest.
    """
    [share] = job.shares
    table, rows = job.table, share.rows
    weights = np.zeros(table.n_rows)
    weights[rows] = share.weights
    of_classes = job.config.likelihood.of_classes
    fold = folds_of(table.X[rows], table.codes[rows] if of_classes else None)
    held_out = [fold == i for i in np.unique(fold[fold >= 0])[: _n_folds(job)]]
    config = replace(
        job.config,
        patience=None,
        keep_interrupted=False,
        variance_source="held_out" if job.estimates_variance else "training",
    )
    table = replace(table, sample_weight=weights)
    networks = np.arange(_n_networks_of_fold(job))
    found = []
    for _, settings in groupby(job.settings, key=lambda one: one.n_epochs):
        group = tuple(settings)
        shares = tuple(
            RowSubset(
                n_members=len(group) * len(networks),
                rows=rows[~out],
                weights=share.weights[~out],
                validation=_some(rows[out]),
                scaling=share.scaling,
            )
            for out in held_out
        )
        each = [job.with_setting(one).members.select(networks) for one in group]
        members = MemberParams.concatenate(each)
        if _is_open_ensemble(job):
            members = _of_ensemble(job, members)
        members = members.select(np.tile(np.arange(len(members.seeds)), len(shares)))
        without = replace(
            job,
            data=replace(job.data, table=table),
            config=config,
            members=members,
            shares=shares,
        )
        found.append(replace(without, settings=group))
    return found


def _of_ensemble(job: TrainingJob, members: MemberParams) -> MemberParams:
    """As they are trained without a part of the rows."""
    n_epochs = members.n_epochs
    least = np.ceil(_ENSEMBLE_STEPS / job.config.n_batches)
    fewer = np.maximum(np.ceil(_ENSEMBLE_SHARE * n_epochs), least).astype(int)
    members = replace(members, n_epochs=np.minimum(fewer, n_epochs))
    if not job.estimates_tau:
        return members
    return replace(
        members,
        tau=np.repeat(1 / job.variance_of_y[None], len(n_epochs), axis=0),
        learns_noise=np.zeros(len(n_epochs), dtype=bool),
    )


def _some(rows: np.ndarray) -> np.ndarray:
    """So many of the rows that more would say little, without regard to their order."""
    if len(rows) <= _MOST_HELD_OUT:
        return rows
    chosen = np.random.RandomState(0).permutation(len(rows))[:_MOST_HELD_OUT]
    return rows[np.sort(chosen)]


def _n_networks_of_fold(job: TrainingJob) -> int:
    """For every setting: one, or an ensemble where its members are the draws."""
    if not _is_open_ensemble(job):
        return 1
    return min(job.n_members, _OF_A_PART, _OF_ALL_PARTS // _n_folds(job))


def _is_open_ensemble(job: TrainingJob) -> bool:
    return job.config.perturbed and job.estimates_variance


def _n_folds(job: TrainingJob) -> int:
    if _is_open_ensemble(job):
        return min(_N_FOLDS, math.ceil(_ENSEMBLE_ROWS * _N_FOLDS / job.total_weight))
    n_folds = _N_FOLDS
    for n_rows, fewer in _FOLDS_FROM.items():
        if job.total_weight >= n_rows:
            n_folds = fewer
    return n_folds


def _n_networks(job: TrainingJob) -> int:
    """At once, in the largest of a task's programs."""
    of_lengths = Counter(one.n_epochs for one in job.settings)
    return _n_folds(job) * _n_networks_of_fold(job) * max(of_lengths.values())


def _by_density(said: np.ndarray, y: np.ndarray, weights: np.ndarray) -> HeldOutScore:
    """Of log densities, (rows,)."""
    return HeldOutScore(said, weights)


def _by_noise(likelihood: Likelihood, said, y, weights) -> HeldOutScore:
    """From ``validation_draws``, (rows, ..., targets), without constant targets."""
    if not (weights.any() and np.isfinite(said).all()):
        return HeldOutScore(np.full(len(weights), np.nan), weights)
    density, noise = likelihood.fit_predictive_params(said, weights)
    return HeldOutScore(density @ (np.ptp(y, axis=0) > 0), weights, noise)


def _by_level(said: np.ndarray, y: np.ndarray, weights: np.ndarray) -> HeldOutScore:
    """As ``_by_noise``, for an ensemble that is trained under what is estimated."""
    said = finite(said)
    if not (weights.any() and said.size):
        return HeldOutScore(np.full(len(weights), np.nan), weights)
    density, log_variance = likeliest_level(said, weights)
    noise = {"log_variance": log_variance}
    return HeldOutScore(density @ (np.ptp(y, axis=0) > 0), weights, noise)


def best_setting(job: TrainingJob, judged: Sequence[HeldOutScore]) -> int:
    """The likeliest; a shorter training only where that is beyond doubt."""
    n_epochs = np.array([one.n_epochs for one in job.settings])
    scores = np.array([one.score for one in judged])
    longest = int(np.where(n_epochs == n_epochs.max(), scores, -np.inf).argmax())
    stays = [one.is_better_than(judged[longest]) for one in judged]
    stays[longest] = True
    return int(np.where(stays, scores, -np.inf).argmax())


def _with_best_setting(job: TrainingJob, judged: Sequence[HeldOutScore]) -> TrainingJob:
    """With the likeliest setting, and its noise; its own where nothing can be said."""
    number = best_setting(job, judged)
    if np.isfinite(judged[number].score):
        return job.with_setting(job.settings[number], judged[number].noise)
    return job.with_setting(Setting(job.length_scale, int(job.members.n_epochs[0])))
