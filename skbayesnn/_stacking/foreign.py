"""Candidates from other libraries: regressors and classifiers with ``fit``.

A regressor predicts means; its observation noise is estimated from its out-of-fold
residuals. If it predicts variances, too, they are used where this predicts the
held-out rows better. A regressor that predicts quantiles is a distribution with these
quantiles, whose spread is corrected out of fold. The prediction of a row is a single
draw: its epistemic part is zero, since other libraries do not separate it. NumPy,
float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skbayesnn import _stored as stored
from skbayesnn._batch.cross_fit import refuse_fitted
from skbayesnn._batch.jobs import last_step, path_of_network
from skbayesnn._data.columns import DAY, KINDS, MISSING, TableReader, is_frame
from skbayesnn._distributions.cells import Cells
from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.piecewise import PiecewiseUniforms
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import (
    ClassificationPredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._runtime import atomic_update, imported
from skbayesnn._sklearn_compat import (
    ClassifierMixin,
    RegressorMixin,
    num_samples,
    predicts_numbers,
    safe_indexing,
)
from skbayesnn._stacking.separate_model import SeparateModel
from skbayesnn._stacking.weights import best_factor

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
# Largest predicted variance. Its products with residuals are finite.
MAX_VARIANCE = 1e100

# ---- other constants

# Levels of the quantiles, if the parameters of the estimator do not contain several.
LEVELS = 0.025, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.975
# Largest density between two quantiles, in units of 1 / standard deviation of y.
MAX_DENSITY = 1e3


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


def _noise(variances, edges=(), factor: float = 0.0) -> Noise:
    """Noise of one target, with infinite edges of the bins that it does not use."""
    edges = np.pad(edges, (0, MAX_BINS - 1 - len(edges)), constant_values=np.inf)
    variances = np.pad(variances, (0, MAX_BINS - len(variances)), mode="edge")
    return Noise(np.array([factor]), edges[None], variances[None])


def _constant(squares, weights, mean, predicted) -> Noise:
    """The same variance for all rows."""
    return _noise([np.average(squares, weights=weights)])


def _by_mean(squares, weights, mean, predicted) -> Noise:
    """One variance for each bin of the predicted mean, with about equally many rows.

    Its logarithm is shrunk to the logarithm of the variance of all rows.
    """
    n_bins = int(np.clip(len(mean) // MIN_ROWS, 1, MAX_BINS))
    edges = np.unique(np.quantile(mean, np.arange(1, n_bins) / n_bins))
    # Equal means may be an edge; above the largest mean there are no rows.
    edges = edges[edges < mean.max()]
    bins, n_bins = np.searchsorted(edges, mean), len(edges) + 1
    pooled = np.average(squares, weights=weights)
    # Weights that do not depend on their unit.
    weights = weights / weights.mean()
    n_rows = np.bincount(bins, weights, n_bins)
    variances = np.bincount(bins, weights * squares, n_bins) / n_rows
    logs = np.log(np.maximum(variances, MIN_VARIANCE * pooled + np.finfo(float).tiny))
    share = n_rows / (n_rows + PRIOR_ROWS)
    pooled = np.log(pooled + np.finfo(float).tiny)
    return _noise(np.exp(share * logs + (1 - share) * pooled), edges)


def _as_predicted(squares, weights, mean, predicted) -> Noise:
    """The variance that the model predicts."""
    return _noise([0.0], factor=1.0)


def _scaled(squares, weights, mean, predicted) -> Noise:
    """A multiple of the predicted variance, the maximum-likelihood estimate."""
    ratios = squares / np.maximum(predicted, np.finfo(float).tiny)
    return _noise([0.0], factor=np.average(ratios, weights=weights))


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
        squares = np.square(y - mean)[:, j]
        arguments = squares, weights, mean[:, j], predicted[:, j]
        candidates = [
            np.maximum(_cross_fitted(form, arguments, part), least[j]) for form in forms
        ]
        scores = [weights @ -(np.log(v) + squares / v) for v in candidates]
        best = int(np.argmax(scores))
        variances[:, j] = candidates[best]
        noise = forms[best](*(values[used] for values in arguments))
        targets.append(noise._replace(variances=np.maximum(noise.variances, least[j])))
    return Noise(*map(np.concatenate, zip(*targets, strict=True))), variances


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


def _opened(estimator, X) -> tuple[Any, Any]:
    """Last step of a fitted pipeline, or the estimator, and X as it takes it."""
    while isinstance(estimator, Pipeline):
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        estimator = estimator[-1]
    return estimator, X


def takes_frame(estimator) -> bool:
    """Whether an estimator gets X as it is given, and not its encoded columns.

    These are pipelines, and estimators whose parameters name categorical columns.
    """
    if isinstance(estimator, Pipeline):
        return True
    params = estimator.get_params(deep=False)
    if params.get("cat_features") is not None or params.get("enable_categorical"):
        return True
    categories = params.get("categorical_features")
    return categories is not None and not isinstance(categories, str)


def _mentions(value, names: set[str]) -> bool:
    """Whether a value of a parameter contains one of the names."""
    if isinstance(value, str):  # also "name:1", as in CatBoost
        return value in names or value.rpartition(":")[0] in names
    if isinstance(value, Mapping | list | tuple):
        return any(_mentions(item, names) for item in value)
    return False


def name_features(adapter: ForeignModel, names) -> None:
    """Name the columns of arrays, if parameters of the estimator contain a name.

    names : array-like of str, or None
    """
    params = adapter.estimator.get_params(deep=False).values()
    names = [] if names is None else list(names)
    if _mentions(list(params), set(names)):
        adapter.set_params(feature_names=names)


def _with_plain_columns(frame, keeps_categories: bool):
    """A pandas frame with dates as days since 1970, and text in place of categories.

    keeps_categories : whether columns of pandas categories stay as they are
    """
    reader, frame = TableReader(frame), frame.copy()
    for name, column in zip(reader.names, reader, strict=True):
        kind = KINDS[column.kind()]
        if kind.input_type is np.object_:
            if not (keeps_categories and hasattr(frame[name], "cat")):
                data = column.categories()
                levels = np.array([*data.levels, MISSING], dtype=object)
                frame[name] = levels[data.codes]
        elif kind.unit:  # days of dates, seconds of durations
            numbers = column.numbers_of_kind(column.kind(), column.time_zone())
            frame[name] = numbers / DAY if kind.is_date else numbers
    return frame


class ForeignModel(SeparateModel):
    """Base of both adapters of estimators from other libraries.

    Parameters
    ----------
    estimator : estimator
    feature_names : list of str, default=None
        Names of the columns of arrays, if the estimator gets them as frames.
    """

    estimator: stored.Estimator
    feature_names: list[str] | None
    # If X is a numeric array.
    n_features_in_: Annotated[stored.NumberOfColumns, stored.OPTIONAL]
    x_mean_: Annotated[stored.Floats, "columns", stored.OPTIONAL]
    x_scale_: Annotated[stored.Floats, "columns", stored.POSITIVE, stored.OPTIONAL]
    total_weight_: Annotated[float, stored.POSITIVE, stored.OPTIONAL]

    def __init__(self, estimator, feature_names=None):
        self._store(locals())

    def _inputs(self, X):
        """X as the estimator takes it."""
        check_is_fitted(self)
        return self._rows(X)

    def _rows(self, X):
        if isinstance(X, np.ndarray) and self.feature_names is not None:
            return imported("pandas").DataFrame(X, columns=self.feature_names)
        is_pipeline = isinstance(self.estimator, Pipeline)
        is_pandas = is_frame(X) and type(X).__module__.startswith("pandas")
        if is_pipeline or not is_pandas:
            return X
        # Of all libraries, CatBoost alone needs text.
        params = self.estimator.get_params(deep=False)
        return _with_plain_columns(X, params.get("cat_features") is None)

    def _fit(self, X, y, sample_weight, groups, estimators) -> list:
        """Fit estimators to the rows with positive weight; return them.

        They get weights and groups if their ``fit`` takes them.

        estimators : copies of ``estimator``, which may have other parameters
        """
        weights = np.ones(num_samples(X)) if sample_weight is None else sample_weight
        used = np.flatnonzero(weights)
        if len(used) < len(weights):
            X, y, weights = safe_indexing(X, used), y[used], weights[used]
        path, last = path_of_network(self.estimator), last_step(self.estimator)
        params = {}
        if sample_weight is not None and has_fit_parameter(last, "sample_weight"):
            params[f"{path}sample_weight"] = weights
        if groups is not None and has_fit_parameter(last, "groups"):
            params[f"{path}groups"] = groups[used]
        rows = self._rows(X)
        fitted = [estimator.fit(rows, y, **params) for estimator in estimators]
        is_matrix = isinstance(X, np.ndarray) or sparse.issparse(X)
        if is_matrix and X.ndim == 2 and X.dtype.kind in "fiu":
            self.n_features_in_ = X.shape[1]
            self._store_scales(X, weights)
        return fitted

    def __sklearn_clone__(self):
        return type(self)(unfitted(self.estimator), self.feature_names)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class ForeignRegressor(RegressionPredictiveMixin, RegressorMixin, ForeignModel):
    """A regressor of another library, with normal observation noise.

    Variances are read from ``predict(X, return_std=True)`` (Gaussian processes,
    Bayesian ridge regression) or from ``pred_dist(X)`` (NGBoost).

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

    # scikit-learn does not recognise whether some are fitted, as NGBoost.
    estimator_: stored.Estimator
    noise_factor_: Annotated[stored.Floats, "targets", stored.NOT_NEGATIVE]
    noise_edges_: Annotated[stored.Floats, "targets, edges", stored.NOT_NAN]
    noise_variances_: Annotated[stored.Floats, "targets, edges + 1", stored.POSITIVE]
    y_ndim_: Literal[1, 2]

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the estimator."""
        y = np.asarray(y, dtype=np.float64)
        with atomic_update(self) as new:
            estimators = [unfitted(self.estimator)]
            [new.estimator_] = new._fit(X, y, sample_weight, groups, estimators)
            new.y_ndim_ = y.ndim
            variance = _variance_of(y, sample_weight)
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

    def with_noise_of(self, predictive, y, weights, fold):
        """Prediction of held-out rows with noise from their residuals, and the noise.

        predictive : of this model; y : (rows[, targets])
        """
        components = predictive.components
        mean = components.mean[0]
        noise, variance = estimate_noise(
            y.reshape(mean.shape),
            mean,
            components.variance[0] if self.predicts_variance else None,
            weights,
            fold,
        )
        components = replace(components, variance=variance[None])
        return replace(predictive, components=components), noise

    @property
    def predicts_variance(self) -> bool:
        """Whether the estimator predicts the variance of y."""
        return self._source_of_variance() is not None

    def _source_of_variance(self) -> str | None:
        last = last_step(self.estimator)
        if "return_std" in signature(last.predict).parameters:
            return "return_std"
        return "pred_dist" if hasattr(last, "pred_dist") else None

    def moments(self, X) -> tuple[np.ndarray, np.ndarray | None]:
        """Means, (rows, targets), and predicted variances, or None.

        Raises
        ------
        ValueError
            If the estimator does not predict one value per row and target.
        """
        source, n_rows = self._source_of_variance(), num_samples(X)
        variance = None
        if source == "return_std":
            # A pipeline would pass `return_std` on only if it were requested.
            last, rows = _opened(self.estimator_, X)
            mean, std = last.predict(rows, return_std=True)
            variance = np.square(std)
        elif source == "pred_dist":
            last, rows = _opened(self.estimator_, X)
            distribution = last.pred_dist(rows)
            mean, variance = distribution.mean(), np.square(distribution.std())
        else:
            mean = self.estimator_.predict(X)
        mean, n_targets = _columns(mean, n_rows), len(self.noise_factor_)
        if mean.shape[1] != n_targets:
            raise ValueError(
                "`predict` of a candidate must return one mean per row and target; got "
                f"{mean.shape[1]} values for {n_targets} targets from "
                f"{type(last_step(self.estimator)).__name__}. Give it a loss for means."
            )
        if variance is not None:
            # Student's t distributions may have none, or an infinite one.
            variance = _columns(variance, n_rows)
            variance = np.where(variance < MAX_VARIANCE, variance, MAX_VARIANCE)
        return mean, variance

    def _distribution(self, X):
        mean, predicted = self.moments(X)
        if predicted is None:
            predicted = np.zeros_like(mean)
        noise = Noise(self.noise_factor_, self.noise_edges_, self.noise_variances_)
        whole = Gaussians(mean[None], noise.variance(mean, predicted)[None])
        is_flat = self.y_ndim_ == 1
        return lambda rows: MixturePredictive(whole.rows(rows), is_flat)


def _variance_of(y, sample_weight) -> np.ndarray:
    """Positive variance of the rows with positive weight, (targets,)."""
    used = slice(None) if sample_weight is None else sample_weight > 0
    return np.atleast_1d(y[used].var(0)) + np.finfo(float).tiny


class QuantileFits(NamedTuple):
    """How to predict several quantiles with an estimator of another library.

    Parameters
    ----------
    levels : tuple of float
    params : list of dict
        Parameters of each fit; either one fit, or one per level.
    options : dict
        Arguments of ``predict``.
    """

    levels: tuple[float, ...]
    params: list[dict]
    options: dict


def quantile_fits(estimator) -> QuantileFits | None:
    """Fits and predictions for several quantiles; None if it predicts no quantiles.

    If the parameters of the estimator do not contain several levels, they are
    ``LEVELS``.
    """
    path, last = path_of_network(estimator), last_step(estimator)
    if not hasattr(last, "get_params") or not hasattr(last, "predict"):
        return None
    params = last.get_params(deep=False)
    loss = params.get("loss_function")
    if isinstance(loss, str) and loss.partition(":")[0] in (
        "Quantile",
        "MultiQuantile",
    ):
        given = loss.partition("alpha=")[2].partition(";")[0]
        levels = _levels([float(level) for level in given.split(",")] if given else [])
        text = ", ".join(map(str, levels))
        loss_function = f"MultiQuantile:alpha={text}"
        return QuantileFits(levels, [{f"{path}loss_function": loss_function}], {})
    if params.get("objective") == "reg:quantileerror":
        levels = _levels(params.get("quantile_alpha"))
        return QuantileFits(levels, [{f"{path}quantile_alpha": list(levels)}], {})
    options = signature(last.predict).parameters
    if "quantiles" in options and "output_type" not in options:
        levels = _levels(params.get("default_quantiles"))
        return QuantileFits(levels, [{}], {"quantiles": list(levels)})
    if params.get("objective") == "quantile" or params.get("loss") == "quantile":
        name = "quantile" if "quantile" in params else "alpha"
    elif "quantile" in params and "loss" not in params:
        name = "quantile"
    else:
        return None
    return QuantileFits(LEVELS, [{f"{path}{name}": level} for level in LEVELS], {})


def _levels(given) -> tuple[float, ...]:
    """The given levels in increasing order if there are several, or ``LEVELS``."""
    levels = sorted(
        {float(level) for level in np.ravel(given if given is not None else [])}
    )
    if len(levels) < 2:
        return LEVELS
    if not 0 < levels[0] <= levels[-1] < 1:
        raise ValueError(f"levels of quantiles must be in (0, 1); got {levels}.")
    return tuple(levels)


class ForeignQuantileRegressor(RegressionPredictiveMixin, RegressorMixin, ForeignModel):
    """A regressor of another library that predicts quantiles of one target.

    The distribution is uniform between two quantiles and has exponential tails
    (:class:`PiecewiseUniforms`). Its density is at most ``MAX_DENSITY`` / standard
    deviation of y.

    Parameters
    ----------
    estimator : regressor
        If it predicts a single quantile, it is fitted once per level.

    Attributes
    ----------
    estimators_ : list of fitted regressors
    levels_ : ndarray of shape (levels,)
    least_scale_ : ndarray of shape (1,)
        Inverse of the largest density, in units of y.
    spread_factor_ : ndarray of shape (1,)
        Factor on the spread about the mean. It is 1 after ``fit``; the stack replaces
        it by ``set_noise``.
    y_ndim_ : int
    n_features_in_, x_mean_, x_scale_, total_weight_
        If X is a numeric array.
    """

    likelihood = "quantiles"

    estimators_: list[stored.Estimator]
    levels_: Annotated[stored.Floats, "levels", stored.SHARE, stored.SORTED]
    least_scale_: Annotated[stored.Floats, "1", stored.POSITIVE]
    spread_factor_: Annotated[stored.Floats, "1", stored.POSITIVE]
    y_ndim_: Literal[1, 2]

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the estimator, or one per level."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim > 1 and y.shape[1] > 1:
            raise ValueError(
                f"{type(self.estimator).__name__} predicts quantiles of one target; "
                f"got {y.shape[1]} targets. Fit a stack to each of them."
            )
        with atomic_update(self) as new:
            fits = self._fits
            estimators = [
                unfitted(self.estimator).set_params(**params) for params in fits.params
            ]
            new.estimators_ = new._fit(X, y, sample_weight, groups, estimators)
            new.levels_ = np.array(fits.levels)
            new.least_scale_ = np.sqrt(_variance_of(y, sample_weight)) / MAX_DENSITY
            new.y_ndim_ = y.ndim
            new.set_noise(np.ones(1))
        return self

    def set_noise(self, factor: np.ndarray) -> None:
        """Replace the factor on the spread."""
        self.spread_factor_ = factor

    def with_noise_of(self, predictive, y, weights, fold):
        """Prediction of held-out rows with its likeliest spread, and the factor."""
        columns = y.astype(np.float64).reshape(len(y), -1)
        error = np.abs(predictive.mean().reshape(columns.shape) - columns)
        largest = np.average(error, axis=0, weights=weights)
        cells = Cells.of(columns, columns[weights > 0], largest)
        factor = best_factor(predictive, cells, weights)
        return predictive.scaled(factor), factor

    @property
    def _fits(self) -> QuantileFits:
        fits = quantile_fits(self.estimator)
        if fits is None:
            raise TypeError(f"{self.estimator!r} does not predict quantiles.")
        return fits

    def quantiles(self, X) -> np.ndarray:
        """Predicted quantiles, which may cross, (rows, levels)."""
        options, columns = self._fits.options, []
        for estimator in self.estimators_:
            last, rows = _opened(estimator, X)
            columns.append(_columns(last.predict(rows, **options), num_samples(X)))
        return np.concatenate(columns, axis=1)

    def _distribution(self, X):
        given = PiecewiseUniforms.from_quantiles(
            self.quantiles(X)[:, None], self.levels_, self.least_scale_
        )
        whole = given.scaled_about(given.mean[0], self.spread_factor_)
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

    estimator_: stored.Estimator
    classes_: stored.Labels

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the estimator."""
        with atomic_update(self) as new:
            [new.estimator_] = new._fit(
                X, np.asarray(y), sample_weight, groups, [unfitted(self.estimator)]
            )
            new.classes_ = np.asarray(new.estimator_.classes_)
        return self

    def _distribution(self, X):
        probability = _columns(self.estimator_.predict_proba(X), num_samples(X))
        whole = probability[None] / probability.sum(-1, keepdims=True)
        return lambda rows: ClassPredictive(whole[:, rows], self.classes_)


