"""How good are neighbour networks? Parts of training rows of the UCI sets.

The training rows of canonical split 0 are split again: a tenth of them is held out (a
fifth of small sets). Test rows are not used. The table contains CRPS, mean log density,
RMSE, the coverage of 90 % intervals, and CPU seconds of the fit.

    python benchmarks/neighbours.py
    python benchmarks/neighbours.py --sets power-plant --parameters '{"dropout": 0.0}'
    python benchmarks/neighbours.py --search 200000

With ``--search``: exact search against search in cells, for the given number of rows:
the protein set, repeated, with normal noise of a tenth of the standard deviation of
each column and of y. The held-out rows have no noise. The table contains CPU
milliseconds of a row for one network of two draws, the mean share of the training rows
whose distances are computed, scores, and the largest difference of a predictive mean,
in standard deviations of y.
"""

import json
import time
import warnings

import numpy as np
from common import command_line, environment, table
from uci import load

from skbayesnn import MCDropoutRegressor, NeighbourRegressor
from skbayesnn._engine.compiled.neighbour_search import n_visited
from skbayesnn.estimators import _embedding
from skbayesnn.metrics import interval_coverage

SETS = "energy,concrete,wine-quality-red,kin8nm,power-plant,protein-tertiary-structure"
# With at most this many training rows, a fifth of them is held out.
SMALL = 3000
FIRST_SEED = 100


def split(name: str, seed: int, most: int):
    """X and y of training rows and of held-out rows."""
    X, y, train, _ = load(name, 1)
    rows = np.random.default_rng(seed).permutation(train[0])[:most]
    n = len(rows) // (10 if len(rows) > SMALL else 5)
    return X[rows[n:]], y[rows[n:]], X[rows[:n]], y[rows[:n]]


def measure(model, X, y, X_new, y_new) -> list[float]:
    """Scores of the held-out rows, and CPU seconds of the fit."""
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    interval = model.predict_interval(X_new, 0.9)
    return [
        model.crps(X_new, y_new).mean(),
        model.log_predictive_density(X_new, y_new).mean(),
        np.sqrt(np.square(model.predict(X_new) - y_new).mean()),
        interval_coverage(y_new, interval),
        seconds,
    ]


def measure_search(n_rows: int) -> list[list]:
    """Rows of the table of exact search and search in cells."""
    X, y, X_new, y_new = split("protein-tertiary-structure", FIRST_SEED, n_rows)
    X_new, y_new = X_new[:500], y_new[:500]
    random = np.random.default_rng(FIRST_SEED)
    row = np.resize(np.arange(len(X)), n_rows)
    X = X[row] + 0.1 * X.std(0) * random.standard_normal((n_rows, X.shape[1]))
    y = y[row] + 0.1 * y.std() * random.standard_normal(n_rows)
    model = NeighbourRegressor(n_estimators=1, random_state=FIRST_SEED).fit(X, y)
    means, rows = [], []
    for name, threshold in ("exact", n_rows + 1), ("cells", n_rows):
        _embedding.SEARCHED_FROM = threshold
        model.__setstate__(model.__getstate__())
        start = time.process_time()
        model.predict(X_new[:1])
        first = time.process_time() - start
        start = time.process_time()
        means.append(model.predict(X_new))
        each = (time.process_time() - start) / len(X_new)
        features = model._encoded(model._standardised(X_new))
        visited = [
            n_visited(z, draw.stored, _embedding.SHARE).mean() / n_rows
            for draw, z in model._queries(features, model._draws())
        ]
        difference = np.abs(means[-1] - means[0]).max() / y.std()
        scores = (
            model.crps(X_new, y_new).mean(),
            model.log_predictive_density(X_new, y_new).mean(),
        )
        rows.append(
            [
                name,
                f"{first:.1f}",
                f"{1000 * each:.2f}",
                f"{np.mean(visited):.1%}",
                *(f"{score:.4f}" for score in scores),
                f"{difference:.1e}",
            ]
        )
    return rows


def main():
    parser = command_line(__doc__)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--rows", type=int, default=11_111, help="most rows of a set")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--parameters", type=json.loads, default={})
    parser.add_argument("--alone", action="store_true", help="no other estimator")
    parser.add_argument("--search", type=int, metavar="ROWS", help="time of the search")
    arguments = parser.parse_args()
    if arguments.search:
        print(environment())
        heads = ["search", "first row, s", "ms", "visited", "CRPS", "log density"]
        print(table([*heads, "difference"], measure_search(arguments.search)))
        return
    kinds = [NeighbourRegressor, MCDropoutRegressor][: 2 - arguments.alone]
    print(environment())
    lines = []
    for name in arguments.sets.split(","):
        for kind in kinds:
            parameters = arguments.parameters if kind is NeighbourRegressor else {}
            scores = []
            for seed in range(FIRST_SEED, FIRST_SEED + arguments.seeds):
                data = split(name, seed, arguments.rows)
                scores.append(measure(kind(random_state=seed, **parameters), *data))
            crps, density, rmse, coverage, seconds = np.mean(scores, axis=0)
            lines.append(
                [
                    name,
                    len(data[0]),
                    kind.__name__,
                    f"{crps:.4g}",
                    f"{density:.3f}",
                    f"{rmse:.4g}",
                    f"{coverage:.0%}",
                    f"{seconds:.1f}",
                ]
            )
    header = ["set", "rows", "estimator", "CRPS", "log density", "RMSE", "90 %", "s"]
    print(table(header, lines))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
