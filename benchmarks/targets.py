"""How good are the distributions for y with limits, zeros, counts, skew or rounding?

Kinds of tables: times until an event, which are censored; values below a limit of
detection; zeros and amounts; counts; positive and skewed y; proportions; UCI sets with
y rounded to 10, 30 or 100 values with even or uneven gaps; and the UCI sets as they
are. At most ``--rows`` training and ``--test`` test rows of a random split, of which
the methods see y of the training rows only. The days of ``rain`` are split by time.

Columns, means over test rows and splits:

- RMSE: of the mean; for the made-up limits of detection with the y below the limit,
  which the methods do not know
- CRPS: of a censored row, the integral outside of the interval where y is known to be.
  Limits of detection: above the limit for all rows; times: up to the 90 % quantile of
  the training times
- log probability: log density of a single value; log probability of a rounded or
  discrete value (half-way to the neighbours), of a censored interval, of zero (all of
  the distribution up to zero), and of the bin of a time (20 bins, by the events of
  training rows). It is at least log(1e-9), for a density in standard deviations of y
- 90 %: share of the cell's probability that is inside the central interval; right for
  discrete and censored y also
- outside: probability of impossible values
- times: concordance, and the Brier score integrated over the middle times

A finished run is a line of JSON in ``--results``, and is not run again. Peers are
scikit-survival, lifelines, NGBoost, CatBoost, LightGBM and statsmodels; plotnine and
ISLP (``pip install --no-deps ISLP``) have tables. Without a package, its methods and
tables fail, and the others run. A method is a function in ``_targets/methods.py``.

    python benchmarks/targets.py --tables hurdle gbsg2 --methods stack NGBoost
    python benchmarks/targets.py --kinds counts --seeds 3
    python benchmarks/targets.py --report
"""

import time
import warnings
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

import numpy as np
from _leaderboard.child import Clock
from _leaderboard.results import append, read
from _targets.methods import METHODS
from _targets.scores import scores_of
from _targets.tables import TABLES, load
from common import command_line, environment, table

from skbayesnn import MCDropoutRegressor

KINDS = {
    "survival": "time until an event, right-censored",
    "limit": "limit of detection",
    "zeros": "zeros and amounts",
    "counts": "counts",
    "skew": "positive and skewed",
    "proportions": "proportions",
    "rounded": "rounded",
    "plain": "plain numbers",
}
HEADERS = {
    "rmse": "RMSE",
    "crps": "CRPS",
    "log_probability": "log probability",
    "cover": "90 %",
    "outside": "outside",
    "concordance": "concordance",
    "brier": "Brier",
    "seconds": "seconds",
}
SURVIVAL = "concordance", "brier"


def compile_loops() -> None:
    """Compile the loops of training, which is not part of the seconds."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    MCDropoutRegressor(max_iter=2).fit(X, X[:, 0])


def run(name: str, method: str, seed: int, options) -> dict:
    """Fit and score a method; CPU seconds of the fit, and of prediction and scores."""
    data = load(name, seed, options.rows, options.test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.random.seed(seed)  # NGBoost draws from NumPy's global generator
        clock = Clock()
        predict = METHODS[method][0](data)
        wall, cpu = clock.seconds()
        start = time.process_time()
        scores = scores_of(predict(), data)
    about = {"kind": data.kind, "rows": len(data.train), "test_rows": len(data.test)}
    used = {"seconds": cpu, "wall_seconds": wall}
    used["score_seconds"] = time.process_time() - start
    return {
        "task": name,
        "contestant": method,
        "split": seed,
        **about,
        **scores,
        **used,
    }


def run_all(options) -> None:
    """Run what is not finished, and append the results."""
    done = read(options.results)
    compile_loops()
    for seed, name, method in product(
        range(options.seeds), options.tables, options.methods
    ):
        kinds = METHODS[method][1].split()
        if TABLES[name][0] not in kinds or (name, method, seed) in done:
            continue
        try:
            record = run(name, method, seed, options)
        except Exception as error:  # the other runs go on
            print(f"{name} | {method} | failed: {error!r}", flush=True)
            continue
        append(options.results, record)
        cells = (f"{HEADERS[n]} {number(record, n)}" for n in HEADERS if n in record)
        print(name, method, *cells, sep=" | ", flush=True)


def number(scores: dict, name: str) -> str:
    """A score as text; nothing if the table does not have it."""
    value = scores.get(name, np.nan)
    if not np.isfinite(value):
        return ""
    if name in ("rmse", "crps"):
        return f"{value:.4g}"
    return f"{value:.{1 if name == 'seconds' else 3}f}"


def report(results: dict, options) -> None:
    """A table for each kind, means over splits."""
    for kind, about in KINDS.items():
        heads = [n for n in HEADERS if n not in SURVIVAL or kind == "survival"]
        lines = []
        for name, method in product(options.tables, options.methods):
            found = [r for key, r in results.items() if key[:2] == (name, method)]
            if found and TABLES[name][0] == kind:
                means = {n: np.mean([r.get(n, np.nan) for r in found]) for n in heads}
                numbers = [number(means, n) for n in heads]
                lines.append([name, method, len(found), *numbers])
        if lines:
            print(f"\n{about}\n")
            header = ["table", "method", "splits", *(HEADERS[n] for n in heads)]
            print(table(header, lines))


def matching(patterns, names) -> list[str]:
    """Names that match one of the patterns, such as ``*uneven``."""
    found = [n for n in names if any(fnmatch(n, pattern) for pattern in patterns)]
    if not found:
        raise SystemExit(f"No name matches {patterns}; there are {list(names)}.")
    return found


def main() -> None:
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    add("--tables", nargs="+", default=["*"], help="names or patterns")
    add("--methods", nargs="+", default=["*"], help="names or patterns")
    add("--seeds", type=int, default=1, help="number of splits")
    add("--rows", type=int, default=2000, help="most training rows")
    add("--test", type=int, default=1000, help="most test rows")
    add("--results", type=Path, default=Path("targets.jsonl"))
    add("--report", action="store_true", help="print the tables, run nothing")
    options = parser.parse_args()
    of_kinds = [name for name, (kind, _) in TABLES.items() if kind in options.kinds]
    options.tables = matching(options.tables, of_kinds)
    options.methods = matching(options.methods, METHODS)
    print(environment())
    if not options.report:
        run_all(options)
    report(read(options.results), options)


if __name__ == "__main__":
    main()
