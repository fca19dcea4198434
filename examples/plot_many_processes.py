"""One script for one process or many: the same ensemble, sooner
==============================================================

Run it alone, or with torchrun, on one machine or several::

    python examples/plot_many_processes.py
    torchrun --nproc-per-node=2 examples/plot_many_processes.py

The table is generated. Writes a picture to examples/output/.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size

from skbayesnn import MCDropoutRegressor

ROWS, COLUMNS = size(100_000, short=300), 20
# Each process trains some of the networks.
N_NETWORKS = 4
BATCH_SIZE, EPOCHS = size(1000, short=100), size(20, short=2)


def rows(n_rows, seed):
    """A function of two columns, with noise that grows with the third."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, size=(n_rows, COLUMNS)).astype(np.float32)
    noise = (0.1 + 0.2 * (X[:, 2] > 0)) * random.normal(size=n_rows)
    return X, np.sin(3 * X[:, 0]) * X[:, 1] + noise


def main():
    """Fit in all processes; the first one writes."""
    # All processes have the same rows and the same seed.
    X, y = rows(ROWS, seed=0)
    model = MCDropoutRegressor(
        n_estimators=N_NETWORKS,
        hidden_layer_sizes=(128, 128),
        likelihood="heteroscedastic",
        dropout=0.01,
        length_scale=1.0,
        batch_size=BATCH_SIZE,
        max_iter=EPOCHS,
        early_stopping=False,
        device="cpu",
        random_state=0,
    )
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    if os.environ.get("RANK", "0") != "0":
        return
    X_new, y_new = rows(2000, seed=1)
    low, high = model.predict_interval(X_new, coverage=0.9).T
    covered = np.mean((low <= y_new) & (y_new <= high))
    print(f"{model.n_processes_} processes, {seconds:.1f} s")
    print(f"R^2 {model.score(X_new, y_new):.3f}, 90 % intervals cover {covered:.0%}")
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.scatter(X_new[:, 2], high - low, s=4, color="#0072B2")
    axes.set(xlabel="column 2", ylabel="width of 90 % intervals")
    save(figure, "many_processes.png")


if __name__ == "__main__":
    main()
