"""Variational dropout, types A (independent) and B (correlated) [KSW15]; float64."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skbayesnn._families import Correlated, Independent
from skbayesnn._priors import (
    CONSTANT,
    GaussianPrior,
    LogUniformPrior,
    kingma,
    molchanov,
)

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
KEEP = torch.tensor([0.5, 0.95, 0.8], dtype=torch.float64)
LENGTH_SCALE = torch.tensor([0.3, 2.0, 1.1], dtype=torch.float64)
GAUSSIAN, LOG_UNIFORM = GaussianPrior(LENGTH_SCALE), LogUniformPrior(LENGTH_SCALE)
VALUES = {"kingma": kingma, "molchanov": molchanov}
HIGHEST = {"kingma": 0.0, "molchanov": 4.0}
LOWEST = -10.0
# The largest error per weight: see tests/priors/test_log_uniform.py.
MOLCHANOVS_ERROR = 0.009375
SHAPES = {"layer": (1, 1), "unit": (INPUTS, 1), "weight": (INPUTS, OUTPUTS)}
KINDS = [
    (Independent, "layer"),
    (Independent, "unit"),
    (Independent, "weight"),
    (Correlated, "layer"),
    (Correlated, "unit"),
]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0].__name__}-{kind[1]}")
def kind(request):
    return request.param


@pytest.fixture(params=[k for k in KINDS if k[0] is Independent], ids=lambda k: k[1])
def independent(request):
    return request.param


@pytest.fixture(params=VALUES, ids=str)
def approximation(request):
    return request.param


def _tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


class Setting:
    """A family with random weights and log alpha, as NumPy arrays too."""

    def __init__(self, kind, approximation, seed, low=-4.0, high=-0.2):
        family, alpha = kind
        random = np.random.default_rng(seed)
        self.family = family(alpha, approximation)
        self.theta = random.normal(size=(MEMBERS, INPUTS, OUTPUTS))
        # Not close to zero, where rounding differs in the additive parametrisation.
        self.theta += np.sign(self.theta) * 0.1
        self.bias = random.normal(size=(MEMBERS, OUTPUTS))
        shape = (MEMBERS, *SHAPES[alpha])
        self.log_alpha = random.uniform(low, high, size=shape)
        self.x = _tensor(random.normal(size=(ROWS, INPUTS)))
        self.params = {"mean": _tensor(self.theta), "bias": _tensor(self.bias)}
        if alpha == "weight":
            variance = self.log_alpha + np.log(self.theta**2 + 1e-12)
            self.params["log_variance"] = _tensor(variance)
        else:
            self.params["log_alpha"] = _tensor(self.log_alpha)

    @property
    def alpha(self):
        """alpha of every weight, (members, inputs, outputs), within the bounds."""
        highest = HIGHEST[self.family.approximation]
        log_alpha = np.clip(self.log_alpha, LOWEST, highest)
        return np.broadcast_to(np.exp(log_alpha), self.theta.shape)

    def weights(self, source):
        return self.family.draw(self.params, KEEP, source)[0]

    def linear(self, source):
        return self.family.linear(self.params, KEEP, self.x[None], source)

    def kl(self, prior=LOG_UNIFORM, source=None):
        return self.family.kl(self.params, KEEP, prior, source)


@pytest.fixture
def setting(kind, approximation, seed):
    return Setting(kind, approximation, seed)


@pytest.fixture
def noisy_weights(independent, seed):
    return Setting(independent, "molchanov", seed)


# ---------------------------------------------------------------------------- moments


def test_moments_of_the_weights(setting, exact):
    """E W = theta; A: alpha theta^2 alone, B: alpha_i theta_ij theta_ik in a row."""
    correlated = isinstance(setting.family, Correlated)
    n = INPUTS if correlated else INPUTS * OUTPUTS
    mean, covariance = exact.normal_moments(setting.weights, n)
    theta = setting.theta.reshape(MEMBERS, -1)
    np.testing.assert_allclose(mean, theta, rtol=1e-14)
    together = np.ones((OUTPUTS, OUTPUTS)) if correlated else np.eye(OUTPUTS)
    alpha = setting.alpha.reshape(MEMBERS, -1)
    expected = alpha[:, :, None] * theta[:, :, None] * theta[:, None]
    expected = expected * np.kron(np.eye(INPUTS), together)
    np.testing.assert_allclose(covariance, expected, rtol=1e-9, atol=1e-14)


def test_moments_of_the_activations(setting, exact):
    """[KSW15 sections 3.1 and 3.2]; random numbers per row, so rows are independent.

    Type A: independent over outputs, of variance sum_i alpha_ij a_i^2 theta_ij^2. Type
    B: the outputs of a row are correlated, with covariance sum_i alpha_i a_i^2 theta_ij
    theta_ik. Its diagonal is that of type A.
    """
    correlated = isinstance(setting.family, Correlated)
    n = ROWS * (INPUTS if correlated else OUTPUTS)
    mean, covariance = exact.normal_moments(setting.linear, n)
    expected = setting.x.numpy() @ setting.theta + setting.bias[:, None]
    expected = expected.reshape(MEMBERS, -1)
    np.testing.assert_allclose(mean, expected, rtol=1e-11, atol=1e-14)

    squares = setting.x.numpy() ** 2
    theta, alpha = setting.theta, setting.alpha
    expected = np.zeros((MEMBERS, ROWS, OUTPUTS, ROWS, OUTPUTS))
    for j in range(OUTPUTS):
        for k in range(OUTPUTS):
            if j == k or correlated:
                covariance_of_rows = (
                    alpha[:, :, j] * theta[:, :, j] * theta[:, :, k]
                ) @ squares.T
                for row in range(ROWS):
                    expected[:, row, j, row, k] = covariance_of_rows[:, row]
    covariance = covariance.reshape(expected.shape)
    np.testing.assert_allclose(covariance, expected, rtol=1e-8, atol=1e-12)


def test_start(kind, approximation, seed):
    """alpha = (1 - p) / p of the given rate, within the bounds.

    E ||W||^2 = (1 + alpha) ||theta||^2 is the given squared norm.
    """
    setting = Setting(kind, approximation, seed)
    family = setting.family
    keep = _tensor([0.3, 0.95, 0.8])
    start = family.init(setting.params["mean"], 1.0, setting.params["bias"], keep)
    alpha = family.log_alpha_of(start).exp()
    expected = (1 - keep) / keep
    if approximation == "kingma":
        expected = expected.clamp_max(1)
    expected = expected.view(-1, 1, 1).expand_as(alpha)
    np.testing.assert_allclose(alpha, expected, rtol=1e-10)
    squares = ((1 + alpha) * start["mean"] ** 2).sum((1, 2))
    np.testing.assert_allclose(squares, (setting.theta**2).sum((1, 2)), rtol=1e-10)


# -------------------------------------------------------------- KL, log-uniform prior


def _kl_of_biases(setting):
    return 0.5 * (LENGTH_SCALE.numpy()[:, None] * setting.bias) ** 2 @ np.ones(OUTPUTS)


def test_kl_to_the_log_uniform_prior(setting, approximation):
    """A: a term for every weight; B: one for every row, even if rows share an alpha."""
    terms = VALUES[approximation](_tensor(np.log(setting.alpha))).numpy()
    if isinstance(setting.family, Correlated):
        terms = terms[:, :, 0]
    expected = terms.reshape(MEMBERS, -1).sum(1) + _kl_of_biases(setting)
    np.testing.assert_allclose(setting.kl(), expected, rtol=1e-9)


def test_kl_to_the_log_uniform_prior_equals_mean_over_draws(kind, seed, sampling):
    """E_q[log q(w) + log |w|] plus the constant, to the error of the approximation.

    Type A counts every weight, type B the common factor of each row. The constant of
    the exact KL (``priors.log_uniform``) is for the prior density 1 / |w|, where
    E log q = -1/2 log(2 pi e alpha theta^2).
    """
    setting = Setting(kind, "molchanov", seed)
    constant = CONSTANT + 0.5 * np.log(2 * np.pi * np.e)
    if isinstance(setting.family, Correlated):
        centre, alpha = np.ones((MEMBERS, INPUTS, 1)), setting.alpha[:, :, :1]

        def at(source):
            return setting.weights(source).numpy()[..., :1] / setting.theta[..., :1]

    else:
        centre, alpha = setting.theta, setting.alpha

        def at(source):
            return setting.weights(source).numpy()

    std = np.sqrt(alpha) * np.abs(centre)

    def log_ratio(source):
        values = at(source)
        terms = norm.logpdf(values, centre, std) + np.log(np.abs(values)) + constant
        return terms.sum((-2, -1))

    without_biases = setting.kl().numpy() - _kl_of_biases(setting)
    n_terms = np.prod(centre.shape[1:])
    sampling.check(log_ratio, without_biases, slack=n_terms * MOLCHANOVS_ERROR)


# ----------------------------------------------------------------- KL, Gaussian prior


def test_kl_to_the_gaussian_prior(noisy_weights):
    """1/2 sum(l^2 theta^2 (1 + alpha) - log(l^2 alpha theta^2) - 1), by NumPy."""
    squares = (LENGTH_SCALE.numpy()[:, None, None] * noisy_weights.theta) ** 2
    alpha = noisy_weights.alpha
    terms = 0.5 * (squares * (1 + alpha) - np.log(squares * alpha) - 1)
    expected = terms.sum((1, 2)) + _kl_of_biases(noisy_weights)
    # theta^2 has the lower bound 1e-12: 1e-10 of the smallest value.
    np.testing.assert_allclose(noisy_weights.kl(GAUSSIAN), expected, rtol=1e-9)


@pytest.fixture
def log_ratio(noisy_weights):
    """log q(W) - log p(W) at the draws of a source, by scipy."""
    theta, alpha = noisy_weights.theta, noisy_weights.alpha
    q = norm(theta, np.sqrt(alpha) * np.abs(theta))
    p = norm(0, 1 / LENGTH_SCALE.numpy()[:, None, None])

    def at(source):
        weights = noisy_weights.weights(source)
        return (q.logpdf(weights) - p.logpdf(weights)).sum((-2, -1))

    return at


def test_kl_to_the_gaussian_prior_is_the_expectation(noisy_weights, log_ratio, exact):
    """log q - log p is quadratic in the random numbers, so the rule is exact."""
    expected = log_ratio(exact.nodes(INPUTS * OUTPUTS)).mean(0)
    actual = noisy_weights.kl(GAUSSIAN).numpy() - _kl_of_biases(noisy_weights)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


# -------------------------------------------------------------------- bounds of alpha


@pytest.mark.parametrize("end", ["low", "high"])
def test_alpha_beyond_its_bounds_counts_as_the_bound(
    kind, approximation, seed, exact, end
):
    """Kingma's KL requires alpha <= 1; draws, activations and KL use the bound."""
    bound = LOWEST if end == "low" else HIGHEST[approximation]
    beyond = bound + (-3.0 if end == "low" else 3.0)
    at_bound = Setting(kind, approximation, seed, bound, bound)
    outside = Setting(kind, approximation, seed, beyond, beyond)
    tolerance = {"rtol": 1e-9, "atol": 1e-12}
    correlated = kind[0] is Correlated
    n = INPUTS if correlated else INPUTS * OUTPUTS
    _, covariance = exact.normal_moments(outside.weights, n)
    variance = np.exp(bound) * (outside.theta**2).reshape(MEMBERS, -1)
    actual = covariance.diagonal(axis1=1, axis2=2)
    np.testing.assert_allclose(actual, variance, **tolerance)
    numbers = np.linspace(-1, 2, ROWS * (INPUTS if correlated else OUTPUTS))
    actual, expected = (s.linear(exact.source(numbers)) for s in (outside, at_bound))
    np.testing.assert_allclose(actual, expected, **tolerance)
    np.testing.assert_allclose(outside.kl(), at_bound.kl(), **tolerance)
    log_alpha = outside.family.log_alpha_of(outside.params)
    np.testing.assert_allclose(log_alpha, bound, **tolerance)


def test_variance_of_a_weight_does_not_depend_on_its_mean(exact):
    """With an alpha per weight the variance is learned; theta does not change it."""
    family = Independent("weight", "molchanov")
    unit = torch.ones(1, 1, 1, dtype=torch.float64)
    params = {
        "mean": unit.clone(),
        "log_variance": np.log(0.3) * unit,
        "bias": 0 * unit[0],
    }
    for theta in (0.5, -0.2, 0.1):
        params["mean"].fill_(theta)
        _, variance = exact.normal_moments(
            lambda source: family.draw(params, KEEP, source)[0], 1
        )
        np.testing.assert_allclose(variance, 0.3, rtol=1e-9)
        alpha = family.log_alpha_of(params).exp()
        np.testing.assert_allclose(alpha, 0.3 / theta**2, rtol=1e-9)
