"""Mean-field normal weights, spikes and slabs: densities and KL; float64.

Two rules give exact expectations. Where log q - log p is quadratic in the random
numbers, that of Gauss and Hermite. Elsewhere the trapezoidal rule on a fine grid,
which is exact to rounding for functions that decay as normal densities do.
"""

import numpy as np
import pytest
import torch
from scipy.special import entr
from scipy.stats import norm

from skbayesnn._families import Bernoulli, MeanField
from skbayesnn._priors import GaussianPrior, PosteriorPrior, ScaleMixturePrior

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
KEEP = torch.tensor([0.5, 0.95, 0.8], dtype=torch.float64)
NOTHING_DROPPED = torch.ones(MEMBERS, dtype=torch.float64)
LENGTH_SCALE = torch.tensor([0.3, 2.0, 1.1], dtype=torch.float64)
GAUSSIAN = GaussianPrior(LENGTH_SCALE)


def _tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


def _rho(sigma):
    return torch.expm1(_tensor(sigma)).log()


@pytest.fixture
def random(seed):
    return np.random.default_rng(seed)


@pytest.fixture
def sigma(random):
    """Standard deviations of weights and of biases, from 0.2 to 1.5."""
    return (
        random.uniform(0.2, 1.5, size=(MEMBERS, INPUTS, OUTPUTS)),
        random.uniform(0.2, 1.5, size=(MEMBERS, OUTPUTS)),
    )


@pytest.fixture
def params(random, sigma):
    return {
        "mean": _tensor(random.normal(size=(MEMBERS, INPUTS, OUTPUTS))),
        "rho": _rho(sigma[0]),
        "bias": _tensor(random.normal(size=(MEMBERS, OUTPUTS))),
        "bias_rho": _rho(sigma[1]),
    }


@pytest.fixture(params=["gaussian", "normal"])
def prior(request, random):
    """The Gaussian prior, and a prior with a mean and a std for every weight."""
    if request.param == "gaussian":
        return GAUSSIAN
    return PosteriorPrior(
        mean=_tensor(random.normal(size=(MEMBERS, INPUTS, OUTPUTS))),
        std=_tensor(random.uniform(0.5, 2, size=(MEMBERS, INPUTS, OUTPUTS))),
        bias_mean=_tensor(random.normal(size=(MEMBERS, OUTPUTS))),
        bias_std=_tensor(random.uniform(0.5, 2, size=(MEMBERS, OUTPUTS))),
    )


def _priors_moments(prior):
    """Mean and std of the weights, then of the biases, each (members, ...)."""
    if isinstance(prior, PosteriorPrior):
        return (prior.mean, prior.std), (prior.bias_mean, prior.bias_std)
    std = 1 / LENGTH_SCALE[:, None]
    return (torch.zeros(1), std[..., None]), (torch.zeros(1), std)


def _kl_of_biases(params, sigma):
    """KL of the biases under the Gaussian prior, by NumPy."""
    length_scale = LENGTH_SCALE.numpy()[:, None]
    ratio = (length_scale * sigma[1]) ** 2
    squares = (length_scale * params["bias"].numpy()) ** 2
    return 0.5 * (squares + ratio - np.log(ratio) - 1).sum(1)


# ------------------------------------------------------------------ KL, nothing dropped


def test_kl_in_closed_form(params, sigma, prior):
    """sum of log(s / sigma) + (sigma^2 + (m - m_0)^2) / (2 s^2) - 1/2, by NumPy."""
    expected = 0.0
    means = params["mean"].numpy(), params["bias"].numpy()
    for m, deviation, moments in zip(means, sigma, _priors_moments(prior), strict=True):
        centre, std = (values.numpy() for values in moments)
        squares = (deviation**2 + (m - centre) ** 2) / (2 * std**2)
        terms = np.log(std / deviation) + squares - 0.5
        expected = expected + terms.reshape(MEMBERS, -1).sum(1)
    kl = MeanField().kl(params, NOTHING_DROPPED, prior, None)
    np.testing.assert_allclose(kl, expected, rtol=1e-12)


