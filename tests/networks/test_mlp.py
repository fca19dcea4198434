"""The perceptron: its pass, its pullback, its KL, and drawn networks."""

import json
from itertools import product

import numpy as np
import pytest
import torch

from skbayesnn._engine.random import DrawRandom, initial_normal
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import Bernoulli, Concrete, MeanField, Point
from skbayesnn._networks import Perceptron, network_from
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._priors import GaussianPrior
from tests.helpers.families import LAWS, label
from tests.helpers.pairwise import pairwise
from tests.helpers.reference import forward

MEMBERS, ROWS, DRAWS, SIZES = 3, 8, 2, (4, 7, 6, 5)
# Rows that the members share, and separate rows of each member.
LEADS = [1, MEMBERS]
CPU, F64 = torch.device("cpu"), torch.float64

# The middle layer may overwrite its input, which is the output of the first layer.
MIXED = {
    "dropped first": (Bernoulli(), Point(), Bernoulli()),
    **{label(family): (family, Bernoulli(), family) for family in LAWS},
}


@pytest.fixture
def network(mix, activation):
    """A family may store values for its gradient that an activation overwrites."""
    return Perceptron(SIZES, activation, MIXED[mix])


@pytest.fixture
def layers(network, seed):
    return _start(network, seed)


def _start(network, seed):
    seeds = seed + np.arange(MEMBERS)
    return network.init(_normal(seeds), _keep())


def _normal(seeds):
    return lambda i, *shape: torch.as_tensor(initial_normal(seeds, i, *shape))


def _keep():
    return tuple(torch.linspace(0.5, p, MEMBERS, dtype=F64) for p in (0.6, 0.8, 0.95))


def _source(seed):
    source = TrainingRandom(seed + np.arange(MEMBERS), CPU, F64)
    source.start_epoch(0)
    return source


def _draw_source(seed, n_draws=DRAWS):
    return DrawRandom(seed + np.arange(MEMBERS), range(n_draws), CPU, F64)


def _x(seed, lead):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((lead, ROWS, SIZES[0]), generator=generator, dtype=F64)


def _leaves(network, layers):
    return [
        {
            n: v.clone().requires_grad_(n not in family.constants)
            for n, v in params.items()
        }
        for family, params in zip(network.families, layers, strict=True)
    ]


def _assert_gradients(actual, leaves, total, gradient=None):
    """Compare by layer and name; a missing gradient is zero."""
    wanted = [v for params in leaves for v in params.values() if v.requires_grad]
    expected = iter(
        torch.autograd.grad(total, wanted, gradient, materialize_grads=True)
    )
    for gradients, params in zip(actual, leaves, strict=True):
        assert gradients.keys() <= params.keys()
        for name, value in params.items():
            zeros = torch.zeros_like(value)
            gradient = next(expected) if value.requires_grad else zeros
            torch.testing.assert_close(gradients.get(name, zeros), gradient)


@pytest.mark.parametrize(
    ("mix", "activation", "lead"), pairwise(MIXED, ACTIVATIONS, LEADS)
)
def test_pullback_equals_autograd(network, layers, seed, lead):
    """In-place activations and masks change no gradient."""
    leaves = _leaves(network, layers)
    outputs = forward(network, leaves, _keep(), _x(seed, lead), _source(seed))
    gradient = torch.linspace(-1, 1, outputs.numel(), dtype=F64).view(outputs.shape)
    with torch.no_grad():
        result, pullback = network.vjp(layers, _keep(), _x(seed, lead), _source(seed))
        outputs_before = result.clone()
        actual = pullback(gradient.clone())
    torch.testing.assert_close(outputs_before, outputs)
    _assert_gradients(actual, leaves, outputs, gradient)


@pytest.mark.parametrize(
    ("mix", "activation", "lead"),
    pairwise(MIXED, ACTIVATIONS, LEADS, interacting=[(0, 2), (1, 2)]),
)
def test_drawn_networks_equal_plain_networks(network, layers, seed, lead):
    """``apply`` against a loop over draws, members and layers."""
    weights = network.draw(layers, _keep(), _draw_source(seed))
    x = _x(seed, lead)
    result = network.apply(weights, x)
    assert result.shape == (DRAWS, MEMBERS, ROWS, SIZES[-1])
    function = ACTIVATIONS[network.activation].function
    for draw in range(DRAWS):
        for member in range(MEMBERS):
            h = x[member % lead]
            for i, (weight, bias) in enumerate(weights):
                h = function(h) if i else h
                bias_of_draw = bias[draw] if bias.ndim == 3 else bias
                h = h @ weight[draw % len(weight), member] + bias_of_draw[member]
            torch.testing.assert_close(result[draw, member], h)


