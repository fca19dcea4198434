"""Select length scale and number of epochs, and estimate noise, on held-out rows.

The best prior width, training length and noise variance depend on the data. With
well-separated classes a wide prior and a long training are best, with overlapping
classes a narrow prior or a short training.

For every setting and fold a network is trained without the rows of the fold, in one
program per number of epochs. The setting with the highest density of held-out y is used
for the final training on all rows, together with the noise that was estimated with it.
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

from skbayesnn._data.groups import group_folds, keep_classes
from skbayesnn._data.training_rows import RowSubset
from skbayesnn._engine.config import MemberParams
from skbayesnn._engine.held_out_tau import (
    Ensemble,
    HeldOutTauUpdater,
    draws_together,
    estimate_noise_variance,
    finite,
)
from skbayesnn._engine.training import (
    train,
    validation_density,
    validation_draws,
)
from skbayesnn._likelihoods import Likelihood
from skbayesnn._runtime import warn
from skbayesnn.estimators._job import MAX_ENTRIES, Setting, TrainingJob, joined
from skbayesnn.estimators._unequal_noise import (
    SELECTION_LEVEL,
    UnequalNoise,
    unequal_noise,
)
from skbayesnn.estimators._workers import train_on_devices

# Number of folds.
_N_FOLDS = 5
# Number of folds that are held out, by the number of rows from which on. With fewer
# rows all folds are held out (docs/defaults.md, "Selection on held-out rows").
_FOLDS_FROM = {700: 2, 5000: 1}
# Posterior draws in the predictive distribution of held-out rows.
_N_DRAWS = 50
# The constants _ENSEMBLE_... are for ensembles, which only estimate noise. Number of
# held-out rows that is enough: with larger folds, fewer folds are held out.
_ENSEMBLE_ROWS, _ENSEMBLE_ROWS_OF_CLASSES = 60, 200
# Largest number of networks per fold.
_ENSEMBLE_NETWORKS_PER_FOLD = 10
# Largest number of networks of all folds.
_ENSEMBLE_NETWORKS = 25
# Share of the epochs for which the networks train.
_ENSEMBLE_SHARE = 0.5
# Smallest number of steps for which the networks train.
_ENSEMBLE_STEPS = 600
# Mean squared held-out residual, in variances of y, above which a warning is given. For
# a few rows of pure noise it can reach 2.
_FAR_OFF = 3.0
# A likelihood is not selected if the mean squared held-out residual is more than this
# many times the one of the default (docs/defaults.md, "Single networks"): errors of
# the mean must not be explained as noise.
_MAX_ERROR_RATIO = 16 / 9
# Most rows that are scored in each fold. The whole fold is left out of the training.
_MAX_HELD_OUT = 10_000


@dataclass(frozen=True)
class HeldOutScore:
    """Predictive performance of a setting on held-out rows.

    Parameters
    ----------
    density : ndarray of shape (rows,)
        Log densities in nats. NaN if the loss became infinite; empty if no rows can be
        held out.
    weights : ndarray of shape (rows,)
        Weights of the rows.
    predictive_params : dict of ndarray of shape (targets,), or None
        The likelihood's ``predictive_params``, estimated on these rows and used in
        ``density``. None if they are not estimated.
    error : float
        Mean squared residual in variances of y, the largest over targets; 0 if it is
        not computed.
    unequal_noise : UnequalNoise, or None
        Result of the test for a likelihood with equal noise; None if the residuals
        are not computed.
    """

    density: np.ndarray
    weights: np.ndarray
    predictive_params: dict[str, np.ndarray] | None = None
    error: float = 0.0
    unequal_noise: UnequalNoise | None = None

    @cached_property
    def score(self) -> float:
        """Log density of all rows, nats; minus infinity if it is not available."""
        total = float(self.weights @ self.density)
        return total if self.weights.any() and np.isfinite(total) else -np.inf

    def is_better_than(self, reference: "HeldOutScore") -> bool:
        """Whether the score is higher by more than the difference's standard error."""
        if self.score <= reference.score:
            return False
        if not np.isfinite(reference.score):
            return True
        difference = self.density - reference.density
        mean = np.average(difference, weights=self.weights)
        squares = self.weights @ np.square(difference - mean)
        return self.score - reference.score > np.sqrt(squares)


