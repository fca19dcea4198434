"""Which prior length scale is safe? Rules for MC dropout beside each other.

Printed is the CRPS on rows kept apart as a ratio to that of ``"fan_in"``, the root of
each layer's number of inputs (mean of three made-up tables, or parts of training rows
as in study.py). Rules: the default's; at most so much, and at most the root of N over
two or three; one number for all layers; half of the root. For classes, of few rows, the
log loss as a ratio to that of ``LogisticRegressionCV``, one number or one per layer.

    python benchmarks/length_scale.py
"""

import warnings

import numpy as np
from common import command_line, environment, table
from small_tables import (
    CLASSES,
    curved,
    diabetes,
    linear,
    logistic,
    losses,
    parted,
)
from study import REGRESSION, RESOURCES

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._meta.functions import open_predictive
from skbayesnn._stacking.candidates import CandidateSpec, Rows, candidates_of, refitted

HIDDEN = (50, 50)
ROWS = (20, 30, 60, 100, 150, 300)
LARGE = (
    "yacht",
    "energy",
    "concrete",
    "wine-quality-red",
    "kin8nm",
    "power-plant",
    "protein-tertiary-structure",
    "synthetic-1000",
)
# Of classes: numbers, one per layer, and the default.
SCALES = (0.3, 0.5, 1.0, 2.0, 3.0, (2.0, 0.5, 0.3), "auto")


def wave(n_rows, random):
    """One column."""
    X = random.uniform(-2, 2, size=(n_rows + 2000, 1))
    return X, np.sin(2 * X[:, 0]) + 0.4 * random.normal(size=len(X))


def rules(n_rows, n_columns):
    """Length scales of the layers, by name."""
    fan_in = np.sqrt(np.array([n_columns, *HIDDEN], dtype=float))
    root = np.sqrt(n_rows)
    return {
        "fan_in": fan_in,
        "rule": np.minimum(fan_in, max(min(4, root / 2), root / 3)),
        "<= 4, root / 2": np.minimum(fan_in, min(4, root / 2)),
        "<= 3, root / 2": np.minimum(fan_in, min(3, root / 2)),
        "<= 4, root / 3": np.minimum(fan_in, min(4, root / 3)),
        "all 4, root / 2": np.full(3, min(4, root / 2)),
        "all 1": np.ones(3),
        "half": fan_in / 2,
    }


def scores(X, y, X_test, y_test):
    """CRPS of every rule, all networks in one program."""
    # The same numbers twice are no two candidates.
    found = rules(*X.shape)
    scales = [(1 + 1e-7 * i) * scale for i, scale in enumerate(found.values())]
    network = MCDropoutRegressor(HIDDEN, random_state=0, n_draws=50)
    pool = [CandidateSpec("network", network, {"length_scale": scales})]
    candidates, fitted = candidates_of(pool), {}
    settings = {one.name: {} for one in candidates}
    for _ in refitted(candidates, settings, Rows(X, y, None), fitted, RESOURCES):
        pass
    X_test, y_test = X_test[:1000], y_test[:1000]
    return {
        rule: open_predictive(fitted[one.name, 0], X_test).whole().crps(y_test).mean()
        for rule, one in zip(found, candidates, strict=True)
    }


def of_numbers(n_seeds):
    """The table of regressions."""
    found = {}
    for make in (linear, curved, diabetes, wave):
        for n_rows in ROWS:
            of_seeds = []
            for seed in range(n_seeds):
                X, y = make(n_rows, np.random.default_rng(seed))
                cut = X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]
                of_seeds.append(scores(*cut))
            found[f"{make.__name__}, {n_rows}"] = {
                rule: np.mean([one[rule] for one in of_seeds]) for rule in of_seeds[0]
            }
    for name in LARGE:
        found[name] = scores(*REGRESSION[name]())
    names = list(next(iter(found.values())))
    rows = [
        [name, *(f"{one[rule] / one['fan_in']:.3f}" for rule in names)]
        for name, one in found.items()
    ]
    mean = [
        np.exp(np.mean([np.log(one[rule] / one["fan_in"]) for one in found.values()]))
        for rule in names
    ]
    rows.append(["geometric mean", *(f"{value:.3f}" for value in mean)])
    return table(["table", *names], rows)


def of_classes(n_seeds):
    """The table of classes."""
    names = [str(scale) for scale in SCALES]
    found = {}
    for make in CLASSES:
        for n_rows in ROWS:
            cuts = [parted(make, n_rows, seed) for seed in range(n_seeds)]
            if None not in cuts:
                ratios = [_ratios_to_logistic(cut) for cut in cuts]
                found[f"{make.__name__}, {n_rows}"] = np.mean(ratios, axis=0)
    every = np.array(list(found.values()))
    found["mean"] = every.mean(0)
    found["geometric mean"] = np.exp(np.log(every).mean(0))
    rows = [[name, *(f"{one:.2f}" for one in each)] for name, each in found.items()]
    return table(["table", *names], rows)


def _ratios_to_logistic(cut):
    ours = [MCDropoutClassifier(length_scale=scale, random_state=0) for scale in SCALES]
    found = losses([logistic(), *ours], *cut)
    return np.array(found[1:]) / found[0]


def main():
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=("numbers", "classes"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    for kind, report in (("numbers", of_numbers), ("classes", of_classes)):
        if kind in options.kinds:
            print(f"\n{report(options.seeds)}", flush=True)


if __name__ == "__main__":
    main()
