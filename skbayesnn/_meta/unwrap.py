"""Find the predictive distribution inside meta-estimators: a line of a table for each.

``PASS_THROUGH`` lists those that only change X or pass it on (those of other libraries
are recognised by their attributes). ``COMBINED`` lists those whose predictive
distribution is computed from the estimators inside. ``UNSUPPORTED`` lists those that
have none, with the way out.
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

# Weights of a vote are whole numbers of copies of a member's draws, the largest at most
# this: others are rounded, by at most one per cent of the largest.
MOST_COPIES = 50


def unwrap(model, X):
    """Through what only changes X or passes it on: the estimator inside, and its X."""
    while (way := _inward(model)) is not None:
        model, X = way.inside(model), way.inputs(model, X)
    return model, X


def inside(model):
    """The estimator inside, as ``unwrap`` finds it, without any X."""
    while (way := _inward(model)) is not None:
        model = way.inside(model)
    return model


def open_predictive(model, X) -> PredictiveBlocks:
    """The predictive of a model on the rows of X, in the units of its target.

    X goes through the transformers once, and every network inside is opened once.

    Raises
    ------
    TypeError
        For models that have none.
    """
    model, X = unwrap(model, X)
    if isinstance(model, PredictiveMixin):
        return PredictiveBlocks.mapped([model._open_predictive(X)], _in_units_of_target)
    opened = _of_class(COMBINED, model)
    if opened is None:
        raise TypeError(_refusal(model))
    return opened(_fitted(model), X)


def _in_units_of_target(one):
    return one.in_units_of_target()


def _of_class(table: dict, model):
    return next((v for kind, v in table.items() if isinstance(model, kind)), None)


def _fitted(model):
    check_is_fitted(model)
    return model


def _as_array(model, X):
    """X as the members of a meta-estimator get it that makes an array of it."""
    return validate_data(
        model,
        X,
        accept_sparse=["csr", "csc"],
        dtype=None,
        ensure_all_finite=False,
        reset=False,
    )


# ---- inward


class Inward(NamedTuple):
    """The way into a meta-estimator that only changes X or passes it on.

    Parameters
    ----------
    inside : callable
        Fitted meta-estimator -> the estimator inside.
    inputs : callable
        Fitted meta-estimator and its X -> X of the estimator inside.
    """

    inside: Callable[[Any], Any]
    inputs: Callable[[Any, Any], Any] = lambda model, X: X


def _through_steps(pipeline, X):
    for _, step in pipeline.steps[:-1]:
        # imbalanced-learn's samplers have none: they change the rows of the fit alone.
        if hasattr(step, "transform"):
            X = step.transform(X)
    return X


def _best_of_search(search):
    if not hasattr(search, "best_estimator_"):
        check_is_fitted(search)
        raise TypeError(
            f"{type(search).__name__} must be fitted with refit=True, so that it has a "
            f"best estimator; got refit={search.refit!r}."
        )
    return search.best_estimator_


PASS_THROUGH: dict[type, Inward] = {
    Pipeline: Inward(lambda model: model.steps[-1][1], _through_steps),
    BaseSearchCV: Inward(_best_of_search),
    FrozenEstimator: Inward(lambda model: model.estimator),
    StackingRegressor: Inward(
        lambda model: _fitted(model).final_estimator_,
        lambda model, X: model.transform(X),
    ),
    RFE: Inward(
        lambda model: _fitted(model).estimator_, lambda model, X: model.transform(X)
    ),
    # The threshold is the labels'; probabilities are those inside. What was fitted
    # before may stay where it was given.
    FixedThresholdClassifier: Inward(
        lambda model: getattr(model, "estimator_", model.estimator)
    ),
    TunedThresholdClassifierCV: Inward(lambda model: _fitted(model).estimator_),
    SelfTrainingClassifier: Inward(lambda model: _fitted(model).estimator_, _as_array),
}


# What ParallelPostFit and Incremental of dask-ml predict by; that has no public name.
OF_DASK_ML = "_postfit_estimator"


def _inward(model) -> Inward | None:
    """The way inside: by the table, or for other libraries by what a model has."""
    if isinstance(model, PredictiveMixin):
        return None
    way = _of_class(PASS_THROUGH, model)
    if way is not None:
        return way
    if hasattr(model, OF_DASK_ML):
        return Inward(lambda model: getattr(model, OF_DASK_ML))
    unfitted_search = hasattr(model, "refit") and hasattr(model, "estimator")
    if hasattr(model, "best_estimator_") or unfitted_search:  # optuna, dask-ml
        return Inward(_best_of_search)
    return None


# ---- opened


def _of_target_transform(model, X) -> PredictiveBlocks:
    flat = target_dimensions(model) == 1
    return PredictiveBlocks.mapped(
        [open_predictive(model.regressor_, X)],
        lambda one: one.with_target_transform(model.transformer_, flat=flat),
    )


def _of_targets(model, X) -> PredictiveBlocks:
    members = [open_predictive(member, X) for member in model.estimators_]
    return PredictiveBlocks.mapped(
        members, lambda *parts: MixturePredictive.join_targets(parts)
    )


def _of_stacked_classifier(model, X) -> PredictiveBlocks:
    final = open_predictive(model.final_estimator_, model.transform(X))
    return PredictiveBlocks.mapped([final], lambda one: one.labelled(model.classes_))


def _of_bagging(model, X) -> PredictiveBlocks:
    """The equal-weight mixture of the members, each on its own columns."""
    X = _as_array(model, X)
    columns = zip(model.estimators_, model.estimators_features_, strict=True)
    members = [open_predictive(one, X[:, features]) for one, features in columns]
    return _mixture(model, members)


def _of_vote(model, X) -> PredictiveBlocks:
    """The mixture of the members, by the weights of the vote."""
    if isinstance(model, VotingClassifier) and model.voting == "hard":
        raise TypeError(
            "a vote of labels has no predictive; got VotingClassifier with "
            "voting='hard'. Take voting='soft', which averages probabilities."
        )
    weights = np.ones(len(model.estimators_))
    if model.weights is not None:
        voters = zip(model.estimators, model.weights, strict=True)
        weights = np.array([w for (_, voter), w in voters if voter != "drop"], float)
    copies = _copies(weights)
    members = [
        open_predictive(one, X)
        for one, n in zip(model.estimators_, copies, strict=True)
        if n
    ]
    return _mixture(model, members, copies[copies > 0])


def _copies(weights: np.ndarray) -> np.ndarray:
    """Whole numbers in the ratio of the weights, or as close as ``MOST_COPIES`` let."""
    if not (weights >= 0).all() or not weights.any():
        raise ValueError(
            "weights of a mixture must not be negative, and one must be positive; got "
            f"weights={weights.tolist()}."
        )
    weights = weights / weights.max()
    for largest in range(1, MOST_COPIES + 1):
        copies = np.round(largest * weights)
        if np.allclose(copies, largest * weights, rtol=0, atol=1e-9):
            break
    return copies.astype(int)


def _mixture(model, members, copies=None) -> PredictiveBlocks:
    """Of the members of an ensemble, those of classifiers with numbers for labels."""
    copies = np.ones(len(members), int) if copies is None else copies

    def pooled(*parts):
        each = [one for one, n in zip(parts, copies, strict=True) for _ in range(n)]
        if not each[0].of_classes:
            return MixturePredictive.pooled(each)
        labelled = [part.labelled(model.classes_) for part in each]
        return ClassPredictive.pooled(labelled, model.classes_)

    return PredictiveBlocks.mapped(members, pooled)


def _of_calibrated(model, X) -> PredictiveBlocks:
    members = [_calibrated(member, X) for member in model.calibrated_classifiers_]
    return PredictiveBlocks.mapped(
        members, lambda *parts: ClassPredictive.pooled(parts, model.classes_)
    )


def _calibrated(member, X) -> PredictiveBlocks:
    """Every draw's probabilities, sent through the calibrators of one fold."""

    def through(one):
        on_draws = copy.copy(member)
        on_draws.estimator = _Probabilities(one.classes)
        n_draws, n_rows, n_classes = one.probability.shape
        calibrated = on_draws.predict_proba(one.probability.reshape(-1, n_classes))
        probability = calibrated.reshape(n_draws, n_rows, -1)
        return ClassPredictive(probability, member.classes)

    return PredictiveBlocks.mapped([open_predictive(member.estimator, X)], through)


