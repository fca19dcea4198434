"""How fast are predictions in production?

Estimators with default parameters, fitted to 1,000 rows x 10 columns: one row at a time
on one thread, 100,000 rows at once, eight threads that predict 100 rows each, the time
of a new process to load a pickle (without importing torch and scikit-learn), and the
size of the pickle. Then the CPU time of calls with frames of 30 mixed columns, the
latency of the default stack, many threads next to two processes, and what 300 fits
leave behind.

    python benchmarks/serving.py
    python benchmarks/serving.py --parts latency,threads,fits
"""

import multiprocessing
import os
import pickle
import statistics
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch
from common import CLOCKS, command_line, environment, table, verdict
from import_time import output_of

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)

ROWS, COLUMNS, MANY = 1000, 10, 100_000
CALLS, ROWS_OF_A_CALL, THREADS = 400, 100, 8
# Seconds of all rows on two threads that may not be exceeded.
MOST_SECONDS = {
    "MCDropoutRegressor": 0.2,
    "MCDropoutClassifier": 0.5,
    "BayesianStackingRegressor": 1.0,
}
KINDS = (
    MCDropoutRegressor,
    MCDropoutClassifier,
    BBBRegressor,
    VariationalDropoutRegressor,
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
)
FRAME_ROWS = 1, 1000
# Milliseconds of a frame of pandas, by the number of rows, that may not be exceeded.
MOST_OF_FRAME = {1: 4.0, 1000: 20.0}
# Calls of one row, and the milliseconds of the median and of the 99th percentile that
# may not be exceeded.
LATENCY_CALLS, MOST_LATENCY = 10_000, (2.0, 5.0)
# Threads that serve one row at a time, and the seconds that they do.
MANY_THREADS, SECONDS_OF_THREADS = 64, 10.0
# Fits to tables of a few rows, and those after which memory is read.
FIT_ROWS, FITS = 60, (50, 100, 200, 300)
LOADED = """
import pickle, sys, time
import sklearn.base, torch
start = time.perf_counter()
model = pickle.loads(open({path!r}, "rb").read())
print(time.perf_counter() - start)
"""


def models():
    """Fitted estimators by the names of their classes."""
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, COLUMNS))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * random.normal(size=ROWS)
    for kind in KINDS:
        target = y > 0 if kind is MCDropoutClassifier else y
        yield kind.__name__, kind(max_iter=5, random_state=0).fit(X, target)


def method_of(model):
    """The method to time."""
    return getattr(model, "predict_proba", model.predict)


def of_single_rows(model, dtype):
    """Median milliseconds of one row, on one thread."""
    x = np.random.default_rng(1).normal(size=(CALLS, 1, COLUMNS)).astype(dtype)
    predict, times = method_of(model), []
    for row in x:
        start = time.perf_counter()
        predict(row)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def of_many_rows(model, dtype, threads):
    """Seconds of all rows at once."""
    X = np.random.default_rng(2).normal(size=(MANY, COLUMNS)).astype(dtype)
    torch.set_num_threads(threads)
    method_of(model)(X[:1000])
    start = time.perf_counter()
    method_of(model)(X)
    elapsed = time.perf_counter() - start
    torch.set_num_threads(1)
    return elapsed


def rows_per_second(model, n_threads):
    """Predicted rows per second of n parallel threads."""
    X = np.random.default_rng(3).normal(size=(ROWS_OF_A_CALL, COLUMNS))
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(method_of(model), [X] * n_threads))
        start = time.perf_counter()
        list(pool.map(method_of(model), [X] * CALLS))
        return CALLS * ROWS_OF_A_CALL / (time.perf_counter() - start)


def seconds_to_load(model, folder):
    """Seconds to load a pickle in a new process, the median of five."""
    path = Path(folder) / "model.pkl"
    path.write_bytes(pickle.dumps(model))
    code = LOADED.format(path=str(path))
    return statistics.median(float(output_of(code)) for _ in range(5))


