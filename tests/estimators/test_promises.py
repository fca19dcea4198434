"""Predictions are deterministic, and ensemble members equal single networks.

Details for MC dropout; `test_posteriors.py` has the promises for every posterior.
"""

import copy
import random

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone, is_classifier

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from tests.helpers.posteriors import BBB, MC_DROPOUT, VARIATIONAL
from tests.helpers.predictions import assert_same, predictions


@pytest.fixture(scope="module")
def fitted(data, small):
    return {
        "regressor": MCDropoutRegressor(n_estimators=2, **small).fit(data.X, data.y),
        "heteroscedastic": MCDropoutRegressor(
            likelihood="heteroscedastic", **small
        ).fit(data.X, data.y),
        "classifier": MCDropoutClassifier(n_estimators=2, **small).fit(
            data.X, data.labels
        ),
    }


KINDS = pytest.mark.parametrize("name", ["regressor", "heteroscedastic", "classifier"])
# float64 rounding of sums in blocks of different sizes.
SAME = {"rtol": 1e-10, "atol": 1e-12}


@KINDS
def test_prediction_is_a_function_of_the_row(fitted, data, name):
    """`test_posteriors.py` has more about other rows and the memory."""
    model, X = fitted[name], data.X_new
    whole = predictions(model, X)
    for i in (0, 7):  # a row alone
        assert_same(predictions(model, X[[i]]), whole, [i], **SAME)
    many = np.repeat(X, 50, axis=0)  # among many others
    assert_same(predictions(model, many), whole, np.arange(11).repeat(50), **SAME)
    for memory in (1e-4, 0.1):  # MiB
        with sklearn.config_context(working_memory=memory):
            assert_same(predictions(model, X), whole, **SAME)


def test_shortest_interval_is_a_function_of_the_row(fitted, data):
    model, X = fitted["regressor"], data.X_new

    def interval(X):
        return model.predict_interval(X, [0.5, 0.8], kind="highest_density")

    whole = interval(X)
    np.testing.assert_allclose(interval(X[7:]), whole[7:], **SAME)
    with sklearn.config_context(working_memory=3e-3):
        np.testing.assert_allclose(interval(X), whole, **SAME)


@pytest.mark.parametrize("n_draws", [1, 5, 13, 200])
def test_first_draws_are_the_same(fitted, data, n_draws):
    """A larger n_draws adds draws with the same seed."""
    model = clone(fitted["regressor"]).set_params(n_draws=n_draws)
    model.fit(data.X, data.y)
    later = copy.deepcopy(fitted["regressor"]).set_params(n_draws=n_draws)
    np.testing.assert_array_equal(later.predict(data.X_new), model.predict(data.X_new))


# ---- global state


def generators():
    return (
        random.getstate(),
        repr(np.random.get_state()),
        np.random.get_state()[1].tobytes(),
        torch.get_rng_state().numpy().tobytes(),
    )


def settings():
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        np.geterr(),
    )


@pytest.mark.parametrize("random_state", [0, None])
@pytest.mark.parametrize("kind", [*MC_DROPOUT, *BBB, *VARIATIONAL])
def test_global_generators_and_settings_do_not_change(data, small, kind, random_state):
    model = kind(**small | {"random_state": random_state})
    y = data.labels if is_classifier(model) else data.y
    before = settings()
    generators_before = generators()
    model.fit(data.X, y)
    model.partial_fit(data.X, y)
    model.predict(data.X_new)
    model.predict_uncertainty(data.X_new, kind="all")
    for state in (0, None):
        model.sample_f(data.X_new, 3, random_state=state)
        model.sample_y(data.X_new, 3, random_state=state)
    model.log_predictive_density(data.X_new, y[:11])
    assert settings() == before
    assert generators() == generators_before


def test_settings_are_restored_after_an_error(data, small):
    before = settings(), generators()
    with pytest.raises(ValueError, match="dropout"):
        MCDropoutRegressor(**small | {"dropout": 2.0}).fit(data.X, data.y)
    model = MCDropoutRegressor(**small).fit(data.X, data.y)
    with pytest.raises(ValueError, match="features"):
        model.predict(data.X_new[:, :2])
    assert (settings(), generators()) == before


def test_global_seeds_do_not_matter(data, small):
    """Fits and predictions depend on random_state alone."""
    states = torch.get_rng_state(), np.random.get_state()
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        model = MCDropoutRegressor(**small).fit(data.X, data.y)
        results.append(model.predict(data.X_new))
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    np.testing.assert_array_equal(*results)


# ---- random_state


def test_refit_does_not_depend_on_earlier_fits(data, small):
    model = MCDropoutRegressor(**small).fit(data.X, data.y)
    before = model.predict(data.X_new)
    model.fit(data.X[:30], data.Y[:30])
    model.fit(data.X, data.y)
    np.testing.assert_array_equal(model.predict(data.X_new), before)


# ---- the fitted state


@KINDS
def test_set_params_after_fit_does_not_change_predictions(fitted, data, name):
    model = copy.deepcopy(fitted[name])
    before = model.predict_uncertainty(data.X_new, kind="all")
    model.set_params(
        hidden_layer_sizes=(3,),
        activation="tanh",
        dropout=0.9,
        length_scale=5.0,
        tau=77.0,
        n_estimators=7,
        standardize=False,
        batch_size=3,
        max_iter=1,
        random_state=99,
        verbose=True,
        warm_start=True,
    )
    if name != "classifier":
        model.set_params(likelihood="gaussian")
    for kind, value in model.predict_uncertainty(data.X_new, kind="all").items():
        np.testing.assert_array_equal(value, before[kind])


def test_n_draws_set_after_fit_changes_predictions(fitted, data):
    model = copy.deepcopy(fitted["regressor"])
    before = model.predict(data.X_new)
    assert (model.set_params(n_draws=50).predict(data.X_new) != before).all()
    model.set_params(n_draws=13)
    np.testing.assert_array_equal(model.predict(data.X_new), before)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda"), "mps"])
def test_prediction_falls_back_to_the_cpu(fitted, data, device, monkeypatch):
    """If the device of the fit is missing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for model in fitted.values():
        moved = copy.deepcopy(model).set_params(device=device)
        np.testing.assert_array_equal(
            moved.predict_uncertainty(data.X_new), model.predict_uncertainty(data.X_new)
        )
