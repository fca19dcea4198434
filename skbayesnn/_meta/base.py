"""Base of the meta-estimators that calibrate a model on held-out rows."""

from __future__ import annotations

from inspect import signature
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from skbayesnn._batch.cross_fit import cross_fitted, fitted_to, held_out_folds
from skbayesnn._data.table_encoder import EXPECTED_IN_FOLDS
from skbayesnn._data.validation import (
    check_labels,
    check_numbers,
    check_target_given,
)
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._runtime import imported, on_snapshot, replace_fitted, silence_warning
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    MetaEstimatorMixin,
    available_if,
    check_sample_weight,
    routing_enabled,
)
from skbayesnn._stored import Fitted
from skbayesnn._typing import Array, MatrixLike, OutputPath
from skbayesnn._validation import random_source

_SPLIT_AT_RANDOM = (
    "cannot be kept together by a random split. Split the rows with "
    "sklearn.model_selection.GroupShuffleSplit, fit a model to the training part, and "
    "calibrate FrozenEstimator(model) on the rest; or, for a regressor, use "
    "method='cv+' and cv=GroupKFold()."
)


class BaseHeldOutMetaEstimator(MetaEstimatorMixin, BaseEstimator):
    """Base class; subclasses have ``estimator`` and some of the parameters below."""

    estimator: Any
    cv: Any = None
    n_jobs: int | None = None
    calibration_size: float = 0.25
    random_state: Any = None

    def _validate_fit_arguments(self, X, y, sample_weight, fit_params):
        """Validated X, y and weights, (rows,), and the routed fit parameters."""
        check_target_given(self, y)
        X, y = indexable(X, y)
        if routing_enabled():
            routed = process_routing(
                self, "fit", sample_weight=sample_weight, **fit_params
            )
        else:
            if sample_weight is not None:
                fit_params = {**fit_params, "sample_weight": sample_weight}
            routed = self._without_routing(fit_params)
        self._check_groups_are_kept(routed)
        weights = check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        # Validate here, since no estimator's `fit` validates the calibration rows.
        y = self._checked_target(y, X)
        check_consistent_length(X, y)
        return X, y, weights, routed

    def _without_routing(self, fit_params) -> Bunch:
        """Pass groups to the splitter, and all parameters to the estimator's fit.

        An estimator whose ``fit`` has no parameter ``groups`` gets them only if the
        splitter does not.
        """
        to_fit = {name: v for name, v in fit_params.items() if v is not None}
        to_split = {}
        if "groups" in to_fit and not self._has_default_folds():
            to_split["groups"] = to_fit["groups"]
            if not self._takes_groups():
                del to_fit["groups"]
        return Bunch(estimator=Bunch(fit=to_fit), splitter=Bunch(split=to_split))

    def _has_default_folds(self) -> bool:
        return self.cv is None or isinstance(self.cv, Integral)

    def _takes_groups(self) -> bool:
        """Whether ``fit`` of the estimator takes groups; a search takes any name."""
        parameters = signature(self.estimator.fit).parameters.values()
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        is_pipeline = isinstance(self.estimator, Pipeline)
        return any(p.name == "groups" for p in parameters) or (
            takes_any and not is_pipeline
        )

    def _check_groups_are_kept(self, routed) -> None:
        """Raise if the estimator gets groups, but the folds here would split them."""
        is_given = any(
            value is not None and name.rpartition("__")[2] == "groups"
            for name, value in routed.estimator.fit.items()
        )
        if is_given and self._has_default_folds():
            raise ValueError(f"`groups` {self._way_out_of_groups()}")

    def _checked_target(self, y, X) -> np.ndarray:
        """Return y of the rows of X, finite values or labels without missing ones."""
        if is_classifier(self.estimator):
            y = np.asarray(y)
            return check_labels(y) if y.ndim == 1 else y
        return check_numbers(self, y)

    def _way_out_of_groups(self) -> str:
        splits = getattr(self, "method", None) == "split"
        if "cv" in self.get_params(deep=False) and not splits:
            return (
                f"need a `cv` that keeps them together; got cv={self.cv!r}. Give "
                "sklearn.model_selection.GroupKFold(), or another splitter of groups."
            )
        return _SPLIT_AT_RANDOM

    def _cross_fit(self, X, y, routed) -> list[tuple]:
        """Fit a model without each fold; return (model, held-out rows) per fold."""
        is_classification = is_classifier(self.estimator)
        folds = held_out_folds(
            self.cv, X, y, is_classification=is_classification, **routed.splitter.split
        )
        if not folds or any(len(test) == 0 for _, test in folds):
            raise ValueError(
                "`cv` must hold out some rows in each fold; got "
                f"{len(folds)} folds with {[len(test) for _, test in folds]} rows."
            )
        models = cross_fitted(
            self.estimator, X, y, folds, routed.estimator.fit, self.n_jobs
        )
        return [(model, test) for model, (_, test) in zip(models, folds, strict=True)]

    def _split_fit(self, X, y, routed) -> tuple:
        """Fit a model to a part of the rows; return it and the other rows.

        A frozen estimator is not fitted, and all rows are returned.
        """
        if routed.splitter.split.get("groups") is not None:
            raise ValueError(f"`groups` {_SPLIT_AT_RANDOM}")
        rows = np.arange(len(y))
        if isinstance(self.estimator, FrozenEstimator):
            return self.estimator, rows
        silence_warning(*EXPECTED_IN_FOLDS)
        # Do not stratify: rows selected by class are not exchangeable with new rows.
        train, test = train_test_split(
            rows,
            test_size=self.calibration_size,
            random_state=random_source(self.random_state),
        )
        return fitted_to(self.estimator, X, y, train, routed.estimator.fit), test

    def _set_fitted(self, model, **attributes):
        """Replace all fitted attributes, and copy the description of X from ``model``.

        Called at the end of ``fit``, so that a failed fit changes nothing.
        """
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(model, name):
                attributes[name] = getattr(model, name)
        replace_fitted(self, attributes)
        return self

    def get_metadata_routing(self) -> Any:
        """Return the routing of metadata to the estimator's fit and to the splitter."""
        return (
            MetadataRouter(owner=type(self).__name__)
            .add_self_request(self)
            .add(
                estimator=self.estimator,
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
            .add(
                splitter=self.cv,
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.target_tags = inner.target_tags
        tags.target_tags.multi_output = False
        tags.non_deterministic = inner.non_deterministic
        return tags


class DecidingMetaEstimator(BaseHeldOutMetaEstimator):
    """Base of meta-estimators that act on the distribution of one fitted estimator."""

    estimator_: Fitted

    @on_snapshot
    def predict_distribution(self, X: MatrixLike) -> Any:
        """Predictive distribution of the fitted estimator, for all rows."""
        check_is_fitted(self)
        # The functions know these meta-estimators.
        functions = imported("skbayesnn._meta.functions")
        return functions.predict_distribution(self.estimator_, X)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    @by_blocks
    def predict_proba(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Class probabilities of the fitted estimator, for all rows."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    def __sklearn_tags__(self):
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        for name in ("estimator_type", "classifier_tags", "regressor_tags"):
            setattr(tags, name, getattr(inner, name))
        return tags


def one_target(y, way_out: str) -> np.ndarray:
    """Return y as (rows,); a single column raises scikit-learn's warning."""
    if y.ndim == 2 and y.shape[1] == 1:
        return column_or_1d(y, warn=True)
    if y.ndim != 1:
        raise ValueError(f"`y` must have one target; got shape {y.shape}. {way_out}")
    return y
