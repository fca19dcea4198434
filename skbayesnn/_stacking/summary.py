"""Out-of-fold scores of a stack, and warnings if they are poor."""

import math
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skbayesnn._data.scaling import ordinary_rows
from skbayesnn._distributions.cells import Cells
from skbayesnn._distributions.map_factor import MIN_LOG_DENSITY
from skbayesnn._runtime import warn, warn_once
from skbayesnn._stored import Record
from skbayesnn.estimators._diagnostics import outliers_in_columns

# With fewer rows a poor score is no reason to warn.
_MIN_ROWS_TO_WARN = 30
# With fewer rows a stack has hardly a better log density than a constant: for a linear
# function of two of five columns with an R^2 of .8, no better with 10 rows and .56 nats
# better with 15 (medians of six tables).
FEWEST_ROWS = 15
CONSTANT = "log density of a constant"
COVERAGE, COVERAGE_ERROR = "90 % intervals cover", "standard error of the coverage"


@dataclass(frozen=True)
class Summary:
    """Out-of-fold scores of a model, means over rows.

    Parameters
    ----------
    log_density, error : float
        Mean log predictive density of y, in nats per row, and its standard error;
        larger is better. For a continuous y it depends on the units: with y / c it is
        larger by log(c). Compare models of the same y only. For classes and counts it
        is a log probability.
    others : dict of str to float
        Further scores by name. ``"log density of a constant"``: of a normal
        distribution with mean and standard deviation of y; for classes, of their
        shares. ``"R^2"`` and ``"90 % intervals cover"``, with the ``"standard error of
        the coverage"`` as a share of independent rows, or ``"accuracy"``.
    """

    log_density: Record
    error: Record
    others: dict[str, Record]

    def __str__(self):
        others = dict(self.others)
        constant = others.pop(CONSTANT, None)
        error = others.pop(COVERAGE_ERROR, None)
        scores = [f"log density {self.log_density:.3f} +- {self.error:.3f}"]
        if constant is not None:
            scores[0] += f" (of a constant {constant:.3f})"
        for name, value in others.items():
            if name == COVERAGE and error is not None:
                scores.append(f"{name} {value:.3f} +- {error:.3f}")
            else:
                scores.append(f"{name} {value:.3g}")
        return f"out of fold: {', '.join(scores)}"


def summarise_regression(mixture, y, weights, log_density) -> Summary:
    """R^2 and coverage of the central 90 % intervals, means over targets.

    log_density : (rows,)
    """
    inside = np.abs(mixture.cdf(y) - 0.5) <= 0.45
    coverage, error = share_and_error(inside, weights)
    others = {
        CONSTANT: normal_log_density(y, weights),
        "R^2": _r2(mixture.mean(), y, weights),
        COVERAGE: coverage,
        COVERAGE_ERROR: error,
    }
    return Summary(*_mean_and_error(log_density, weights), others)


def summarise_intervals(mixture, observed: Cells, weights) -> Summary:
    """Log probability of intervals, and log density of exact values."""
    return Summary(*_mean_and_error(mixture.log_density(observed), weights), {})


def normal_log_density(y, weights=None) -> float:
    """Mean log density of a normal distribution with y's mean and standard deviation.

    y : (rows[, targets]); the sum over the targets. A constant target has std 1.
    """
    centre = np.average(y, axis=0, weights=weights)
    variance = np.average(np.square(y - centre), axis=0, weights=weights)
    variance = np.where(variance > 0, variance, 1.0)
    return float(-0.5 * np.sum(1 + np.log(2 * np.pi * variance)))


def shares_log_probability(y, weights=None) -> float:
    """Mean log probability of labels if their shares are predicted."""
    codes = np.unique(y, return_inverse=True)[1]
    counts = np.bincount(codes, weights=weights)
    shares = counts[counts > 0] / counts.sum()
    return float(shares @ np.log(shares))


