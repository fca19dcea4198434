"""Estimate the weights of the candidates, and a correction of their mixture.

The weights maximise the log density of out-of-fold rows, or minimise their CRPS, or are
a weighted mean of both. The correction is a factor on the spread, or a temperature. Out
of fold a candidate is one network; refitted to all rows it is several, from different
starts. Their mean has a smaller error, and their mixture is wider; the correction
accounts for this. NumPy, float64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.special import logsumexp

from skbayesnn._batch.outcomes import ResultStore
from skbayesnn._data.target import latent_values
from skbayesnn._distributions.cells import Cells
from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.crps import (
    gaussian_mixture_distance,
    sample_distance,
    spread_levels,
)
from skbayesnn._distributions.map_factor import MIN_LOG_DENSITY, map_estimate
from skbayesnn._distributions.recorded import recorded
from skbayesnn._predictive.mixture import in_space
from skbayesnn._runtime import warn
from skbayesnn.estimators._diagnostics import some_rows

# ---- weights

# Rows that the Dirichlet prior of the weights is worth, over all candidates.
PRIOR_ROWS = 3.0
# Candidates with a smaller weight are dropped.
MIN_WEIGHT = 0.02
# Largest loss of log density because of this, nats per row.
MAX_LOSS = 0.02
# EM stops if no weights can increase the mean log density by more than this, nats.
TOLERANCE = 1e-6
MAX_STEPS = 10_000
# Predictions count as constant if their standard deviation is below this share of y's.
CONSTANT = 0.05
# With fewer rows, candidates with a large error are dropped. With more rows, the rows
# determine the weights well enough.
CHECK_ERROR_BELOW = 150
# A squared error is large if it exceeds this multiple of the smallest squared error.
MAX_ERROR_RATIO = 3.0
# Share of the weights that minimise the CRPS, in weights by log density.
CRPS_SHARE = 0.25
# Log densities that differ by less are equal up to rounding, nats.
EQUAL = 1e-6
# At most this many rows times targets, and draws, determine weights by CRPS.
CRPS_LIMITS = 2_000, 50
# The same for ``CRPS_SHARE``, and to find candidates that are worse than a constant.
CHECK_LIMITS = 500, 20
# Number of quantiles that represent a distribution that is not normal.
N_LEVELS = 100
# Number of quantiles of its draws from which these are interpolated.
N_POINTS = 3 * N_LEVELS


def useful_candidates(
    log_density: np.ndarray,
    row_weights: np.ndarray,
    spread: np.ndarray,
    error: np.ndarray | None = None,
) -> np.ndarray:
    """Select the candidates that may have a positive weight, (candidates,), bool.

    The prior of the weights, or one outlier, would give every candidate some weight. A
    constant candidate would add a spread between its constant and the other
    predictions. This spread is not uncertainty.

    - Candidates with constant predictions are dropped, unless they have the largest
      log density.
    - Of equal candidates the first one is kept.
    - With ``error``, candidates are dropped if it exceeds ``MAX_ERROR_RATIO`` times the
      smallest one, unless they have the largest log density.

    log_density : (rows, candidates); row_weights : (rows,)
    spread : (candidates,), standard deviation of predictions as a share of y's
    error : (candidates,), mean squared error, in any unit
    """
    mean = np.average(log_density, axis=0, weights=row_weights)
    best = int(mean.argmax())
    kept = spread >= CONSTANT
    kept[best] = True
    if error is not None:
        kept &= error <= MAX_ERROR_RATIO * error[kept].min()
        kept[best] = True
    for i in np.flatnonzero(kept):
        earlier = log_density[:, :i][:, kept[:i]]
        difference = np.abs(earlier - log_density[:, [i]]).max(0, initial=0)
        kept[i] = not (difference <= EQUAL).any()
    return kept


def stacking_weights(
    log_density: np.ndarray, row_weights: np.ndarray, prior_rows: float = PRIOR_ROWS
) -> np.ndarray:
    """Weights that maximise the log density of the mixture, (candidates,).

    Maximises sum_i v_i log sum_k w_k p_k(y_i | x_i) + a sum_k log w_k over the
    simplex [Yao, Vehtari, Simpson & Gelman 2018, "Using stacking to average Bayesian
    predictive distributions", Bayesian Analysis 13(3), eq. 4]. The Dirichlet prior
    with a = ``prior_rows`` / candidates prevents that few rows give all weight to one
    candidate. The objective is concave; EM for mixture weights maximises it.

    log_density : (rows, candidates), log p_k(y_i | x_i) without row i's fold, nats
    row_weights : (rows,), v, not negative
    """
    n_candidates = log_density.shape[1]
    total = row_weights.sum()
    share, prior = row_weights / total, prior_rows / (n_candidates * total)
    # Densities relative to the best candidate of each row. Ignore rows with density
    # zero under all candidates.
    best = log_density.max(1, keepdims=True)
    possible = np.isfinite(best[:, 0])
    density = np.exp(log_density[possible] - best[possible])
    share = share[possible]
    weights = np.full(n_candidates, 1 / n_candidates)
    for _ in range(MAX_STEPS):
        # Gradient of the objective divided by the total weight of the rows.
        gradient = (share / (density @ weights)) @ density + prior / weights
        weights_next = weights * gradient
        # A concave function lies below its tangents, which bound the remaining gain.
        largest_gain = gradient.max() - weights_next.sum()
        weights = weights_next / weights_next.sum()
        if largest_gain < TOLERANCE:
            break
    return weights


def sparse_stacking_weights(
    log_density: np.ndarray, row_weights: np.ndarray
) -> np.ndarray:
    """``stacking_weights`` without candidates of little weight, (candidates,).

    Candidates with less than ``MIN_WEIGHT`` get zero, because a refit costs as much for
    them as for others. The largest of them are kept if the mean log density would fall
    by more than ``MAX_LOSS`` without them: they may be the only ones with a density in
    a few rows.
    """
    weights = stacking_weights(log_density, row_weights)

    def mean_density(weights):
        with np.errstate(divide="ignore"):
            density = logsumexp(log_density + np.log(weights), axis=1)
        return np.average(density, weights=row_weights)

    least = mean_density(weights) - MAX_LOSS
    order = np.argsort(-weights, kind="stable")
    first = np.count_nonzero(_with_weight(weights))
    sparse_weights = weights
    for n_kept in range(first, len(weights) + 1):
        kept = order[:n_kept]
        sparse_weights = np.zeros_like(weights)
        sparse_weights[kept] = stacking_weights(log_density[:, kept], row_weights)
        # A smaller weight than of half a draw is no draw.
        has_draws = bool((sparse_weights[kept] * N_DRAWS >= 0.5).all())
        if mean_density(sparse_weights) >= least or not has_draws:
            break
    return sparse_weights


def _with_weight(weights: np.ndarray) -> np.ndarray:
    """Whether a candidate has enough weight for a refit, (candidates,), bool."""
    return weights >= min(MIN_WEIGHT, weights.max())


def crps_weights(scores: np.ndarray) -> np.ndarray:
    """Weights that minimise the mean CRPS of the mixture, (candidates,).

    The CRPS of a mixture is w' G w, where G_kl is the integral of (F_k(z) - 1[y <= z])
    (F_l(z) - 1[y <= z]) over z, averaged over rows. Let R' R = G. Nonnegative least
    squares minimises |R v|^2 + (sum(v) - 1)^2. Along v = t w, with sum(w) = 1, the
    minimum is w' G w / (1 + w' G w), so that v / sum(v) minimises w' G w.

    Candidates with less than ``MIN_WEIGHT`` get zero.

    scores : G, (candidates, candidates)
    """
    weights = _on_simplex(scores)
    kept = _with_weight(weights)
    sparse_weights = np.zeros_like(weights)
    sparse_weights[kept] = _on_simplex(scores[np.ix_(kept, kept)])
    return sparse_weights


def _on_simplex(scores: np.ndarray) -> np.ndarray:
    """Minimise a quadratic form over the simplex; see ``crps_weights``."""
    # Both terms of the loss get the same order of magnitude.
    scale = np.trace(scores) / len(scores)
    values, vectors = np.linalg.eigh(scores / scale if scale > 0 else scores)
    root = np.sqrt(values.clip(0))[:, None] * vectors.T
    system = np.vstack([root, np.ones(len(scores))])
    solution, _ = nnls(system, np.append(np.zeros(len(scores)), 1.0))
    return solution / solution.sum()


def crps_products(parts: Sequence[Any], y, row_weights) -> np.ndarray:
    """G of ``crps_weights``, (candidates, candidates): E|X_k - y| and E|X_k - X_l|.

    G_kl = (E|X_k - y| + E|X_l - y| - E|X_k - X_l|) / 2. Targets are divided by their
    standard deviations.

    parts : Components of each candidate, (draws, rows, targets)
    y : (rows, targets); row_weights : (rows,)
    """
    scale = np.sqrt(_average(np.square(y - _average(y, row_weights)), row_weights))
    scale = np.where(scale > 0, scale, 1.0)

    def mean(distance):
        return float(np.mean(_average(distance, row_weights) / scale))

    if all(isinstance(part, Gaussians) for part in parts):
        moments = [(part.mean, part.variance) for part in parts]
        point = y[None], np.zeros_like(y[None])
        to_y = [mean(gaussian_mixture_distance(*m, *point)) for m in moments]

        def between(i, j):
            return mean(gaussian_mixture_distance(*moments[i], *moments[j]))
    else:
        levels, shares = spread_levels(N_LEVELS)
        points = [part.fast_quantiles(levels, N_POINTS) for part in parts]
        to_y = [mean(np.tensordot(shares, np.abs(p - y), 1)) for p in points]

        def between(i, j):
            return mean(sample_distance(points[i], points[j], shares))

    products = np.add.outer(to_y, to_y)
    for i in range(len(parts)):
        for j in range(i + 1):
            products[i, j] -= between(i, j)
            products[j, i] = products[i, j]
    return products / 2


def round_to_total(weights: np.ndarray, total: int) -> np.ndarray:
    """Round weights to integers that sum to ``total``, by largest remainders."""
    exact = weights / weights.sum() * total
    rounded = np.floor(exact).astype(int)
    order = np.argsort(rounded - exact, kind="stable")
    rounded[order[: total - rounded.sum()]] += 1
    return rounded


# ---- the mixture and its correction

# Draws of the whole mixture, allocated to the candidates by weight.
N_DRAWS = 200
# Range of the correction (docs/defaults.md, "Stacks: correction of the mixture").
FACTORS = (1 / 7, 7.0)
# Rows with a log density this many nats below most rows are outliers.
OUTLIER = 10.0
# The factor moves a draw by at most this many standard deviations. Without a bound, a
# candidate with a large error in a row would move the other candidates away from y.
BOUND = 1.0


@dataclass(frozen=True)
class Stacked:
    """Weighted mixture of the candidates, out of fold.

    Parameters
    ----------
    weights : ndarray of shape (candidates,)
    n_draws : ndarray of shape (candidates,), int
        Draws of each candidate in the mixture.
    scores : dict of ndarray of shape (candidates,)
        ``"log_density"``, the mean in nats, and for regression ``"crps"``.
    factor : ndarray of shape (targets or 1,)
        Correction of the mixture.
    mixture : MixturePredictive or ClassPredictive
        Prediction of the held-out rows, without the correction.
    """

    weights: np.ndarray
    n_draws: np.ndarray
    scores: dict[str, np.ndarray]
    factor: np.ndarray
    mixture: Any

    @property
    def corrected(self) -> Any:
        """Mixture with its correction."""
        return corrected(self.mixture, self.factor)


@dataclass(frozen=True)
class OutOfFold:
    """Out-of-fold predictions of all candidates.

    Parameters
    ----------
    predictives : list of MixturePredictive or ClassPredictive
        Prediction of the held-out rows by each candidate.
    test_rows : ndarray of shape (rows,), int
        Indices of the held-out rows in ``data``.
    data : StackData
        Arguments of ``fit``.
    weights : ndarray of shape (rows,)
        Weights of the held-out rows; zero for labels missing from the training rows.
    fold : ndarray of shape (rows,), int
        Fold in which each row was held out.
    noise : dict
        Of regressors of other libraries, by the name of the candidate: the argument of
        their ``set_noise``.
    """

    predictives: Sequence[Any]
    test_rows: np.ndarray
    data: Any
    weights: np.ndarray
    fold: np.ndarray
    noise: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_outcomes(cls, candidates, splits, store: ResultStore, data) -> "OutOfFold":
        """Join the predictions of the folds.

        store : outcomes whose result is a :class:`HeldOutPrediction`
        """
        predictives, models = [], []
        for candidate in candidates:
            outcomes = store.outcomes([candidate.name], range(len(splits)))
            parts = [outcome.results[0].predictive for outcome in outcomes]
            predictives.append(type(parts[0]).concatenate_rows(parts))
            models.append(outcomes[0].results[0].estimator)
        test_rows = np.concatenate([test for _, test in splits])
        weights = data.weights
        trained_on = [train[weights[train] > 0] for train, _ in splits]
        weights = weights[test_rows]
        if not weights.any():
            raise ValueError(
                "at least one row that `cv` holds out must have a positive weight; got "
                "zeros only."
            )
        if predictives[0].is_classification:
            labels = [
                (data.y[test], data.y[train])
                for (_, test), train in zip(splits, trained_on, strict=True)
            ]
            weights = weights * _has_known_label(labels, weights)
        sizes = [len(test) for _, test in splits]
        fold = np.repeat(np.arange(len(splits)), sizes)
        y, noise = np.asarray(data.y)[test_rows], {}
        for i, model in enumerate(models):
            space = candidates[i].spec.space
            if hasattr(model, "with_noise_of"):
                latent = latent_values(y, space, weights)
                predictives[i], noise[candidates[i].name] = model.with_noise_of(
                    predictives[i], latent, weights, fold
                )
            predictives[i] = in_space(predictives[i], space)
        return cls(predictives, test_rows, data, weights, fold, noise)

    @property
    def y(self) -> np.ndarray:
        """Targets of the held-out rows, (rows[, targets])."""
        return self.data.y[self.test_rows]

    @property
    def X(self) -> np.ndarray:
        """Held-out rows of X; without columns if X is not a numeric array."""
        X = self.data.X
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "iuf":
            return X[self.test_rows]
        return np.empty((len(self.test_rows), 0))

    def by_row(self, values: np.ndarray) -> np.ndarray:
        """Scatter values of the held-out rows to all rows; NaN for other rows.

        A row that was held out several times gets the mean.
        """
        n_rows = len(self.data.y)
        sums = np.zeros((n_rows, *values.shape[1:]))
        np.add.at(sums, self.test_rows, values)
        counts = np.bincount(self.test_rows, minlength=n_rows)
        counts = counts.reshape(-1, *[1] * (values.ndim - 1))
        with np.errstate(invalid="ignore"):
            return sums / counts

    def stacked(self, score: str = "log_density") -> Stacked:
        """Estimate the weights of the candidates and the correction of the mixture.

        Weights of regressors by log density contain a share of ``CRPS_SHARE`` that
        minimises the CRPS, among candidates that have weight by log density.

        score : "log_density" or "crps", of which the weights are the optimum
        """
        log_density = self.log_density()
        kept = useful_candidates(log_density, self.weights, *self.spread_and_error())
        # Classes and intervals have no CRPS.
        has_no_crps = self.predictives[0].is_classification or (
            self.data.intervals is not None
        )
        crps = None if has_no_crps else self.crps()
        if crps is not None:
            is_better = crps[1:] < crps[0]
        elif (constant := self._constant()) is not None:
            is_better = self.weights @ log_density > self.weights @ constant
        else:
            is_better = np.ones(len(kept), bool)
        for condition in (log_density > MIN_LOG_DENSITY).any(0), is_better:
            if (kept & condition).any():
                kept &= condition
        weights = np.zeros(len(kept))
        weights[kept] = (
            sparse_stacking_weights(log_density[:, kept], self.weights)
            if score == "log_density"
            else crps_weights(self.crps_products(np.flatnonzero(kept)))
        )
        if score == "log_density" and crps is not None:
            used = np.flatnonzero(weights)
            products = self.crps_products(used, CHECK_LIMITS)
            # They may be infinite if no candidate is better than a constant.
            if np.isfinite(products).all():
                weights *= 1 - CRPS_SHARE
                weights[used] += CRPS_SHARE * crps_weights(products)
        n_draws = round_to_total(weights, N_DRAWS)
        mixture = self.mixture(n_draws)
        factor = best_factor(mixture, self.observed, self.weights)
        means = np.average(log_density, axis=0, weights=self.weights)
        scores = {"log_density": means} | ({} if crps is None else {"crps": crps[1:]})
        return Stacked(weights, n_draws, scores, factor, mixture)

    @cached_property
    def observed(self) -> np.ndarray | Cells:
        """Labels or counts of the held-out rows, (rows,), or the cells of real y."""
        predictive = self.predictives[0]
        if predictive.is_classification or predictive.counts:
            return self.y
        if self.data.intervals is not None:
            rows = self.data.intervals[self.test_rows]
            return Cells(rows["lower"][:, None], rows["upper"][:, None])
        y = np.asarray(self.data.y, dtype=np.float64).reshape(len(self.data.y), -1)
        return Cells.of(y[self.test_rows], y[self.data.weights > 0], self._errors())

    def _errors(self) -> np.ndarray:
        """Smallest mean absolute error of a candidate on held-out rows, (targets,)."""
        held_out = self.y.reshape(len(self.y), -1)
        errors = [
            _average(
                np.abs(predictive.mean().reshape(held_out.shape) - held_out),
                self.weights,
            )
            for predictive in self.predictives
        ]
        return np.nanmin(errors, axis=0)

    def log_density(self) -> np.ndarray:
        """Log density of the held-out rows, (rows, candidates), nats."""
        values = [part.log_density(self.observed) for part in self.predictives]
        # A density that is NaN counts as zero, too.
        return np.fmax(np.stack(values, axis=1), MIN_LOG_DENSITY)

    def _constant(self) -> np.ndarray | None:
        """Log density of lifetimes without columns, (rows,); None of other y."""
        space, shape = self.data.target.quantiles, (1, len(self.y), 1)
        if space is None or space.knots is None:
            return None
        marginal = recorded(Gaussians(np.zeros(shape), np.ones(shape)), (space,))
        return marginal.mixture_log_density(*self.observed)

    def crps_products(
        self, candidates: np.ndarray, limits: tuple[int, int] = CRPS_LIMITS
    ) -> np.ndarray:
        """``crps_products`` of some candidates, from a subset of rows and draws.

        limits : largest number of rows times targets, and of draws
        """
        y, weights, parts = self._subset(candidates, *limits)
        return crps_products(parts, y, weights)

    def crps(self) -> np.ndarray:
        """Mean CRPS of a normal distribution of all y, and of each candidate.

        It is computed from a subset of rows and draws, in standard deviations of y.
        """
        y, weights, parts = self._subset(
            np.arange(len(self.predictives)), *CHECK_LIMITS
        )
        mean = _average(y, weights)
        variance = _average(np.square(y - mean), weights)
        variance = np.where(variance > 0, variance, 1.0)
        constant = Gaussians(*(np.tile(v, (1, len(y), 1)) for v in (mean, variance)))
        scores = [crps_products([p], y, weights).item() for p in (constant, *parts)]
        return np.array(scores)

    def _subset(self, candidates, most: int, most_draws: int) -> tuple:
        """Targets, weights, and the candidates' distributions.

        most : largest number of rows times targets
        """
        y = self.y.reshape(len(self.y), -1)
        rows = some_rows(np.flatnonzero(self.weights), max(most // y.shape[1], 1))
        parts = []
        for i in candidates:
            components = self.predictives[i].in_units_of_target().components
            n_draws = min(components.n_draws, most_draws)
            parts.append(components.resized(n_draws).rows(rows))
        return y[rows], self.weights[rows], parts

    def spread_and_error(self):
        """Spread of the predictions within folds, and their error.

        They are arguments of ``useful_candidates``. The error is None for
        classification, intervals and with many rows.
        """
        y, used = self.y, self.weights > 0
        is_classification = self.predictives[0].is_classification
        if is_classification:
            classes = np.unique(self.data.y)
            predicted = [
                predictive.among(classes).mean() for predictive in self.predictives
            ]
            y = (y[:, None] == classes).astype(float)
        else:
            predicted = [predictive.mean() for predictive in self.predictives]
        means = np.stack(predicted).reshape(len(predicted), len(y), -1)[:, used]
        y = y.reshape(len(y), -1)[used]
        weights, fold = self.weights[used], self.fold[used]
        variance = _average(np.square(y - _average(y, weights)), weights)
        varies = variance > 0
        if not varies.any():
            return np.full(len(means), np.inf), None
        spread = np.zeros((len(means), len(variance)))
        for i in np.unique(fold):
            in_fold, row_weights = means[:, fold == i], weights[fold == i]
            centre = _average(in_fold, row_weights)[:, None]
            variances = _average(np.square(in_fold - centre), row_weights)
            spread += variances * row_weights.sum()
        spread = np.sqrt(spread[:, varies] / weights.sum() / variance[varies]).max(1)
        is_known = not is_classification and self.data.intervals is None
        if not is_known or len(y) >= CHECK_ERROR_BELOW:
            return spread, None
        error = _average(np.square(means - y), weights)
        return spread, (error[:, varies] / variance[varies]).mean(1)

    def mixture(self, n_draws):
        """Mixture with the given number of draws of each candidate."""
        kept = [i for i, n in enumerate(n_draws) if n]
        return pooled([self.predictives[i] for i in kept], [n_draws[i] for i in kept])


def _average(values, weights) -> np.ndarray:
    """Weighted mean over the rows, the second to last axis."""
    return np.average(values, axis=-2, weights=weights)


def _has_known_label(labels, weights) -> np.ndarray:
    """Whether the training rows contain the label of each held-out row, (rows,), bool.

    Other rows do not help to choose between candidates. If no held-out row has a known
    label, return True for all.

    labels : of every fold, the labels of the held-out rows and of the training rows
    """
    is_known = np.concatenate([np.isin(test, train) for test, train in labels])
    if not weights[is_known].any():
        return np.ones(len(is_known), dtype=bool)
    if n_unknown := np.count_nonzero(weights[~is_known]):
        test_labels = np.concatenate([test for test, _ in labels])
        unknown = np.unique(test_labels[~is_known])
        warn(
            "SKB209",
            f"{n_unknown} held-out rows have labels that are missing from the training "
            f"rows of their fold: all rows of {unknown.tolist()[:10]} are held out "
            "together. They do not count in weights and summary. Give each class at "
            "least 2 rows, and a `cv` that stratifies them.",
        )
    return is_known


def pooled(parts, n_draws):
    """Mixture of predictive distributions.

    n_draws : number of draws of each
    """
    return type(parts[0]).pooled(parts, n_draws=n_draws)


def corrected(mixture, factor):
    """Mixture spread by one factor per target, or with a temperature for classes."""
    return mixture if np.all(factor == 1) else mixture.corrected(factor, BOUND)


def best_factor(mixture, y, weights) -> np.ndarray:
    """Correction that maximises the log density of y, with a prior: (targets or 1,).

    y : (rows[, targets]), or ``Cells``
    """
    log_unit = _log_unit(y)

    def log_factor(density) -> float:
        return map_estimate(
            lambda value: density(value) + log_unit,
            weights,
            *np.log(FACTORS),
            outlier=OUTLIER,
        )[1]

    log_factors = [log_factor(d) for d in mixture.densities_of_factor(y, BOUND)]
    return np.exp(log_factors) if log_factors else np.ones(1)


def _log_unit(y: Any) -> np.ndarray:
    """Log of the unit of each row's density, (rows,); an open interval has none.

    y : (rows[, targets]), or ``Cells``
    """
    if not isinstance(y, Cells):
        return np.zeros(len(y))
    is_open = np.isinf(y.low) | np.isinf(y.high)
    scale = y.high[~is_open].std() if is_open.any() and not is_open.all() else 0.0
    return np.where(is_open[:, 0] | (scale == 0), 0.0, np.log(scale or 1.0))


# ---- effect of several starts on error and spread

# Refits reduce the factor at most to this share of it.
MIN_SHARE_OF_FACTOR = 0.5


def factor_with_starts(
    factor: np.ndarray, reduction: np.ndarray, row_weights: np.ndarray
) -> np.ndarray:
    """Correction of the mixture if each candidate has more starts, (targets,).

    v is the variance of the mixture. More starts reduce the squared error of its mean
    by d, and increase v by d. If the expected squared error was factor^2 (v - d), it is
    now factor^2 (v - d) - d, which is v times factor^2 (1 - d / v) - d / v.

    factor : (targets,), of the mixture out of fold
    reduction : (rows, targets), d / v
    row_weights : (rows,)
    """
    ratio = np.maximum(np.average(reduction, axis=0, weights=row_weights), 0)
    square = np.square(factor)
    least = np.square(MIN_SHARE_OF_FACTOR) * square
    return np.sqrt(np.maximum(square * (1 - ratio) - ratio, least))


def share_of_starts(
    parts: Sequence[Any],
    n_draws: np.ndarray,
    n_before: Sequence[int],
    n_now: Sequence[int],
) -> np.ndarray:
    """Reduction of the squared error by more starts, as a share of the variance: d / v.

    Starts of candidate c are independent and have variance V_c(x). With weight w_c, and
    n_c starts instead of k_c, d(x) = sum_c w_c^2 V_c(x) (1 / k_c - 1 / n_c). Networks
    from different starts differ less on training rows than on other rows, so this
    underestimates d.

    parts : MixturePredictive of each candidate fitted to all rows, for the same rows
    n_draws : draws of each candidate in the mixture
    n_before, n_now : networks of each candidate, out of fold and now
    returns : (rows, targets)
    """
    mixture = pooled(parts, n_draws).components
    weights = np.asarray(n_draws) / np.sum(n_draws)
    reduction = np.zeros(mixture.mean.shape[1:])
    for part, w, before, now in zip(parts, weights, n_before, n_now, strict=True):
        if now > before:
            difference = 1 / before - 1 / now
            reduction += w**2 * variance_of_starts(part, now) * difference
    return reduction / (mixture.variance.mean(0) + mixture.mean.var(0))


def variance_of_starts(part, n_networks: int) -> np.ndarray:
    """Variance of the networks' means about their common mean, unbiased.

    If each network has a single draw, this includes the spread of the draws.

    part : MixturePredictive; each draw has ``n_networks`` networks
    returns : (rows, targets)
    """
    means = part.components.mean
    means = means.reshape(-1, n_networks, *means.shape[1:])
    variance = means.mean(0).var(0, ddof=1)
    n_draws = len(means)
    if n_draws == 1:
        return variance
    return variance - means.var(0, ddof=1).mean(0) / n_draws
