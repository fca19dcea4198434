"""Concrete dropout [GHK17]: the KL with the entropy of its masks; float64."""

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from scipy.stats import bernoulli

from skbayesnn._families import Bernoulli, Concrete, Needed
from skbayesnn._priors import GaussianPrior

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
START = torch.tensor([0.9, 0.9, 0.9], dtype=torch.float64)
# The learned parameters; ``keep`` is not used any more.
KEEP = np.array([0.5, 0.95, 0.8])
LENGTH_SCALE = torch.tensor([0.3, 2.0, 1.1], dtype=torch.float64)
PRIOR = GaussianPrior(LENGTH_SCALE)


@pytest.fixture
def params(seed):
    random = np.random.default_rng(seed)
    return {
        "mean": torch.as_tensor(random.normal(size=(MEMBERS, INPUTS, OUTPUTS))),
        "bias": torch.as_tensor(random.normal(size=(MEMBERS, OUTPUTS))),
        "logit": torch.as_tensor(logit(KEEP)),
    }


@pytest.fixture
def kl(params):
    return Concrete().kl(params, START, PRIOR, None)


@pytest.fixture
def entropy():
    """K H(p), by scipy."""
    return INPUTS * bernoulli(KEEP).entropy()


def test_kl_is_the_kl_of_a_fixed_rate_less_the_entropy(params, kl, entropy):
    """(p l^2 / 2) ||M||^2 - K H(p) [GHK17 eq. 3 and 4], and the KL of the biases."""
    at_given_rate = Bernoulli().kl(params, torch.as_tensor(KEEP), PRIOR, None).numpy()
    np.testing.assert_allclose(kl, at_given_rate - entropy, rtol=1e-13, atol=1e-13)
    squares = KEEP * params["mean"].square().sum((1, 2)).numpy()
    squares += params["bias"].square().sum(1).numpy()
    expected = LENGTH_SCALE.numpy() ** 2 / 2 * squares - entropy
    np.testing.assert_allclose(kl, expected, rtol=1e-13, atol=1e-13)


def test_kl_is_the_expectation_over_all_masks(params, kl, exact):
    """E_q[log q(z) - log p(W)], with all 2^K masks enumerated."""
    source, probability = exact.masks(KEEP, INPUTS)
    draw = Concrete().draw(params, START, source)
    terms = np.log(probability) + exact.minus_log_prior(LENGTH_SCALE, *draw)
    expected = (probability * terms).sum(0)
    np.testing.assert_allclose(kl, expected, rtol=1e-12, atol=1e-12)


def test_prior_part_equals_mean_over_draws(params, kl, entropy, exact, sampling):
    def minus_log_prior(source):
        draw = Concrete().draw(params, START, source)
        return exact.minus_log_prior(LENGTH_SCALE, *draw)

    sampling.check(minus_log_prior, kl.numpy() + entropy)


def test_gradient_of_the_kl(params):
    """Against autograd; d/dp is l^2 / 2 ||M||^2 + K log(p / (1 - p))."""
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    total = Concrete().kl(leaves, START, PRIOR, None).sum()
    expected = torch.autograd.grad(total, list(leaves.values()))
    actual = Concrete().kl_gradient(params, START, PRIOR, None)
    for name, gradient in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(actual[name], gradient, rtol=1e-12, err_msg=name)
    squares = params["mean"].square().sum((1, 2)).numpy()
    grad_p = LENGTH_SCALE.numpy() ** 2 / 2 * squares + INPUTS * logit(KEEP)
    grad_logit = KEEP * (1 - KEEP) * grad_p
    np.testing.assert_allclose(actual["logit"], grad_logit, rtol=1e-12)


def test_relaxed_masks(params, exact, seed):
    """sigmoid((logit p + logit u) / 0.1) on the inputs [GHK17 eq. 5]."""
    random = np.random.default_rng([seed, 1])
    x = random.normal(size=(MEMBERS, ROWS, INPUTS))
    u = random.uniform(size=(ROWS, INPUTS))
    z = expit((logit(KEEP)[:, None, None] + logit(u)) / 0.1)
    expected = (x * z) @ params["mean"].numpy() + params["bias"].numpy()[:, None]
    source = exact.source(u.ravel())
    actual = Concrete().linear(params, START, torch.as_tensor(x), source)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def test_rounded_relaxed_masks_equal_masks_of_draws(params, exact):
    """z > 1/2 if u > 1 - p: with probability p, as masks of draws are one."""
    units = torch.eye(INPUTS, dtype=torch.float64)[None]
    params = params | {
        "mean": torch.ones(MEMBERS, INPUTS, 1, dtype=torch.float64),
        "bias": torch.zeros(MEMBERS, 1, dtype=torch.float64),
    }
    for shift in (-1e-6, 1e-6):
        for member, p in enumerate(KEEP):
            source = exact.source(np.full(INPUTS * INPUTS, 1 - p + shift))
            z = Concrete().linear(params, START, units, source)[member]
            assert ((z > 0.5) == (shift > 0)).all()


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53], ids=["smallest", "largest"])
def test_extreme_random_numbers_give_finite_values(params, exact, u):
    """Uniform numbers can be 0 or close to 1; learned rates can reach the bounds."""
    x = torch.ones(1, ROWS, INPUTS, dtype=torch.float64)
    for extreme in (-40.0, 40.0):
        extreme_params = params | {"logit": torch.full((MEMBERS,), extreme).double()}
        source = exact.source(np.full(ROWS * INPUTS, u))
        outputs, pullback = Concrete().linear_vjp(extreme_params, START, x, source)
        actual, grad_x = pullback(torch.ones_like(outputs), Needed.ALL)
        kl = Concrete().kl(extreme_params, START, PRIOR, None)
        for values in (outputs, grad_x, kl, *actual.values()):
            assert values.isfinite().all()


def test_rate_starts_at_the_given_one(params):
    family = Concrete()
    start = family.init(params["mean"], 1.0, params["bias"], START)
    np.testing.assert_allclose(family.keep_of(start, None), START, rtol=1e-14)
    np.testing.assert_allclose(family.keep_of(params, START), KEEP, rtol=1e-14)
