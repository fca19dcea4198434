"""The scale mixture prior [BBB15 eq. 7] against scipy's normal densities; float64."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skbayesnn._priors import ScaleMixture, ScaleMixturePrior

MEMBERS, INPUTS, OUTPUTS, DRAWS = 3, 4, 2, 7
LENGTH_SCALE = np.array([0.3, 2.0, 1.0])
PI = np.array([0.25, 0.5, 0.9])
S1 = np.array([1.0, 2.0, 0.7])
S2 = np.array([0.1, 0.3, 0.002])


@pytest.fixture
def prior():
    return ScaleMixturePrior(*map(torch.as_tensor, (LENGTH_SCALE, PI, S1, S2)))


@pytest.fixture
def weight(seed):
    """Weights of all sizes, from far inside the narrow component to far outside."""
    random = np.random.default_rng(seed)
    shape = (DRAWS, MEMBERS, INPUTS, OUTPUTS)
    return random.normal(size=shape) * 10.0 ** random.uniform(-4, 1, size=shape)


def test_log_density_of_the_mixture(prior, weight):
    """pi N(0, (s1 / l)^2) + (1 - pi) N(0, (s2 / l)^2) on every weight."""
    pi, std_1, std_2 = (
        values[:, None, None] for values in (PI, S1 / LENGTH_SCALE, S2 / LENGTH_SCALE)
    )
    expected = np.logaddexp(
        np.log(pi) + norm.logpdf(weight, 0, std_1),
        np.log1p(-pi) + norm.logpdf(weight, 0, std_2),
    )
    actual = prior.weight.log_density(torch.as_tensor(weight))
    np.testing.assert_allclose(actual, expected.sum((2, 3)), rtol=1e-12)


def test_score_is_the_gradient_of_the_log_density(prior, weight):
    """Against autograd; the axis of draws precedes that of members."""
    leaf = torch.as_tensor(weight).requires_grad_()
    [expected] = torch.autograd.grad(prior.weight.log_density(leaf).sum(), leaf)
    actual = prior.weight.score(torch.as_tensor(weight))
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_score_is_accurate_in_float32_where_the_components_meet():
    """At the scales of [BBB15], s1 = 1 and s2 = e^-8.

    Outside the narrow component its share is tiny and its precision is huge, so the
    share must not be computed as one minus the other share. 1e-5 is for exponents of up
    to 40.
    """
    std_2 = np.exp(-8.0)
    weight = np.linspace(0.5, 9, 1001)[None] * std_2
    half, ones = np.full((1, 1), 0.5), np.ones((1, 1))
    exact, rounded = (
        ScaleMixture(
            *(torch.as_tensor(v).to(dtype) for v in (half, ones, ones * std_2))
        ).score(torch.as_tensor(weight).float().to(dtype))
        for dtype in (torch.float64, torch.float32)
    )
    np.testing.assert_allclose(rounded, exact, rtol=1e-5)


def test_no_overflow_far_from_both_components(prior):
    """Hundreds of spreads away only the wide component counts, also in gradients."""
    weight = torch.full((MEMBERS, INPUTS, OUTPUTS), 1e3).double().requires_grad_()
    density = prior.weight.log_density(weight)
    [gradient] = torch.autograd.grad(density.sum(), weight)
    std = torch.as_tensor(S1 / LENGTH_SCALE).view(-1, 1, 1)
    weight = weight.detach()
    np.testing.assert_allclose(gradient, -weight / std**2, rtol=1e-12)
    np.testing.assert_allclose(prior.weight.score(weight), gradient, rtol=1e-12)


def test_biases_have_the_gaussian_prior(prior, seed):
    bias = torch.as_tensor(np.random.default_rng(seed).normal(size=(MEMBERS, OUTPUTS)))
    expected = norm.logpdf(bias, 0, 1 / LENGTH_SCALE[:, None]).sum(1)
    np.testing.assert_allclose(prior.bias.log_density(bias), expected, rtol=1e-12)