def warn_if_nothing_is_explained(mean, y, weights, X) -> None:
    """Warn if the mixture predicts y out of fold no better than the mean of y.

    Only rows without outliers count, since no model explains outliers of y. If only
    outliers of X make the mixture worse than the mean, the warning states that.

    mean, y : (rows[, targets]); X : (rows, columns), or without columns
    """

    def explained(rows):
        return _r2(mean[rows], y[rows], weights[rows])

    usual_y = ordinary_rows(y.reshape(len(y), -1))
    usual = usual_y & ordinary_rows(X)
    if usual.sum() < _MIN_ROWS_TO_WARN or not weights[usual].any():
        return
    reason = outliers_in_columns(X)
    if (share := explained(usual)) <= 0:
        problem = f"explains no more of y than the mean of y does (R^2 {share:.2g})"
        if not usual_y.all():
            reason += (
                f" Outliers of y ({(~usual_y).sum()} rows) dominate its variance: "
                "give `estimators` with likelihood='student_t', clip the outliers, or "
                "transform y (TransformedTargetRegressor)."
            )
        reason = reason or (
            "The columns may be unrelated to y, or the rows too few to estimate the "
            "relation."
        )
    elif explained(usual_y) <= 0:
        problem = (
            f"is poor in {(usual_y & ~usual).sum()} rows with outliers of X "
            f"(R^2 of the other rows: {share:.2g})"
        )
    else:
        return
    warn(
        "SKB110",
        f"out of fold the mixture {problem}. {reason.lstrip()}",
        ConvergenceWarning,
    )


def warn_of_few_rows(n_rows: int) -> None:
    """Warn if the stack has so few training rows that it can hardly predict."""
    if n_rows < FEWEST_ROWS:
        warn_once(
            "SKB110",
            "few rows",
            f"the stack is fitted to {n_rows} rows. With fewer than {FEWEST_ROWS} its "
            "predictions are hardly better than a constant, and its weights and "
            "out-of-fold scores are mostly noise. Give more rows.",
        )


def warn_if_no_better_than_shares(log_density, y, weights, X) -> None:
    """Warn if the shares of the classes predict labels as well as the mixture.

    log_density : (rows,), log probabilities of the labels
    X : (rows, columns), or without columns
    """
    kept = ordinary_rows(X) & (weights > 0)
    if kept.sum() < _MIN_ROWS_TO_WARN:
        return
    mean, _ = _mean_and_error(log_density[kept], weights[kept])
    baseline = shares_log_probability(y[kept], weights[kept])
    if mean > baseline:
        return
    reason = outliers_in_columns(X) or (
        "The columns may be unrelated to the classes, or the rows too few to estimate "
        "the relation."
    )
    warn(
        "SKB110",
        "out of fold the mixture predicts the classes no better than their shares do "
        f"(log density {mean:.3g} instead of {baseline:.3g}). {reason}",
        ConvergenceWarning,
    )


def _r2(mean, y, weights) -> float:
    """R^2, mean over the targets that are not constant."""
    residual = np.average(np.square(y - mean), axis=0, weights=weights)
    centre = np.average(y, axis=0, weights=weights)
    spread = np.average(np.square(y - centre), axis=0, weights=weights)
    varies = spread > 0
    if not np.any(varies):
        return math.nan
    return float(np.mean(1 - residual[varies] / spread[varies]))


def summarise_classification(mixture, y, weights) -> Summary:
    """Log probability and accuracy."""
    correct = mixture.classes[mixture.mean().argmax(1)] == y
    others = {
        CONSTANT: shares_log_probability(y, weights),
        "accuracy": float(np.average(correct, weights=weights)),
    }
    return Summary(*_mean_and_error(mixture.log_density(y), weights), others)


def share_and_error(inside, weights=None) -> tuple[float, float]:
    """Share of values that are inside, and its standard error for independent rows.

    If all values are inside, or none, half a row is counted on the other side for the
    error, since an error of zero would be too certain.

    inside : of bool, (rows[, targets]); with several targets the mean over them
    """
    inside = np.reshape(inside, (len(inside), -1)).mean(1)
    weights = np.ones(len(inside)) if weights is None else weights
    share, error = _mean_and_error(inside, weights)
    if share in (0, 1):
        n = weights.sum() ** 2 / np.square(weights).sum()
        error = float(np.sqrt(0.5 / n * (1 - 0.5 / n) / n))
    return share, error


def _mean_and_error(values, weights) -> tuple[float, float]:
    """Weighted mean, and its standard error."""
    # Clip -inf, the log density of values with probability zero.
    values = np.maximum(values, MIN_LOG_DENSITY)
    mean = np.average(values, weights=weights)
    error = np.sqrt(np.square(weights) @ np.square(values - mean)) / weights.sum()
    return float(mean), float(error)