def mixed_frame():
    """30 columns: 21 of numbers, 4 of text, 2 of categories, 2 of dates, 1 boolean."""
    random = np.random.default_rng(4)
    numbers = random.normal(size=(ROWS, 21))
    numbers[:, :3] = np.where(random.random((ROWS, 3)) < 0.2, np.nan, numbers[:, :3])
    frame = pd.DataFrame(numbers).add_prefix("number ")
    for j, levels in enumerate((4, 4, 4, 40)):
        frame[f"text {j}"] = [f"level {i}" for i in random.integers(0, levels, ROWS)]
    levels = random.choice(["a", "b", "c"], size=(2, ROWS))
    frame["category"] = pd.Categorical(levels[0])
    frame["ordered"] = pd.Categorical(levels[1], ordered=True)
    hours = random.integers(0, 7000, size=ROWS)
    frame["date"] = np.datetime64("2024-01-01", "h") + hours
    frame["date as text"] = frame["date"].dt.strftime("%Y-%m-%d")
    frame["boolean"] = random.random(ROWS) < 0.5
    return frame


def milliseconds(model, X):
    """CPU milliseconds of one prediction: the least of many."""
    times = []
    for _ in range(150):
        start = time.process_time()
        model.predict(X)
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def of_frames():
    """Print a table of the CPU time of predictions for frames."""
    frame = mixed_frame()
    y = frame["number 5"] + np.random.default_rng(5).normal(size=ROWS)
    tables = {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "pyarrow": pa.Table.from_pandas(frame, preserve_index=False),
        "an array of 30 numbers": np.random.default_rng(6).normal(size=(ROWS, 30)),
    }
    rows, measured = [], {}
    for kind in (MCDropoutRegressor, BayesianStackingRegressor):
        for name, table_of_kind in tables.items():
            model = kind(max_iter=5, random_state=0).fit(table_of_kind, y)
            times = [milliseconds(model, table_of_kind[:n]) for n in FRAME_ROWS]
            rows.append([kind.__name__, name, *(f"{value:.1f}" for value in times)])
            if kind is MCDropoutRegressor and name == "pandas":
                measured = dict(zip(FRAME_ROWS, times, strict=True))
    print(f"\nCPU milliseconds of predict, 30 mixed columns: {environment()}")
    print(table(["", "table", *(f"rows: {n:,}" for n in FRAME_ROWS)], rows))
    for n, value in measured.items():
        text = verdict(value, MOST_OF_FRAME[n], at_most=True)
        print(f"{KINDS[0].__name__}, pandas, {n:,} rows: {text}")


def stacks():
    """The default stack, its name, and the table that it was fitted to."""
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, COLUMNS))
    noise = random.normal(size=ROWS)
    frame = mixed_frame()
    tables = {
        "an array of 10 numbers": (X, np.sin(X[:, 0]) + X[:, 1] + 0.3 * noise),
        "a frame of 30 columns": (frame, frame["number 5"].to_numpy() + noise),
    }
    for name, (table_of_rows, y) in tables.items():
        model = BayesianStackingRegressor(random_state=0).fit(table_of_rows, y)
        yield name, model, table_of_rows


def one_by_one(model, X, wanted, now=time.perf_counter):
    """Predict one row after another while ``wanted(seconds, n)``; seconds of each."""
    rows = [X[i : i + 1] for i in range(len(X))]
    times, start = [], now()
    while wanted(now() - start, len(times)):
        before = now()
        model.predict(rows[len(times) % len(rows)])
        times.append(now() - before)
    return times


def of_latency(models_and_rows):
    """Print percentiles of the milliseconds of one row, by both clocks.

    On one thread of an idle machine the CPU time is the wall-clock time.
    """
    rows, texts = [], []
    for name, model, X in models_and_rows:
        one_by_one(model, X, lambda _, n: n < CALLS)
        for clock, now in CLOCKS.items():
            times = one_by_one(model, X, lambda _, n: n < LATENCY_CALLS, now)
            values = 1e3 * np.quantile(times, [0.5, 0.9, 0.99, 0.999])
            cells = [f"{value:.2f}" for value in values]
            rows.append([name, len(model.estimators_), clock, *cells])
        for value, most in zip(values[::2], MOST_LATENCY, strict=True):
            texts.append(f"{name}, {clock}: {verdict(value, most, at_most=True)}")
    print(f"\nDefault stack, milliseconds of one row, {LATENCY_CALLS:,} calls")
    header = ["", "candidates", "clock", "median", "90 %", "99 %", "99.9 %"]
    print(table(header, rows))
    print("\n".join(texts))


def n_calls(path, seconds):
    """Calls of one row in some seconds, in this process."""
    torch.set_num_threads(1)
    model, X = pickle.loads(Path(path).read_bytes())
    return len(one_by_one(model, X, lambda spent, _: spent < seconds))


