"""What a mixture is worth on rows that it has not seen, in one line."""

from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skbayesnn._data.outliers import ordinary_rows
from skbayesnn._warnings import warn

# A density that is zero to rounding, nats: what one such row can cost a candidate.
LOWEST = -1e4
# Of fewer rows nobody expects that anything is explained.
_FEWEST_TO_EXPLAIN = 30


@dataclass(frozen=True)
class Summary:
    """Means over rows out of fold, with standard errors.

    Parameters
    ----------
    log_density, error : float
        Mean log predictive density, nats, y's units, and its standard error.
    others : dict of str to float
        What else is said of it, by name.
    """

    log_density: float
    error: float
    others: dict[str, float]

    def __str__(self):
        said = [f"log density {self.log_density:.3f} +- {self.error:.3f}"]
        said += [f"{name} {value:.3g}" for name, value in self.others.items()]
        return f"out of fold: {', '.join(said)}"


def of_numbers(mixture, y, weights) -> Summary:
    """R^2 and coverage of the central 90 % intervals, means over targets."""
    level = mixture.cdf(y)
    inside = np.average(np.abs(level - 0.5) <= 0.45, axis=0, weights=weights)
    others = {
        "R^2": _explained(mixture.mean(), y, weights),
        "90 % intervals cover": float(np.mean(inside)),
    }
    return Summary(*_mean(mixture.log_density(y), weights), others)


def warn_if_nothing_is_explained(mean, y, weights) -> None:
    """Where the mixture's mean is no better out of fold than that of y.

    Among rows without outliers of y: no model explains these.

    mean, y : (rows[, targets])
    """
    kept = ordinary_rows(y.reshape(len(y), -1))
    if kept.sum() < _FEWEST_TO_EXPLAIN or not weights[kept].any():
        return
    explained = _explained(mean[kept], y[kept], weights[kept])
    if explained > 0 or np.isnan(explained):
        return
    reason = "The columns may say nothing of y, or too little for so few rows."
    if not kept.all():
        reason = (
            f"Outliers of y ({(~kept).sum()} rows) press its other values flat: give "
            "`estimators` with likelihood='student_t', clip them, or transform y "
            "(TransformedTargetRegressor)."
        )
    warn(
        f"out of fold the mixture explains no more of y than y's own mean (R^2 "
        f"{explained:.2g}). {reason}",
        ConvergenceWarning,
    )


def _explained(mean, y, weights) -> float:
    """R^2, mean over targets."""
    residual = np.average(np.square(y - mean), axis=0, weights=weights)
    centre = np.average(y, axis=0, weights=weights)
    spread = np.average(np.square(y - centre), axis=0, weights=weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.mean(1 - residual / spread))


def of_classes(mixture, y, weights) -> Summary:
    """Accuracy."""
    right = mixture.classes[mixture.mean().argmax(1)] == y
    others = {"accuracy": float(np.average(right, weights=weights))}
    return Summary(*_mean(mixture.log_density(y), weights), others)


def _mean(values, weights) -> tuple[float, float]:
    """Weighted mean, and its standard error."""
    # What was deemed impossible has no finite log density.
    values = np.maximum(values, LOWEST)
    mean = np.average(values, weights=weights)
    error = np.sqrt(np.square(weights) @ np.square(values - mean)) / weights.sum()
    return float(mean), float(error)