def test_kl_is_the_expectation_under_q(params, sigma, prior, exact):
    """E_q[log q - log p], both by scipy, at the draws of the family."""
    source = exact.nodes(INPUTS * OUTPUTS + OUTPUTS)
    draw = MeanField().draw(params, NOTHING_DROPPED, source)
    means = params["mean"], params["bias"]
    expected = 0.0
    for values, m, deviation, (centre, std) in zip(
        draw, means, sigma, _priors_moments(prior), strict=True
    ):
        ratio = norm.logpdf(values, m, deviation) - norm.logpdf(values, centre, std)
        expected = expected + ratio.reshape(len(ratio), MEMBERS, -1).sum(2).mean(0)
    kl = MeanField().kl(params, NOTHING_DROPPED, prior, None)
    np.testing.assert_allclose(kl, expected, rtol=1e-11)


def test_sampled_kl_has_the_closed_form_as_its_mean(params, prior, exact):
    family = MeanField(sampled_kl=True)
    kl = MeanField().kl(params, NOTHING_DROPPED, prior, None)
    at_nodes = exact.nodes(INPUTS * OUTPUTS + OUTPUTS)
    actual = family.kl(params, NOTHING_DROPPED, prior, at_nodes).mean(0)
    np.testing.assert_allclose(actual, kl, rtol=1e-11)


# ---------------------------------------------------------------- scale mixture prior


@pytest.fixture
def scale_mixture():
    return ScaleMixturePrior(
        length_scale=LENGTH_SCALE,
        pi=_tensor([0.25, 0.5, 0.9]),
        s1=_tensor([1.0, 2.0, 0.7]),
        s2=_tensor([0.1, 0.3, 0.05]),
    )


def _kl_to_mixture(m, sigma, pi, std_1, std_2):
    """KL(N(m, sigma^2) || pi N(0, s1^2) + (1 - pi) N(0, s2^2)), on a fine grid.

    For arrays; the grid is the first axis. Its step is below a thirtieth of every std.
    """
    steps, step = np.linspace(-9, 9, 20_001, retstep=True)
    w = m + sigma * steps.reshape(-1, *(1,) * m.ndim)
    log_mixture = np.logaddexp(
        np.log(pi) + norm.logpdf(w, 0, std_1), np.log1p(-pi) + norm.logpdf(w, 0, std_2)
    )
    log_q = norm.logpdf(w, m, sigma)
    return (np.exp(log_q) * (log_q - log_mixture)).sum(0) * step * sigma


def test_sampled_kl_to_the_scale_mixture(params, sigma, scale_mixture, sampling):
    """A million draws against the sum of one-dimensional integrals.

    Biases have the Gaussian prior; its closed form is tested above.
    """
    length_scale = LENGTH_SCALE.numpy()
    pi, s1, s2 = (
        value.numpy()[:, None, None]
        for value in (scale_mixture.pi, scale_mixture.s1, scale_mixture.s2)
    )
    scale = length_scale[:, None, None]
    terms = _kl_to_mixture(params["mean"].numpy(), sigma[0], pi, s1 / scale, s2 / scale)
    expected = terms.sum((1, 2)) + _kl_of_biases(params, sigma)
    family = MeanField(sampled_kl=True)
    sampling.check(
        lambda source: family.kl(params, NOTHING_DROPPED, scale_mixture, source),
        expected,
    )


# ------------------------------------------------------------------------- densities


