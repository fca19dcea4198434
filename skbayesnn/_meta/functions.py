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

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn._meta.bounds import bounds, has_bounds_only
from skbayesnn._meta.unwrap import open_predictive, unwrap
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._predictive.mixin import (
    ClassificationPredictiveMixin,
    PredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._runtime import imported
from skbayesnn._sklearn_compat import BaseEstimator
from skbayesnn._typing import Array, MatrixLike, OutputPath, RandomState
from skbayesnn._validation import check_levels, check_option

P = ParamSpec("P")
R = TypeVar("R")

# The first parameter of the functions, in their docstrings.
_PARAMETERS = "\n\nParameters\n----------"
_MODEL = """
model : fitted estimator
    An estimator of this package, or a meta-estimator around one: ``Pipeline``, a
    search, ``TransformedTargetRegressor``, an ensemble and others."""


class _OpenedRegressor(RegressionPredictiveMixin):
    """Predictive methods for a meta-estimator of another package."""

    def __init__(self, model):
        self.model = model

    def _open_predictive(self, X):
        return open_predictive(self.model, X)


def _method(model, X, name: str) -> Callable:
    """Method of the estimator inside of ``model``, with X as that estimator takes it.

    Raises
    ------
    TypeError
        If only regressors have the method, and the model is a classifier.
    """
    inner, inputs = unwrap(model, X)
    # A class of another library may have an unrelated method with the same name.
    if not (isinstance(inner, BaseEstimator) and hasattr(inner, name)):
        if isinstance(inner, ClassificationPredictiveMixin):
            raise TypeError(
                f"`{name}` needs a regressor; got the predictive distribution of a "
                "classifier. For classifiers use predict_proba, predict_uncertainty or "
                "log_predictive_density."
            )
        inner = _OpenedRegressor(inner)
    return partial(getattr(inner, name), inputs)


def _through_meta_estimators(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    """Make a function of any model from a predictive method of the estimators."""
    name = method.__name__

    def through(model, X, *args, **kwargs):
        result = _method(model, X, name)(*args, **kwargs)
        if hasattr(result, "set_axis") and isinstance(X, type(result)):
            result = result.set_axis(X.index)
        return result

    function: Any = wraps(method)(through)
    signature = inspect.signature(method)
    _, *parameters = signature.parameters.values()
    model = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    function.__signature__ = signature.replace(
        parameters=[model.replace(annotation="Any"), *parameters]
    )
    function.__module__, function.__qualname__ = __name__, name
    first, _, others = inspect.cleandoc(method.__doc__ or "").partition(_PARAMETERS)
    function.__doc__ = f"{first}{_PARAMETERS}{_MODEL}{others}"
    return by_blocks(function) if "output" in signature.parameters else function


predict_distribution = _through_meta_estimators(PredictiveMixin.predict_distribution)
predict_uncertainty = _through_meta_estimators(PredictiveMixin.predict_uncertainty)
predict_quantile = _through_meta_estimators(RegressionPredictiveMixin.predict_quantile)
predictive_cdf = _through_meta_estimators(RegressionPredictiveMixin.predictive_cdf)
crps = _through_meta_estimators(RegressionPredictiveMixin.crps)
log_predictive_density = _through_meta_estimators(
    PredictiveMixin.log_predictive_density
)
sample_f = _through_meta_estimators(PredictiveMixin.sample_f)
sample_y = _through_meta_estimators(PredictiveMixin.sample_y)


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
    model : fitted estimator
        As for :func:`predict_uncertainty`; also a :class:`ConformalRegressor`, alone,
        in a target transform or in a ``MultiOutputRegressor``.
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
        return _method(model, X, "predict_interval")(coverage, kind)
    interval = bounds(model, X, check_levels("coverage", coverage), kind, method)
    return interval if np.ndim(coverage) else interval[..., 0, :]


def predict_with_std(model, X):
    """Return ``model.predict(X)`` and the total predictive standard deviation."""
    inner, inputs = unwrap(model, X)
    if type(inner).predict is RegressionPredictiveMixin.predict:
        return inner.predict(inputs, return_std=True)
    # Of a target transform, the prediction is not the mean of the distribution.
    return model.predict(X), predict_distribution(model, X).std()


def report(
    model: Any,
    X: MatrixLike,
    y: ArrayLike | None = None,
    *,
    X_train: MatrixLike | None = None,
    target: int | None = None,
    random_state: RandomState = 0,
    n_rows: int = 5,
    monitor: Any = None,
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
        available; the page then has no such section.
    target : int, default=None
        Index of the target; required if the model has several targets.
    random_state : int, RandomState instance or None, default=0
        Selects the rows of pictures, and those that uncertain rows are compared with.
    n_rows : int, default=5
        Number of uncertain rows that are listed with a reason; 0 lists none.
    monitor : DriftMonitor, default=None
        A fitted monitor that got rows by ``update``; its tests are shown.

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
    return page_of(model, X, y, X_train, target, random_state, n_rows, monitor)