class _Probabilities(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are the probabilities that it predicts."""

    def __init__(self, classes):
        self.classes_ = classes

    def predict_proba(self, X):
        return X


COMBINED = {
    TransformedTargetRegressor: _of_target_transform,
    BaggingRegressor: _of_bagging,
    BaggingClassifier: _of_bagging,
    VotingRegressor: _of_vote,
    VotingClassifier: _of_vote,
    StackingClassifier: _of_stacked_classifier,
    MultiOutputRegressor: _of_targets,
    CalibratedClassifierCV: _of_calibrated,
}


# ---- refused

_ONE_BY_ONE = "ask its `estimators_` one by one, each of one target"
_ALL_CLASSES = "a network takes all classes at once, without it"
_BAGGING = "take Bagging or `n_estimators`, whose members weigh alike"

UNSUPPORTED = {
    MultiOutputClassifier: _ONE_BY_ONE,
    ClassifierChain: "take MultiOutputClassifier, and " + _ONE_BY_ONE,
    RegressorChain: "a network takes several targets at once, without it",
    OneVsRestClassifier: _ALL_CLASSES,
    OneVsOneClassifier: _ALL_CLASSES,
    OutputCodeClassifier: _ALL_CLASSES,
    AdaBoostRegressor: _BAGGING,
    AdaBoostClassifier: _BAGGING,
}

# By the library that a class comes from.
REFUSED_OF = {
    "crepes": "ask its `learner`, whose predictive is not conformal",
    "mapie": "ask the estimator that it was given, whose predictive is not conformal",
    "skrub": "name the step, `.skb.set_name('network')`, and ask "
    "`learner.find_fitted_estimator('network')`, with X as the step gets it",
    "skpro": "ask its `estimator_`",
    "sktime": "ask the estimator inside, with X as it gets it",
}


def _refusal(model) -> str:
    name = type(model).__name__
    library = type(model).__module__.partition(".")[0]
    way_out = _of_class(UNSUPPORTED, model) or REFUSED_OF.get(library)
    if way_out is not None:
        return f"{name} has no predictive that could be had from inside: {way_out}."
    named = Pipeline, BaseSearchCV
    others = [kind for kind in (*PASS_THROUGH, *COMBINED) if kind not in named]
    passed = ", ".join(kind.__name__ for kind in others)
    return (
        "a predictive can be had from the networks of skbayesnn, alone or inside of "
        "CalibratedUncertaintyRegressor, Pipeline, a search, "
        f"{passed}; got {name}."
    )
