"""Do raw, recalibrated and conformal intervals have their nominal coverage?

The share of test rows inside the central intervals of 50, 80, 90 and 95 %, averaged
over the splits of the UCI sets, for ``MCDropoutRegressor()`` with its defaults and with
several wrappers; "error" is the mean over splits and coverages of |share - coverage|.
Then the mean width of the 90 % intervals and their interval score relative to the raw
ones, and log density (nats) and CRPS (units of y) on test rows.

The networks of all splits and folds are trained as members of one batched program. The
meta-estimators then look up the network that was fitted to their training rows.

With ``--classes``: the log loss of ``MCDropoutClassifier()`` and of scikit-learn's
``CalibratedClassifierCV`` around it, on generated sets of four classes.

    python benchmarks/recalibration.py
    python benchmarks/recalibration.py --classes
"""

import argparse
import time
import warnings

import joblib
import numpy as np
import torch
from common import data_folder, environment, fit_splits, table
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, train_test_split
from uci import load

from skbayesnn import (
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    crps,
    log_predictive_density,
)
from skbayesnn._meta.functions import open_predictive
from skbayesnn._predictive.mixin import RegressionPredictiveMixin
from skbayesnn.metrics import interval_coverage, interval_score, interval_width

SETS = ("yacht", "energy", "concrete", "wine-quality-red", "kin8nm", "power-plant")
COVERAGES = (0.5, 0.8, 0.9, 0.95)
N_FOLDS, CALIBRATION_SIZE = 5, 0.25


class Fitted(dict):
    """Fitted networks by hash of their training rows; clones share it."""

    def __deepcopy__(self, memo):
        return self


class LookedUp(RegressionPredictiveMixin, RegressorMixin, BaseEstimator):
    """A regressor whose ``fit`` looks up the network trained on the same rows."""

    def __init__(self, fitted):
        self.fitted = fitted

    def fit(self, X, y):
        self.network_ = self.fitted[joblib.hash((X, y))]
        return self

    def predict(self, X):
        return self.network_.predict(X)

    def predict_uncertainty(self, X, kind="total"):
        return self.network_.predict_uncertainty(X, kind)

    def _open_predictive(self, X):
        return open_predictive(self.network_, X)


