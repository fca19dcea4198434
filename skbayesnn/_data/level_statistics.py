"""Statistics of y for the levels of a category with many levels [Micci-Barreca 2001].

A level is encoded by the mean of y of its rows minus the mean of all rows, shrunk to
zero, or to the value that its text predicts. A row is encoded by statistics of the
folds that do not contain it; only the three variances of a text model are from all
rows.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from skbayesnn._data.groups import shuffled_folds

N_FOLDS = 5
# Largest prior weight of the overall mean, in rows.
MAX_PSEUDO_ROWS = 1000.0
# More different integers are not taken for class labels.
MAX_CLASSES = 30
# A larger share of the variance between levels is added to the uncertainty of a level
# only if it exceeds the average by this.
MIN_EXCESS = 0.1
# The text of levels is used if the log marginal likelihood is larger by this.
MIN_GAIN = 3.0
# Bounds of the variances of text and levels, relative to the variance of y.
MIN_VARIANCE, MAX_VARIANCE = 1e-4, 1e2
# The variance within levels is estimated if this share of the rows repeats a level.
MIN_REPEATED = 0.05
# Largest number of levels that estimate the variances.
MAX_LEVELS_OF_LIKELIHOOD = 2000


def is_continuous(y: np.ndarray) -> bool:
    """Whether y contains numbers instead of class labels."""
    if y.dtype.kind not in "iuf":
        return False
    return y.ndim > 1 or len(np.unique(y)) > MAX_CLASSES or bool((y % 1 != 0).any())


def targets_of(y: np.ndarray, weights: np.ndarray, continuous: bool) -> list:
    """Values whose means encode a level: a list of arrays (rows, columns).

    Each target of a regression is an array of one column. Classes are one array with an
    indicator of each class, or of the second of two classes.

    weights : (rows,); labels of rows of weight zero do not count
    """
    if continuous:
        return list(y.reshape(len(y), -1).T[..., np.newaxis].astype(np.float64))
    classes = np.unique(y[weights > 0])
    if len(classes) == 2:
        classes = classes[1:]
    return [(y[:, np.newaxis] == classes).astype(np.float64)]


@dataclass(frozen=True)
class LevelStatistics:
    """Statistics of y of the levels of a category.

    Parameters
    ----------
    means : ndarray of shape (levels + 1, columns)
        Posterior mean of the deviation of each level from the mean of all rows. The
        last row is an unseen level.
    spreads : ndarray of shape (levels + 1, columns)
        Posterior standard deviation of a level, as far as it exceeds the average
        training row. It is divided by the standard deviation over the rows of the
        posterior means of their levels; 1 for an unseen level, 0 if it is small.
    deviations : ndarray of shape (levels, columns)
        Posterior mean of the difference between each level and the value that its text
        predicts.
    counts : ndarray of shape (levels,)
        Weight of the rows of each level.
    coefficients : ndarray of shape (components, columns), optional
        The text of a level predicts the product of its components and these.
    text_ratio : ndarray of shape (columns,)
        Variance between levels that the text explains, relative to the variance of the
        deviations. Without coefficients it is empty.
    """

    means: np.ndarray
    spreads: np.ndarray
    deviations: np.ndarray
    counts: np.ndarray
    coefficients: np.ndarray | None = None
    text_ratio: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def rescaled(self, factor: np.ndarray) -> "LevelStatistics":
        """Statistics of factor times y; factor : (columns,)"""
        return replace(
            self,
            means=factor * self.means,
            deviations=factor * self.deviations,
            coefficients=None
            if self.coefficients is None
            else factor * self.coefficients,
        )


def level_statistics(
    index: np.ndarray,
    n_levels: int,
    targets: list,
    weights: np.ndarray,
    groups: np.ndarray | None = None,
    components: np.ndarray | None = None,
    *,
    needs_text: bool = False,
) -> tuple[LevelStatistics, np.ndarray]:
    """Encodings of the levels, and of the training rows.

    index : (rows,), level of each row
    targets : result of ``targets_of``
    weights : (rows,); rows of weight zero are encoded by the encodings of the levels
    groups : (rows,); the folds do not split them
    components : (levels, components) of the text of the levels. It is used if the text
        predicts the means of the levels.
    needs_text : bool, whether it is used in any case
    returns : statistics, and encodings of the rows, (rows, columns)
    """
    used = np.flatnonzero(weights > 0)
    # A power of two does not change the result, and squares do not overflow.
    scales = [_power_of_two(target[used]) for target in targets]
    targets = [target / scale for target, scale in zip(targets, scales, strict=True)]
    variances = None
    if components is not None:
        # Three variances of each target, so they may depend on the y of all rows.
        variances = [
            text_variances(index[used], target[used], weights[used], components)
            for target in targets
        ]
        if not needs_text and sum(v.gain for v in variances) < MIN_GAIN:
            variances = None

    factor = np.repeat(scales, [target.shape[1] for target in targets])

    def statistics_of(rows):
        values = [target[rows] for target in targets]
        found = _statistics(
            index[rows], n_levels, values, weights[rows], components, variances
        )
        return found.rescaled(factor)

    statistics = statistics_of(used)
    by_row = statistics.means[index]
    groups = None if groups is None else groups[used]
    for rest, fold in shuffled_folds(len(used), N_FOLDS, 0, groups):
        rows = used[fold]
        by_row[rows] = statistics_of(used[rest]).means[index[rows]]
    return statistics, by_row


def _power_of_two(values: np.ndarray) -> float:
    """The power of two next to the largest absolute value; 1 if all are zero."""
    largest = np.abs(values).max(initial=0.0)
    return float(np.ldexp(1.0, np.frexp(largest)[1] - 1)) if largest else 1.0


def _statistics(index, n_levels: int, targets: list, weights, components, variances):
    """Statistics of all targets, without folds; without text if variances is None."""
    counts = np.bincount(index, weights, n_levels)
    parts = []
    for i, values in enumerate(targets):
        centred = values - np.average(values, axis=0, weights=weights)
        sums = np.stack(
            [np.bincount(index, weights * v, n_levels) for v in centred.T], axis=1
        )
        if variances is None:
            pseudo = pseudo_rows(index, values, weights)
            parts.append(_without_text(counts, sums, pseudo))
        else:
            parts.append(_with_text(counts, sums, components, variances[i]))
    means = np.concatenate([part.means for part in parts], axis=1)
    spreads = np.concatenate([part.spreads for part in parts], axis=1)
    deviations = np.concatenate([part.deviations for part in parts], axis=1)
    if variances is None:
        return LevelStatistics(means, spreads, deviations, counts)
    coefficients = np.concatenate([part.coefficients for part in parts], axis=1)
    ratio = np.concatenate([part.text_ratio for part in parts])
    return LevelStatistics(means, spreads, deviations, counts, coefficients, ratio)


def _without_text(counts, sums, pseudo: float) -> LevelStatistics:
    """Statistics of levels whose text does not matter."""
    total = (counts + pseudo)[:, np.newaxis]
    means = sums / np.where(total > 0, total, 1.0)
    unseen = np.zeros((1, means.shape[1]))
    spreads = _spreads(counts, pseudo)[:, np.newaxis] + unseen
    return LevelStatistics(np.concatenate([means, unseen]), spreads, means, counts)


def _spreads(counts: np.ndarray, pseudo: float) -> np.ndarray:
    """Excess uncertainty of the levels, and of an unseen one, (levels + 1,).

    The posterior variance of a level with n rows is a share k / (n + k) of the variance
    between levels, k pseudo rows. Training rows have the average share, and the
    networks learn it as noise. Only the excess is added. It is relative to the variance
    of the posterior means.
    """
    share = pseudo / (counts + pseudo) if pseudo else 0 * counts
    of_rows = np.average(share, weights=counts)
    excess = np.where(share - of_rows > MIN_EXCESS, share - of_rows, 0.0)
    return np.sqrt(np.append(excess / max(1 - of_rows, MIN_VARIANCE), 1.0))


class TextVariances(NamedTuple):
    """Variances of y in the levels of a category.

    Parameters
    ----------
    text : float
        Of the part that the text of a level predicts, for components of norm one.
    level : float
        Of the rest, between levels.
    within : float
        Within levels.
    gain : float
        Logarithm of the marginal likelihood minus its value without text.
    """

    text: float
    level: float
    within: float
    gain: float


def _with_text(counts, sums, components, variances: TextVariances) -> LevelStatistics:
    """Posterior of the levels if similar texts have similar means.

    The mean of a level is Z w + u with w ~ N(0, text) and u ~ N(0, level): a Gaussian
    process with a linear kernel of the components Z, and random effects u [Rasmussen &
    Williams 2006, section 2.7].
    """
    precision = counts / (counts * variances.level + variances.within)
    inner = np.eye(components.shape[1]) + variances.text * (
        components.T @ (precision[:, np.newaxis] * components)
    )
    scaled = sums / (counts * variances.level + variances.within)[:, np.newaxis]
    weights = variances.text * cho_solve(cho_factor(inner), components.T @ scaled)
    predicted = components @ weights
    rest = variances.level * (scaled - precision[:, np.newaxis] * predicted)
    unseen = np.zeros((1, sums.shape[1]))
    pseudo = variances.within / variances.level
    spreads = _spreads(counts, pseudo)
    # The share of the variance between levels that their posterior means have.
    share = np.average(counts / (counts + pseudo), weights=counts)
    return LevelStatistics(
        np.concatenate([predicted + rest, unseen]),
        spreads[:, np.newaxis] + unseen,
        rest,
        counts,
        weights,
        np.full(sums.shape[1], variances.text / variances.level / share),
    )


def text_variances(index, values, weights, components) -> TextVariances:
    """Variances that maximise the marginal likelihood of the means of the levels.

    index : (rows,), level of each row
    values : (rows, columns), with common variances
    weights : (rows,), positive
    components : (levels, components)
    """
    counts = np.bincount(index, weights, len(components))
    seen = np.flatnonzero(counts)
    centred = values - np.average(values, axis=0, weights=weights)
    sums = np.stack(
        [np.bincount(index, weights * v, len(counts))[seen] for v in centred.T], axis=1
    )
    counts, n_rows = counts[seen], counts.sum()
    means = sums / counts[:, np.newaxis]
    squares = (weights[:, np.newaxis] * np.square(centred)).sum()
    total = squares / n_rows / values.shape[1]
    if total == 0:
        return TextVariances(1.0, 1.0, 1.0, 0.0)
    within = squares - (counts[:, np.newaxis] * np.square(means)).sum()
    repeated = n_rows - len(seen)
    # Without repeated levels, only the sum of the variances can be estimated.
    if repeated > MIN_REPEATED * n_rows:
        within = max(within / repeated / values.shape[1], MIN_VARIANCE * total)
    else:
        within = total / 2
    if len(seen) > MAX_LEVELS_OF_LIKELIHOOD:
        chosen = np.random.RandomState(0).choice(
            len(seen), MAX_LEVELS_OF_LIKELIHOOD, replace=False
        )
        seen, means, counts = seen[chosen], means[chosen], counts[chosen]
    loss = _NegativeLogMarginal(means, within / counts, components[seen])
    bounds = [np.log([MIN_VARIANCE * total, MAX_VARIANCE * total])] * 2
    start = np.log([0.3 * total, 0.1 * total])
    best = minimize(loss, start, method="L-BFGS-B", bounds=bounds)
    without = minimize(
        lambda level: loss(np.append(-np.inf, level)),
        best.x[1:],
        method="L-BFGS-B",
        bounds=bounds[1:],
    )
    text, level = np.exp(best.x)
    return TextVariances(
        float(text), float(level), float(within), float(without.fun - best.fun)
    )


class _NegativeLogMarginal:
    """Minus the log density of the means of levels, up to a constant.

    Their covariance is text Z Z' + diag(level + noise).

    Parameters
    ----------
    means : ndarray of shape (levels, columns)
    noise : ndarray of shape (levels,)
        Variance of each mean within its level.
    components : ndarray of shape (levels, components)
        Z.
    """

    def __init__(self, means, noise, components) -> None:
        self._means, self._noise, self._components = means, noise, components

    def __call__(self, logarithms: np.ndarray) -> float:
        """logarithms : of the variances (text, level)"""
        text, level = np.exp(logarithms)
        diagonal = (level + self._noise)[:, np.newaxis]
        scaled = self._means / diagonal
        square = (self._means * scaled).sum()
        determinant = np.log(diagonal).sum()
        if text:
            Z = self._components
            inner = cho_factor(np.eye(Z.shape[1]) + text * (Z.T @ (Z / diagonal)))
            projected = Z.T @ scaled
            square -= text * (projected * cho_solve(inner, projected)).sum()
            determinant += 2 * np.log(np.diag(inner[0])).sum()
        return float(square + self._means.shape[1] * determinant) / 2


def pseudo_rows(index: np.ndarray, values: np.ndarray, weights: np.ndarray) -> float:
    """Prior weight of the overall mean, in rows.

    It is the variance of y within levels, divided by the variance of the true means of
    the levels: the analysis of variance with random effects [Searle, Casella &
    McCulloch 1992, section 3.6].

    index : (rows,), level of each row
    values : (rows, columns); the variances are summed over columns
    weights : (rows,), positive
    """
    counts = np.bincount(index, weights)
    n_levels, n_rows = np.count_nonzero(counts), counts.sum()
    if n_levels < 2 or n_rows <= n_levels:
        return MAX_PSEUDO_ROWS
    centred = values - np.average(values, axis=0, weights=weights)
    sums = np.stack([np.bincount(index, weights * v) for v in centred.T], axis=1)
    total = (weights[:, np.newaxis] * np.square(centred)).sum()
    between = (np.square(sums[counts > 0]) / counts[counts > 0, np.newaxis]).sum()
    within = max(total - between, 0.0) / (n_rows - n_levels)
    effective = (n_rows - np.square(counts).sum() / n_rows) / (n_levels - 1)
    of_means = (between / (n_levels - 1) - within) / effective
    if of_means * MAX_PSEUDO_ROWS <= within:
        return MAX_PSEUDO_ROWS
    return float(within / of_means)