def test_log_density_of_independent_normals(params, sigma, random):
    weight = random.normal(size=(7, MEMBERS, INPUTS, OUTPUTS))
    bias = random.normal(size=(7, MEMBERS, OUTPUTS))
    expected = norm.logpdf(weight, params["mean"], sigma[0]).sum((2, 3))
    expected += norm.logpdf(bias, params["bias"], sigma[1]).sum(2)
    draw = _tensor(weight), _tensor(bias)
    actual = MeanField().log_density(params, NOTHING_DROPPED, *draw)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_log_density_of_the_spike_and_slab(params, sigma, random):
    """Row by row p N(m_i, sigma_i^2) + (1 - p) N(0, sigma_i^2) [GG16]; rows multiply.

    A whole row is dropped at once, so the mixture is over rows, not over weights.
    """
    weight = random.normal(size=(7, MEMBERS, INPUTS, OUTPUTS))
    bias = random.normal(size=(7, MEMBERS, OUTPUTS))
    p = KEEP.numpy()[:, None]
    slab = norm.pdf(weight, params["mean"], sigma[0]).prod(-1)
    spike = norm.pdf(weight, 0, sigma[0]).prod(-1)
    expected = np.log(p * slab + (1 - p) * spike).sum(-1)
    expected += norm.logpdf(bias, params["bias"], sigma[1]).sum(-1)
    draw = _tensor(weight), _tensor(bias)
    actual = MeanField(spike=True).log_density(params, KEEP, *draw)
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-11)


# --------------------------------------------------------------------- spike and slab


def test_spike_kl_is_the_dropout_kl_up_to_a_constant_in_m(params):
    """[GG16 appendix]: at fixed sigma, (p l^2 / 2) ||M||^2 as for Bernoulli dropout."""
    changed = params | {"mean": 3 * params["mean"] + 1, "bias": -params["bias"]}
    spike, dropout = (
        family.kl(changed, KEEP, GAUSSIAN, None)
        - family.kl(params, KEEP, GAUSSIAN, None)
        for family in (MeanField(spike=True), Bernoulli())
    )
    np.testing.assert_allclose(spike, dropout, rtol=1e-12)


@pytest.mark.parametrize("sampled_kl", [False, True], ids=["closed", "sampled"])
def test_spike_kl_without_dropout_equals_the_plain_kl(params, sampled_kl, exact):
    spike, plain = (
        MeanField(spike=spike, sampled_kl=sampled_kl) for spike in (True, False)
    )
    keep = NOTHING_DROPPED
    normals = np.linspace(-1, 2, INPUTS * OUTPUTS + OUTPUTS)
    ones = np.ones(INPUTS)
    actual = spike.kl(params, keep, GAUSSIAN, exact.source(np.r_[ones, normals]))
    expected = plain.kl(params, keep, GAUSSIAN, exact.source(normals))
    np.testing.assert_allclose(actual, expected, rtol=1e-14)
    # The limit p -> 1 is continuous.
    almost = spike.kl(params, keep - 1e-9, GAUSSIAN, exact.source(np.r_[ones, normals]))
    np.testing.assert_allclose(almost, expected, rtol=1e-6)


def _all_spikes(exact):
    """Every mask with every node of the normals; probabilities (outcomes, members)."""
    masks, probability = exact.masks(KEEP, INPUTS)
    nodes = exact.nodes(INPUTS * OUTPUTS + OUTPUTS)
    z = masks.normal(INPUTS).squeeze(1)
    e = nodes.normal(INPUTS * OUTPUTS + OUTPUTS).squeeze(1)
    normals_and_masks = torch.cat(
        [z.repeat_interleave(len(e), 0), e.repeat(len(z), 1)], 1
    )
    return exact.source(normals_and_masks), probability.repeat(len(e), 0) / len(e)


def test_exact_kl_of_narrow_spikes(params, exact):
    """log q - log p of the exact density is the closed form less K H(p).

    If spike and slab do not overlap, the mixture's entropy is the normals' entropy plus
    the masks' entropy. The latter is constant in M and sigma, and the closed form omits
    it, as dropout does. Expectations over all masks and nodes are exact.
    """
    sign = torch.where(params["mean"] < 0, -1.0, 1.0)
    narrow = params | {
        "mean": params["mean"] + sign,
        "rho": _rho(torch.full_like(params["rho"], 0.01)),
    }
    source, probability = _all_spikes(exact)
    family = MeanField(spike=True, sampled_kl=True)
    actual = (probability * family.kl(narrow, KEEP, GAUSSIAN, source).numpy()).sum(0)
    closed = MeanField(spike=True).kl(narrow, KEEP, GAUSSIAN, None).numpy()
    entropy = INPUTS * (entr(KEEP.numpy()) + entr(1 - KEEP.numpy()))
    np.testing.assert_allclose(actual, closed - entropy, rtol=1e-10)


