"""Candidates from other libraries: regressors and classifiers with ``fit``.

A regressor predicts means; its observation noise is estimated from its out-of-fold
residuals. If it predicts variances, too, they are used where this predicts the
held-out rows better. The prediction of a row is one normal distribution, or the class
probabilities, as a single draw: its epistemic part is zero, since other libraries do
not separate it. NumPy, float64.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skbayesnn._data.scaling import Scaling
from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import (
    ClassificationPredictiveMixin,
    PredictiveBlocks,
    PredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._runtime import atomic_update, on_snapshot
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    num_samples,
    safe_indexing,
)
from skbayesnn._typing import Array

# ---- noise of a regressor

# Largest number of bins of the predicted mean, and least number of rows in a bin.
MAX_BINS = 10
MIN_ROWS = 50
# Rows that the variance of all rows is worth in a bin.
PRIOR_ROWS = 10.0
# Number of parts of the held-out rows that take turns to evaluate the noise, if all
# were held out together.
N_PARTS = 5
# Smallest variance, as a share of the variance of y.
MIN_VARIANCE = 1e-8


class Noise(NamedTuple):
    """Variance of y about a prediction, for each target.

    The variance is ``factor`` times the predicted variance, plus a step function of the
    predicted mean.

    Parameters
    ----------
    factor : ndarray of shape (targets,)
    edges : ndarray of shape (targets, bins - 1)
        Increasing; infinite if a target has fewer bins.
    variances : ndarray of shape (targets, bins)
    """

    factor: np.ndarray
    edges: np.ndarray
    variances: np.ndarray

    @classmethod
    def joined(cls, targets: "Sequence[Noise]") -> "Noise":
        """Join the noise of single targets, with infinite edges of unused bins."""
        most = max(noise.variances.shape[1] for noise in targets)
        missing = [((0, 0), (0, most - noise.variances.shape[1])) for noise in targets]
        edges = [
            np.pad(noise.edges, width, constant_values=np.inf)
            for noise, width in zip(targets, missing, strict=True)
        ]
        variances = [
            np.pad(noise.variances, width, mode="edge")
            for noise, width in zip(targets, missing, strict=True)
        ]
        factor = np.concatenate([noise.factor for noise in targets])
        return cls(factor, np.concatenate(edges), np.concatenate(variances))

    def variance(self, mean: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """Variance of y, (rows, targets).

        mean : (rows, targets)
        predicted : (rows, targets), variance that the model predicts, or zeros
        """
        columns = zip(self.edges, self.variances, mean.T, strict=True)
        steps = [
            variances[np.searchsorted(edges, values)]
            for edges, variances, values in columns
        ]
        return self.factor * predicted + np.stack(steps, axis=-1)


def _constant(squares, weights, mean, predicted) -> Noise:
    """The same variance for all rows."""
    variance = np.average(squares, weights=weights)
    return Noise(np.zeros(1), np.empty((1, 0)), np.array([[variance]]))


def _by_mean(squares, weights, mean, predicted) -> Noise:
    """One variance for each bin of the predicted mean, with about equally many rows.

    Its logarithm is shrunk to the logarithm of the variance of all rows.
    """
    n_bins = int(np.clip(len(mean) // MIN_ROWS, 1, MAX_BINS))
    edges = np.unique(np.quantile(mean, np.arange(1, n_bins) / n_bins))
    bins, n_bins = np.searchsorted(edges, mean), len(edges) + 1
    pooled = np.average(squares, weights=weights)
    # Weights that do not depend on their unit.
    weights = weights / weights.mean()
    n_rows = np.bincount(bins, weights, n_bins)
    variances = np.bincount(bins, weights * squares, n_bins) / n_rows
    logs = np.log(np.maximum(variances, MIN_VARIANCE * pooled + np.finfo(float).tiny))
    share = n_rows / (n_rows + PRIOR_ROWS)
    pooled = np.log(pooled + np.finfo(float).tiny)
    variances = np.exp(share * logs + (1 - share) * pooled)
    return Noise(np.zeros(1), edges[None], variances[None])


def _as_predicted(squares, weights, mean, predicted) -> Noise:
    """The variance that the model predicts."""
    return Noise(np.ones(1), np.empty((1, 0)), np.zeros((1, 1)))


def _scaled(squares, weights, mean, predicted) -> Noise:
    """A multiple of the predicted variance, the maximum-likelihood estimate."""
    least = np.finfo(float).tiny
    ratios = squares / np.maximum(predicted, least)
    factor = np.average(ratios, weights=weights)
    return Noise(np.array([factor]), np.empty((1, 0)), np.zeros((1, 1)))


def estimate_noise(y, mean, predicted, weights, fold) -> tuple[Noise, np.ndarray]:
    """Noise from held-out residuals, and the variances of the held-out rows.

    Of several forms of noise, each target gets the one with the largest log density of
    rows that were not used to estimate it. These are the rows of one fold, or a fifth
    of the rows if there is one fold. The variances of the held-out rows come from the
    same estimates, so that the row itself does not determine its variance.

    y, mean : (rows, targets)
    predicted : (rows, targets), predicted variance, or None
    weights : (rows,), not negative; fold : (rows,), int
    returns : Noise, and variances of shape (rows, targets)
    """
    used = np.flatnonzero(weights)
    part = fold if len(np.unique(fold[used])) > 1 else np.arange(len(fold)) % N_PARTS
    forms = [_constant, _by_mean]
    if predicted is None:
        predicted = np.zeros_like(mean)
    else:
        forms += [_as_predicted, _scaled]
    least = np.finfo(float).tiny + MIN_VARIANCE * y[used].var(0)
    targets, variances = [], np.empty_like(mean)
    for j in range(mean.shape[1]):
        arguments = np.square(y - mean)[:, j], weights, mean[:, j], predicted[:, j]
        candidates = [
            np.maximum(_cross_fitted(form, arguments, part), least[j]) for form in forms
        ]
        scores = [
            weights @ -(np.log(variance) + arguments[0] / variance)
            for variance in candidates
        ]
        best = int(np.argmax(scores))
        variances[:, j] = candidates[best]
        noise = forms[best](*(values[used] for values in arguments))
        if noise.factor.any():
            targets.append(noise._replace(variances=np.full((1, 1), least[j])))
        else:
            variance = np.maximum(noise.variances, least[j])
            targets.append(noise._replace(variances=variance))
    return Noise.joined(targets), variances


def _cross_fitted(form, arguments, part) -> np.ndarray:
    """Variance of each row from the rows of other parts, (rows,)."""
    squares, weights, mean, predicted = arguments
    variance = np.empty_like(squares)
    for k in np.unique(part):
        inside, others = part == k, (part != k) & (weights > 0)
        if not others.any():
            others = weights > 0
        noise = form(*(values[others] for values in arguments))
        variance[inside] = noise.variance(
            mean[inside, None], predicted[inside, None]
        ).ravel()
    return variance


# ---- estimators


def takes_frame(estimator) -> bool:
    """Whether an estimator gets X as it is given, and not its encoded columns.

    These are pipelines, and estimators with a parameter for categorical columns.
    """
    if isinstance(estimator, Pipeline):
        return True
    params = estimator.get_params(deep=False)
    if params.get("cat_features") is not None or params.get("enable_categorical"):
        return True
    categories = params.get("categorical_features")
    return categories is not None and not isinstance(categories, str)


class ForeignModel(PredictiveMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of both adapters of estimators from other libraries.

    Parameters
    ----------
    estimator : estimator
    """

    # The stack reads these of networks: the number of fits from different starts, and
    # of draws of each.
    n_estimators = 1
    n_draws = 1
    likelihood: str

    estimator_: Any
    n_features_in_: int
    x_mean_: Array
    x_scale_: Array
    total_weight_: float

    def __init__(self, estimator):
        self.estimator = estimator

    def _fit(self, X, y, sample_weight, groups) -> np.ndarray:
        """Fit the estimator to the rows with positive weight; return their weights.

        The estimator gets weights and groups if its ``fit`` takes them.
        """
        weights = np.ones(num_samples(X)) if sample_weight is None else sample_weight
        used = np.flatnonzero(weights)
        if len(used) < len(weights):
            X, y, weights = safe_indexing(X, used), y[used], weights[used]
        path, last = "", self.estimator
        while isinstance(last, Pipeline):
            name, last = last.steps[-1]
            path += f"{name}__"
        params = {}
        if sample_weight is not None and has_fit_parameter(last, "sample_weight"):
            params[f"{path}sample_weight"] = weights
        if groups is not None and has_fit_parameter(last, "groups"):
            params[f"{path}groups"] = groups[used]
        self.estimator_ = unfitted(self.estimator).fit(X, y, **params)
        if isinstance(X, np.ndarray) or sparse.issparse(X):
            self._store_scales(X, weights)
        return weights

    def __sklearn_clone__(self):
        return type(self)(unfitted(self.estimator))

    def _store_scales(self, X, weights) -> None:
        """Store mean and standard deviation of each column, for far rows."""
        if not (X.ndim == 2 and X.dtype.kind in "fiu"):
            return
        self.n_features_in_ = X.shape[1]
        self.total_weight_ = float(weights.sum())
        scaling = Scaling.of(X, weights, weights, inputs=True, targets=False)
        self.x_mean_, self.x_scale_ = scaling.x_mean, scaling.x_scale

    @abstractmethod
    def _distribution(self, X) -> Callable[[slice], Any]:
        """Function of a slice of rows that returns their predictive distribution."""

    @on_snapshot
    def _open_predictive(self, X):
        check_is_fitted(self)
        return PredictiveBlocks(num_samples(X), self._distribution(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class ForeignRegressor(RegressionPredictiveMixin, RegressorMixin, ForeignModel):
    """A regressor of another library, with normal observation noise.

    Variances are read from ``predict(X, return_std=True)`` (Gaussian processes,
    Bayesian ridge regression), from ``pred_dist(X)`` (NGBoost), or from the second
    column of ``predict(X)`` (CatBoost with the loss ``"RMSEWithUncertainty"``).

    Parameters
    ----------
    estimator : regressor

    Attributes
    ----------
    estimator_ : fitted regressor
    noise_factor_, noise_edges_, noise_variances_ : ndarray
        Fields of :class:`Noise`. After ``fit``, the variance is the predicted one, or
        the variance of y. The stack replaces it by ``set_noise``.
    y_ndim_ : int
    n_features_in_, x_mean_, x_scale_, total_weight_
        If X is a numeric array.
    """

    likelihood = "gaussian"

    noise_factor_: Array
    noise_edges_: Array
    noise_variances_: Array
    y_ndim_: int

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the estimator."""
        y = np.asarray(y, dtype=np.float64)
        with atomic_update(self) as new:
            new._fit(X, y, sample_weight, groups)
            new.y_ndim_ = y.ndim
            used = slice(None) if sample_weight is None else sample_weight > 0
            variance = y[used].reshape(-1, *y.shape[1:] or (1,)).var(0)
            variance += np.finfo(float).tiny
            is_predicted = new.predicts_variance
            least = MIN_VARIANCE * variance if is_predicted else variance
            new.set_noise(
                Noise(
                    np.full(len(variance), float(is_predicted)),
                    np.empty((len(variance), 0)),
                    least[:, None],
                )
            )
        return self

    def set_noise(self, noise: Noise) -> None:
        """Replace the noise."""
        self.noise_factor_, self.noise_edges_, self.noise_variances_ = noise

    @property
    def predicts_variance(self) -> bool:
        """Whether the estimator predicts the variance of y."""
        return self._source_of_variance() is not None

    def _source_of_variance(self) -> str | None:
        last = self.estimator
        while isinstance(last, Pipeline):
            last = last.steps[-1][1]
        if "return_std" in signature(last.predict).parameters:
            return "return_std"
        if hasattr(self.estimator, "pred_dist"):
            return "pred_dist"
        params = last.get_params(deep=False)
        if params.get("loss_function") == "RMSEWithUncertainty":
            return "second column"
        return None

    def moments(self, X) -> tuple[np.ndarray, np.ndarray | None]:
        """Predicted mean, (rows, targets), and variance or None."""
        source = self._source_of_variance()
        variance = None
        if source == "return_std":
            mean, std = self.estimator_.predict(X, return_std=True)
            variance = np.square(std)
        elif source == "pred_dist":
            distribution = self.estimator_.pred_dist(X)
            mean, variance = distribution.mean(), np.square(distribution.std())
        elif source == "second column":
            mean, variance = np.asarray(self.estimator_.predict(X)).T
        else:
            mean = self.estimator_.predict(X)
        mean = _columns(mean, num_samples(X))
        return mean, None if variance is None else _columns(variance, len(mean))

    def _distribution(self, X):
        mean, predicted = self.moments(X)
        if predicted is None:
            predicted = np.zeros_like(mean)
        noise = Noise(self.noise_factor_, self.noise_edges_, self.noise_variances_)
        whole = Gaussians(mean[None], noise.variance(mean, predicted)[None])
        is_flat = self.y_ndim_ == 1
        return lambda rows: MixturePredictive(whole.rows(rows), is_flat)


def _columns(values, n_rows: int) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(n_rows, -1)


class ForeignClassifier(ClassificationPredictiveMixin, ClassifierMixin, ForeignModel):
    """A classifier of another library with ``predict_proba``, as a single draw.

    Parameters
    ----------
    estimator : classifier

    Attributes
    ----------
    estimator_ : fitted classifier
    classes_ : ndarray of shape (n_classes,)
    n_features_in_, x_mean_, x_scale_, total_weight_
        If X is a numeric array.
    """

    likelihood = "categorical"

    classes_: Array

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the estimator."""
        with atomic_update(self) as new:
            new._fit(X, np.asarray(y), sample_weight, groups)
            new.classes_ = np.asarray(new.estimator_.classes_)
        return self

    def _distribution(self, X):
        probability = _columns(self.estimator_.predict_proba(X), num_samples(X))
        probability /= probability.sum(-1, keepdims=True)
        return lambda rows: ClassPredictive(probability[None, rows], self.classes_)


def adapted(name: str, estimator, *, is_classification: bool, seed: int):
    """Adapter of an estimator of another library.

    seed : of all its parameters ``random_state`` that are None

    Raises
    ------
    TypeError
        If it does not predict what the stack requires.
    """
    is_estimator = hasattr(estimator, "get_params") and hasattr(estimator, "fit")
    fits_task = is_classifier if is_classification else is_regressor
    if not is_estimator or not fits_task(estimator):
        required = "classifiers" if is_classification else "regressors"
        raise TypeError(
            f"the pool must contain {required} only; got {type(estimator).__name__} as "
            f"{name!r}."
        )
    if is_classification and not hasattr(estimator, "predict_proba"):
        raise TypeError(
            f"a candidate must have `predict_proba`; got {type(estimator).__name__} as "
            f"{name!r}. Put CalibratedClassifierCV around it."
        )
    seeds = {
        param: seed
        for param, value in estimator.get_params().items()
        if value is None and param.rpartition("__")[2] == "random_state"
    }
    adapter = ForeignClassifier if is_classification else ForeignRegressor
    return adapter(unfitted(estimator).set_params(**seeds))


def unfitted(estimator):
    """Clone an estimator, also if its constructor copies parameters.

    CatBoost copies lists, which scikit-learn's ``clone`` does not accept.
    """
    try:
        return clone(estimator)
    except RuntimeError:
        return type(estimator)(**deepcopy(estimator.get_params(deep=False)))