def folds_of(n_rows: int, split: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds with equal numbers of training rows, so that they share one program."""
    folds = list(KFold(N_FOLDS, shuffle=True, random_state=split).split(range(n_rows)))
    shortest = min(len(train) for train, _ in folds)
    return [(train[:shortest], test) for train, test in folds]


def networks(X, y, trains) -> Fitted:
    """Fit a network to every set of training rows; sets of one size share a program."""
    by_size: dict[int, list] = {}
    for split, rows in trains:
        by_size.setdefault(len(rows), []).append((split, rows))
    fitted = Fitted()
    for group in by_size.values():
        estimators = [MCDropoutRegressor(random_state=split) for split, _ in group]
        rows = [rows for _, rows in group]
        for network, own in zip(fit_splits(estimators, X, y, rows), rows, strict=True):
            fitted[joblib.hash((X[own], y[own]))] = network
    return fitted


def models(fitted: Fitted, folds, split: int) -> dict:
    """The models to compare, by name."""
    base = LookedUp(fitted)
    return {
        "raw": base,
        "scale": CalibratedUncertaintyRegressor(base, method="scale", cv=folds),
        "isotonic": CalibratedUncertaintyRegressor(base, method="isotonic", cv=folds),
        "conformal split": ConformalRegressor(
            base, calibration_size=CALIBRATION_SIZE, random_state=split
        ),
        "conformal cv+": ConformalRegressor(base, method="cv+", cv=folds),
    }


def evaluate(name: str, n_splits: int | None) -> tuple[dict[str, np.ndarray], float]:
    """Scores of every method, (splits, scores), and the seconds of training."""
    X, y, train, test = load(name, n_splits)
    folds = [folds_of(len(rows), split) for split, rows in enumerate(train)]
    trains = []
    for split, rows in enumerate(train):
        # The split of ConformalRegressor: same function, sizes and random_state.
        proper, _ = train_test_split(
            np.arange(len(rows)), test_size=CALIBRATION_SIZE, random_state=split
        )
        parts = [np.arange(len(rows)), proper, *(part for part, _ in folds[split])]
        trains += [(split, rows[part]) for part in parts]
    start = time.perf_counter()
    fitted = networks(X, y, trains)
    seconds = time.perf_counter() - start
    numbers: dict[str, list] = {}
    for split, (rows, held_out) in enumerate(zip(train, test, strict=True)):
        for method, model in models(fitted, folds[split], split).items():
            model.fit(X[rows], y[rows])
            numbers.setdefault(method, []).append(
                scores(model, X[held_out], y[held_out])
            )
    return {method: np.array(values) for method, values in numbers.items()}, seconds


def scores(model, X, y) -> list[float]:
    """Coverages, then width, interval score, log density and CRPS."""
    if isinstance(model, LookedUp):
        model = model.network_
    interval = model.predict_interval(X, COVERAGES)
    shares = [interval_coverage(y, interval[:, i]) for i in range(len(COVERAGES))]
    ninety = interval[:, COVERAGES.index(0.9)]
    result = [*shares, interval_width(ninety), interval_score(y, ninety, 0.9)]
    if isinstance(model, ConformalRegressor):
        return [*result, np.nan, np.nan]
    return [
        *result,
        log_predictive_density(model, X, y).mean(),
        crps(model, X, y).mean(),
    ]


HEADER = [
    "set",
    "predictive",
    *(f"{coverage:.0%}" for coverage in COVERAGES),
    "error",
    "width",
    "interval score",
    "log density",
    "CRPS",
]


def lines(name: str, results: dict[str, np.ndarray]) -> list[list[str]]:
    """One line per method."""
    n = len(COVERAGES)
    raw = results["raw"].mean(0)
    rows = []
    for method, values in results.items():
        error = np.abs(values[:, :n] - COVERAGES).mean()
        mean = values.mean(0)
        density, score = mean[n + 2], mean[n + 3]
        rows.append(
            [
                name,
                method,
                *(f"{share:.1%}" for share in mean[:n]),
                f"{error:.3f}",
                f"{mean[n] / raw[n]:.2f}",
                f"{mean[n + 1] / raw[n + 1]:.3f}",
                "" if np.isnan(density) else f"{density:.3f}",
                "" if np.isnan(score) else f"{score:.4g}",
            ]
        )
    return rows


N_CLASS_SETS, CLASS_ROWS, N_TEST = 10, (150, 450, 2000), 4000
CLASS_METHODS = ("isotonic", "sigmoid", "temperature")


def classes() -> list[list[str]]:
    """Mean log loss by training rows, with and without recalibration."""
    rows = []
    for n_train in CLASS_ROWS:
        losses = []
        for seed in range(N_CLASS_SETS):
            X, y = make_classification(
                n_train + N_TEST, 12, n_informative=6, n_classes=4, random_state=seed
            )
            network = MCDropoutClassifier(random_state=seed)
            models = [network] + [
                CalibratedClassifierCV(network, method=method, cv=3)
                for method in CLASS_METHODS
            ]
            losses.append(
                [
                    log_loss(
                        y[n_train:],
                        model.fit(X[:n_train], y[:n_train]).predict_proba(X[n_train:]),
                    )
                    for model in models
                ]
            )
        means = [f"{loss:.3f}" for loss in np.mean(losses, axis=0)]
        rows.append([f"{n_train:,}", *means])
    return rows


def main() -> None:
    """Print the table of every set, and the mean error of every method."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=lambda text: text.split(","), default=SETS)
    parser.add_argument("--splits", type=int, help="number of splits; default: all")
    parser.add_argument("--classes", action="store_true", help="only classification")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(environment())
    if options.classes:
        print(table(["training rows", "network", *CLASS_METHODS], classes()))
        return
    data_folder("uci")
    rows, errors = [], {}
    for name in options.sets:
        results, seconds = evaluate(name, options.splits)
        n_splits = len(results["raw"])
        print(f"{name}: {n_splits} splits, training {seconds:.0f} s", flush=True)
        rows += lines(name, results)
        for method, values in results.items():
            gap = np.abs(values[:, : len(COVERAGES)] - COVERAGES).mean()
            errors.setdefault(method, []).append(gap)
    print(table(HEADER, rows))
    means = [[method, f"{np.mean(gaps):.3f}"] for method, gaps in errors.items()]
    print(table(["mean over sets", "error"], means))


if __name__ == "__main__":
    main()
