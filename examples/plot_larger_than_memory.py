"""More rows than fit into memory: fit to a Parquet file, and predict into another
===============================================================================

A file of 2,000,000 generated flights is written in parts. A network is fitted to some
thousand of them in memory, and to the whole file, of which a small part is in memory at
any time. Intervals for another file are written block by block. The picture shows the
error for later flights by the number of training rows: the distance of the prediction
from the expected delay, which is known because the flights are generated.

Writes examples/output/larger_than_memory.png and prints errors, seconds, the coverage
of 90 % intervals, and the limit of the memory.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn
from _common import save, size

from skbayesnn import MCDropoutRegressor

PARTS, ROWS_OF_PART = size(20, short=2), size(100_000, short=1_000)
# Megabytes; with this limit, the file is not read as a whole.
MEMORY = size(512, short=1)
NOISE = 8.0
IN_MEMORY = size((1_000, 10_000, 100_000), short=(500,))
MAX_ITER = size("auto", short=1)


def flights(n_rows, seed):
    """Generated flights: what is known at departure, the delay, and its expectation.

    The last two are in minutes.
    """
    random = np.random.default_rng(seed)
    hour = random.uniform(5, 23, n_rows)
    wind, load = random.gamma(3, 5, n_rows), random.beta(8, 2, n_rows)
    distance = random.lognormal(6.5, 0.6, n_rows)
    carrier = random.choice(["AA", "BB", "CC", "DD"], n_rows, p=[0.4, 0.3, 0.2, 0.1])
    peak = np.exp(-((hour - 17) ** 2) / 8)
    expected = 3 + 15 * peak * load + 0.02 * wind**2 * (carrier == "DD") + 4 * load**4
    delay = expected + NOISE * random.normal(size=n_rows)
    columns = {"hour": hour, "wind": wind, "load": load, "distance": distance}
    return pd.DataFrame(columns | {"carrier": carrier, "delay": delay}), expected


def error(model, table, expected):
    """Root mean squared distance from the expected delay, minutes."""
    predicted = model.predict(table.drop(columns="delay"))
    return np.sqrt(np.mean(np.square(predicted - expected)))


def main():
    """Fit in memory and from the file, and draw the errors."""
    with tempfile.TemporaryDirectory() as folder:
        folder, rows, errors = Path(folder), [], []
        for i in range(PARTS):
            part, _ = flights(ROWS_OF_PART, seed=i)
            part.to_parquet(folder / f"flights-{i:02}.parquet")
        later, expected = flights(5_000, seed=999)
        later.to_parquet(folder / "later.parquet")
        for n in IN_MEMORY:
            model = MCDropoutRegressor(max_iter=MAX_ITER, random_state=0)
            model.fit(flights(n, seed=0)[0], y="delay")
            rows.append(n)
            errors.append(error(model, later, expected))
            print(f"{n:>9,} rows in memory: error {errors[-1]:.3f} minutes")
        with sklearn.config_context(working_memory=MEMORY):
            start = time.perf_counter()
            model = MCDropoutRegressor(max_iter=MAX_ITER, random_state=0)
            model.fit(folder / "flights-*.parquet", y="delay")
            seconds = time.perf_counter() - start
            model.predict_interval(
                folder / "later.parquet", coverage=0.9, output=folder / "out.parquet"
            )
        n_all = PARTS * ROWS_OF_PART
        rows.append(n_all)
        errors.append(error(model, later, expected))
        print(f"{n_all:>9,} rows of files: error {errors[-1]:.3f} minutes")
        print(f"{seconds:.0f} s, within {MEMORY} MiB")
        interval = pd.read_parquet(folder / "out.parquet")
        inside = later["delay"].between(
            interval["interval_lower"], interval["interval_upper"]
        )
        print(f"intervals of later.parquet contain {inside.mean():.1%} of the delays")
    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    axes.loglog(rows[:-1], errors[:-1], "o-", label="in memory")
    axes.loglog(rows[-1:], errors[-1:], "s", label="from files")
    axes.set(xlabel="training rows", ylabel="error of later flights (minutes)")
    axes.legend()
    save(figure, "larger_than_memory.png")


if __name__ == "__main__":
    main()