_NO_SCORE = HeldOutScore(np.empty(0), np.empty(0))


def select_settings(
    jobs: Sequence[TrainingJob], devices: Sequence[torch.device]
) -> list[TrainingJob]:
    """Select settings for those jobs of a program that need it.

    devices : the networks are divided among them; predictions use the first
    """
    jobs = list(jobs)
    pending = [i for i, job in enumerate(jobs) if job.needs_selection]
    # Train no more networks at once than in the program itself.
    n_members = sum(job.n_members for job in jobs)
    while pending:
        n_each = max(_n_networks(jobs[i]) for i in pending)
        n_at_once = max(1, n_members // n_each)
        batch, pending = pending[:n_at_once], pending[n_at_once:]
        selected = _selected([jobs[i] for i in batch], devices)
        for i, job in zip(batch, selected, strict=True):
            jobs[i] = job
    without_estimate = [
        job
        for job in jobs
        if job.estimates_variance
        and job.predictive_params is None
        and not job.config.likelihood.is_classification
    ]
    if without_estimate:
        _warn_of_missing_estimate(without_estimate[0])
    return jobs


def _selected(
    jobs: Sequence[TrainingJob], devices: Sequence[torch.device]
) -> list[TrainingJob]:
    """Select the settings of jobs; then run their second stages at these settings."""
    chosen = [
        _with_best_setting(job, scores)
        for job, scores in zip(jobs, _scores(jobs, devices), strict=True)
    ]
    others = {
        i: _at_setting_of(chosen[i][0], job.second_stage)
        for i, job in enumerate(jobs)
        if job.second_stage is not None
        and not (job.is_second_optional and _is_noise_equal(chosen[i][1]))
    }
    other_scores = _scores(list(others.values()), devices) if others else []
    for (i, other), scores in zip(others.items(), other_scores, strict=True):
        job, score = _with_best_setting(other, scores)
        # Scores of a second stage that is not optional may be of other rows.
        if not jobs[i].is_second_optional or _is_clearly_better(score, chosen[i][1]):
            chosen[i] = job, score
    return [job for job, _ in chosen]


def _is_clearly_better(score: HeldOutScore, before: HeldOutScore) -> bool:
    """Whether a likelihood explains rows better, and not by a larger noise."""
    is_better = score.is_better_than(before)
    return is_better and score.error <= _MAX_ERROR_RATIO * before.error


def _is_noise_equal(score: HeldOutScore) -> bool:
    """Whether a test shows that a likelihood with unequal noise need not be tried."""
    test = score.unequal_noise
    return test is not None and not test.p_value < SELECTION_LEVEL


def _at_setting_of(job: TrainingJob, second: TrainingJob) -> TrainingJob:
    """The second stage with the setting of a job as its only one.

    If held-out rows estimated the tau of the training, it is kept.
    """
    setting = Setting(job.length_scale, int(job.members.n_epochs[0]))
    second = replace(second, settings=(setting,))
    if job.predictive_params is None or not second.perturbs_y:
        return second
    return second.with_members(tau=job.members.tau[0], learns_likelihood=False)


def _scores(jobs, devices) -> list[list[HeldOutScore]]:
    """``held_out_scores``, with a warning if the networks are far off."""
    scores = held_out_scores(jobs, devices)
    pairs = zip(jobs, scores, strict=True)
    errors = [s.error for job, of_job in pairs for s in of_job if job.estimates_tau]
    _warn_if_far_off(max(errors, default=0.0))
    return scores


def _warn_of_missing_estimate(job: TrainingJob) -> None:
    """Warn that no held-out rows have estimated the observation noise."""
    n_rows, n_inputs = len(job.row_subsets[0].rows), job.table.X.shape[1]
    if n_rows * n_inputs >= MAX_ENTRIES:
        reason = f"X has {n_rows * n_inputs:,} entries ({MAX_ENTRIES:,} or more)"
    else:
        reason = f"too few of {n_rows} rows differ, or the networks diverged"
    likelihood = job.config.likelihood
    parameters = "tau" if likelihood.learned else ""
    if "predictive_log_df" in likelihood.predictive_params:
        parameters += f"{' and ' if parameters else ''}likelihood_options={{'df': ...}}"
    warn(
        "SKB301",
        f"{reason}: no rows were held out to estimate the observation noise. The noise "
        "is estimated from training rows, and intervals may be too narrow. Put "
        f"CalibratedUncertaintyRegressor around the estimator, or give {parameters}.",
    )


def _warn_if_far_off(error: float) -> None:
    """Warn if a constant would predict the held-out rows better."""
    if error > _FAR_OFF:
        warn(
            "SKB107",
            "held-out rows are predicted worse than by their mean: the mean squared "
            f"error is {error:.2g} times the variance of y. The prior allows too wide "
            "functions for so few rows, or the training diverged. Raise length_scale "
            "('auto' and 'fan_in' follow the width of the layers), or lower "
            "learning_rate_init.",
            ConvergenceWarning,
        )


def held_out_scores(
    jobs: Sequence[TrainingJob], devices: Sequence[torch.device]
) -> list[list[HeldOutScore]]:
    """Scores of all settings of each job, in the order of the settings."""
    scores: list[list[HeldOutScore]] = [[] for _ in jobs]
    for program in zip_longest(*map(_fold_jobs, jobs)):
        trainable = []
        for job, job_scores in zip(program, scores, strict=True):
            if job and job.row_subsets:
                trainable.append((job, job_scores))
            elif job:
                job_scores.extend([_NO_SCORE] * len(job.settings))
        if trainable:
            fold_jobs, scores_of_jobs = zip(*trainable, strict=True)
            results = _program_scores(fold_jobs, devices)
            for job_scores, new_scores in zip(scores_of_jobs, results, strict=True):
                job_scores.extend(new_scores)
    return scores


def _program_scores(
    jobs: Sequence[TrainingJob], devices: Sequence[torch.device]
) -> list[list[HeldOutScore]]:
    """Train fold jobs in one program and score their settings.

    jobs : results of ``_fold_jobs`` with one configuration, none of them empty
    """
    training = joined(jobs, devices[0])
    ends = np.cumsum([job.n_members for job in jobs])
    members_of_job = np.split(np.arange(ends[-1]), ends[:-1])
    hooks = []
    score: Callable[..., HeldOutScore] = _score_by_density
    predict = validation_density
    if jobs[0].estimates_tau:
        ensembles = _ensembles(jobs, members_of_job)
        tau = training.members.tau
        hooks.append(HeldOutTauUpdater(training.rows, ensembles, _N_DRAWS, tau))
        predict, score = validation_draws, _score_by_noise_variance
    elif jobs[0].estimates_variance:
        predict = validation_draws
        score = partial(_score_by_predictive_params, training.config.likelihood)
    training = replace(training, hooks=hooks)
    # The hook couples the networks of an ensemble.
    if len(devices) > 1 and not hooks:
        trained = train_on_devices(devices[: training.n_members], training)
    else:
        trained = train(training)
    # A generator: the draws of one job at a time, since they need much memory.
    predictions = predict(trained.posterior, training.rows, _N_DRAWS, members_of_job)
    scores = []
    for job, networks in zip(jobs, members_of_job, strict=True):
        values = next(predictions).cpu().double().numpy()
        values[trained.failed[networks] > 0] = np.nan
        scores.append(_setting_scores(job, values, score))
    return scores


def _ensembles(
    jobs: Sequence[TrainingJob], members_of_job: Sequence[np.ndarray]
) -> list[Ensemble]:
    """Ensembles of all settings of all jobs, in order."""
    ensembles = []
    for job, members in zip(jobs, members_of_job, strict=True):
        by_setting = members.reshape(len(job.row_subsets), len(job.settings), -1)
        n_epochs = int(job.members.n_epochs[0])
        ensembles += [
            Ensemble(networks, n_epochs) for networks in by_setting.swapaxes(0, 1)
        ]
    return ensembles


def _setting_scores(job: TrainingJob, predictions: np.ndarray, score_rows):
    """Score every setting of a job, pooling the rows of all folds.

    predictions : (networks, rows, ...), networks ordered by fold and setting
    score_rows : function of predictions, y and weights
    """
    rows_by_fold = [row_subset.held_out_rows for row_subset in job.row_subsets]
    rows = np.concatenate(rows_by_fold)
    y, weights = job.table.y[rows], job.table.sample_weight[rows]
    by_setting = predictions.reshape(
        len(rows_by_fold), len(job.settings), -1, *predictions.shape[1:]
    ).swapaxes(0, 1)
    scores = []
    for by_fold in by_setting:
        pooled = np.concatenate(
            [
                draws_together(networks[:, : len(held_out)])
                for networks, held_out in zip(by_fold, rows_by_fold, strict=True)
            ]
        )
        score = score_rows(pooled, y, weights)
        if job.estimates_variance and job.config.likelihood.gaussian_targets:
            score = replace(score, error=_error(job, pooled, weights))
        if job.config.likelihood.equal_noise and score.predictive_params:
            test = _unequal_noise(job, pooled, rows, score.predictive_params)
            score = replace(score, unequal_noise=test)
        scores.append(score)
    return scores


def _error(job: TrainingJob, draws: np.ndarray, weights: np.ndarray) -> float:
    """Compute ``HeldOutScore.error``.

    draws : (rows, fields, draws, targets), the residuals first
    """
    draws = finite(draws)
    if not (weights.any() and draws.size):
        return 0.0
    squares = np.square(draws[:, 0].mean(1))
    error = np.average(squares, axis=0, weights=weights) / job.variance_of_y
    return float(error.max())


def _unequal_noise(job: TrainingJob, draws, rows, params) -> UnequalNoise:
    """Test the residuals, divided by the standard deviations of the predictions.

    draws : (rows, fields, draws, targets), the residuals first
    params : estimated ``predictive_params``
    """
    draws = finite(draws)
    residual, of_draws = draws[:, 0].mean(1), draws[:, 0].var(1)
    prediction = job.scaling.y_to_network(job.table.y[rows]) - residual
    std = np.sqrt(of_draws + np.exp(params["log_variance"]))
    n_independent = job.data.n_independent(rows, np.ones(len(rows)))
    return unequal_noise(residual / std, prediction, job.table.X[rows], n_independent)


def selection_folds(
    X, labels: np.ndarray | None = None, groups: np.ndarray | None = None
) -> np.ndarray:
    """Assign rows to folds, (rows,); -1 for rows that are never held out.

    Without groups, equal rows are in the same fold. Classes are spread evenly over the
    folds; a class with one distinct row, or one group, is not held out. The folds
    depend on neither the order of the rows nor their number of copies.
    """
    X = X.toarray() if sparse.issparse(X) else X
    if groups is not None:
        return _group_folds(X, labels, groups)
    labels = np.zeros(len(X)) if labels is None else labels
    rows, index = np.unique(np.column_stack([labels, X]), axis=0, return_inverse=True)
    labels = rows[:, 0]
    order = np.random.RandomState(0).permutation(len(rows))
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(rows), dtype=int)
    fold[order] = np.arange(len(rows)) % _N_FOLDS
    _, class_index, n_rows = np.unique(labels, return_inverse=True, return_counts=True)
    fold[n_rows[class_index] == 1] = -1
    return fold[index.ravel()]


