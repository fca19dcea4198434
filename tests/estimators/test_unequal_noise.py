"""Noise that depends on the row: the test, the warning, and likelihood="auto"."""

import warnings

import numpy as np
import pytest
from scipy import sparse

import skbayesnn
from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)
from skbayesnn.estimators import _selection
from skbayesnn.estimators._fit import train_together
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._training_data import training_data
from skbayesnn.estimators._unequal_noise import unequal_noise

SMALL = {"hidden_layer_sizes": (20,), "device": "cpu", "random_state": 0}


@pytest.fixture
def rng(seed):
    """Generator of the test's seed."""
    return np.random.default_rng(seed)


def rows(n_rows, growth, seed=0):
    """X, y and the standard deviations of the noise, 0.2 exp(growth x1)."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, 3))
    std = 0.2 * np.exp(growth * X[:, 0])
    y = X[:, 0] + 0.5 * X[:, 1] + std * random.normal(size=n_rows)
    return X, y, std


def warned(model, X, y):
    """Texts of the warnings of unequal noise in a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    texts = [str(warning.message) for warning in caught]
    return [text for text in texts if text.endswith("[SKB307]")]


# ---- the test


def test_false_alarms_are_at_most_as_frequent_as_the_level(rng):
    p_values = []
    for _ in range(300):
        residual, prediction = rng.standard_t(3, size=(2, 60, 2))
        X = np.column_stack([rng.normal(size=60), rng.random(60) < 0.1, np.ones(60)])
        p_values.append(unequal_noise(residual, prediction, X, 60).p_value)
    # Five standard errors of the share.
    for level in (0.05, 0.2):
        assert np.mean(np.array(p_values) < level) <= level + 5 * np.sqrt(level / 300)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("is_outer", [False, True])
def test_finds_where_the_noise_is_large(rng, sign, is_outer):
    X = rng.normal(size=(400, 4))
    size = np.abs(X[:, 2]) if is_outer else X[:, 2]
    residual = np.exp(sign * size)[:, None] * rng.normal(size=(400, 1))
    result = unequal_noise(residual, rng.normal(size=(400, 1)), X, 400)
    words = ("far from", "near") if is_outer else ("large", "small")
    assert result.column == 2
    assert result.side.startswith(words[sign < 0])
    assert result.matters
    assert 1.5 < result.ratio < 15
    assert unequal_noise(residual, size[:, None], X[:, :2], 400).column is None
    # The same with an unequal second target, sparse rows, and groups of rows.
    two = np.column_stack([rng.normal(size=400), residual])
    again = unequal_noise(two, np.zeros((400, 2)), sparse.csr_array(X), 400)
    assert again.column == 2
    assert result.p_value < again.p_value < 0.001
    assert unequal_noise(residual, 0 * residual, X, 12).p_value == 1.0


def test_nothing_is_found_without_values_to_rank(rng):
    residual = rng.normal(size=(50, 1))
    constant = np.ones((50, 2))
    assert unequal_noise(residual, 0 * residual, constant, 50).p_value == 1.0
    residual[3] = np.nan
    assert unequal_noise(residual, 0 * residual, constant, 50).p_value == 1.0


# ---- the warning


@pytest.mark.parametrize(
    "model",
    [
        MCDropoutRegressor(likelihood="gaussian", max_iter=150, **SMALL),
        VariationalDropoutRegressor(likelihood="gaussian", max_iter=150, **SMALL),
        AnchoredEnsembleRegressor(likelihood="gaussian", max_iter=150, **SMALL),
        # Without held-out rows, from training rows.
        MCDropoutRegressor(length_scale="fan_in", max_iter=150, **SMALL),
        BBBRegressor(likelihood="gaussian", max_iter=150, **SMALL),
    ],
    ids=lambda model: type(model).__name__,
)
def test_warns_of_unequal_noise_only(model):
    X, y, _ = rows(300, growth=1.0)
    [text] = warned(model, X, y)
    assert "times as large where column 0 of X is large" in text
    assert "likelihood='heteroscedastic'" in text
    assert not warned(model, *rows(300, growth=0.0)[:2])


def test_the_warning_names_columns():
    pandas = pytest.importorskip("pandas")
    X, y, _ = rows(300, growth=1.0)
    frame = pandas.DataFrame(X, columns=["size", "age", "price"])
    model = MCDropoutRegressor(length_scale=1.0, max_iter=150, **SMALL)
    [text] = warned(model, frame, y)
    assert "where column 'size' of X is large" in text


# ---- likelihood="auto"


