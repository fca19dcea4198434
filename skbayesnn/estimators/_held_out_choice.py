"""Prior length scale and training length of few rows, chosen by rows held out.

How wide a prior of the weights has to be, and how soon training over-fits, is for the
data to say: where classes are well apart a wide one, and long; where they overlap a
narrow one, or not so long. A task that leaves this open gets, for every setting and
fold, a network without the fold, in one program for each length; the setting whose
networks give the held-out labels the highest density is that of the fit to all rows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, zip_longest

import numpy as np
import torch
from scipy import sparse

from skbayesnn._data.design import Share
from skbayesnn._inference.plan import Members
from skbayesnn._inference.training import start, train, validation_score
from skbayesnn.estimators._specification import Setting
from skbayesnn.estimators._task import Task, joined

# Parts of the rows, and how many of them are held out: all, or from so many rows on
# two, which say as much at less than half of the cost (benchmarks/STUDY.md).
_N_FOLDS, _MANY_ROWS, _FOLDS_OF_MANY = 5, 700, 2
# By so many nats in all a shorter training has to be better than one to the end.
_ODDS = 2.0
# Of the predictive of held-out rows.
_N_DRAWS = 50


def settled(
    tasks: Sequence[Task], device: torch.device, dtype: torch.dtype
) -> list[Task]:
    """The tasks of one program; those that leave something open have chosen."""
    tasks = list(tasks)
    still_open = [i for i, task in enumerate(tasks) if task.settings]
    # No more networks at once than the program itself has.
    n_members = sum(task.n_members for task in tasks)
    while still_open:
        n_each = max(_n_networks(tasks[i]) for i in still_open)
        n_tasks = max(1, n_members // n_each)
        part, still_open = still_open[:n_tasks], still_open[n_tasks:]
        scores = held_out_scores([tasks[i] for i in part], device, dtype)
        for i, of_task in zip(part, scores, strict=True):
            tasks[i] = tasks[i].under(_best(tasks[i], of_task))
    return tasks


def held_out_scores(
    tasks: Sequence[Task], device: torch.device, dtype: torch.dtype
) -> list[np.ndarray]:
    """Log density of all rows that a fold holds out, nats, (settings,) of each task.

    Minus infinity where the loss became infinite, or no row can be held out.
    """
    scores: list[list[np.ndarray]] = [[] for _ in tasks]
    for program in zip_longest(*map(_without_folds, tasks)):
        there = [i for i, task in enumerate(program) if task]
        found = _scores_of_program([program[i] for i in there], device, dtype)
        for i, of_task in zip(there, found, strict=True):
            scores[i].append(of_task)
    return [np.concatenate(of_lengths) for of_lengths in scores]


def _scores_of_program(tasks, device, dtype) -> list[np.ndarray]:
    """As ``held_out_scores``, of tasks that leave the folds out already."""
    trained = [task for task in tasks if task.shares]
    if not trained:
        return [np.full(len(task.settings), -np.inf) for task in tasks]
    members, design = joined(trained, device, dtype)
    plan = trained[0].plan
    of_all = train(plan, members, design, start(plan, members, device, dtype))
    means = validation_score(of_all.posterior, design, _N_DRAWS).cpu().double().numpy()
    means = np.where(of_all.failed | np.isnan(means), -np.inf, means)
    scores = []
    for task in tasks:
        of_task, means = np.split(means, [task.n_members])
        scores.append(_sum_of_folds(task, of_task))
    return scores


def folds_of(X, y: np.ndarray) -> np.ndarray:
    """The part that every row is held out with, (rows,); -1: with none.

    Rows that are the same are held out together, and the classes are spread over the
    parts; the only row of a class stays. Nothing but the rows has a say: neither their
    order nor how often they are there.
    """
    X = X.toarray() if sparse.issparse(X) else X
    rows, number = np.unique(np.column_stack([y, X]), axis=0, return_inverse=True)
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
    fold = folds_of(table.X[rows], table.y[rows])
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
    return _N_FOLDS if task.total_weight < _MANY_ROWS else _FOLDS_OF_MANY


def _n_networks(task: Task) -> int:
    """At once, in the largest of a task's programs."""
    of_lengths = Counter(one.n_epochs for one in task.settings)
    return _n_folds(task) * max(of_lengths.values())


def _sum_of_folds(task: Task, means: np.ndarray) -> np.ndarray:
    """Mean log densities of a task's networks -> their sums over rows, (settings,)."""
    if not task.shares:
        return np.full(len(task.settings), -np.inf)
    weights = [task.table.sample_weight[one.validation].sum() for one in task.shares]
    return np.dot(weights, means.reshape(len(weights), -1))


def _best(task: Task, scores: np.ndarray) -> Setting:
    """The likeliest; that of the task itself where nothing can be said."""
    own = Setting(task.length_scale, int(task.members.n_epochs[0]))
    if not np.isfinite(scores).any():
        return own
    shorter = np.array([one.n_epochs < own.n_epochs for one in task.settings])
    return task.settings[np.argmax(scores - _ODDS * shorter)]
