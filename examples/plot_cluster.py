"""A stack on the workers of a Dask cluster, with the usual fit
============================================================

The cluster consists of two processes of this machine. For a real one, give its address:
Client("tcp://scheduler:8786"). The table is generated. Writes a picture to
examples/output/.
"""

import sys
import time

import joblib
import matplotlib.pyplot as plt
import numpy as np
from _common import SHORT, save, size

from skbayesnn import BayesianStackingRegressor

try:
    from distributed import Client, LocalCluster
except ImportError:
    print("Skipped: this example needs `pip install distributed`.")
    sys.exit(0)

ROWS, COLUMNS = size(5000, short=80), 8
EPOCHS = size("auto", short=2)


def main():
    """Fit the stack in this process and on the cluster; compare."""
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, COLUMNS))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.2 * random.normal(size=ROWS)
    stack = BayesianStackingRegressor("fast", max_iter=EPOCHS, random_state=0)
    start = time.perf_counter()
    alone = stack.fit(X, y).predict(X[:500])
    print(f"this process: {time.perf_counter() - start:.1f} s")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    # In the short form, the workers are threads, which start sooner.
    with LocalCluster(processes=not SHORT, **options) as cluster, Client(cluster):
        start = time.perf_counter()
        with joblib.parallel_config("dask"):
            stack.fit(X, y)
        seconds = time.perf_counter() - start
    # The stack is an ordinary one, and needs the cluster no more.
    together = stack.predict(X[:500])
    print(f"two workers, which import and compile first: {seconds:.1f} s")
    print(
        f"largest difference of the predictions: {np.abs(together - alone).max():.2g}"
    )
    figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
    axes.scatter(alone, together, s=5, color="#0072B2")
    axes.set(xlabel="predictions: this process", ylabel="predictions: cluster")
    save(figure, "cluster.png")


if __name__ == "__main__":
    main()