def _group_folds(X: np.ndarray, labels, groups: np.ndarray) -> np.ndarray:
    """Compute ``selection_folds`` of groups; labels may be None."""
    columns = [groups, np.zeros(len(X)) if labels is None else labels, X]
    rows, index = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    groups, row_labels = rows[:, 0], rows[:, 1]
    if labels is None:
        return group_folds(groups, _N_FOLDS, 0)[index.ravel()]
    fold = group_folds(groups, _N_FOLDS, 0, row_labels)
    for i in np.unique(fold):
        held_out = fold == i
        fold[held_out & ~keep_classes(held_out, groups, row_labels)] = -1
    return fold[index.ravel()]


def _fold_jobs(job: TrainingJob) -> list[TrainingJob]:
    """Jobs with networks for every fold and setting; empty if no rows can be held out.

    Each fold and setting has one network, or several for an ensemble that estimates
    noise. Each number of epochs has its own job, since in one program short trainings
    take as long as the longest.
    """
    [row_subset] = job.row_subsets
    table, rows = job.table, row_subset.rows
    weights = np.zeros(table.n_rows)
    weights[rows] = row_subset.weights
    is_classification = job.config.likelihood.is_classification
    labels = table.codes[rows] if is_classification else None
    fold = selection_folds(table.X[rows], labels, job.data.groups_of(rows))
    held_out = [fold == i for i in np.unique(fold[fold >= 0])[: _n_folds(job)]]
    config = replace(
        job.config,
        patience=None,
        keep_interrupted=False,
        variance_source="held_out" if job.estimates_variance else "training",
    )
    table = replace(table, sample_weight=weights)
    networks = np.arange(_n_networks_of_fold(job))
    fold_jobs = []
    for _, group in groupby(job.settings, key=lambda setting: setting.n_epochs):
        settings = tuple(group)
        row_subsets = tuple(
            RowSubset(
                n_members=len(settings) * len(networks),
                rows=rows[~out],
                weights=row_subset.weights[~out],
                held_out_rows=_scored_rows(rows[out]),
                scaling=row_subset.scaling,
            )
            for out in held_out
        )
        by_setting = [job.with_setting(s).members.select(networks) for s in settings]
        members = MemberParams.concatenate(by_setting)
        if _is_perturbed_ensemble(job) and not is_classification:
            members = _ensemble_members(job, members)
        members = members.select(
            np.tile(np.arange(len(members.seeds)), len(row_subsets))
        )
        fold_job = replace(
            job,
            data=replace(job.data, table=table),
            config=config,
            members=members,
            row_subsets=row_subsets,
        )
        fold_jobs.append(replace(fold_job, settings=settings))
    return fold_jobs


