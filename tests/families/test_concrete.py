"""Concrete dropout [GHK17]: its relaxed masks and its learned rate; float64."""

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from skbayesnn._families import Concrete, Needed
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


def test_gradient_of_the_kl(params):
    """d/dp is l^2 / 2 ||M||^2 + K log(p / (1 - p))."""
    actual = Concrete().kl_gradient(params, START, PRIOR, None)
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
