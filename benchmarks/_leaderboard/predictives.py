"""Predictive distributions of the contestants, and their scores.

A contestant returns arrays; ``predictive_of`` converts them to an object with

    mean                : (rows,), of y
    log_density(y)      : mean over rows, nats, units of y
    crps(y)             : mean over rows, units of y
    interval(coverage)  : (rows, 2), equal-tailed

and classifiers return probabilities. Scores are computed by ``skbayesnn.metrics``.
"""

from dataclasses import dataclass

import numpy as np

from skbayesnn._distributions.quantiles import mixture_quantile
from skbayesnn.metrics import (
    expected_calibration_error,
    interval_coverage,
    mixture_crps,
    mixture_log_density,
    ood_auroc,
)

COVERAGES = (0.5, 0.9, 0.95)
# The CRPS compares all pairs of components. If there are more, this many are used, at
# equal distances.
MOST_PAIRED = 200
TINY = np.finfo(float).tiny

# Names of the scores, and whether larger is better (None: neither).
SCORES = {
    "regression": {
        "rmse": False,
        "log_density": True,
        "crps": False,
        **{f"cover_{100 * coverage:.0f}": None for coverage in COVERAGES},
    },
    "classification": {
        "log_loss": False,
        "accuracy": True,
        "ece": False,
        "error_auroc": True,
    },
}


@dataclass(frozen=True)
class Normals:
    """Equal-weight mixture of Gaussians; a single one is a Gaussian per row.

    components_mean, components_std : (components, rows)
    """

    components_mean: np.ndarray
    components_std: np.ndarray

    @property
    def mean(self):
        """The means, (rows,)."""
        return self.components_mean.mean(0)

    def log_density(self, y):
        """Mean over rows."""
        variance = np.square(self.components_std)
        return mixture_log_density(y, self.components_mean, variance)

    def crps(self, y):
        """Mean over rows."""
        n = len(self.components_mean)
        some = np.linspace(0, n - 1, min(n, MOST_PAIRED)).round().astype(int)
        variance = np.square(self.components_std[some])
        return mixture_crps(y, self.components_mean[some], variance)

    def interval(self, coverage):
        """The bounds, (rows, 2)."""
        mean = self.components_mean[..., None]
        variance = np.square(self.components_std)[..., None]
        bounds = [
            mixture_quantile(mean, variance, level)[:, 0]
            for level in ((1 - coverage) / 2, (1 + coverage) / 2)
        ]
        return np.stack(bounds, axis=-1)


class Quantiles:
    """A distribution with given quantiles at several levels.

    The distribution function F is linear between the quantiles. Beyond them log F and
    log (1 - F) are linear, through the two outer quantiles of each side [Park et al.
    2022, "Learning quantile functions without quantile crossing"]. Quantiles that cross
    are sorted [Chernozhukov, Fernandez-Val & Galichon 2010]. If two quantiles of a row
    coincide, the row has no density, and the mean log density is NaN.

    levels : (levels,), increasing, in (0, 1); quantile : (rows, levels)
    """

    def __init__(self, levels, quantile):
        self.levels = np.asarray(levels, dtype=np.float64)
        self.quantile = np.sort(np.asarray(quantile, dtype=np.float64), axis=1)
        low, high = self.levels, 1 - self.levels
        first, last = self.quantile[:, :2], self.quantile[:, -2:]
        self.left = np.diff(first)[:, 0] / np.log(low[1] / low[0])
        self.right = np.diff(last)[:, 0] / np.log(high[-2] / high[-1])

    @property
    def mean(self):
        """The means, (rows,)."""
        q, mass = self.quantile, np.diff(self.levels)
        inside = (0.5 * (q[:, 1:] + q[:, :-1])) @ mass
        below = self.levels[0] * (q[:, 0] - self.left)
        above = (1 - self.levels[-1]) * (q[:, -1] + self.right)
        return below + inside + above

    def log_density(self, y):
        """Mean over rows."""
        q, levels = self.quantile, self.levels
        with np.errstate(divide="ignore", invalid="ignore"):
            by_cell = np.log(np.diff(levels) / np.diff(q))
            below = np.log(levels[0] / self.left) + (y - q[:, 0]) / self.left
            above = np.log((1 - levels[-1]) / self.right)
            above = above - (y - q[:, -1]) / self.right
        cell = (q <= y[:, None]).sum(1)
        everywhere = np.column_stack([below, by_cell, above])
        density = np.take_along_axis(everywhere, cell[:, None], axis=1)[:, 0]
        return float(np.where((np.diff(q) > 0).all(1), density, np.nan).mean())

    def crps(self, y):
        """Mean over rows of the integral of (F(z) - 1[y <= z])^2, exact."""
        q, levels = self.quantile, self.levels
        split = np.clip(y[:, None], q[:, :-1], q[:, 1:])
        share = (split - q[:, :-1]) / np.maximum(np.diff(q), TINY)
        at_split = levels[:-1] + share * np.diff(levels)
        below = (split - q[:, :-1]) * _mean_square(levels[:-1], at_split)
        above = (q[:, 1:] - split) * _mean_square(1 - at_split, 1 - levels[1:])
        inside = (below + above).sum(1)
        left = _crps_of_tail(levels[0], self.left, q[:, 0] - y)
        right = _crps_of_tail(1 - levels[-1], self.right, y - q[:, -1])
        return float((left + inside + right).mean())

    def interval(self, coverage):
        """The bounds, (rows, 2)."""
        levels = (1 - coverage) / 2, (1 + coverage) / 2
        return np.stack([self._at(level) for level in levels], axis=-1)

    def _at(self, level):
        levels, q = self.levels, self.quantile
        if level < levels[0]:
            return q[:, 0] + self.left * np.log(level / levels[0])
        if level > levels[-1]:
            return q[:, -1] - self.right * np.log((1 - level) / (1 - levels[-1]))
        cell = np.clip(np.searchsorted(levels, level) - 1, 0, len(levels) - 2)
        share = (level - levels[cell]) / (levels[cell + 1] - levels[cell])
        return q[:, cell] + share * (q[:, cell + 1] - q[:, cell])


