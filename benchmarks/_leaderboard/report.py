"""The page LEADERBOARD.md with tables of the results.

Means are over all splits of a contestant. Comparisons use common splits only:
differences are computed split by split, and ranks from means over common splits.
"""

import numpy as np
from _leaderboard.contestants import CONTESTANTS, REFERENCES, SMALL_ROWS
from _leaderboard.predictives import SCORES
from _leaderboard.ranking import (
    PAIRED,
    RANKED,
    TITLES,
    Field,
    common_splits,
    fields,
    groups,
    mean_ranks,
    seconds,
    typical_seconds,
    values,
)
from common import table
from published import ON_LEADERBOARD
from uci import ONLY_BY_NAME, with_error

HEAD = """# Leaderboard

Tables that `benchmarks/leaderboard.py --report` writes from the runs of
`python benchmarks/leaderboard.py{arguments}`.

- No method is tuned. Ours have default parameters; the others have the settings of
  their READMEs, or defaults.
- Each split is fitted in a separate process. Seconds are for fit and prediction
  ({clock} clock, {threads} thread(s)), without imports.
- Log densities are of the exact predictive distribution, in nats and y's units. For a
  method that predicts quantiles, the distribution function is linear between them; "-"
  means that two quantiles are equal.
- The AUROC of errors is of 1 - the largest probability, over splits with an error.
- Lines marked "published" are quoted and have no ranks. Their splits and settings may
  differ. Foundation models (TabPFN, TabICL) were not run: their weights could not be
  downloaded.
- +- is the standard error over splits.
- Ranks are by the means over the splits that all methods of a table have. They are
  averaged over the sets.

Ran on: {machines}.
"""
OF_BOSTON = (
    "For comparison with published rows only: one of its features was built on the "
    "racial composition of towns."
)


def mean_and_error(scores: np.ndarray) -> tuple[float, float | None]:
    """Mean and standard error over splits; None as the error of a single split."""
    n = len(scores)
    error = float(scores.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return float(scores.mean()), error


def cell(scores: np.ndarray) -> str:
    """Mean +- standard error; a dash if any score is missing."""
    if not len(scores):
        return "-"
    mean, error = mean_and_error(scores)
    if np.isnan(mean):
        return "-"
    return f"{mean:.4g}" if not error else with_error(mean, error)


def rank_table(
    by_task, kind: str, some: list[str], tasks: list[str], clock: str
) -> str:
    """The table of mean ranks, the best contestant first."""
    scores = RANKED[kind]
    ranks = {score: mean_ranks(by_task, some, tasks, score) for score in scores}
    order = sorted(some, key=lambda one: ranks[scores[0]].get(one, np.inf))
    lines = []
    for one in order:
        cells = [f"{ranks[s][one]:.2f}" if one in ranks[s] else "-" for s in scores]
        lines.append(
            [one, *cells, f"{typical_seconds(by_task, one, tasks, clock):.3g}"]
        )
    header = ["contestant", *(TITLES[score] for score in scores), "seconds"]
    return table(header, lines)


# Tables of sets


def set_table(task: str, field: Field, kind: str, clock: str) -> str:
    """Scores of all contestants on one set, and differences from the reference.

    The last lines are published scores of other models.
    """
    reference = next((one for one in REFERENCES if one in field), next(iter(field)))
    first = PAIRED[kind][0]
    order = sorted(field, key=lambda one: values(field[one], first, field[one]).mean())
    lines = []
    for one in order:
        runs = field[one]
        cells = [one, str(len(runs))]
        for score, larger in SCORES[kind].items():
            scores = values(runs, score, runs)
            if score == "error_auroc":
                scores = scores[np.isfinite(scores)]
            cells.append(cell(scores) if larger is not None else f"{scores.mean():.1%}")
        cells += [difference(field, one, reference, score) for score in PAIRED[kind]]
        lines.append([*cells, f"{seconds(runs, clock):.3g}"])
    for name, scores in ON_LEADERBOARD.get(task, {}).items():
        cells = [f"{scores[s]:.4g}" if s in scores else "-" for s in SCORES[kind]]
        unknown = [""] * len(PAIRED[kind])
        lines.append([f"{name} (published)", "20", *cells, *unknown, "-"])
    header = ["contestant", "splits", *(TITLES[score] for score in SCORES[kind])]
    header += [f"{TITLES[score]} - {reference}'s" for score in PAIRED[kind]]
    return table([*header, "seconds"], lines)


def difference(field: Field, one: str, reference: str, score: str) -> str:
    """Mean +- standard error of the differences on common splits."""
    splits = common_splits(field, (one, reference))
    if one == reference or not splits:
        return ""
    own, base = (values(field[name], score, splits) for name in (one, reference))
    return f"{cell(own - base)} ({len(splits)})"


# The whole page


def settings(records: list[dict]) -> str:
    """The table of contestants with their settings and versions."""
    versions: dict[tuple, set] = {}
    for record in records:
        packages = (f"{n} {v}" for n, v in record.get("versions", {}).items())
        key = record["contestant"], record["kind"]
        versions.setdefault(key, set()).update(packages)
    lines = []
    for one in CONTESTANTS:
        if (one.name, one.kind) not in versions:
            continue
        limits = []
        if one.most_rows:
            limits.append(f"up to {one.most_rows:,} rows")
        if one.most_splits:
            limits.append(f"{one.most_splits} splits beyond {SMALL_ROWS} rows")
        version = ", ".join(sorted(versions[one.name, one.kind]))
        lines.append([one.name, one.kind, one.about, version, ", ".join(limits)])
    return table(["contestant", "kind", "settings", "version", "limits"], lines)


def failures(records: list[dict]) -> str:
    """The table of failed runs, by contestant and error."""
    where: dict[tuple, list] = {}
    for record in records:
        if "error" in record:
            key = record["contestant"], record["error"].replace("|", "/")
            where.setdefault(key, []).append(f"{record['task']} {record['split']}")
    lines = [[one, ", ".join(runs), error] for (one, error), runs in where.items()]
    return table(["contestant", "set and split", "error"], lines) if lines else "None."


def text_of(records: list[dict], picture: str | None, clock: str) -> str:
    """The text of the page."""
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
        parts.append(
            "![Mean rank against seconds, ours in blue; no contestant is both faster "
            f"and better than one on the line]({picture})\n"
        )
    for kind in SCORES:
        by_task = fields(records, kind)
        if not by_task:
            continue
        parts.append(f"## {kind.capitalize()}: mean ranks\n")
        for some, tasks in groups(by_task):
            parts.append(f"{len(some)} contestants on {len(tasks)} sets that all have:")
            parts[-1] += f" {', '.join(tasks)}.\n"
            parts.append(rank_table(by_task, kind, some, tasks, clock) + "\n")
        for task, field in by_task.items():
            n = next(iter(next(iter(field.values())).values()))
            sizes = f"{n['n_train']:,} training rows, {n['n_test']:,} test rows"
            parts.append(f"## {task}\n\n{sizes}.")
            if task in ONLY_BY_NAME:
                parts[-1] += f" {OF_BOSTON}"
            parts.append("\n" + set_table(task, field, kind, clock) + "\n")
    parts += ["## Settings\n", settings(records) + "\n"]
    parts += ["## What did not run\n", failures(records)]
    return "\n".join(parts) + "\n"
