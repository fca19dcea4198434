"""Mixture density networks against SciPy and plain loops, in float64."""

import pickle

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import StandardScaler

from skbayesnn import MCDropoutRegressor, predict_uncertainty
from skbayesnn._distributions.components import Components, Gaussians
from skbayesnn._distributions.mixtures import GaussianMixtures
from skbayesnn._likelihoods import Gaussian, Heteroscedastic, Mixture
from skbayesnn._likelihoods.gaussian import LOG_VARIANCE_RANGE

DRAWS, MEMBERS, ROWS, TARGETS, PEAKS = 7, 3, 5, 2, 4
LEVELS = [1e-6, 0.05, 0.5, 0.95, 1 - 1e-6]


@pytest.fixture
def problem(seed):
    """tau (members, targets), outputs of draws and y shared by the members."""
    random = np.random.default_rng(seed)
    tau = random.uniform(0.1, 30, size=(MEMBERS, TARGETS))
    outputs = random.normal(size=(DRAWS, MEMBERS, ROWS, 3 * TARGETS * PEAKS))
    y = random.normal(size=(1, ROWS, TARGETS))
    return torch.as_tensor(tau), torch.as_tensor(outputs), torch.as_tensor(y)


@pytest.fixture(params=[False, True], ids=["given", "learned"])
def likelihood(request):
    return Mixture(TARGETS, request.param, PEAKS)


@pytest.fixture
def mixtures(seed):
    """Components of (draws, rows, targets, peaks), well separated."""
    random = np.random.default_rng(seed)
    shape = DRAWS, ROWS, TARGETS, PEAKS
    return GaussianMixtures(
        random.dirichlet(np.ones(PEAKS), size=shape[:-1]),
        3 * random.normal(size=shape),
        random.uniform(0.2, 2, size=shape),
    )


@pytest.fixture
def y(seed):
    return 3 * np.random.default_rng([seed, 1]).normal(size=(ROWS, TARGETS))


# ---- the likelihood


def test_density_equals_a_loop(likelihood, problem):
    tau, outputs, y = problem
    assert likelihood.n_outputs == outputs.shape[-1]
    params = likelihood.init(tau)
    result = likelihood.log_density(params, outputs, y)
    assert result.shape == (DRAWS, MEMBERS, ROWS)
    logits, f, s = np.moveaxis(
        outputs.numpy().reshape(DRAWS, MEMBERS, ROWS, 3, TARGETS, PEAKS), 3, 0
    )
    centres = norm.ppf((np.arange(PEAKS) + 0.5) / PEAKS)
    for d, m, n in np.ndindex(DRAWS, MEMBERS, ROWS):
        expected = 0.0
        for j in range(TARGETS):
            at = d, m, n, j
            log_variance = LOG_VARIANCE_RANGE * np.tanh(s[at] / LOG_VARIANCE_RANGE)
            std = np.exp(0.5 * log_variance) * tau[m, j].item() ** -0.5
            density = norm(f[at] + centres, std).logpdf(y[0, n, j].item())
            expected += logsumexp(logits[at] + density) - logsumexp(logits[at])
        assert result[d, m, n].item() == pytest.approx(expected, rel=1e-11, abs=1e-11)
    nll = likelihood.nll(params, outputs, y)
    np.testing.assert_array_equal(nll, -result)


def test_equal_gaussians_are_one(likelihood, problem):
    tau, outputs, y = problem
    mean = outputs[..., :TARGETS]
    params = likelihood.init(tau)
    wide = torch.zeros(*mean.shape[:-1], 3, TARGETS, PEAKS, dtype=torch.float64)
    wide[..., 1, :, :] = mean.unsqueeze(-1) - params["centres"][0]
    plain = Gaussian(TARGETS, likelihood.learned)
    torch.testing.assert_close(
        likelihood.log_density(params, wide.flatten(-3), y),
        plain.log_density(plain.init(tau), mean, y),
    )
    torch.testing.assert_close(
        likelihood.noise_level(params), plain.noise_level(plain.init(tau))
    )


def test_outputs_of_any_size_stay_finite(problem):
    tau, outputs, y = problem
    likelihood = Mixture(TARGETS, True, PEAKS)
    params = likelihood.init(torch.full_like(tau, 1e12))
    outputs = 1e6 * outputs.sign()
    assert likelihood.log_density(params, outputs, y).isfinite().all()


