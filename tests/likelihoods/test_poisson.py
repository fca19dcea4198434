"""The likelihoods of counts against scipy's distributions, in float64."""

import numpy as np
import pytest
import torch
from scipy.special import digamma
from scipy.stats import nbinom, poisson

from skbayesnn._likelihoods import NegativeBinomial, Poisson
from skbayesnn._likelihoods.poisson import Counts, OverdispersedCounts

DRAWS, MEMBERS, ROWS, TARGETS = 7, 3, 5, 2


@pytest.fixture
def problem(seed):
    """tau, offsets, outputs of draws, and y shared by the members."""
    random = np.random.default_rng(seed)
    tau = torch.as_tensor(random.uniform(0.1, 30, size=(MEMBERS, 1)))
    offset = torch.as_tensor(random.normal(1, 1, size=(MEMBERS, TARGETS)))
    outputs = torch.as_tensor(random.normal(size=(DRAWS, MEMBERS, ROWS, TARGETS)))
    y = torch.as_tensor(random.poisson(3, size=(1, ROWS, TARGETS)).astype(float))
    return tau, offset, outputs, y


def test_log_density_equals_scipy(problem):
    tau, offset, outputs, y = problem
    likelihood = Poisson(TARGETS)
    params = likelihood.init(tau, offset)
    rate = (outputs + offset[:, None]).exp()
    np.testing.assert_allclose(
        likelihood.log_density(params, outputs, y),
        poisson(rate).logpmf(y).sum(-1),
        rtol=1e-11,
    )
    torch.testing.assert_close(likelihood.components(params, outputs), (rate,))


def test_components_equal_scipy(seed):
    random = np.random.default_rng(seed)
    rate = random.gamma(1, 20, size=(DRAWS, ROWS, TARGETS))
    y = np.array([-1.0, 0.0, 2.5, 7.0, 90.0])[:, None] * np.ones(TARGETS)
    components, expected = Counts(rate), poisson(rate)
    np.testing.assert_allclose(components.cdf(y), expected.cdf(y), rtol=1e-11)
    density = np.where(y < 0, -np.inf, expected.logpmf(y))
    np.testing.assert_allclose(components.log_density_per_target(y), density)
    for level in (1e-10, 0.01, 0.5, 0.9, 1 - 1e-10):
        quantile = components.quantile(np.full((ROWS, TARGETS), level))
        np.testing.assert_array_equal(quantile, expected.ppf(level))


@pytest.mark.parametrize("rate", [1e-13, 1e-5, 1.0, 1e4, 1e9, 1e13])
@pytest.mark.parametrize("level", [1e-300, 1e-16, 0.5, 1 - 2**-53])
def test_quantiles_of_any_rate(rate, level):
    components = Counts(np.full((1, 1, 1), rate))
    levels = np.full((1, 1), level)
    quantile = components.quantile(levels)[0]
    assert components.cdf(quantile)[0] >= level - 2**-52
    assert components.cdf(quantile - 1)[0] < level


@pytest.mark.parametrize("y", [0.0, 3.0, 2.4, 120.0])
def test_crps_is_exact_for_few_counts(y):
    """As the difference of two expectations [Gneiting & Raftery 2007]."""
    k = np.arange(200)
    mass = 0.5 * poisson(4).pmf(k) + 0.5 * poisson(11).pmf(k)
    mean_distance = mass @ np.abs(k[:, None] - k) @ mass
    components = Counts(np.array([4.0, 11.0]).reshape(2, 1, 1))
    expected = mass @ np.abs(k - y) - 0.5 * mean_distance
    np.testing.assert_allclose(components.mixture_crps(np.full((1, 1), y)), expected)


@pytest.mark.parametrize("y", [0.0, 29_000.0, 30_411.0, 1e6])
def test_crps_of_many_counts_is_accurate_and_quick(y):
    k = np.arange(28_000, 32_000)
    share = poisson(30_000).cdf(k)
    expected = np.square(share - (k >= y)).sum()
    expected += max(28_000 - y, 0) + max(y - 32_000, 0)
    components = Counts(np.full((1, 1, 1), 3e4))
    result = components.mixture_crps(np.full((1, 1), y))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3 * np.sqrt(3e4))


