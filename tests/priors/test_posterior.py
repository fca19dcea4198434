"""Normal priors against scipy's densities, in float64."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skbayesnn._priors import GaussianPrior, Normal, PosteriorPrior

DRAWS, MEMBERS, INPUTS, OUTPUTS = 7, 3, 4, 2
LENGTH_SCALE = np.array([0.1, 1.0, 7.0])
# Sums of a few terms, mostly of order 1 to 100, in float64; scipy's densities lose
# digits by cancellation.
EXACT = {"rtol": 1e-12, "atol": 1e-12}


class Problem:
    """N(centre, std^2) on an array of weights, and the moments of another q."""

    def __init__(self, seed, isotropic):
        self.random = np.random.default_rng(seed)
        self.centre = self._normal(isotropic)
        self.std = np.exp(0.5 * self._normal(isotropic))
        self.mean, self.std_q = self._normal(), np.exp(0.5 * self._normal())
        self.prior = Normal(*map(torch.as_tensor, (self.centre, self.std**-2)))

    def _normal(self, isotropic=False):
        axes = (1, 1) if isotropic else (INPUTS, OUTPUTS)
        return self.random.normal(size=(MEMBERS, *axes))

    def log_prior(self, values):
        """Log densities, (..., members); values : (..., members, inputs, outputs)."""
        return norm(self.centre, self.std).logpdf(values).sum((-1, -2))


@pytest.fixture(params=[False, True], ids=["per weight", "isotropic"])
def problem(request, seed):
    return Problem(seed, request.param)


def test_log_density_equals_scipy(problem):
    """Leading axes are kept; the axes of the array are summed over."""
    values = problem.random.normal(size=(DRAWS, MEMBERS, INPUTS, OUTPUTS))
    actual = problem.prior.log_density(torch.as_tensor(values))
    assert actual.shape == (DRAWS, MEMBERS)
    np.testing.assert_allclose(actual, problem.log_prior(values), **EXACT)
    alone = problem.prior.log_density(torch.as_tensor(values[0]))
    np.testing.assert_allclose(alone, problem.log_prior(values[0]), **EXACT)


def test_score_is_the_gradient_of_log_density(problem):
    """(centre - w) / std^2, and autograd."""
    values = problem.random.normal(size=(DRAWS, MEMBERS, INPUTS, OUTPUTS))
    actual = problem.prior.score(torch.as_tensor(values))
    expected = (problem.centre - values) / problem.std**2
    np.testing.assert_allclose(actual, expected, **EXACT)
    leaf = torch.tensor(values, requires_grad=True)
    [slope] = torch.autograd.grad(problem.prior.log_density(leaf).sum(), leaf)
    np.testing.assert_allclose(actual, slope, **EXACT)


def test_energy_of_a_point_is_minus_log_density_up_to_its_normaliser(problem):
    """log p(centre) - log p(W)."""
    actual = problem.prior.energy(torch.as_tensor(problem.mean))
    at_centre = np.broadcast_to(problem.centre, problem.mean.shape)
    expected = problem.log_prior(at_centre) - problem.log_prior(problem.mean)
    np.testing.assert_allclose(actual, expected, **EXACT)


def test_energy_is_the_expectation_under_any_q(problem):
    """It depends on the moments only: at a symmetric two-point q, mean +- std."""
    mean, std = problem.mean, problem.std_q
    actual = problem.prior.energy(*map(torch.as_tensor, (mean, std**2)))
    energy = [
        norm(problem.centre, problem.std).logpdf(problem.centre)
        - norm(problem.centre, problem.std).logpdf(values)
        for values in (mean - std, mean + std)
    ]
    np.testing.assert_allclose(actual, np.mean(energy, 0).sum((1, 2)), **EXACT)


def test_energy_and_spread_are_the_kl_of_two_normals(problem):
    """E_q[log q - log p] by Gauss-Hermite quadrature, exact for a quadratic."""
    mean, std = problem.mean, problem.std_q
    node, weight = np.polynomial.hermite_e.hermegauss(5)
    weight = weight / weight.sum()
    values = mean + std * node.reshape(-1, 1, 1, 1)
    log_q = norm(mean, std).logpdf(values).sum((-1, -2))
    expected = weight @ (log_q - problem.log_prior(values))
    variance = torch.as_tensor(std**2)
    kl = problem.prior.energy(torch.as_tensor(mean)) + problem.prior.kl_of_width(
        variance
    )
    np.testing.assert_allclose(kl, expected, **EXACT)
    # Mean and variance count separately; spread is the KL at the centre.
    parts = problem.prior.energy(torch.as_tensor(mean), variance)
    entropy = norm(mean, std).entropy().sum((1, 2))
    normaliser = problem.log_prior(np.broadcast_to(problem.centre, mean.shape))
    np.testing.assert_allclose(parts, expected + entropy + normaliser, **EXACT)


def test_flat_prior_has_no_gradient():
    """Length scale 0: no value depends on the weights, and all values are finite.

    Closed form and density omit the same normaliser: the KL is minus the entropy of q,
    plus log sqrt(2 pi) per weight.
    """
    prior = GaussianPrior(torch.zeros(MEMBERS, dtype=torch.float64))
    wide = torch.tensor([0.0, 1.0, 1e9], dtype=torch.float64).view(-1, 1, 1)
    wide = wide.expand(-1, INPUTS, OUTPUTS)
    assert not prior.weight.energy(wide).any()
    assert not prior.weight.energy(wide, wide).any()
    assert not prior.bias.energy(wide[:, 0]).any()
    assert not prior.weight.score(wide).any()
    missing = INPUTS * OUTPUTS * np.log(2 * np.pi) / 2
    density = prior.weight.log_density(wide)
    np.testing.assert_allclose(density, -missing, rtol=1e-14)
    std = np.array([0.1, 1.0, 30.0])
    variance = torch.as_tensor(std**2).view(-1, 1, 1).expand_as(wide)
    entropy = INPUTS * OUTPUTS * norm(scale=std).entropy()
    expected = missing - entropy
    np.testing.assert_allclose(prior.weight.kl_of_width(variance), expected, **EXACT)


def test_flat_for_some_members_only(seed):
    """Every member has a length scale."""
    length_scale = LENGTH_SCALE.copy()
    length_scale[1] = 0
    weights = torch.as_tensor(np.random.default_rng(seed).normal(size=(3, 4, 2)))
    some_members, all_members = (
        GaussianPrior(torch.as_tensor(v)).weight for v in (length_scale, LENGTH_SCALE)
    )
    for function in ("energy", "log_density"):
        actual = getattr(some_members, function)(weights)
        expected = getattr(all_members, function)(weights)
        assert torch.equal(actual[[0, 2]], expected[[0, 2]])
        assert torch.isfinite(actual[1])
        assert actual[1] != expected[1]


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_gaussian_prior_is_isotropic_about_zero(seed, part):
    """N(0, 1 / l^2) on weights and biases alike."""
    axes = (INPUTS, OUTPUTS) if part == "weight" else (OUTPUTS,)
    values = np.random.default_rng(seed).normal(size=(DRAWS, MEMBERS, *axes))
    std = (1 / LENGTH_SCALE).reshape(-1, *(1,) * len(axes))
    density = norm(scale=std)
    axes_of_array = tuple(range(-len(axes), 0))
    prior = getattr(GaussianPrior(torch.as_tensor(LENGTH_SCALE)), part)
    actual = prior.log_density(torch.as_tensor(values))
    np.testing.assert_allclose(
        actual, density.logpdf(values).sum(axes_of_array), **EXACT
    )
    actual = prior.energy(torch.as_tensor(values[0]))
    expected = (density.logpdf(0) - density.logpdf(values[0])).sum(axes_of_array)
    np.testing.assert_allclose(actual, expected, **EXACT)


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_normal_prior_from_a_posterior(seed, part):
    """N(mean, std^2) for each weight and bias."""
    random = np.random.default_rng(seed)
    fields = {
        "mean": random.normal(size=(MEMBERS, INPUTS, OUTPUTS)),
        "std": np.exp(random.normal(size=(MEMBERS, INPUTS, OUTPUTS))),
        "bias_mean": random.normal(size=(MEMBERS, OUTPUTS)),
        "bias_std": np.exp(random.normal(size=(MEMBERS, OUTPUTS))),
    }
    prior = PosteriorPrior(**{n: torch.as_tensor(v) for n, v in fields.items()})
    prefix = "" if part == "weight" else "bias_"
    mean, std = fields[f"{prefix}mean"], fields[f"{prefix}std"]
    values = random.normal(size=(DRAWS, *mean.shape))
    actual = getattr(prior, part).log_density(torch.as_tensor(values))
    axes_of_array = tuple(range(2, values.ndim))
    expected = norm(mean, std).logpdf(values).sum(axes_of_array)
    np.testing.assert_allclose(actual, expected, **EXACT)
