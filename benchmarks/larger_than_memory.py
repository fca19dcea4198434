"""One epoch over a Parquet file: reading, arithmetic, memory, and predictions.

    python benchmarks/larger_than_memory.py --rows 10000000

The file is written to a temporary folder, in row groups of random rows. Each line is
measured in a separate process. Peak memory is the largest resident set of the process
minus its size after the imports. "arithmetic" is the time of one epoch of the same
network on rows in memory, times the rows of the file. "share of the larger" is the
time of an epoch from the file, divided by the larger of reading and arithmetic.

The CPU time of an epoch is given for the thread that trains and for all other threads,
which read and encode. On a busy machine it is more reliable than the wall clock; the
second share is the larger of the two, divided by the larger CPU time of reading and
arithmetic.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS = 50
ROWS_IN_MEMORY = 200_000
ROWS_OF_GROUP = 1 << 17


def target(X):
    """A smooth function of five of the columns, plus noise."""
    random = np.random.default_rng(len(X))
    signal = (
        np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] - 0.3 * X[:, 4] ** 2
    )
    return (signal + 0.3 * random.normal(size=len(X))).astype(np.float32)


def write(path, n_rows):
    """Write a table of normal columns and y."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    names = [f"x{i}" for i in range(COLUMNS)]
    schema = pa.schema([(name, pa.float32()) for name in [*names, "y"]])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, ROWS_OF_GROUP):
            n = min(ROWS_OF_GROUP, n_rows - start)
            X = random.standard_normal((n, COLUMNS), dtype=np.float32)
            columns = [*np.ascontiguousarray(X.T), target(X)]
            writer.write_table(pa.table(columns, schema=schema))


def resident():
    """Present resident set, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def peak():
    """Largest resident set so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def network(**params):
    """The default network of one epoch."""
    from skbayesnn import MCDropoutRegressor

    params = {"max_iter": 1, "random_state": 0} | params
    return MCDropoutRegressor(**params)


def run_reading(path, n_rows):
    """Read and decode all row groups to arrays."""
    import pyarrow.parquet as pq

    start, cpu = time.perf_counter(), time.process_time()
    with pq.ParquetFile(path) as file:
        for i in range(file.num_row_groups):
            np.asarray(file.read_row_group(i))
    cpu = time.process_time() - cpu
    return {"seconds": time.perf_counter() - start, "cpu": cpu}


def run_arithmetic(path, n_rows):
    """One more epoch of a network on rows in memory, per row."""
    X = np.random.default_rng(1).standard_normal(
        (ROWS_IN_MEMORY, COLUMNS), dtype=np.float32
    )
    y = target(X)
    batch = {"batch_size": 1024}
    network(**batch).fit(X[:5000], y[:5000])  # compiles
    times = []
    for n_epochs in (2, 22):
        model = network(max_iter=n_epochs, **batch)
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    per_epoch = np.subtract(times[1], times[0]) / 20 * n_rows / ROWS_IN_MEMORY
    return {"seconds": per_epoch[0], "cpu": per_epoch[1]}


def run_epoch(path, n_rows):
    """Fits with one and with three passes: half of the difference is one epoch."""
    small = np.random.default_rng(1).standard_normal((2000, 3), dtype=np.float32)
    network().fit(small, small[:, 0]).predict(small)  # compiles
    before, times = resident(), []
    for n_epochs in (1, 3):
        clocks = time.perf_counter, time.thread_time, time.process_time
        start = [clock() for clock in clocks]
        model = network(max_iter=n_epochs).fit(path, y="y")
        times.append([clock() - at for clock, at in zip(clocks, start, strict=True)])
    differences = np.subtract(times[1], times[0]) / 2
    seconds, training, process = differences.tolist()
    return {
        "seconds": seconds,
        "training": training,
        "reading": process - training,
        "seconds_of_fit": times[0][0],
        "peak": peak() - before,
        "noise": float(model.noise_std_),
    }


def run_predictions(path, n_rows):
    """Predict rows of the file, and write means and standard deviations."""
    model = network()
    X = np.random.default_rng(1).standard_normal((20_000, COLUMNS), dtype=np.float32)
    import pandas as pd

    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(COLUMNS)])
    model.fit(frame, target(X)).predict(frame[:2000])
    before, output, results = resident(), str(Path(path).parent / "out.parquet"), {}
    for method in ("mean_weights", "draws"):
        start, cpu = time.perf_counter(), time.process_time()
        model.predict(path, return_std=True, method=method, output=output)
        results[method] = n_rows / (time.perf_counter() - start)
        results[f"cpu_{method}"] = n_rows / (time.process_time() - cpu)
        results[f"peak_{method}"] = peak() - before
    os.remove(output)
    return results


def measured(part, path, n_rows):
    """Result of a part in a new process."""
    command = [sys.executable, __file__, "--part", part, "--path", path]
    command += ["--rows", str(n_rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Write the file, and measure all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--predicted-rows", type=int, default=1_000_000)
    parser.add_argument("--folder")
    parser.add_argument("--part")
    parser.add_argument("--path")
    arguments = parser.parse_args()
    if arguments.part:
        result = globals()[f"run_{arguments.part}"](arguments.path, arguments.rows)
        print(json.dumps(result))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path, n_rows = str(Path(folder) / "rows.parquet"), arguments.rows
        write(path, n_rows)
        size = Path(path).stat().st_size / 1e9
        print(f"{n_rows:,} rows x {COLUMNS} columns, {size:.2f} GB", flush=True)
        parts = {}
        for part in ("reading", "arithmetic"):
            parts[part] = result = measured(part, path, n_rows)
            print(
                f"{part:26}{result['seconds']:8.1f} s, {result['cpu']:.1f} s CPU",
                flush=True,
            )
        epoch = measured("epoch", path, n_rows)
        larger = {
            clock: max(part[clock] for part in parts.values())
            for clock in ("seconds", "cpu")
        }
        of_threads = epoch["training"], epoch["reading"]
        print(
            f"{'one epoch':26}{epoch['seconds']:8.1f} s, CPU of the threads: "
            f"training {of_threads[0]:.1f} s, reading {of_threads[1]:.1f} s"
        )
        share = epoch["seconds"] / larger["seconds"]
        print(
            f"share of the larger       {share:8.2f}, in CPU time "
            f"{max(of_threads) / larger['cpu']:.2f}"
        )
        print(f"fit with one epoch        {epoch['seconds_of_fit']:8.1f} s")
        print(f"peak over the import      {epoch['peak']:8.0f} MB", flush=True)
        n_predicted = min(n_rows, arguments.predicted_rows)
        short = str(Path(folder) / "short.parquet")
        write(short, n_predicted)
        predicted = measured("predictions", short, n_predicted)
        for method in ("mean_weights", "draws"):
            print(
                f"predictions, {method:13}{predicted[method]:8,.0f} rows a second, "
                f"{predicted[f'cpu_{method}']:,.0f} a CPU second, "
                f"peak {predicted[f'peak_{method}']:.0f} MB"
            )


if __name__ == "__main__":
    main()