def of_threads(models_and_rows):
    """Print rows per second of threads and of processes."""
    spawn = multiprocessing.get_context("spawn")
    rows = []
    for name, model, X in models_and_rows:
        with (
            tempfile.TemporaryDirectory() as folder,
            ThreadPoolExecutor(MANY_THREADS) as threads,
            ProcessPoolExecutor(2, mp_context=spawn) as processes,
        ):
            path = Path(folder) / "model.pkl"
            path.write_bytes(pickle.dumps((model, X)))
            cells = []
            for pool, n in (threads, 1), (threads, 8), (threads, 64), (processes, 2):
                for seconds in (1.0, SECONDS_OF_THREADS):  # the first warms up
                    done = sum(pool.map(n_calls, [path] * n, [seconds] * n))
                cells.append(f"{done / SECONDS_OF_THREADS:,.0f}")
        rows.append([name, *cells])
    print("\nDefault stack, rows per second, one row in each call")
    header = ["", "1 thread", "8 threads", f"{MANY_THREADS} threads", "2 processes"]
    print(table(header, rows))


def left_behind():
    """Resident mebibytes, file descriptors and threads of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    mebibytes = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    folders = "/proc/self/fd", "/proc/self/task"
    return mebibytes, *(len(os.listdir(folder)) for folder in folders)


def of_fits():
    """Print what fits leave behind: stacks, and networks in joblib's processes."""
    random = np.random.default_rng(8)
    X = random.normal(size=(FIT_ROWS, 4))
    y = X[:, 0] + 0.1 * random.normal(size=FIT_ROWS)
    rows = []
    for n in range(1, FITS[-1] + 1):
        kind = (BayesianStackingRegressor, MCDropoutRegressor)[n % 2]
        options = {"max_iter": 5, "random_state": n}
        if kind is BayesianStackingRegressor:
            options["estimators"] = "fast"
        kind(**options).fit(X, y).predict_interval(X)
        if n in FITS:
            mebibytes, descriptors, threads = left_behind()
            rows.append([n, f"{mebibytes:.0f}", descriptors, threads])
    print(f"\nAfter fits to {FIT_ROWS} rows, every second one of a stack")
    print(table(["fits", "resident MiB", "file descriptors", "threads"], rows))


def of_calls():
    """Print a table of single rows, many rows, threads, and loading."""
    header = ["", "one row, ms", "float32"]
    header += [f"{MANY:,} rows, s: 1 thread", "2 threads", "float32, 2 threads"]
    header += [f"{THREADS} threads / 1", "load, s", "pickle, kB"]
    rows, verdicts = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models():
            single = [of_single_rows(model, d) for d in (np.float64, np.float32)]
            many = [
                of_many_rows(model, *how)
                for how in ((np.float64, 1), (np.float64, 2), (np.float32, 2))
            ]
            faster = rows_per_second(model, THREADS) / rows_per_second(model, 1)
            load = seconds_to_load(model, folder)
            cells = [f"{value:.2f}" for value in (*single, *many, faster, load)]
            rows.append([name, *cells, f"{len(pickle.dumps(model)) / 1e3:.0f}"])
            if name in MOST_SECONDS:
                most = MOST_SECONDS[name]
                verdicts[f"{name}, many rows"] = verdict(many[1], most, at_most=True)
            if name == KINDS[0].__name__:
                verdicts |= {
                    f"{name}, one row": verdict(single[0], 0.3, at_most=True),
                    f"{name}, threads": verdict(faster, 1.8, at_most=False),
                    f"{name}, load": verdict(load, 0.3, at_most=True),
                }
    print(table(header, rows))
    for what, text in verdicts.items():
        print(f"{what}: {text}")


def main():
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--parts", default="calls,frames,latency,threads,fits", help="comma-separated"
    )
    parts = parser.parse_args().parts.split(",")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(environment())
    if "calls" in parts:
        of_calls()
    if "frames" in parts:
        of_frames()
    if {"latency", "threads"} & {*parts}:
        fitted = list(stacks())
    if "latency" in parts:
        of_latency(fitted)
    if "threads" in parts:
        of_threads(fitted)
    if "fits" in parts:
        of_fits()


if __name__ == "__main__":
    main()
