"""The noise variance estimated from residuals, against linear smoothing."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skbayesnn import MCDropoutRegressor
from skbayesnn._batch.cross_fit import cross_fitted
from skbayesnn._engine import posterior, residual_variance
from skbayesnn._engine.posterior import ExpectedRandom
from skbayesnn._engine.random import DrawRandom
from skbayesnn._families import FAMILIES
from skbayesnn._likelihoods.base import MIN_NOISE
from skbayesnn._networks import Perceptron
from skbayesnn._networks.activations import ACTIVATIONS
from tests.helpers.reference import tangent_kernel

ROWS, COLUMNS, TARGETS = 47, 5, 2
LENGTH_SCALE = 3.0


def table(seed, n_rows=ROWS):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, COLUMNS))
    Y = X @ random.normal(size=(COLUMNS, TARGETS)) + random.normal(
        size=(n_rows, TARGETS)
    ) * [1.0, 2.0]
    weights = random.integers(1, 4, size=n_rows).astype(float)
    return X, Y, weights


def linear(seed, **options):
    """A linear network, trained to convergence in double precision."""
    options = {
        "dropout": 0.0,
        "length_scale": LENGTH_SCALE,
        "max_iter": 3000,
        "learning_rate_init": 0.05,
    } | options
    return MCDropoutRegressor(
        (), dtype="float64", device="cpu", random_state=seed, **options
    )


def closed_form(model, X, Y, weights, spread):
    """(sum w r^2 + s^2) / (N - tr H + 1) in y's units, and the noise during training.

    spread : variance of the prior of E W, in units of 1 / l^2
    """
    total = weights.sum()
    scale = model.y_scale_
    Z = np.column_stack([(X - model.x_mean_) / model.x_scale_, np.ones(len(X))])
    y = (Y - model.y_mean_) / scale
    trained = np.exp(-model.parameters_["likelihood/log_tau"][0])
    prior = np.r_[np.full(COLUMNS, spread), 1.0] / LENGTH_SCALE**2
    kernel = (Z * prior) @ Z.T
    residual = y - (model.predict(X) - model.y_mean_) / scale
    results = []
    for j in range(TARGETS):
        hat = kernel @ np.linalg.inv(kernel + np.diag(trained[j] / weights))
        squares = weights @ residual[:, j] ** 2
        mean = np.average(y[:, j], weights=weights)
        variance = np.average((y[:, j] - mean) ** 2, weights=weights)
        results.append((squares + variance) / (total - np.trace(hat) + 1))
    return np.array(results) * scale**2, trained * scale**2, residual * scale


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
def test_linear_network_has_the_residual_variance_of_ridge(seed, weighted, standardize):
    """The residual variance by effective degrees of freedom."""
    X, Y, weights = table(seed)
    weights = weights if weighted else np.ones(ROWS)
    Y *= 1.0 if standardize else 0.1
    model = linear(seed, standardize=standardize).fit(X, Y, sample_weight=weights)
    expected, trained, residual = closed_form(model, X, Y, weights, 1.0)
    np.testing.assert_allclose(model.noise_std_**2, expected, rtol=1e-9)
    # During training it is the mean square of the residuals.
    np.testing.assert_allclose(
        trained, np.average(residual**2, axis=0, weights=weights), rtol=1e-4
    )


def test_noise_does_not_depend_on_the_number_of_targets(seed):
    """Targets of a linear network share no weights: copies have the same noise."""
    X, Y, _ = table(seed)
    n_copies = 1 + 2 * 700 // (ROWS * TARGETS)
    many = linear(seed, max_iter=1000).fit(X, np.tile(Y, n_copies))
    noise = many.noise_std_.reshape(n_copies, TARGETS)
    few = linear(seed, max_iter=1000).fit(X, Y).noise_std_
    # Both are near their optimum, where the noise is flat in the weights.
    np.testing.assert_allclose(noise, np.tile(few, (n_copies, 1)), rtol=1e-3)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_noise_does_not_depend_on_the_memory(seed, dropout, monkeypatch):
    """With less memory, draws are computed in parts."""
    X, Y, weights = table(seed)
    model = linear(seed, max_iter=30, dropout=dropout)
    whole = model.fit(X, Y, sample_weight=weights).noise_std_
    monkeypatch.setattr(posterior, "_LIVE_UNITS", 7 * ROWS * TARGETS)
    parts = model.fit(X, Y, sample_weight=weights).noise_std_
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


def test_large_network_uses_fewer_rows(seed, monkeypatch):
    """The number of rows depends on the units; rows are sampled by weight."""
    X, Y, weights = table(seed)
    model = linear(seed, max_iter=30, dropout=0.2)
    row_limits = []
    some_rows = residual_variance._some_rows
    monkeypatch.setattr(
        residual_variance,
        "_some_rows",
        lambda rows, limit: row_limits.append(limit) or some_rows(rows, limit),
    )
    units = COLUMNS + TARGETS
    monkeypatch.setattr(residual_variance, "_MAX_UNITS", 50 * units * (ROWS // 2))
    model.fit(X, Y, sample_weight=weights)
    assert row_limits[0] == ROWS // 2
    assert np.isfinite(model.noise_std_).all()


def test_noise_without_a_prior_equals_least_squares(seed):
    """RSS / (N - P), with y's own variance as one more row."""
    X, Y, _ = table(seed)
    model = linear(seed, length_scale=0.0).fit(X, Y)
    Z = np.column_stack([X, np.ones(ROWS)])
    _, squares, *_ = np.linalg.lstsq(Z, Y, rcond=None)
    expected = (squares + Y.var(0)) / (ROWS - COLUMNS - 1 + 1)
    # Weights are at their optimum to 1e-6, and the flat prior is only a wide prior.
    np.testing.assert_allclose(model.noise_std_**2, expected, rtol=1e-5)


