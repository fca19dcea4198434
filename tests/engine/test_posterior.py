"""Predictions are a function of the row alone; eq. 5, 6 and 8."""

from dataclasses import fields

import numpy as np
import pytest
import sklearn
import torch
from scipy.special import logsumexp
from scipy.stats import norm

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._engine import posterior
from skbayesnn._engine.compiled import ENGINE_VARIABLE
from skbayesnn._engine.posterior import PosteriorPredictor
from skbayesnn.estimators._fitted import restore_posterior
from tests.helpers.families import LAWS, label
from tests.helpers.memory import memory_of

SEEDS = np.array([4, 0, 4])
KEEP, LENGTH_SCALE, TAU = [0.6, 0.9, 0.8], 1.0, [3.0, 0.5, 8.0]


@pytest.fixture
def untrained(engine, seed):
    """Three untrained networks that differ in dropout and observation noise."""

    def make(kind="gaussian", **changes):
        """A posterior; ``family`` applies to all layers, dropout by default."""
        config = engine.config(kind, **changes)
        members = engine.members(config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU)
        return engine.initial_posterior(config, members)

    return make


random_only = pytest.mark.parametrize(
    "family", [family for family in LAWS if family.stochastic], ids=label
)


def _inputs(seed, n_rows):
    return np.random.default_rng(seed).normal(size=(n_rows, 4))


def _opened(q, x, n_draws, budget):
    rows = torch.as_tensor(x).to(q.device, q.dtype)
    return PosteriorPredictor(q, lambda chunk: rows[chunk], len(x), n_draws, budget)


# ------------------------------------------------------------------------- draws


@random_only
def test_draws_do_not_depend_on_their_number(untrained, seed, family):
    """Nor on the first draw of a range."""
    q = untrained(family=family)
    long = q.draw(range(11))
    for draws in (range(4), range(3, 8)):
        short = q.draw(draws)
        part = slice(draws.start, draws.stop)
        for (weight, bias), (all_weights, all_biases) in zip(short, long, strict=True):
            assert torch.equal(weight, all_weights[part])
            random_bias = all_biases.ndim == 3
            assert torch.equal(bias, all_biases[part] if random_bias else all_biases)
    x = torch.as_tensor(_inputs(seed, 5)).unsqueeze(0)
    torch.testing.assert_close(
        q.outputs(x, range(3, 8)), q.outputs(x, range(11))[3:8], rtol=1e-12, atol=1e-12
    )


