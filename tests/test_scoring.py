"""Scorers: plain callables for ``scoring=``, larger is better."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.metrics import mixture_crps
from skbayesnn.scoring import (
    interval_coverage_scorer,
    log_density_scorer,
    neg_crps_scorer,
    neg_interval_width_scorer,
)

SEED = int(os.environ.get("SKBAYESNN_SEED", "0"))
SCORERS = [
    log_density_scorer,
    neg_crps_scorer,
    interval_coverage_scorer,
    neg_interval_width_scorer,
]
EVERY_SCORER = pytest.mark.parametrize("scorer", SCORERS, ids=lambda f: f.__name__)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng([SEED, 3])
    X = random.standard_normal((37, 3))
    return SimpleNamespace(
        X=X,
        y=X[:, 0] + 0.3 * random.standard_normal(37),
        Y=X[:, :2] * [1, 10] + 0.3 * random.standard_normal((37, 2)),
        labels=np.where(X[:, 1] > np.median(X[:, 1]), "up", "down"),
        weights=np.arange(37) % 4,
    )


@pytest.fixture(scope="module")
def model():
    return MCDropoutRegressor(
        (8,), max_iter=20, n_draws=13, dropout=0.1, device="cpu", random_state=SEED
    )


@pytest.fixture(scope="module")
def fitted(model, data):
    return clone(model).fit(data.X, data.y)


def test_values(fitted, data):
    X, y = data.X, data.y
    assert log_density_scorer(fitted, X, y) == pytest.approx(
        fitted.log_predictive_density(X, y).mean()
    )
    interval = fitted.predict_interval(X)
    inside = (interval[:, 0] <= y) & (y <= interval[:, 1])
    assert interval_coverage_scorer(fitted, X, y) == pytest.approx(inside.mean())
    assert neg_interval_width_scorer(fitted, X, y) == pytest.approx(
        -np.diff(interval).mean()
    )
    half = fitted.predict_interval(X, 0.5)
    assert neg_interval_width_scorer(fitted, X, y, coverage=0.5) == pytest.approx(
        -np.diff(half).mean()
    )
    assert interval_coverage_scorer(fitted, X, y, coverage=0.5) <= inside.mean()


def test_crps_of_one_gaussian(model, data):
    fitted = clone(model).set_params(dropout=0.0).fit(data.X, data.y)
    mean, std = fitted.predict(data.X, return_std=True)
    assert neg_crps_scorer(fitted, data.X, data.y) == pytest.approx(
        -mixture_crps(data.y, mean[None], std[None] ** 2)
    )


@EVERY_SCORER
def test_several_targets(model, data, scorer):
    fitted = clone(model).fit(data.X, data.Y)
    value = scorer(fitted, data.X, data.Y)
    assert type(value) is float and np.isfinite(value)


@EVERY_SCORER
def test_weights_are_repeated_rows(fitted, data, scorer):
    rows = np.repeat(np.arange(37), data.weights)
    assert scorer(fitted, data.X, data.y, sample_weight=data.weights) == pytest.approx(
        scorer(fitted, data.X[rows], data.y[rows])
    )


@EVERY_SCORER
def test_units(model, data, scorer):
    """y in other units: densities shift, CRPS and widths scale, coverage stays."""
    value = scorer(clone(model).fit(data.X, data.y), data.X, data.y)
    other = scorer(clone(model).fit(data.X, 1000 * data.y), data.X, 1000 * data.y)
    expected = {
        log_density_scorer: value - np.log(1000),
        interval_coverage_scorer: value,
    }.get(scorer, 1000 * value)
    # Rounding errors of the scaling, grown by 20 training steps.
    assert other == pytest.approx(expected, rel=1e-6)


@EVERY_SCORER
def test_better_is_larger(model, data, scorer):
    """A trained network beats one that hardly moved, in all but the coverage."""
    if scorer is interval_coverage_scorer:
        pytest.skip("coverage is best at its level, not at one")
    # Noise of the size of y for the one, as learned for the other.
    poor = clone(model).set_params(tau=0.5 / data.y.var(), learning_rate_init=1e-6)
    good = clone(model).set_params(max_iter=150)
    scores = [scorer(m.fit(data.X, data.y), data.X, data.y) for m in (poor, good)]
    assert scores[1] > scores[0]


@EVERY_SCORER
def test_as_scoring(model, data, scorer):
    pipeline = make_pipeline(StandardScaler(), model)
    scores = cross_val_score(pipeline, data.X, data.y, cv=KFold(3), scoring=scorer)
    train, test = next(iter(KFold(3).split(data.X)))
    first = clone(pipeline).fit(data.X[train], data.y[train])
    assert scores.shape == (3,)
    assert scores[0] == pytest.approx(scorer(first, data.X[test], data.y[test]))
    search = GridSearchCV(model, {"dropout": [0.05, 0.5]}, scoring=scorer, cv=2)
    search.fit(data.X, data.y)
    means = search.cv_results_["mean_test_score"]
    assert search.best_score_ == means.max()
    assert search.score(data.X, data.y) == pytest.approx(scorer(search, data.X, data.y))


def test_several_at_once(model, data):
    scoring = {scorer.__name__: scorer for scorer in SCORERS}
    results = cross_validate(model, data.X, data.y, cv=2, scoring=scoring)
    for name in scoring:
        assert np.isfinite(results[f"test_{name}"]).all()


def test_classifier(data):
    model = MCDropoutClassifier((8,), max_iter=20, device="cpu", random_state=SEED)
    model.fit(data.X, data.labels)
    density = log_density_scorer(model, data.X, data.labels)
    codes = np.searchsorted(model.classes_, data.labels)
    assert density == pytest.approx(
        np.log(model.predict_proba(data.X)[np.arange(37), codes]).mean()
    )
    # The same number as scikit-learn's own scorer.
    log_loss = sklearn.metrics.get_scorer("neg_log_loss")
    assert density == pytest.approx(log_loss(model, data.X, data.labels))
    for scorer in SCORERS[1:]:
        with pytest.raises(TypeError, match="needs a regressor"):
            scorer(model, data.X, data.labels)
