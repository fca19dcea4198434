"""Is a model after `partial_fit` as good as a fit to all rows, and what does it cost?

Ten parts of equal size: `fit` to the first one, `partial_fit` for each of the others.
After every update the model is compared, on test rows, with a fit to all rows so far:
the first estimator on all data sets, the others on Friedman's function. Then a stream
whose relation between X and y changes: the model is compared with a fit to the rows
after the change.

    python benchmarks/streams.py
"""

import time
import warnings

import numpy as np
import pandas as pd
from common import command_line, environment, table
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from uci import load

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)

PARTS = 10
KINDS = (
    MCDropoutRegressor,
    BBBRegressor,
    VariationalDropoutRegressor,
    AnchoredEnsembleRegressor,
)
UCI = "concrete", "wine-quality-red", "power-plant"
# Rows of a stream that changes: before, of each part after, and number of these parts.
BEFORE, PART, N_AFTER = 1000, 100, 3


def friedman(n_rows):
    """Rows of Friedman's function with noise of variance one."""
    return make_friedman1(n_rows, noise=1.0, random_state=0)


def deliveries(n_rows):
    """Made-up delivery times: hour, day, distance and 27 counts of items."""
    random = np.random.default_rng(0)
    hour = random.uniform(11, 21, n_rows)
    day = random.integers(0, 7, n_rows)
    distance = random.gamma(3, 1, n_rows)
    items = random.poisson(random.uniform(0.02, 0.3, 27), (n_rows, 27))
    rush = np.exp(-0.5 * np.square((hour - 18) / 1.5)) * (1 + (day >= 4))
    mean = 12 + 6 * rush + distance * (2 + rush) + items @ random.uniform(0, 2, 27)
    y = mean + random.normal(size=n_rows) * (1 + 0.1 * distance)
    return pd.DataFrame(
        np.column_stack([hour, distance, items]),
        columns=["hour", "distance", *(f"item_{i}" for i in range(27))],
    ).assign(day=pd.Categorical(day)), y


def uci(name, n_rows):
    """At most ``n_rows`` rows of a data set, in random order."""
    X, y, *_ = load(name, 1)
    rows = np.random.default_rng(0).permutation(len(y))[:n_rows]
    return X[rows], y[rows]


def rows_of(X, rows):
    """Some rows of a frame or an array."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def scores(model, X, y):
    """RMSE, log densities of the rows, and coverage of 90 % intervals."""
    lower, upper = model.predict_interval(X).T
    rmse = np.sqrt(np.mean(np.square(model.predict(X) - y)))
    covered = np.mean((lower <= y) & (y <= upper))
    return rmse, model.log_predictive_density(X, y), covered


def timed(function):
    """Result of a function, and its CPU seconds; its warnings by code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        result = function()
        seconds = time.process_time() - start
    return result, seconds, " ".join(str(w.message) for w in caught)


def in_parts(kind, X, y, n_test):
    """Cells of the table for one estimator and data set."""
    test, training = np.split(np.arange(len(y)), [n_test])
    parts = np.array_split(training, PARTS)
    X_test, y_test = rows_of(X, test), y[test]
    model = timed(lambda: kind.fit(rows_of(X, parts[0]), y[parts[0]]))[0]
    results, before = [], scores(model, X_test, y_test)
    for i, part in enumerate(parts[1:], 1):
        so_far = np.concatenate(parts[: i + 1])
        _, seconds, codes = timed(lambda p=part: model.partial_fit(rows_of(X, p), y[p]))
        fit, of_fit, _ = timed(lambda r=so_far: clone(kind).fit(rows_of(X, r), y[r]))
        after, new = scores(model, X_test, y_test), scores(fit, X_test, y_test)
        fall = before[1] - after[1]
        results.append(
            [
                after[0] / new[0],
                np.exp(after[1].mean() - new[1].mean()),
                seconds / of_fit,
                after[2],
                "SKB113" in codes,
                "SKB112" in codes,
                fall.mean() > fall.std() / np.sqrt(len(fall)),
            ]
        )
        before = after
    rmse, density, seconds, covered, refused, alone, worse = np.transpose(results)
    return [
        f"{len(parts[0])}",
        f"{rmse.mean():.3f} ({rmse.max():.3f})",
        f"{density.mean():.3f} ({density.min():.3f})",
        f"{seconds.mean():.2f} ({seconds.max():.2f})",
        f"{covered.min():.3f} to {covered.max():.3f}",
        f"{worse.sum():.0f}",
        f"{refused.sum():.0f}, {alone.sum():.0f}",
    ]


def changed(kind):
    """Cells of the table of streams that change."""
    X, y = friedman(BEFORE + N_AFTER * PART + 2000)
    other = friedman_of(X[:, [2, 3, 0, 1, 4]])
    other += np.random.default_rng(0).normal(size=len(X))
    test = slice(BEFORE + N_AFTER * PART, None)
    model = kind.fit(X[:BEFORE], y[:BEFORE])
    cells = [f"{scores(model, X[test], other[test])[0]:.2f}"]
    for i in range(N_AFTER):
        after = slice(BEFORE, BEFORE + (i + 1) * PART)
        part = slice(after.stop - PART, after.stop)
        _, _, codes = timed(lambda p=part: model.partial_fit(X[p], other[p]))
        fit, *_ = timed(lambda r=after: clone(kind).fit(X[r], other[r]))
        rmse, covered = scores(model, X[test], other[test])[::2]
        of_fit = scores(fit, X[test], other[test])[0]
        found = [code for code in ("SKB112", "SKB113") if code in codes]
        cells.append(f"{rmse:.2f} / {of_fit:.2f}, {covered:.2f} {' '.join(found)}")
    return cells


def friedman_of(X):
    """Mean of Friedman's function."""
    curve = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * np.square(X[:, 2] - 0.5)
    return curve + 10 * X[:, 3] + 5 * X[:, 4]


def main():
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="rows of all parts")
    parser.add_argument("--test", type=int, default=1000, help="most test rows")
    parser.add_argument("--kinds", nargs="+", default=[k.__name__ for k in KINDS])
    parser.add_argument("--uci", nargs="*", default=list(UCI))
    options = parser.parse_args()
    print(environment())
    kinds = [kind for kind in KINDS if kind.__name__ in options.kinds]
    n_rows = options.rows + options.test
    sets = {"Friedman": friedman(n_rows), "deliveries": deliveries(n_rows)}
    sets |= {name: uci(name, n_rows) for name in options.uci}
    rows = []
    for kind in kinds:
        kind(random_state=1).fit(*friedman(100))  # compiles the loops
        for name, (X, y) in sets.items():
            if kind is not kinds[0] and name != "Friedman":
                continue
            n_test = min(options.test, len(y) // 3)
            cells = in_parts(kind(random_state=0), X, y, n_test)
            rows.append([f"{name}, {kind.__name__}", *cells])
            print(rows[-1], flush=True)
    head = ["mean over updates (worst)", "rows of a part", "RMSE / of the fit"]
    head += ["density / of the fit", "seconds / of the fit", "coverage"]
    print(table([*head, "got worse", "refused, alone"], rows))
    rows = []
    for kind in kinds:
        rows.append([kind.__name__, *changed(kind(random_state=0))])
        print(rows[-1], flush=True)
    after = [PART * (i + 1) for i in range(N_AFTER)]
    head = [f"{n} rows: RMSE / of the fit, coverage" for n in after]
    print(table(["after a change", "RMSE at 0 rows", *head], rows))


if __name__ == "__main__":
    main()
