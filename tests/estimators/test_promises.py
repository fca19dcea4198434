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
from tests.helpers.checks import Checks
from tests.helpers.posteriors import BBB, MC_DROPOUT, VARIATIONAL

# float64 rounding of sums in blocks of different sizes.
SAME = {"rtol": 1e-10, "atol": 1e-12}

REGRESSION = {
    "predict": lambda m, X: m.predict(X),
    "std": lambda m, X: m.predict(X, return_std=True)[1],
    "epistemic": lambda m, X: m.predict_uncertainty(X, kind="epistemic"),
    "interval": lambda m, X: m.predict_interval(X, 0.8),
    "shortest": lambda m, X: m.predict_interval(X, [0.5, 0.8], kind="highest_density"),
    "cdf": lambda m, X: m.predictive_cdf(X, 3 * X[:, 0]),
    "sample_f": lambda m, X: m.sample_f(X, 5, random_state=2),
    "density": lambda m, X: m.log_predictive_density(X, 3 * X[:, 0]),
}
CLASSIFICATION = {
    "predict": lambda m, X: m.predict(X),
    "predict_proba": lambda m, X: m.predict_proba(X),
    "sample_f": lambda m, X: m.sample_f(X, 5, random_state=2),
    "density": lambda m, X: m.log_predictive_density(X, ["mid"] * len(X)),
} | {
    kind: lambda m, X, kind=kind: m.predict_uncertainty(X, kind=kind)
    for kind in ("entropy", "mutual_information", "variation_ratio", "overlap")
}


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


CASES = [
    *[("regressor", kind) for kind in REGRESSION],
    *[("heteroscedastic", kind) for kind in REGRESSION],
    *[("classifier", kind) for kind in CLASSIFICATION],
]


@pytest.fixture(params=CASES, ids="-".join)
def prediction(request, fitted):
    """A function of X; ``memory`` is scikit-learn's working_memory in MiB."""
    name, kind = request.param
    table = CLASSIFICATION if name == "classifier" else REGRESSION

    def predict(X, memory=1024):
        with sklearn.config_context(working_memory=memory):
            return table[kind](fitted[name], X)

    return predict


def assert_same(actual, desired):
    if np.asarray(desired).dtype.kind in "US":
        np.testing.assert_array_equal(actual, desired)
    else:
        np.testing.assert_allclose(actual, desired, **SAME)


def test_prediction_is_a_function_of_the_row(prediction, data):
    whole = prediction(data.X_new)
    np.testing.assert_array_equal(prediction(data.X_new), whole)  # called twice
    for i in (0, 7):  # a row alone
        assert_same(prediction(data.X_new[i : i + 1]), whole[i : i + 1])
    order = np.array([8, 2, 3, 10, 0])  # a subset, in another order
    assert_same(prediction(data.X_new[order]), whole[order])
    repeated = np.repeat(data.X_new, 200, axis=0)  # among many others
    assert_same(prediction(repeated)[::200], whole)


def test_prediction_does_not_depend_on_the_memory(prediction, data):
    whole = prediction(data.X_new)
    with Checks() as check:
        for memory in (1e-4, 3e-3, 0.1):
            with check(f"{memory} MiB"):
                assert_same(prediction(data.X_new, memory), whole)


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
@pytest.mark.filterwarnings("ignore:the network explains")  # after a few epochs
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


@pytest.mark.parametrize("batch_size", ["auto", 17])
@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_same_random_state_gives_the_same_model(data, small, kind, batch_size):
    y = data.y if kind is MCDropoutRegressor else data.labels
    model = kind(n_estimators=2, batch_size=batch_size, **small)
    first, second = (clone(model).fit(data.X, y) for _ in range(2))
    assert first.parameters_.keys() == second.parameters_.keys()
    for name, value in first.parameters_.items():
        np.testing.assert_array_equal(value, second.parameters_[name])
    np.testing.assert_array_equal(first.loss_curve_, second.loss_curve_)
    np.testing.assert_array_equal(
        first.predict_uncertainty(data.X_new), second.predict_uncertainty(data.X_new)
    )
    other_seed = clone(model).set_params(random_state=small["random_state"] + 1)
    other_seed.fit(data.X, y)
    assert other_seed.loss_curve_[0] != first.loss_curve_[0]


def test_refit_does_not_depend_on_earlier_fits(data, small):
    model = MCDropoutRegressor(**small).fit(data.X, data.y)
    before = model.predict(data.X_new)
    model.fit(data.X[:30], data.Y[:30])
    model.fit(data.X, data.y)
    np.testing.assert_array_equal(model.predict(data.X_new), before)


@pytest.mark.parametrize("batch_size", ["auto", 17])
def test_ensemble_members_equal_single_networks(data, small, batch_size):
    """RandomState gives the same seeds one by one and together."""
    together = MCDropoutRegressor(n_estimators=3, batch_size=batch_size, **small)
    together.fit(data.X, data.y)
    state = np.random.RandomState(small["random_state"])
    for i in range(3):
        single = MCDropoutRegressor(
            batch_size=batch_size, **small | {"random_state": state}
        )
        single.fit(data.X, data.y)
        assert single.seeds_.tolist() == [together.seeds_[i]]
        # Rounding of batched products, which grows in 20 to 60 steps.
        np.testing.assert_allclose(
            single.history_["loss"][:, 0], together.history_["loss"][:, i], rtol=1e-8
        )
        for name, value in single.parameters_.items():
            members = together.parameters_[name].reshape(3, -1)
            if name == "keep":  # (layers, members)
                members = together.parameters_[name].T
            np.testing.assert_allclose(value.ravel(), members[i], rtol=1e-6, atol=1e-8)


# ---- the fitted state


def test_training_a_copy_does_not_change_the_model(fitted, data):
    model = fitted["regressor"]
    before = model.predict(data.X_new)
    copied = copy.deepcopy(model)
    np.testing.assert_array_equal(copied.predict(data.X_new), before)
    copied.partial_fit(data.X_new, data.y_new)
    assert (copied.predict(data.X_new) != before).any()
    assert not hasattr(clone(model), "parameters_")
    np.testing.assert_array_equal(model.predict(data.X_new), before)


def test_partial_fit_does_not_change_a_shallow_copy(data, small):
    """No array of the fitted state is changed in place."""
    model = MCDropoutRegressor(**small).partial_fit(data.X, data.y)
    shallow = copy.copy(model)
    deep = copy.deepcopy(model)
    model.partial_fit(data.X_new, data.y_new)
    for name in ("parameters_", "optimizer_"):
        expected, actual = getattr(deep, name), getattr(shallow, name)
        for key, value in expected.items():
            np.testing.assert_array_equal(actual[key], value, err_msg=f"{name}[{key}]")


@pytest.mark.parametrize("name", ["regressor", "heteroscedastic", "classifier"])
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


@pytest.mark.cuda
def test_devices_agree(data, small):
    """The same model predicts the same on a GPU, up to float64 rounding."""
    model = MCDropoutRegressor(**small | {"device": "cuda"}).fit(data.X, data.y)
    on_gpu = model.predict(data.X_new)
    np.testing.assert_array_equal(model.predict(data.X_new), on_gpu)
    refitted = clone(model).fit(data.X, data.y)
    np.testing.assert_array_equal(refitted.predict(data.X_new), on_gpu)
    on_cpu = model.set_params(device="cpu").predict(data.X_new)
    np.testing.assert_allclose(on_cpu, on_gpu, **SAME)