@pytest.mark.parametrize(
    ("value", "error"), [(1, ValueError), (2.5, TypeError), (True, TypeError)]
)
def test_number_of_gaussians_is_checked(value, error):
    model = MCDropoutRegressor(
        likelihood="mixture", likelihood_options={"n_components": value}
    )
    with pytest.raises(error, match="`n_components` must be"):
        model.fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])


# ---- components


def test_cdf_equals_scipy(mixtures, y):
    components = norm(mixtures.location, mixtures.scale).cdf(y[..., None])
    expected = (mixtures.weight * components).sum(-1)
    np.testing.assert_allclose(mixtures.cdf(y), expected, rtol=1e-12)
    np.testing.assert_allclose(mixtures.mixture_cdf(y), expected.mean(0), rtol=1e-12)


@pytest.mark.parametrize("level", LEVELS)
def test_quantiles_invert_the_distribution_function(mixtures, level):
    levels = np.full((ROWS, TARGETS), level)
    quantiles = mixtures.quantile(levels)
    components = norm(mixtures.location, mixtures.scale).cdf(quantiles[..., None])
    reached = (mixtures.weight * components).sum(-1)
    # Near 1 the level is accurate to 1e-16 only.
    np.testing.assert_allclose(reached, level, rtol=1e-8)
    actual = mixtures.mixture_quantile(level)
    np.testing.assert_allclose(mixtures.mixture_cdf(actual), level, rtol=1e-8)
    np.testing.assert_allclose(
        actual, Components.mixture_quantile(mixtures, level), rtol=1e-6, atol=1e-6
    )


def test_samples_have_the_moments(mixtures, seed):
    random = np.random.default_rng([seed, 2])
    samples = np.stack([mixtures.sample(random) for _ in range(4000)])
    std = np.sqrt(mixtures.variance)
    # Means of 4000 within 6 standard errors; the error of a variance depends on the
    # kurtosis.
    assert (abs(samples.mean(0) - mixtures.mean) < 6 * std / np.sqrt(4000)).all()
    np.testing.assert_allclose(samples.var(0), mixtures.variance, rtol=0.4)
    assert samples.shape[1:] == mixtures.mean.shape


def test_rescaled_mixtures(mixtures, y):
    shift, factor = np.array([3.0, -1.0]), np.array([0.5, 20.0])
    rescaled = mixtures.rescaled(shift, factor)
    np.testing.assert_allclose(rescaled.mean, shift + factor * mixtures.mean)
    np.testing.assert_allclose(rescaled.variance, factor**2 * mixtures.variance)
    np.testing.assert_allclose(
        rescaled.log_density(shift + factor * y),
        mixtures.log_density(y) - np.log(factor).sum(),
    )
    np.testing.assert_allclose(
        rescaled.mixture_crps(shift + factor * y), factor * mixtures.mixture_crps(y)
    )
    about = mixtures.scaled_about(y, factor)
    np.testing.assert_allclose(about.mean, y + factor * (mixtures.mean - y))


def test_two_equal_gaussians_are_one_gaussian(mixtures, y):
    location, scale = mixtures.location[..., :1], mixtures.scale[..., :1]
    twice = GaussianMixtures(
        mixtures.weight[..., :2] / mixtures.weight[..., :2].sum(-1, keepdims=True),
        np.repeat(location, 2, axis=-1),
        np.repeat(scale, 2, axis=-1),
    )
    plain = Gaussians(location[..., 0], np.square(scale[..., 0]))
    for ask in (
        lambda mixture: mixture.mean,
        lambda mixture: mixture.variance,
        lambda mixture: mixture.log_density(y),
        lambda mixture: mixture.mixture_quantile(0.2),
        lambda mixture: mixture.mixture_crps(y),
    ):
        np.testing.assert_allclose(ask(twice), ask(plain), rtol=1e-9, atol=1e-12)


def test_nodes_have_the_moments(mixtures):
    values, weights = mixtures.nodes(15)
    assert values.shape == weights.shape == (15 * PEAKS, *mixtures.mean.shape)
    np.testing.assert_allclose(weights.sum(0), 1)
    mean = (weights * values).sum(0)
    np.testing.assert_allclose(mean, mixtures.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        (weights * np.square(values - mean)).sum(0), mixtures.variance, rtol=1e-9
    )


# ---- in estimators


def _two_peaks(seed, n):
    """y = 5 +- x and a little noise: X (n, 1), y (n,); the mean is 5."""
    random = np.random.default_rng([seed, n])
    x = random.uniform(0.5, 2, size=n)
    y = 5 + np.where(random.random(n) < 0.5, 1, -1) * x + 0.1 * random.normal(size=n)
    return x[:, None], y