@random_only
def test_draws_of_a_member_do_not_depend_on_other_members(untrained, seed, family):
    q = untrained(family=family)
    x = torch.as_tensor(_inputs(seed, 5)).unsqueeze(0)
    together = q.outputs(x, range(11))
    assert together.shape == (11, 3, 5, 2)
    for i in range(3):
        alone = q.select(np.array([i])).outputs(x, range(11))
        torch.testing.assert_close(together[:, [i]], alone, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------ chunks


@pytest.mark.parametrize(
    "kind", ["gaussian", "heteroscedastic", "categorical"], ids=str
)
@pytest.mark.parametrize("family", ["bernoulli", "mean_field"])
@pytest.mark.parametrize("budget", [1, 5_000, 200_000, 1 << 30])
def test_predictions_do_not_depend_on_the_budget(untrained, seed, kind, family, budget):
    """From one row and one draw at a time to all at once.

    Random biases are cut into the same chunks.
    """
    q = untrained(kind, family=family)
    n_rows, n_draws = 29, 11
    x = _inputs(seed, n_rows)
    outputs = q.outputs(torch.as_tensor(x).unsqueeze(0), range(n_draws))
    expected = q.likelihood.components(q.likelihood_params, outputs)
    expected = [values.flatten(0, 1) for values in expected]
    opened, rows_seen = _opened(q, x, n_draws, budget), []
    for chunk, parts in opened.by_rows():
        rows_seen += range(n_rows)[chunk]
        n_seen = 0
        for part in parts:
            draws = slice(n_seen, n_seen + part.n_draws)
            _assert_arrays(part, [values[draws, chunk] for values in expected])
            n_seen += part.n_draws
        assert n_seen == 3 * n_draws
    assert rows_seen == list(range(n_rows))
    some = slice(3, 19)
    _assert_arrays(opened.whole(some), [values[:, some] for values in expected])


def _assert_arrays(part, expected):
    """Compare the fields of a likelihood's components."""
    arrays = [getattr(part, field.name) for field in fields(part)]
    arrays = [values for values in arrays if values is not None]  # no `own_share`
    for actual, values in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(actual, values, rtol=1e-12, atol=1e-12)


def test_small_budget_makes_small_chunks(untrained, seed):
    q = untrained()
    shapes = [
        part.mean.shape
        for _, parts in _opened(q, _inputs(seed, 29), 11, 1).by_rows()
        for part in parts
    ]
    assert shapes == [(3, 1, 2)] * (29 * 11)


def test_deterministic_networks_have_one_draw(untrained, seed):
    q = untrained(family="point")
    gaussians = _opened(q, _inputs(seed, 5), 11, 1 << 30).whole()
    assert gaussians.mean.shape == gaussians.variance.shape == (3, 5, 2)


@pytest.fixture(scope="module")
def fitted():
    """Regressors and a classifier with several networks, after a short training."""
    x = _inputs(0, 60)
    y = np.column_stack([np.sin(x).sum(1), x[:, 0] * x[:, 1]]) * [1.0, 500.0] + 40
    shared = {
        "hidden_layer_sizes": (50, 40),
        "dropout": 0.2,
        "max_iter": 15,
        "n_estimators": 2,
        "n_draws": 23,
        "device": "cpu",
        "random_state": 1,
    }
    return {
        "gaussian": MCDropoutRegressor(**shared).fit(x, y),
        "heteroscedastic": MCDropoutRegressor(
            likelihood="heteroscedastic", **shared
        ).fit(x, y),
        "categorical": MCDropoutClassifier(**shared).fit(x, (3 * x[:, 0]).round() % 3),
    }


@pytest.mark.parametrize("method", ["predict", "predict_interval"])
@pytest.mark.parametrize("dropout", [0.01, 0.2])  # draws that share products or not
@pytest.mark.filterwarnings("ignore")  # a fit of one epoch
def test_wide_rows_stay_within_working_memory(monkeypatch, seed, dropout, method):
    """Inputs, masks and weights count in addition to the units of the layers."""
    n_columns, n_draws, mebibytes = 2_000, 100, 4
    X = np.random.default_rng(seed).normal(size=(300, n_columns))
    model = MCDropoutRegressor(
        (10,), dropout=dropout, length_scale=1, max_iter=1, n_draws=n_draws
    ).fit(X[:20], X[:20, 0])
    # It allocates a large block and frees it at once without writing to it.
    monkeypatch.setattr(posterior, "keep_freed_memory", lambda: None)
    with sklearn.config_context(working_memory=mebibytes):
        tensor_bytes, array_bytes = memory_of(lambda: getattr(model, method)(X))
    # X itself takes 5 MB, the weights of all draws 16 MB.
    assert 0 < tensor_bytes <= mebibytes * 2**20
    assert array_bytes <= mebibytes * 2**20


@pytest.mark.filterwarnings("ignore")  # a fit of one epoch
def test_draws_of_many_classes_are_not_all_stored(monkeypatch, seed):
    n_rows, n_classes, n_draws = 600, 300, 100
    X = np.random.default_rng(seed).normal(size=(n_rows, 3))
    y = np.arange(n_rows) % n_classes
    model = MCDropoutClassifier((9,), length_scale=1, max_iter=1, n_draws=n_draws)
    model.fit(X, y)
    monkeypatch.setattr(posterior, "keep_freed_memory", lambda: None)
    # All draws would take this much as float32, in which the model is trained.
    all_draws_bytes = 4 * n_rows * n_classes * n_draws
    for call in (
        lambda: model.predict_uncertainty(X, "all"),
        lambda: predict(model, X),
    ):
        tensor_bytes, array_bytes = memory_of(call)
        assert 0 < tensor_bytes < all_draws_bytes
        assert array_bytes < all_draws_bytes


@pytest.mark.filterwarnings("ignore")  # a fit of one epoch
@pytest.mark.parametrize("engine", ["torch", "compiled"])
def test_draws_of_many_rows_are_not_all_stored(monkeypatch, seed, engine):
    if engine == "torch":
        monkeypatch.setenv(ENGINE_VARIABLE, "torch")
    n_rows, n_draws = 20_000, 150
    X = np.random.default_rng(seed).normal(size=(n_rows, 3))
    model = MCDropoutRegressor((9,), length_scale=1, max_iter=1, n_draws=n_draws)
    model.fit(X[:20], X[:20, 0])
    monkeypatch.setattr(posterior, "keep_freed_memory", lambda: None)
    # All draws would take this much as float32, in which the model is trained.
    all_draws_bytes = 4 * n_rows * n_draws
    with sklearn.config_context(working_memory=4):
        for call in (
            lambda: model.predict(X),
            lambda: model.predict_uncertainty(X, "all"),
            lambda: model.log_predictive_density(X, X[:, 1]),
            lambda: model.sample_y(X),
        ):
            tensor_bytes, array_bytes = memory_of(call)
            assert max(tensor_bytes, array_bytes) < all_draws_bytes


def predict(model, X):
    """Uncertainty by blocks, as meta-estimators compute it."""
    return [
        block.uncertainty(["entropy"])
        for _, block in model._open_predictive(X).blocks()
    ]


# ----------------------------------------------------------------------- moments


def _mixture(model, x):
    """Means and variances of every draw and network, in y's units, float64."""
    q = restore_posterior(model, torch.device("cpu"), torch.float64)
    z = torch.as_tensor((x - model.x_mean_) / model.x_scale_).unsqueeze(0)
    outputs = q.outputs(z, range(model.n_draws))
    mean, variance = q.likelihood.components(q.likelihood_params, outputs)
    mean, variance = mean.flatten(0, 1).numpy(), variance.flatten(0, 1).numpy()
    scale = model.y_scale_
    return mean * scale + model.y_mean_, variance * scale**2


@pytest.mark.parametrize("kind", ["gaussian", "heteroscedastic"])
def test_moments_are_eq_5_and_6(fitted, seed, kind):
    """Mean, epistemic and aleatoric variance of the mixture, in y's units."""
    model, x = fitted[kind], _inputs(seed, 13)
    mean, variance = _mixture(model, x)
    assert len(mean) == model.n_draws * model.n_estimators
    np.testing.assert_allclose(model.predict(x), mean.mean(0), rtol=1e-10)
    std = model.predict_uncertainty(x, "all")
    np.testing.assert_allclose(std["epistemic"], mean.std(0), rtol=1e-8)
    np.testing.assert_allclose(std["aleatoric"] ** 2, variance.mean(0), rtol=1e-10)
    total = std["epistemic"] ** 2 + std["aleatoric"] ** 2
    np.testing.assert_allclose(std["total"] ** 2, total, rtol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "heteroscedastic"])
