"""Uncertainty through scikit-learn's meta-estimators.

``Pipeline``, ``GridSearchCV``, ``TransformedTargetRegressor`` and their like pass on
only scikit-learn's own methods. The functions here walk through them to the networks
inside: X goes through the transformers in front, draws come back through a target
transform, and the members of an ensemble are mixed with equal weights.

They take a fitted estimator of this package, or one inside of ``Pipeline``, the
searches, ``FrozenEstimator``, ``StackingRegressor`` / ``StackingClassifier`` (as the
final estimator), ``TransformedTargetRegressor``, ``BaggingRegressor`` /
``BaggingClassifier``, ``MultiOutputRegressor`` and ``CalibratedClassifierCV``, nested
as one likes.
"""

import copy

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
)
from sklearn.model_selection._search import BaseSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import (
    _num_samples,
    check_consistent_length,
    check_is_fitted,
)

from skbayesnn.estimators.base import BayesianNetwork, stream_of
from skbayesnn.mixtures import GaussianMixture, LabelMixture
from skbayesnn.uncertainty import chosen, interval_levels

# Rows of which all draws are held at once.
BLOCK = 512


def predict_uncertainty(model, X, kind=None):
    """How uncertain the predictions are; see the method of the same name.

    Parameters
    ----------
    model : fitted estimator
        One of this package, or a meta-estimator around it; see the module.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        As ``model.predict`` takes it.
    kind : str or list of str, default=None
        None is ``"total"`` for regressors and ``"entropy"`` for classifiers.

    Returns
    -------
    uncertainty : ndarray, or dict of them
    """
    model, X = _unwrap(model, X)
    if isinstance(model, BayesianNetwork):
        return model.predict_uncertainty(X, *(() if kind is None else (kind,)))
    mixtures = [mixture for _, mixture in _blocks(model, X)]
    kinds, default = mixtures[0].kinds, mixtures[0].kinds[0]

    def compute(wanted):
        parts = [mixture.uncertainty(wanted) for mixture in mixtures]
        return {name: np.concatenate([part[name] for part in parts]) for name in wanted}

    return chosen(default if kind is None else kind, kinds, compute)


def predict_quantile(model, X, q):
    """Quantiles of y under the predictive; see the method of the same name.

    Behind a target transform they are the transformed quantiles, which is exact for
    a monotone transform of each target.
    """
    model, X = _unwrap(model, X)
    if isinstance(model, BayesianNetwork):
        return _method(model, "predict_quantile")(X, q)
    levels = np.atleast_1d(q)
    result = np.concatenate(
        [
            np.stack([mixture.quantile(level) for level in levels], axis=-1)
            for _, mixture in _blocks(model, X, "quantile")
        ]
    )
    return result if np.ndim(q) else result[..., 0]


def predict_interval(model, X, coverage=0.9):
    """Central interval of y under the predictive, (n_samples[, n_targets], 2)."""
    return predict_quantile(model, X, interval_levels(coverage))


def sample_y(model, X, n_samples=1, random_state=0):
    """Draws of y; see the method of the same name.

    Around ensembles and target transforms a sample takes one of the fixed posterior
    draws at random, coherent over rows, with independent noise.
    """
    model, X = _unwrap(model, X)
    if isinstance(model, BayesianNetwork):
        return model.sample_y(X, n_samples, random_state)
    picks, noise = np.random.default_rng(stream_of(random_state)).spawn(2)
    blocks: list[np.ndarray] = []
    for _, mixture in _blocks(model, X):
        if not blocks:
            draws = picks.integers(mixture.n_draws, size=n_samples)
        blocks.append(mixture.sample(draws, noise))
    return np.concatenate(blocks)


def log_predictive_density(model, X, y):
    """Log density (classifiers: log probability) of y, (n_samples,), nats (eq. 8)."""
    model, X = _unwrap(model, X)
    if isinstance(model, BayesianNetwork):
        return model.log_predictive_density(X, y)
    y = np.asarray(y)
    check_consistent_length(X, y)
    return np.concatenate(
        [mixture.log_density(y[rows]) for rows, mixture in _blocks(model, X)]
    )