def adapted(name: str, estimator, *, is_classification: bool, seed: int):
    """Adapter of an estimator of another library.

    seed : of all its parameters ``random_state`` that are None

    Raises
    ------
    TypeError
        If it does not predict what the stack requires.
    """
    is_estimator = hasattr(estimator, "get_params") and hasattr(estimator, "fit")
    fits_task = is_classifier if is_classification else predicts_numbers
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
    refuse_fitted(estimator)
    # NGBoost replaces None by NumPy's global generator.
    unseeded = None, check_random_state(None)
    seeds = {
        param: seed
        for param, value in estimator.get_params().items()
        if param.rpartition("__")[2] == "random_state"
        and any(value is other for other in unseeded)
    }
    adapter: type[ForeignModel] = ForeignClassifier
    if not is_classification:
        predicts_quantiles = quantile_fits(estimator) is not None
        adapter = ForeignQuantileRegressor if predicts_quantiles else ForeignRegressor
    return adapter(unfitted(estimator).set_params(**seeds))


def unfitted(estimator):
    """Clone an estimator, also if its constructor copies parameters.

    CatBoost copies lists, which scikit-learn's ``clone`` does not accept.
    """
    try:
        return clone(estimator)
    except RuntimeError:
        return type(estimator)(**deepcopy(estimator.get_params(deep=False)))