def _mean_square(start, end):
    """Mean square of a linear function with values from start to end."""
    return (start * start + start * end + end * end) / 3


def _crps_of_tail(share, scale, beyond):
    """The integral of the CRPS over an exponential tail.

    share, scale : probability and scale of the tail
    beyond : distance of y from the start of the tail, negative outside it
    """
    distance = np.maximum(beyond, 0)
    at_y = share * np.exp(-distance / np.maximum(scale, TINY))
    outside = scale * np.square(at_y) / 2
    between = distance - 2 * scale * (share - at_y)
    return outside + between + scale * (share * share - np.square(at_y)) / 2


@dataclass(frozen=True)
class Scored:
    """Scores of the test rows that the contestant's predictive computed.

    mean, density, score : (rows,); intervals : (rows, coverages, 2), of ``COVERAGES``
    """

    mean: np.ndarray
    density: np.ndarray
    score: np.ndarray
    intervals: np.ndarray

    def log_density(self, y):
        """Mean over rows."""
        return float(self.density.mean())

    def crps(self, y):
        """Mean over rows."""
        return float(self.score.mean())

    def interval(self, coverage):
        """The bounds, (rows, 2)."""
        return self.intervals[:, COVERAGES.index(coverage)]


def predictive_of(arrays):
    """The predictive that a contestant's arrays describe."""
    if "quantile" in arrays:
        return Quantiles(arrays["levels"], arrays["quantile"])
    if "intervals" in arrays:
        names = "mean", "log_density", "crps", "intervals"
        return Scored(*(arrays[name].astype(np.float64) for name in names))
    moments = (np.atleast_2d(arrays[name]) for name in ("mean", "std"))
    return Normals(*(values.astype(np.float64) for values in moments))


def scores_of(kind: str, arrays, y) -> dict[str, float | None]:
    """Every score of the kind by its name; None if it is not finite."""
    compute = _regression_scores if kind == "regression" else _classification_scores
    scores = compute(arrays, y)
    values = (float(value) if np.isfinite(value) else None for value in scores)
    return dict(zip(SCORES[kind], values, strict=True))


def _regression_scores(arrays, y) -> list[float]:
    predictive = predictive_of(arrays)
    covered = [interval_coverage(y, predictive.interval(share)) for share in COVERAGES]
    rmse = np.sqrt(np.mean(np.square(predictive.mean - y)))
    return [rmse, predictive.log_density(y), predictive.crps(y), *covered]


def _classification_scores(arrays, y) -> list[float]:
    """Scores of probabilities, which are clipped at epsilon for the log loss."""
    probability = arrays["probability"].astype(np.float64)
    classes = arrays["classes"]
    probability = probability / probability.sum(1, keepdims=True)
    column = np.searchsorted(classes, y)
    label_probability = probability[np.arange(len(y)), column]
    log_loss = -np.log(np.maximum(label_probability, np.finfo(float).eps)).mean()
    right = probability.argmax(1) == column
    uncertainty = 1 - probability.max(1)
    has_both = 0 < right.sum() < len(y)
    auroc = ood_auroc(uncertainty[right], uncertainty[~right]) if has_both else np.nan
    ece = expected_calibration_error(y, probability, classes)
    return [log_loss, right.mean(), ece, auroc]
