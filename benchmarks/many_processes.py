"""How much faster are two processes than one, under torchrun and with Dask?

First part: an ensemble on 20,000 rows and 50 columns, trained by one process, and by
two processes that divide its networks. Times are per epoch, medians over
interleaved runs, by two clocks. The wall clock needs two cores without other work. The
machine is what it allows: two processes that train an ensemble each, at the same time,
would be twice as fast as one on two free cores. CPU time is that of all threads of the
slower process, without its waiting, so its ratio is an upper bound of the speed-up on
free cores.

Second part: a stack with ``n_jobs=2`` and with two workers of a Dask cluster.

    python benchmarks/many_processes.py
"""

import json
import os
import statistics
import subprocess
import sys
import time

import joblib
import numpy as np
from common import command_line, environment, epoch_seconds, table, verdict

from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn._engine.processes import PROCESSES_VARIABLE, present_processes

ROWS, COLUMNS = 20_000, 50
N_NETWORKS = 2, 8
EPOCHS, REPEATS = 4, 7
STACK_ROWS, STACK_COLUMNS, STACK_EPOCHS = 5000, 20, 20
DASK_TARGET = 1.2


def rows(n_rows, n_columns):
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows, n_columns)).astype(np.float32)
    noise = 0.1 * random.normal(size=n_rows)
    return X, (np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + noise).astype(np.float32)


# ---- processes of torchrun


def seconds_per_epoch(X, y, n_networks):
    """Wall-clock and CPU seconds of an epoch, and the number of processes."""
    model = MCDropoutRegressor(
        (64, 64),
        dropout=0.05,
        tau=10.0,
        batch_size=500,
        n_estimators=n_networks,
        max_iter=EPOCHS,
        early_stopping=False,
        device="cpu",
        random_state=0,
    )
    times = epoch_seconds(lambda: model.fit(X, y), EPOCHS)
    return times["wall"], times["cpu"], model.n_processes_


def worker():
    """One of two processes: print the seconds of every way as JSON."""
    X, y = rows(ROWS, COLUMNS)
    everybody = present_processes()
    seconds_per_epoch(X[:2000], y[:2000], 2)  # compiles the loop
    for n_networks in N_NETWORKS:
        for _ in range(REPEATS):
            times = {}
            for way in ("one", "two alone", "two together"):
                everybody.gather(None)  # start together
                os.environ[PROCESSES_VARIABLE] = (
                    "together" if way == "two together" else "alone"
                )
                if way != "one" or everybody.rank == 0:
                    times[way] = seconds_per_epoch(X, y, n_networks)
            of_all = everybody.gather(times)
            if everybody.rank == 0:
                slowest = {
                    f"{way}, {clock}": max(t[way][i] for t in of_all if way in t)
                    for way in of_all[0]
                    for i, clock in enumerate(("wall", "cpu"))
                }
                n_processes = times["two together"][2]
                print(json.dumps([n_networks, n_processes, slowest]), flush=True)


def processes():
    """Run two workers; print a table."""
    command = ["-m", "torch.distributed.run", "--nproc-per-node=2", __file__]
    done = subprocess.run(
        [sys.executable, *command, "--worker"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured = {}
    for line in done.stdout.splitlines():
        n_networks, n_processes, times = json.loads(line)
        measured.setdefault((n_networks, n_processes), []).append(times)
    lines = []
    for (n_networks, n_processes), runs in measured.items():
        median = {way: statistics.median(run[way] for run in runs) for way in runs[0]}

        def ratio(way, clock, runs=runs):
            """Median of the time of one process over the time of another way."""
            return statistics.median(
                run[f"one, {clock}"] / run[f"{way}, {clock}"] for run in runs
            )

        lines.append(
            (
                n_networks,
                n_processes,
                f"{median['one, wall']:.3f}",
                f"{median['two together, wall']:.3f}",
                f"{ratio('two together', 'wall'):.2f}",
                f"{2 * ratio('two alone', 'wall'):.2f}",
                f"{median['one, cpu']:.3f}",
                f"{median['two together, cpu']:.3f}",
                f"{ratio('two together', 'cpu'):.2f}",
                f"{2 * ratio('two alone', 'cpu'):.2f}",
            )
        )
    header = (
        "networks",
        "processes",
        "one, s",
        "two, s",
        "speed-up",
        "machine",
        "one, CPU s",
        "two, CPU s",
        "speed-up",
        "machine",
    )
    print(table(header, lines))


# ---- workers of Dask


def dask():
    """Fit a stack in two ways; print a table."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        print("Skipped: the second part needs `pip install distributed`.")
        return
    X, y = rows(STACK_ROWS, STACK_COLUMNS)

    def seconds(backend):
        stack = BayesianStackingRegressor(
            "fast", max_iter=STACK_EPOCHS, n_jobs=2, random_state=0
        )
        start = time.perf_counter()
        with joblib.parallel_config(backend):
            stack.fit(X, y)
        return time.perf_counter() - start, stack.predict(X)

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster):
        runs = []
        for i in range(1 + REPEATS):
            (loky, expected), (cluster_time, actual) = seconds("loky"), seconds("dask")
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
            if i:  # the first run imports and compiles
                runs.append((loky, cluster_time))
    loky, cluster_time = map(statistics.median, zip(*runs, strict=True))
    share = statistics.median(b / a for a, b in runs)
    header = "n_jobs=2, s", "Dask, s", "ratio", f"target {DASK_TARGET}"
    result = verdict(share, DASK_TARGET, at_most=True)
    print(
        table(header, [(f"{loky:.2f}", f"{cluster_time:.2f}", f"{share:.2f}", result)])
    )


def main():
    parser = command_line(__doc__)
    parser.add_argument("--worker", action="store_true", help="for internal use")
    if parser.parse_args().worker:
        worker()
        return
    print(environment())
    processes()
    dask()


if __name__ == "__main__":
    main()
