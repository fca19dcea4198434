"""Nothing chosen, nothing tuned: the stacked networks beside ridge and boosting.

Diabetes, which ships with scikit-learn. Ridge and boosting say no noise of their own:
they get that of their out-of-fold residuals. Writes one picture to examples/output/.
"""

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import BayesianStackingRegressor
from skbayesnn.metrics import interval_coverage, mixture_crps, mixture_log_density
from skbayesnn.plotting import PredictionIntervalDisplay

BLUE, GREY = "#0072B2", "#666666"
EPOCHS = size("auto", short=2)


def main():
    """Fit, compare on rows that none has seen, and draw."""
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    model = BayesianStackingRegressor(max_iter=EPOCHS, verbose=True, random_state=0)
    model.fit(X, y)
    n_candidates, n_kept = len(model.weights_["weight"]), len(model.estimators_)
    print(f"{n_candidates} candidates, {n_kept} with weight")
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
    boosting = HistGradientBoostingRegressor(random_state=0)
    rows = {
        "stacked": scores_of_stack(model, X_test, y_test),
        "ridge": scores_with_constant_noise(ridge, X, y, X_test, y_test),
        "boosting": scores_with_constant_noise(boosting, X, y, X_test, y_test),
    }
    print(f"{'':>10} {'RMSE':>7} {'CRPS':>7} {'log density':>12} {'in 90 %':>8}")
    for name, (rmse, crps, density, inside) in rows.items():
        print(f"{name:>10} {rmse:7.1f} {crps:7.1f} {density:12.3f} {inside:8.0%}")
    draw(model, X_test, y_test)


def scores_of_stack(model, X, y):
    """RMSE, CRPS, log density, and the share inside of the 90 % intervals."""
    interval = model.predict_interval(X, coverage=0.9)
    return (
        np.sqrt(np.mean((model.predict(X) - y) ** 2)),
        model.crps(X, y).mean(),
        model.log_predictive_density(X, y).mean(),
        interval_coverage(y, interval),
    )


def scores_with_constant_noise(model, X, y, X_test, y_test):
    """The same for a model without noise of its own."""
    std = np.std(y - cross_val_predict(model, X, y, cv=5))
    mean = model.fit(X, y).predict(X_test)
    one = mean[None], np.full((1, len(mean)), std**2)
    return (
        np.sqrt(np.mean((mean - y_test) ** 2)),
        mixture_crps(y_test, *one),
        mixture_log_density(y_test, *one),
        np.mean(np.abs(y_test - mean) <= 1.645 * std),
    )


def draw(model, X, y):
    """Intervals of rows that the model has not seen, and the weights."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8))
    PredictionIntervalDisplay.from_estimator(model, X, y, ax=left)
    left.set_title("rows that were never seen")
    kept = [(name, w) for name, w in model.weights_["weight"].items() if w > 0]
    names, weights = zip(*kept[:10][::-1], strict=True)
    right.barh(np.arange(len(weights)), weights, color=BLUE)
    right.set_yticks(np.arange(len(weights)), names, fontsize=8, color=GREY)
    right.set_xlabel("weight in the mixture")
    right.set_title(str(model.summary_).replace(", ", "\n", 1), fontsize=9)
    figure.tight_layout()
    save(figure, "stacking.png")


if __name__ == "__main__":
    main()
