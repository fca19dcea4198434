"""Scores of calibration rows, and the intervals that follow from them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from skbayesnn import _stored as stored
from skbayesnn._runtime import warn
from skbayesnn._typing import Array

# Rows predicted at a time: each needs two bounds per calibration row.
BLOCK = 512
# In floating point 1 - 0.9 is less than 0.1, which would change the rank by one.
NUDGE = 1e-12
# A group with fewer rows also takes scores of the other groups. With 50 rows, chance
# changes the coverage of a 90 % interval by 4 points, about as much as groups differ.
FULL_GROUP = 50
# Largest step of a level after one update. Rows of a day are often missed together;
# with larger steps many intervals are then infinite.
LARGEST_STEP = 0.1

_Names = Annotated[Array, stored.Kinds("strings", "U")]


@dataclass(frozen=True)
class Calibration:
    """Calibration rows, the oldest first, and rows of updates.

    Parameters
    ----------
    scores : ndarray of shape (rows,)
        How far y is from its prediction, in the units of its row.
    models : ndarray of shape (rows,)
        Index of the model that predicted the row, and was not fitted to it.
    groups : ndarray of shape (rows,)
        Group of each row; all are empty without groups.
    ratios : ndarray of shape (rows,)
        Density of new rows, divided by the density of calibration rows.
    needed : ndarray of shape (updates,)
        Share below which the level of an interval does not contain y.
    needed_groups : ndarray of shape (updates,)
        Group of each row of ``needed``.
    is_last : ndarray of shape (updates,)
        Whether a row is the last of its group in one call of ``update``.
    """

    scores: Annotated[stored.Floats, "rows", stored.NOT_NEGATIVE]
    models: Annotated[stored.Integers, "rows", stored.NOT_NEGATIVE]
    groups: Annotated[_Names, "rows"]
    ratios: Annotated[stored.Floats, "rows", stored.NOT_NEGATIVE]
    needed: Annotated[stored.Floats, "updates", stored.SHARE]
    needed_groups: Annotated[_Names, "updates"]
    is_last: Annotated[stored.Bools, "updates"]

    @classmethod
    def of(cls, scores, models, groups, ratios) -> "Calibration":
        """Calibration rows without updates."""
        return cls(
            scores, models, groups, ratios, np.zeros(0), groups[:0], np.zeros(0, bool)
        )

    def weights(self, group: str) -> np.ndarray:
        """Weight of each row for new rows of a group, (rows,).

        Rows of the group have weight one. If they are fewer than ``FULL_GROUP``, all
        others together count as the rows that are missing. A group without rows takes
        all rows.
        """
        in_group = self.groups == group
        n_others = int(np.count_nonzero(~in_group))
        missing = max(0, FULL_GROUP - (len(in_group) - n_others))
        share = min(1.0, missing / max(1, n_others)) if in_group.any() else 1.0
        return self.ratios * np.where(in_group, 1.0, share)

    def level(self, coverage: float, group: str, step_size: float) -> float:
        """Level of the next intervals of a group, by all updates before.

        After an update of m rows it moves by m times the step size, but at most by
        ``LARGEST_STEP``, times the difference of the shares of missed and of expected
        misses [Gibbs & Candes 2021, eq. 2]. It may leave (0, 1).
        """
        key = coverage, group, step_size
        level, n_before = self._levels.get(key, (coverage, 0))
        missed, n = 0, 0
        rows = n_before + np.flatnonzero(self.needed_groups[n_before:] == group)
        for needed, is_last in zip(
            self.needed[rows].tolist(), self.is_last[rows].tolist(), strict=True
        ):
            missed += needed >= level - NUDGE
            n += 1
            if is_last:
                step = min(n * step_size, LARGEST_STEP)
                level += step * (missed / n - (1 - coverage))
                missed = n = 0
        self._levels[key] = level, len(self.needed)
        return level

    @cached_property
    def _levels(self) -> dict:
        """Levels so far, by the arguments of ``level``, and the updates before them."""
        return {}

    def __getstate__(self) -> dict:
        """State without levels, which are computed again."""
        return {name: v for name, v in vars(self).items() if name != "_levels"}

    def followed_by(self, scores, models, groups, needed, window) -> "Calibration":
        """The same with further rows; the latest ``window`` rows of a group are kept.

        The further rows were predicted before one of them was known.
        """
        joined = (
            np.concatenate([old, new])
            for old, new in (
                (self.scores, scores),
                (self.models, models),
                (self.groups, groups),
                (self.ratios, np.ones(len(scores))),
            )
        )
        all_scores, all_models, all_groups, ratios = joined
        names = np.unique(all_groups)
        latest = [np.flatnonzero(all_groups == name)[-window:] for name in names]
        kept = np.sort(np.concatenate(latest))
        is_last = np.zeros(len(scores), bool)
        is_last[[np.flatnonzero(groups == name)[-1] for name in np.unique(groups)]] = 1
        followed = replace(
            self,
            scores=all_scores[kept],
            models=all_models[kept],
            groups=all_groups[kept],
            ratios=ratios[kept],
            needed=np.concatenate([self.needed, needed]),
            needed_groups=np.concatenate([self.needed_groups, groups]),
            is_last=np.concatenate([self.is_last, is_last]),
        )
        followed._levels.update(self._levels)
        return followed


def warn_of_few(n_rows: float, coverage: float, place: str = "") -> None:
    """Warn if the calibration rows are too few for a coverage."""
    if (coverage - NUDGE) * (n_rows + 1) > n_rows:
        warn(
            "SKB402",
            f"A coverage of {coverage:g} needs at least "
            f"{int(np.ceil(coverage / (1 - coverage) - NUDGE))} calibration rows; got "
            f"{n_rows:.4g}{place}: intervals are infinite, and label sets contain "
            "every label.",
        )


def quantiles(scores, weights, own, level: float) -> np.ndarray:
    """Score that a share of the weight does not exceed, for each new row, (rows,).

    It is infinite if the calibration rows have less weight [Tibshirani, Barber, Candes
    & Ramdas 2019, "Conformal prediction under covariate shift", eq. 7].

    scores, weights : of the calibration rows, (calibration rows,)
    own : weight of each new row, whose score is infinite, (rows,)
    """
    order = np.argsort(scores)
    weight = weights[order].cumsum()
    rank = np.searchsorted(weight, (level - NUDGE) * (weight[-1] + own))
    return np.append(scores[order], np.inf)[rank]


def cross_intervals(predicted, scores, levels, weights=None, own=None) -> np.ndarray:
    """CV+ intervals, (rows, targets, levels, 2); Barber et al. 2021, eq. 11.

    With a single fold they are split conformal intervals. A level of 0 or less gives
    intervals of width zero.

    predicted : mean and std of the model of each fold, (rows, targets)
    scores : standardised absolute residuals of the rows of each fold, by target
    levels : coverages
    weights : of all calibration rows, fold by fold; None for equal ones
    own : weight of each new row, (rows,)
    """
    n_rows, n_targets = predicted[0][0].shape
    n = sum(map(len, scores))
    weights = np.ones(n) if weights is None else weights
    own = np.ones(n_rows) if own is None else own
    result = np.empty((n_rows, n_targets, len(levels), 2))
    middle = np.mean([mean for mean, _ in predicted], axis=0)
    for i, level in enumerate(levels):
        if level <= 0:
            result[:, :, i] = middle[..., None]
        elif len(predicted) == 1:
            [(mean, std)], [values] = predicted, scores
            radius = np.stack(
                [quantiles(column, weights, own, level) for column in values.T], axis=1
            )
            half = np.full_like(radius, np.inf)
            np.multiply(std, radius, out=half, where=np.isfinite(radius))
            result[:, :, i] = np.stack([mean - half, mean + half], axis=-1)
    if len(predicted) > 1:
        for start in range(0, n_rows, BLOCK):
            rows = slice(start, start + BLOCK)
            upper, minus_lower = _ends(predicted, scores, rows)
            for i, level in enumerate(levels):
                if level > 0:
                    mass = (level - NUDGE) * (weights.sum() + own[rows])
                    result[rows, :, i, 0] = -_reaching(minus_lower, weights, mass)
                    result[rows, :, i, 1] = _reaching(upper, weights, mass)
    # CV+ intervals of low levels may be empty.
    is_empty = result[..., 0] > result[..., 1]
    result[is_empty] = result[is_empty].mean(-1, keepdims=True)
    return result


def levels_needed(predicted, scores, y, weights, own) -> np.ndarray:
    """Largest levels whose CV+ intervals do not contain y, (rows,).

    Arguments are those of ``cross_intervals``; of one target.
    """
    result = np.empty(len(y))
    for start in range(0, len(y), BLOCK):
        rows = slice(start, start + BLOCK)
        upper, minus_lower = (e[..., 0] for e in _ends(predicted, scores, rows))
        value = y[rows, None]
        missed = np.maximum((upper < value) @ weights, (minus_lower < -value) @ weights)
        result[rows] = missed / (weights.sum() + own[rows])
    return result


def _ends(predicted, scores, rows):
    """Upper ends, and lower ends times -1, (rows, calibration rows, targets)."""
    return (
        np.concatenate(
            [
                sign * mean[rows, None] + std[rows, None] * values
                for (mean, std), values in zip(predicted, scores, strict=True)
            ],
            axis=1,
        )
        for sign in (1, -1)
    )


def _reaching(values, weights, mass) -> np.ndarray:
    """Smallest value up to which the weight is the mass, or inf; (rows, targets).

    values : (rows, calibration rows, targets)
    weights : (calibration rows,)
    mass : (rows,)
    """
    n = len(weights)
    ranks = np.ceil(mass / weights[0])
    if (weights == weights[0]).all() and (ranks == ranks[0]).all():
        rank = int(ranks[0])
        if rank > n:
            return np.full(values[:, 0].shape, np.inf)
        return np.partition(values, rank - 1, axis=1)[:, rank - 1]
    order = values.argsort(axis=1)
    position = (weights[order].cumsum(1) < mass[:, None, None]).sum(1, keepdims=True)
    chosen = np.take_along_axis(order, np.minimum(position, n - 1), axis=1)
    found = np.take_along_axis(values, chosen, axis=1)
    return np.where(position < n, found, np.inf)[:, 0]
