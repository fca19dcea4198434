"""What a stack loses if its candidates are compared on a sample of the rows.

    python benchmarks/many_rows.py adult generated --selection-rows 10000

Each line is one fit to the same rows: candidates compared on all rows or on a sample,
and the networks with positive weight fitted to all rows in both cases. ``generated`` is
a table of 5,000,000 rows and 20 columns, written to a Parquet file; its noise has a
standard deviation of 0.3 and the function has a variance of about 1.5.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _leaderboard.tasks import TASKS

from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor

GENERATED = 5_000_000
N_TEST = 20_000


def scored(model, X, y):
    """Scores of a fitted stack on test rows."""
    density = model.log_predictive_density(X, y).mean()
    if hasattr(model, "predict_proba"):
        return {"log probability": density, "accuracy": model.score(X, y)}
    error = np.sqrt(np.mean(np.square(model.predict(X) - y)))
    return {"RMSE": error, "CRPS": model.crps(X, y).mean(), "log density": density}


def generated(n, seed):
    """Rows of the generated table."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 20), dtype=np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] * np.abs(X[:, 4])
    return X, (y + 0.3 * random.standard_normal(n, dtype=np.float32)).astype("f4")


def report(name, model, fit, X, y):
    """Fit, score, and print one line."""
    start, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(model)
        scores = scored(model, X, y)
    values = "  ".join(f"{score} {value:.4f}" for score, value in scores.items())
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{name:34} {values}  {seconds:.0f} s, {cpu:.0f} s CPU", flush=True)


def main():
    """Compare the fits for every named table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tables",
        nargs="*",
        default=["protein-tertiary-structure", "adult", "generated"],
    )
    parser.add_argument("--selection-rows", type=int, nargs="*", default=[10_000])
    parser.add_argument("--estimators", default="auto")
    parser.add_argument("--only-networks", action="store_true")
    parser.add_argument("--rows", type=int, default=GENERATED)
    arguments = parser.parse_args()
    if arguments.only_networks:
        size = arguments.estimators
        arguments.estimators = [(name, size) for name in ("network", "linear")]
    for table in arguments.tables:
        if table == "generated":
            run_generated(arguments)
            continue
        [task] = [task for task in TASKS if task.name == table]
        split = task.split(0)
        train, test = (split.X_train, split.y_train), (split.X_test, split.y_test)
        stack = BayesianStackingRegressor
        if task.kind == "classification":
            stack = BayesianStackingClassifier
        for n in (10**9, *arguments.selection_rows):
            model = stack(arguments.estimators, n_selection_rows=n, random_state=0)
            name = f"{table}, {'all rows' if n == 10**9 else f'{n:,} rows'}"
            report(name, model, lambda model, t=train: model.fit(*t), *test)


def run_generated(arguments):
    """Fit to a file of many rows; compare with a fit to the sample only."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{i}" for i in range(20)]
    X_test, y_test = generated(N_TEST, 10**6)
    X_test = pd.DataFrame(X_test, columns=names)
    with tempfile.TemporaryDirectory() as folder:
        path, n_group = Path(folder) / "rows.parquet", 250_000
        schema = pa.schema([(name, pa.float32()) for name in [*names, "y"]])
        with pq.ParquetWriter(path, schema) as writer:
            for i in range(-(-arguments.rows // n_group)):
                X, y = generated(n_group, i)
                columns = [*np.ascontiguousarray(X.T), y]
                writer.write_table(pa.table(columns, schema=schema))
        for n in arguments.selection_rows:
            X, y = generated(n_group, 0)
            sample = pd.DataFrame(X[:n], columns=names), y[:n]
            model = BayesianStackingRegressor(
                arguments.estimators, n_selection_rows=n, random_state=0
            )
            report(
                f"generated, only {n:,} rows",
                model,
                lambda model, s=sample: model.fit(*s),
                X_test,
                y_test,
            )
            report(
                f"generated, {n:,} of {arguments.rows:,} rows",
                model,
                lambda model: model.fit(path, y="y"),
                X_test,
                y_test,
            )


if __name__ == "__main__":
    main()
