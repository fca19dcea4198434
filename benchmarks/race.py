"""Does a race pay, which drops candidates of the stack after a part of the training?

The pool is trained for a quarter, or a half, of its epochs, stacked, and what then has
no weight is dropped; the rest is trained as usual. Printed are the CRPS over the
standard deviation of y (of classes the log loss), the log density and the seconds of
both trainings, on rows kept apart from parts of training rows as in study.py.

    python benchmarks/race.py
"""

import time
import warnings

import numpy as np
from common import command_line, environment, table
from study import CLASSES, REGRESSION

from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor
from skbayesnn._batch.jobs import network_of
from skbayesnn._stacking.candidates import candidates_of, default_pool

SETS = ("yacht", "concrete", "wine-quality-red", "kin8nm", "synthetic-150", "digits")
SHARES, LEAST_WEIGHT = (0.25, 0.5), 0.01


def pool_of(X, of_classes):
    """The default candidates, each an entry of its own, by name."""
    weights = np.ones(len(X))
    how = {"max_iter": "auto", "device": "cpu", "random_state": 0}
    pool = default_pool(np.asarray(X), weights, of_classes=of_classes, **how)
    return {
        one.name: (
            one.name,
            one.entry.estimator,
            {n: [v] for n, v in one.params.items()},
        )
        for one in candidates_of(pool)
    }


def fitted(kind, X, y, **options):
    """The stack, and its seconds on the processor."""
    start = time.process_time()
    return kind(random_state=0, **options).fit(X, y), time.process_time() - start


def scored(model, X, y, of_classes):
    """As the table has it."""
    density = model.log_predictive_density(X, y).mean()
    if of_classes:
        return f"{-density:.4f}", f"{density:.3f}"
    return f"{model.crps(X, y).mean() / y.std():.4f}", f"{density:.3f}"


def rows_of(name):
    """Of one set: the whole pool, and races."""
    of_classes = name in CLASSES
    X, y, X_test, y_test = (CLASSES if of_classes else REGRESSION)[name]()
    kind = BayesianStackingClassifier if of_classes else BayesianStackingRegressor
    pool = pool_of(X, of_classes)
    # Every candidate is an entry, as in the races, so that equal programs are compared.
    whole, seconds = fitted(kind, X, y, estimators=list(pool.values()))
    score = scored(whole, X_test, y_test, of_classes)
    yield [name, "none", len(pool), *score, f"{seconds:.1f}"]
    n_epochs = network_of(next(iter(pool.values()))[1]).max_iter
    for share in SHARES:
        early, before = fitted(kind, X, y, max_iter=max(1, round(share * n_epochs)))
        kept = [n for n, w in early.weights_["weight"].items() if w > LEAST_WEIGHT]
        model, after = fitted(kind, X, y, estimators=[pool[name] for name in kept])
        score = scored(model, X_test, y_test, of_classes)
        seconds = f"{before + after:.1f}"
        yield [name, share, len(kept), *score, seconds]


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    header = ["set", "race after", "kept", "score", "log density", "s"]
    print(table(header, [row for name in SETS for row in rows_of(name)]))


if __name__ == "__main__":
    main()
