"""Prior length scales of few rows, chosen by what is said of rows held out.

How wide a prior of the weights has to be is for the data to say: wide where classes are
well apart, narrow where they overlap. A task that leaves it open gets, for every scale
and fold, a network without the fold, all of them in one program; the scale whose
networks give the held-out labels the highest density is the one of the fit to all rows.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy import sparse

from skbayesnn._data.design import Share
from skbayesnn._inference.training import start, train, validation_score
from skbayesnn.estimators._task import Task, joined

_N_FOLDS = 5
# Of the predictive of held-out rows.
_N_DRAWS = 50


def settled(
    tasks: Sequence[Task], device: torch.device, dtype: torch.dtype
) -> list[Task]:
    """The tasks of one program; those that leave their length scale open have one."""
    tasks = list(tasks)
    still_open = [i for i, task in enumerate(tasks) if task.length_scales]
    # No more networks at once than the program itself has.
    n_members = sum(task.n_members for task in tasks)
    while still_open:
        n_each = _N_FOLDS * len(tasks[still_open[0]].length_scales)
        n_tasks = max(1, n_members // n_each)
        part, still_open = still_open[:n_tasks], still_open[n_tasks:]
        scores = held_out_scores([tasks[i] for i in part], device, dtype)
        for i, of_task in zip(part, scores, strict=True):
            tasks[i] = tasks[i].of_length_scale(_best(tasks[i], of_task))
    return tasks


def held_out_scores(
    tasks: Sequence[Task], device: torch.device, dtype: torch.dtype
) -> list[np.ndarray]:
    """Log density of all rows that a fold holds out, nats, (scales,) of each task.

    Minus infinity where the loss became infinite, or no row can be held out.
    """
    without_folds = [_without_folds(task) for task in tasks]
    trained = [task for task in without_folds if task.shares]
    if not trained:
        return [np.full(len(task.length_scales), -np.inf) for task in tasks]
    members, design = joined(trained, device, dtype)
    plan = trained[0].plan
    of_all = train(plan, members, design, start(plan, members, device, dtype))
    means = validation_score(of_all.posterior, design, _N_DRAWS).cpu().double().numpy()
    means = np.where(of_all.failed | np.isnan(means), -np.inf, means)
    scores = []
    for task in without_folds:
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


def _without_folds(task: Task) -> Task:
    """A network for every fold and scale; none where no row can be held out."""
    [share] = task.shares
    table, rows = task.table, share.rows
    weights = np.zeros(table.n_rows)
    weights[rows] = share.weights
    fold = folds_of(table.X[rows], table.y[rows])
    shares = tuple(
        Share(
            n_members=len(task.length_scales),
            rows=rows[fold != number],
            weights=share.weights[fold != number],
            validation=rows[fold == number],
            scaling=share.scaling,
        )
        for number in np.unique(fold[fold >= 0])
    )
    n_members = len(shares) * len(task.length_scales)
    members = task.members.select(np.zeros(n_members, dtype=int))
    scales = np.tile(task.length_scales, len(shares))
    members = replace(
        members,
        prior=[of_layer | {"length_scale": scales} for of_layer in members.prior],
    )
    plan = replace(task.plan, patience=None, keep_interrupted=False, hooks=())
    table = replace(table, sample_weight=weights)
    return replace(task, plan=plan, members=members, table=table, shares=shares)


def _sum_of_folds(task: Task, means: np.ndarray) -> np.ndarray:
    """Mean log densities of a task's networks -> their sums over rows, (scales,)."""
    if not task.shares:
        return np.full(len(task.length_scales), -np.inf)
    weights = [task.table.sample_weight[one.validation].sum() for one in task.shares]
    return np.dot(weights, means.reshape(len(weights), -1))


def _best(task: Task, scores: np.ndarray) -> np.ndarray:
    """The length scale of every layer; as it is where nothing can be said."""
    if not np.isfinite(scores).any():
        return task.length_scale
    return np.full_like(task.length_scale, task.length_scales[scores.argmax()])
