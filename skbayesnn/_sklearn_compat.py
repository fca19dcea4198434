"""Everything that the package uses of scikit-learn's private or recent API.

Private names may change in any release of scikit-learn. They are imported only here,
private methods and attributes are wrapped in functions, and a test uses every name with
the oldest and the newest version.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.metrics._scorer import _MultimetricScorer as MultimetricScorer
from sklearn.metrics._scorer import _PassthroughScorer, _Scorer
from sklearn.utils import _safe_indexing, estimator_html_repr, get_tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metadata_routing import _routing_enabled as routing_enabled
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import (
    _check_method_params as check_method_params,
)
from sklearn.utils.validation import (
    _check_sample_weight as check_sample_weight,
)
from sklearn.utils.validation import (
    _num_samples as num_samples,
)

from skbayesnn._typing import Array, MatrixLike

if TYPE_CHECKING:
    # scikit-learn has no type annotations, so a type checker would accept any attribute
    # of its subclasses. These declarations replace its classes and functions.
    Method = TypeVar("Method", bound=Callable[..., Any])
    C = TypeVar("C", bound=type)

    def fit_context(
        *, prefer_skip_nested_validation: bool
    ) -> Callable[[Method], Method]: ...

    def available_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]: ...

    class BaseEstimator:
        n_features_in_: int
        feature_names_in_: Array

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def set_fit_request(self, **requests: bool | str | None) -> Self: ...
        def set_partial_fit_request(self, **requests: bool | str | None) -> Self: ...
        def set_predict_request(self, **requests: bool | str | None) -> Self: ...
        def set_score_request(self, **requests: bool | str | None) -> Self: ...
        def _repr_html_(self) -> str: ...
        def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]: ...
        def __sklearn_tags__(self) -> Any: ...
        def __getstate__(self) -> dict[str, Any]: ...
        def __setstate__(self, state: dict[str, Any]) -> None: ...

    class _HasScore:
        def score(
            self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
        ) -> float: ...
        def __sklearn_tags__(self) -> Any: ...

    class RegressorMixin(_HasScore): ...

    class ClassifierMixin(_HasScore): ...

    class MetaEstimatorMixin: ...

    class OneToOneFeatureMixin:
        def get_feature_names_out(self, input_features: Any = None) -> Array: ...

    class OutlierMixin:
        def __sklearn_tags__(self) -> Any: ...

    class TransformerMixin:
        def fit_transform(
            self, X: MatrixLike, y: Any = None, *args: Any, **fit_params: Any
        ) -> Array: ...
        def set_output(self, *, transform: str | None = None) -> Self: ...
        def __sklearn_tags__(self) -> Any: ...

    class BaseSearchCV(BaseEstimator):
        estimator: Any
        scoring: Any
        n_jobs: int | None
        refit: Any
        cv: Any
        verbose: int
        pre_dispatch: int | str
        error_score: Any
        return_train_score: bool
        cv_results_: dict[str, Any]
        best_estimator_: Any
        best_score_: float
        best_params_: dict[str, Any]
        best_index_: int
        scorer_: Any
        n_splits_: int
        refit_time_: float
        multimetric_: bool
        classes_: Array

        def __init__(self, *args: Any, **params: Any) -> None: ...
        def fit(
            self, X: MatrixLike, y: ArrayLike | None = None, **params: Any
        ) -> Self: ...
        def predict(self, X: MatrixLike) -> Any: ...
        def predict_proba(self, X: MatrixLike) -> Array: ...
        def predict_log_proba(self, X: MatrixLike) -> Array: ...
        def score(
            self, X: MatrixLike, y: ArrayLike | None = None, **params: Any
        ) -> float: ...
        def _format_results(self, *args: Any) -> dict[str, Any]: ...

    class GridSearchCV(BaseSearchCV):
        param_grid: Any
        _run_search: Any

    class RandomizedSearchCV(BaseSearchCV):
        param_distributions: Any
        n_iter: int
        random_state: Any

else:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        MetaEstimatorMixin,
        OneToOneFeatureMixin,
        OutlierMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.base import _fit_context as fit_context
    from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.utils.metaestimators import available_if

# Attributes of estimators: requested metadata, output format of transformers, version
# in a pickled state, and dimensions of y in TransformedTargetRegressor.
METADATA_REQUEST = "_metadata_request"
OUTPUT_CONFIG = "_sklearn_output_config"
STATE_VERSION = "_sklearn_version"
TRAINING_DIM = "_training_dim"
# Classes of the scorers for `scoring=None` and for names of scores.
SCORER_TYPES = _PassthroughScorer, _Scorer
# Parameters of a LogisticRegression with a lasso penalty; `penalty` is deprecated
# since scikit-learn 1.8.
_OF_LOGISTIC = signature(LogisticRegression).parameters
LASSO_PENALTY = (
    {"l1_ratio": 1.0}
    if _OF_LOGISTIC["penalty"].default == "deprecated"
    else {"penalty": "l1"}
)

__all__ = [
    "LASSO_PENALTY",
    "METADATA_REQUEST",
    "OUTPUT_CONFIG",
    "SCORER_TYPES",
    "STATE_VERSION",
    "TRAINING_DIM",
    "BaseEstimator",
    "BaseSearchCV",
    "ClassifierMixin",
    "GridSearchCV",
    "MetaEstimatorMixin",
    "MultimetricScorer",
    "OneToOneFeatureMixin",
    "OutlierMixin",
    "RandomizedSearchCV",
    "RegressorMixin",
    "SearchOverStored",
    "ShowsSummary",
    "TransformerMixin",
    "accept_frames",
    "available_if",
    "check_method_params",
    "check_sample_weight",
    "copy_callbacks",
    "fit_context",
    "metrics_of",
    "num_samples",
    "requests_of",
    "routed_fit_params",
    "routing_enabled",
    "safe_indexing",
    "safe_split",
    "scorers_of_search",
    "set_requests",
    "target_dimensions",
    "with_metrics_of",
    "with_option",
]


# ---- tags


def accept_frames(tags):
    """Tags of an estimator whose X may have missing values, text or categories.

    tags : result of ``__sklearn_tags__``, changed in place
    """
    tags.input_tags.allow_nan = True
    tags.input_tags.categorical = True
    tags.input_tags.string = True
    return tags


def predicts_numbers(estimator) -> bool:
    """Whether an estimator is a regressor.

    Without a type, as in NGBoost: whether it has ``predict``, and neither
    ``predict_proba`` nor ``transform``.
    """
    try:
        kind = get_tags(estimator).estimator_type
    except AttributeError:  # not a subclass of BaseEstimator
        kind = getattr(estimator, "_estimator_type", None)
    if kind is not None:
        return kind == "regressor"
    others = "predict_proba", "transform"
    return hasattr(estimator, "predict") and not any(
        hasattr(estimator, name) for name in others
    )


# ---- rows


def _is_pyarrow_table(X) -> bool:
    return type(X).__module__.partition(".")[0] == "pyarrow" and hasattr(X, "take")


def safe_indexing(X, indices, *, axis: int = 0):
    """Rows or columns of X; older versions of scikit-learn cannot index pyarrow."""
    if axis == 0 and _is_pyarrow_table(X):
        return X.take(np.arange(len(X))[indices])
    return _safe_indexing(X, indices, axis=axis)


def safe_split(estimator, X, y, indices, train_indices=None):
    """Rows of X and y; ``train_indices`` for an estimator that takes kernels."""
    if _is_pyarrow_table(X):
        y_part = None if y is None else safe_indexing(y, indices)
        return safe_indexing(X, indices), y_part
    return _safe_split(estimator, X, y, indices, train_indices)


# ---- searches


def with_option(parameter: str, option: str) -> Callable[[C], C]:
    """Decorate a class whose parameter may have one more value than in scikit-learn."""

    def decorate(cls: Any) -> Any:
        known = cls._parameter_constraints
        allowed = [*known[parameter], StrOptions({option})]
        cls._parameter_constraints = known | {parameter: allowed}
        return cls

    return decorate


def scorers_of_search(search):
    """The scorer of a search's ``scoring``, and the metric of its refit."""
    return search._get_scorers()


