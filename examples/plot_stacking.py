"""How well do predictions and their intervals match runs that were left out?
==========================================================================

In the towing tank of Delft 22 model yachts were towed at 14 speeds each [Gerritsma,
Onnink & Versluis 1981; UCI "Yacht Hydrodynamics", examples/data]. A quarter of the runs
is left out; their resistance is predicted from the shape and the speed. The default
stack is compared with ridge regression, gradient boosting and a Gaussian process of
scikit-learn. Ridge and boosting have no predictive distribution: they get a normal one,
with the standard deviation of their residuals in cross-validation.

The stack has a third of the RMSE and of the CRPS of the next best model, and its
intervals are too wide rather than too narrow. It takes nearly all of the time.

Takes less than a minute. Prints the scores with seconds and writes
examples/output/stacking.png.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from _common import ROOT, save, size
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import BayesianStackingRegressor
from skbayesnn.metrics import mixture_crps, mixture_log_density

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"
EPOCHS = size("auto", short=2)


def main():
    """Fit, compare on the runs that were left out, and draw one yacht."""
    file = ROOT / "examples" / "data" / "yacht.csv"
    table = np.loadtxt(file, delimiter=",", skiprows=1)
    X, y = table[:, :-1], table[:, -1]
    train, test = train_test_split(np.arange(len(y)), random_state=0)
    kernel = RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    models = {
        "ridge": make_pipeline(StandardScaler(), RidgeCV()),
        "gradient boosting": HistGradientBoostingRegressor(random_state=0),
        "Gaussian process": make_pipeline(StandardScaler(), process),
        "BayesianStacking": BayesianStackingRegressor(
            size("auto", short="fast"), max_iter=EPOCHS, random_state=0
        ),
    }
    print(f"Resistance of yachts: {len(train)} training runs, {len(test)} test runs")
    print(f"\n{'':<18}{'RMSE':>7}{'CRPS':>7}{'log density':>13}", end="")
    print(f"{'90 % covers':>13}{'seconds':>9}")
    crps, bands = {}, {}
    for name, model in models.items():
        start = time.perf_counter()
        predict = fitted(model, X[train], y[train])
        of_test = predict(X[test], y[test])
        seconds = time.perf_counter() - start
        lower, upper = of_test["interval"].T
        rmse = np.sqrt(np.mean((of_test["mean"] - y[test]) ** 2))
        covers = np.mean((lower <= y[test]) & (y[test] <= upper))
        print(f"{name:<18}{rmse:7.2f}{of_test['CRPS']:7.2f}", end="")
        print(f"{of_test['log density']:13.2f}{covers:13.0%}{seconds:9.1f}", flush=True)
        crps[name] = of_test["CRPS"]
        bands[name] = predict(one_yacht(X)[0])
    print("\nThe stack's own estimate, from the training runs alone:")
    print(models["BayesianStacking"].summary_)
    draw(bands, crps, X, y, np.isin(np.arange(len(y)), test))


def fitted(model, X, y):
    """Fit a model; return a function that predicts means, intervals and scores."""
    if isinstance(model, BayesianStackingRegressor):
        return stack_predictions(model.fit(X, y))
    std = None
    if not hasattr(model[-1] if hasattr(model, "steps") else model, "kernel"):
        std = np.std(y - cross_val_predict(model, X, y, cv=5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the Gaussian process
        model.fit(X, y)
    return normal_predictions(model, std)


def stack_predictions(model):
    """Predictions of a stack."""

    def predict(X, y=None):
        results = {"mean": model.predict(X), "interval": model.predict_interval(X, 0.9)}
        if y is not None:
            results["CRPS"] = model.crps(X, y).mean()
            results["log density"] = model.log_predictive_density(X, y).mean()
        return results

    return predict


def normal_predictions(model, std):
    """Predictions of a model with a normal distribution.

    std : of all rows; None if the model has a standard deviation for each row
    """

    def predict(X, y=None):
        if std is None:
            mean, stds = model.predict(X, return_std=True)
        else:
            mean, stds = model.predict(X), np.full(len(X), std)
        interval = np.stack(norm.interval(0.9, mean, stds), axis=1)
        results = {"mean": mean, "interval": interval}
        if y is not None:
            mixture = mean[None], stds[None] ** 2  # of one component
            results["CRPS"] = mixture_crps(y, *mixture)
            results["log density"] = mixture_log_density(y, *mixture)
        return results

    return predict


def one_yacht(X):
    """Rows of one hull at 200 speeds, these speeds, and the rows of its runs."""
    runs = np.arange(14 * 16, 14 * 17)
    speeds = np.linspace(0.25, 0.45, 200)
    rows = np.repeat(X[runs[:1]], len(speeds), axis=0)
    rows[:, -1] = speeds
    return rows, speeds, runs


def draw(bands, crps, X, y, test):
    """The resistance of one yacht against its speed, and the CRPS of all models."""
    _, speeds, runs = one_yacht(X)
    figure, axes = plt.subplots(
        1, 3, figsize=(13, 4.2), width_ratios=[1, 1, 0.7], layout="constrained"
    )
    colors = {"gradient boosting": GREY, "BayesianStacking": BLUE}
    for panel, (name, color) in zip(axes, colors.items(), strict=False):
        band = bands[name]
        panel.fill_between(speeds, *band["interval"].T, color=color, alpha=0.25, lw=0)
        panel.plot(speeds, band["mean"], color=color, label="prediction, 90 % interval")
        for rows, marker, label in (
            (runs[~test[runs]], ".", "training run"),
            (runs[test[runs]], "x", "run that was left out"),
        ):
            panel.plot(X[rows, -1], y[rows], marker, color=ORANGE, label=label)
        panel.set(
            title=f"{name}, one yacht",
            xlabel="speed (Froude number)",
            xlim=(0.245, 0.455),
            ylim=(-8, 60),
        )
        panel.legend(loc="upper left", frameon=False)
    axes[0].set_ylabel("resistance per unit of weight")
    colors = [BLUE if name == "BayesianStacking" else GREY for name in crps]
    bars = axes[2].barh(list(crps), list(crps.values()), color=colors)
    axes[2].bar_label(bars, fmt="%.2f", padding=3)
    axes[2].set(title="CRPS of the test runs", xticks=[], xlabel="smaller is better")
    axes[2].margins(x=0.2)
    save(figure, "stacking.png")


if __name__ == "__main__":
    main()