def test_spread_of_masks_is_counted_once(seed):
    """The noise during training contains the masks' spread, the final noise does not.

    For a linear network in closed form: E_q (y - f)^2 = (y - E f)^2 + Var f.
    """
    rate = 0.1
    X, Y, weights = table(seed, 1000)
    model = linear(seed, dropout=rate, max_iter=600, n_draws=2000, batch_size=250)
    model.fit(X, Y, sample_weight=weights)
    expected, trained, residual = closed_form(model, X, Y, weights, 1 - rate)
    # The mean of 50 draws, less their variance: accurate to a few per cent.
    np.testing.assert_allclose(model.noise_std_**2, expected, rtol=0.1)
    spread = model.predict_uncertainty(X, "epistemic") ** 2
    mean_square, mask_variance = (
        np.average(v, axis=0, weights=weights) for v in (residual**2, spread)
    )
    # Masks of a step are a sample: tau varies about its fixed point by some per cent.
    np.testing.assert_allclose(trained, mean_square + mask_variance, rtol=0.1)
    assert (model.noise_std_**2 + 0.5 * mask_variance < trained).all()


@pytest.mark.parametrize(
    "options",
    [{"early_stopping": True}, {"tau": 2.0}],
    ids=lambda options: next(iter(options)),
)
def test_noise_is_not_estimated_from_residuals(seed, options):
    """If weights stop short of their mode, or if the user sets the noise."""
    X, Y, _ = table(seed)
    model = linear(seed, **options | {"max_iter": 10}).fit(X, Y)
    assert "likelihood/log_factor" not in model.parameters_


def test_heteroscedastic_noise_is_scaled_by_one_factor(seed):
    """One factor per target: the ratios of rows do not change."""
    X, Y, _ = table(seed)
    model = linear(seed, likelihood="heteroscedastic", max_iter=200).fit(X, Y)
    with_factor = model.predict_uncertainty(X, "aleatoric")
    factor = np.exp(model.parameters_.pop("likelihood/log_factor")[0])
    np.testing.assert_allclose(
        with_factor,
        np.sqrt(factor) * model.predict_uncertainty(X, "aleatoric"),
        rtol=1e-9,
    )


