"""Which candidates belong into the default pool of the stacks? On training rows only.

Every table is a part of the training rows of a canonical split (or made up), cut again
into rows to learn from and rows to score: no test row of any benchmark is read. A wide
pool is trained once per table, out of fold and then on all rows from several starts,
and kept in a folder; pools, numbers of starts and corrections are then compared without
further training, since they only weight what is there.

    python benchmarks/study.py --train --folder FOLDER
    python benchmarks/study.py --folder FOLDER [FOLDER ...]
"""

import argparse
import pickle
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from _leaderboard.tasks import TASKS, Split, as_taken
from common import data_folder, table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.pipeline import Pipeline
from small_tables import curved

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._batch.executor import Resources
from skbayesnn._meta.functions import open_predictive
from skbayesnn._stacking.candidates import (
    CandidateSpec,
    Rows,
    candidates_of,
    held_out,
    refitted,
)
from skbayesnn._stacking.weights import OutOfFold, corrected, pooled
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


def uci(name, seed=1, most_rows=MOST_ROWS):
    with np.load(data_folder("uci", name) / f"{name}.npz") as arrays:
        rows = arrays["train_index"][0].astype(int)
        X, y = arrays["X"][rows], arrays["y"][rows]
    return _cut(X, y, min(most_rows, int(0.8 * len(y))), seed)


def synthetic(n_rows):
    return _cut(*curved(n_rows, np.random.default_rng(0)), n_rows)


def diabetes(n_rows):
    return _cut(*load_diabetes(return_X_y=True), n_rows)


def classes(load):
    X, y = load(return_X_y=True)
    return _cut(X, y, int(0.6 * len(y)))


def halves(name, most_rows=MOST_ROWS):
    """Whether the y of a UCI set is above its median."""
    X, y, X_test, y_test = uci(name, most_rows=most_rows)
    middle = np.median(y)
    return X, (y > middle).astype(int), X_test, (y_test > middle).astype(int)


def adult(n_rows, n_scored=2500):
    """Numbers and categories, a column each; of the official training part."""
    [task] = (one for one in TASKS if one.name == "adult")
    split = task.split(0)
    order = np.random.default_rng(1).permutation(len(split.y_train))
    train, test = order[:n_rows], order[n_rows : n_rows + n_scored]
    cut = Split(
        split.X_train.iloc[train],
        split.y_train[train],
        split.X_train.iloc[test],
        split.y_train[test],
    )
    X, X_test = as_taken(cut, "numbers")
    return X, cut.y_train, X_test, cut.y_test


def noisy_classes(n_rows):
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows + 3000, 8))
    f = 1.5 * X[:, 0] * X[:, 1] + X[:, 2] - (X[:, 3] > 0.5)
    return _cut(X, (f + random.logistic(size=len(f)) > 0).astype(int), n_rows)


def _cut(X, y, n_rows, seed=1):
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_rows], order[n_rows : n_rows + 2500]
    return X[train], y[train], X[test], y[test]


