"""Run one contestant on one split in a separate process.

    python child.py MODULE:FUNCTION FOLDER SEED THREADS [PACKAGE ...]

reads FOLDER/in.npz and writes FOLDER/out.npz. It may run in another environment, so it
requires only NumPy; contestants import other packages, such as pandas for tables of
mixed types. ``MODULE`` is in the folder of this file. Its ``FUNCTION(seed, threads)``
imports packages and returns ``fit(X, y)``, which returns ``predict(X)``, which returns
a dict of arrays for ``predictives.py``:

    mean, std                   (rows,), or (components, rows): Gaussians
    levels, quantile            (levels,), (rows, levels)
    classes, probability        (classes,), (rows, classes)

Only ``fit`` and ``predict`` are timed. For contestants of this package, ``predict``
also has ``at(X, y)``, which returns exact scores of the test rows. The output contains
the versions of the packages.
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
    """Convert an array, or a frame, to arrays without Python objects.

    Missing strings become empty strings.
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
    """The inverse of ``pack``; text is categorical, and empty strings are missing."""
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
    """Two frames whose categorical columns have the same levels; arrays unchanged."""
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
    """Wall-clock and CPU seconds, the latter including finished child processes."""

    def __init__(self):
        self.start = time.perf_counter(), sum(os.times()[:4])

    def seconds(self) -> list[float]:
        """Wall-clock and CPU seconds since the start."""
        wall, cpu = self.start
        return [time.perf_counter() - wall, sum(os.times()[:4]) - cpu]


def main() -> None:
    """Fit, predict and write the output."""
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
