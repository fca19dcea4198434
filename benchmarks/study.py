"""Which candidates belong into the default pool of the stacks? On training rows only.

Every table is a part of the training rows of a canonical split (or made up), cut again
into rows to learn from and rows to score: no test row of any benchmark is read. A wide
pool is trained once per table, out of fold and then on all rows from several starts,
and kept in a folder; pools, numbers of starts and corrections are then compared without
further training, since they only weight what is there.

    python benchmarks/study.py --train --folder FOLDER
    python benchmarks/study.py --folder FOLDER
"""

import argparse
import pickle
import time
import warnings
from pathlib import Path

import numpy as np
from common import data_folder
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.pipeline import Pipeline

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._stacking.candidates import Rows, candidates_of, held_out, refitted
from skbayesnn._stacking.mixture import OutOfFold, corrected, pooled
from skbayesnn._stacking.pool import Entry
from skbayesnn.model_selection._executor import Resources
from skbayesnn.preprocessing import PiecewiseLinearEncoder

# Rows at most of the large sets, which are otherwise like the others.
MOST_ROWS = 2000
UCI = (
    "yacht",
    "energy",
    "concrete",
    "wine-quality-red",
    "kin8nm",
    "power-plant",
    "naval-propulsion-plant",
    "protein-tertiary-structure",
)
STARTS, DRAWS = 3, 10
RESOURCES = Resources(1 << 30, None, "2*n_jobs", None)


# ---- tables: rows to learn from, rows to score


def uci(name):
    with np.load(data_folder("uci", name) / f"{name}.npz") as arrays:
        rows = arrays["train_index"][0].astype(int)
        X, y = arrays["X"][rows], arrays["y"][rows]
    return _cut(X, y, min(MOST_ROWS, int(0.8 * len(y))))


def synthetic(n_rows):
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows + 2000, 5))
    f = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - X[:, 2]
    y = f + 0.5 * random.normal(size=len(f))
    return _cut(X, y, n_rows)


def diabetes(n_rows):
    return _cut(*load_diabetes(return_X_y=True), n_rows)


def classes(load):
    X, y = load(return_X_y=True)
    return _cut(X, y, int(0.6 * len(y)))


def noisy_classes(n_rows):
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows + 3000, 8))
    f = 1.5 * X[:, 0] * X[:, 1] + X[:, 2] - (X[:, 3] > 0.5)
    return _cut(X, (f + random.logistic(size=len(f)) > 0).astype(int), n_rows)


def _cut(X, y, n_rows):
    order = np.random.default_rng(1).permutation(len(y))
    train, test = order[:n_rows], order[n_rows : n_rows + 2500]
    return X[train], y[train], X[test], y[test]


REGRESSION = {name: lambda name=name: uci(name) for name in UCI} | {
    "synthetic-60": lambda: synthetic(60),
    "synthetic-150": lambda: synthetic(150),
    "synthetic-1000": lambda: synthetic(1000),
    "diabetes-60": lambda: diabetes(60),
    "diabetes-300": lambda: diabetes(300),
}
CLASSES = {
    "breast_cancer": lambda: classes(load_breast_cancer),
    "wine": lambda: classes(load_wine),
    "digits": lambda: classes(load_digits),
    "noisy-100": lambda: noisy_classes(100),
    "noisy-500": lambda: noisy_classes(500),
    "noisy-2500": lambda: noisy_classes(2500),
}


# ---- the wide pool


