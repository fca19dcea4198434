"""How good are neighbour networks? Parts of training rows of the UCI sets.

The training rows of canonical split 0 are split again: a tenth of them is held out (a
fifth of small sets). Test rows are not used. The table contains CRPS, mean log density,
RMSE, the coverage of 90 % intervals, and CPU seconds of the fit.

    python benchmarks/neighbours.py
    python benchmarks/neighbours.py --sets power-plant --parameters '{"dropout": 0.0}'
"""

import json
import time
import warnings

import numpy as np
from common import command_line, environment, table
from uci import load

from skbayesnn import MCDropoutRegressor, NeighbourRegressor
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


def main():
    parser = command_line(__doc__)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--rows", type=int, default=11_111, help="most rows of a set")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--parameters", type=json.loads, default={})
    parser.add_argument("--alone", action="store_true", help="no other estimator")
    arguments = parser.parse_args()
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
