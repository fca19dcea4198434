"""A table as it is: text, categories, dates and missing values.
=============================================================

2,000 generated sales of 80 shops, some of which appear only after the training. The
stack gets the frame without preparation. The pictures show (1) the standard deviation
of the prediction by how often the shop was seen in training; (2) the error among the
accepted rows, if the most uncertain rows go to a person; (3) which columns cause the
uncertainty of sales in unseen shops. The test rows are later than the
training rows, and the prediction warns.

Writes examples/output/mixed_table.png and prints what each column became, the coverage
of 90 % intervals in seen and unseen shops, and the warning.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _common import save, size

from skbayesnn import BayesianStackingRegressor
from skbayesnn.inspection import attributions
from skbayesnn.plotting import AttributionDisplay, RiskCoverageDisplay

ROWS, TRAINING, SHOPS, OPENED_LATER = 2_000, 1_400, 80, 10
MAX_ITER = size("auto", short=2)


def sales(random):
    """Sales, sorted by date: the frame, and log sales."""
    effect = random.normal(0, 0.6, SHOPS)
    popularity = random.pareto(1.2, SHOPS) + 0.1
    day = np.sort(random.integers(0, 730, ROWS))
    shop = random.choice(SHOPS, ROWS, p=popularity / popularity.sum())
    # Some shops open after the training.
    later = random.choice(OPENED_LATER, ROWS)
    shop = np.where((np.arange(ROWS) >= TRAINING) & (later < 3), later, shop)
    earlier = (np.arange(ROWS) < TRAINING) & (shop < OPENED_LATER)
    shop = np.where(earlier, shop + OPENED_LATER, shop)
    weather = random.choice(["sun", "cloud", "rain"], ROWS)
    footfall = effect[shop] + 0.5 * random.normal(size=ROWS)
    log_sales = (
        4
        + effect[shop]
        + 0.4 * footfall
        - 0.3 * (weather == "rain")
        + 0.25 * np.sin(2 * np.pi * day / 365.25)
        + 0.2 * ((day + 1) % 7 >= 5)
        + 0.2 * random.normal(size=ROWS)
    )
    frame = pd.DataFrame(
        {
            "shop": [f"shop {number}" for number in shop],
            "weather": np.where(random.random(ROWS) < 0.1, None, weather),
            "footfall": np.where(random.random(ROWS) < 0.15, np.nan, footfall),
            "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D"),
        }
    )
    return frame, log_sales


def plot_spread(ax, frame, std, seen) -> None:
    """Standard deviation of each prediction, by the rows of its shop in training."""
    number = seen.reindex(frame["shop"]).fillna(0).to_numpy()
    ax.plot(np.maximum(number, 0.5), std, ".", color="#1f77b4", alpha=0.5)
    ax.set(xscale="log", xlabel="training rows of the shop", ylabel="std of log sales")
    ax.set_xticks([0.5, 1, 10, 100], ["none", "1", "10", "100"])
    ax.set_title("Uncertain where the shop is new", loc="left")


def main() -> None:
    """Fit, predict, print and plot."""
    frame, y = sales(np.random.default_rng(0))
    train, test = frame[:TRAINING], frame[TRAINING:]
    y_train, y_test = y[:TRAINING], y[TRAINING:]
    model = BayesianStackingRegressor(
        size("auto", short="fast"), max_iter=MAX_ITER, random_state=0
    )
    with warnings.catch_warnings():
        # The test rows are later than the training rows, on purpose.
        warnings.filterwarnings("ignore", "X has columns of dates")
        model.fit(train, y_train)
    for column in model.table_.columns_:
        print(f"{column.column}: {column.encoding}")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        low, high = model.predict_interval(test, coverage=0.9).T
    print(*(f"warning: {warning.message}" for warning in caught), sep="\n")
    # The warning was printed; do not repeat it. Later only unseen shops are predicted.
    warnings.filterwarnings("ignore", r".*\[SKB30[45]\]")
    std = model.predict_uncertainty(test)
    seen = train["shop"].value_counts()
    is_seen = test["shop"].isin(seen.index).to_numpy()
    inside = (low <= y_test) & (y_test <= high)
    for name, rows in {"seen": is_seen, "unseen": ~is_seen}.items():
        print(
            f"{rows.sum()} rows of {name} shops: 90 % intervals cover "
            f"{inside[rows].mean():.0%}, mean width {(high - low)[rows].mean():.2f}"
        )

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    plot_spread(axes[0], test, std, seen)
    RiskCoverageDisplay.from_estimator(model, test, y_test, ax=axes[1])
    axes[1].set_title("Pass uncertain rows to a person", loc="left")
    cause = attributions(model, test[~is_seen][:200], background=train, of="epistemic")
    AttributionDisplay.from_attributions(cause, ax=axes[2])
    axes[2].set_title("The column that causes it", loc="left")
    save(figure, "mixed_table.png")


if __name__ == "__main__":
    main()
