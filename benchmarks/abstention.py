"""Does ``Abstainer`` keep its target error on new rows?

bounds
    Simulated errors of a regressor, without any fit: the uncertainty u is log-normal,
    and the error is u times noise of five kinds. An error is wrong if it is larger than
    a tolerance that 10 % of the errors exceed. The target is 1.025 times the share of
    wrong rows among those with u <= 1.2, so that the right threshold is near 1.2.
    "Above target" is the share of simulations in which the true share of wrong rows
    exceeds the target: it must be at most 10 %.
fits
    Generated sets: four classes of 12 columns, and a regression whose noise grows along
    a column. For each set an ``Abstainer`` with ``cv=3`` selects a threshold, and
    20,000 new rows are predicted. Without a bound (``confidence=None``) the threshold
    is the largest at which the error of the held-out rows meets the target.

    python benchmarks/abstention.py
    python benchmarks/abstention.py --parts bounds
"""

import argparse
import warnings

import numpy as np
from common import environment, table
from sklearn.datasets import make_classification

from skbayesnn import Abstainer, MCDropoutClassifier, MCDropoutRegressor

NEW_ROWS = 20_000
CLASS_TARGET, REGRESSION_TARGET, TOLERANCE = 0.08, 0.1, 1.5
NOISES = {
    "normal": lambda random, n: random.normal(size=n),
    "t, 5 degrees": lambda random, n: random.standard_t(5, n),
    "t, 3 degrees": lambda random, n: random.standard_t(3, n),
    "log-normal": lambda random, n: random.lognormal(size=n),
    "rare and large": lambda random, n: (
        random.normal(size=n) * np.where(random.random(n) < 0.005, 1000, 1)
    ),
}
LARGE = 2_000_000
PARTS = ["bounds", "fits"]


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


def bounds(n_simulations: int) -> None:
    """Print how often the true error of accepted rows exceeds the target."""
    rows = []
    for name, noise in NOISES.items():
        random = np.random.default_rng(0)
        u = np.sort(random.lognormal(0, 0.3, LARGE))
        size = np.abs(u * noise(random, LARGE))
        tolerance = np.quantile(size, 0.9)
        risk = np.cumsum(size > tolerance) / np.arange(1, LARGE + 1)
        target = 1.025 * risk[np.searchsorted(u, 1.2)]
        model = Abstainer(
            MCDropoutRegressor(), tolerance=tolerance, target_error=target
        )
        for n_rows in (300, 1_500):
            true = []
            for seed in range(n_simulations):
                random = np.random.default_rng([1, seed])
                some_u = random.lognormal(0, 0.3, n_rows)
                wrong = np.abs(some_u * noise(random, n_rows)) > tolerance
                found = model._select_threshold(
                    wrong.astype(float), some_u, np.ones(n_rows)
                )
                n_accepted = np.searchsorted(u, found["threshold_"], side="right")
                true.append(risk[n_accepted - 1] if n_accepted else np.nan)
            rows.append(
                [
                    name,
                    n_rows,
                    f"{np.mean(np.array(true) > target):.3f}",
                    f"{np.isnan(true).mean():.3f}",
                ]
            )
    print(table(["noise", "rows", "above target", "none accepted"], rows), flush=True)


def main() -> None:
    """Print errors and shares of accepted rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS)
    parser.add_argument("--sets", type=int, default=25)
    parser.add_argument("--simulations", type=int, default=1_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    if "bounds" in options.parts:
        bounds(options.simulations)
    if "fits" in options.parts:
        fits(options.sets)


def fits(n_sets: int) -> None:
    """Print errors of new rows after a fit."""
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
                        network,
                        target_error=target,
                        tolerance=None if task == "classes" else TOLERANCE,
                        confidence=confidence,
                        cv=3,
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
