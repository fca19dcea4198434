"""How fast are predictions in production?

Estimators with default parameters, fitted to 1,000 rows x 10 columns: one row at a time
on one thread, 100,000 rows at once, eight threads that predict 100 rows each, the time
of a new process to load a pickle (without importing torch and scikit-learn), and the
size of the pickle.

    python benchmarks/serving.py
"""

import pickle
import statistics
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from common import command_line, environment, table, verdict
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


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(environment())
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


if __name__ == "__main__":
    main()