@pytest.mark.parametrize(
    "regressor",
    [
        MCDropoutRegressor,
        VariationalDropoutRegressor,
        AnchoredEnsembleRegressor,
        BBBRegressor,
    ],
)
def test_auto_selects_the_likelihood_of_the_rows(regressor):
    equal, auto = (
        regressor(likelihood=likelihood, max_iter=150, **SMALL)
        for likelihood in ("gaussian", "auto")
    )
    X, y, std = rows(800, growth=1.0)
    assert not warned(auto, X[:300], y[:300])
    assert auto.likelihood_ == "heteroscedastic"
    density = [
        model.log_predictive_density(X[300:], y[300:]).mean()
        for model in (equal.fit(X[:300], y[:300]), auto)
    ]
    assert density[1] > density[0] + 0.2
    noise = auto.predict_uncertainty(X[300:], "aleatoric")
    assert np.corrcoef(np.log(noise), np.log(std[300:]))[0, 1] > 0.7
    # p = 1 - dropout, one length scale or one per layer.
    lam = (1 - auto.dropout_) * np.square(auto.length_scale_) / (2 * 300 * auto.tau_)
    np.testing.assert_allclose(auto.weight_decay_, lam, rtol=1e-12)


def test_auto_keeps_the_likelihood_with_the_smaller_error(monkeypatch):
    """If the squared error of held-out rows rises, a higher density does not count."""
    X, y, _ = rows(300, growth=1.0)
    monkeypatch.setattr(_selection, "_MAX_ERROR_RATIO", 0.1)
    model = MCDropoutRegressor(max_iter=150, **SMALL).fit(X, y)
    assert model.likelihood_ == "gaussian"


def test_auto_is_gaussian_if_held_out_rows_select_nothing():
    X, y, _ = rows(120, growth=1.0)
    for given in ({"length_scale": 1.0}, {"tau": 3.0}):
        auto, equal = (
            MCDropoutRegressor(likelihood=likelihood, max_iter=5, **given, **SMALL)
            for likelihood in ("auto", "gaussian")
        )
        np.testing.assert_array_equal(
            auto.fit(X, y).predict(X), equal.fit(X, y).predict(X)
        )
        assert auto.likelihood_ == "gaussian"
    stream = MCDropoutRegressor(likelihood="auto", **SMALL).partial_fit(X, y)
    assert stream.partial_fit(X, y).likelihood_ == "gaussian"


def test_auto_equals_gaussian_on_equal_noise():
    X, y, _ = rows(150, growth=0.0)
    auto, equal = (
        MCDropoutRegressor(likelihood=likelihood, max_iter=150, **SMALL).fit(X, y)
        for likelihood in ("auto", "gaussian")
    )
    assert auto.likelihood_ == "gaussian"
    assert auto.tau_ == equal.tau_
    np.testing.assert_array_equal(auto.predict(X), equal.predict(X))


def test_a_continued_fit_keeps_the_selected_likelihood(tmp_path):
    X, y, _ = rows(300, growth=1.0)
    model = MCDropoutRegressor(
        likelihood="auto", max_iter=150, warm_start=True, **SMALL
    ).fit(X, y)
    before = model.parameters_["likelihood/log_factor"]
    model.fit(X, y).partial_fit(X[:50], y[:50])
    assert model.likelihood_ == "heteroscedastic"
    path = tmp_path / "fit.skb"
    fresh = MCDropoutRegressor(likelihood="auto", max_iter=150, **SMALL)
    fresh.fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(fresh.parameters_["likelihood/log_factor"], before)
    loaded = skbayesnn.load(path)
    assert loaded.likelihood_ == "heteroscedastic"
    np.testing.assert_array_equal(loaded.predict(X), fresh.predict(X))


def test_fits_of_one_program_may_select_different_likelihoods():
    models = [
        MCDropoutRegressor(likelihood="auto", max_iter=150, **SMALL) for _ in range(3)
    ]
    tables = [rows(300, growth)[:2] for growth in (1.0, 0.0, 1.0)]
    jobs = [
        training_job(model, training_data(model, X, y))
        for model, (X, y) in zip(models, tables, strict=True)
    ]
    together = train_together(models, jobs)
    names = [trained.job.config.likelihood.name for trained in together]
    assert names == ["heteroscedastic", "gaussian", "heteroscedastic"]
    for model, (X, y), trained in zip(models, tables, together, strict=True):
        alone = model.fit(X, y).parameters_["layers/0/mean"]
        in_program = trained.trained.posterior.layers[0]["mean"].numpy()
        np.testing.assert_allclose(in_program, alone, rtol=1e-5, atol=1e-6)
