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
def source(seed):
    """A function that starts the same random source at every call."""

    def start():
        source = TrainingRandom(seed + np.arange(MEMBERS), CPU, torch.float64)
        source.start_epoch(0)
        return source

    return start


def test_activations_are_normal_with_the_exact_moments(x, weights, mask, exact):
    """b ~ N(a M + c, a^2 V + v), independent over rows and over outputs.

    By NumPy, element by element; a mask affects the mean only.
    """
    found_mean, found_covariance = exact.normal_moments(
        lambda source: sample(x, *weights, source, mask),
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


def test_moments_equal_those_of_weight_draws(x, weights, exact):
    """Row by row the activations have the moments given by draws of the weights.

    Draws of the weights correlate the rows, local reparameterisation does not: this
    gives its gradients their lower variance.
    """
    mean, variance, bias, bias_variance = weights

    def drawn(source):
        weight = mean + variance.sqrt() * source.normal(INPUTS, OUTPUTS)
        random_bias = bias + bias_variance.sqrt() * source.normal(OUTPUTS)
        return x @ weight + random_bias.unsqueeze(1)

    moments_of_draws = exact.normal_moments(drawn, INPUTS * OUTPUTS + OUTPUTS)
    moments_of_rows = exact.normal_moments(
        lambda source: sample(x, *weights, source),
        ROWS * OUTPUTS,
    )
    np.testing.assert_allclose(
        moments_of_rows[0], moments_of_draws[0], rtol=1e-11, atol=1e-13
    )
    drawn, local_ = (
        covariance.reshape(MEMBERS, ROWS, OUTPUTS, ROWS, OUTPUTS)
        for covariance in (moments_of_draws[1], moments_of_rows[1])
    )
    for row in range(ROWS):
        np.testing.assert_allclose(
            local_[:, row, :, row], drawn[:, row, :, row], rtol=1e-10, atol=1e-12
        )
        other_rows = np.arange(ROWS) != row
        assert not local_[:, row][:, :, other_rows].any()
        assert drawn[:, row][:, :, other_rows].any()


def test_equal_rows_have_different_random_numbers(weights, source):
    x = torch.ones(1, ROWS, INPUTS, dtype=torch.float64)
    outputs = sample(x, *weights, source())
    for values in outputs.flatten():
        assert (outputs == values).sum() == 1


def test_pullback_equals_autograd(x, weights, mask, source, random):
    """The gradients of all arguments, and of x on request.

    Also at a row of zeros with biases without variance, where the root is not
    differentiable: gradients are finite.
    """
    x[:, 0] = 0
    weights[3][1] = 0
    # One x per member, because the pullback returns their gradients separately.
    wide = x.expand(MEMBERS, -1, -1).clone()
    leaves = [value.clone().requires_grad_() for value in (*weights, wide)]
    outputs = sample(leaves[-1], *leaves[:-1], source(), mask)
    gradient = torch.as_tensor(random.normal(size=outputs.shape))
    expected = torch.autograd.grad(outputs, leaves, gradient)

    assert all(values.isfinite().all() for values in expected)
    by_hand, pullback = sample_vjp(x, *weights, source(), mask)
    np.testing.assert_allclose(by_hand, outputs.detach(), rtol=1e-12, atol=1e-14)
    actual = pullback(gradient, Needed.ALL)
    for name, values in zip((*NAMES, "x"), expected, strict=True):
        np.testing.assert_allclose(
            getattr(actual, name), values, rtol=1e-10, atol=1e-12, err_msg=name
        )
    assert pullback(gradient, Needed.NONE).x is None
