"""What do models predict for concrete older than any in training?
===============================================================

Strength of 1,030 samples of concrete by mix and age [Yeh 1998]. The models are trained
on samples of up to four weeks. The picture shows one mix that was measured up to nine
months: the predictive mean, the epistemic band (dark, 90 %) and the whole predictive
interval with noise (light). The table has the coverage of the 90 % intervals on all
older samples, and the rank correlation of the error with the epistemic standard
deviation.

Nothing in the data determines what happens after four weeks, so an honest band must
widen. The band of MC dropout widens too little: it covers 72 % of the older samples.
The networks of the stack continue along different straight lines: its band covers
nearly all samples and is wide where its mean is wrong (correlation .8). The anchored
ensemble stays near its last value, with the widest band. The Gaussian process returns
to the mean of y, with the band of its prior. A wide band is not a forecast: to predict
old concrete, the logarithm of the age as a column helps more than any posterior.

Reads ``uci/concrete`` of the data folder, writes examples/output/extrapolation.png.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from _common import DATA, save, size
from scipy.stats import norm, spearmanr
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    MCDropoutRegressor,
)

AGE, OLDEST = 7, 28
# Kilograms per cubic metre of cement, slag, ash, water, plasticiser, gravel and sand.
MIX = (525, 0, 0, 189, 0, 1125, 613)
COVERAGE = 0.9
MAX_ITER = size("auto", short=5)
BLUE, ORANGE = "#0072B2", "#D55E00"

MODELS = {
    "MC dropout": MCDropoutRegressor(max_iter=MAX_ITER, random_state=0),
    "stack": BayesianStackingRegressor(
        size("auto", short="fast"), max_iter=MAX_ITER, random_state=0
    ),
    "anchored ensemble": AnchoredEnsembleRegressor(max_iter=MAX_ITER, random_state=0),
}


def main():
    """Fit to young concrete, print, and draw one mix."""
    file = DATA / "uci" / "concrete" / "concrete.npz"
    if not file.is_file():
        print(f"Skipped: this example reads {file.name}, which is missing. Set the")
        print("environment variable SKBAYESNN_DATA to the folder that holds uci/.")
        sys.exit(0)
    with np.load(file) as arrays:
        X, y = arrays["X"].astype(float), arrays["y"].ravel()
    young = X[:, AGE] <= OLDEST
    ages = np.linspace(1, 365, size(200, short=20))
    line = np.column_stack([np.tile(MIX, (len(ages), 1)), ages])
    print(f"{young.sum()} samples of up to {OLDEST} days, {(~young).sum()} older ones")
    print(f"{'':20}in 90 %  correlation of error and epistemic std")
    figure, axes = plt.subplots(1, 4, figsize=(14, 4), sharey=True)
    models = {name: of_network(model) for name, model in MODELS.items()}
    for (name, fit), ax in zip(
        (models | {"Gaussian process": gaussian_process}).items(), axes, strict=True
    ):
        predict = fit(X[young][:: size(1, short=5)], y[young][:: size(1, short=5)])
        mean, epistemic, total = predict(X[~young])
        half = norm.ppf(0.5 + COVERAGE / 2)
        error = np.abs(y[~young] - mean)
        covered = (error <= half * total).mean()
        print(f"{name:20}{covered:6.0%}{spearmanr(error, epistemic).statistic:10.2f}")
        draw(ax, ages, *predict(line), half)
        ax.set(title=f"{name}\n{covered:.0%} of older samples in 90 %", xlabel="days")
        same = (np.abs(X[:, :AGE] - MIX) < 1e-6).all(1)
        for rows, colour, label in (
            (same & young, "black", "seen"),
            (same & ~young, ORANGE, "not seen"),
        ):
            ax.plot(X[rows, AGE], y[rows], "o", color=colour, label=label)
        ax.axvline(OLDEST, color="grey", linewidth=0.8, linestyle=":")
    axes[0].set(ylabel="strength, MPa", ylim=(-20, 160))
    axes[0].legend(loc="lower left")
    figure.tight_layout()
    save(figure, "extrapolation.png")


def of_network(model):
    """Return a fit function; it returns mean, epistemic and total std of rows."""

    def fit(X, y):
        fitted = model.fit(X, y)

        def predict(rows):
            parts = fitted.predict_uncertainty(rows, ["epistemic", "total"])
            return fitted.predict(rows), parts["epistemic"], parts["total"]

        return predict

    return fit


def gaussian_process(X, y):
    """Fit a Gaussian process; epistemic is its total std without the noise."""
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    model = make_pipeline(StandardScaler(), process).fit(X, y)
    noise = np.sqrt(model[-1].kernel_.k2.noise_level) * y.std()

    def predict(rows):
        mean, total = model.predict(rows, return_std=True)
        return mean, np.sqrt(np.maximum(total**2 - noise**2, 0)), total

    return predict


def draw(ax, ages, mean, epistemic, total, half):
    """The mean with both bands."""
    for std, alpha in ((total, 0.2), (epistemic, 0.35)):
        ax.fill_between(
            ages, mean - half * std, mean + half * std, color=BLUE, alpha=alpha, lw=0
        )
    ax.plot(ages, mean, color=BLUE)


if __name__ == "__main__":
    main()
