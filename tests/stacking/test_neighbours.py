"""Neighbour models as candidates of a stack."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    NeighbourClassifier,
    NeighbourRegressor,
)
from skbayesnn._distributions.mixtures import JoinedDraws
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._stacking import pool as pools
from tests.helpers.stacks import QUICK

ROWS, NEW = 90, 23
SHORT = {"hidden_size": 6, "embedding_size": 3, "max_iter": 30, "n_estimators": 2}
# Neither gets all of the weight.
TRAINED = {**QUICK, "max_iter": 100}


@pytest.fixture
def rows(seed):
    """A smooth function of one of three columns, plus a step of another."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS + NEW, 3))
    y = 5 * X[:, 0] + 4 * (X[:, 1] > 0) + random.normal(size=ROWS + NEW)
    return X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:]


def _stack(*neighbours, **params):
    pool = [("network", MCDropoutRegressor(**TRAINED)), *neighbours]
    defaults = {"cv": 2, "n_refits": 3, "random_state": 0}
    return BayesianStackingRegressor(pool, **defaults | params)


NEIGHBOURS = "neighbours", NeighbourRegressor(**SHORT)


def _draws(model, X):
    """Predictive distribution of each candidate, with its draws in the mixture."""
    parts = [open_predictive(e, X).whole() for e in model.estimators_]
    parts = [part.in_units_of_target().components for part in parts]
    return [p.resized(n) for p, n in zip(parts, model.n_draws_, strict=True)]


@pytest.fixture
def fitted(rows):
    model = _stack(NEIGHBOURS).fit(*rows[:2])
    assert len(model.estimators_) == 2
    return model


def test_predictive_is_the_weighted_mixture(rows, fitted):
    """Normal draws of a network and mixtures of neighbours, without a correction."""
    _, _, X, y = rows
    fitted.spread_factor_ = np.ones(1)
    parts = _draws(fitted, X)
    mean, variance = (
        np.concatenate([getattr(part, name)[..., 0] for part in parts])
        for name in ("mean", "variance")
    )
    density = [part.log_density_per_target(y[:, None])[..., 0] for part in parts]
    cdf = np.concatenate([part.cdf(y[:, None])[..., 0] for part in parts])
    assert len(mean) == 200
    np.testing.assert_allclose(fitted.predict(X), mean.mean(0))
    parts = fitted.predict_uncertainty(X, "all")
    np.testing.assert_allclose(parts["epistemic"], mean.std(0))
    np.testing.assert_allclose(parts["aleatoric"], np.sqrt(variance.mean(0)))
    np.testing.assert_allclose(
        fitted.log_predictive_density(X, y),
        logsumexp(np.concatenate(density), axis=0) - np.log(200),
    )
    np.testing.assert_allclose(fitted.predictive_cdf(X, y), cdf.mean(0))
    np.testing.assert_allclose(fitted.predict_quantile(X, 0.3), _root(fitted, X, 0.3))


def _root(model, X, level):
    """Quantile of the predictive distribution by bisection."""
    low, high = np.full(len(X), -100.0), np.full(len(X), 100.0)
    for _ in range(60):
        middle = (low + high) / 2
        below = model.predictive_cdf(X, middle) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low


def test_repeated_draws_are_stored_once(rows, fitted):
    """So the CRPS of a mixture does not take longer with a larger weight."""
    X, y = (values[:2] for values in rows[2:])
    components = open_predictive(fitted, X).whole().components
    assert isinstance(components, JoinedDraws)
    # Two networks of neighbours with two draws each.
    assert [part.n_draws for part in components.parts][-1] == 4
    assert components.n_draws == 200
    expected = components.expanded().mixture_crps(y[:, None])[:, 0]
    np.testing.assert_allclose(fitted.crps(X, y), expected, rtol=1e-9)


def test_refit_is_the_model_fitted_alone(rows):
    """With its own number of networks, whatever ``n_refits``."""
    X, y, new, _ = rows
    weight = np.random.default_rng(0).integers(0, 3, ROWS).astype(float)
    model = NeighbourRegressor(**SHORT, random_state=7)
    stack = _stack(("neighbours", model)).fit(X, y, weight)
    [refit] = [e for e in stack.estimators_ if isinstance(e, NeighbourRegressor)]
    alone = NeighbourRegressor(**SHORT, random_state=7).fit(X, y, weight)
    np.testing.assert_array_equal(refit.predict(new), alone.predict(new))
    for fold in stack.fold_estimators_:
        [of_fold] = [e for e in fold if isinstance(e, NeighbourRegressor)]
        assert len(of_fold.seeds_) == 2
        assert len(of_fold.X_train_) < np.count_nonzero(weight)


