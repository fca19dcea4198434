"""Stacks: from how many starts is a candidate fitted to all rows?

Rows kept apart of tables cut from training rows as in study.py: CRPS as a ratio to that
of one start, what is gained in log density (nats), and the share of the rows inside of
90 % intervals; of classes the log loss. Seconds are those of the processor. The last
column has the spread that held-out rows ask for of one start of each candidate, from
which nothing is taken off for four.

    python benchmarks/starts.py
"""

import time
import warnings

from common import command_line, environment, table
from sklearn.metrics import log_loss
from study import CLASSES, REGRESSION

from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor
from skbayesnn._meta.functions import open_predictive
from skbayesnn.metrics import interval_coverage

STARTS = (1, 2, 4)
OF_NUMBERS = (
    "yacht",
    "yacht, again",
    "energy",
    "energy, again",
    "concrete",
    "wine-quality-red",
    "kin8nm",
    "naval-propulsion-plant",
    "synthetic-150",
    "diabetes-300",
)
OF_CLASSES = ("breast_cancer", "wine", "digits", "noisy-500", "kin8nm halves")


def fitted(kind, X, y, n_refits):
    """A stack, and seconds."""
    start = time.process_time()
    model = kind(n_refits=n_refits, random_state=0).fit(X, y)
    return model, time.process_time() - start


def of_numbers(X, y, X_test, y_test):
    """CRPS, log density, coverage and seconds by the number of starts."""
    for n_refits in STARTS:
        model, seconds = fitted(BayesianStackingRegressor, X, y, n_refits)
        if n_refits == 1:
            factor = model.spread_factor_
        yield *scores(model, X_test, y_test), seconds
    model.spread_factor_ = factor
    yield *scores(model, X_test, y_test), seconds


def scores(model, X_test, y_test):
    """CRPS, log density and coverage."""
    predictive = open_predictive(model, X_test).whole()
    inside = interval_coverage(y_test, model.predict_interval(X_test))
    crps = predictive.crps(y_test).mean()
    return crps, predictive.log_density(y_test).mean(), inside


def of_classes(X, y, X_test, y_test):
    """Log loss and seconds by the number of starts."""
    for n_refits in STARTS:
        model, seconds = fitted(BayesianStackingClassifier, X, y, n_refits)
        probability = model.predict_proba(X_test)
        yield log_loss(y_test, probability, labels=model.classes_), seconds


def main():
    """Print both tables."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    rows = []
    for name in OF_NUMBERS:
        found = list(of_numbers(*REGRESSION[name]()))
        crps, density, _, _ = found[0]
        cells = (
            f"{one[0] / crps:.3f}, {one[1] - density:+.3f}, {one[2]:.0%}, {one[3]:.0f}"
            for one in found
        )
        rows.append([name, *cells])
    said = [*map(str, STARTS), f"{STARTS[-1]}, spread as one"]
    print(table(["CRPS, log density, in 90 %, s", *said], rows), flush=True)
    rows = []
    for name in OF_CLASSES:
        found = list(of_classes(*CLASSES[name]()))
        cells = (f"{one[0] / found[0][0]:.3f}, {one[1]:.0f}" for one in found)
        rows.append([name, *cells])
    print(table(["log loss, s", *map(str, STARTS)], rows))


if __name__ == "__main__":
    main()
