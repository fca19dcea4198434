"""Out-of-fold predictive distributions, as ``cross_val_predict`` for uncertainty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.utils import Bunch, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)

from skbayesnn._batch.cross_fit import (
    check_each_row_once,
    cross_fitted,
    held_out_folds,
    refuse_fitted,
)
from skbayesnn._data.validation import refuse_column_name
from skbayesnn._meta import functions
from skbayesnn._runtime import warn_once_per_call
from skbayesnn._sklearn_compat import (
    check_method_params,
    num_samples,
    routing_enabled,
    safe_split,
)
from skbayesnn._typing import MatrixLike
from skbayesnn._validation import check_option

# For each method: the function, its options, and whether it takes y.
METHODS: dict[str, tuple[Callable, tuple[str, ...], bool]] = {
    "predict_uncertainty": (functions.predict_uncertainty, ("kind",), False),
    "predict_interval": (functions.predict_interval, ("coverage", "kind"), False),
    "predict_quantile": (functions.predict_quantile, ("q",), False),
    "predictive_cdf": (functions.predictive_cdf, (), True),
    "log_predictive_density": (functions.log_predictive_density, (), True),
    "crps": (functions.crps, (), True),
}


@warn_once_per_call
def cross_val_predict_uncertainty(
    estimator: Any,
    X: MatrixLike,
    y: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    cv: Any = None,
    method: str = "predict_uncertainty",
    params: dict[str, Any] | None = None,
    n_jobs: int | None = None,
    **options: Any,
) -> Any:
    """Predict the uncertainty of every row with a model that was not trained on it.

    It is scikit-learn's ``cross_val_predict`` for uncertainties, intervals, quantiles
    and scores per row. Use it to judge calibration on training data. It takes one fit
    per fold. Networks, alone or at the end of a ``Pipeline``, are trained for all folds
    in one program. The results are the results of a separate ``fit`` for each fold.

    Parameters
    ----------
    estimator : estimator
        An estimator of this package, or a meta-estimator around one (see
        :mod:`skbayesnn`). A clone is fitted for each fold, so a ``FrozenEstimator``
        raises an error.
    X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        Features.
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
        Targets, or labels.
    groups : array-like of shape (n_samples,), default=None
        Groups for the splitter. With metadata routing, give them in ``params``.
        Without, give them in ``params`` too if they are also for the estimator's
        ``fit``.
    cv : int, cross-validation generator or iterable, default=None
        Leave the default unless rows are dependent, as in groups or time series. Each
        row must be in one test fold; None is five folds.
    method : str, default="predict_uncertainty"
        What to predict: ``"predict_uncertainty"``, ``"predict_interval"`` or
        ``"predict_quantile"``; or, evaluated at y, ``"predictive_cdf"``,
        ``"log_predictive_density"`` or ``"crps"``.
    params : dict, default=None
        Parameters of ``fit``, as ``{"sample_weight": ...}``; with metadata routing also
        of the splitter.
    n_jobs : int, default=None
        Threads of the networks' program, or number of parallel fits for other
        estimators.
    **options
        Options of the method: ``kind``, ``coverage``, ``q``.

    Returns
    -------
    values : ndarray of shape (n_samples, ...), or dict of them
        The output of the function ``method`` of :mod:`skbayesnn`, in the order of X.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import MCDropoutRegressor
    >>> from skbayesnn.model_selection import cross_val_predict_uncertainty
    >>> X, y = load_diabetes(return_X_y=True)
    >>> network = MCDropoutRegressor((16,), max_iter=20, random_state=0)
    >>> std = cross_val_predict_uncertainty(network, X, y, cv=3)
    >>> std.shape
    (442,)
    """
    function, allowed, takes_y = METHODS[check_option("method", method, METHODS)]
    unknown = [name for name in options if name not in allowed]
    if unknown:
        raise TypeError(
            f"options of {method!r} must be among {list(allowed)}; got {unknown}."
        )
    refuse_column_name("cross_val_predict_uncertainty", y)
    X, y = indexable(X, y)
    routed = _routed_params(estimator, cv, groups, params or {})
    is_classification = is_classifier(estimator)
    splits = held_out_folds(
        cv, X, y, is_classification=is_classification, **routed.splitter.split
    )
    held_out = [test for _, test in splits]
    check_each_row_once(held_out, num_samples(X))
    fit_params = check_method_params(X, routed.estimator.fit)
    refuse_fitted(estimator)
    models = cross_fitted(estimator, X, y, splits, fit_params, n_jobs)
    parts = []
    for model, (train, test) in zip(models, splits, strict=True):
        test_rows = safe_split(model, X, y, test, train)
        parts.append(function(model, *test_rows[: 1 + takes_y], **options))
    order = np.argsort(np.concatenate(held_out))
    if isinstance(parts[0], dict):
        return {
            name: np.concatenate([part[name] for part in parts])[order]
            for name in parts[0]
        }
    return np.concatenate(parts)[order]


def _routed_params(estimator, cv, groups, params: dict) -> Bunch:
    """Parameters of the estimator's ``fit`` and of the splitter's ``split``."""
    if not routing_enabled():
        return Bunch(
            estimator=Bunch(fit=params), splitter=Bunch(split={"groups": groups})
        )
    if groups is not None:
        raise ValueError(
            "`groups` must be given in `params` if metadata routing is enabled; got "
            "`groups=`. Give params={'groups': ...}."
        )
    to_fit = MethodMapping().add(caller="fit", callee="fit")
    to_split = MethodMapping().add(caller="fit", callee="split")
    router = (
        MetadataRouter(owner="cross_val_predict_uncertainty")
        .add(estimator=estimator, method_mapping=to_fit)
        .add(splitter=cv, method_mapping=to_split)
    )
    return process_routing(router, "fit", **params)
