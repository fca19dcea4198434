"""Out-of-fold predictives -> weights, and one correction of the whole mixture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skbayesnn._distributions.likeliest import LOWEST, map_factor
from skbayesnn._stacking.weights import (
    HOPELESS_BELOW,
    few_weights,
    promising,
    whole_numbers,
)
from skbayesnn._warnings import warn

# Draws of the whole mixture, spread over the candidates by weight.
N_DRAWS = 200
# That are looked at, and by how many nats a row is an outlier: benchmarks/STUDY.md.
FACTORS, OUTLIER = (1 / 7, 7.0), 10.0
# By so many standard deviations the factor moves a draw at most: without a bound one
# candidate that is far off in a row would draw the good ones away from y there.
BOUND = 1.0


@dataclass(frozen=True)
class Stacked:
    """The weighted mixture of the candidates, out of fold.

    Parameters
    ----------
    weights : ndarray of shape (candidates,)
    n_draws : ndarray of shape (candidates,), int
        Draws of the mixture.
    log_density : ndarray of shape (candidates,)
        Mean of each candidate, nats.
    factor : ndarray of shape (targets or 1,)
        The correction of the mixture.
    mixture : MixturePredictive or LabelPredictive
        Of the held-out rows, not corrected.
    """

    weights: np.ndarray
    n_draws: np.ndarray
    log_density: np.ndarray
    factor: np.ndarray
    mixture: Any

    @property
    def corrected(self) -> Any:
        """The mixture, corrected."""
        return corrected(self.mixture, self.factor)


@dataclass(frozen=True)
class OutOfFold:
    """What every candidate says of rows that it has not seen.

    Parameters
    ----------
    predictives : list of MixturePredictive or LabelPredictive
        Of each candidate, of the same rows.
    test_rows : ndarray of shape (rows,), int
        Their numbers in the table.
    table : Rows
        All rows that ``fit`` was given.
    weights : ndarray of shape (rows,)
        Zero also of labels that no candidate can know.
    fold : ndarray of shape (rows,), int
        In which they were held out.
    """

    predictives: Sequence[Any]
    test_rows: np.ndarray
    table: Any
    weights: np.ndarray
    fold: np.ndarray

    @classmethod
    def of(cls, candidates, splits, known, rows) -> "OutOfFold":
        """Of what the candidates say of every fold, by name and fold."""
        predictives = []
        for one in candidates:
            folds = [known[one.name, fold].predictive for fold in range(len(splits))]
            predictives.append(type(folds[0]).of_other_rows(folds))
        test_rows = np.concatenate([test for _, test in splits])
        weights = rows.weights
        trained_on = [train[weights[train] > 0] for train, _ in splits]
        weights = weights[test_rows]
        if not weights.any():
            raise ValueError(
                "the rows that `cv` holds out must have positive weights, at least one "
                "of them; got zeros only."
            )
        if predictives[0].of_classes:
            labels = [
                (rows.y[test], rows.y[train])
                for (_, test), train in zip(splits, trained_on, strict=True)
            ]
            weights = weights * _label_is_known(labels, weights)
        sizes = [len(test) for _, test in splits]
        fold = np.repeat(np.arange(len(splits)), sizes)
        return cls(predictives, test_rows, rows, weights, fold)

    @property
    def y(self) -> np.ndarray:
        """Of the held-out rows, (rows[, targets])."""
        return self.table.y[self.test_rows]

    @property
    def X(self) -> np.ndarray:
        """Of the held-out rows; where they are no array of numbers, of no columns."""
        X = self.table.X
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "iuf":
            return X[self.test_rows]
        return np.empty((len(self.test_rows), 0))

    def by_row(self, values: np.ndarray) -> np.ndarray:
        """Of held-out rows, as of the whole table; NaN where there is none.

        Where a row was held out several times, their mean.
        """
        n_rows = len(self.table.y)
        sums = np.zeros((n_rows, *values.shape[1:]))
        np.add.at(sums, self.test_rows, values)
        times = np.bincount(self.test_rows, minlength=n_rows)
        times = times.reshape(-1, *[1] * (values.ndim - 1))
        with np.errstate(invalid="ignore"):
            return sums / times

    def stacked(self) -> Stacked:
        """Weighted so that the rows are the likeliest, and corrected."""
        log_density = self.log_density()
        kept = promising(log_density, self.weights, *self.spread_and_error())
        weights = np.zeros(len(kept))
        weights[kept] = few_weights(log_density[:, kept], self.weights)
        n_draws = whole_numbers(weights, N_DRAWS)
        mixture = self.mixture(n_draws)
        factor = best_factor(mixture, self.y, self.weights)
        means = np.average(log_density, axis=0, weights=self.weights)
        return Stacked(weights, n_draws, means, factor, mixture)

    def log_density(self) -> np.ndarray:
        """(rows, candidates), nats."""
        values = [one.log_density(self.y) for one in self.predictives]
        return np.maximum(np.stack(values, axis=1), LOWEST)

    def spread_and_error(self):
        """What predictions differ by within a fold, and their errors, as ``promising``.

        Errors are of numbers, and with few rows only.
        """
        y, used = self.y, self.weights > 0
        predicted = [one.mean() for one in self.predictives]
        of_classes = self.predictives[0].of_classes
        if of_classes:
            classes = np.unique(self.table.y)
            predicted = [one.among(classes).mean() for one in self.predictives]
            y = (y[:, None] == classes).astype(float)
        means = np.stack(predicted).reshape(len(predicted), len(y), -1)[:, used]
        y, weights, fold = y.reshape(len(y), -1)[used], self.weights[used], self.fold
        variance = _average(np.square(y - _average(y, weights)), weights)
        varies = variance > 0
        if not varies.any():
            return np.full(len(means), np.inf), None
        spread = np.zeros((len(means), len(variance)))
        for rows in (fold[used] == one for one in np.unique(fold[used])):
            of_fold, share = means[:, rows], weights[rows]
            centre = _average(of_fold, share)[:, None]
            spread += _average(np.square(of_fold - centre), share) * share.sum()
        spread = np.sqrt(spread[:, varies] / weights.sum() / variance[varies]).max(1)
        if of_classes or len(y) >= HOPELESS_BELOW:
            return spread, None
        error = _average(np.square(means - y), weights)
        return spread, (error[:, varies] / variance[varies]).mean(1)

    def mixture(self, n_draws):
        """The mixture with so many draws of each candidate."""
        parts = [
            (one, n) for one, n in zip(self.predictives, n_draws, strict=True) if n
        ]
        return pooled(*zip(*parts, strict=True))


def _average(values, weights) -> np.ndarray:
    """Over the rows, the axis before the last."""
    return np.average(values, axis=-2, weights=weights)


def _label_is_known(of_folds, weights) -> np.ndarray:
    """Whether a held-out row's label is among those trained on, (rows,), bool.

    What no candidate can know tells none from another. Where there is nothing else,
    all are said to be.

    of_folds : labels held out, and labels trained on, of every fold
    """
    known = np.concatenate([np.isin(held, trained) for held, trained in of_folds])
    if not weights[known].any():
        return np.ones(len(known), dtype=bool)
    if n_unknown := np.count_nonzero(weights[~known]):
        held = np.concatenate([held for held, _ in of_folds])
        labels = np.unique(held[~known])
        warn(
            f"{n_unknown} held-out rows have labels that no network out of fold has "
            f"seen: all rows of {labels.tolist()[:10]} are held out at once. Out of "
            "fold they are left out of weights and summary; give each class at least "
            "2 rows, and a `cv` that stratifies them.",
        )
    return known


def pooled(parts, n_draws):
    """The mixture of predictives, each with so many draws."""
    return type(parts[0]).pooled(parts, n_draws=n_draws)


def corrected(mixture, factor, bound: float = BOUND):
    """The mixture, spread by factors per target, or with probabilities to a power."""
    return mixture if np.all(factor == 1) else mixture.corrected(factor, bound)


def best_factor(mixture, y, weights) -> np.ndarray:
    """The correction under which y is the likeliest: (targets or 1,)."""
    densities = mixture.densities_of_factor(y, BOUND)
    if not densities:
        return np.ones(1)
    return np.array([map_factor(one, weights, *FACTORS, OUTLIER) for one in densities])
