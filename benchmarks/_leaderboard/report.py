"""Tables and a picture of what was found.

Means are over a contestant's own splits. Whoever is compared is compared on the splits
that both, or all, have: differences split by split, ranks by the means over common
splits.
"""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
from _leaderboard.contestants import CONTESTANTS, REFERENCES
from _leaderboard.predictives import SCORES
from _leaderboard.tasks import TASKS
from common import table
from scipy.stats import rankdata
from uci import ONLY_BY_NAME, with_error

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
# Okabe & Ito: colours that colour-blind people can tell apart.
VERMILION, BLUE = "#D55E00", "#0072B2"

HEAD = """# Leaderboard

What `benchmarks/leaderboard.py --report` made of the runs of
`python benchmarks/leaderboard.py{arguments}`.

Nobody is tuned: ours are as their constructors make them, peers as their READMEs or
defaults do. Every split is fitted in a process of its own; seconds are those of fit and
prediction on the {clock} clock, imports not included, with {threads} thread(s) each.
Log densities are those of the exact predictive, in nats and y's units; of quantiles
they are those of the distribution function drawn straight between them, and "-" where
two of them coincide. The AUROC of errors is that of 1 - the largest probability, over
splits with an error. +- is the standard error over splits. Ranks are by the means over
the splits that all of a table have, and then averaged over the sets.

Ran on: {machines}.
"""
OF_BOSTON = (
    "For comparison with published rows only: one of its features was built on the "
    "racial composition of towns."
)


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