@pytest.mark.parametrize(
    ("mix", "activation"), pairwise(MIXED, ACTIVATIONS, interacting=[])
)
def test_inputs_of_drawn_networks_are_not_changed(network, layers, seed):
    weights = network.draw(layers, _keep(), _draw_source(seed))
    before = [(w.clone(), b.clone()) for w, b in weights]
    x = _x(seed, 1)
    network.apply(weights, x)
    assert torch.equal(x, _x(seed, 1))
    for pair, copies in zip(weights, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(pair, copies, strict=True))


KL_MIX = {
    "dropped": (Bernoulli(), Point(), Bernoulli()),
    "mean field": (MeanField(), MeanField(sampled_kl=True), MeanField(spike=True)),
    "mixed": (Concrete(), MeanField(sampled_kl=True), Point()),
}


@pytest.fixture(params=KL_MIX)
def any_network(request):
    return Perceptron(SIZES, "tanh", KL_MIX[request.param])


def _priors():
    """Priors of all layers, each with different length scales."""
    return [
        GaussianPrior(torch.tensor(values, dtype=F64))
        for values in ([0.5, 1.0, 2.0], [1.5, 0.3, 0.7], [0.1, 2.5, 1.2])
    ]


def test_kl_is_the_sum_over_layers(any_network, seed):
    """Layers draw their random numbers one after the other."""
    layers, keep = _start(any_network, seed), _keep()
    kl = any_network.kl(layers, keep, _priors(), _source(seed))
    source = _source(seed)
    expected = 0
    for i, family in enumerate(any_network.families):
        expected = expected + family.kl(layers[i], keep[i], _priors()[i], source)
    assert kl.shape == (MEMBERS,)
    torch.testing.assert_close(kl, expected)


def test_kl_gradient_equals_autograd(any_network, seed):
    """For all layers, with the same random numbers."""
    layers = _start(any_network, seed)
    leaves = _leaves(any_network, layers)
    kl = any_network.kl(leaves, _keep(), _priors(), _source(seed)).sum()
    with torch.no_grad():
        actual = any_network.kl_gradient(layers, _keep(), _priors(), _source(seed))
    _assert_gradients(actual, leaves, kl)


def test_flags_of_a_network_depend_on_its_layers():
    """One stochastic layer makes the network stochastic.

    If the KL of one layer is not quadratic, the network's KL is not.
    """
    point, mixed = (
        Perceptron(SIZES, "relu", families)
        for families in ((Point(),) * 3, (Point(), Concrete(), Point()))
    )
    dropped = Perceptron(SIZES, "relu", MIXED["dropped first"])
    assert not point.stochastic and point.quadratic_kl
    assert dropped.stochastic and dropped.quadratic_kl
    assert mixed.stochastic and not mixed.quadratic_kl


def test_start_values_have_the_scale_of_their_layer(seed):
    """Variances of weights and biases at the start [He et al. 2015 eq. 10].

    Weights: gain / inputs, with gain 1 in the last layer. Biases: 1 / (3 inputs), and
    0 in the last layer.
    """
    network = Perceptron((4, 300, 200, 50), "relu", (Point(),) * 3)
    normal = _normal(np.array([seed]))
    keep = (torch.ones(1, dtype=F64),) * 3
    layers = network.init(normal, keep)
    for i, (inputs, gain) in enumerate([(4, 2.0), (300, 2.0), (200, 1.0)]):
        weight, bias = layers[i]["mean"][0], layers[i]["bias"][0]
        expected = (gain / inputs) ** 0.5
        numbers = normal(i, inputs + 1, network.sizes[i + 1])[0]
        torch.testing.assert_close(weight, expected * numbers[:-1])
        std_of_bias = (1 / (3 * inputs)) ** 0.5 if i < 2 else 0.0
        torch.testing.assert_close(bias, std_of_bias * numbers[-1])


def test_description_restores_the_network():
    """The description contains plain values only; additional entries are ignored."""
    wrong = []
    for activation, (mix, families) in product(ACTIVATIONS, MIXED.items()):
        network = Perceptron(SIZES, activation, families)
        about = json.loads(json.dumps(network.describe()))
        among_others = about | {"likelihood": {"name": "gaussian"}}
        if not network == network_from(about) == network_from(among_others):
            wrong.append(f"{activation}, {mix}: {about}")
    assert not wrong, "\n".join(wrong)


def test_parameter_and_unit_counts(seed):
    """Against the parameters, and units counted independently."""
    network = Perceptron(SIZES, "relu", (Point(),) * 3)
    layers = _start(network, seed)
    counted = sum(value[0].numel() for params in layers for value in params.values())
    assert network.n_weights == counted
    assert network.fan_ins == (4, 7, 6)
    assert (network.n_units, network.widest, network.peak_activation_size) == (
        22,
        7,
        13,
    )
