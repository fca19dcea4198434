"""How wide should a single network be? Layers of variational posteriors by table.

Printed is the CRPS (classes: log loss) on rows kept apart as a ratio to that of the
best width, and the geometric mean of the tables of so many rows; in the last column
what the best width reaches. Tables are parts of training rows, as in study.py.

    python benchmarks/widths.py
"""

import itertools
import warnings
from functools import partial

import numpy as np
from common import command_line, environment, table
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import log_loss
from study import UCI, classes, diabetes, halves, noisy_classes, synthetic, uci

import skbayesnn
from skbayesnn._meta.functions import open_predictive

KINDS = (
    "BBBRegressor",
    "BBBClassifier",
    "VariationalDropoutRegressor",
    "VariationalDropoutClassifier",
)
WIDTHS = ((5,), (10,), (20,), (50,), (20, 20), (50, 50))
MEANS = (0, 80, 150, 300, 800, 3000, np.inf)
REGRESSION = {
    **{f"synthetic, {n}": partial(synthetic, n) for n in (100, 300, 1000)},
    **{f"diabetes, {n}": partial(diabetes, n) for n in (60, 300)},
    **{
        f"{name}, {n}": partial(uci, name, most_rows=n)
        for name in UCI
        for n in (100, 200, 500, 2000, 6000)
    },
}
CLASSES = {
    "iris": partial(classes, load_iris),
    "breast_cancer": partial(classes, load_breast_cancer),
    "wine": partial(classes, load_wine),
    "digits": partial(classes, load_digits),
    **{f"noisy, {n}": partial(noisy_classes, n) for n in (30, 60, 100, 500, 2500)},
    **{
        f"{name} halves, {n}": partial(halves, name, n)
        for name in ("kin8nm", "wine-quality-red")
        for n in (60, 150, 500, 2000)
    },
}


def score(model, X, y):
    """CRPS of a regressor, log loss of a classifier."""
    if hasattr(model, "classes_"):
        return log_loss(y, model.predict_proba(X), labels=model.classes_)
    return open_predictive(model, X).whole().crps(y).mean()


def scores(kind, X, y, X_test, y_test):
    """Of every width."""
    models = [kind(sizes, random_state=0).fit(X, y) for sizes in WIDTHS]
    test = X_test[:1500], y_test[:1500]
    return np.array([score(model, *test) for model in models])


def report(name):
    """The table of one estimator."""
    kind = getattr(skbayesnn, name)
    of_tables = CLASSES if name.endswith("Classifier") else REGRESSION
    found = {}
    for title, load in of_tables.items():
        cut = load()
        # A table that has fewer rows than asked for is there once.
        whole = title.partition(",")[0], len(cut[1])
        if whole not in found:
            found[whole] = scores(kind, *cut)
    rows = [
        [name, n_rows, *_ratios(each / each.min()), f"{each.min():.4g}"]
        for (name, n_rows), each in found.items()
    ]
    n_rows = np.array([n for _, n in found])
    logs = np.array([np.log(each / each.min()) for each in found.values()])
    for low, high in itertools.pairwise(MEANS):
        among = (n_rows > low) & (n_rows <= high)
        if among.any():
            means = _ratios(np.exp(logs[among].mean(axis=0)))
            rows.append([f"mean of {among.sum()}", f"{low:g} to {high:g}", *means, ""])
    return table(["table", "rows", *map(str, WIDTHS), "best"], rows)


def _ratios(values):
    return [f"{value:.2f}" for value in values]


def main():
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    for name in options.kinds:
        print(f"\n{name}\n\n{report(name)}", flush=True)


if __name__ == "__main__":
    main()