def test_exact_kl_if_spike_and_slab_coincide(params, exact):
    """At M = 0 the mixture is one normal: the closed form is exact."""
    at_zero = params | {"mean": torch.zeros_like(params["mean"])}
    source, probability = _all_spikes(exact)
    family = MeanField(spike=True, sampled_kl=True)
    actual = (probability * family.kl(at_zero, KEEP, GAUSSIAN, source).numpy()).sum(0)
    closed = MeanField(spike=True).kl(at_zero, KEEP, GAUSSIAN, None)
    np.testing.assert_allclose(actual, closed, rtol=1e-10)


def _row_kl(m, sigma, p, length_scale):
    """Exact KL of one row, spike and slab of two weights, on a grid, by scipy."""
    axes = [
        np.linspace(min(0, at) - 9 * s, max(0, at) + 9 * s, 301)
        for at, s in zip(m, sigma, strict=True)
    ]
    area = np.prod([axis[1] - axis[0] for axis in axes])
    u, v = np.meshgrid(*axes, indexing="ij")
    slab = norm.logpdf(u, m[0], sigma[0]) + norm.logpdf(v, m[1], sigma[1])
    spike = norm.logpdf(u, 0, sigma[0]) + norm.logpdf(v, 0, sigma[1])
    log_q = np.logaddexp(np.log(p) + slab, np.log1p(-p) + spike)
    log_p = norm.logpdf([u, v], 0, 1 / length_scale).sum(0)
    return (np.exp(log_q) * (log_q - log_p)).sum() * area


def test_sampled_kl_of_the_spike_and_slab_is_exact(params, sigma, sampling):
    """A million draws against the sum of the rows' integrals, overlapping or not.

    The closed form is larger, by at most K H(p): conditioning lowers an entropy.
    """
    exact_kl = np.zeros(MEMBERS)
    for i in range(MEMBERS):
        about = KEEP[i].item(), LENGTH_SCALE[i].item()
        for m, deviation in zip(params["mean"][i].numpy(), sigma[0][i], strict=True):
            exact_kl[i] += _row_kl(m, deviation, *about)
    exact_kl += _kl_of_biases(params, sigma)
    family = MeanField(spike=True, sampled_kl=True)
    sampling.check(lambda source: family.kl(params, KEEP, GAUSSIAN, source), exact_kl)

    closed = MeanField(spike=True).kl(params, KEEP, GAUSSIAN, None).numpy()
    entropy = INPUTS * (entr(KEEP.numpy()) + entr(1 - KEEP.numpy()))
    assert (closed > exact_kl).all()
    assert (closed < exact_kl + entropy).all()


# ---------------------------------------------------------------------------- moments


@pytest.fixture
def x(random):
    return _tensor(random.normal(size=(ROWS, INPUTS)))


