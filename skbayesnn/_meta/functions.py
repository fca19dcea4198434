"""Uncertainty through scikit-learn's meta-estimators.

``Pipeline``, ``GridSearchCV``, ``TransformedTargetRegressor`` and their like pass on
only scikit-learn's own methods. The functions here walk through them to the networks
inside: X goes through the transformers in front, draws come back through a target
transform, and the members of an ensemble are mixed with equal weights.

They take a fitted estimator of this package (a network, or a meta-estimator around
one), or one inside of ``Pipeline``, the searches, ``FrozenEstimator``,
``StackingRegressor`` / ``StackingClassifier`` (as the final estimator),
``TransformedTargetRegressor``, ``BaggingRegressor`` / ``BaggingClassifier``,
``MultiOutputRegressor`` and ``CalibratedClassifierCV``, nested as one likes.
"""

import copy

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skbayesnn._predictive.labels import LabelPredictive
from skbayesnn._predictive.mixin import (
    OpenPredictive,
    PredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._sklearn_compat import BaseSearchCV, safe_indexing, target_dimensions
from skbayesnn.estimators._base import BayesianNetwork


def predict_uncertainty(model, X, kind=None, as_frame=False):
    """How uncertain the predictions are; see the method of the same name.

    Parameters
    ----------
    model : fitted estimator
        One of this package, or a meta-estimator around it; see the module.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        As ``model.predict`` takes it.
    kind : str or list of str, default=None
        None is ``"total"`` for regressors and ``"entropy"`` for classifiers.
    as_frame : bool, default=False
        Whether to return a pandas DataFrame with a column per kind, and the index of
        X if that is a frame.

    Returns
    -------
    uncertainty : ndarray, dict of them, or DataFrame
    """
    method, inputs = _predictive(model, X, "predict_uncertainty")
    kinds = () if kind is None else (kind,)
    if not as_frame:
        return method(inputs, *kinds)
    frame = method(inputs, *kinds, as_frame=True)
    return frame.set_axis(X.index) if isinstance(X, type(frame)) else frame


def predict_quantile(model, X, q):
    """Quantiles of y under the predictive; see the method of the same name.

    Behind a target transform they are the transformed quantiles, which is exact for
    a monotone transform of each target.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    q : float or sequence of float in (0, 1)
        The levels.

    Returns
    -------
    quantile : ndarray of shape (n_samples[, n_targets][, n_levels])
    """
    method, X = _predictive(model, X, "predict_quantile")
    return method(X, q)


def predict_interval(model, X, coverage=0.9, kind="equal_tailed"):
    """Intervals of y; see the method of the same name.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    coverage : float or sequence of float in (0, 1), default=0.9
    kind : {"equal_tailed", "highest_density"}, default="equal_tailed"

    Returns
    -------
    interval : ndarray of shape (n_samples[, n_targets][, n_coverages], 2)
    """
    method, X = _predictive(model, X, "predict_interval")
    return method(X, coverage, kind)


def predictive_cdf(model, X, y):
    """Distribution function of the predictive at y; uniform where it is right.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    y : array-like of shape (n_samples,) or (n_samples, n_targets)

    Returns
    -------
    probability : ndarray of shape (n_samples[, n_targets])
    """
    method, X = _predictive(model, X, "predictive_cdf")
    return method(X, y)


def sample_f(model, X, n_samples=1, random_state=0):
    """Noise-free functions, coherent over rows; see the method of the same name.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    n_samples : int, default=1
        Functions.
    random_state : int, RandomState instance or None, default=0

    Returns
    -------
    f : ndarray of shape (n_samples_X[, n_targets], n_samples)
        In y's units; of classes their probabilities, with the classes in the place
        of the targets.
    """
    method, X = _predictive(model, X, "sample_f")
    return method(X, n_samples, random_state)


def sample_y(model, X, n_samples=1, random_state=0):
    """Draws of y; see the method of the same name.

    Around ensembles and target transforms a sample takes one of the fixed posterior
    draws at random, coherent over rows, with independent noise.

    Parameters
    ----------
    model, X, n_samples, random_state : as in ``sample_f``

    Returns
    -------
    y : ndarray of shape (n_samples_X[, n_targets], n_samples)
        In y's units, or labels.
    """
    method, X = _predictive(model, X, "sample_y")
    return method(X, n_samples, random_state)


def log_predictive_density(model, X, y):
    """Log density of y under the predictive; of a class its log probability (eq. 8).

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    y : array-like of shape (n_samples,) or (n_samples, n_targets)

    Returns
    -------
    density : ndarray of shape (n_samples,)
        Nats, of the density in y's units; joint over targets.
    """
    method, X = _predictive(model, X, "log_predictive_density")
    return method(X, y)


def crps(model, X, y):
    """Continuous ranked probability score of a regression; smaller is better.

    Exact for the Gaussian mixture, by quadrature behind a target transform [Gneiting &
    Raftery 2007].

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    y : array-like of shape (n_samples,) or (n_samples, n_targets)

    Returns
    -------
    crps : ndarray of shape (n_samples,)
        In y's units; several targets: their mean.
    """
    method, X = _predictive(model, X, "crps")
    return method(X, y)


def predict_with_std(model, X):
    """``model.predict(X)`` and the total predictive standard deviation."""
    inner, inputs = _unwrap(model, X)
    if isinstance(inner, BayesianNetwork):
        return inner.predict(inputs, return_std=True)
    return model.predict(X), predict_uncertainty(model, X, "total")


class _Walk(RegressionPredictiveMixin):
    """The predictive of a meta-estimator of scikit-learn."""

    def __init__(self, model):
        self.model = model

    def _open_predictive(self, X):
        return open_predictive(self.model, X)


def _predictive(model, X, name):
    """The method of that name of what is inside of ``model``, and X as it takes it."""
    model, X = _unwrap(model, X)
    return getattr(model if hasattr(model, name) else _Walk(model), name), X


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
    if isinstance(model, FrozenEstimator):
        return _unwrap(model.estimator, X)
    return model, X


def open_predictive(model, X) -> OpenPredictive:
    """The predictive of a model on the rows of X, in the units of its target.

    X goes through the transformers once, and every network inside is opened once.
    """
    model, X = _unwrap(model, X)
    if isinstance(model, PredictiveMixin):
        return OpenPredictive.mapped([model._open_predictive(X)], _in_units_of_target)
    if isinstance(model, TransformedTargetRegressor):
        inner = open_predictive(model.regressor_, X)
        flat = target_dimensions(model) == 1
        return OpenPredictive.mapped(
            [inner], lambda one: one.behind(model.transformer_, flat=flat)
        )
    if isinstance(model, BaggingRegressor | BaggingClassifier):
        return _of_bagging(model, X)
    if isinstance(model, StackingClassifier):
        final = open_predictive(model.final_estimator_, model.transform(X))
        return OpenPredictive.mapped([final], lambda one: one.labelled(model.classes_))
    if isinstance(model, MultiOutputRegressor):
        members = [open_predictive(member, X) for member in model.estimators_]
        return OpenPredictive.mapped(
            members, lambda *parts: MixturePredictive.side_by_side(parts)
        )
    if isinstance(model, CalibratedClassifierCV):
        members = [_calibrated(member, X) for member in model.calibrated_classifiers_]
        return OpenPredictive.mapped(
            members, lambda *parts: LabelPredictive.pooled(parts, model.classes_)
        )
    raise TypeError(
        "a predictive can be had from the networks of skbayesnn, alone or inside of "
        "CalibratedUncertaintyRegressor, "
        "Pipeline, a search, FrozenEstimator, Stacking (as the final estimator), "
        "TransformedTargetRegressor, Bagging, MultiOutputRegressor or "
        f"CalibratedClassifierCV; got {type(model).__name__}."
    )


def _in_units_of_target(one):
    return one.in_units_of_target()


def _of_bagging(model, X) -> OpenPredictive:
    """The equal-weight mixture of the members, each on its own columns."""
    members = [
        open_predictive(member, safe_indexing(X, features, axis=1))
        for member, features in zip(
            model.estimators_, model.estimators_features_, strict=True
        )
    ]
    if isinstance(model, BaggingRegressor):
        return OpenPredictive.mapped(
            members, lambda *parts: MixturePredictive.pooled(parts)
        )

    def pooled(*parts):
        labelled = [part.labelled(model.classes_) for part in parts]
        return LabelPredictive.pooled(labelled, model.classes_)

    return OpenPredictive.mapped(members, pooled)


def _calibrated(member, X) -> OpenPredictive:
    """Every draw's probabilities, sent through the calibrators of one fold."""

    def through(one):
        on_draws = copy.copy(member)
        on_draws.estimator = _Probabilities(one.classes)
        n_draws, n_rows, n_classes = one.probability.shape
        calibrated = on_draws.predict_proba(one.probability.reshape(-1, n_classes))
        probability = calibrated.reshape(n_draws, n_rows, -1)
        return LabelPredictive(probability, member.classes)

    return OpenPredictive.mapped([open_predictive(member.estimator, X)], through)


class _Probabilities(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are the probabilities that it predicts."""

    def __init__(self, classes):
        self.classes_ = classes

    def predict_proba(self, X):
        return X