def test_interpolating_network_has_the_noise_of_y(seed):
    """Without residuals and degrees of freedom the noise is y's own spread."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(15, COLUMNS)), random.normal(size=15)
    model = MCDropoutRegressor(
        (50,), dropout=0.0, length_scale=0.05, device="cpu", random_state=seed
    ).fit(X, y)
    assert np.abs(y - model.predict(X)).max() < 0.05 * y.std()
    assert 0.4 * y.std() < model.noise_std_ < 2 * y.std()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rows_of_members", [1, 3])
def test_tangent_kernel_equals_autograd(seed, activation, rows_of_members):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=random, dtype=torch.float64)

    sizes, members, rows, outputs = (4, 7, 6, 3), 3, 9, 2
    family = FAMILIES["point"]()
    network = Perceptron(sizes, activation, (family,) * 3)
    pairs = list(pairwise(sizes))
    weights = [(normal(1, members, a, b), normal(members, b)) for a, b in pairs]
    variances = [(normal(members) ** 2, normal(members) ** 2) for _ in pairs]
    x = normal(rows_of_members, rows, sizes[0])
    by_hand = network.tangent_kernel(weights, variances, x, slice(0, outputs))
    assert by_hand.shape == (members, outputs * rows, outputs * rows)
    by_autograd = tangent_kernel(network, weights, variances, x, slice(0, outputs))
    last = network.tangent_kernel(weights, variances, x, slice(1, outputs))
    torch.testing.assert_close(last, by_hand[:, rows:, rows:])
    torch.testing.assert_close(by_hand, by_autograd, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_expected_random_draws_the_mean_weights(seed, name):
    """Against the mean over many draws, within six standard errors."""
    family, draws = FAMILIES[name](), 4000
    random = torch.Generator().manual_seed(seed)
    mean = torch.randn((2, 3, 4), generator=random, dtype=torch.float64)
    keep = torch.tensor([0.9, 0.6], dtype=torch.float64)
    params = family.init(mean, 0.5, mean[:, 0], keep)
    weight, bias = family.draw(params, keep, ExpectedRandom(keep))
    source = DrawRandom(
        np.array([seed, seed + 1]), range(draws), mean.device, mean.dtype
    )
    weights, biases = family.draw(params, keep, source)
    for mean_draw, draws_ in ((weight[0], weights), (bias, biases)):
        draws_ = (
            draws_ if draws_.shape[0] == draws else draws_.expand(draws, *draws_.shape)
        )
        error = draws_.std(0) / draws**0.5
        assert (abs(mean_draw - draws_.mean(0)) <= 6 * error + 1e-12).all()


def test_members_with_different_rows_have_the_noise_of_separate_fits(seed):
    """Even if a member has more rows than the estimate uses."""
    X, y, _ = table(seed, 3100)
    network = MCDropoutRegressor(
        (3,), dropout=0.1, max_iter=1, dtype="float64", device="cpu", random_state=seed
    )
    splits = [(np.arange(3100), []), (np.arange(60), []), (np.arange(5, 900), [])]
    together = cross_fitted(network, X, y, splits)
    for model, (rows, _) in zip(together, splits, strict=True):
        alone = clone(network).fit(X[rows], y[rows])
        np.testing.assert_allclose(model.noise_std_, alone.noise_std_, rtol=1e-8)


def test_noise_with_weights_that_sum_to_one(seed):
    """With so little data the noise is at most y's spread."""
    X, Y, _ = table(seed)
    model = linear(seed, max_iter=100).fit(X, Y, sample_weight=np.full(ROWS, 1 / ROWS))
    assert (model.noise_std_ > 0.1 * Y.std(0)).all()
    assert (model.noise_std_ <= 1.001 * Y.std(0)).all()


def test_order_of_rows_does_not_matter(seed):
    """Every second row has no noise; the table has more rows than the estimate uses."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(4000, 3))
    noise = random.normal(size=4000) * np.tile([1.0, 0.0], 2000)
    model = MCDropoutRegressor((), max_iter=20, device="cpu", random_state=seed)
    model.fit(X, X[:, 0] + noise)
    # About half of the 2,000 sampled rows have noise: accurate to a few per cent.
    assert model.noise_std_ == pytest.approx(0.5**0.5, rel=0.15)


def test_heavy_rows_are_used(seed):
    """Every third row is a million times as heavy as the others, which are noise."""
    random = np.random.default_rng(seed)
    X, heavy = random.normal(size=(3000, 3)), np.arange(3000) % 3 == 2
    y = X[:, 0] + np.where(heavy, 0.1, 3.0) * random.normal(size=3000)
    weights = np.where(heavy, 1.0, 1e-6)
    model = MCDropoutRegressor((), max_iter=60, device="cpu", random_state=seed)
    model.fit(X, y, sample_weight=weights)
    residual = y - model.predict(X)
    expected = np.sqrt(np.average(residual**2, weights=weights))
    assert model.noise_std_ == pytest.approx(expected, rel=0.2)


def test_noise_is_not_larger_than_the_spread_of_y(seed):
    """Weights short of their mode leave large residuals and few degrees of freedom."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(31, 4)), random.normal(size=31)
    model = MCDropoutRegressor(
        (20,), length_scale=0.0, max_iter=5, device="cpu", random_state=seed
    ).fit(X, y)
    residual = y - model.predict(X)
    assert model.noise_std_ <= 1.01 * max(y.std(), np.sqrt(np.mean(residual**2)))


@pytest.mark.filterwarnings("ignore:.*constant:UserWarning")
def test_noise_has_a_lower_bound(seed):
    """A constant target has no residuals."""
    X, Y, _ = table(seed)
    Y[:, 1] = 0.0
    model = linear(seed, max_iter=200).fit(X, Y)
    assert model.noise_std_[0] > MIN_NOISE
    assert np.isclose(model.noise_std_[1], MIN_NOISE)
