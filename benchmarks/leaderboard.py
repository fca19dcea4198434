"""How do the estimators compare with those of other packages on well-known data sets?

Regression on the UCI sets with their canonical splits, classification on scikit-learn's
sets and two sets of mixed types. Our estimators have default parameters, the others the
settings of their READMEs; none is tuned. Every split runs in a separate process, and in
a separate environment for packages that need one. A finished split is a line of JSON
and is not run again.

    python benchmarks/leaderboard.py --install all
    python benchmarks/leaderboard.py --tasks yacht,energy --splits 3
    python benchmarks/leaderboard.py --report

The first split of all contestants runs first, so that an interrupted run can be used.
``--report`` writes LEADERBOARD.md and its picture from the finished splits.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from _leaderboard import picture, report
from _leaderboard.child import pack
from _leaderboard.contestants import (
    CONTESTANTS,
    ENVIRONMENTS,
    Contestant,
    surroundings,
)
from _leaderboard.predictives import scores_of
from _leaderboard.ranking import CLOCKS
from _leaderboard.results import append, read
from _leaderboard.tasks import TASKS, Task, as_taken
from common import ROOT, command_line, environment

BENCHMARKS = ROOT / "benchmarks"
Run = tuple[Task, Contestant, int]


# Runs that are not finished


def runs(tasks: list[Task], contestants: list[Contestant], most: int) -> Iterator[Run]:
    """Task, contestant and split: the first split of all, then the second, ..."""
    for split in range(most):
        for task in tasks:
            for contestant in contestants:
                if split in contestant.splits(task):
                    yield task, contestant, split


def open_runs(options, records: dict) -> list[Run]:
    """Runs without a record; with ``--retry`` also failed, with ``--again`` all."""
    able = []
    for contestant in CONTESTANTS:
        name, kind = contestant.name, contestant.kind
        if name in options.contestants and _has_task(contestant, options.tasks):
            missing = contestant.why_not(options.pythons)
            if missing:
                print(f"Skipped: {name} ({kind}), {missing}", flush=True)
            else:
                able.append(contestant)
    tasks = [task for task in TASKS if task.name in options.tasks]
    result = []
    for run in runs(tasks, able, options.splits):
        record = records.get((run[0].name, run[1].name, run[2]))
        failed = record is not None and "error" in record
        if record is None or options.again or (options.retry and failed):
            result.append(run)
    return result


def _has_task(contestant: Contestant, names) -> bool:
    return any(task.kind == contestant.kind for task in TASKS if task.name in names)


# One run


def run_one(task: Task, contestant: Contestant, split: int, options) -> dict:
    """The record of one run: scores and seconds, or the error."""
    data = task.split(split)
    X_train, X_test = as_taken(data, contestant.takes)
    record = {
        "task": task.name,
        "contestant": contestant.name,
        "split": split,
        "kind": task.kind,
        "n_train": len(data.y_train),
        "n_test": len(data.y_test),
        "threads": options.threads,
        "machine": options.machine,
    }
    with tempfile.TemporaryDirectory() as folder:
        targets = {"y_train": data.y_train}
        if contestant.is_ours:  # the child process computes the scores of these rows
            targets["y_test"] = data.y_test
        tables = pack(X_train, "X_train") | pack(X_test, "X_test")
        np.savez(Path(folder) / "in.npz", **tables, **targets)
        error = in_child(contestant, folder, split, options)
        if error:
            return record | {"error": error}
        with np.load(Path(folder) / "out.npz", allow_pickle=False) as file:
            arrays = dict(file)
    try:
        scores = scores_of(task.kind, arrays, data.y_test)
    except Exception as error:
        return record | {"error": f"{type(error).__name__}: {error}"}
    about = json.loads(str(arrays["about"]))
    return record | {"scores": scores} | about


def in_child(contestant: Contestant, folder: str, seed: int, options) -> str | None:
    """Run child.py in its environment; return the error in one line, or None."""
    arguments = [folder, str(seed), str(options.threads), contestant.package]
    try:
        done = subprocess.run(
            [*contestant.command(options.pythons), *arguments],
            cwd=folder,
            env=surroundings(options.threads, own=contestant.environment is None),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=options.run_seconds,
        )
    except subprocess.TimeoutExpired:
        return f"stopped after {options.run_seconds:g} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit status {done.returncode}"


def line_of(record: dict) -> str:
    """A record as a readable line."""
    what = f"{record['task']} {record['split']}: {record['contestant']}"
    if "error" in record:
        return f"{what} failed: {record['error']}"
    scores = ", ".join(
        f"{name} {value:.4g}" if value is not None else f"{name} -"
        for name, value in record["scores"].items()
    )
    (wall, cpu), (predicting, _) = record["fit_seconds"], record["predict_seconds"]
    times = f"fit {wall:.1f} s ({cpu:.1f} cpu), predict {predicting:.2f} s"
    return f"{what}: {scores}; {times}"


def write_report(options) -> None:
    """Write the page and its picture from all records."""
    records = list(read(options.results).values())
    if not records:
        print(f"There are no results in {options.results}.")
        return
    drawn = picture.draw(records, options.picture, options.clock)
    name = options.picture.name if drawn else None
    options.tables.write_text(report.text_of(records, name, options.clock))
    print(f"tables: {options.tables}" + f", picture: {options.picture}" * drawn)


# Command line


def install(names: list[str], root: Path) -> None:
    """Create environments with the packages of their contestants, by pip."""
    for name in names:
        folder = root / name
        print(f"{name}: {', '.join(ENVIRONMENTS[name])} to {folder}", flush=True)
        venv.create(folder, with_pip=True)
        python = python_of(folder)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", *ENVIRONMENTS[name]], check=True
        )


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    windows = sys.platform == "win32"
    return folder / ("Scripts/python.exe" if windows else "bin/python")


def names_among(known: list[str]):
    """A parser of names: 'a,b' gives ['a', 'b'], 'all' all known names."""

    def names(text: str) -> list[str]:
        chosen = known if text == "all" else text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return chosen

    return names


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    of_tasks = names_among([task.name for task in TASKS])
    of_contestants = names_among(list(dict.fromkeys(c.name for c in CONTESTANTS)))
    output = Path(os.environ.get("SKBAYESNN_PEERS", BENCHMARKS / "output" / "peers"))
    result = command_line(__doc__)
    add = result.add_argument
    add("--tasks", type=of_tasks, default="all", help="names, or 'all'")
    add("--contestants", type=of_contestants, default="all", help="names, or 'all'")
    add("--splits", type=int, default=20, help="largest number of splits of each")
    add("--threads", type=int, default=1, help="of every contestant")
    add("--results", type=Path, default=BENCHMARKS / "leaderboard.jsonl")
    add("--retry", action="store_true", help="repeat failed runs")
    add("--again", action="store_true", help="repeat finished runs")
    add("--max-seconds", type=float, default=np.inf, help="start no run after these")
    add("--run-seconds", type=float, default=3600.0, help="stop a run after these")
    add("--peers-root", type=Path, default=output, help="folder of the environments")
    add("--env", action="append", default=[], help="NAME=python of an environment")
    add("--install", type=names_among(list(ENVIRONMENTS)), help="create environments")
    add("--report", action="store_true", help="write tables and picture, run nothing")
    add("--clock", choices=list(CLOCKS), default="wall", help="of the report")
    add("--tables", type=Path, default=BENCHMARKS / "LEADERBOARD.md")
    add("--picture", type=Path, default=BENCHMARKS / "leaderboard.png")
    return result


def main() -> None:
    """Create environments, write the report, or run the unfinished splits."""
    options = parser().parse_args()
    if options.install:
        return install(options.install, options.peers_root)
    if options.report:
        return write_report(options)
    options.pythons = {
        name: python_of(options.peers_root / name) for name in ENVIRONMENTS
    } | {
        name: Path(python)
        for name, _, python in (e.partition("=") for e in options.env)
    }
    torch.set_num_threads(options.threads)
    options.machine = environment()
    start = time.perf_counter()
    left = open_runs(options, read(options.results))
    for number, run in enumerate(left, 1):
        if time.perf_counter() - start > options.max_seconds:
            print(f"{len(left) - number + 1} runs are left")
            break
        record = run_one(*run, options)
        append(options.results, record)
        print(f"[{number}/{len(left)}] {line_of(record)}", flush=True)


if __name__ == "__main__":
    main()