def routed_fit_params(search, params: dict):
    """Arguments of a search's ``fit`` for its estimator, splitter and scorer."""
    return search._get_routed_params_for_fit(params)


class SearchOverStored(BaseSearchCV):
    """The loop of a search over results that were computed before."""

    # The loop of a grid search; each candidate is a grid of one point.
    _run_search = GridSearchCV._run_search

    def set_known(self, scorers: tuple, params, candidates: list[dict]) -> None:
        """Set the values that ``fit`` would otherwise compute.

        scorers : result of ``scorers_of_search``
        params : result of ``routed_fit_params``
        """
        self._known = scorers, params, candidates
        # A grid sorts the names of the parameters.
        self.param_grid = [{n: [v] for n, v in c.items()} for c in candidates]

    def add_times(self, results: list[dict]) -> None:
        """Add the times of training and scoring to the results of the loop."""
        raise NotImplementedError

    def _get_scorers(self):
        return self._known[0]

    def _get_routed_params_for_fit(self, params):
        return self._known[1]

    def _format_results(self, candidate_params, n_splits, out, more_results=None):
        self.add_times(out)
        return super()._format_results(self._known[2], n_splits, out, more_results)


# ---- scorers of several metrics


def metrics_of(scorer):
    """The scorers of a multi-metric scorer by name; any other scorer unchanged."""
    return getattr(scorer, "_scorers", scorer)


