"""Prior length scale, training length and noise, as rows that are held out have them.

How wide a prior of the weights has to be, how soon training over-fits, and what is left
of y, is for the data to say: where classes are well apart a wide prior, and long; where
they overlap a narrow one, or not so long. A task that leaves this open gets, for every
setting and fold, a network without the fold, in one program for each length; the
setting whose networks give the held-out y the highest density is that of the fit to all
rows, and so is the noise under which they do.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, zip_longest
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from skbayesnn._data.design import Share
from skbayesnn._inference.plan import Members
from skbayesnn._inference.held_out import validation_moments, validation_score
from skbayesnn._inference.training import start, train
from skbayesnn.estimators import _held_out_noise
from skbayesnn.estimators._specification import Setting
from skbayesnn.estimators._task import Task, joined

# Parts of the rows, and how many of them are held out: all, or from so many rows on
# two or one, which say as much at less of the cost (benchmarks/STUDY.md).
_N_FOLDS, _FOLDS_FROM = 5, {700: 2, 5000: 1}
# By so many nats in all a shorter training has to be better than one to the end.
_ODDS = 2.0
# Of the predictive of held-out rows.
_N_DRAWS = _held_out_noise.N_DRAWS


class Judgement(NamedTuple):
    """What the held-out rows say of a setting.

    ``score`` is their log density, nats; minus infinity where the loss became infinite,
    or no row can be held out. ``noise_factor`` (targets,) is that of the noise's
    variance under which it is; None where the noise is not for them to say.
    """

    score: float = -np.inf
    noise_factor: np.ndarray | None = None


def settled(
    tasks: Sequence[Task], device: torch.device, dtype: torch.dtype
) -> list[Task]:
    """The tasks of one program; those that leave something open have chosen."""
    tasks = list(tasks)
    still_open = [i for i, task in enumerate(tasks) if task.is_open]
    # No more networks at once than the program itself has.
    n_members = sum(task.n_members for task in tasks)
    while still_open:
        n_each = max(_n_networks(tasks[i]) for i in still_open)
        n_tasks = max(1, n_members // n_each)
        part, still_open = still_open[:n_tasks], still_open[n_tasks:]
        judged = judgements([tasks[i] for i in part], device, dtype)
        for i, of_task in zip(part, judged, strict=True):
            tasks[i] = tasks[i].under(*_best(tasks[i], of_task))
    return tasks


def judgements(
    tasks: Sequence[Task], device: torch.device, dtype: torch.dtype
) -> list[list[Judgement]]:
    """On all settings of each task, in their order."""
    judged: list[list[Judgement]] = [[] for _ in tasks]
    for program in zip_longest(*map(_without_folds, tasks)):
        there = [i for i, task in enumerate(program) if task]
        found = _of_program([program[i] for i in there], device, dtype)
        for i, of_task in zip(there, found, strict=True):
            judged[i] += of_task
    return judged


def _of_program(tasks, device, dtype) -> list[list[Judgement]]:
    """As ``judgements``, on tasks that leave the folds out already."""
    trained = [task for task in tasks if task.shares]
    if not trained:
        return [[Judgement()] * len(task.settings) for task in tasks]
    members, design = joined(trained, device, dtype)
    plan = trained[0].plan
    of_all = train(plan, members, design, start(plan, members, device, dtype))
    if plan.leaves_noise:
        of_folds = _by_noise
        said = _numbers(*validation_moments(of_all.posterior, design, _N_DRAWS))
    else:
        of_folds = _by_density
        said = _numbers(validation_score(of_all.posterior, design, _N_DRAWS))
    said[of_all.failed > 0] = np.nan
    judged = []
    for task in tasks:
        of_task, said = np.split(said, [task.n_members])
        judged.append(of_folds(task, of_task))
    return judged


def _numbers(*of_members: torch.Tensor) -> np.ndarray:
    """What is said by members, (members, things that are said, ...), float64."""
    return torch.stack(of_members, dim=1).cpu().double().numpy()


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


def _without_folds(task: Task) -> list[Task]:
    """A network for every fold and setting; none where no row can be held out.

    One task for each training length: in one program short ones would be computed for
    as long as the longest.
    """
    [share] = task.shares
    table, rows = task.table, share.rows
    weights = np.zeros(table.n_rows)
    weights[rows] = share.weights
    of_classes = task.plan.likelihood.of_classes
    fold = folds_of(table.X[rows], table.y[rows] if of_classes else None)
    held_out = [fold == i for i in np.unique(fold[fold >= 0])[: _n_folds(task)]]
    plan = replace(task.plan, patience=None, keep_interrupted=False, hooks=())
    table = replace(table, sample_weight=weights)
    first = np.zeros(1, dtype=int)
    found = []
    for _, settings in groupby(task.settings, key=lambda one: one.n_epochs):
        group = tuple(settings)
        shares = tuple(
            Share(
                n_members=len(group),
                rows=rows[~out],
                weights=share.weights[~out],
                validation=rows[out],
                scaling=share.scaling,
            )
            for out in held_out
        )
        each = [task.under(one).members.select(first) for one in group]
        members = Members.concatenate(each)
        members = members.select(np.tile(np.arange(len(group)), len(shares)))
        without = replace(task, plan=plan, members=members, table=table, shares=shares)
        found.append(replace(without, settings=group))
    return found


def _n_folds(task: Task) -> int:
    n_folds = _N_FOLDS
    for n_rows, fewer in _FOLDS_FROM.items():
        if task.total_weight >= n_rows:
            n_folds = fewer
    return n_folds


def _n_networks(task: Task) -> int:
    """At once, in the largest of a task's programs."""
    of_lengths = Counter(one.n_epochs for one in task.settings)
    return _n_folds(task) * max(of_lengths.values())


def _by_density(task: Task, means: np.ndarray) -> list[Judgement]:
    """Of mean log densities, (networks, 1): their sums over rows."""
    if not task.shares:
        return [Judgement()] * len(task.settings)
    weights = [task.table.sample_weight[one.validation].sum() for one in task.shares]
    scores = np.dot(weights, means.reshape(len(weights), -1))
    return [Judgement(score) for score in np.where(np.isnan(scores), -np.inf, scores)]


def _by_noise(task: Task, moments: np.ndarray) -> list[Judgement]:
    """Of residuals and variances, (networks, 3, rows, targets), of all folds."""
    if not task.shares:
        return [Judgement()] * len(task.settings)
    rows = [one.validation for one in task.shares]
    weights = task.table.sample_weight[np.concatenate(rows)]
    moments = moments.reshape(len(rows), len(task.settings), *moments.shape[1:])
    judged = []
    for of_folds in moments.swapaxes(0, 1):
        own = [said[:, : len(one)] for said, one in zip(of_folds, rows, strict=True)]
        of_rows = np.concatenate(own, axis=1)
        if np.isfinite(of_rows).all():
            judged.append(Judgement(*_held_out_noise.likeliest(*of_rows, weights)))
        else:
            judged.append(Judgement())
    return judged


def _best(task: Task, judged: list[Judgement]) -> tuple[Setting, np.ndarray | None]:
    """The likeliest, and its noise; that of the task where nothing can be said."""
    own = Setting(task.length_scale, int(task.members.n_epochs[0]))
    scores = np.array([one.score for one in judged])
    if not np.isfinite(scores).any():
        return own, None
    shorter = np.array([one.n_epochs < own.n_epochs for one in task.settings])
    best = np.argmax(scores - _ODDS * shorter)
    return task.settings[best], judged[best].noise_factor
