"""Estimate the weights of the candidates, and a correction of their mixture.

The weights maximise the density of out-of-fold rows. The correction is a factor on the
spread, or a temperature. Out of fold a candidate is one network; refitted to all rows
it is several, from different starts. Their mean has a smaller error, and their mixture
is wider; the correction accounts for this. NumPy, float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skbayesnn._distributions.map_factor import LOWEST, map_factor
from skbayesnn._runtime import warn

# ---- weights

# Rows that the prior counts as, each shared out among all candidates alike.
PRIOR_ROWS = 3.0
# Candidates with less weight are left out.
SMALLEST_WEIGHT = 0.02
# EM stops where no weights can have a mean log density that is higher by more, nats.
TOLERANCE = 1e-6
MOST_STEPS = 10_000
# Predictions are constant whose standard deviation is less than this share of y's.
CONSTANT = 0.05
# With fewer rows a candidate is hopeless if its squared error is so many times the
# least. With more rows the weights are certain enough by themselves.
HOPELESS_BELOW, HOPELESS = 150, 3.0
# Log densities that are equal to rounding, nats.
EQUAL = 1e-6


def promising(
    log_density: np.ndarray,
    row_weights: np.ndarray,
    spread: np.ndarray,
    error: np.ndarray | None = None,
) -> np.ndarray:
    """Which candidates can have weight, (candidates,), bool.

    The prior of the weights, and one row that lies far off, would give some to each. In
    a mixture of a good candidate with a constant one, the difference between draws is
    the distance to the mean of y.

    - Constant predictions are left out, but for the likeliest one if no others are
      likelier.
    - Of equal candidates the first one stays.
    - With ``error``, candidates are left out whose error is ``HOPELESS`` times the
      least one, but for the likeliest.

    log_density : (rows, candidates); row_weights : (rows,)
    spread : (candidates,), standard deviation of predictions as a share of y's
    error : (candidates,), mean squared error, in any unit
    """
    mean = np.average(log_density, axis=0, weights=row_weights)
    best = int(mean.argmax())
    kept = spread >= CONSTANT
    kept[best] = True
    if error is not None:
        kept &= error <= HOPELESS * error[kept].min()
        kept[best] = True
    for i in np.flatnonzero(kept):
        others = log_density[:, :i][:, kept[:i]]
        apart = np.abs(others - log_density[:, [i]]).max(0, initial=0)
        kept[i] = not (apart <= EQUAL).any()
    return kept


def stacking_weights(
    log_density: np.ndarray, row_weights: np.ndarray, prior_rows: float = PRIOR_ROWS
) -> np.ndarray:
    """Weights of the mixture that makes the rows the likeliest, (candidates,).

    Maximises sum_i v_i log sum_k w_k p_k(y_i | x_i) + a sum_k log w_k over the
    simplex [Yao, Vehtari, Simpson & Gelman 2018, "Using stacking to average Bayesian
    predictive distributions", Bayesian Analysis 13(3), eq. 4], with a Dirichlet prior
    of a = ``prior_rows`` / candidates: few rows do not give all to one candidate. It
    is concave; EM for the weights of a mixture gets there.

    log_density : (rows, candidates), log p_k(y_i | x_i) without row i's fold, nats
    row_weights : (rows,), v, not negative
    """
    n_candidates = log_density.shape[1]
    total = row_weights.sum()
    share, prior = row_weights / total, prior_rows / (n_candidates * total)
    # Relative to each row's best: a row that all deem impossible says nothing.
    best = log_density.max(1, keepdims=True)
    known = np.isfinite(best[:, 0])
    density = np.exp(log_density[known] - best[known])
    share = share[known]
    weights = np.full(n_candidates, 1 / n_candidates)
    for _ in range(MOST_STEPS):
        # Of the objective, divided by the total weight of the rows.
        gradient = (share / (density @ weights)) @ density + prior / weights
        weights_next = weights * gradient
        # A concave function lies below its tangents: so much may be left to gain.
        left = gradient.max() - weights_next.sum()
        weights = weights_next / weights_next.sum()
        if left < TOLERANCE:
            break
    return weights


def few_weights(log_density: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
    """``stacking_weights`` of the candidates that get some, (candidates,).

    What has less than ``SMALLEST_WEIGHT`` gets none: it would be fitted to all rows for
    as much as the others cost.
    """
    weights = stacking_weights(log_density, row_weights)
    kept = weights >= min(SMALLEST_WEIGHT, weights.max())
    few = np.zeros_like(weights)
    few[kept] = stacking_weights(log_density[:, kept], row_weights)
    return few


def whole_numbers(weights: np.ndarray, total: int) -> np.ndarray:
    """Weights as whole numbers that sum to ``total``, by largest remainders."""
    exact = weights / weights.sum() * total
    numbers = np.floor(exact).astype(int)
    most = np.argsort(numbers - exact, kind="stable")[: total - numbers.sum()]
    numbers[most] += 1
    return numbers


# ---- the mixture and its correction

# Draws of the whole mixture, spread over the candidates by weight.
N_DRAWS = 200
# That are looked at, and by how many nats a row is an outlier: docs/defaults.md,
# "Stacks: correction of the mixture".
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
    mixture : MixturePredictive or ClassPredictive
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
    predictives : list of MixturePredictive or ClassPredictive
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
            predictives.append(type(folds[0]).concatenate_rows(folds))
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


# ---- the effect of several starts on error and spread

# Of the factor that held-out rows ask for, whatever is taken off.
LEAST_LEFT = 0.5


def factor_with_starts(
    factor: np.ndarray, taken_off: np.ndarray, row_weights: np.ndarray
) -> np.ndarray:
    """The correction of the mixture of more starts, (targets,).

    v is the mixture's variance, and d what more starts take off the squared error of
    its mean, and add to v. Where factor^2 (v - d) was the expected squared error, it is
    factor^2 (v - d) - d now: v times factor^2 (1 - d / v) - d / v.

    factor : (targets,), of the mixture out of fold
    taken_off : (rows, targets), d / v
    row_weights : (rows,)
    """
    ratio = np.maximum(np.average(taken_off, axis=0, weights=row_weights), 0)
    square = np.square(factor)
    least = np.square(LEAST_LEFT) * square
    return np.sqrt(np.maximum(square * (1 - ratio) - ratio, least))


def share_of_starts(
    parts: Sequence[Any],
    n_draws: Sequence[int],
    n_before: Sequence[int],
    n_now: Sequence[int],
) -> np.ndarray:
    """What more starts take off the squared error, in units of the variance: d / v.

    Starts of candidate c differ by V_c(x), independently. With its weight w_c, and n_c
    of them in place of k_c, d(x) = sum_c w_c^2 V_c(x) (1 / k_c - 1 / n_c). On training
    rows starts agree more than elsewhere, so that rather too little is taken off.

    parts : MixturePredictive of each candidate, of the same rows, fitted to all rows
    n_draws : of each in the mixture
    n_before, n_now : networks of each, out of fold and now
    returns : (rows, targets)
    """
    mixture = pooled(parts, n_draws).components
    share = np.asarray(n_draws) / np.sum(n_draws)
    taken_off = np.zeros(mixture.mean.shape[1:])
    for part, w, before, now in zip(parts, share, n_before, n_now, strict=True):
        if now > before:
            difference = 1 / before - 1 / now
            taken_off += w**2 * variance_of_starts(part, now) * difference
    return taken_off / (mixture.variance.mean(0) + mixture.mean.var(0))


def variance_of_starts(part, n_networks: int) -> np.ndarray:
    """Of the mean of a network's draws about that of all, unbiased, (rows, targets).

    Where each network has one draw, the spread of draws is in it.

    part : MixturePredictive, the networks side by side within every draw
    """
    means = part.components.mean
    means = means.reshape(-1, n_networks, *means.shape[1:])
    variance = means.mean(0).var(0, ddof=1)
    n_draws = len(means)
    if n_draws == 1:
        return variance
    return variance - means.var(0, ddof=1).mean(0) / n_draws
