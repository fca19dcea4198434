"""The perceptron: its pass, its pullback, and drawn networks."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from skbayesnn.inference.noise import DrawNoise, TrainingNoise, initial_normal
from skbayesnn.networks import MLP
from skbayesnn.networks.mlp import ACTIVATIONS

MEMBERS, ROWS, DRAWS, SIZES = 3, 8, 2, (4, 7, 6, 5)
CPU, F64 = torch.device("cpu"), torch.float64


@pytest.fixture(params=ACTIVATIONS)
def network(request):
    return MLP(SIZES, request.param, ("bernoulli", "point", "bernoulli"))


@pytest.fixture
def layers(network, seed):
    seeds = seed + np.arange(MEMBERS)
    normal = [
        torch.as_tensor(initial_normal(seeds, i, a + 1, b))
        for i, (a, b) in enumerate(pairwise(SIZES))
    ]
    return network.init(normal, _keep())


def _keep():
    return tuple(torch.linspace(0.5, p, MEMBERS, dtype=F64) for p in (0.6, 0.8, 0.95))


def _noise(seed):
    noise = TrainingNoise(seed + np.arange(MEMBERS), CPU, F64)
    noise.start_epoch(0)
    return noise


def _x(seed, lead):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((lead, ROWS, SIZES[0]), generator=generator, dtype=F64)


@pytest.mark.parametrize("lead", [1, MEMBERS], ids=["shared rows", "own rows"])
def test_pullback_is_autograds(network, layers, seed, lead):
    """In-place activations and masks change no gradient."""
    leaves = [
        {name: value.clone().requires_grad_() for name, value in params.items()}
        for params in layers
    ]
    outputs = network.forward(leaves, _keep(), _x(seed, lead), _noise(seed))
    gradient = torch.linspace(-1, 1, outputs.numel(), dtype=F64).view(outputs.shape)
    flat = [value for params in leaves for value in params.values()]
    expected = torch.autograd.grad(outputs, flat, gradient)

    with torch.no_grad():
        result, pullback = network.vjp(layers, _keep(), _x(seed, lead), _noise(seed))
        found = pullback(gradient)
    torch.testing.assert_close(result, outputs)
    found = [
        part[name]
        for part, params in zip(found, leaves, strict=True)
        for name in params
    ]
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted)


@pytest.mark.parametrize("lead", [1, MEMBERS], ids=["shared rows", "own rows"])
def test_drawn_networks_are_plain_ones(network, layers, seed, lead):
    """``apply`` against a loop over draws, members and layers in NumPy."""
    noise = DrawNoise(seed + np.arange(MEMBERS), range(DRAWS), CPU, F64)
    weights = network.draw(layers, _keep(), noise)
    x = _x(seed, lead)
    result = network.apply(weights, x)
    assert result.shape == (DRAWS, MEMBERS, ROWS, SIZES[-1])
    function = ACTIVATIONS[network.activation].function
    for draw in range(DRAWS):
        for member in range(MEMBERS):
            h = x[member % lead]
            for i, (weight, bias) in enumerate(weights):
                h = function(h) if i else h
                h = h @ weight[draw % len(weight), member] + bias[member]
            torch.testing.assert_close(result[draw, member], h)
