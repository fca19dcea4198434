"""Seven chunks of a stream: what is forgotten, and what do kept rows bring back?

Dust in Beijing by the hour (the logarithm): the first 500 hours, then seven chunks of
500, and the CRPS of the 500 hours that follow, over their standard deviation. Every
chunk is given to `partial_fit` once, for some epochs, with some rows kept; beside it
warm starts on everything so far, and a fit to everything at once.

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
    """Chunks of X and of y, and those that are scored."""
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
    """One chunk after the other."""
    first = FIRST_EPOCHS if n_epochs > 1 else 1
    for i, (X, y) in enumerate(chunks):
        how = {"n_epochs": n_epochs if i else first, "n_replay": n_replay}
        model.partial_fit(X, y, **how)
    return model


def warm(model, chunks):
    """All that there is so far, from where the fit before has ended."""
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
