"""Uncertainty through scikit-learn's meta-estimators.

``Pipeline``, ``GridSearchCV``, ``TransformedTargetRegressor`` and their like pass on
only scikit-learn's own methods. The functions here walk through them to the networks
inside: X goes through the transformers in front, draws come back through a target
transform, and the members of an ensemble are mixed.

They take a fitted estimator of this package (a network, or a meta-estimator around
one), or one inside of these, nested as one likes:

- ``Pipeline``, also imbalanced-learn's: stateless transformers and samplers, too;
- the searches, and whatever has a ``best_estimator_``, as optuna's and dask-ml's have;
  dask-ml's ``ParallelPostFit``;
- ``FrozenEstimator``, ``RFE``, ``RFECV``, ``SelfTrainingClassifier``,
  ``FixedThresholdClassifier``, ``TunedThresholdClassifierCV`` (the threshold is of
  ``predict``; the predictive is that inside);
- ``StackingRegressor`` and ``StackingClassifier``, as the final estimator;
- ``TransformedTargetRegressor``, ``MultiOutputRegressor``, ``CalibratedClassifierCV``;
- ``BaggingRegressor`` and ``BaggingClassifier``, whose members weigh alike;
  ``VotingRegressor`` and the soft ``VotingClassifier``, by the weights of the vote.

Others are refused with a TypeError.
"""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn._meta.bounds import bounds, has_bounds_only
from skbayesnn._meta.unwrap import open_predictive, unwrap
from skbayesnn._predictive.mixin import RegressionPredictiveMixin
from skbayesnn._predictive.summaries import checked_coverages
from skbayesnn._sklearn_compat import BaseEstimator
from skbayesnn._typing import Array, MatrixLike, RandomState
from skbayesnn._validation import check_option
from skbayesnn.estimators._regression import BayesianRegressor


@overload
def predict_uncertainty(
    model: Any,
    X: MatrixLike,
    kind: Literal["all"] | list[str] | tuple[str, ...],
    as_frame: Literal[False] = False,
) -> dict[str, Array]: ...
@overload
def predict_uncertainty(
    model: Any,
    X: MatrixLike,
    kind: str | None = None,
    as_frame: Literal[False] = False,
) -> Array: ...
@overload
def predict_uncertainty(
    model: Any,
    X: MatrixLike,
    kind: str | list[str] | tuple[str, ...] | None = None,
    as_frame: bool = False,
) -> Any: ...


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


def predict_quantile(model: Any, X: MatrixLike, q: float | Sequence[float]) -> Array:
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


def predict_interval(
    model: Any,
    X: MatrixLike,
    coverage: float | Sequence[float] = 0.9,
    kind: str = "equal_tailed",
    method: str = "mixture",
) -> Array:
    """Intervals of y; see the method of the same name.

    Behind a target transform the bounds are transformed back, the lower one first,
    which is exact for a monotone transform of each target.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
        Also a :class:`ConformalRegressor`, alone, behind a target transform or in a
        ``MultiOutputRegressor``.
    coverage : float or sequence of float in (0, 1), default=0.9
    kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
        Conformal and ``"cv+"`` intervals have only the former.
    method : {"mixture", "cv+"}, default="mixture"
        ``"cv+"`` takes the interval from out-of-fold residuals, as
        :meth:`BayesianStackingRegressor.predict_interval` describes it. Only for a
        stack inside.

    Returns
    -------
    interval : ndarray of shape (n_samples[, n_targets][, n_coverages], 2)
        Lower and upper bound in y's units.

    Raises
    ------
    TypeError
        For ``"cv+"`` without a stack inside, or an ensemble around it.
    """
    check_option("method", method, ("mixture", "cv+"))
    if method == "mixture" and not has_bounds_only(model):
        of_model, X = _predictive(model, X, "predict_interval")
        return of_model(X, coverage, kind)
    interval = bounds(model, X, checked_coverages(coverage), kind, method)
    return interval if np.ndim(coverage) else interval[..., 0, :]


def predictive_cdf(model: Any, X: MatrixLike, y: ArrayLike) -> Array:
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


def sample_f(
    model: Any, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
) -> Array:
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


def sample_y(
    model: Any, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
) -> Array:
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


def log_predictive_density(model: Any, X: MatrixLike, y: ArrayLike) -> Array:
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


def crps(model: Any, X: MatrixLike, y: ArrayLike) -> Array:
    """Continuous ranked probability score of a regression; smaller is better.

    Exact for the Gaussian mixture; behind a monotone, smooth target transform by
    quadrature, within 2e-4 of its value [Gneiting & Raftery 2007].

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
    inner, inputs = unwrap(model, X)
    if isinstance(inner, BayesianRegressor):
        return inner.predict(inputs, return_std=True)
    return model.predict(X), predict_uncertainty(model, X, "total")


class _Walk(RegressionPredictiveMixin):
    """The predictive of a meta-estimator that is not of this package."""

    def __init__(self, model):
        self.model = model

    def _open_predictive(self, X):
        return open_predictive(self.model, X)


def _predictive(model, X, name):
    """The method of that name of what is inside of ``model``, and X as it takes it."""
    model, X = unwrap(model, X)
    # Methods of other libraries' own kinds of models may be of the same name.
    has_own = isinstance(model, BaseEstimator) and hasattr(model, name)
    return getattr(model if has_own else _Walk(model), name), X
