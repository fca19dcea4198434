"""`find_estimator` in pipelines, searches and other meta-estimators."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skbayesnn import (
    Abstainer,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    find_estimator,
    from_torch,
)
from tests.helpers.seed import SEED

SMALL = {
    "hidden_layer_sizes": (4,),
    "max_iter": 2,
    "n_draws": 3,
    "device": "cpu",
    "random_state": SEED,
}
RANDOM = np.random.default_rng([SEED, 11])
X = RANDOM.standard_normal((40, 3))
Y = X[:, 0] + RANDOM.standard_normal(40)
NETWORK, CLASSIFIER = MCDropoutRegressor(**SMALL), MCDropoutClassifier(**SMALL)
STACK = BayesianStackingRegressor([("network", NETWORK)], cv=2, random_state=SEED)


def fitted(model, y=Y):
    with warnings.catch_warnings():
        # With so few epochs the networks explain little.
        warnings.simplefilter("ignore")
        return clone(model).fit(X, y)


def test_returns_the_fitted_object():
    """The object that the public attributes lead to."""
    stack = fitted(make_pipeline(StandardScaler(), STACK))
    assert find_estimator(stack) is stack[-1]
    assert find_estimator(stack).weights_["weight"]["network"] == 1
    target = TransformedTargetRegressor(make_pipeline(StandardScaler(), NETWORK))
    search = fitted(GridSearchCV(target, {}, cv=2))
    assert find_estimator(search) is search.best_estimator_.regressor_[-1]
    assert find_estimator(FrozenEstimator(search)) is find_estimator(search)
    vote = fitted(VotingRegressor([("one", NETWORK)]))
    assert find_estimator(vote) is vote.estimators_[0]
    with torch.random.fork_rng():
        layers = nn.Sequential(nn.Dropout(), nn.Linear(3, 1))
    module = from_torch(layers, noise_std=1.0)
    assert find_estimator(make_pipeline(module)) is module


@pytest.mark.parametrize(
    "model",
    [
        NETWORK,
        CalibratedUncertaintyRegressor(NETWORK, cv=2),
        Abstainer(make_pipeline(NETWORK), threshold=1.0),
        ConformalRegressor(NETWORK, random_state=SEED),
        StackingRegressor([("ridge", Ridge())], NETWORK, cv=2),
        TransformedTargetRegressor(CalibratedUncertaintyRegressor(NETWORK, cv=2)),
        BaggingRegressor(NETWORK, n_estimators=1, random_state=SEED),
    ],
    ids=lambda model: type(model).__name__,
)
def test_finds_regressors(model):
    actual = find_estimator(fitted(model))
    assert isinstance(actual, MCDropoutRegressor)
    assert actual.n_iter_ == 2


@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifierCV(CLASSIFIER, cv=2, ensemble=False),
        FixedThresholdClassifier(CLASSIFIER),
        StackingClassifier([("logistic", LogisticRegression())], CLASSIFIER, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_finds_classifiers(model):
    actual = find_estimator(fitted(model, Y > 0))
    assert isinstance(actual, MCDropoutClassifier)
    assert actual.n_iter_ == 2


def test_several_estimators_are_refused():
    for model, n in (
        (BaggingRegressor(NETWORK, n_estimators=3, random_state=SEED), 3),
        (ConformalRegressor(NETWORK, method="cv+", cv=4), 4),
        (VotingRegressor([("a", NETWORK), ("b", NETWORK)]), 2),
    ):
        message = f"got {type(model).__name__} with {n}.*each of them"
        with pytest.raises(TypeError, match=message):
            find_estimator(fitted(make_pipeline(model)))
    multi_output = fitted(MultiOutputRegressor(NETWORK), np.stack([Y, -Y], 1))
    with pytest.raises(TypeError, match="got MultiOutputRegressor with 2"):
        find_estimator(multi_output)
    assert find_estimator(multi_output.estimators_[1]) is multi_output.estimators_[1]


def test_models_without_an_estimator_are_refused():
    for model, name in (
        (make_pipeline(StandardScaler(), Ridge()), "Ridge"),
        (RFE(Ridge()), "Ridge"),
        (RandomForestRegressor(2, random_state=SEED), "RandomForestRegressor with 2"),
        (AdaBoostRegressor(n_estimators=1, random_state=SEED), "DecisionTreeRegressor"),
    ):
        with pytest.raises(TypeError, match=f"find_estimator needs .* got {name}"):
            find_estimator(fitted(model))
    for model in (None, "pipeline", MCDropoutRegressor):
        with pytest.raises(TypeError, match="find_estimator needs"):
            find_estimator(model)


@pytest.mark.parametrize(
    "model",
    [
        NETWORK,
        STACK,
        make_pipeline(StandardScaler(), NETWORK),
        GridSearchCV(NETWORK, {}),
        TransformedTargetRegressor(NETWORK),
        CalibratedUncertaintyRegressor(NETWORK),
        ConformalRegressor(NETWORK),
        BaggingRegressor(NETWORK),
        VotingRegressor([("one", NETWORK)]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_unfitted_models_are_refused(model):
    with pytest.raises(NotFittedError):
        find_estimator(model)