def mean_and_error(numbers: np.ndarray) -> tuple[float, float | None]:
    """Of the splits; no error of a single one."""
    n = len(numbers)
    error = float(numbers.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return float(numbers.mean()), error


def cell(numbers: np.ndarray) -> str:
    """Mean +- standard error; a dash where any is missing, or all."""
    if not len(numbers):
        return "-"
    mean, error = mean_and_error(numbers)
    if np.isnan(mean):
        return "-"
    return f"{mean:.4g}" if not error else with_error(mean, error)


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


def rank_table(found, kind: str, some: list[str], tasks: list[str], clock: str) -> str:
    """A line per contestant, the best first."""
    scores = RANKED[kind]
    ranks = {score: mean_ranks(found, some, tasks, score) for score in scores}
    order = sorted(some, key=lambda one: ranks[scores[0]].get(one, np.inf))
    lines = []
    for one in order:
        cells = [f"{ranks[s][one]:.2f}" if one in ranks[s] else "-" for s in scores]
        lines.append([one, *cells, f"{typical_seconds(found, one, tasks, clock):.3g}"])
    header = ["contestant", *(TITLES[score] for score in scores), "seconds"]
    return table(header, lines)


# Tables of sets


def set_table(field: Field, kind: str, clock: str) -> str:
    """Every score of everybody on one set, and how far they are from the reference."""
    reference = next((one for one in REFERENCES if one in field), next(iter(field)))
    first = PAIRED[kind][0]
    order = sorted(field, key=lambda one: values(field[one], first, field[one]).mean())
    lines = []
    for one in order:
        runs = field[one]
        cells = [one, str(len(runs))]
        for score, larger in SCORES[kind].items():
            numbers = values(runs, score, runs)
            if score == "error_auroc":
                numbers = numbers[np.isfinite(numbers)]
            cells.append(
                cell(numbers) if larger is not None else f"{numbers.mean():.1%}"
            )
        cells += [difference(field, one, reference, score) for score in PAIRED[kind]]
        lines.append([*cells, f"{seconds(runs, clock):.3g}"])
    header = ["contestant", "splits", *(TITLES[score] for score in SCORES[kind])]
    header += [f"{TITLES[score]} - {reference}'s" for score in PAIRED[kind]]
    return table([*header, "seconds"], lines)


def difference(field: Field, one: str, reference: str, score: str) -> str:
    """Mean +- standard error of the differences on the splits that both have."""
    splits = common_splits(field, (one, reference))
    if one == reference or not splits:
        return ""
    apart = values(field[one], score, splits) - values(field[reference], score, splits)
    return f"{cell(apart)} ({len(splits)})"


# The whole


def settings(records: list[dict]) -> str:
    """Who took part, with what and in which version."""
    versions: dict[tuple, set] = {}
    for record in records:
        told = (f"{n} {v}" for n, v in record.get("versions", {}).items())
        key = record["contestant"], record["kind"]
        versions.setdefault(key, set()).update(told)
    lines = []
    for one in CONTESTANTS:
        if (one.name, one.kind) not in versions:
            continue
        limits = []
        if one.most_rows:
            limits.append(f"up to {one.most_rows:,} rows")
        if one.most_splits:
            limits.append(f"{one.most_splits} splits")
        told = ", ".join(sorted(versions[one.name, one.kind]))
        lines.append([one.name, one.kind, one.about, told, ", ".join(limits)])
    return table(["contestant", "kind", "settings", "version", "limits"], lines)


def failures(records: list[dict]) -> str:
    """What did not run, by contestant and error."""
    where: dict[tuple, list] = {}
    for record in records:
        if "error" in record:
            key = record["contestant"], record["error"].replace("|", "/")
            where.setdefault(key, []).append(f"{record['task']} {record['split']}")
    lines = [[one, ", ".join(runs), error] for (one, error), runs in where.items()]
    return table(["contestant", "set and split", "error"], lines) if lines else "None."


def text_of(records: list[dict], picture: str | None, clock: str) -> str:
    """The page."""
    threads = sorted({record["threads"] for record in records})
    machines = sorted({record["machine"] for record in records})
    parts = [
        HEAD.format(
            arguments=f" --threads {threads[0]}" if threads != [1] else "",
            threads=" or ".join(map(str, threads)),
            machines="; ".join(machines),
            clock=clock,
        )
    ]
    if picture:
        parts.append(f"![Mean rank against seconds]({picture})\n")
    for kind in SCORES:
        found = fields(records, kind)
        if not found:
            continue
        parts.append(f"## {kind.capitalize()}: mean ranks\n")
        for some, tasks in groups(found):
            parts.append(f"{len(some)} contestants on {len(tasks)} sets that all have:")
            parts[-1] += f" {', '.join(tasks)}.\n"
            parts.append(rank_table(found, kind, some, tasks, clock) + "\n")
        for task, field in found.items():
            n = next(iter(next(iter(field.values())).values()))
            sizes = f"{n['n_train']:,} training rows, {n['n_test']:,} test rows"
            parts.append(f"## {task}\n\n{sizes}.")
            if task in ONLY_BY_NAME:
                parts[-1] += f" {OF_BOSTON}"
            parts.append("\n" + set_table(field, kind, clock) + "\n")
    parts += ["## Settings\n", settings(records) + "\n"]
    parts += ["## What did not run\n", failures(records)]
    return "\n".join(parts) + "\n"


def write(records: Iterable[dict], page: Path, picture: Path, clock: str) -> None:
    """Both files, and where they are."""
    records = list(records)
    if not records:
        print("There are no results yet.")
        return
    drawn = draw(records, picture, clock)
    page.write_text(text_of(records, picture.name if drawn else None, clock))
    print(f"tables: {page}" + (f", picture: {picture}" if drawn else ""))


def draw(records: list[dict], path: Path, clock: str) -> bool:
    """Mean rank of the first score against seconds; whether there was anything."""
    from matplotlib.figure import Figure

    panels = {}
    for kind in SCORES:
        found = fields(records, kind)
        for some, tasks in groups(found)[:1]:
            panels[kind] = found, some, tasks
    if not panels:
        return False
    figure = Figure(figsize=(6.2 * len(panels), 4.6), layout="constrained")
    for axes, (kind, (found, some, tasks)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        score = PAIRED[kind][0]
        ranks = mean_ranks(found, some, tasks, score)
        _panel(axes, ranks, {o: typical_seconds(found, o, tasks, clock) for o in ranks})
        axes.set_ylabel(f"mean rank by {TITLES[score]}")
        axes.set_title(f"{kind}, {len(tasks)} sets")
    figure.savefig(path, dpi=130)
    return True


def _panel(axes, ranks: dict[str, float], times: dict[str, float]) -> None:
    ours = {one.name for one in CONTESTANTS if one.is_ours}
    for one, rank in ranks.items():
        color = VERMILION if one in ours else BLUE
        axes.plot(times[one], rank, "o", color=color)
    # Names go right of their points, and lower where the next one is too near.
    height = 0.035 * (max(ranks.values()) - min(ranks.values()) + 1)
    places = sorted(ranks, key=ranks.get)
    at = {one: ranks[one] for one in places}
    for before, one in pairwise(places):
        at[one] = max(at[one], at[before] + height)
    for one in places:
        axes.annotate(
            one,
            (times[one], ranks[one]),
            (times[one] * 1.12, at[one]),
            va="center",
            fontsize=8,
        )
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.invert_yaxis()
    axes.set_xlabel("seconds of fit and prediction")
    axes.grid(color="#EEEEEE")
