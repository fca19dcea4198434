"""Bayes by Backprop: pruning of weights with a low signal-to-noise ratio."""

import numpy as np
import pytest
from scipy.special import log1p

from skbayesnn import BBBClassifier, BBBRegressor


@pytest.fixture
def model(data, small):
    settings = small | {"dropout": 0.0, "n_estimators": 2}
    return BBBRegressor(**settings).fit(data.X, data.y)


def ratios(model):
    """|mean| / std of all weights of each network, (networks, weights)."""
    arrays = model.parameters_
    return np.concatenate(
        [
            np.abs(arrays[f"layers/{i}/mean"]).reshape(2, -1)
            / log1p(np.exp(arrays[f"layers/{i}/rho"])).reshape(2, -1)
            for i in range(3)
        ],
        axis=1,
    )


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_weights_of_low_signal_are_removed(data, model, share):
    before = ratios(model)
    means = [model.parameters_[f"layers/{i}/mean"].copy() for i in range(3)]
    assert model.prune(share, data.X, data.y) is model
    bound = np.sort(before, axis=1)[:, round(share * before.shape[1])]
    kept = before >= bound[:, None]
    # Means that were kept remain, without units that are not used.
    remaining = np.concatenate(
        [model.parameters_[f"layers/{i}/mean"].reshape(2, -1) for i in range(3)], axis=1
    )
    expected = np.concatenate([m.reshape(2, -1) for m in means], axis=1) * kept
    for actual, desired in zip(remaining, expected, strict=True):
        assert np.isin(actual[actual != 0], desired[desired != 0]).all()
        assert (actual != 0).sum() <= (desired != 0).sum()
    assert model.pruning_["share"] == share
    assert model.pruning_["score_after"] == model.score(data.X, data.y)
    with pytest.raises(
        ValueError, match=f"weights would grow again; .* share={share:g}"
    ):
        model.set_params(warm_start=True).fit(data.X, data.y)


def test_removed_weights_are_deterministic(data, model):
    model.prune(0.5)
    draws = model._open_predictive(data.X_new).whole().components.mean
    repeated = model._open_predictive(data.X_new).whole().components.mean
    np.testing.assert_array_equal(draws, repeated)
    assert np.isfinite(draws).all() and draws.std(0).min() > 0
    for i in range(3):
        removed = model.parameters_[f"layers/{i}/mean"] == 0
        assert (model.parameters_[f"layers/{i}/rho"][removed] == -np.inf).all()


def test_prune_nothing_and_prune_twice(data, model):
    before = model.predict(data.X_new)
    model.prune(0.0)
    np.testing.assert_array_equal(model.predict(data.X_new), before)
    model.prune(0.5).prune(0.5)
    assert np.isfinite(model.predict(data.X_new)).all()


def test_weights_of_irrelevant_columns_are_removed_first(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(400, 10))
    labels = X[:, 3] > 0
    model = BBBClassifier(
        (8,), length_scale=3.0, max_iter=200, device="cpu", random_state=seed
    ).fit(X, labels)
    before = model.score(X, labels)
    model.prune(0.7)
    sizes = np.abs(model.parameters_["layers/0/mean"][0]).sum(1)
    assert sizes.argmax() == 3
    assert model.score(X, labels) > before - 0.02


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_share_is_checked(model, share):
    with pytest.raises(ValueError, match=r"`share` must be in \[0, 1\)"):
        model.prune(share)


def test_interrupted_pruning_changes_nothing(data, model, monkeypatch):
    before, calls = model.predict(data.X), []
    plain = type(model).score

    def interrupted(self, *args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(self, *args)

    monkeypatch.setattr(type(model), "score", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.prune(0.9, X=data.X, y=data.y)
    np.testing.assert_array_equal(model.predict(data.X), before)
    assert model.pruning_ is None
