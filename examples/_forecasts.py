"""Shared parts of the examples with hours of Beijing: table, scores and pictures."""

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.compose import TransformedTargetRegressor

from skbayesnn import (
    crps,
    log_predictive_density,
    predict_interval,
    predict_quantile,
    sample_y,
)
from skbayesnn.metrics import interval_coverage, interval_width

GREY = "#666666"
COVERAGE = 0.9


def all_hours(file):
    """14 columns of weather, time of day and season; y, with missing values; times.

    y is in micrograms per cubic metre.
    """
    import pandas as pd

    table = pd.read_csv(file)
    row = np.arange(len(table))
    columns = pd.get_dummies(table["cbwd"], dtype=float)
    columns[["DEWP", "TEMP", "PRES"]] = table[["DEWP", "TEMP", "PRES"]]
    # Cumulated speed and hours are skewed.
    for name in ("Iws", "Is", "Ir"):
        columns[name] = np.log1p(table[name])
    for name, period in (("day", 24), ("year", 24 * 365.25)):
        columns[f"{name}_sin"] = np.sin(2 * np.pi * row / period)
        columns[f"{name}_cos"] = np.cos(2 * np.pi * row / period)
    when = np.datetime64("2010-01-01T00") + row
    return columns.to_numpy(np.float32), table["pm2.5"].to_numpy(), when


def on_log_scale(model):
    """A model that learns log(1 + y); its predictions are in the units of y."""
    return TransformedTargetRegressor(model, func=np.log1p, inverse_func=np.expm1)


def scored(model, X, y):
    """Scores of a fitted model, and its mean, median and interval."""
    if isinstance(model, TransformedTargetRegressor):
        mean = sample_y(model, X, n_samples=500).mean(1)
    else:
        mean = model.predict(X)
    return {
        "mean": mean,
        "median": predict_quantile(model, X, 0.5),
        "interval": predict_interval(model, X, COVERAGE),
        "log density": log_predictive_density(model, X, y),
        "CRPS": crps(model, X, y),
    }


def log_normal(mean, std, y):
    """The scores if log(1 + y) is normal; mean, std : (n,), of the log."""
    log_y = np.log1p(y)
    z = (log_y - mean) / std
    mean_of_1_plus_y = np.exp(mean + std**2 / 2)
    ends = mean[:, None] + std[:, None] * ndtri(
        [0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2]
    )
    return {
        "mean": mean_of_1_plus_y - 1,
        "median": np.expm1(mean),
        "interval": np.expm1(ends),
        "log density": -0.5 * z**2 - np.log(std * np.sqrt(2 * np.pi)) - log_y,
        # Baran & Lerch (2015), "Log-normal distribution based ensemble model output
        # statistics models for probabilistic wind-speed forecasting"; of 1 + y.
        "CRPS": (1 + y) * (2 * ndtr(z) - 1)
        - 2 * mean_of_1_plus_y * (ndtr(z - std) + ndtr(std / np.sqrt(2)) - 1),
    }


def print_table(results, y, digits=1):
    """Mean of every score over the seeds, and half its range."""
    inside = f"{COVERAGE:.0%} covers"
    scores = {
        "RMSE": lambda of: np.sqrt(np.square(of["mean"] - y).mean()),
        "log density": lambda of: of["log density"].mean(),
        inside: lambda of: interval_coverage(y, of["interval"]),
        "width": lambda of: interval_width(of["interval"]),
        "CRPS": lambda of: of["CRPS"].mean(),
        "seconds": lambda of: of["seconds"],
    }
    places = {"log density": 3, inside: 3, "seconds": 1}
    n_seeds = max(map(len, results.values()))
    print(f"\nMean of {n_seeds} seeds \N{PLUS-MINUS SIGN} half their range")
    print(f"{'':<17}", *[f"{score:>16}" for score in scores])
    for name, of_seeds in results.items():
        cells = []
        for score, of in scores.items():
            values = [of(one) for one in of_seeds]
            n, half = places.get(score, digits), np.ptp(values) / 2
            cells.append(f"{np.mean(values):.{n}f} \N{PLUS-MINUS SIGN} {half:.{n}f}")
        print(f"{name:<17}", *[f"{cell:>16}" for cell in cells])


def draw_hours(axes, of, y, when, color):
    """Medians, intervals and measured values; returns the share inside."""
    lower, upper = of["interval"].T
    inside = (lower <= y) & (y <= upper)
    axes.fill_between(
        when,
        lower,
        upper,
        color=color,
        alpha=0.25,
        lw=0,
        label=f"{COVERAGE:.0%} interval",
    )
    axes.plot(when, of["median"], color=color, label="median")
    axes.plot(when[inside], y[inside], ".", color=GREY, label="measured")
    axes.plot(when[~inside], y[~inside], "x", color="black", label="measured, outside")
    axes.set(ylabel="PM2.5 (\N{MICRO SIGN}g/m\N{SUPERSCRIPT THREE})", yscale="log")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return inside.mean()


def some_rows(of, rows):
    """Select rows of the result of ``scored``."""
    return {name: value[rows] for name, value in of.items() if np.ndim(value)}