@pytest.fixture(scope="module")
def fitted():
    """For every seed the model of each likelihood, fitted once."""
    models = {}

    def fit(seed, name):
        if (seed, name) not in models:
            model = MCDropoutRegressor((20,), likelihood=name, random_state=seed)
            # Held-out rows estimate the noise alone.
            model.set_params(length_scale=1.0, max_iter=150, learning_rate_init=0.02)
            model.set_params(n_draws=20)
            models[seed, name] = model.fit(*_two_peaks(seed, 300))
        return models[seed, name]

    return fit


def test_finds_two_peaks(seed, fitted):
    X, y = _two_peaks(seed, 500)
    density = {
        name: fitted(seed, name).log_predictive_density(X, y).mean()
        for name in ("gaussian", "heteroscedastic", "mixture")
    }
    assert density["mixture"] > density["gaussian"] + 0.5
    assert density["mixture"] > density["heteroscedastic"] + 0.5
    mean, std = fitted(seed, "mixture").predict(X, return_std=True)
    # 300 rows with a std of 1.3 determine the mean to 0.08 at best.
    assert abs(mean - 5).mean() < 0.3
    assert abs(std / np.hypot(X[:, 0], 0.1) - 1).mean() < 0.2
    few = fitted(seed, "mixture").predictive_cdf(X, np.full(len(X), 5.0))
    assert abs(few - 0.5).mean() < 0.15


def test_all_predictions_are_finite(seed, fitted):
    model = fitted(seed, "mixture")
    X, _ = _two_peaks(seed, 29)
    low, high = model.predict_interval(X, 0.9).T
    narrow = model.predict_interval(X, 0.9, kind="highest_density")
    assert ((low < 5) & (high > 5)).all()
    assert (np.diff(narrow, axis=1)[:, 0] <= (high - low) * (1 + 1e-6)).all()
    quantiles = model.predict_quantile(X, [0.05, 0.95])
    np.testing.assert_allclose(quantiles, np.stack([low, high], axis=1))
    assert model.sample_y(X, 9).shape == (29, 9)
    assert (model.sample_f(X, 9).std() < model.sample_y(X, 9).std() / 2).all()
    assert model.tau_ > 0
    about = {"name": "mixture", "n_targets": 1, "learned": True, "n_components": 3}
    assert model.network_["likelihood"] == about
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_mixture_in_a_transform_and_in_an_ensemble():
    X, y = _two_peaks(0, 83)
    small = MCDropoutRegressor(
        likelihood="mixture", hidden_layer_sizes=(7,), max_iter=20, random_state=0
    ).set_params(n_draws=11, dtype="float64")
    alone = small.fit(X, y)
    # For a linear transform the quadrature is exact, and the fit is the same.
    behind = TransformedTargetRegressor(small, transformer=StandardScaler()).fit(X, y)
    np.testing.assert_allclose(
        predict_uncertainty(behind, X), alone.predict_uncertainty(X), rtol=1e-6
    )


def test_several_targets_and_a_given_tau():
    X, y = _two_peaks(0, 41)
    Y = np.stack([y, 100 * X[:, 0]], axis=1)
    model = MCDropoutRegressor(likelihood="mixture", tau=[4.0, 0.01], max_iter=3)
    model.set_params(hidden_layer_sizes=(5,), n_draws=7).fit(X, Y)
    assert model.predict_interval(X, 0.8).shape == (41, 2, 2)
    assert model.log_predictive_density(X, Y).shape == (41,)
    np.testing.assert_array_equal(model.tau_, [4.0, 0.01])


def test_noise_has_the_bound_of_the_heteroscedastic_noise():
    """A Gaussian of the mixture and a heteroscedastic one have the same noise."""
    tau = torch.full((1, 1), 2.0, dtype=torch.float64)
    s = torch.linspace(-40, 40, 9, dtype=torch.float64).view(1, 1, -1, 1)
    plain, mixture = Heteroscedastic(1, True), Mixture(1, True, 2)
    warm = plain.init(tau)
    plain.schedule(warm, 1.0)
    _, variance = plain.components(warm, torch.cat([0 * s, s], dim=-1))
    outputs = torch.cat([0 * s.repeat(1, 1, 1, 4), s, s], dim=-1)
    _, _, scale = mixture.components(mixture.init(tau), outputs)
    torch.testing.assert_close(scale[..., 0].square(), variance)
