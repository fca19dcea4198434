"""Find the predictive distribution inside of meta-estimators, by three tables.

``PASS_THROUGH`` lists meta-estimators that change X or nothing (classes of other
libraries are recognised by their attributes). ``COMBINED`` lists meta-estimators whose
predictive distribution is computed from the estimators inside. ``UNSUPPORTED`` lists
meta-estimators without a predictive distribution, with the way out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.mixin import PredictiveMixin
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._sklearn_compat import target_dimensions


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
    if hasattr(model, "calibrated_classifiers_"):  # CalibratedClassifierCV
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


def _lookup(table: dict[str, Any], model) -> Any:
    """Entry of the class of scikit-learn that the model is an instance of.

    By its name: an import of all these classes takes longer than the package's own.
    """
    names = (
        c.__name__ for c in type(model).__mro__ if c.__module__.startswith("sklearn.")
    )
    return next((table[name] for name in names if name in table), None)


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


PASS_THROUGH = {
    "Pipeline": PassThrough(lambda model: model.steps[-1][1], _through_steps),
    "BaseSearchCV": PassThrough(_best_of_search),
    "FrozenEstimator": PassThrough(lambda model: model.estimator),
    "RFE": PassThrough(
        lambda model: _fitted(model).estimator_, lambda model, X: model.transform(X)
    ),
    # The threshold changes labels only, not probabilities. An estimator that was fitted
    # before may have no clone in `estimator_`.
    "FixedThresholdClassifier": PassThrough(
        lambda model: getattr(model, "estimator_", model.estimator)
    ),
    "TunedThresholdClassifierCV": PassThrough(lambda model: _fitted(model).estimator_),
    "SelfTrainingClassifier": PassThrough(
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


COMBINED = {
    "TransformedTargetRegressor": _from_target_transform,
    "MultiOutputRegressor": _from_multi_output,
}


# ---- unsupported

_SEPARATELY = "call the function for each of its `estimators_`, one per target"
_ALL_CLASSES = "a network takes all classes at once, without it"
_MEMBERS = (
    "use `n_estimators` of a network, or BayesianStackingRegressor or "
    "BayesianStackingClassifier, whose mixtures have a predictive distribution"
)
_FINAL = "call the function for its `final_estimator_`, with `transform(X)` as X"

UNSUPPORTED = {
    "MultiOutputClassifier": _SEPARATELY,
    "ClassifierChain": "use MultiOutputClassifier, and " + _SEPARATELY,
    "RegressorChain": "a network takes several targets at once, without it",
    "OneVsRestClassifier": _ALL_CLASSES,
    "OneVsOneClassifier": _ALL_CLASSES,
    "OutputCodeClassifier": _ALL_CLASSES,
    "AdaBoostRegressor": _MEMBERS,
    "AdaBoostClassifier": _MEMBERS,
    "BaggingRegressor": _MEMBERS,
    "BaggingClassifier": _MEMBERS,
    "VotingRegressor": _MEMBERS,
    "VotingClassifier": _MEMBERS,
    "StackingRegressor": _FINAL,
    "StackingClassifier": _FINAL,
    "CalibratedClassifierCV": (
        "its `predict_proba` is calibrated; for uncertainties use the classifier inside"
    ),
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
    # ConformalClassifier has one estimator and no intervals.
    if (
        way_out is None
        and hasattr(model, "conformal_")
        and hasattr(model, "estimators_")
    ):
        way_out = (
            "its intervals are conformal; use its `predict_distribution`, which is "
            "not, or one of its `estimators_`"
        )
    if way_out is not None:
        return f"{name} has no predictive distribution here: {way_out}."
    others = sorted({*PASS_THROUGH, *COMBINED} - {"Pipeline", "BaseSearchCV"})
    return (
        "a predictive distribution needs an estimator of skbayesnn, alone or inside of "
        f"CalibratedUncertaintyRegressor, Pipeline, a search, {', '.join(others)}; got "
        f"{name}."
    )
