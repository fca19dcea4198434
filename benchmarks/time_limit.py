"""Is `time_limit` of a stack kept, and what does it cost in CRPS?

The first canonical split of UCI sets and a made-up table of 20,000 rows. "took" is the
wall-clock time of ``fit`` over the limit; "compared" is the number of candidates with
scores. ``warm_up`` is called first.

    python benchmarks/time_limit.py
    python benchmarks/time_limit.py --limits 5,20,60,none --sets yacht,kin8nm
"""

import time
import warnings

from common import command_line, environment, table
from sklearn.datasets import make_friedman1
from uci import ONLY_BY_NAME, SETS, load

from skbayesnn import BayesianStackingRegressor, warm_up


def rows_of(name: str):
    """Training and test rows."""
    if name == "friedman":
        X, y = make_friedman1(22_000, n_features=15, noise=1.0, random_state=0)
        return X[:20_000], y[:20_000], X[20_000:], y[20_000:]
    X, y, train, test = load(name, 1)
    return X[train[0]], y[train[0]], X[test[0]], y[test[0]]


def main() -> None:
    arguments = command_line(__doc__)
    arguments.add_argument(
        "--sets", default=",".join((*SETS, *ONLY_BY_NAME)) + ",friedman"
    )
    arguments.add_argument("--limits", default="5,20")
    options = arguments.parse_args()
    print(environment())
    warnings.filterwarnings("ignore")
    warm_up()
    limits = [None if s == "none" else float(s) for s in options.limits.split(",")]
    rows = []
    for name in options.sets.split(","):
        X, y, X_test, y_test = rows_of(name)
        row = [name, f"{len(y):,}"]
        for limit in limits:
            model = BayesianStackingRegressor(time_limit=limit, random_state=0)
            start = time.perf_counter()
            model.fit(X, y)
            seconds = time.perf_counter() - start
            took = f"{seconds:.1f} s" if limit is None else f"{seconds / limit:.2f}"
            row += [
                took,
                len(model.weights_),
                f"{model.crps(X_test, y_test).mean():.3g}",
            ]
        rows.append(row)
        print(*rows[-1], flush=True)
    names = ["no limit" if limit is None else f"{limit:g} s" for limit in limits]
    parts = ("took", "compared", "CRPS")
    header = [f"{name}: {part}" for name in names for part in parts]
    print(table(["table", "rows", *header], rows))


if __name__ == "__main__":
    main()
