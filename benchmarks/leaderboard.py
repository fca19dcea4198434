"""How do the estimators do beside others, on tables that all know?

Regression on the UCI sets with their canonical splits, classification on scikit-learn's
sets and two mixed tables; ours with their defaults, and peers with the settings of
their READMEs. Every split is a process of its own, in an environment of the peer's
own where it needs one; a finished split is a line of JSON, and what is finished is not
run again.

    python benchmarks/leaderboard.py --install all
    python benchmarks/leaderboard.py --tasks yacht,energy --splits 3
    python benchmarks/leaderboard.py --report

Nobody is tuned. Splits go round, so that a run that is stopped has the first splits of
all. ``--report`` writes LEADERBOARD.md and its picture from what there is.
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


# What there is to do


def runs(tasks: list[Task], contestants: list[Contestant], most: int) -> Iterator[Run]:
    """Task, contestant and split: the first split of all, then the second, ..."""
    for split in range(most):
        for task in tasks:
            for one in contestants:
                if split in one.splits(task):
                    yield task, one, split


def open_runs(options, found: dict) -> list[Run]:
    """What has no line yet, has failed (``--retry``), or everything (``--again``)."""
    able = []
    for one in CONTESTANTS:
        if one.name in options.contestants and _has_task(one, options.tasks):
            missing = one.why_not(options.pythons)
            if missing:
                print(f"Skipped: {one.name} ({one.kind}), {missing}", flush=True)
            else:
                able.append(one)
    tasks = [task for task in TASKS if task.name in options.tasks]
    result = []
    for run in runs(tasks, able, options.splits):
        record = found.get((run[0].name, run[1].name, run[2]))
        failed = record is not None and "error" in record
        if record is None or options.again or (options.retry and failed):
            result.append(run)
    return result


def _has_task(one: Contestant, names) -> bool:
    return any(task.kind == one.kind for task in TASKS if task.name in names)


# One run


def run_one(task: Task, one: Contestant, split: int, options) -> dict:
    """A line of the results: scores and seconds, or the error."""
    data = task.split(split)
    X_train, X_test = as_taken(data, one.takes)
    record = {
        "task": task.name,
        "contestant": one.name,
        "split": split,
        "kind": task.kind,
        "n_train": len(data.y_train),
        "n_test": len(data.y_test),
        "threads": options.threads,
        "machine": options.machine,
    }
    with tempfile.TemporaryDirectory() as folder:
        targets = {"y_train": data.y_train}
        if one.is_ours:  # its predictive is asked for the scores of these rows
            targets["y_test"] = data.y_test
        tables = pack(X_train, "X_train") | pack(X_test, "X_test")
        np.savez(Path(folder) / "in.npz", **tables, **targets)
        error = in_child(one, folder, split, options)
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


def in_child(one: Contestant, folder: str, seed: int, options) -> str | None:
    """Run child.py there; what went wrong, in one line, or None."""
    arguments = [folder, str(seed), str(options.threads), one.package]
    try:
        done = subprocess.run(
            [*one.command(options.pythons), *arguments],
            cwd=folder,
            env=surroundings(options.threads, own=one.environment is None),
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
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return said[-1][:300] if said else f"exit status {done.returncode}"


def told(record: dict) -> str:
    """A record as a line for people."""
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
    """The page and its picture, of what there is."""
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
    """Make environments with what their contestants need; pip's settings hold."""
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
    """'a,b' -> ['a', 'b'], each of which is known; 'all' is all of them."""

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
    """Command line."""
    of_tasks = names_among([task.name for task in TASKS])
    of_contestants = names_among(list(dict.fromkeys(c.name for c in CONTESTANTS)))
    output = Path(os.environ.get("SKBAYESNN_PEERS", BENCHMARKS / "output" / "peers"))
    result = command_line(__doc__)
    add = result.add_argument
    add("--tasks", type=of_tasks, default="all", help="names, or 'all'")
    add("--contestants", type=of_contestants, default="all", help="names, or 'all'")
    add("--splits", type=int, default=20, help="the first so many of each at most")
    add("--threads", type=int, default=1, help="of every contestant")
    add("--results", type=Path, default=BENCHMARKS / "leaderboard.jsonl")
    add("--retry", action="store_true", help="run what has failed once more")
    add("--again", action="store_true", help="run what is finished once more")
    add("--max-seconds", type=float, default=np.inf, help="start no run after these")
    add("--run-seconds", type=float, default=3600.0, help="end a run after these")
    add("--peers-root", type=Path, default=output, help="folder of the environments")
    add("--env", action="append", default=[], help="NAME=python, instead of that")
    add("--install", type=names_among(list(ENVIRONMENTS)), help="make environments")
    add("--report", action="store_true", help="write tables and picture, run nothing")
    add("--clock", choices=list(CLOCKS), default="wall", help="of the report")
    add("--tables", type=Path, default=BENCHMARKS / "LEADERBOARD.md")
    add("--picture", type=Path, default=BENCHMARKS / "leaderboard.png")
    return result


def main() -> None:
    """Install, report, or run what is open."""
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
        print(f"[{number}/{len(left)}] {told(record)}", flush=True)


if __name__ == "__main__":
    main()