def test_pipeline_ends_in_neighbours(rows):
    X, y, new, _ = rows
    steps = make_pipeline(StandardScaler(), NeighbourRegressor(**SHORT, random_state=7))
    stack = _stack(("pipeline", steps)).fit(X, y, np.ones(ROWS))
    [refit] = [e for e in stack.estimators_ if e is not stack and hasattr(e, "steps")]
    alone = steps.fit(X, y)
    # The columns are standardised twice, with and without weights.
    np.testing.assert_allclose(refit.predict(new), alone.predict(new), rtol=1e-4)
    # A pipeline takes the frame.
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(y > 0, "x", "z")})
    columns = FunctionTransformer(lambda frame: frame[["a", "b"]])
    pool = [
        ("neighbours", make_pipeline(columns, NeighbourRegressor(**SHORT))),
        ("network", make_pipeline(columns, MCDropoutRegressor(**QUICK))),
        ("linear", "auto"),
    ]
    stack = BayesianStackingRegressor(pool, cv=2, random_state=0).fit(frame, y)
    assert np.isfinite(stack.predict(frame)).all()


def test_groups_reach_the_candidates(rows, monkeypatch):
    X, y, _, _ = rows
    groups = np.arange(ROWS) // 3
    seen, fit = [], NeighbourRegressor.fit

    def recorded(self, X, y, sample_weight=None, groups=None):
        seen.append(groups)
        return fit(self, X, y, sample_weight, groups)

    monkeypatch.setattr(NeighbourRegressor, "fit", recorded)
    _stack(NEIGHBOURS).fit(X, y, groups=groups)
    assert len(seen) == 3
    first, second, everything = (set(values) for values in seen)
    assert not first & second
    assert first | second == everything == set(groups)


def test_stack_of_classifiers(rows):
    X, y, new, _ = rows
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [0, 4])]
    pool = [
        ("network", MCDropoutClassifier(**QUICK)),
        ("neighbours", NeighbourClassifier(**SHORT)),
    ]
    model = BayesianStackingClassifier(pool, cv=2, random_state=0).fit(X, labels)
    assert model.weights_["weight"]["neighbours"] > 0
    model.spread_factor_ = np.ones(1)
    by_candidate = [e.predict_proba(new) for e in model.estimators_]
    share = model.n_draws_ / 200
    # Two networks with two draws each are repeated nearly equally often.
    np.testing.assert_allclose(
        model.predict_proba(new), np.tensordot(share, by_candidate, 1), atol=0.02
    )


def test_samples_have_the_moments_of_the_mixture(rows, fitted):
    _, _, X, _ = rows
    n = 4000
    sample = fitted.sample_y(X, n, random_state=0)
    mean, std = fitted.predict(X, return_std=True)
    assert (np.abs(sample.mean(1) - mean) < 6 * std / np.sqrt(n)).all()
    np.testing.assert_allclose(sample.std(1), std, rtol=0.2)
    assert fitted.sample_f(X, 5).shape == (NEW, 5)


def test_several_targets(rows):
    X, y, new, _ = rows
    model = _stack(NEIGHBOURS).fit(X, np.stack([y, -y], 1))
    assert list(model.weights_["weight"].index) == ["network", "neighbours"]
    assert model.predict(new).shape == (NEW, 2)


# ---- the default pool


@pytest.mark.parametrize(
    ("missing_rows", "columns", "targets", "is_classification", "is_used"),
    [
        (0, 3, 1, False, True),
        (1, 3, 1, False, False),
        (0, 3, 2, False, False),
        (0, 3, 1, True, False),
        (0, 70, 1, False, False),
    ],
)
def test_default_pool_with_many_rows(
    missing_rows, columns, targets, is_classification, is_used, monkeypatch
):
    monkeypatch.setattr(pools, "NEIGHBOURS_FROM", 60)
    monkeypatch.setattr(pools, "TREES_FROM", 30)
    n_rows = 60 - missing_rows
    pool = pools.default_specs(
        np.random.default_rng(0).normal(size=(n_rows, columns)),
        np.ones(n_rows),
        is_classification=is_classification,
        max_iter=3,
        n_targets=targets,
    )
    [*others, last] = [spec.name for spec in pool]
    assert "neighbours" not in others
    assert (last == "neighbours") == is_used
    if is_used:
        # Three epochs of one batch.
        assert pool[-1].estimator.max_iter == 3