def _ensemble_members(job: TrainingJob, members: MemberParams) -> MemberParams:
    """Shorten the training of an ensemble, and set its initial tau."""
    n_epochs = members.n_epochs
    least = np.ceil(_ENSEMBLE_STEPS / job.config.n_batches)
    fewer = np.maximum(np.ceil(_ENSEMBLE_SHARE * n_epochs), least).astype(int)
    members = replace(members, n_epochs=np.minimum(fewer, n_epochs))
    if not job.estimates_tau:
        return members
    return replace(
        members,
        tau=np.repeat(1 / job.variance_of_y[None], len(n_epochs), axis=0),
        learns_likelihood=np.zeros(len(n_epochs), dtype=bool),
    )


def _scored_rows(rows: np.ndarray) -> np.ndarray:
    """A random subset of held-out rows, if there are more than needed for a score."""
    if len(rows) <= _MAX_HELD_OUT:
        return rows
    subset = np.random.RandomState(0).permutation(len(rows))[:_MAX_HELD_OUT]
    return rows[np.sort(subset)]


def _n_networks_of_fold(job: TrainingJob) -> int:
    """Networks per fold and setting: one, or several members of an ensemble."""
    if not _is_perturbed_ensemble(job):
        return 1
    by_fold = _ENSEMBLE_NETWORKS // _n_folds(job)
    return min(job.n_members, _ENSEMBLE_NETWORKS_PER_FOLD, by_fold)


