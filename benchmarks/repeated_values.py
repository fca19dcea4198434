"""Which values of which columns should have a feature of their own?

Networks of the stack's default pool on the encoding, on tables cut from training rows
as in study.py and on made-up ones: 85 % of a column are zero, the others "amounts" of
money, whose effect is smooth, rounded to one or to hundreds, or one of 60 "codes", each
with an effect of its own. Scores are ratios to those without such features; the number
is that of these features.

    python benchmarks/repeated_values.py

With ``--stacks`` the default stacks with these features and without, beside boosting,
on parts of adult's training rows.
"""

import math
import time
import warnings

import numpy as np
from common import command_line, environment, table
from scipy.stats import gmean
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from study import CLASSES, REGRESSION, adult

from skbayesnn import BayesianStackingClassifier
from skbayesnn._stacking import candidates
from skbayesnn.preprocessing import _piecewise_linear

STARTS, SCORED = 2, 2500
ROWS_OF_STACKS = (2500, 5000, 15_000, 22_000)
# Least share of the most frequent value, and times the smallest distance.
RULES = {
    "none": (math.inf, 0.0),
    "the rule": (_piecewise_linear._MOSTLY, _piecewise_linear._APART),
    "near ones, too": (_piecewise_linear._MOSTLY, 0.0),
    "all columns": (0.0, 0.0),
}


def made_up(kind, n_rows, of_classes):
    """One column of seven is mostly zero."""
    random = np.random.default_rng(0)
    n = n_rows + SCORED
    X = random.normal(size=(n, 7))
    some = random.random(n) < 0.15
    amounts = np.exp(random.normal(7, 1.2, n))
    effects = np.log(amounts) - 6.5
    if kind == "codes":
        codes, effect = np.unique(amounts[:60].round()), 2 * random.normal(size=60)
        which = random.choice(
            len(codes), n, p=random.dirichlet(np.full(len(codes), 0.7))
        )
        amounts, effects = codes[which], effect[which]
    X[:, 6] = np.where(some, np.maximum(amounts.round(-2 * (kind == "hundreds")), 1), 0)
    f = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + np.where(some, effects, 0)
    y = f + 0.5 * random.normal(size=n)
    if of_classes:
        y = (f + random.logistic(size=n) > 0).astype(int)
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


TABLES = {
    name: (True, CLASSES[name])
    for name in (
        "adult-2500",
        "adult-15000",
        "digits",
        "wine-quality halves",
        "protein halves-10000",
    )
}
TABLES |= {name: (False, REGRESSION[name]) for name in ("concrete", "diabetes-300")}
TABLES |= {
    f"{kind}, {'classes' if of_classes else 'numbers'}": (
        of_classes,
        lambda kind=kind, of_classes=of_classes: made_up(kind, 3000, of_classes),
    )
    for kind in ("amounts", "hundreds", "codes")
    for of_classes in (True, False)
}


def scores(load, of_classes):
    """Of each rule: log loss or CRPS, mean over the networks; number of features."""
    X, y, X_test, y_test = load()
    X, X_test = X.astype(np.float32), X_test.astype(np.float32)
    for rule in RULES.values():
        _piecewise_linear._MOSTLY, _piecewise_linear._APART = rule
        how = {"of_classes": of_classes, "max_iter": "auto", "random_state": 0}
        encoded, *_ = candidates.default_pool(X, np.ones(len(X)), **how)
        encoder = encoded.estimator[0].estimator
        found = []
        for grid in encoded.grid:
            for length_scale in (1.0, 3.0):
                params = {name: values[0] for name, values in grid.items()}
                params |= {"network__length_scale": length_scale}
                encoded.estimator.set_params(**params, network__n_estimators=STARTS)
                model = encoded.estimator.fit(X, y)
                if of_classes:
                    found.append(log_loss(y_test, model.predict_proba(X_test)))
                else:
                    features = encoder.transform(X_test)
                    found.append(np.mean(model[1].crps(features, y_test)))
        yield gmean(found), sum(map(len, encoder.values_))


def of_networks():
    """A row per table."""
    rows = []
    for name, (of_classes, load) in TABLES.items():
        (plain, _), *others = scores(load, of_classes)
        cells = [f"{score / plain:.3f} ({n})" for score, n in others]
        rows.append([name, f"{plain:.4g}", *cells])
        print(f"{name} is done", flush=True)
    print(table(["", *RULES], rows))


def of_stacks():
    """A row per number of adult's training rows."""
    rows = []
    for n_rows in ROWS_OF_STACKS:
        X, y, X_test, y_test = adult(n_rows, 10_000)
        boosting = HistGradientBoostingClassifier(random_state=0)
        models = [boosting, *(BayesianStackingClassifier(random_state=0),) * 2]
        cells = []
        for model, rule in zip(models, ("none", "none", "the rule"), strict=True):
            _piecewise_linear._MOSTLY, _piecewise_linear._APART = RULES[rule]
            start = time.perf_counter()
            model.fit(X, y)
            seconds = time.perf_counter() - start
            loss = log_loss(y_test, model.predict_proba(X_test))
            cells.append(f"{loss:.4f} ({seconds:.0f} s)")
        rows.append([n_rows, *cells])
        print(f"{n_rows} rows are done", flush=True)
    print(table(["rows", "boosting", "without", "with them"], rows))


def main():
    """Print the table."""
    arguments = command_line(__doc__)
    arguments.add_argument("--stacks", action="store_true")
    warnings.simplefilter("ignore")
    print(environment())
    of_stacks() if arguments.parse_args().stacks else of_networks()


if __name__ == "__main__":
    main()
