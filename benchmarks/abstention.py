"""Does ``Abstainer`` keep its target error on new rows?

Generated sets: four classes of 12 columns, and a regression whose noise grows along a
column. For each set an ``Abstainer`` with ``cv=3`` selects a threshold, and 20,000 new
rows are predicted. Without a bound (``confidence=None``) the threshold is the largest
at which the error of the held-out rows meets the target.

    python benchmarks/abstention.py
"""

import argparse
import warnings

import numpy as np
from common import environment
from sklearn.datasets import make_classification

from skbayesnn import Abstainer, MCDropoutClassifier, MCDropoutRegressor

NEW_ROWS = 20_000
CLASS_TARGET, REGRESSION_TARGET = 0.08, 1.0


def classes(n_rows, seed):
    """Rows of four classes, of which a network predicts about 85 %."""
    return make_classification(
        n_rows,
        12,
        n_informative=6,
        n_classes=4,
        n_clusters_per_class=1,
        class_sep=1.3,
        flip_y=0.03,
        random_state=seed,
    )


def noisy(n_rows, seed):
    """Rows whose noise has standard deviations of .14 to 2.7."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n_rows, 5))
    noise = np.exp(1.5 * X[:, 1] - 0.5) * random.normal(size=n_rows)
    return X, 2 * np.sin(2 * X[:, 0]) + noise


def main() -> None:
    """Print errors and shares of accepted rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=25)
    n_sets = parser.parse_args().sets
    warnings.simplefilter("ignore")
    print(environment())
    print("task        rows  confidence  above target  none accepted  error  accepted")
    for n_rows in (450, 1800):
        for task, make, target in (
            ("classes", classes, CLASS_TARGET),
            ("regression", noisy, REGRESSION_TARGET),
        ):
            for confidence in (None, 0.9):
                reports = []
                for seed in range(n_sets):
                    X, y = make(n_rows + NEW_ROWS, seed)
                    parameters = {"max_iter": 60, "random_state": seed}
                    network = (
                        MCDropoutClassifier((30,), **parameters)
                        if task == "classes"
                        else MCDropoutRegressor(
                            (30,), likelihood="heteroscedastic", **parameters
                        )
                    )
                    model = Abstainer(
                        network, target_error=target, confidence=confidence, cv=3
                    ).fit(X[:n_rows], y[:n_rows])
                    reports.append(model.report(X[n_rows:], y[n_rows:]))
                errors = np.array([r["error"] for r in reports])
                coverage = np.mean([r["coverage"] for r in reports])
                print(
                    f"{task:<10} {n_rows:5d}  {confidence!s:>10}  "
                    f"{(errors > target).sum():6d} of {n_sets}  "
                    f"{np.isnan(errors).sum():13d}  {np.nanmean(errors):5.3f}  "
                    f"{coverage:8.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
