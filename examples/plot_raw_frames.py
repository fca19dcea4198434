"""Raw frames: the default stack, CatBoost and HistGradientBoosting.
=================================================================

Three tables with categories and missing values: generated sales of 80 shops, survival
on the Titanic, and whether an income is high (a sample of adult). The stack
gets each frame as it is. The others get dates as days and missing categories as text,
which they need; nothing is tuned. CatBoost is left out if it is not installed, and a
table if its data are absent.

Writes examples/output/raw_frames.png and prints RMSE and coverage of 90 % intervals
(regression), or log loss and calibration error (classes), and seconds.
"""

import json
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _common import DATA, save, size
from plot_mixed_table import sales
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor
from skbayesnn.metrics import expected_calibration_error

MAX_ITER = size("auto", short=2)
ROWS = size(4_000, short=200)


def of_folder(name):
    """A table of the data folder: frame and labels."""
    frame = pd.read_csv(DATA / "tabular" / f"{name}.csv.gz").head(ROWS)
    target = json.loads((DATA / "tabular" / "meta.json").read_text())[name]["target"]
    frame = frame.drop(columns="split", errors="ignore")
    return frame.drop(columns=target), frame[target].to_numpy()


def with_days(frame):
    """The frame with dates as days, and text instead of missing categories."""
    frame = frame.copy()
    for name, column in frame.items():
        if column.dtype.kind == "M":
            frame[name] = (column - column.min()) / pd.Timedelta(days=1)
        elif column.dtype.kind not in "biuf":
            text = column.astype(object).where(column.notna(), "missing").astype(str)
            frame[name] = text.astype("category")
    return frame


def models_of(is_class):
    """Model of each name, and whether it gets the raw frame."""
    trees = size(1000, short=5)
    stack = BayesianStackingClassifier if is_class else BayesianStackingRegressor
    boosting = (
        HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
    )
    models = {
        "stack": (
            stack(size("auto", short="fast"), max_iter=MAX_ITER, random_state=0),
            True,
        ),
        "HistGradientBoosting": (boosting(random_state=0), False),
    }
    try:
        from catboost import CatBoostClassifier, CatBoostRegressor
    except ImportError:
        return models
    catboost = CatBoostClassifier if is_class else CatBoostRegressor
    model = catboost(trees, verbose=0, random_seed=0, allow_writing_files=False)
    return models | {"CatBoost": (model, False)}


def compare(name, frame, y):
    """Score of each model on a quarter of the rows; prints them."""
    is_class = y.dtype.kind != "f"
    scores = {}
    for model_name, (model, is_raw) in models_of(is_class).items():
        X = frame if is_raw else with_days(frame)
        train, test, y_train, y_test = train_test_split(
            X, y, test_size=0.25, random_state=0
        )
        extra = {}
        if model_name == "CatBoost":
            extra = {"cat_features": list(X.columns[X.dtypes == "category"])}
        start = time.perf_counter()
        model.fit(train, y_train, **extra)
        seconds = time.perf_counter() - start
        if is_class:
            p = model.predict_proba(test)
            scores[model_name] = log_loss(y_test, p, labels=model.classes_)
            error = expected_calibration_error(y_test, p, classes=model.classes_)
            rest = f"log loss, calibration error {error:.3f}"
        else:
            residuals = model.predict(test) - y_test
            scores[model_name] = float(np.sqrt(np.mean(np.square(residuals))))
            rest = "RMSE"
            if model_name == "stack":
                low, high = model.predict_interval(test, coverage=0.9).T
                inside = np.mean((low <= y_test) & (y_test <= high))
                rest += f", 90 % intervals cover {inside:.0%}"
        print(
            f"{name:9}{model_name:22}{scores[model_name]:.3f} {rest}, {seconds:.1f} s"
        )
    return scores


def main() -> None:
    """Compare the models on each table and plot their scores."""
    tables = {"sales": sales(np.random.default_rng(0))}
    for name in ("titanic", "adult"):
        if (DATA / "tabular" / f"{name}.csv.gz").exists():
            tables[name] = of_folder(name)
    figure, axes = plt.subplots(
        1,
        len(tables),
        figsize=(4 * len(tables), 3),
        layout="constrained",
        squeeze=False,
    )
    for ax, (name, (frame, y)) in zip(axes[0], tables.items(), strict=True):
        scores = compare(name, frame, y)
        ax.barh(list(scores), list(scores.values()), color="#1f77b4")
        ax.invert_yaxis()
        measure = "RMSE of log sales" if y.dtype.kind == "f" else "log loss"
        ax.set(title=name, xlabel=f"{measure} (lower is better)")
    save(figure, "raw_frames.png")


if __name__ == "__main__":
    main()