def test_moments_of_the_weights_and_biases(params, sigma, exact):
    size = INPUTS * OUTPUTS + OUTPUTS

    def drawn(source):
        weight, bias = MeanField().draw(params, KEEP, source)
        return torch.cat([weight.flatten(1), bias], 1)

    mean, covariance = exact.normal_moments(drawn, size)
    expected = torch.cat([params["mean"].flatten(1), params["bias"]], 1)
    np.testing.assert_allclose(mean, expected, rtol=1e-14)
    variance = np.concatenate([s.reshape(MEMBERS, -1) ** 2 for s in sigma], 1)
    expected = variance[:, :, None] * np.eye(size)
    np.testing.assert_allclose(covariance, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("spike", [False, True], ids=["plain", "spike"])
def test_moments_of_the_activations(params, sigma, x, exact, random, spike):
    """(a z) M + c and a^2 sigma^2 + s^2: spikes remove the means, not the noise."""
    z = random.integers(2, size=(ROWS, INPUTS)) if spike else np.ones((ROWS, INPUTS))

    def linear(normals):
        spikes = z.ravel() if spike else []
        source = exact.source(np.r_[spikes, normals.normal(ROWS * OUTPUTS).flatten()])
        return MeanField(spike=spike).linear(params, KEEP, x[None], source)

    mean, covariance = exact.normal_moments(linear, ROWS * OUTPUTS)
    expected = (x * _tensor(z)) @ params["mean"] + params["bias"].unsqueeze(1)
    np.testing.assert_allclose(mean, expected.flatten(1), rtol=1e-11, atol=1e-13)
    variance = x.numpy() ** 2 @ sigma[0] ** 2 + sigma[1][:, None] ** 2
    expected = variance.reshape(MEMBERS, -1, 1) * np.eye(ROWS * OUTPUTS)
    np.testing.assert_allclose(covariance, expected, rtol=1e-10, atol=1e-12)


def test_moments_of_the_spike_and_slab(params, sigma, exact):
    """E W = p M, Var W_ij = sigma_ij^2 + p (1 - p) m_ij^2; rows share their spike."""
    source, probability = _all_spikes(exact)
    weights = MeanField(spike=True).draw(params, KEEP, source)[0].flatten(2).numpy()
    m, p = params["mean"].flatten(1).numpy(), KEEP.numpy()[:, None]
    mean = np.einsum("ti,tin->in", probability, weights)
    np.testing.assert_allclose(mean, p * m, rtol=1e-11, atol=1e-13)
    centred = weights - mean
    covariance = np.einsum("ti,tin,tim->inm", probability, centred, centred)
    same_row = np.kron(np.eye(INPUTS), np.ones((OUTPUTS, OUTPUTS)))
    covariance_of_spikes = (
        (p * (1 - p))[:, None] * m[:, :, None] * m[:, None] * same_row
    )
    covariance_of_slabs = sigma[0].reshape(MEMBERS, -1, 1) ** 2 * np.eye(
        INPUTS * OUTPUTS
    )
    np.testing.assert_allclose(
        covariance, covariance_of_spikes + covariance_of_slabs, atol=1e-11
    )


@pytest.mark.parametrize("spike", [False, True], ids=["plain", "spike"])
def test_one_draw_for_all_rows(params, x, exact, spike):
    """Path-wise: the activations are x W + b of one draw, for every row."""
    family = MeanField(spike=spike, shared_draw=True)
    n = spike * INPUTS + INPUTS * OUTPUTS + OUTPUTS
    numbers = (np.arange(n) % 2).astype(float)
    outputs = family.linear(params, KEEP, x[None], exact.source(numbers))
    weight, bias = family.draw(params, KEEP, exact.source(numbers))
    np.testing.assert_allclose(outputs, x @ weight + bias.unsqueeze(1), rtol=1e-12)


@pytest.mark.parametrize("spike", [False, True], ids=["plain", "spike"])
def test_start_has_the_given_size(params, spike):
    """p m^2 + sigma^2 is the given square, 1 % of it in sigma^2."""
    scale, wanted = 0.7, params["mean"]
    start = MeanField(spike=spike).init(wanted, scale, params["bias"], KEEP)
    sigma = torch.nn.functional.softplus(start["rho"])
    np.testing.assert_allclose(sigma**2, 0.01 * scale**2, rtol=1e-12)
    keep = (KEEP if spike else NOTHING_DROPPED).view(-1, 1, 1)
    kept = keep * start["mean"] ** 2 / wanted**2 + sigma**2 / scale**2
    np.testing.assert_allclose(kept, 1, rtol=1e-12)
