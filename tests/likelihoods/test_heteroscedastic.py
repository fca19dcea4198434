"""The heteroscedastic likelihood: its start, its warm-up and its bounds."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skbayesnn._likelihoods import Gaussian, Heteroscedastic
from skbayesnn._likelihoods.gaussian import LOG_VARIANCE_RANGE

DRAWS, MEMBERS, ROWS, TARGETS = 7, 3, 5, 2


@pytest.fixture
def problem(seed):
    """tau (members, targets), outputs (means, then s) and y, float64."""
    random = np.random.default_rng(seed)
    tau = random.uniform(0.1, 30, size=(MEMBERS, TARGETS))
    outputs = random.normal(size=(DRAWS, MEMBERS, ROWS, 2 * TARGETS))
    y = random.normal(size=(1, ROWS, TARGETS))
    return torch.as_tensor(tau), torch.as_tensor(outputs), torch.as_tensor(y)


@pytest.fixture(params=[False, True], ids=["given", "learned"])
def likelihood(request):
    return Heteroscedastic(TARGETS, request.param)


def _log_variance(likelihood, params, outputs):
    """log sigma^2(x) + log tau, the network's change of the homoscedastic noise."""
    _, variance = likelihood.components(params, outputs)
    return variance.log() + params["log_tau"].unsqueeze(1)


def test_starts_as_the_homoscedastic_likelihood(likelihood, problem):
    tau, outputs, y = problem
    assert likelihood.n_outputs == outputs.shape[-1]
    params = likelihood.init(tau)
    plain = Gaussian(TARGETS, likelihood.learned)
    means = outputs[..., :TARGETS]
    expected = plain.log_density(plain.init(tau), means, y)
    torch.testing.assert_close(likelihood.log_density(params, outputs, y), expected)
    for value, reference in zip(
        likelihood.components(params, outputs),
        plain.components(plain.init(tau), means),
        strict=True,
    ):
        torch.testing.assert_close(value, reference)


def test_density_after_the_warm_up_equals_scipy(likelihood, problem):
    tau, outputs, y = problem
    params = likelihood.init(tau)
    likelihood.schedule(params, 1.0)
    s = outputs[..., TARGETS:].numpy()
    log_variance = LOG_VARIANCE_RANGE * np.tanh(s / LOG_VARIANCE_RANGE)
    std = np.exp(0.5 * log_variance) * tau.numpy()[:, None] ** -0.5
    density = norm(outputs[..., :TARGETS].numpy(), std).logpdf(y.numpy()).sum(-1)
    result = likelihood.log_density(params, outputs, y)
    np.testing.assert_allclose(result, density, rtol=1e-10)
    _, variance = likelihood.components(params, outputs)
    np.testing.assert_allclose(variance, std**2, rtol=1e-10)


@pytest.mark.parametrize(
    ("progress", "gain"),
    [(0.0, 0), (0.25, 0), (0.375, 0.5), (0.5, 1), (0.75, 1), (1.0, 1), (3.0, 1)],
)
def test_warm_up(likelihood, problem, progress, gain):
    """Homoscedastic for a quarter of the training, then a ramp of a quarter."""
    tau, outputs, _ = problem
    params = likelihood.init(tau)
    likelihood.schedule(params, progress)
    partial = _log_variance(likelihood, params, outputs)
    likelihood.schedule(params, 1.0)
    whole = _log_variance(likelihood, params, outputs)
    torch.testing.assert_close(partial, gain * whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("extreme", [1e6, -1e6])
def test_log_variance_is_bounded(problem, extreme):
    tau, outputs, y = problem
    likelihood = Heteroscedastic(TARGETS, learned=False)
    params = likelihood.init(torch.ones_like(tau))
    likelihood.schedule(params, 1.0)
    outputs[..., TARGETS:] = extreme
    added = _log_variance(likelihood, params, outputs)
    expected = torch.full_like(added, np.sign(extreme) * LOG_VARIANCE_RANGE)
    torch.testing.assert_close(added, expected)
    assert likelihood.log_density(params, outputs, y).isfinite().all()


def test_noise_is_not_larger_than_the_range_of_y(problem):
    """In predictions, for every s; y and its range on the network's scale."""
    tau, outputs, _ = problem
    likelihood = Heteroscedastic(TARGETS, learned=False)
    y = np.array([[1.0, 20.0], [4.0, 10.0], [2.0, 15.0]])
    statistics = likelihood.statistics(y, np.ones(3))
    np.testing.assert_array_equal(statistics, [3, 10])
    statistics = torch.as_tensor(statistics).expand(len(tau), -1)
    params = likelihood.init(torch.ones_like(tau), statistics)
    likelihood.schedule(params, 1.0)
    outputs[..., TARGETS:] = 1e6
    _, variance = likelihood.components(params, outputs)
    widest = torch.tensor([np.exp(3.0), 100.0]).to(variance)
    torch.testing.assert_close(variance, widest.expand_as(variance))
    # A given tau is used for every range.
    params = likelihood.init(torch.full_like(tau, 1e-6), statistics)
    outputs[..., TARGETS:] = 0.0
    likelihood.schedule(params, 1.0)
    _, variance = likelihood.components(params, outputs)
    torch.testing.assert_close(variance, torch.full_like(variance, 1e6))


def test_noise_is_learned_after_the_warm_up(likelihood, problem):
    """s has no gradient at gain 0, so that the mean is fitted first."""
    tau, outputs, y = problem
    params = likelihood.init(tau)
    for progress, learns in [(0.0, False), (1.0, True)]:
        likelihood.schedule(params, progress)
        leaf = outputs.clone().requires_grad_()
        nll = likelihood.nll(params, leaf, y)
        (gradient,) = torch.autograd.grad(nll.sum(), leaf)
        assert gradient[..., :TARGETS].all()
        assert bool(gradient[..., TARGETS:].any()) == learns
