"""Linear candidates for tables with many columns: ridge, lasso and adaptive lasso.

Each is a linear model whose weights have independent normal priors. The penalty sets
the prior variances: ridge has one for all columns, and a lasso solution w is the
posterior mean under the variances |w_j| / lambda [1]_. Given these, the posterior of
the weights is normal (of classes: by Laplace's approximation), and draws of it are the
draws of the predictive distribution.

NumPy and scikit-learn's solvers, float64.

References
----------
.. [1] Tibshirani (1996), "Regression shrinkage and selection via the lasso", JRSS B
   58(1), section 2.5: the lasso as a ridge regression, eq. 7.
.. [2] Zou (2006), "The adaptive lasso and its oracle properties", JASA 101(476).
.. [3] Rasmussen & Williams (2006), "Gaussian processes for machine learning", section
   5.4.2: leave-one-out predictive densities.
.. [4] Bhattacharya, Chakraborty & Mallick (2016), "Fast sampling with Gaussian
   scale-mixture priors in high-dimensional regression", Biometrika 103(4).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, lasso_path

from skbayesnn import _stored as stored
from skbayesnn._data.groups import check_groups, shuffled_folds
from skbayesnn._data.scaling import Scaling
from skbayesnn._data.validation import (
    check_classification,
    check_inputs,
    check_regression,
)
from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.map_factor import minimise_on_grid
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import (
    ClassificationPredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._runtime import atomic_update
from skbayesnn._sklearn_compat import LASSO_PENALTY, ClassifierMixin, RegressorMixin
from skbayesnn._stacking.separate_model import SeparateModel
from skbayesnn._validation import MAX_N_DRAWS

# Range of the log ratio of prior to noise variance, relative to the ratio at which both
# contribute the same variance to predictions.
LOG_RATIOS = -10.0, 12.0
# Number of penalties of a lasso path.
N_PENALTIES = 30
# Smallest penalty of the path, as a share of the penalty at which all weights are zero.
# The first value is for more columns than rows, the second for fewer [as in glmnet:
# Friedman, Hastie & Tibshirani 2010, "Regularization paths for generalized linear
# models via coordinate descent", JSS 33(1)].
MIN_PENALTY = (1e-2, 1e-3)
# Folds of the cross-validation that selects the penalty.
N_FOLDS = 5
# Smallest share of the noise in the variance of a row left out. With as many columns as
# rows, noise and weights are hardly identifiable, and draws must cover the weights.
MIN_SHARE = 0.1
# Smallest noise variance, as a share of the variance of y.
MIN_NOISE = 1e-8
# Tolerance of scikit-learn's coordinate descent.
TOLERANCE = 1e-3


class LinearPosterior(NamedTuple):
    """Normal posterior of the weights of one target, on standardised columns.

    Parameters
    ----------
    mean : ndarray of shape (columns,)
    prior : ndarray of shape (columns,)
        Prior variances, in units of the noise variance.
    noise : float
        Variance of the observation noise.
    """

    mean: np.ndarray
    prior: np.ndarray
    noise: float


def deviations(design: np.ndarray, prior: np.ndarray, n: int, random) -> np.ndarray:
    """Draws of N(0, (D' D + diag(1 / prior))^-1), (n, columns); their mean is zero.

    Solves linear systems of the size of the rows [4]_.

    design : D, (rows, columns); prior : (columns,), zero for weights that are zero
    """
    prior_draws = np.sqrt(prior) * _normal(prior.shape, n, random)
    row_draws = _normal(design.shape[:1], n, random)
    scaled = design * prior
    gram = scaled @ design.T
    gram[np.diag_indices_from(gram)] += 1
    solved = cho_solve(cho_factor(gram), (prior_draws @ design.T + row_draws).T).T
    return prior_draws - solved @ scaled


def _normal(shape: tuple[int, ...], n: int, random) -> np.ndarray:
    """Standard normal draws, (n, ...): antithetic pairs, and zeros if n is odd."""
    half = random.standard_normal((n // 2, *shape))
    return np.concatenate([half, -half, np.zeros((n % 2, *shape))])


# ---- regression of one target; X and y have means of zero, y has a variance of one


def ridge(X, y, weights, groups=None) -> LinearPosterior:
    """Ridge regression: maximise the leave-one-out predictive density [3]_.

    This estimates the prior variance and the noise variance. With groups, the density
    of each row is predicted from the other groups.

    X : (rows, columns); y, weights : (rows,); groups : (rows,), or None
    """
    root = np.sqrt(weights)
    design, target = root[:, None] * X, root * y
    # The mean has no penalty. Its direction becomes the first eigenvector.
    intercept = root / np.sqrt(weights.sum())
    gram = design @ design.T - np.outer(intercept, intercept)
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[1:].clip(0), vectors[:, 1:]
    rotated = vectors.T @ target
    middle = -np.log(max(values.mean(), np.finfo(float).tiny))
    left_out = [] if groups is None else [groups == g for g in np.unique(groups)]

    def residuals_and_variances(shrunk):
        """Whitened residuals of left-out rows, and their variances / noise variance."""
        precision_residuals = vectors @ (shrunk * rotated)
        if groups is None:
            share = np.square(vectors) @ shrunk
            return precision_residuals / share, 1 / share
        residuals, variances = np.empty((2, len(y)))
        for rows in left_out:
            # Without these rows, their covariance is the inverse of their block of the
            # precision matrix of all rows.
            covariance = np.linalg.inv((vectors[rows] * shrunk) @ vectors[rows].T)
            residuals[rows] = covariance @ precision_residuals[rows]
            variances[rows] = np.diag(covariance)
        return residuals, variances

    def noise_and_variances(log_ratio):
        """Noise variance, and the variance of each left-out y divided by it."""
        shrunk = 1 / (1 + np.exp(log_ratio + middle) * values)
        residuals, whitened = residuals_and_variances(shrunk)
        errors = residuals / root
        variances = 1 + (whitened - 1) / weights
        noise = np.average(np.square(errors) / variances, weights=weights)
        return max(noise, MIN_NOISE), variances

    def loss(log_ratio):
        noise, variances = noise_and_variances(log_ratio)
        excess = max(np.log(np.average(variances, weights=weights) * MIN_SHARE), 0)
        spread = np.average(np.log(variances), weights=weights)
        return np.log(noise) + spread + 10 * excess

    best = minimise_on_grid(loss, *LOG_RATIOS)
    ratio = np.exp(best + middle)
    mean = ratio * design.T @ (vectors @ (rotated / (1 + ratio * values)))
    return LinearPosterior(
        mean, np.full(len(mean), ratio), noise_and_variances(best)[0]
    )


def lasso(X, y, weights, seed: int, groups=None, *, adaptive: bool) -> LinearPosterior:
    """Lasso: select the penalty with the smallest cross-validation error.

    ``adaptive``: fit a second lasso to the columns times the absolute weights of the
    first, which shrinks large weights less [2]_. Cross-validation includes both.

    X : (rows, columns); y, weights : (rows,); groups : (rows,), or None
    """
    folds = _Folds.from_data(X, y, weights, seed, groups)
    scales = [np.ones(X.shape[1])] * (len(folds.train) + 1)
    for _ in range(1 + adaptive):
        penalties = _penalties(scales[-1] * X, y, weights)
        paths = [
            _path(X_train, y_train, fold_weights, scale, penalties)
            for (X_train, y_train, fold_weights), scale in zip(
                folds.train, scales, strict=False
            )
        ]
        errors = folds.errors(paths)
        best = int(errors.argmin())
        scale, penalty = scales[-1], penalties[best]
        mean = _path(X, y, weights, scale, penalties[: best + 1])[:, -1]
        if not mean.any():
            break
        scales = [np.abs(path[:, best]) for path in paths] + [np.abs(mean)]
    prior = scale * np.abs(mean) / (penalty * weights.sum())
    used = X[:, prior > 0] * np.sqrt(weights)[:, None]
    gram = used.T @ used
    posterior = gram + np.diag(1 / prior[prior > 0])
    # The error contains the variance of the mean: on average over rows, n_parameters /
    # weights.sum() times the noise variance.
    n_parameters = 1 + np.trace(np.linalg.solve(posterior, gram))
    noise = errors[best] / (1 + n_parameters / weights.sum())
    return LinearPosterior(mean, prior, max(noise, MIN_NOISE))


class _Folds(NamedTuple):
    """Folds of cross-validation, centred by the means of the training rows.

    Parameters
    ----------
    train, test : list of (X, y, weights)
    """

    train: list
    test: list

    @classmethod
    def from_data(cls, X, y, weights, seed: int, groups=None) -> _Folds:
        train: list = []
        test: list = []
        for train_rows, test_rows in shuffled_folds(len(y), N_FOLDS, seed, groups):
            share = weights[train_rows] / weights[train_rows].sum()
            mean_x, mean_y = share @ X[train_rows], share @ y[train_rows]
            for part, rows in ((train, train_rows), (test, test_rows)):
                part.append((X[rows] - mean_x, y[rows] - mean_y, weights[rows]))
        return cls(train, test)

    def errors(self, paths) -> np.ndarray:
        """Mean squared error for each penalty, (penalties,).

        paths : weights of each fold, (columns, penalties)
        """
        sums = [
            weights @ np.square(y[:, None] - X @ path)
            for (X, y, weights), path in zip(self.test, paths, strict=True)
        ]
        return sum(sums) / sum(weights.sum() for *_, weights in self.test)


def _penalties(X, y, weights) -> np.ndarray:
    """Decreasing penalties; the first one makes all weights zero, (penalties,)."""
    largest = np.abs(X.T @ (weights * y)).max() / weights.sum()
    least = MIN_PENALTY[int(np.count_nonzero(X.any(0)) < len(y))]
    return largest * np.geomspace(1, least, N_PENALTIES) + np.finfo(float).tiny


def _path(X, y, weights, scale, penalties) -> np.ndarray:
    """Weights that minimise mean squared error / 2 + penalty |weights / scale|.

    scale : (columns,), zero for columns without a weight
    returns : (columns, penalties)
    """
    kept = scale > 0
    root = np.sqrt(weights)
    design = np.asfortranarray(root[:, None] * (X[:, kept] * scale[kept]))
    alphas = penalties * (weights.sum() / len(y))
    path = np.zeros((X.shape[1], len(penalties)))
    if kept.any():
        _, coefficients, _ = lasso_path(
            design, root * y, alphas=alphas, tol=TOLERANCE, random_state=0
        )
        path[kept] = scale[kept, None] * coefficients
    return path


# ---- one class against the others


def ridge_logistic(X, is_class, weights, strength: float):
    """Ridge logistic regression: weights, intercept, prior variances of the weights.

    strength : prior standard deviation of the logit of a row with mean square length
    X : (rows, columns); is_class : (rows,), bool; weights : (rows,)
    """
    variance = strength**2 / max(np.square(X).sum(1).mean(), np.finfo(float).tiny)
    model = LogisticRegression(C=variance, max_iter=1000)
    model.fit(X, is_class, sample_weight=weights)
    return model.coef_[0], model.intercept_[0], np.full(X.shape[1], variance)


def lasso_logistic(X, is_class, weights, strength: float, seed: int):
    """Lasso logistic regression: weights, intercept, prior variances of the weights.

    strength : penalty as a share of the smallest one that makes all weights zero
    """
    centred = weights * (is_class - np.average(is_class, weights=weights))
    penalty = strength * max(np.abs(X.T @ centred).max(), np.finfo(float).tiny)
    model = LogisticRegression(
        C=1 / penalty,
        **LASSO_PENALTY,
        solver="liblinear",
        # The solver penalises the intercept; this makes its penalty negligible.
        intercept_scaling=100.0,
        random_state=seed,
    )
    model.fit(X, is_class, sample_weight=weights)
    mean = model.coef_[0]
    return mean, model.intercept_[0], np.abs(mean) / penalty


# ---- estimators


class ShrunkLinearModel(SeparateModel):
    """Base of both linear models, which store all posterior draws of the weights."""

    n_draws: Annotated[int, stored.between(1, MAX_N_DRAWS)]

    columns_: Annotated[stored.Integers, "weights", stored.Index("columns")]
    coef_: Annotated[stored.Floats, "draws, outputs, weights"]
    intercept_: Annotated[stored.Floats, "draws, outputs"]

    def _standardised(self, table, groups=None):
        """Select the rows with positive weight, and standardise X.

        Returns
        -------
        X, y, weights, groups : arrays of these rows; X is dense
        """
        used = table.sample_weight > 0
        weights = table.sample_weight[used]
        X = table.X[used]
        X = (X.toarray() if sparse.issparse(X) else X).astype(np.float64)
        mean = np.average(X, axis=0, weights=weights)
        std = np.sqrt(np.average(np.square(X - mean), axis=0, weights=weights))
        # A smaller standard deviation is a rounding error of a constant column.
        varies = std > 1e-12 * np.abs(mean)
        self.x_mean_, self.x_scale_ = mean, np.where(varies, std, 1.0)
        self.total_weight_ = float(weights.sum())
        groups = None if groups is None else groups[used]
        return (X - mean) * varies / self.x_scale_, table.y[used], weights, groups

    def _store_draws(self, draws, intercepts) -> None:
        """Store the weights of the columns with nonzero weights, for original columns.

        draws : (draws, outputs, columns), weights of standardised columns
        intercepts : (draws, outputs), for standardised columns
        """
        self.columns_ = np.flatnonzero(draws.any((0, 1)))
        self.coef_ = (draws / self.x_scale_)[..., self.columns_]
        self.intercept_ = intercepts - self.coef_ @ self.x_mean_[self.columns_]

    def _outputs(self, X) -> np.ndarray:
        """Outputs of all draws, (draws, rows, outputs)."""
        n_draws, n_outputs, n_columns = self.coef_.shape
        weights = self.coef_.reshape(n_draws * n_outputs, n_columns).T
        outputs = np.asarray(X @ weights).reshape(X.shape[0], n_draws, n_outputs)
        return outputs.transpose(1, 0, 2) + self.intercept_[:, None]

    def _inputs(self, X) -> Any:
        """The columns with nonzero weights."""
        return check_inputs(self, X, reset=False)[:, self.columns_]

    def _distribution(self, X):
        return lambda rows: self._predictive(self._outputs(X[rows]))

    @abstractmethod
    def _predictive(self, outputs: np.ndarray) -> Any:
        """Predictive distribution of outputs, (draws, rows, outputs)."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class ShrunkLinearRegressor(
    RegressionPredictiveMixin, RegressorMixin, ShrunkLinearModel
):
    """Bayesian linear regression that selects its penalty on held-out rows.

    ``"ridge"`` maximises the leave-one-out predictive density over penalty and noise
    variance. The lassos minimise the squared error of five-fold cross-validation. Each
    target is fitted separately.

    Parameters
    ----------
    penalty : {"ridge", "lasso", "adaptive_lasso"}, default="ridge"
    n_draws : int, default=200
        Posterior draws of the weights.
    random_state : int, default=0
        Seed of draws and folds.

    Attributes
    ----------
    columns_ : ndarray of int
        Columns with nonzero weights.
    coef_ : ndarray of shape (n_draws, n_targets, len(columns_))
    intercept_ : ndarray of shape (n_draws, n_targets)
    noise_variance_ : ndarray of shape (n_targets,)
        In squared units of y.
    x_mean_, x_scale_ : ndarray of shape (n_features_in_,)
    total_weight_ : float
    y_ndim_ : int
    """

    likelihood = "gaussian"

    penalty: Literal["ridge", "lasso", "adaptive_lasso"]
    noise_variance_: Annotated[stored.Floats, "outputs", stored.POSITIVE]
    y_ndim_: Literal[1, 2]

    def __init__(self, penalty="ridge", n_draws=200, random_state=0):
        self._store(locals())

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the weights, and draw from their posterior."""
        with atomic_update(self) as new:
            table, new.y_ndim_ = check_regression(new, X, y, sample_weight, reset=True)
            groups = check_groups(groups, table.X)
            X, Y, weights, groups = new._standardised(table, groups)
            scaling = Scaling.of(X, Y, weights, inputs=False, targets=True)
            random = np.random.default_rng(self.random_state)
            draws, intercepts, noise = [], [], []
            targets = scaling.y_to_network(Y).T, scaling.y_mean, scaling.y_scale
            for target, mean, scale in zip(*targets, strict=True):
                posterior = self._posterior(X, target, weights, groups)
                design = np.sqrt(weights)[:, None] * X
                deviation = deviations(design, posterior.prior, self.n_draws, random)
                mean_error = _normal((), self.n_draws, random) / np.sqrt(weights.sum())
                std = scale * np.sqrt(posterior.noise)
                draws.append(scale * posterior.mean + std * deviation)
                intercepts.append(mean + std * mean_error)
                noise.append(np.square(std))
            new.noise_variance_ = np.array(noise)
            new._store_draws(np.stack(draws, 1), np.stack(intercepts, 1))
        return self

    def _posterior(self, X, y, weights, groups) -> LinearPosterior:
        if self.penalty == "ridge":
            return ridge(X, y, weights, groups)
        adaptive = self.penalty == "adaptive_lasso"
        return lasso(X, y, weights, self.random_state, groups, adaptive=adaptive)

    def _predictive(self, mean) -> MixturePredictive:
        variance = np.broadcast_to(self.noise_variance_, mean.shape)
        return MixturePredictive(Gaussians(mean, variance), self.y_ndim_ == 1)


class ShrunkLinearClassifier(
    ClassificationPredictiveMixin, ClassifierMixin, ShrunkLinearModel
):
    """Bayesian logistic regression with a given penalty.

    With more than two classes, each class is fitted against the others, and the
    probabilities are normalised. The posterior of the weights is normal, given
    Polya-Gamma variables at their expectations [1]_; its mean is the mode of the exact
    posterior. Ridge weights are restricted to the span of the training rows.

    Parameters
    ----------
    penalty : {"ridge", "lasso"}, default="ridge"
    strength : float, default=1.0
        For ridge the prior standard deviation of the logit. For lasso the penalty as a
        share of the smallest one that makes all weights zero.
    n_draws : int, default=200
        Posterior draws of the weights.
    random_state : int, default=0
        Seed of draws and solver.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes with rows of positive weight.
    columns_, coef_, intercept_, x_mean_, x_scale_, total_weight_
        As in :class:`ShrunkLinearRegressor`, with one output per class instead of
        targets; with two classes, one output for the second class.

    References
    ----------
    .. [1] Polson, Scott & Windle (2013), "Bayesian inference for logistic models using
       Polya-Gamma latent variables", JASA 108(504).
    """

    likelihood = "categorical"

    penalty: Literal["ridge", "lasso"]
    strength: stored.PositiveFloat
    classes_: stored.Labels

    def __init__(self, penalty="ridge", strength=1.0, n_draws=200, random_state=0):
        self._store(locals())

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the weights, and draw from their posterior; no rows are held out."""
        with atomic_update(self) as new:
            table, classes = check_classification(new, X, y, sample_weight, reset=True)
            X, codes, weights, _ = new._standardised(table)
            present, codes = np.unique(codes, return_inverse=True)
            new.classes_ = classes[present]
            basis = None
            if self.penalty == "ridge":
                left, values, basis = np.linalg.svd(X, full_matrices=False)
                X = left * values
            random = np.random.default_rng(self.random_state)
            outputs = range(len(present)) if len(present) > 2 else [1]
            pairs = [self._draws(X, codes == c, weights, random) for c in outputs]
            draws, intercepts = (np.stack(v, 1) for v in zip(*pairs, strict=True))
            new._store_draws(draws if basis is None else draws @ basis, intercepts)
        return self

    def _draws(self, X, is_class, weights, random):
        """Draws of the weights, (draws, columns), and of the intercept, (draws,)."""
        arguments = X, is_class, weights, self.strength
        if self.penalty == "ridge":
            mean, intercept, prior = ridge_logistic(*arguments)
        else:
            mean, intercept, prior = lasso_logistic(*arguments, self.random_state)
        half = np.maximum(np.abs(X @ mean + intercept) / 2, 1e-6)
        precision = weights * np.tanh(half) / (4 * half)
        # If columns are centred at this mean, intercept and weights are independent.
        centre = precision @ X / precision.sum()
        design = np.sqrt(precision)[:, None] * (X - centre)
        deviation = deviations(design, prior, self.n_draws, random)
        mean_error = _normal((), self.n_draws, random) / np.sqrt(precision.sum())
        return mean + deviation, intercept + mean_error - deviation @ centre

    def _predictive(self, outputs) -> ClassPredictive:
        sigmoid = expit(outputs)
        if len(self.classes_) == 2:
            probability = np.concatenate([1 - sigmoid, sigmoid], axis=-1)
        else:
            probability = sigmoid / sigmoid.sum(-1, keepdims=True)
        return ClassPredictive(probability, self.classes_)
