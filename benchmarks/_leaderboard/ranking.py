"""Order the results by set and contestant, and rank the contestants.

Contestants are compared on their common splits.
"""

from collections.abc import Iterable

import numpy as np
from _leaderboard.contestants import CONTESTANTS
from _leaderboard.predictives import SCORES
from _leaderboard.tasks import TASKS
from scipy.stats import rankdata

# contestant -> split -> record
Field = dict[str, dict[int, dict]]

CLOCKS = {"wall": 0, "cpu": 1}
TITLES = {
    "rmse": "RMSE",
    "log_density": "log density",
    "crps": "CRPS",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "ece": "ECE",
    "error_auroc": "AUROC of errors",
    "cover_50": "in 50 %",
    "cover_90": "in 90 %",
    "cover_95": "in 95 %",
}
# Without the AUROC of errors: most sets have few errors, or none.
RANKED = {
    "regression": ("crps", "log_density", "rmse"),
    "classification": ("log_loss", "accuracy", "ece"),
}
# Scores with differences split by split; the first one orders the tables.
PAIRED = {"regression": ("crps", "log_density"), "classification": ("log_loss", "ece")}


# Results


def fields(records: Iterable[dict], kind: str) -> dict[str, Field]:
    """Finished runs of a kind by task, contestant and split, in the tables' order."""
    result: dict[str, Field] = {}
    done = [r for r in records if r["kind"] == kind and "scores" in r]
    for task in (task.name for task in TASKS):
        for name in (c.name for c in CONTESTANTS if c.kind == kind):
            for record in done:
                if (record["task"], record["contestant"]) == (task, name):
                    by_split = result.setdefault(task, {}).setdefault(name, {})
                    by_split[record["split"]] = record
    return result


def values(runs: dict[int, dict], score: str, splits: Iterable[int]) -> np.ndarray:
    """A score of several splits; NaN if it is missing."""
    scores = [runs[split]["scores"][score] for split in splits]
    return np.array([np.nan if value is None else value for value in scores])


def seconds(runs: dict[int, dict], clock: str) -> float:
    """Mean over splits of the seconds of fit and prediction."""
    which = CLOCKS[clock]
    both = "fit_seconds", "predict_seconds"
    return float(np.mean([sum(r[part][which] for part in both) for r in runs.values()]))


def common_splits(field: Field, contestants: Iterable[str]) -> list[int]:
    """The splits that all contestants have."""
    return sorted(set.intersection(*(set(field[one]) for one in contestants)))


# Ranks


def groups(by_task: dict[str, Field]) -> list[tuple[list[str], list[str]]]:
    """Groups of contestants, each with the common sets on which to rank them.

    The first group contains the contestants with the largest number of sets, the second
    one all contestants.
    """
    everybody = list(
        dict.fromkeys(name for field in by_task.values() for name in field)
    )
    sets = {
        name: [task for task in by_task if name in by_task[task]] for name in everybody
    }
    most = max(map(len, sets.values()), default=0)
    complete = [name for name in everybody if len(sets[name]) == most]
    result = []
    for names in (complete, everybody):
        tasks = [t for t in by_task if all(name in by_task[t] for name in names)]
        tasks = [t for t in tasks if common_splits(by_task[t], names)]
        if len(names) > 1 and tasks and (names, tasks) not in result:
            result.append((names, tasks))
    return result


def mean_ranks(
    by_task, some: list[str], tasks: list[str], score: str
) -> dict[str, float]:
    """Mean ranks, 1 is the best, of the contestants with the score on every set."""
    larger = next(s[score] for s in SCORES.values() if score in s)
    means = {one: [] for one in some}
    for task in tasks:
        splits = common_splits(by_task[task], some)
        for one in some:
            means[one].append(values(by_task[task][one], score, splits).mean())
    means = {one: row for one, row in means.items() if not np.isnan(row).any()}
    if not means:
        return {}
    signed = np.array(list(means.values())) * (-1 if larger else 1)
    return dict(zip(means, rankdata(signed, axis=0).mean(1).tolist(), strict=True))


def typical_seconds(by_task, one: str, tasks: list[str], clock: str) -> float:
    """Geometric mean of the seconds over the sets."""
    logs = [np.log(seconds(by_task[task][one], clock)) for task in tasks]
    return float(np.exp(np.mean(logs)))
