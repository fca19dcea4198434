"""How good are predictions outside of the training range, and in gaps of it?

The splits of nnuncert (github.com/nnuncert/nnuncert, utils/traintest.py). A gap split
sorts a column; the middle third of the rows is the test set. A tail split takes the
first and the last sixth. There is one split of each kind for each column. The table
contains the CRPS and the share of test rows in 90 % intervals, means over the columns;
"random" are canonical splits, for comparison. The published column is the best of the
eight network methods of nnuncert (mean over its splits; marked *).

Sets with more rows than ``--rows`` are sampled, with at most ``--columns`` columns to
split; their published figures used all rows and are left out. The Gaussian process has
cubic cost and is fitted to at most 400 training rows.

    python benchmarks/shifted_splits.py
    python benchmarks/shifted_splits.py --sets yacht --methods stack,forest
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from common import command_line, environment, table
from uci import ONLY_BY_NAME, SETS, load

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    LaplaceRegressor,
    MCDropoutRegressor,
)
from skbayesnn.metrics import interval_coverage

sys.path.insert(0, str(Path(__file__).parent / "_leaderboard"))
import predictives
import regressors

OURS = {
    "stack": BayesianStackingRegressor,
    "laplace": LaplaceRegressor,
    "anchored": AnchoredEnsembleRegressor,
    "mc dropout": MCDropoutRegressor,
}
PEERS = {"gp": regressors.gaussian_process, "forest": regressors.random_forest}
GP_ROWS = 400
# CRPS of the best network method of nnuncert.
PUBLISHED = {
    "gap": {
        "bostonHousing": "1.69",
        "concrete": "3.78",
        "energy": "3.67",
        "wine-quality-red": ".350",
        "yacht": ".684",
    },
    "tail": {
        "bostonHousing": "2.86",
        "concrete": "4.83",
        "energy": "4.51",
        "wine-quality-red": ".425",
        "yacht": "1.69",
    },
}


def splits(X: np.ndarray, kind: str) -> list[np.ndarray]:
    """Test rows for each column that is not constant."""
    n = len(X)
    if kind == "gap":
        places = np.arange(int(n / 3), int(n * 2 / 3))
    else:
        first, last = int(np.ceil(n / 6)), int(np.floor(n * 5 / 6))
        places = np.r_[:first, last:n]
    columns = [x for x in X.T if np.ptp(x) > 0]
    return [np.argsort(x, kind="stable")[places] for x in columns]


def score(method: str, X, y, test: np.ndarray) -> tuple[float, float]:
    """CRPS and coverage of 90 % intervals on the test rows."""
    train = np.setdiff1d(np.arange(len(y)), test)
    if method in OURS:
        model = OURS[method](random_state=0).fit(X[train], y[train])
        interval = model.predict_interval(X[test], 0.9)
        return model.crps(X[test], y[test]).mean(), interval_coverage(y[test], interval)
    if method == "gp":
        train = np.random.RandomState(0).permutation(train)[:GP_ROWS]
    predict = PEERS[method](0, 1)(X[train], y[train])
    scores = predictives.scores_of("regression", predict(X[test]), y[test])
    return scores["crps"], scores["cover_90"]


def main() -> None:
    arguments = command_line(__doc__)
    arguments.add_argument("--sets", default=",".join((*SETS, *ONLY_BY_NAME)))
    arguments.add_argument("--methods", default=",".join((*OURS, *PEERS)))
    arguments.add_argument("--rows", type=int, default=1600)
    arguments.add_argument("--columns", type=int, default=6)
    options = arguments.parse_args()
    print(environment())
    warnings.filterwarnings("ignore")
    methods = options.methods.split(",")
    for kind in ("gap", "tail", "random"):
        rows = []
        for name in options.sets.split(","):
            X, y, _, canonical = load(name, 3)
            is_sample = len(y) > options.rows
            if is_sample:
                some = np.random.RandomState(0).permutation(len(y))[: options.rows]
                X, y = X[some], y[some]
            if kind != "random":
                tests = splits(X, kind)[: options.columns if is_sample else None]
            elif is_sample:
                tests = np.arange(len(y)).reshape(10, -1)[:3]
            else:
                tests = canonical
            means = [
                np.mean([score(method, X, y, test) for test in tests], axis=0)
                for method in methods
            ]
            best = PUBLISHED.get(kind, {}).get(name, "")
            cells = [f"{crps:.3g} ({coverage:.2f})" for crps, coverage in means]
            rows.append([name, len(y), *cells, "" if is_sample else best])
            print(*rows[-1], file=sys.stderr, flush=True)
        print(f"\n{kind} splits: CRPS (coverage of 90 % intervals)\n")
        print(table(["table", "rows", *methods, "best of nnuncert *"], rows))


if __name__ == "__main__":
    main()
