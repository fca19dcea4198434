"""Stacks: from how many rows on does one held-out fifth do?

CRPS (of classes log loss) on rows kept apart, of tables cut from training rows as in
study.py: one fifth held out, twenty folds, and five starts of the fit to all rows, as
ratios to five folds and two starts.

    python benchmarks/folds.py
"""

import time
import warnings

from common import command_line, environment, table
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from study import diabetes, halves, noisy_classes, synthetic, uci

from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor

ROWS = (100, 400, 1000)
SETS = ("concrete", "wine-quality-red", "kin8nm", "power-plant")
ONCE = {"test_size": 0.2, "n_splits": 1, "random_state": 0}
REGRESSION = BayesianStackingRegressor, ShuffleSplit(**ONCE)
CLASSIFICATION = BayesianStackingClassifier, StratifiedShuffleSplit(**ONCE)
HOW = {
    "five folds": {"cv": 5, "n_refits": 2},
    "a held-out fifth": {"n_refits": 2},
    "twenty folds": {"cv": 20, "n_refits": 2},
    "five starts": {"cv": 5, "n_refits": 5},
}
# More of more rows would take longer than they are worth.
MOST_ROWS_OF = {"twenty folds": 100, "five starts": 400}


def tables(n_rows):
    """By name, of both kinds, those that have so many rows."""
    numbers = {name: uci(name, most_rows=n_rows) for name in SETS}
    numbers["synthetic"] = synthetic(n_rows)
    if n_rows <= 300:
        numbers["diabetes"] = diabetes(n_rows)
    classes = {
        "noisy classes": noisy_classes(n_rows),
        "kin8nm halves": halves("kin8nm", n_rows),
    }
    for stack, found in ((REGRESSION, numbers), (CLASSIFICATION, classes)):
        for name, one in found.items():
            if len(one[1]) == n_rows:
                yield name, stack, one


def scored(stack, one, **options):
    """Score of the stack on rows kept apart, and seconds on the processor."""
    X, y, X_test, y_test = one
    kind, fifth = stack
    start = time.process_time()
    model = kind(random_state=0, **{"cv": fifth} | options).fit(X, y)
    seconds = time.process_time() - start
    if stack is CLASSIFICATION:
        return -model.log_predictive_density(X_test, y_test).mean(), seconds
    return model.crps(X_test, y_test).mean(), seconds


def of_folds():
    """Rows of the table."""
    for n_rows in ROWS:
        for name, stack, one in tables(n_rows):
            found = [
                scored(stack, one, **how)
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


def main():
    """Print the table, and before it its rows as they come."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    rows = []
    for row in of_folds():
        print(*row, flush=True)
        rows.append(row)
    print(table(["", "rows", *HOW], rows))


if __name__ == "__main__":
    main()