def with_metrics_of(scorer_class: type[MultimetricScorer], scorer: MultimetricScorer):
    """A scorer of class ``scorer_class`` with the metrics and options of ``scorer``."""
    return scorer_class(scorers=scorer._scorers, raise_exc=scorer._raise_exc)


# ---- trees


def boosted_trees(model) -> tuple[Array, list[Array]]:
    """Outputs without trees, (outputs,), and the nodes of all trees.

    Trees of the same iteration are adjacent, one for each output. Nodes are structured
    arrays with the fields "left", "right", "is_leaf", "feature_idx", "num_threshold"
    and "value".

    model : fitted HistGradientBoostingClassifier, without categories
    """
    trees = [tree.nodes for iteration in model._predictors for tree in iteration]
    return np.ravel(model._baseline_prediction).astype(np.float64), trees


# ---- meta-estimators


def target_dimensions(regressor: TransformedTargetRegressor) -> int:
    """Number of dimensions of y in the fit of the regressor."""
    return getattr(regressor, TRAINING_DIM)


# ---- callbacks


def copy_callbacks(source, target) -> None:
    """Copy the callbacks of a search and their parent context to another one."""
    for name in ("_skl_callbacks", "_parent_callback_ctx"):
        if hasattr(source, name):
            setattr(target, name, getattr(source, name))


# ---- notebooks


class ShowsSummary(BaseEstimator):
    """An estimator whose HTML representation includes its ``summary_`` after fit."""

    def _html_repr(self):
        html_text = estimator_html_repr(self)
        if hasattr(self, "summary_"):
            html_text += f"<p>{html.escape(str(self.summary_))}</p>"
        return html_text

    def _repr_html_inner(self):
        return self._html_repr()

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {k: self._html_repr() for k in bundle if k == "text/html"}


# ---- metadata routing


def requests_of(estimator) -> dict[str, dict]:
    """Metadata requests of an estimator by method, as set by ``set_..._request``."""
    requests = estimator._metadata_request
    requested = {
        method: getattr(requests, method).requests for method in _routed(estimator)
    }
    return {method: dict(keys) for method, keys in requested.items() if keys}


def set_requests(estimator, requests: dict[str, dict]) -> None:
    """Set the requests that ``requests_of`` returns."""
    methods = _routed(estimator)
    with config_context(enable_metadata_routing=True):
        for method, keys in requests.items():
            if method not in methods:
                name = type(estimator).__name__
                raise ValueError(f"{name} does not route metadata to {method!r}.")
            getattr(estimator, methods[method])(**keys)


def _routed(estimator) -> dict[str, str]:
    """Methods that can request metadata, and the names of their setters."""
    names = (re.fullmatch("set_(.+)_request", name) for name in dir(type(estimator)))
    return {name[1]: name[0] for name in names if name}
