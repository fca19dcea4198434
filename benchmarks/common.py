"""Shared parts of the benchmark scripts: data folder, clocks, tables, batched fits.

Every other script of this folder answers one question.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from skbayesnn import __version__
from skbayesnn._engine import training
from skbayesnn.estimators._fit import train_together
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._training_data import TrainingData

ROOT = Path(__file__).resolve().parent.parent
VERSIONS_OF = ("torch", "numpy", "scikit-learn", "skorch")


# "cpu" is the CPU time of this process. With one thread it is about the wall-clock time
# on an otherwise idle machine.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


# Where the data are


def data_folder(*parts: str) -> Path:
    """A folder of the data; if it does not exist, print a message and exit with 0.

    The environment variable ``SKBAYESNN_DATA`` is the folder of all data; the default
    is ``../shared/data``, relative to the repository.
    """
    default = ROOT.parent / "shared" / "data"
    folder = Path(os.environ.get("SKBAYESNN_DATA", default)).joinpath(*parts)
    if not folder.is_dir():
        print(
            f"Skipped: this benchmark needs the data folder {'/'.join(parts)!r}, which "
            "does not exist. Set the environment variable SKBAYESNN_DATA to the folder "
            "that contains it (default: ../shared/data, relative to the repository)."
        )
        sys.exit(0)
    return folder


# What it ran on


def environment(device: str = "cpu") -> str:
    """Cores, threads, processors and versions, as a line above a table."""
    parts = [f"{_cores()} cores", f"{torch.get_num_threads()} threads", _cpu()]
    if torch.device(device).type == "cuda":
        parts.append(torch.cuda.get_device_name(device))
    parts.append(f"Python {platform.python_version()}")
    for name in VERSIONS_OF:
        try:
            parts.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join([*parts, f"skbayesnn {__version__}"])


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str:
    """Name of the processor, and the vector instructions that torch uses."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    about: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        about.setdefault(key.strip(), value.strip())
    name = about.get("model name", name)
    if "model" in about:
        name += f" (family {about.get('cpu family')}, model {about['model']})"
    return f"{name} with {torch.backends.cpu.get_cpu_capability()}"


# Command lines


def command_line(about: str) -> argparse.ArgumentParser:
    """A parser with the first line of a script's docstring; its help shows defaults."""
    return argparse.ArgumentParser(
        description=about.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )


def in_own_process(script: str, **options) -> dict:
    """Run a script in a new interpreter; return its last line of output, which is JSON.

    script : file
    options : command line options; values other than strings are passed as JSON
    """
    given = {
        f"--{name.replace('_', '-')}": v if isinstance(v, str) else json.dumps(v)
        for name, v in options.items()
    }
    done = subprocess.run(
        [sys.executable, script, *(part for pair in given.items() for part in pair)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


# Clocks


def seconds(work: Callable[[], object], device: str = "cpu", clock="wall") -> float:
    """Seconds of one call, including all work on the device."""
    now = CLOCKS[clock]
    _finish(device)
    start = now()
    work()
    _finish(device)
    return now() - start


def interleaved(
    cases: dict[str, Callable[[], object]],
    repeats: int,
    device: str = "cpu",
    clock: str = "wall",
) -> dict[str, list[float]]:
    """Seconds of every case in every round, A B C A B C ..., after one warm-up round.

    Compared cases are timed within seconds of each other, so that a change of the
    machine's load affects all of them.
    """
    for work in cases.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, work in cases.items():
            times[name].append(seconds(work, device, clock))
    return times


def epoch_seconds(fit: Callable[[], object], n_epochs: int) -> dict[str, float]:
    """Seconds of one epoch by every clock, without what a fit does before and after.

    fit : a fit of ``n_epochs`` without a selection on held-out rows
    """
    epochs, times = training._Run.epochs, {}

    def timed(*args):
        starts = {name: clock() for name, clock in CLOCKS.items()}
        epochs(*args)
        for name, clock in CLOCKS.items():
            times[name] = (clock() - starts[name]) / n_epochs

    training._Run.epochs = timed
    try:
        fit()
    finally:
        training._Run.epochs = epochs
    return times


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Median over the rounds of numerator / denominator."""
    pairs = zip(numerator, denominator, strict=True)
    return statistics.median(a / b for a, b in pairs)


def _finish(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


# Tables


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table with aligned columns; cells are already formatted."""
    lines = [list(header), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def line(cells):
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)]
        return "| " + " | ".join(padded) + " |"

    rule = "|-" + "-|-".join("-" * w for w in widths) + "-|"
    return "\n".join([line(lines[0]), rule, *map(line, lines[1:])])


def verdict(value: float, target: float, *, at_most: bool) -> str:
    """The target, and whether the value meets it."""
    met = value <= target if at_most else value >= target
    return f"{'<=' if at_most else '>='} {target:g}: {'met' if met else 'missed'}"


# Networks in plain torch and skorch


def dropout_network(n_inputs: int, n_hidden: int, dropout: float) -> nn.Sequential:
    """Our network in torch's layers: one hidden layer, dropout on every layer."""
    return nn.Sequential(
        nn.Dropout(dropout),
        nn.Linear(n_inputs, n_hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(n_hidden, 1),
    )


def skorch_regressor(**options):
    """A skorch regressor with default settings, without held-out rows and printing."""
    from skorch import NeuralNetRegressor

    return NeuralNetRegressor(
        dropout_network,
        optimizer=torch.optim.Adam,
        train_split=None,
        callbacks__print_log=None,
        verbose=0,
        **options,
    )


# Many fits as one program


def fit_splits(estimators: Sequence, X, y, rows: Sequence[np.ndarray]) -> Sequence:
    """Fit estimator i to the rows ``rows[i]``, all as members of one program.

    Parameters
    ----------
    estimators : sequence of estimators
        They may differ only in tau, dropout, length_scale and random_state.
    X, y : array-like
        The training rows of all estimators.
    rows : sequence of ndarray of int
        Training rows of each estimator, the same number for all.

    Returns
    -------
    estimators : sequence of estimators
        The fitted input.
    """
    checked = [est._validate_table(X, y, None, reset=True) for est in estimators]
    checked_table, target_attributes = checked[0]
    together = train_on(checked_table, rows, estimators, target_attributes)
    for estimator, fitted in zip(estimators, together, strict=True):
        estimator._store_fitted(fitted)
    return estimators


def train_on(table, rows, estimators, target_attributes=None):
    """Train each estimator on its rows of a table, as members of one program."""
    tasks = [
        training_job(
            estimator, TrainingData(table, own_rows, None, target_attributes or {})
        )
        for own_rows, estimator in zip(rows, estimators, strict=True)
    ]
    return train_together(estimators, tasks)
