"""Stacks: from how many rows on does one held-out fifth do, and a part of the steps?

CRPS (of classes log loss) on rows kept apart, of tables cut from training rows as in
study.py: one fifth held out, twenty folds, and five starts of the fit to all rows, as
ratios to five folds and two starts. Then tables of 10,000 rows and more, with all steps
for the networks at the higher rate in place of a quarter.

    python benchmarks/folds.py
"""

import time
import warnings

from common import command_line, environment, table
from sklearn.model_selection import ShuffleSplit
from study import adult, diabetes, halves, noisy_classes, synthetic, uci

from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor
from skbayesnn._stacking import pool

ROWS = (100, 400, 1000)
SETS = ("concrete", "wine-quality-red", "kin8nm", "power-plant")
HOW = {
    "five folds": {"cv": 5},
    "a held-out fifth": {"cv": ShuffleSplit(1, test_size=0.2, random_state=0)},
    "twenty folds": {"cv": 20},
    "five starts": {"cv": 5, "n_refits": 5},
}
# Twenty folds of more rows would take longer than they are worth.
MOST_ROWS_OF = {"twenty folds": 400}


def tables(n_rows):
    """By name, those that have so many rows."""
    found = {name: uci(name, most_rows=n_rows) for name in SETS}
    found["synthetic"] = synthetic(n_rows)
    if n_rows <= 300:
        found["diabetes"] = diabetes(n_rows)
    found["noisy classes"] = noisy_classes(n_rows)
    found["kin8nm halves"] = halves("kin8nm", n_rows)
    return {name: one for name, one in found.items() if len(one[1]) == n_rows}


def scored(name, one, **options):
    """Score of the stack on rows kept apart, and seconds on the processor."""
    X, y, X_test, y_test = one
    of_classes = "classes" in name or "halves" in name or name == "adult"
    kind = BayesianStackingClassifier if of_classes else BayesianStackingRegressor
    start = time.process_time()
    model = kind(random_state=0, **options).fit(X, y)
    seconds = time.process_time() - start
    if of_classes:
        return -model.log_predictive_density(X_test, y_test).mean(), seconds
    return model.crps(X_test, y_test).mean(), seconds


def of_folds():
    """Rows of the first table."""
    for n_rows in ROWS:
        for name, one in tables(n_rows).items():
            found = [
                scored(name, one, **how)
                if n_rows <= MOST_ROWS_OF.get(said, n_rows)
                else None
                for said, how in HOW.items()
            ]
            score, seconds = found[0]
            cells = [
                "-" if other is None else f"{other[0] / score:.3f} ({other[1]:.0f} s)"
                for other in found[1:]
            ]
            yield [name, n_rows, f"{score:.4g} ({seconds:.0f} s)", *cells]


def of_many_rows():
    """Rows of the second table."""
    large = {
        "protein": uci("protein-tertiary-structure", most_rows=15_000),
        "naval": uci("naval-propulsion-plant", most_rows=10_000),
        "protein halves": halves("protein-tertiary-structure", 15_000),
        "adult": adult(15_000),
    }
    share = pool.SHARE_OF_STEPS
    for name, one in large.items():
        part, pool.SHARE_OF_STEPS = scored(name, one), 1.0
        whole, pool.SHARE_OF_STEPS = scored(name, one), share
        said = (f"{value[0]:.4g} ({value[1]:.0f} s)" for value in (part, whole))
        yield [name, len(one[1]), *said]


def main():
    """Print both tables."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    print(table(["", "rows", *HOW], list(of_folds())))
    print()
    print(table(["", "rows", "a quarter of the steps", "all"], list(of_many_rows())))


if __name__ == "__main__":
    main()
