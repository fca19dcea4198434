"""Do the intervals have their nominal coverage, before and after recalibration?
=============================================================================

The noise of these data is skewed and grows with the first feature. The network is given
a precision that is much too large, `tau = 100 / y.var()`: its intervals are too narrow.
On out-of-fold training rows, `CalibratedUncertaintyRegressor` estimates one factor for
the spread (`"scale"`) or a map of all levels (`"isotonic"`), and `ConformalRegressor`
estimates how many standard deviations an interval needs.

Top: nominal and observed coverage of the central intervals on test rows, and the
histogram of F(y), which is flat if the predictive distribution is right. One factor
cannot repair a wrong shape: the most likely factor follows the tails, and the central
intervals become too wide. The map repairs both. Bottom: the intervals of 80 test rows,
sorted by their prediction; crosses are outside.

Writes examples/output/recalibration.png and prints coverages, log density and CRPS.
"""

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size

from skbayesnn import (
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutRegressor,
    crps,
    log_predictive_density,
    predictive_cdf,
)
from skbayesnn.metrics import interval_coverage, interval_width
from skbayesnn.plotting import CalibrationCurveDisplay, PredictionIntervalDisplay

# Colours that colour-blind people can distinguish (Okabe & Ito).
COLORS = {"raw": "#D55E00", "scale": "#0072B2", "isotonic": "#009E73"}
ROWS, MAX_ITER = size(1000, short=200), size("auto", short=10)
COVERAGES = (0.5, 0.8, 0.9, 0.95)


def data(n_rows: int, random: np.random.Generator):
    """A smooth function of three features with skewed noise."""
    X = random.uniform(-2, 2, (n_rows, 3))
    noise = random.gamma(2.0, 1.0, n_rows) - 2.0
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.15 * np.exp(0.5 * X[:, 0]) * noise


def main() -> None:
    """Fit, print and plot."""
    random = np.random.default_rng(0)
    (X, y), (X_test, y_test) = data(ROWS, random), data(ROWS, random)
    network = MCDropoutRegressor(tau=100 / y.var(), max_iter=MAX_ITER, random_state=0)
    models = {
        "raw": network,
        "scale": CalibratedUncertaintyRegressor(network, method="scale"),
        "isotonic": CalibratedUncertaintyRegressor(network, method="isotonic"),
        "conformal cv+": ConformalRegressor(network, method="cv+"),
    }
    header = "".join(f"{coverage:>8.0%}" for coverage in COVERAGES)
    print(f"test rows inside{header}   width (90 %)   log density    CRPS")
    for name, model in models.items():
        interval = model.fit(X, y).predict_interval(X_test, COVERAGES)
        shares = [interval_coverage(y_test, interval[:, i]) for i in range(4)]
        line = f"{name:<16}" + "".join(f"{share:8.1%}" for share in shares)
        line += f"{interval_width(interval[:, 2]):15.2f}"
        if name in COLORS:
            line += f"{log_predictive_density(model, X_test, y_test).mean():14.3f}"
            line += f"{crps(model, X_test, y_test).mean():8.4f}"
        print(line)
    plot(models, X_test, y_test)


def plot(models, X, y) -> None:
    """Calibration curves, histograms of F(y), and intervals."""
    fig = plt.figure(figsize=(10, 9), layout="constrained")
    grid = fig.add_gridspec(2, 6, height_ratios=[1, 1])
    curves, histogram = fig.add_subplot(grid[0, :3]), fig.add_subplot(grid[0, 3:])
    for i, (name, color) in enumerate(COLORS.items()):
        CalibrationCurveDisplay.from_estimator(
            models[name], X, y, name=name, ax=curves, color=color
        )
        histogram.hist(
            predictive_cdf(models[name], X, y),
            bins=np.linspace(0, 1, 21),
            density=True,
            histtype="step",
            color=color,
            lw=2,
            ls=["-", "--", "-"][i],
            label=name,
        )
    curves.set_title("observed coverage on test rows", loc="left")
    histogram.axhline(1, color="#666666", lw=0.8)
    histogram.set(xlabel="F(y)", ylabel="density of test rows", ylim=(0, None))
    histogram.set_title("PIT histogram: flat if calibrated", loc="left")
    histogram.legend()
    some = slice(0, 80)
    below = {name: models[name] for name in ("raw", "isotonic", "conformal cv+")}
    first = None
    for i, (name, model) in enumerate(below.items()):
        first = fig.add_subplot(grid[1, 2 * i : 2 * i + 2], sharey=first)
        PredictionIntervalDisplay.from_estimator(
            model, X[some], y[some], coverage=0.9, ax=first
        )
        first.get_legend().remove()
        first.set_title(f"{name}: 90 % intervals", loc="left")
    low, high = y[some].min(), y[some].max()
    first.set_ylim(low - 0.5, high + 0.5)
    save(fig, "recalibration.png")


if __name__ == "__main__":
    main()
