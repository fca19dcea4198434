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

from abc import ABCMeta, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, lasso_path
from sklearn.model_selection import KFold

from skbayesnn._data.validation import (
    check_classification,
    check_inputs,
    check_regression,
)
from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.map_factor import minimise_on_grid
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import (
    PredictiveBlocks,
    PredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._runtime import atomic_update, on_snapshot
from skbayesnn._sklearn_compat import (
    LASSO_PENALTY,
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
)
from skbayesnn._typing import Array

# Log ratios of prior to noise variance that are tried, about that at which the prior
# predicts as much variance as the noise.
LOG_RATIOS = -10.0, 12.0
# Penalties of a lasso path, as shares of the smallest one that leaves no column: the
# least share with more columns than rows, and otherwise [as in glmnet: Friedman, Hastie
# & Tibshirani 2010, "Regularization paths for generalized linear models via coordinate
# descent", JSS 33(1)].
N_PENALTIES, LEAST_PENALTY = 30, (1e-2, 1e-3)
N_FOLDS = 5
# The smallest share of the noise in the variance of a row left out: as many columns as
# rows tell noise and weights hardly apart, and some draws have to cover the weights.
LEAST_SHARE = 0.1
# Of y's variance: the smallest noise variance.
LEAST_NOISE = 1e-8
# Of scikit-learn's coordinate descent.
TOLERANCE = 1e-3


class Posterior(NamedTuple):
    """Normal posterior of the weights of one target, on standardised columns.

    Parameters
    ----------
    mean : ndarray of shape (columns,)
    prior : ndarray of shape (columns,)
        Prior variances, in units of the noise variance.
    noise : float
        Noise variance.
    """

    mean: np.ndarray
    prior: np.ndarray
    noise: float


def deviations(design: np.ndarray, prior: np.ndarray, n: int, random) -> np.ndarray:
    """Draws of N(0, (D' D + diag(1 / prior))^-1), (n, columns), whose mean is zero.

    In the space of the rows [4]_.

    design : D, (rows, columns); prior : (columns,), zero where there is no weight
    """
    start = np.sqrt(prior) * _normal(prior.shape, n, random)
    noise = _normal(design.shape[:1], n, random)
    scaled = design * prior
    gram = scaled @ design.T
    gram[np.diag_indices_from(gram)] += 1
    solved = cho_solve(cho_factor(gram), (start @ design.T + noise).T).T
    return start - solved @ scaled


def _normal(shape: tuple[int, ...], n: int, random) -> np.ndarray:
    """Normal numbers, (n, ...): pairs of opposites, and of an odd n zeros."""
    some = random.standard_normal((n // 2, *shape))
    return np.concatenate([some, -some, np.zeros((n % 2, *shape))])


# ---- regression of one target; X and y have weighted means of zero


def ridge(X, y, weights) -> Posterior:
    """The prior variance and the noise with the largest leave-one-out density [3]_.

    X : (rows, columns); y, weights : (rows,)
    """
    root = np.sqrt(weights)
    design, target = root[:, None] * X, root * y
    # The mean is estimated without a penalty: its direction is the first vector.
    one = root / np.sqrt(weights.sum())
    values, vectors = np.linalg.eigh(design @ design.T - np.outer(one, one))
    values, vectors = values[1:].clip(0), vectors[:, 1:]
    rotated = vectors.T @ target
    middle = -np.log(max(values.mean(), np.finfo(float).tiny))
    least = LEAST_NOISE * np.mean(np.square(target)) + np.finfo(float).tiny

    def noise_and_variances(log_ratio):
        """Of the noise, and of y in each row left out in units of the noise's."""
        shrunk = 1 / (1 + np.exp(log_ratio + middle) * values)
        share = np.square(vectors) @ shrunk
        errors = vectors @ (shrunk * rotated) / share / root
        variances = 1 + (1 / share - 1) / weights
        noise = np.average(np.square(errors) / variances, weights=weights)
        return max(noise, least), variances

    def loss(log_ratio):
        noise, variances = noise_and_variances(log_ratio)
        excess = max(np.log(np.average(variances, weights=weights) * LEAST_SHARE), 0)
        spread = np.average(np.log(variances), weights=weights)
        return np.log(noise) + spread + 10 * excess

    best = minimise_on_grid(loss, *LOG_RATIOS)
    ratio = np.exp(best + middle)
    mean = ratio * design.T @ (vectors @ (rotated / (1 + ratio * values)))
    return Posterior(mean, np.full(len(mean), ratio), noise_and_variances(best)[0])


def lasso(X, y, weights, seed: int, *, adaptive: bool) -> Posterior:
    """The penalty and the noise with the least error in cross-validation.

    ``adaptive``: a second lasso, of the columns times the absolute weights of the
    first, which shrinks large weights less [2]_. Both are part of the cross-validation.

    X : (rows, columns); y, weights : (rows,)
    """
    folds = _Folds.of(X, y, weights, seed)
    scales = [np.ones(X.shape[1])] * (len(folds.train) + 1)
    for _ in range(1 + adaptive):
        penalties = _penalties(scales[-1] * X, y, weights)
        paths = [
            _path(X_fold, y_fold, of_fold, scale, penalties)
            for (X_fold, y_fold, of_fold), scale in zip(
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
    # Of a new row the variance of its mean is on average that of the training rows.
    n_parameters = 1 + np.trace(np.linalg.solve(posterior, gram))
    noise = errors[best] / (1 + n_parameters / weights.sum())
    least = LEAST_NOISE * np.average(np.square(y), weights=weights)
    return Posterior(mean, prior, max(noise, least + np.finfo(float).tiny))


class _Folds(NamedTuple):
    """Rows of cross-validation, centred by the means of the training rows.

    Parameters
    ----------
    train, test : list of (X, y, weights)
    """

    train: list
    test: list

    @classmethod
    def of(cls, X, y, weights, seed: int) -> "_Folds":
        train: list = []
        test: list = []
        splitter = KFold(min(N_FOLDS, len(y)), shuffle=True, random_state=seed)
        for rows, others in splitter.split(X):
            share = weights[rows] / weights[rows].sum()
            mean_x, mean_y = share @ X[rows], share @ y[rows]
            for part, which in ((train, rows), (test, others)):
                part.append((X[which] - mean_x, y[which] - mean_y, weights[which]))
        return cls(train, test)

    def errors(self, paths) -> np.ndarray:
        """Mean squared error of every penalty, (penalties,).

        paths : of each fold, (columns, penalties)
        """
        of_rows = [
            weights @ np.square(y[:, None] - X @ path)
            for (X, y, weights), path in zip(self.test, paths, strict=True)
        ]
        return sum(of_rows) / sum(weights.sum() for *_, weights in self.test)


def _penalties(X, y, weights) -> np.ndarray:
    """From the smallest one that leaves no column, downwards, (penalties,)."""
    largest = np.abs(X.T @ (weights * y)).max() / weights.sum()
    least = LEAST_PENALTY[int(np.count_nonzero(X.any(0)) < len(y))]
    return largest * np.geomspace(1, least, N_PENALTIES) + np.finfo(float).tiny


def _path(X, y, weights, scale, penalties) -> np.ndarray:
    """Minima of mean squared error / 2 + penalty |weights / scale|.

    scale : (columns,), zero of columns that are left out
    returns : (columns, penalties)
    """
    kept = scale > 0
    root = np.sqrt(weights)
    design = np.asfortranarray(root[:, None] * (X[:, kept] * scale[kept]))
    alphas = penalties * (weights.sum() / len(y))
    found = np.zeros((X.shape[1], len(penalties)))
    if kept.any():
        _, coefficients, _ = lasso_path(
            design, root * y, alphas=alphas, tol=TOLERANCE, random_state=0
        )
        found[kept] = scale[kept, None] * coefficients
    return found


# ---- one class against the others


def ridge_logistic(X, is_class, weights, strength: float):
    """Weights, intercept, and prior variances of the weights.

    strength : prior standard deviation of the logit, of a row of mean length
    X : (rows, columns); is_class : (rows,), bool; weights : (rows,)
    """
    variance = strength**2 / max(np.square(X).sum(1).mean(), np.finfo(float).tiny)
    model = LogisticRegression(C=variance, max_iter=1000)
    model.fit(X, is_class, sample_weight=weights)
    return model.coef_[0], model.intercept_[0], np.full(X.shape[1], variance)


def lasso_logistic(X, is_class, weights, strength: float, seed: int):
    """The same; strength is the share of the penalty that leaves no column."""
    centred = weights * (is_class - np.average(is_class, weights=weights))
    penalty = strength * max(np.abs(X.T @ centred).max(), np.finfo(float).tiny)
    model = LogisticRegression(
        C=1 / penalty,
        **LASSO_PENALTY,
        solver="liblinear",
        # The solver has a penalty on the intercept: next to none.
        intercept_scaling=100.0,
        random_state=seed,
    )
    model.fit(X, is_class, sample_weight=weights)
    mean = model.coef_[0]
    return mean, model.intercept_[0], np.abs(mean) / penalty


# ---- estimators


class ShrunkLinearModel(PredictiveMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of both linear models; fitted attributes are those of all draws."""

    likelihood: str
    n_draws: int
    # As networks have it: fits from different starts.
    n_estimators = 1

    columns_: Array
    coef_: Array
    intercept_: Array
    x_mean_: Array
    x_scale_: Array
    total_weight_: float
    n_features_in_: int

    @abstractmethod
    def _of_outputs(self, X):
        """The predictive distribution of rows, from X of the columns with weights."""

    def _used(self, table):
        """Standardised X as a dense array and weights, of the rows that have weight.

        Returns
        -------
        X, y, weights : of these rows
        """
        used = table.sample_weight > 0
        weights = table.sample_weight[used]
        X = table.X[used]
        X = (X.toarray() if sparse.issparse(X) else X).astype(np.float64)
        mean = np.average(X, axis=0, weights=weights)
        std = np.sqrt(np.average(np.square(X - mean), axis=0, weights=weights))
        # Rounding of a constant.
        varies = std > 1e-12 * np.abs(mean)
        self.x_mean_, self.x_scale_ = mean, np.where(varies, std, 1.0)
        self.total_weight_ = float(weights.sum())
        return (X - mean) * varies / self.x_scale_, table.y[used], weights

    def _adopt(self, draws, intercepts) -> None:
        """Fitted weights, of the columns that have some.

        draws : (draws, outputs, columns), on standardised columns
        intercepts : (draws, outputs), where these are zero
        """
        self.columns_ = np.flatnonzero(draws.any((0, 1)))
        self.coef_ = (draws / self.x_scale_)[..., self.columns_]
        self.intercept_ = intercepts - self.coef_ @ self.x_mean_[self.columns_]

    def _outputs(self, X) -> np.ndarray:
        """(draws, rows, outputs); X of the columns with weights."""
        n_draws, n_outputs, n_columns = self.coef_.shape
        weights = self.coef_.reshape(n_draws * n_outputs, n_columns).T
        outputs = np.asarray(X @ weights).reshape(X.shape[0], n_draws, n_outputs)
        return outputs.transpose(1, 0, 2) + self.intercept_[:, None]

    @on_snapshot
    def _open_predictive(self, X):
        X = check_inputs(self, X, reset=False)[:, self.columns_]
        return PredictiveBlocks(X.shape[0], lambda rows: self._of_outputs(X[rows]))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class ShrunkLinearRegressor(
    RegressionPredictiveMixin, RegressorMixin, ShrunkLinearModel
):
    """Linear regression whose penalty is chosen by held-out rows.

    The penalty of ``"ridge"`` and the noise maximise the leave-one-out predictive
    density; those of the lassos have the least squared error in five-fold
    cross-validation. Targets are independent of each other.

    Parameters
    ----------
    penalty : {"ridge", "lasso", "adaptive_lasso"}, default="ridge"
    n_draws : int, default=200
        Posterior draws of the weights.
    random_state : int, default=0
        Of draws and folds.

    Attributes
    ----------
    columns_ : ndarray of int
        Columns that have weights.
    coef_ : ndarray of shape (n_draws, n_targets, len(columns_))
    intercept_ : ndarray of shape (n_draws, n_targets)
    noise_variance_ : ndarray of shape (n_targets,)
        In y's units, squared.
    x_mean_, x_scale_ : ndarray of shape (n_features_in_,)
    total_weight_ : float
    y_ndim_ : int
    """

    likelihood = "gaussian"

    noise_variance_: Array
    y_ndim_: int

    def __init__(self, penalty="ridge", n_draws=200, random_state=0):
        self.penalty = penalty
        self.n_draws = n_draws
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        """Fit the weights, and draw from their posterior."""
        with atomic_update(self) as new:
            table, new.y_ndim_ = check_regression(new, X, y, sample_weight, reset=True)
            X, Y, weights = new._used(table)
            centre = np.average(Y, axis=0, weights=weights)
            random = np.random.default_rng(self.random_state)
            draws, intercepts, noise = [], [], []
            for target, middle in zip(Y.T, centre, strict=True):
                found = self._posterior(X, target - middle, weights)
                design = np.sqrt(weights)[:, None] * X
                apart = deviations(design, found.prior, self.n_draws, random)
                of_mean = _normal((), self.n_draws, random) / np.sqrt(weights.sum())
                std = np.sqrt(found.noise)
                draws.append(found.mean + std * apart)
                intercepts.append(middle + std * of_mean)
                noise.append(found.noise)
            new.noise_variance_ = np.array(noise)
            new._adopt(np.stack(draws, 1), np.stack(intercepts, 1))
        return self

    def _posterior(self, X, y, weights) -> Posterior:
        if self.penalty == "ridge":
            return ridge(X, y, weights)
        adaptive = self.penalty == "adaptive_lasso"
        return lasso(X, y, weights, self.random_state, adaptive=adaptive)

    @on_snapshot
    def predict(self, X):
        """Mean, (rows[, targets])."""
        return np.concatenate([one.mean() for _, one in self._blocks(X)])

    def _of_outputs(self, X) -> MixturePredictive:
        mean = self._outputs(X)
        variance = np.broadcast_to(self.noise_variance_, mean.shape)
        return MixturePredictive(Gaussians(mean, variance), self.y_ndim_ == 1)


class ShrunkLinearClassifier(ClassifierMixin, ShrunkLinearModel):
    """Logistic regression with a given penalty.

    Of more than two classes: each against the others, with probabilities that are
    normalised. The posterior is that of the weights given Polya-Gamma variables at
    their expectations [1]_, whose mean is the mode of the posterior. Weights of a ridge
    are in the space that the training rows span.

    Parameters
    ----------
    penalty : {"ridge", "lasso"}, default="ridge"
    strength : float, default=1.0
        Of a ridge: the prior standard deviation of the logit. Of a lasso: the penalty
        as a share of the smallest one that leaves no column.
    n_draws : int, default=200
        Posterior draws of the weights.
    random_state : int, default=0
        Of draws and solver.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        That have rows of positive weight.
    columns_, coef_, intercept_, x_mean_, x_scale_, total_weight_
        As of :class:`ShrunkLinearRegressor`, with an output for every class in place
        of targets; of two classes, one for the second.

    References
    ----------
    .. [1] Polson, Scott & Windle (2013), "Bayesian inference for logistic models using
       Polya-Gamma latent variables", JASA 108(504).
    """

    likelihood = "categorical"

    classes_: Array

    def __init__(self, penalty="ridge", strength=1.0, n_draws=200, random_state=0):
        self.penalty = penalty
        self.strength = strength
        self.n_draws = n_draws
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        """Fit the weights, and draw from their posterior."""
        with atomic_update(self) as new:
            table, classes = check_classification(new, X, y, sample_weight, reset=True)
            X, codes, weights = new._used(table)
            known, codes = np.unique(codes, return_inverse=True)
            new.classes_ = classes[known]
            basis = None
            if self.penalty == "ridge":
                left, values, basis = np.linalg.svd(X, full_matrices=False)
                X = left * values
            random = np.random.default_rng(self.random_state)
            of_classes = range(len(known)) if len(known) > 2 else [1]
            found = [self._draws(X, codes == c, weights, random) for c in of_classes]
            draws, intercepts = (np.stack(v, 1) for v in zip(*found, strict=True))
            new._adopt(draws if basis is None else draws @ basis, intercepts)
        return self

    def _draws(self, X, is_class, weights, random):
        """Of the weights, (draws, columns), and of the intercept, (draws,)."""
        how = X, is_class, weights, self.strength
        if self.penalty == "ridge":
            mean, intercept, prior = ridge_logistic(*how)
        else:
            mean, intercept, prior = lasso_logistic(*how, self.random_state)
        half = np.maximum(np.abs(X @ mean + intercept) / 2, 1e-6)
        precision = weights * np.tanh(half) / (4 * half)
        # About this mean of the columns, intercept and weights are independent.
        centre = precision @ X / precision.sum()
        design = np.sqrt(precision)[:, None] * (X - centre)
        apart = deviations(design, prior, self.n_draws, random)
        of_mean = _normal((), self.n_draws, random) / np.sqrt(precision.sum())
        return mean + apart, intercept + of_mean - apart @ centre

    @on_snapshot
    def predict_proba(self, X):
        """Mean over draws, (rows, classes)."""
        return np.concatenate([one.mean() for _, one in self._blocks(X)])

    @on_snapshot
    def predict(self, X):
        """Labels, (rows,)."""
        return self.classes_[self.predict_proba(X).argmax(1)]

    def _of_outputs(self, X) -> ClassPredictive:
        own = expit(self._outputs(X))
        if len(self.classes_) == 2:
            probability = np.concatenate([1 - own, own], axis=-1)
        else:
            probability = own / own.sum(-1, keepdims=True)
        return ClassPredictive(probability, self.classes_)