def _is_perturbed_ensemble(job: TrainingJob) -> bool:
    """Whether members perturb y and held-out rows estimate the noise."""
    return job.config.perturbed and job.estimates_variance


def _n_folds(job: TrainingJob) -> int:
    """Number of folds that are held out."""
    if _is_perturbed_ensemble(job):
        is_classification = job.config.likelihood.is_classification
        n_rows = _ENSEMBLE_ROWS_OF_CLASSES if is_classification else _ENSEMBLE_ROWS
        return min(_N_FOLDS, math.ceil(n_rows * _N_FOLDS / job.n_independent))
    n_folds = _N_FOLDS
    for n_rows, fewer in _FOLDS_FROM.items():
        if job.n_independent >= n_rows:
            n_folds = fewer
    return n_folds


def _n_networks(job: TrainingJob) -> int:
    """Number of networks in the largest program of a job's selection."""
    n_settings = Counter(setting.n_epochs for setting in job.settings)
    return _n_folds(job) * _n_networks_of_fold(job) * max(n_settings.values())


def _score_by_density(
    density: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> HeldOutScore:
    """Score from log densities, (rows,)."""
    return HeldOutScore(density, weights)


def _score_by_predictive_params(
    likelihood: Likelihood, draws, y, weights
) -> HeldOutScore:
    """Estimate the noise and score the rows with it, without constant targets.

    draws : results of ``validation_draws``, (rows, ..., targets)
    """
    if not (weights.any() and np.isfinite(draws).all()):
        return HeldOutScore(np.full(len(weights), np.nan), weights)
    density, predictive_params = likelihood.fit_predictive_params(draws, weights)
    varies = np.atleast_1d(np.ptp(y, axis=0) > 0)
    return HeldOutScore(density @ varies, weights, predictive_params)


def _score_by_noise_variance(
    draws: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> HeldOutScore:
    """Score rows of ensembles whose training uses the estimated noise variance."""
    draws = finite(draws)
    if not (weights.any() and draws.size):
        return HeldOutScore(np.full(len(weights), np.nan), weights)
    density, log_variance = estimate_noise_variance(draws, weights)
    predictive_params = {"log_variance": log_variance}
    return HeldOutScore(density @ (np.ptp(y, axis=0) > 0), weights, predictive_params)


def held_out_noise(
    job: TrainingJob, draws: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> dict[str, np.ndarray] | None:
    """Estimate the ``predictive_params`` on held-out rows; None if that is impossible.

    draws : results of ``validation_draws`` for all networks together, (rows, ...)
    """
    if job.estimates_tau:
        return _score_by_noise_variance(draws, y, weights).predictive_params
    likelihood = job.config.likelihood
    return _score_by_predictive_params(likelihood, draws, y, weights).predictive_params


def best_setting(job: TrainingJob, scores: Sequence[HeldOutScore]) -> int:
    """Index of the setting with the highest score.

    A shorter training is selected only if its score exceeds the score of the longest
    by more than a standard error.
    """
    n_epochs = np.array([setting.n_epochs for setting in job.settings])
    values = np.array([score.score for score in scores])
    longest = int(np.where(n_epochs == n_epochs.max(), values, -np.inf).argmax())
    eligible = [score.is_better_than(scores[longest]) for score in scores]
    eligible[longest] = True
    return int(np.where(eligible, values, -np.inf).argmax())


def _with_best_setting(
    job: TrainingJob, scores: Sequence[HeldOutScore]
) -> tuple[TrainingJob, HeldOutScore]:
    """Apply the best setting and its estimate; keep the default without a score."""
    best = scores[best_setting(job, scores)]
    if not np.isfinite(best.score):
        default = Setting(job.length_scale, int(job.members.n_epochs[0]))
        return job.with_setting(default), best
    setting = job.settings[best_setting(job, scores)]
    job = job.with_setting(setting, best.predictive_params)
    return replace(job, unequal_noise=best.unequal_noise), best