REGRESSION = {name: lambda name=name: uci(name) for name in UCI} | {
    # What comes of few rows depends on which they are.
    "yacht, again": lambda: uci("yacht", 2),
    "yacht, a third time": lambda: uci("yacht", 3),
    "energy, again": lambda: uci("energy", 2),
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
    "wine-quality halves": lambda: halves("wine-quality-red"),
    "kin8nm halves": lambda: halves("kin8nm"),
    "protein halves-10000": lambda: halves("protein-tertiary-structure", 10_000),
    "adult-2500": lambda: adult(2500),
    "adult-15000": lambda: adult(15_000),
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
    scales = [1.0, 3.0, 10.0, "fan_in"] if of_classes else [0.3, 1.0, 3.0, "fan_in"]
    pool = [CandidateSpec("raw", network, {"length_scale": scales, "dropout": rates})]
    # What a network costs goes with the number of its inputs.
    n_bins = min(16, 256 // X.shape[1])
    if n_bins >= 4:
        encoder = PiecewiseLinearEncoder(n_bins=n_bins, keep_columns=True).fit(X)
        encoded = Pipeline([("encoder", FrozenEstimator(encoder)), ("net", network)])
        grid = {"net__length_scale": [1.0, 3.0, "fan_in"], "net__dropout": rates}
        pool.append(CandidateSpec("encoded", encoded, grid))
    linear = kind(**common | {"hidden_layer_sizes": (), "dropout": 0.0})
    pool.append(
        CandidateSpec("linear", linear, {"length_scale": [1.0, 3.0, 10.0, 30.0]})
    )
    return pool


def _epochs(n_rows):
    """1,500 steps up to 400 rows, 75 sqrt(N) from there, in batches of 128."""
    return 75 * np.sqrt(max(n_rows, 400)) / -(-n_rows // 128)


def trained(load, *, of_classes, **how):
    """What the candidates of the wide pool say of both kinds of rows."""
    X, y, X_test, y_test = load()
    X, X_test = X.astype(np.float32), X_test.astype(np.float32)
    pool = wide_pool(X, of_classes=of_classes, **how)
    return outputs_of(pool, (X, y, X_test, y_test), of_classes=of_classes)


def outputs_of(pool, table, *, of_classes, starts=STARTS):
    """What all candidates say of held-out rows, and of those to be scored."""
    X, y, X_test, y_test = table
    candidates = candidates_of(pool)
    kind = StratifiedShuffleSplit if of_classes else ShuffleSplit
    n_splits = 1 if len(y) >= 700 else 5
    splits = list(kind(n_splits, test_size=0.2, random_state=0).split(X, y))
    rows, out_of_fold, refits = Rows(X, y, None), {}, {}
    for _ in held_out(candidates, rows, splits, out_of_fold, RESOURCES):
        pass
    settings = {
        one.name: {f"{one.path}n_estimators": starts, f"{one.path}n_draws": DRAWS}
        for one in candidates
    }
    for _ in refitted(candidates, settings, rows, refits, RESOURCES):
        pass
    result = {}
    for one in candidates:
        folds = [out_of_fold[one.name, k].predictive for k in range(n_splits)]
        result[one.name] = (
            type(folds[0]).concatenate_rows(folds),
            open_predictive(refits[one.name, 0], X_test).whole(),
        )
    held = np.concatenate([test for _, test in splits])
    of = {"of": result, "y": y[held], "y_test": y_test}
    return of | {"starts": starts}


# ---- pools compared


def scored(found, names, *, starts=2, factor=True):
    """Scores of the stack of some candidates."""
    held = [found["of"][name][0] for name in names]
    rows = Rows(None, found["y"], None)
    oof = OutOfFold(held, np.arange(len(rows.y)), rows, np.ones(len(rows.y)))
    stacked = oof.stacked()
    parts = [
        (_of_starts(found["of"][name][1], starts, found["starts"]), n)
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


def _of_starts(one, n, n_trained):
    """The draws of the first networks; the draws of all of them take turns."""
    which = np.flatnonzero(np.arange(one.n_draws) % n_trained < n)
    if one.of_classes:
        return replace(one, probability=one.probability[which])
    return replace(one, components=one.components.draws(which))


# What is left out of the wide pool, and how else the stack may be changed.
WITHOUT = {
    "the whole pool": lambda name: False,
    "- length scale 0.3": lambda name: "length_scale=0.3" in name,
    "- length scale 1": lambda name: _is_deep(name) and "length_scale=1.0" in name,
    "- length scale 3": lambda name: _is_deep(name) and "length_scale=3.0" in name,
    "- length scale 10": lambda name: _is_deep(name) and "length_scale=10.0" in name,
    '- length scale "fan_in"': lambda name: "length_scale=fan_in" in name,
    "- linear models": lambda name: not _is_deep(name),
    "- encoded columns": lambda name: name.startswith(("bins", "encoded")),
    "- raw columns": lambda name: name.startswith("raw"),
    "- networks without dropout": lambda name: "dropout=0.0," in name,
    "- dropout 0.01 or 0.05": lambda name: (
        "dropout=0.01," in name or "dropout=0.05" in name
    ),
    "- dropout 0.2": lambda name: "dropout=0.2" in name,
}
ALSO = {
    "one start of each": {"starts": 1},
    "three starts of each": {"starts": 3},
    "no factor on the spread": {"factor": False},
}


def _is_deep(name):
    return not name.startswith("linear")


def report(folders):
    """Markdown: parts of the first folder's pool, then the folders side by side."""
    first = _read(folders[0])
    for names, score in ((REGRESSION, "crps"), (CLASSES, "log_loss")):
        tables = [name for name in names if name in first]
        if not tables:
            continue
        rows = []
        whole = {name: scored(first[name], list(first[name]["of"])) for name in tables}
        for said, without in WITHOUT.items():
            rows.append([said, *(_ratio(first[t], without, whole[t]) for t in tables)])
        for said, how in ALSO.items():
            found = (scored(first[t], list(first[t]["of"]), **how) for t in tables)
            pairs = zip(found, tables, strict=True)
            rows.append(
                [said, *(f"{f[score] / whole[t][score]:.3f}" for f, t in pairs)]
            )
        rows.append([score, *(f"{whole[t][score]:.4g}" for t in tables)])
        print(f"\n{score}, as a ratio to that of the whole pool\n")
        print(table(["", *tables], rows))
        rows = []
        for folder in folders:
            found = _read(folder)
            values = [
                f"{scored(found[t], list(found[t]['of']))[score]:.4g}"
                if t in found
                else "-"
                for t in tables
            ]
            rows.append([folder.name, *values])
        print(f"\n{score} of the whole pool\n")
        print(table(["", *tables], rows))


def _ratio(found, without, whole):
    names = [name for name in found["of"] if not without(name)]
    if not names or len(names) == len(found["of"]):
        return "1" if names else "-"
    score = "crps" if "crps" in whole else "log_loss"
    return f"{scored(found, names)[score] / whole[score]:.3f}"


def _read(folder):
    """What was trained, by table, with at most so many rows to be scored."""
    paths = sorted(folder.glob("*.pickle"))
    return {path.stem: thinned(pickle.loads(path.read_bytes())) for path in paths}


def thinned(found, most=600):
    """With at most so many of the rows to be scored."""
    rows = np.random.default_rng(0).permutation(len(found["y_test"]))[:most]

    def some(one):
        if one.of_classes:
            return replace(one, probability=one.probability[:, rows])
        arrays = vars(one.components).items()
        kept = {name: values[:, rows] for name, values in arrays}
        return replace(one, components=type(one.components)(**kept))

    of = {name: (held, some(scored)) for name, (held, scored) in found["of"].items()}
    return found | {"of": of, "y_test": found["y_test"][rows]}


def main():
    """Train the wide pool, or compare what was trained."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, nargs="+", required=True)
    parser.add_argument("--tables", default="all")
    parser.add_argument("--steps", type=float, default=1.0)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--train", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.train:
        report(options.folder)
        return
    [folder] = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, load in {**REGRESSION, **CLASSES}.items():
        path = folder / f"{name}.pickle"
        wanted = options.tables == "all" or name in options.tables.split(",")
        if not wanted or path.exists():
            continue
        start = time.perf_counter()
        how = {"steps": options.steps, "width": options.width}
        found = trained(load, of_classes=name in CLASSES, **how)
        path.write_bytes(pickle.dumps(found))
        print(name, f"{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
