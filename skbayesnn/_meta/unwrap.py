"""Find the predictive distribution inside of meta-estimators, by three tables.

``PASS_THROUGH`` lists meta-estimators that change X or nothing (classes of other
libraries are recognised by their attributes). ``COMBINED`` lists meta-estimators whose
predictive distribution is computed from the estimators inside. ``UNSUPPORTED`` lists
meta-estimators without a predictive distribution, with the way out.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.multiclass import (
    OneVsOneClassifier,
    OneVsRestClassifier,
    OutputCodeClassifier,
)
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.pipeline import Pipeline
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils.validation import check_is_fitted, validate_data

from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import PredictiveBlocks, PredictiveMixin
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._sklearn_compat import BaseSearchCV, target_dimensions

# The weights of a vote become integer numbers of copies of each member's draws, at most
# this many. Rounding errors are at most one per cent of the largest weight.
MAX_COPIES = 50


def unwrap(model, X):
    """Return the estimator inside of ``PASS_THROUGH`` meta-estimators, and its X."""
    while (step := _pass_through(model)) is not None:
        model, X = step.inner_estimator(model), step.inputs(model, X)
    return model, X


def inner_estimator(model):
    """Return the estimator that ``unwrap`` finds, without X."""
    while (step := _pass_through(model)) is not None:
        model = step.inner_estimator(model)
    return model


def changes_columns(model) -> bool:
    """Whether the estimator that ``inner_estimator`` finds may get other columns."""
    while (step := _pass_through(model)) is not None:
        if step.inputs is _through_steps:
            if any(hasattr(inner, "transform") for _, inner in model.steps[:-1]):
                return True
        elif step.inputs is not _same_rows:
            return True
        model = step.inner_estimator(model)
    # Bagging selects columns.
    return hasattr(model, "estimators_features_")


# Attributes in which meta-estimators store fitted estimators. `estimator_` is last,
# since ensembles have an `estimator_` that is not fitted.
_FITTED = ("final_estimator_", "regressor_", "estimators_", "estimator_")
# Parameters of meta-estimators.
_PARAMETERS = ("estimator", "regressor", "final_estimator", "estimators")


def fitted_estimators(model) -> list:
    """Return the fitted estimators that a meta-estimator stores.

    Raises
    ------
    NotFittedError
        If the meta-estimator is not fitted.
    """
    if isinstance(model, CalibratedClassifierCV):
        check_is_fitted(model)
        return [member.estimator for member in model.calibrated_classifiers_]
    for name in _FITTED:
        if hasattr(model, name):
            value = getattr(model, name)
            return list(value) if name == "estimators_" else [value]
    if isinstance(model, BaseEstimator) and any(
        hasattr(model, name) for name in _PARAMETERS
    ):
        check_is_fitted(model)
    return []


def open_predictive(model, X) -> PredictiveBlocks:
    """Predictive distribution of a model for the rows of X, in units of its target.

    Each transformer is applied once, and each network inside is opened once.

    Raises
    ------
    TypeError
        If the model has no predictive distribution.
    """
    model, X = unwrap(model, X)
    if isinstance(model, PredictiveMixin):
        return PredictiveBlocks.mapped([model._open_predictive(X)], _in_units_of_target)
    combine = _lookup(COMBINED, model)
    if combine is None:
        raise TypeError(_unsupported(model))
    return combine(_fitted(model), X)


def _in_units_of_target(predictive):
    return predictive.in_units_of_target()


def _lookup(table: dict, model):
    """Value of the first class in the table that the model is an instance of."""
    return next(
        (v for wrapper_class, v in table.items() if isinstance(model, wrapper_class)),
        None,
    )


def _fitted(model):
    check_is_fitted(model)
    return model


def _as_array(model, X):
    """X as a meta-estimator passes it to its members, if it converts X to an array."""
    return validate_data(
        model,
        X,
        accept_sparse=["csr", "csc"],
        dtype=None,
        ensure_all_finite=False,
        reset=False,
    )


# ---- pass-through


def _same_rows(model, X):
    return X


class PassThrough(NamedTuple):
    """How to reach the estimator inside of a meta-estimator that changes X at most.

    Parameters
    ----------
    inner_estimator : callable
        Returns the estimator inside; takes the fitted meta-estimator.
    inputs : callable
        Returns X of the estimator inside; takes the fitted meta-estimator and its X.
    """

    inner_estimator: Callable[[Any], Any]
    inputs: Callable[[Any, Any], Any] = _same_rows


def _through_steps(pipeline, X):
    for _, step in pipeline.steps[:-1]:
        # imbalanced-learn's samplers have no `transform`: they change rows in `fit`
        # only.
        if hasattr(step, "transform"):
            X = step.transform(X)
    return X


def _best_of_search(search):
    if not hasattr(search, "best_estimator_"):
        check_is_fitted(search)
        raise TypeError(
            f"{type(search).__name__} must be fitted with refit=True, which fits the "
            f"best estimator; got refit={search.refit!r}."
        )
    return search.best_estimator_


PASS_THROUGH: dict[type, PassThrough] = {
    Pipeline: PassThrough(lambda model: model.steps[-1][1], _through_steps),
    BaseSearchCV: PassThrough(_best_of_search),
    FrozenEstimator: PassThrough(lambda model: model.estimator),
    StackingRegressor: PassThrough(
        lambda model: _fitted(model).final_estimator_,
        lambda model, X: model.transform(X),
    ),
    RFE: PassThrough(
        lambda model: _fitted(model).estimator_, lambda model, X: model.transform(X)
    ),
    # The threshold changes labels only, not probabilities. An estimator that was fitted
    # before may have no clone in `estimator_`.
    FixedThresholdClassifier: PassThrough(
        lambda model: getattr(model, "estimator_", model.estimator)
    ),
    TunedThresholdClassifierCV: PassThrough(lambda model: _fitted(model).estimator_),
    SelfTrainingClassifier: PassThrough(
        lambda model: _fitted(model).estimator_, _as_array
    ),
}


# Private attribute by which ParallelPostFit and Incremental of dask-ml predict.
OF_DASK_ML = "_postfit_estimator"


def _pass_through(model) -> PassThrough | None:
    """Entry of the table, or for other libraries one by the attributes of the model."""
    if isinstance(model, PredictiveMixin):
        return None
    step = _lookup(PASS_THROUGH, model)
    if step is not None:
        return step
    if hasattr(model, OF_DASK_ML):
        return PassThrough(lambda model: getattr(model, OF_DASK_ML))
    is_unfitted_search = hasattr(model, "refit") and hasattr(model, "estimator")
    if hasattr(model, "best_estimator_") or is_unfitted_search:  # optuna, dask-ml
        return PassThrough(_best_of_search)
    return None


# ---- combined


def _from_target_transform(model, X) -> PredictiveBlocks:
    flat = target_dimensions(model) == 1
    return PredictiveBlocks.mapped(
        [open_predictive(model.regressor_, X)],
        lambda inner: inner.with_target_transform(
            model.transformer_, squeeze_targets=flat
        ),
    )


def _from_multi_output(model, X) -> PredictiveBlocks:
    members = [open_predictive(member, X) for member in model.estimators_]
    return PredictiveBlocks.mapped(
        members, lambda *parts: MixturePredictive.join_targets(parts)
    )


def _from_stacking(model, X) -> PredictiveBlocks:
    final = open_predictive(model.final_estimator_, model.transform(X))
    return PredictiveBlocks.mapped(
        [final], lambda predictive: predictive.labelled(model.classes_)
    )


def _from_bagging(model, X) -> PredictiveBlocks:
    """Equal-weight mixture of the members, each with its own columns."""
    X = _as_array(model, X)
    columns = zip(model.estimators_, model.estimators_features_, strict=True)
    members = [open_predictive(member, X[:, features]) for member, features in columns]
    return _mixture(model, members)


def _from_voting(model, X) -> PredictiveBlocks:
    """Mixture of the members with the weights of the vote."""
    if isinstance(model, VotingClassifier) and model.voting == "hard":
        raise TypeError(
            "a vote of labels has no predictive distribution; got VotingClassifier "
            "with voting='hard'. Use voting='soft', which averages probabilities."
        )
    weights = np.ones(len(model.estimators_))
    if model.weights is not None:
        voters = zip(model.estimators, model.weights, strict=True)
        weights = np.array([w for (_, voter), w in voters if voter != "drop"], float)
    copies = _copies(weights)
    members = [
        open_predictive(member, X)
        for member, n in zip(model.estimators_, copies, strict=True)
        if n
    ]
    return _mixture(model, members, copies[copies > 0])


def _copies(weights: np.ndarray) -> np.ndarray:
    """Integers in the ratio of the weights, rounded to at most ``MAX_COPIES``."""
    if not (weights >= 0).all() or not weights.any():
        raise ValueError(
            "weights of a mixture must be at least 0, and one must be positive; got "
            f"weights={weights.tolist()}."
        )
    weights = weights / weights.max()
    for largest in range(1, MAX_COPIES + 1):
        copies = np.round(largest * weights)
        if np.allclose(copies, largest * weights, rtol=0, atol=1e-9):
            break
    return copies.astype(int)


def _mixture(model, members, copies=None) -> PredictiveBlocks:
    """Mixture of the members of an ensemble.

    Members of a classifier have class indices as labels.
    """
    copies = np.ones(len(members), int) if copies is None else copies

    def pooled(*parts):
        repeated = [
            part for part, n in zip(parts, copies, strict=True) for _ in range(n)
        ]
        if not repeated[0].is_classification:
            return MixturePredictive.pooled(repeated)
        labelled = [part.labelled(model.classes_) for part in repeated]
        return ClassPredictive.pooled(labelled, model.classes_)

    return PredictiveBlocks.mapped(members, pooled)


def _from_calibrated(model, X) -> PredictiveBlocks:
    members = [_calibrated(member, X) for member in model.calibrated_classifiers_]
    return PredictiveBlocks.mapped(
        members, lambda *parts: ClassPredictive.pooled(parts, model.classes_)
    )


def _calibrated(member, X) -> PredictiveBlocks:
    """Apply the calibrators of one fold to the probabilities of each draw."""

    def calibrate(predictive):
        calibrator = copy.copy(member)
        calibrator.estimator = _Probabilities(predictive.classes)
        n_draws, n_rows, n_classes = predictive.probability.shape
        probability = predictive.probability.reshape(-1, n_classes)
        probability = calibrator.predict_proba(probability)
        probability = probability.reshape(n_draws, n_rows, -1)
        return ClassPredictive(probability, member.classes)

    return PredictiveBlocks.mapped([open_predictive(member.estimator, X)], calibrate)


class _Probabilities(ClassifierMixin, BaseEstimator):
    """A classifier that returns its inputs as probabilities."""

    def __init__(self, classes):
        self.classes_ = classes

    def predict_proba(self, X):
        return X


COMBINED = {
    TransformedTargetRegressor: _from_target_transform,
    BaggingRegressor: _from_bagging,
    BaggingClassifier: _from_bagging,
    VotingRegressor: _from_voting,
    VotingClassifier: _from_voting,
    StackingClassifier: _from_stacking,
    MultiOutputRegressor: _from_multi_output,
    CalibratedClassifierCV: _from_calibrated,
}


# ---- unsupported

_SEPARATELY = "call the function for each of its `estimators_`, one per target"
_ALL_CLASSES = "a network takes all classes at once, without it"
_BAGGING = "use Bagging or `n_estimators`, whose members have equal weights"

UNSUPPORTED = {
    MultiOutputClassifier: _SEPARATELY,
    ClassifierChain: "use MultiOutputClassifier, and " + _SEPARATELY,
    RegressorChain: "a network takes several targets at once, without it",
    OneVsRestClassifier: _ALL_CLASSES,
    OneVsOneClassifier: _ALL_CLASSES,
    OutputCodeClassifier: _ALL_CLASSES,
    AdaBoostRegressor: _BAGGING,
    AdaBoostClassifier: _BAGGING,
}

# Classes of these libraries are unsupported.
UNSUPPORTED_LIBRARIES = {
    "crepes": "use its `learner`, whose predictive distribution is not conformal",
    "mapie": "use the estimator inside, whose predictive distribution is not conformal",
    "skrub": "name the step, `.skb.set_name('network')`, and use "
    "`learner.find_fitted_estimator('network')`, with the X that the step gets",
    "skpro": "use its `estimator_`",
    "sktime": "use the estimator inside, with the X that it gets",
}


def _unsupported(model) -> str:
    """Error message for a model without a predictive distribution."""
    name = type(model).__name__
    library = type(model).__module__.partition(".")[0]
    way_out = _lookup(UNSUPPORTED, model) or UNSUPPORTED_LIBRARIES.get(library)
    if way_out is not None:
        return f"{name} has no predictive distribution here: {way_out}."
    kinds = [
        wrapper_class.__name__
        for wrapper_class in (*PASS_THROUGH, *COMBINED)
        if wrapper_class not in (Pipeline, BaseSearchCV)
    ]
    return (
        "a predictive distribution needs an estimator of skbayesnn, alone or inside of "
        f"CalibratedUncertaintyRegressor, Pipeline, a search, {', '.join(kinds)}; got "
        f"{name}."
    )
