"""Predictive distributions through scikit-learn's meta-estimators.

``Pipeline``, ``GridSearchCV``, ``TransformedTargetRegressor`` and similar classes have
only scikit-learn's own methods. The functions here find the networks inside: they apply
the transformers to X, and invert a target transform.

They take a fitted estimator of this package, alone or inside of these, nested in any
way:

- ``Pipeline``, also imbalanced-learn's, with stateless transformers and samplers;
- the searches, and any object with a ``best_estimator_``, as optuna's and dask-ml's;
  dask-ml's ``ParallelPostFit``;
- ``FrozenEstimator``, ``RFE``, ``RFECV``, ``SelfTrainingClassifier``,
  ``FixedThresholdClassifier``, ``TunedThresholdClassifierCV`` (the threshold changes
  ``predict`` only, not the predictive distribution);
- ``TransformedTargetRegressor`` and ``MultiOutputRegressor``.

All other models raise a TypeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn._meta.bounds import bounds, has_bounds_only
from skbayesnn._meta.unwrap import open_predictive, unwrap
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._predictive.mixin import RegressionPredictiveMixin
from skbayesnn._runtime import imported
from skbayesnn._sklearn_compat import BaseEstimator
from skbayesnn._typing import Array, MatrixLike, OutputPath, RandomState
from skbayesnn._validation import check_levels, check_option
from skbayesnn.estimators._regression import BayesianRegressor


@overload
def predict_uncertainty(
    model: Any,
    X: MatrixLike,
    kind: Literal["all"] | list[str] | tuple[str, ...],
    as_frame: Literal[False] = False,
    *,
    output: OutputPath = None,
) -> dict[str, Array]: ...
@overload
def predict_uncertainty(
    model: Any,
    X: MatrixLike,
    kind: str | None = None,
    as_frame: Literal[False] = False,
    *,
    output: OutputPath = None,
) -> Array: ...
@overload
def predict_uncertainty(
    model: Any,
    X: MatrixLike,
    kind: str | list[str] | tuple[str, ...] | None = None,
    as_frame: bool = False,
    *,
    output: OutputPath = None,
) -> Any: ...


@by_blocks
def predict_uncertainty(model, X, kind=None, as_frame=False, *, output=None):
    """Measure the uncertainty of predictions, through meta-estimators.

    See the method ``predict_uncertainty`` of the estimators of this package.

    Parameters
    ----------
    model : fitted estimator
        An estimator of this package, or a meta-estimator around one: ``Pipeline``, a
        search, ``TransformedTargetRegressor``, an ensemble and others.
    X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        As for ``model.predict``.
    kind : str or list of str, default=None
        Measures of uncertainty. None is ``"total"`` for regressors and ``"entropy"``
        for classifiers.
    as_frame : bool, default=False
        Whether to return a pandas DataFrame with one column per kind, and with the
        index of X if X is a DataFrame.
    output : path, default=None
        Parquet file for the results, one column each, written block by block. The
        function then returns None.

    Returns
    -------
    uncertainty : ndarray of shape (n_samples[, n_targets]), dict of these, or DataFrame
    """
    method, inputs = _predictive(model, X, "predict_uncertainty")
    kinds = () if kind is None else (kind,)
    if not as_frame:
        return method(inputs, *kinds)
    frame = method(inputs, *kinds, as_frame=True)
    return frame.set_axis(X.index) if isinstance(X, type(frame)) else frame


@by_blocks
def predict_quantile(
    model: Any, X: MatrixLike, q: float | Sequence[float], *, output: OutputPath = None
) -> Array:
    """Predict quantiles of y, through meta-estimators.

    See the method ``predict_quantile`` of the regressors of this package. With a target
    transform, the quantiles of the transformed y are transformed back. This is exact if
    the transform of each target is monotone.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    q : float or sequence of float in (0, 1)
        Levels of the quantiles.
    output : path, default=None
        Parquet file for the results, one column each, written block by block. The
        function then returns None.

    Returns
    -------
    quantile : ndarray of shape (n_samples[, n_targets][, n_levels])
    """
    method, X = _predictive(model, X, "predict_quantile")
    return method(X, q)


@by_blocks
def predict_interval(
    model: Any,
    X: MatrixLike,
    coverage: float | Sequence[float] = 0.9,
    kind: str = "equal_tailed",
    method: str = "mixture",
    *,
    output: OutputPath = None,
) -> Array:
    """Predict intervals of y, through meta-estimators.

    See the method ``predict_interval`` of the regressors of this package. With a target
    transform, the bounds for the transformed y are transformed back. This is exact if
    the transform of each target is monotone.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
        Also a :class:`ConformalRegressor`, alone, in a target transform or in a
        ``MultiOutputRegressor``.
    coverage : float or sequence of float in (0, 1), default=0.9
    kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
        Conformal and ``"cv+"`` intervals must be ``"equal_tailed"``.
    method : {"mixture", "cv+"}, default="mixture"
        ``"cv+"`` computes the interval from out-of-fold residuals; see
        :meth:`BayesianStackingRegressor.predict_interval`. It requires a stack inside.
    output : path, default=None
        Parquet file for the results, one column each, written block by block. The
        function then returns None.

    Returns
    -------
    interval : ndarray of shape (n_samples[, n_targets][, n_coverages], 2)
        Lower and upper bound in y's units.

    Raises
    ------
    TypeError
        If ``method="cv+"`` and the model contains no stack, or an ensemble of stacks.
    """
    check_option("method", method, ("mixture", "cv+"))
    if method == "mixture" and not has_bounds_only(model):
        method_of_model, X = _predictive(model, X, "predict_interval")
        return method_of_model(X, coverage, kind)
    interval = bounds(model, X, check_levels("coverage", coverage), kind, method)
    return interval if np.ndim(coverage) else interval[..., 0, :]


@by_blocks
def predictive_cdf(
    model: Any, X: MatrixLike, y: ArrayLike, *, output: OutputPath = None
) -> Array:
    """Evaluate the predictive distribution function at y, through meta-estimators.

    Use it to check calibration: the values are uniform if the predictive distribution
    is correct.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
    output : path, default=None
        Parquet file for the results, one column each, written block by block. The
        function then returns None.

    Returns
    -------
    probability : ndarray of shape (n_samples[, n_targets])
    """
    method, X = _predictive(model, X, "predictive_cdf")
    return method(X, y)


@by_blocks
def sample_f(
    model: Any,
    X: MatrixLike,
    n_samples: int = 1,
    random_state: RandomState = 0,
    *,
    output: OutputPath = None,
) -> Array:
    """Sample functions without observation noise, through meta-estimators.

    See the method ``sample_f`` of the estimators of this package. All rows of a sample
    belong to the same function.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    n_samples : int, default=1
        Number of functions.
    random_state : int, RandomState instance or None, default=0
    output : path, default=None
        Parquet file for the results, one column each, written block by block. The
        function then returns None.

    Returns
    -------
    f : ndarray of shape (n_samples_X[, n_targets], n_samples)
        In y's units. For a classifier probabilities of shape
        (n_samples_X, n_classes, n_samples).
    """
    method, X = _predictive(model, X, "sample_f")
    return method(X, n_samples, random_state)


@by_blocks
def sample_y(
    model: Any,
    X: MatrixLike,
    n_samples: int = 1,
    random_state: RandomState = 0,
    *,
    output: OutputPath = None,
) -> Array:
    """Sample y from the predictive distribution, through meta-estimators.

    See the method ``sample_y`` of the estimators of this package. With an ensemble or a
    target transform, a sample selects one of the fixed posterior draws at random, for
    all rows together, and adds independent observation noise.

    Parameters
    ----------
    model, X, n_samples, random_state : as in ``sample_f``
    output : path, default=None
        Parquet file for the results, one column each, written block by block. The
        function then returns None.

    Returns
    -------
    y : ndarray of shape (n_samples_X[, n_targets], n_samples)
        In y's units; for a classifier labels.
    """
    method, X = _predictive(model, X, "sample_y")
    return method(X, n_samples, random_state)


@by_blocks
def log_predictive_density(
    model: Any, X: MatrixLike, y: ArrayLike, *, output: OutputPath = None
) -> Array:
    """Evaluate the log predictive density of y, through meta-estimators (eq. 8).

    For a classifier this is the log probability of the label. Larger is better.

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
    output : path, default=None
        Parquet file for the results, one column each, written block by block. The
        function then returns None.

    Returns
    -------
    density : ndarray of shape (n_samples,)
        In nats, for y in its own units; joint density of all targets.
    """
    method, X = _predictive(model, X, "log_predictive_density")
    return method(X, y)


@by_blocks
def crps(
    model: Any, X: MatrixLike, y: ArrayLike, *, output: OutputPath = None
) -> Array:
    """Continuous ranked probability score of a regression, through meta-estimators.

    Smaller is better. It is exact for Gaussian mixtures. With a monotone, smooth target
    transform it is computed by quadrature, within 2e-4 of its value [Gneiting & Raftery
    2007].

    Parameters
    ----------
    model, X : as in ``predict_uncertainty``
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
    output : path, default=None
        Parquet file for the results, one column each, written block by block. The
        function then returns None.

    Returns
    -------
    crps : ndarray of shape (n_samples,)
        In y's units; the mean over several targets.
    """
    method, X = _predictive(model, X, "crps")
    return method(X, y)


def predict_with_std(model, X):
    """Return ``model.predict(X)`` and the total predictive standard deviation."""
    inner, inputs = unwrap(model, X)
    if isinstance(inner, BayesianRegressor):
        return inner.predict(inputs, return_std=True)
    return model.predict(X), predict_uncertainty(model, X, "total")


class _OpenedModel(RegressionPredictiveMixin):
    """Predictive methods for a meta-estimator of another package."""

    def __init__(self, model):
        self.model = model

    def _open_predictive(self, X):
        return open_predictive(self.model, X)


def _predictive(model, X, name):
    """Method of the estimator inside of ``model``, and X as that estimator takes it."""
    model, X = unwrap(model, X)
    # A class of another library may have an unrelated method with the same name.
    has_method = isinstance(model, BaseEstimator) and hasattr(model, name)
    return getattr(model if has_method else _OpenedModel(model), name), X


def report(
    model: Any,
    X: MatrixLike,
    y: ArrayLike | None = None,
    *,
    X_train: MatrixLike | None = None,
    target: int | None = None,
    random_state: RandomState = 0,
    n_rows: int = 5,
) -> Any:
    """Describe a fitted model and its predictions of held-out rows, on one page.

    The page contains scores, also of a constant prediction, pictures of the
    predictions, their calibration and the parts of their uncertainty, candidates and
    weights of a stack, the most uncertain rows with a reason, and columns that have
    drifted. It takes some predictions for each column of X. It needs matplotlib.

    Parameters
    ----------
    model : fitted estimator
        Any model that :func:`skbayesnn.predict_uncertainty` accepts.
    X : {frame, array-like} of shape (n_samples, n_features)
        Rows that the model was not fitted to.
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
        Measured targets; required. The page has the name of a series.
    X_train : {frame, array-like} of shape (n_rows, n_features), default=None
        Training rows, to find columns that have drifted. Leave it out if they are not
        at hand; the page then has no such section.
    target : int, default=None
        Index of the target; required if the model has several targets.
    random_state : int, RandomState instance or None, default=0
        Selects the rows of pictures, and the rows that replace values.
    n_rows : int, default=5
        Number of uncertain rows that are listed with a reason; 0 lists none.

    Returns
    -------
    report : Report
        ``report.save("report.html")`` writes the page; a notebook shows it.
        ``report.scores`` is a dict of the scores, such as ``"R^2"`` and
        ``"90 % intervals cover"``; ``report.constant_scores`` of a constant.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If X and y have different lengths.

    Examples
    --------
    >>> import skbayesnn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = skbayesnn.MCDropoutRegressor(max_iter=50, random_state=0)
    >>> page = skbayesnn.report(model.fit(X[:300], y[:300]), X[300:], y[300:])
    >>> page.html[:15]
    '<!DOCTYPE html>'
    """
    # The page draws with displays, which are above this module.
    page_of = imported("skbayesnn._report").page_of
    return page_of(model, X, y, X_train, target, random_state, n_rows)