def wide_pool(X, *, of_classes, steps, width):
    """``steps`` : how many times as many epochs; ``width`` : units of a layer."""
    kind = MCDropoutClassifier if of_classes else MCDropoutRegressor
    n_epochs = max(1, round(steps * _epochs(len(X))))
    sizes = (width, width)
    common = {"max_iter": n_epochs, "random_state": 0, "hidden_layer_sizes": sizes}
    if not of_classes:
        common["likelihood"] = "heteroscedastic"
    network = kind(**common)
    rates = [0.0, 0.05, 0.2] if of_classes else [0.0, 0.01]
    scales = [1.0, 3.0, 10.0, "auto"] if of_classes else [0.3, 1.0, 3.0, "auto"]
    pool = [Entry("raw", network, {"length_scale": scales, "dropout": rates})]
    # What a network costs goes with the number of its inputs.
    n_bins = min(16, 256 // X.shape[1])
    if n_bins >= 4:
        encoder = PiecewiseLinearEncoder(n_bins=n_bins, keep_columns=True).fit(X)
        encoded = Pipeline([("encoder", FrozenEstimator(encoder)), ("net", network)])
        grid = {"net__length_scale": [1.0, 3.0, "auto"], "net__dropout": rates}
        pool.append(Entry("encoded", encoded, grid))
    linear = kind(**common | {"hidden_layer_sizes": (), "dropout": 0.0})
    pool.append(Entry("linear", linear, {"length_scale": [1.0, 3.0, 10.0, 30.0]}))
    return pool


def _epochs(n_rows):
    """1,500 steps up to 400 rows, 75 sqrt(N) from there, in batches of 128."""
    return 75 * np.sqrt(max(n_rows, 400)) / -(-n_rows // 128)


def trained(load, *, of_classes, **how):
    """What all candidates say of held-out rows, and of those to be scored."""
    X, y, X_test, y_test = load()
    X, X_test = X.astype(np.float32), X_test.astype(np.float32)
    candidates = candidates_of(wide_pool(X, of_classes=of_classes, **how))
    kind = StratifiedShuffleSplit if of_classes else ShuffleSplit
    n_splits = 1 if len(y) >= 700 else 5
    splits = list(kind(n_splits, test_size=0.2, random_state=0).split(X, y))
    rows, out_of_fold, refits = Rows(X, y, None), {}, {}
    for _ in held_out(candidates, rows, splits, out_of_fold, RESOURCES):
        pass
    settings = {
        one.name: {f"{one.path}n_estimators": STARTS, f"{one.path}n_draws": DRAWS}
        for one in candidates
    }
    for _ in refitted(candidates, settings, rows, refits, RESOURCES):
        pass
    result = {}
    for one in candidates:
        folds = [out_of_fold[one.name, k] for k in range(n_splits)]
        result[one.name] = (
            type(folds[0]).of_other_rows(folds),
            _predictive(refits[one.name, 0], X_test),
        )
    held = np.concatenate([test for _, test in splits])
    return {"of": result, "y": y[held], "y_test": y_test}


def _predictive(model, X):
    from skbayesnn._meta.functions import open_predictive

    return open_predictive(model, X).whole()


# ---- pools compared


def scored(found, names, *, starts=2, factor=True):
    """Scores of the stack of some candidates."""
    held = [found["of"][name][0] for name in names]
    rows = np.arange(len(found["y"]))
    oof = OutOfFold(held, rows, len(rows), found["y"], np.ones(len(rows)))
    stacked = oof.stacked()
    parts = [
        (_of_starts(found["of"][name][1], starts), n)
        for name, n in zip(names, stacked.n_draws, strict=True)
        if n
    ]
    final = pooled(*zip(*parts, strict=True))
    if factor:
        final = corrected(final, stacked.factor)
    y = found["y_test"]
    density = final.log_density(y).mean()
    if final.of_classes:
        right = final.classes[final.mean().argmax(1)] == y
        return {"log_loss": -density, "accuracy": right.mean(), "kept": len(parts)}
    level = final.cdf(y)
    return {
        "crps": final.crps(y).mean(),
        "log_density": density,
        "rmse": np.sqrt(np.square(final.mean() - y).mean()),
        "cover_90": (np.abs(level - 0.5) <= 0.45).mean(),
        "kept": len(parts),
    }


def _of_starts(one, n):
    """The draws of the first networks; the draws of all of them take turns."""
    from dataclasses import replace

    which = np.flatnonzero(np.arange(one.n_draws) % STARTS < n)
    if one.of_classes:
        return replace(one, probability=one.probability[which])
    return replace(one, components=one.components.draws(which))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tables", default="all")
    parser.add_argument("--steps", type=float, default=1.0)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--train", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, load in {**REGRESSION, **CLASSES}.items():
        if options.tables != "all" and name not in options.tables.split(","):
            continue
        path = options.folder / f"{name}.pickle"
        if options.train and not path.exists():
            start = time.perf_counter()
            how = {"steps": options.steps, "width": options.width}
            found = trained(load, of_classes=name in CLASSES, **how)
            path.write_bytes(pickle.dumps(found))
            print(name, f"{time.perf_counter() - start:.0f} s", flush=True)
            continue
        if path.exists():
            found = pickle.loads(path.read_bytes())
            print(name, scored(found, list(found["of"])), flush=True)


if __name__ == "__main__":
    main()
