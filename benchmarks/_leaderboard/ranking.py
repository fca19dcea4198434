"""What was found, put in order: by set and contestant, and who is ahead.

Whoever is compared is compared on the splits that all of them have.
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
# Not the AUROC of errors: on most sets there are a few errors, or none.
RANKED = {
    "regression": ("crps", "log_density", "rmse"),
    "classification": ("log_loss", "accuracy", "ece"),
}
# What is subtracted split by split; the first of them orders the tables.
PAIRED = {"regression": ("crps", "log_density"), "classification": ("log_loss", "ece")}


# What there is


def fields(records: Iterable[dict], kind: str) -> dict[str, Field]:
    """Finished runs of a kind: task -> contestant -> split -> record, tables' order."""
    result: dict[str, Field] = {}
    done = [r for r in records if r["kind"] == kind and "scores" in r]
    for task in (task.name for task in TASKS):
        for one in (one.name for one in CONTESTANTS if one.kind == kind):
            for record in done:
                if (record["task"], record["contestant"]) == (task, one):
                    of_one = result.setdefault(task, {}).setdefault(one, {})
                    of_one[record["split"]] = record
    return result


def values(runs: dict[int, dict], score: str, splits: Iterable[int]) -> np.ndarray:
    """A score of some splits; NaN where there is none."""
    found = [runs[split]["scores"][score] for split in splits]
    return np.array([np.nan if value is None else value for value in found])


def seconds(runs: dict[int, dict], clock: str) -> float:
    """Mean over splits of fit and prediction."""
    which = CLOCKS[clock]
    both = "fit_seconds", "predict_seconds"
    return float(np.mean([sum(r[part][which] for part in both) for r in runs.values()]))


def common_splits(field: Field, contestants: Iterable[str]) -> list[int]:
    """Those that all of them have."""
    return sorted(set.intersection(*(set(field[one]) for one in contestants)))


# Ranks


def groups(found: dict[str, Field]) -> list[tuple[list[str], list[str]]]:
    """Who is ranked on which sets: all on those that all have, and the complete ones.

    The second are those that have the most sets.
    """
    everybody = list(dict.fromkeys(one for field in found.values() for one in field))
    sets = {one: [task for task in found if one in found[task]] for one in everybody}
    most = max(map(len, sets.values()), default=0)
    complete = [one for one in everybody if len(sets[one]) == most]
    result = []
    for some in (complete, everybody):
        tasks = [t for t in found if all(one in found[t] for one in some)]
        tasks = [t for t in tasks if common_splits(found[t], some)]
        if len(some) > 1 and tasks and (some, tasks) not in result:
            result.append((some, tasks))
    return result


def mean_ranks(
    found, some: list[str], tasks: list[str], score: str
) -> dict[str, float]:
    """Rank 1 is the best; those who lack the score on any of the sets are left out."""
    larger = next(s[score] for s in SCORES.values() if score in s)
    means = {one: [] for one in some}
    for task in tasks:
        splits = common_splits(found[task], some)
        for one in some:
            means[one].append(values(found[task][one], score, splits).mean())
    means = {one: row for one, row in means.items() if not np.isnan(row).any()}
    if not means:
        return {}
    signed = np.array(list(means.values())) * (-1 if larger else 1)
    return dict(zip(means, rankdata(signed, axis=0).mean(1).tolist(), strict=True))


def typical_seconds(found, one: str, tasks: list[str], clock: str) -> float:
    """Geometric mean over the sets."""
    logs = [np.log(seconds(found[task][one], clock)) for task in tasks]
    return float(np.exp(np.mean(logs)))