def test_offset_is_the_log_of_the_weighted_mean():
    y, weights = np.array([[1.0, 0.0], [4.0, 0.0], [9.0, 0.0]]), np.array([1.0, 2, 1])
    offset = Poisson(TARGETS).statistics(y, weights)
    # A target without events: half an event of mean weight in all rows.
    np.testing.assert_allclose(np.exp(offset), [18 / 4, 0.5 / 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("f", [-1e6, 1e6])
def test_no_output_overflows(f, dtype):
    likelihood = Poisson(1)
    params = likelihood.init(torch.ones(1, 1, dtype=dtype), torch.zeros(1, 1).to(dtype))
    outputs = torch.full((1, 1, 1), f, dtype=dtype)
    y = torch.full((1, 1, 1), 3.0, dtype=dtype)
    assert likelihood.nll(params, outputs, y).isfinite().all()
    (rate,) = likelihood.components(params, outputs)
    components = Counts(rate.numpy())
    assert np.isfinite(
        np.square(components.variance, dtype=components.rate.dtype)
    ).all()
    assert np.isfinite(components.sample(np.random.default_rng(0))).all()


@pytest.mark.parametrize("wrong", [-1.0, 0.5, 1e13])
def test_invalid_counts_are_refused(wrong):
    y = np.array([[0.0, 1.0], [2.0, wrong]])
    with pytest.raises(ValueError, match=r"from 0 .*got .* in row 1\. Use"):
        Poisson.check_y(y)
    Poisson.check_y(y[:1])


def _scipy(rate, dispersion):
    """SciPy's distribution of the same mean and variance."""
    return nbinom(1 / dispersion, 1 / (1 + dispersion * rate))


def test_negative_binomial_density_and_gradient_equal_scipy(problem):
    """The gradient of the log dispersion through the derivative of log Gamma."""
    tau, offset, outputs, y = problem
    likelihood = NegativeBinomial(TARGETS)
    params = likelihood.init(tau, offset)
    log_dispersion = torch.linspace(-3, 2, MEMBERS * TARGETS).double()
    log_dispersion = log_dispersion.view(MEMBERS, TARGETS).requires_grad_()
    params["log_dispersion"] = log_dispersion
    outputs = outputs.clone().requires_grad_()
    density = likelihood.log_density(params, outputs, y)
    rate = (outputs + offset[:, None]).exp().detach().numpy()
    dispersion = log_dispersion.detach().exp()[:, None].numpy()
    expected = _scipy(rate, dispersion).logpmf(y)
    np.testing.assert_allclose(density.detach(), expected.sum(-1), rtol=1e-10)
    density.sum().backward()
    size, counts = 1 / dispersion, y.numpy()
    slope = (counts - rate) / (1 + dispersion * rate)
    np.testing.assert_allclose(outputs.grad, slope, rtol=1e-9, atol=1e-12)
    of_size = digamma(counts + size) - digamma(size) - np.log1p(dispersion * rate)
    expected = (slope - size * of_size).sum((0, 2))
    np.testing.assert_allclose(log_dispersion.grad, expected, rtol=1e-9)


def test_overdispersed_counts_equal_scipy(seed):
    random = np.random.default_rng(seed)
    shape = DRAWS, ROWS, TARGETS
    rate, dispersion = random.gamma(1, 20, shape), np.exp(random.uniform(-6, 2, shape))
    y = np.array([-1.0, 0.0, 2.5, 7.0, 90.0])[:, None] * np.ones(TARGETS)
    components, expected = (
        OverdispersedCounts(rate, dispersion),
        _scipy(rate, dispersion),
    )
    np.testing.assert_allclose(components.mean, expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(components.variance, expected.var(), rtol=1e-12)
    np.testing.assert_allclose(components.cdf(y), expected.cdf(y), rtol=1e-8)
    np.testing.assert_allclose(
        components.log_density_per_target(y), expected.logpmf(y), rtol=1e-9
    )
    for level in (1e-10, 0.01, 0.5, 0.9, 1 - 1e-10):
        quantile = components.quantile(np.full((ROWS, TARGETS), level))
        np.testing.assert_array_equal(quantile, expected.ppf(level))


def test_a_small_dispersion_is_the_poisson_distribution(seed):
    rate = np.random.default_rng(seed).gamma(1, 20, size=(DRAWS, ROWS, TARGETS))
    y = np.floor(rate[0])
    near = OverdispersedCounts(rate, np.full_like(rate, 1e-6))
    np.testing.assert_allclose(near.cdf(y), Counts(rate).cdf(y), atol=1e-3)


@pytest.mark.parametrize(("mean", "dispersion"), [(5, 10), (30, 0.5), (1000, 1)])
def test_crps_of_a_heavy_tail_is_accurate(mean, dispersion):
    """Within 1e-3 of the standard deviation."""
    k = np.arange(60_000)
    share = _scipy(mean, dispersion).cdf(k)
    fields = [np.full((1, 1, 1), float(value)) for value in (mean, dispersion)]
    components = OverdispersedCounts(*fields)
    std = np.sqrt(components.variance.item())
    for y in (0.0, float(mean), 5.0 * mean):
        result = components.mixture_crps(np.full((1, 1), y)).item()
        expected = np.square(share - (k >= y)).sum()
        assert result == pytest.approx(expected, rel=0, abs=1e-3 * std)
