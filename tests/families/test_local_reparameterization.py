"""Local reparameterisation: the activations of normal weights; float64."""

import numpy as np
import pytest
import torch

from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import Needed
from skbayesnn._families.weight_noise import sample, sample_vjp

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
CPU = torch.device("cpu")
NAMES = ("mean", "variance", "bias", "bias_variance")


@pytest.fixture
def random(seed):
    return np.random.default_rng(seed)


@pytest.fixture
def weights(random):
    """Mean M and variance V of the weights, c and v of the biases."""
    return (
        torch.as_tensor(random.normal(size=(MEMBERS, INPUTS, OUTPUTS))),
        torch.as_tensor(random.gamma(1.0, size=(MEMBERS, INPUTS, OUTPUTS))),
        torch.as_tensor(random.normal(size=(MEMBERS, OUTPUTS))),
        torch.as_tensor(random.gamma(1.0, size=(MEMBERS, OUTPUTS))),
    )


@pytest.fixture(params=["own rows", "shared rows"])
def x(request, random):
    members = 1 if request.param == "shared rows" else MEMBERS
    return torch.as_tensor(random.normal(size=(members, ROWS, INPUTS)))


@pytest.fixture(params=["mask", "no mask"])
def mask(request, random):
    if request.param == "no mask":
        return None
    return torch.as_tensor(random.integers(2, size=(MEMBERS, ROWS, INPUTS)) * 1.0)


@pytest.fixture
def noise(seed):
    """The same noise at every call."""

    def start():
        noise = TrainingRandom(seed + np.arange(MEMBERS), CPU, torch.float64)
        noise.start_epoch(0)
        return noise

    return start


def test_activations_are_normal_with_the_exact_moments(x, weights, mask, exact):
    """b ~ N(a M + c, a^2 V + v), independent over rows and over outputs.

    By NumPy, element by element; a mask is in the mean alone.
    """
    found_mean, found_covariance = exact.normal_moments(
        lambda noise: sample(x, *weights, noise, mask),
        ROWS * OUTPUTS,
    )
    a = np.broadcast_to(x.numpy(), (MEMBERS, ROWS, INPUTS))
    masked = a if mask is None else a * mask.numpy()
    mean, variance, bias, bias_variance = (value.numpy() for value in weights)
    expected = np.einsum("irk,ikn->irn", masked, mean) + bias[:, None]
    found_mean = found_mean.reshape(expected.shape)
    np.testing.assert_allclose(found_mean, expected, rtol=1e-12, atol=1e-14)
    expected = np.einsum("irk,ikn->irn", a**2, variance) + bias_variance[:, None]
    expected = expected.reshape(MEMBERS, -1, 1) * np.eye(ROWS * OUTPUTS)
    np.testing.assert_allclose(found_covariance, expected, rtol=1e-10, atol=1e-13)


def test_moments_are_those_of_weight_draws(x, weights, exact):
    """Row by row the activations are what draws of the weights give.

    Draws of the weights do couple the rows, which local reparameterisation does not:
    that is where its gradients get their lower variance from.
    """
    mean, variance, bias, bias_variance = weights

    def drawn(noise):
        weight = mean + variance.sqrt() * noise.normal(INPUTS, OUTPUTS)
        of_draw = bias + bias_variance.sqrt() * noise.normal(OUTPUTS)
        return x @ weight + of_draw.unsqueeze(1)

    of_draws = exact.normal_moments(drawn, INPUTS * OUTPUTS + OUTPUTS)
    of_rows = exact.normal_moments(
        lambda noise: sample(x, *weights, noise),
        ROWS * OUTPUTS,
    )
    np.testing.assert_allclose(of_rows[0], of_draws[0], rtol=1e-11, atol=1e-13)
    drawn, local_ = (
        covariance.reshape(MEMBERS, ROWS, OUTPUTS, ROWS, OUTPUTS)
        for covariance in (of_draws[1], of_rows[1])
    )
    for row in range(ROWS):
        np.testing.assert_allclose(
            local_[:, row, :, row], drawn[:, row, :, row], rtol=1e-10, atol=1e-12
        )
        others = np.arange(ROWS) != row
        assert not local_[:, row][:, :, others].any()
        assert drawn[:, row][:, :, others].any()


def test_equal_rows_have_noise_of_their_own(weights, noise):
    x = torch.ones(1, ROWS, INPUTS, dtype=torch.float64)
    outputs = sample(x, *weights, noise())
    for values in outputs.flatten():
        assert (outputs == values).sum() == 1


def test_pullback_is_that_of_autograd(x, weights, mask, noise, random):
    """Every argument's gradient by hand, and x's on demand.

    Also at a row of zeros with biases that have no variance, at which the root has no
    derivative: gradients stay finite there.
    """
    x[:, 0] = 0
    weights[3][1] = 0
    # One x per member, as the pullback gives their gradients one by one.
    wide = x.expand(MEMBERS, -1, -1).clone()
    leaves = [value.clone().requires_grad_() for value in (*weights, wide)]
    outputs = sample(leaves[-1], *leaves[:-1], noise(), mask)
    gradient = torch.as_tensor(random.normal(size=outputs.shape))
    expected = torch.autograd.grad(outputs, leaves, gradient)

    assert all(values.isfinite().all() for values in expected)
    by_hand, pullback = sample_vjp(x, *weights, noise(), mask)
    np.testing.assert_allclose(by_hand, outputs.detach(), rtol=1e-12, atol=1e-14)
    actual = pullback(gradient, Needed.ALL)
    for name, values in zip((*NAMES, "x"), expected, strict=True):
        np.testing.assert_allclose(
            getattr(actual, name), values, rtol=1e-10, atol=1e-12, err_msg=name
        )
    assert pullback(gradient, Needed.NONE).x is None
