"""A regression with intervals, and a digit that is turned until it is unreadable.
===============================================================================

Uses data of scikit-learn. Writes two pictures to examples/output/.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from scipy.ndimage import rotate
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer

from skbayesnn import (
    MCDropoutClassifier,
    MCDropoutRegressor,
    log_predictive_density,
    predict_interval,
    predict_uncertainty,
)
from skbayesnn.metrics import interval_coverage, interval_width
from skbayesnn.scoring import log_density_scorer

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
OF_CLASS = [BLUE, "#E69F00", GREEN, "#CC79A7", ORANGE, "#56B4E9", "#F0E442", "#000000"]
SEARCH_EPOCHS, LEARNED_EPOCHS = size(100, short=5), size("auto", short=5)


def main():
    """Both halves, with their tables and pictures."""
    regression()
    digits()


def regression():
    """Diabetes: tau by grid search against tau learned with the weights."""
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=0
    )
    network = MCDropoutRegressor(
        n_estimators=5, max_iter=LEARNED_EPOCHS, random_state=0
    )
    pipeline = make_pipeline(PowerTransformer(), network)
    # tau is 1 / noise variance in y's units: noise that is all of y's variance, half
    # of it, and so on.
    taus = [k / y_train.var() for k in (1, 2, 4)]
    search = GridSearchCV(
        pipeline,
        {
            "mcdropoutregressor__tau": taus,
            "mcdropoutregressor__max_iter": [SEARCH_EPOCHS],
        },
        scoring=log_density_scorer,
        cv=3,
        verbose=1,
    )
    models = {"tau by grid search": search, "tau='auto' (learned)": pipeline}

    print("Diabetes: 331 training rows, 111 test rows, 10 features")
    rows = []
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(X_train, y_train)
        seconds = time.perf_counter() - start
        interval = predict_interval(model, X_test, coverage=0.9)
        r2 = model.predict(X_test)
        r2 = 1 - ((y_test - r2) ** 2).mean() / y_test.var()
        density = log_predictive_density(model, X_test, y_test).mean()
        rows.append(
            f"{name:<22}{r2:>6.2f}{density:>13.2f}"
            f"{interval_coverage(y_test, interval):>14.0%}"
            f"{interval_width(interval):>8.0f}{seconds:>9.1f}"
        )
    print(f"\n{'':<22}{'R^2':>6}{'log density':>13}{'90 % covers':>14}", end="")
    print(f"{'width':>8}{'seconds':>9}")
    print("\n".join(rows))
    plot_intervals(search, X_test, y_test)


def plot_intervals(model, X_test, y_test):
    """Test rows in the order of their prediction, with interval and target."""
    mean = model.predict(X_test)
    order = np.argsort(mean)
    lower, upper = predict_interval(model, X_test, coverage=0.9)[order].T
    parts = predict_uncertainty(model, X_test, kind="all")
    position = np.arange(len(order))

    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(8, 6), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    top.fill_between(position, lower, upper, color=BLUE, alpha=0.2, lw=0)
    top.plot(position, mean[order], color=BLUE, label="prediction, 90 % interval")
    target = y_test[order]
    inside = (lower <= target) & (target <= upper)
    top.plot(position[inside], target[inside], ".", color=GREY, label="target inside")
    top.plot(position[~inside], target[~inside], "x", color=ORANGE, label="outside")
    top.set(ylabel="disease progression", title="Predictions with their intervals")
    top.legend(loc="upper left", frameon=False)
    bottom.plot(position, parts["aleatoric"][order], color=GREEN, label="aleatoric")
    bottom.plot(position, parts["epistemic"][order], color=ORANGE, label="epistemic")
    bottom.set(ylabel="std", xlabel="test rows, by prediction", ylim=(0, None))
    bottom.legend(loc="upper left", frameon=False, ncols=2)
    save(figure, "regression_intervals.png")


def digits():
    """Digits: accuracy, and the predictions for a digit that is turned."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        brightness(X), y, test_size=0.25, random_state=0
    )
    # One scale for all pixels: pixels that are dark in all training images would
    # otherwise be amplified.
    model = MCDropoutClassifier(
        (100, 100),
        dropout=0.2,
        max_iter=size(60, short=5),
        standardize=False,
        verbose=True,
        random_state=0,
    )
    print("\nDigits: 1,347 training images of 8 x 8, 450 test images")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "3 columns of X are constant")
        model.fit(X_train, y_train)
    wrong = model.predict(X_test) != y_test
    entropy = model.predict_uncertainty(X_test)
    right, doubt = entropy[~wrong].mean(), entropy[wrong].mean()
    print(
        f"accuracy {1 - wrong.mean():.3f}; predictive entropy {right:.2f} nats where "
        f"right, {doubt:.2f} where wrong"
    )
    image = X_test[(y_test == 3) & ~wrong][1].reshape(8, 8)
    plot_turning(model, image, label=3)


def brightness(X):
    """Scale pixels of 0 to 16 to order one."""
    return X / 8 - 0.6


def plot_turning(model, image, label):
    """Class probabilities of the posterior draws, and entropy, against the angle."""
    angles = np.arange(0, 181, 15)
    turned = np.stack(
        [
            rotate(image, angle, reshape=False, order=1, cval=image.min())
            for angle in angles
        ]
    )
    rows = turned.reshape(len(angles), -1)
    draws = model.sample_f(rows, n_samples=200)
    shown = np.union1d(label, draws.mean(-1).argmax(1))
    measures = model.predict_uncertainty(rows, ["entropy", "mutual_information"])

    print(f"\na {label}, turned:  angle  most likely  entropy (nats)")
    for angle, probability, value in zip(
        angles[::2], draws.mean(-1)[::2], measures["entropy"][::2], strict=True
    ):
        print(f"{angle:>23}{probability.argmax():>13}{value:>16.2f}")

    figure = plt.figure(figsize=(9, 6.5), layout="constrained")
    grid = figure.add_gridspec(3, len(angles), height_ratios=[1, 2.4, 1.6])
    for i, (angle, picture) in enumerate(zip(angles, turned, strict=True)):
        axes = figure.add_subplot(grid[0, i])
        axes.imshow(picture, cmap="gray_r", vmin=rows.min(), vmax=rows.max())
        axes.set(xticks=[], yticks=[], title=f"{angle}\N{DEGREE SIGN}")
    middle = figure.add_subplot(grid[1, :])
    jitter = np.random.default_rng(0).uniform(-2, 2, draws.shape[-1])
    for color, class_ in zip(OF_CLASS, shown, strict=False):
        for angle, probability in zip(angles, draws[:, class_], strict=True):
            middle.plot(angle + jitter, probability, ".", color=color, ms=2, alpha=0.35)
        middle.plot(angles, draws[:, class_].mean(-1), color=color, label=f"{class_}")
    middle.set(ylabel="class probability\nof each draw", xticks=angles[::2])
    aside = {"frameon": False, "loc": "center left", "bbox_to_anchor": (1, 0.5)}
    middle.legend(title="class", **aside)
    bottom = figure.add_subplot(grid[2, :], sharex=middle)
    for (name, values), color in zip(measures.items(), (BLUE, ORANGE), strict=True):
        bottom.plot(angles, values, color=color, label=name.replace("_", " "))
    bottom.set(xlabel="turned by (degrees)", ylabel="nats", ylim=(0, None))
    bottom.legend(**aside)
    save(figure, "turning_digit.png")


if __name__ == "__main__":
    main()
