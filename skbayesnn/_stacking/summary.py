"""What a mixture is worth on rows that it has not seen, in one line."""

import math
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skbayesnn._data.scaling import ordinary_rows
from skbayesnn._distributions.map_factor import LOWEST
from skbayesnn._runtime import warn
from skbayesnn.estimators._diagnostics import outliers_in_columns

# Of fewer rows nobody expects that anything is explained.
_FEWEST_TO_EXPLAIN = 30


@dataclass(frozen=True)
class Summary:
    """Means over rows out of fold, with standard errors.

    Parameters
    ----------
    log_density, error : float
        Mean log predictive density of y, in nats per row, and its standard error;
        larger is better. Of a continuous y it depends on y's units: with y / c it is
        larger by log(c). Compare models of the same y only. A normal distribution
        with the mean and the standard deviation s of y has -1.42 - log(s). Of classes
        and counts it is a log probability; the shares p of the classes have the sum
        of p log(p).
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


def warn_if_nothing_is_explained(mean, y, weights, X) -> None:
    """Where the mixture's mean is no better out of fold than that of y.

    Of rows without outliers: no model explains those of y. If it is worse only because
    of those of X, that is said.

    mean, y : (rows[, targets]); X : (rows, columns), or of no columns
    """

    def explained(rows):
        return _explained(mean[rows], y[rows], weights[rows])

    usual_y = ordinary_rows(y.reshape(len(y), -1))
    usual = usual_y & ordinary_rows(X)
    if usual.sum() < _FEWEST_TO_EXPLAIN or not weights[usual].any():
        return
    reason = outliers_in_columns(X)
    if (share := explained(usual)) <= 0:
        said = f"explains no more of y than y's own mean (R^2 {share:.2g})"
        if not usual_y.all():
            reason += (
                f" Outliers of y ({(~usual_y).sum()} rows) press its other values "
                "flat: give `estimators` with likelihood='student_t', clip them, or "
                "transform y (TransformedTargetRegressor)."
            )
        reason = reason or (
            "The columns may say nothing of y, or too little for so few rows."
        )
    elif explained(usual_y) <= 0:
        said = (
            f"is far off in rows that have outliers ({(usual_y & ~usual).sum()} there "
            f"are; of the others it explains {share:.0%})"
        )
    else:
        return
    warn(f"out of fold the mixture {said}. {reason.lstrip()}", ConvergenceWarning)


def warn_if_no_class_is_told(log_density, y, weights, X) -> None:
    """Where the shares of the classes are as good out of fold as the mixture.

    log_density : (rows,), of their labels; X : as above
    """
    kept = ordinary_rows(X) & (weights > 0)
    if kept.sum() < _FEWEST_TO_EXPLAIN:
        return
    mean, _ = _mean(log_density[kept], weights[kept])
    codes = np.unique(y[kept], return_inverse=True)[1]
    shares = np.bincount(codes, weights=weights[kept]) / weights[kept].sum()
    of_shares = shares @ np.log(shares)
    if mean > of_shares:
        return
    reason = outliers_in_columns(X) or (
        "The columns may say nothing of the classes, or too little for so few rows."
    )
    warn(
        "out of fold the mixture tells the classes no better than their shares do (log "
        f"density {mean:.3g}, of the shares {of_shares:.3g}). {reason}",
        ConvergenceWarning,
    )


def _explained(mean, y, weights) -> float:
    """R^2, mean over targets that vary."""
    residual = np.average(np.square(y - mean), axis=0, weights=weights)
    centre = np.average(y, axis=0, weights=weights)
    spread = np.average(np.square(y - centre), axis=0, weights=weights)
    varies = spread > 0
    if not np.any(varies):
        return math.nan
    return float(np.mean(1 - residual[varies] / spread[varies]))


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
