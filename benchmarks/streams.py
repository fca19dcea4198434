"""How much does `partial_fit` forget, and how much do replayed rows help?

The logarithm of dust in Beijing by the hour: the first 500 hours, then seven chunks of
500 hours. The score is the CRPS of the following 500 hours over their standard
deviation. Every chunk is passed to `partial_fit` once, with several numbers of epochs
and replayed rows. For comparison: warm starts on all chunks so far, and one fit to all
chunks.

    python benchmarks/streams.py
"""

import time
import warnings

import numpy as np
import pandas as pd
from common import command_line, data_folder, environment, table
from sklearn.base import clone

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)

HOURS, CHUNKS = 500, 8
WAYS = (1, 0), (1, 1000), (10, 0), (10, 500), (10, 1000), (30, 1000)
FIRST_EPOCHS = 100
KINDS = (
    MCDropoutRegressor,
    BBBRegressor,
    VariationalDropoutRegressor,
    AnchoredEnsembleRegressor,
)


def hours():
    """Chunks of X and y; the last one is scored."""
    data = pd.read_csv(data_folder("pm25") / "beijing_pm25.csv.gz")
    data = data[data["pm2.5"].notna()].head((CHUNKS + 1) * HOURS)
    y = np.log1p(data.pop("pm2.5").to_numpy())
    wind = pd.get_dummies(data.pop("cbwd"), dtype=float)
    hour, month = (2 * np.pi * data[n] / of for n, of in (("hour", 24), ("month", 12)))
    X = np.column_stack(
        [data[["DEWP", "TEMP", "PRES", "Iws", "Is", "Ir"]], wind]
        + [wave(angle) for angle in (hour, month) for wave in (np.sin, np.cos)]
    )
    return np.split(X, CHUNKS + 1), np.split(y, CHUNKS + 1)


def streamed(model, chunks, n_epochs, n_replay):
    """Pass one chunk after another to ``partial_fit``."""
    first = FIRST_EPOCHS if n_epochs > 1 else 1
    for i, (X, y) in enumerate(chunks):
        how = {"n_epochs": n_epochs if i else first, "n_replay": n_replay}
        model.partial_fit(X, y, **how)
    return model


def warm(model, chunks):
    """Fit to all chunks so far, each time from the weights of the previous fit."""
    model.set_params(warm_start=True)
    for i in range(len(chunks)):
        X, y = (np.concatenate(parts) for parts in zip(*chunks[: i + 1], strict=True))
        model.fit(X, y)
    return model


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    X, y = hours()
    chunks = list(zip(X[:-1], y[:-1], strict=True))
    every = [np.concatenate(parts) for parts in (X[:-1], y[:-1])]
    ways = {
        f"partial_fit, n_epochs={n_epochs}, n_replay={n_replay}": (
            lambda model, how=(n_epochs, n_replay): streamed(model, chunks, *how)
        )
        for n_epochs, n_replay in WAYS
    } | {
        "warm starts on everything": lambda model: warm(model, chunks),
        "a fit to everything": lambda model: model.fit(*every),
        "a fit to the first chunk": lambda model: model.fit(*chunks[0]),
    }
    rows = []
    for name, way in ways.items():
        cells = []
        for kind in KINDS:
            start = time.process_time()
            model = way(clone(kind(random_state=0)))
            elapsed = time.process_time() - start
            crps = model.crps(X[-1], y[-1]).mean() / y[-1].std()
            cells.append(f"{crps:.3f} / {elapsed:.1f} s")
        rows.append([name, *cells])
    print(table(["", *(kind.__name__ for kind in KINDS)], rows))


if __name__ == "__main__":
    main()