def crps(model, X, y):
    """Continuous ranked probability score of a regression, (n_samples,), y's units.

    Smaller is better [Gneiting & Raftery 2007]; exact for the Gaussian mixture, by
    quadrature behind a target transform. Several targets: their mean.
    """
    model, X = _unwrap(model, X)
    y = np.asarray(y)
    check_consistent_length(X, y)
    blocks = _blocks(model, X, "crps")
    return np.concatenate([mixture.crps(y[rows]) for rows, mixture in blocks])


def _method(model, name):
    """A method that only regressors have."""
    if not hasattr(model, name):
        raise TypeError(
            f"`{name}` needs a regressor; got {type(model).__name__}. For classifiers "
            "there are predict_proba and predict_uncertainty."
        )
    return getattr(model, name)


def _blocks(model, X, need=None):
    """The predictive mixture of every block of rows; ``need`` is a method's name."""
    for start in range(0, _num_samples(X), BLOCK):
        rows = slice(start, min(start + BLOCK, _num_samples(X)))
        mixture = _mixture(model, _safe_indexing(X, rows))
        if need is not None:
            _method(mixture, need)
        yield rows, mixture


def _unwrap(model, X):
    """Through the meta-estimators that only change X, to what is inside."""
    check_is_fitted(model)
    if isinstance(model, Pipeline):
        return _unwrap(model[-1], model[:-1].transform(X) if len(model) > 1 else X)
    if isinstance(model, BaseSearchCV):
        if not hasattr(model, "best_estimator_"):
            raise TypeError(
                f"{type(model).__name__} must be fitted with refit=True, so that it "
                f"has a best estimator; got refit={model.refit!r}."
            )
        return _unwrap(model.best_estimator_, X)
    if isinstance(model, StackingRegressor):
        return _unwrap(model.final_estimator_, model.transform(X))
    if type(model).__name__ == "FrozenEstimator":
        return _unwrap(model.estimator, X)
    return model, X


def _mixture(model, X):
    """The predictive of a few rows, with all draws held."""
    model, X = _unwrap(model, X)
    if isinstance(model, BayesianNetwork):
        return model._mixture(X)
    if isinstance(model, TransformedTargetRegressor):
        inner = _mixture(model.regressor_, X)
        return inner.behind(model.transformer_, flat=model._training_dim == 1)
    if isinstance(model, BaggingRegressor | BaggingClassifier):
        parts = [
            _mixture(member, _safe_indexing(X, features, axis=1))
            for member, features in zip(
                model.estimators_, model.estimators_features_, strict=True
            )
        ]
        if isinstance(model, BaggingClassifier):
            parts = [part.labelled(model.classes_) for part in parts]
        return type(parts[0]).pooled(parts, getattr(model, "classes_", None))
    if isinstance(model, StackingClassifier):
        final = _mixture(model.final_estimator_, model.transform(X))
        return final.labelled(model.classes_)
    if isinstance(model, MultiOutputRegressor):
        return GaussianMixture.side_by_side(
            [_mixture(member, X) for member in model.estimators_]
        )
    if isinstance(model, CalibratedClassifierCV):
        parts = [_calibrated(member, X) for member in model.calibrated_classifiers_]
        return LabelMixture.pooled(parts, model.classes_)
    raise TypeError(
        "uncertainty can be had from the estimators of skbayesnn, alone or inside of "
        "Pipeline, a search, FrozenEstimator, Stacking (as the final estimator), "
        "TransformedTargetRegressor, Bagging, MultiOutputRegressor or "
        f"CalibratedClassifierCV; got {type(model).__name__}."
    )


def _calibrated(member, X):
    """Every draw's probabilities, sent through the calibrators of one fold."""
    mixture = _mixture(member.estimator, X)
    on_draws = copy.copy(member)
    on_draws.estimator = _Probabilities(mixture.classes)
    n_draws, n_rows, n_classes = mixture.probability.shape
    calibrated = on_draws.predict_proba(mixture.probability.reshape(-1, n_classes))
    return LabelMixture(calibrated.reshape(n_draws, n_rows, -1), member.classes)


class _Probabilities(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are the probabilities that it predicts."""

    def __init__(self, classes):
        self.classes_ = classes

    def predict_proba(self, X):
        return X
