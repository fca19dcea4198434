"""One contestant, one split, in a process and perhaps an environment of its own.

    python child.py MODULE:FUNCTION FOLDER SEED THREADS [PACKAGE ...]

reads FOLDER/in.npz and writes FOLDER/out.npz. Needs nothing but NumPy; each contestant
imports what it needs, pandas for mixed tables included. ``MODULE`` is one beside this
file; its ``FUNCTION(seed, threads)`` imports, and returns ``fit(X, y)``, which returns
``predict(X)``, which returns arrays by name, as ``predictives.py`` reads them:

    mean, std                   (rows,), or (components, rows): Gaussians
    levels, quantile            (levels,), (rows, levels)
    classes, probability        (classes,), (rows, classes)

Only ``fit`` and ``predict`` are timed. ``predict`` of contestants of this package has
also ``at(X, y)``, whose arrays are the predictive's own scores of the test rows. The
versions of the packages are told.
"""

import importlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np


def pack(X, name: str) -> dict[str, np.ndarray]:
    """A table as arrays without Python objects: an array, or a frame's columns.

    Strings that are missing become empty.
    """
    if isinstance(X, np.ndarray):
        return {name: X}
    arrays = {f"{name}:names": np.array([str(column) for column in X.columns])}
    for i, column in enumerate(X.columns):
        values = X[column]
        numeric = values.dtype.kind in "bif"
        text = values.astype(object).where(values.notna(), "")
        arrays[f"{name}:{i}"] = values.to_numpy() if numeric else text.to_numpy("U")
    return arrays


def unpack(arrays, name: str):
    """What was packed; text is categorical, and missing where it is empty."""
    if name in arrays:
        return arrays[name]
    import pandas as pd

    columns = {}
    for i, column in enumerate(arrays[f"{name}:names"]):
        values = arrays[f"{name}:{i}"]
        if values.dtype.kind == "U":
            text = [value or None for value in values.tolist()]
            values = pd.Categorical(text)
        columns[str(column)] = values
    return pd.DataFrame(columns)


def alike(train, test):
    """Two frames of which every category has the levels of both; arrays as they are."""
    if isinstance(train, np.ndarray):
        return train, test
    import pandas as pd

    train, test = train.copy(), test.copy()
    for name in train.columns:
        if isinstance(train[name].dtype, pd.CategoricalDtype):
            levels = train[name].cat.categories.union(test[name].cat.categories)
            for frame in (train, test):
                frame[name] = frame[name].cat.set_categories(levels)
    return train, test


class Clock:
    """Seconds on the wall, and on the processors (children that ended included)."""

    def __init__(self):
        self.start = time.perf_counter(), sum(os.times()[:4])

    def seconds(self) -> list[float]:
        """Since then."""
        wall, cpu = self.start
        return [time.perf_counter() - wall, sum(os.times()[:4]) - cpu]


def main() -> None:
    """Fit, predict, write."""
    call, folder, seed, threads, *packages = sys.argv[1:]
    module, function = call.split(":")
    with np.load(Path(folder) / "in.npz", allow_pickle=False) as file:
        given = dict(file)
    X, X_test = alike(unpack(given, "X_train"), unpack(given, "X_test"))
    fit = getattr(importlib.import_module(module), function)(int(seed), int(threads))
    clock = Clock()
    predict = fit(X, given["y_train"])
    fitting, clock = clock.seconds(), Clock()
    arrays = predict(X_test)
    predicting = clock.seconds()
    if hasattr(predict, "at"):
        arrays |= predict.at(X_test, given["y_test"])
    about = {
        "fit_seconds": fitting,
        "predict_seconds": predicting,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }
    arrays = {name: np.asarray(values) for name, values in arrays.items()}
    np.savez(Path(folder) / "out.npz", about=np.array(json.dumps(about)), **arrays)


if __name__ == "__main__":
    main()