def test_log_density_is_eq_8(fitted, seed, kind):
    """log of the draws' mean density, joint over targets, in y's units."""
    model, x = fitted[kind], _inputs(seed, 13)
    mean, variance = _mixture(model, x)
    y = mean[0] + np.random.default_rng(seed).normal(size=mean[0].shape) * 50
    density = norm(mean, np.sqrt(variance)).logpdf(y).sum(-1)
    expected = logsumexp(density, axis=0) - np.log(len(density))
    actual = model.log_predictive_density(x, y)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_log_density_of_classes_is_eq_8(fitted, seed):
    model, x = fitted["categorical"], _inputs(seed, 13)
    q = restore_posterior(model, torch.device("cpu"), torch.float64)
    z = torch.as_tensor((x - model.x_mean_) / model.x_scale_).unsqueeze(0)
    probability = q.outputs(z, range(model.n_draws)).softmax(-1).flatten(0, 1)
    probability = probability.numpy().mean(0)
    np.testing.assert_allclose(model.predict_proba(x), probability, rtol=1e-10)
    y = model.classes_[np.arange(len(x)) % 3]
    expected = np.log(probability[np.arange(len(x)), np.arange(len(x)) % 3])
    actual = model.log_predictive_density(x, y)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tau", ["auto", 7.0])
def test_log_density_is_in_units_of_y(seed, tau):
    """With y in other units it shifts by the log of the units' ratio per target."""
    x = _inputs(seed, 40)
    y = np.sin(x[:, :2]) + np.array([3, 0])
    unit = np.array([1e3, 1e-2])

    def density(y, tau):
        model = MCDropoutRegressor(
            (7,), tau=tau, max_iter=10, random_state=seed, device="cpu"
        )
        return model.fit(x, y).log_predictive_density(x, y)

    rescaled_tau = tau if tau == "auto" else list(tau / unit**2)
    # With tau given per target, the loss is in units of their mean in the network's
    # scale, which is the same for both.
    np.testing.assert_allclose(
        density(y * unit, rescaled_tau), density(y, tau) - np.log(unit).sum(), atol=1e-6
    )


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("not enough memory")])
@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_prediction_retries_with_half_the_rows_if_out_of_memory(
    monkeypatch, seed, kind, error
):
    """Down to one row, with the same result; other errors are raised."""
    monkeypatch.setenv(ENGINE_VARIABLE, "torch")
    X = _inputs(seed, 23)
    y = X[:, 0] > 0 if kind is MCDropoutClassifier else X[:, 0]
    model = kind((5,), max_iter=2, n_draws=7, random_state=seed).fit(X, y)
    expected = model.predict_uncertainty(X)
    plain, chunk_sizes = PosteriorPredictor._at_once, []

    def fail_above(limit, failure):
        def at_once(self, x, i):
            chunk_sizes.append(x.shape[1])
            if x.shape[1] > limit:
                raise failure
            return plain(self, x, i)

        monkeypatch.setattr(PosteriorPredictor, "_at_once", at_once)

    fail_above(3, error)
    np.testing.assert_allclose(model.predict_uncertainty(X), expected, rtol=1e-9)
    assert chunk_sizes[0] == 23 and min(chunk_sizes) <= 3
    fail_above(0, error)
    with pytest.raises(type(error)):
        model.predict(X)
    fail_above(3, RuntimeError("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        model.predict(X)
