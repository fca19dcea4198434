"""Convolutional and recurrent networks, against torch's layers.

Every family in every network: row by row, member by member, with intermediate values.
"""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional

from skbayesnn._engine.random import DrawRandom, initial_normal
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import (
    Additive,
    Bernoulli,
    Concrete,
    Gaussian,
    MeanField,
    Point,
)
from skbayesnn._networks import Convolutional, Recurrent, network_from
from skbayesnn._networks.recurrent import CELLS
from skbayesnn._priors import GaussianPrior
from tests.helpers.families import LAWS, label
from tests.helpers.pairwise import pairwise
from tests.helpers.reference import tangent_kernel

MEMBERS, ROWS, DRAWS, OUTPUTS = 3, 4, 2, 2
# Rows that the members share, and separate rows of each member.
LEADS = [1, MEMBERS]
CPU, F64 = torch.device("cpu"), torch.float64

CONVOLUTIONAL = Convolutional(
    image_shape=(2, 7, 6),
    channels=(3, 5),
    kernel_sizes=(3, 2),
    pools=(2, 1),
    hidden=(4,),
    n_outputs=OUTPUTS,
    activation="tanh",
    mask_per="unit",
)
WIRINGS = {
    "per unit": CONVOLUTIONAL,
    "per channel": replace(CONVOLUTIONAL, mask_per="channel", hidden=()),
} | {
    cell: Recurrent(
        n_steps=5,
        n_inputs=2,
        hidden_size=3,
        cell=cell,
        hidden=(4,) if cell == "gru" else (),
        n_outputs=OUTPUTS,
        activation="relu",
    )
    for cell in CELLS
}
# The first or the last layer is a point, or all have the family.
MIXES = {
    **{label(family): lambda n, f=family: (f,) * n for family in LAWS},
    "in the middle": lambda n: (Point(), *(Bernoulli(),) * (n - 2), Point()),
    "at the end": lambda n: (*(Point(),) * (n - 1), MeanField()),
}


# Concrete masks are relaxed in training only, and points have no posterior.
SAME_LAW = [label(f) for f in LAWS if not isinstance(f, Concrete | Point)]


@pytest.fixture(params=WIRINGS)
def wiring(request):
    return WIRINGS[request.param]


@pytest.fixture
def network(place, mix):
    return _network(place, mix)


def _network(place, mix):
    wiring = WIRINGS[place]
    return wiring.with_families(MIXES[mix](len(wiring.fan_ins)))


def _seeds(seed, members=MEMBERS):
    return seed + 3 * np.arange(members)


def _keep(network, members=MEMBERS):
    rates = torch.linspace(0.55, 0.95, len(network.fan_ins))
    shift = torch.linspace(0, 0.04, members, dtype=F64)
    return tuple(rate + shift for rate in rates.double())


def _start(network, seed, members=MEMBERS):
    seeds = _seeds(seed, members)

    def normal(i, *shape):
        return torch.as_tensor(initial_normal(seeds, i, *shape))

    return network.init(normal, _keep(network, members))


def _source(seed, members=MEMBERS):
    source = TrainingRandom(_seeds(seed, members), CPU, F64)
    source.start_epoch(0)
    return source


def _x(network, seed, lead, rows=ROWS):
    generator = torch.Generator().manual_seed(seed)
    shape = (
        network.image_shape
        if isinstance(network, Convolutional)
        else (network.n_steps, network.n_inputs)
    )
    return torch.randn((lead, rows, int(np.prod(shape))), generator=generator).double()


# ---- by torch's layers, one row of one network at a time


def _convolved(network, maps, row):
    n = len(network.channels)
    h = row.view(1, *network.image_shape)
    for (weight, bias, mask), size, pool in zip(
        maps[:n], network.kernel_sizes, network.pools, strict=True
    ):
        h = h if mask is None else h * mask
        kernel = weight.T.reshape(len(bias), h.shape[1], size, size)
        h = functional.conv2d(h, kernel, bias, padding="same").tanh()
        h = functional.max_pool2d(h, pool)
    h = h.flatten()
    for i, (weight, bias, mask) in enumerate(maps[n:]):
        h = h.tanh() if i else h
        h = (h if mask is None else h * mask) @ weight + bias
    return h


def _recurred(network, maps, row):
    """With torch's cells; the state has the same mask at every step."""
    (w, b, input_mask), (u, c, state_mask), *layers = maps
    weights = w.T, u.T, b, c
    state = cells = row.new_zeros(1, network.hidden_size)
    for x in row.view(network.n_steps, 1, network.n_inputs):
        x = x if input_mask is None else x * input_mask
        masked_state = state if state_mask is None else state * state_mask
        if network.cell == "lstm":
            state, cells = torch.lstm_cell(x, (masked_state, cells), *weights)
        elif network.cell == "rnn":
            state = torch.rnn_tanh_cell(x, masked_state, *weights)
        elif state_mask is None:
            state = torch.gru_cell(x, state, *weights)
        else:
            state = _gru_cell(x, masked_state, state, *weights)
    h = state[0]
    for i, (weight, bias, mask) in enumerate(layers):
        h = h.relu() if i else h
        h = (h if mask is None else h * mask) @ weight + bias
    return h


def _gru_cell(x, masked_state, state, w_ih, w_hh, b_ih, b_hh):
    """[Cho et al. 2014] in torch's form; the gates get the masked state."""
    (r, z, n) = (x @ w_ih.T + b_ih).chunk(3, 1)
    (hr, hz, hn) = (masked_state @ w_hh.T + b_hh).chunk(3, 1)
    reset, update = (r + hr).sigmoid(), (z + hz).sigmoid()
    return update * state + (1 - update) * (n + reset * hn).tanh()


def _one_by_one(network, maps_of, x, members):
    """Outputs by torch, one row and member at a time.

    maps_of : (member, row) -> (weight, bias, mask or None) of every group
    """
    function = _convolved if isinstance(network, Convolutional) else _recurred
    return torch.stack(
        [
            torch.stack(
                [
                    function(network, maps_of(m, r), x[m % len(x), r])
                    for r in range(x.shape[1])
                ]
            )
            for m in range(members)
        ]
    )


def _of_member(values, i):
    """The values of one member, which may be common to all members."""
    return values[i % len(values)]


@pytest.mark.parametrize(("place", "mix", "lead"), pairwise(WIRINGS, MIXES, LEADS))
def test_pass_and_pullback_equal_torch_layers(network, seed, lead):
    """A row has the same masks at all positions and steps."""
    layers, keep = _start(network, seed), _keep(network)
    x = _x(network, seed, lead)
    leaves = [
        {
            n: v.clone().requires_grad_(n not in family.constants)
            for n, v in params.items()
        }
        for family, params in zip(network.families, layers, strict=True)
    ]
    source = _source(seed)
    held = [
        family.training_draw(params, p, source, ROWS)
        for family, params, p in zip(network.families, leaves, keep, strict=True)
    ]

    def maps_of(member, row):
        return [
            (
                _of_member(weight, member),
                _of_member(bias, member),
                _of_member(mask[0], member)[row] if mask else None,
            )
            for weight, bias, *mask in held
        ]

    expected = _one_by_one(network, maps_of, x, MEMBERS)
    gradient = torch.linspace(-1, 1, expected.numel(), dtype=F64).view(expected.shape)
    wanted = [v for params in leaves for v in params.values() if v.requires_grad]
    expected_gradients = torch.autograd.grad(
        expected, wanted, gradient, materialize_grads=True
    )
    with torch.no_grad():
        actual, pullback = network.vjp(layers, keep, x.clone(), _source(seed))
        gradients = pullback(gradient)
    torch.testing.assert_close(actual, expected)
    flat = [
        params[name]
        for params, leaf in zip(gradients, leaves, strict=True)
        for name in leaf
        if name in params
    ]
    for params, expected_gradient in zip(flat, expected_gradients, strict=True):
        torch.testing.assert_close(params, expected_gradient)


@pytest.mark.parametrize(
    ("place", "mix", "lead"),
    pairwise(WIRINGS, MIXES, LEADS, interacting=[(0, 2), (1, 2)]),
)
def test_drawn_networks_equal_torch_layers(network, seed, lead):
    layers, keep = _start(network, seed), _keep(network)
    weights = network.draw(
        layers, keep, DrawRandom(_seeds(seed), range(DRAWS), CPU, F64)
    )
    x = _x(network, seed, lead)
    actual = network.apply(weights, x)
    assert torch.equal(x, _x(network, seed, lead))
    for draw in range(DRAWS):

        def maps_of(member, row, draw=draw):
            return [
                (
                    _of_member(weight, draw)[member],
                    (bias if bias.ndim == 2 else _of_member(bias, draw))[member],
                    _of_member(mask[0], draw)[member] if mask else None,
                )
                for weight, bias, *mask in weights
            ]

        expected = _one_by_one(network, maps_of, x, MEMBERS)
        torch.testing.assert_close(
            _of_member(actual, draw).expand_as(expected), expected
        )


@pytest.mark.parametrize(
    ("place", "mix"),
    pairwise(list(WIRINGS)[:2], SAME_LAW, interacting=[])
    + pairwise(list(WIRINGS)[2:], SAME_LAW, interacting=[]),
)
def test_training_and_prediction_have_the_same_posterior(network, seed):
    """Mean and variance of one row's outputs over members, and over draws.

    Every family in a convolutional and in a recurrent network; the two tests above
    compare the networks with torch's. 5 standard errors; the error of the variance is
    estimated, since heavy tails have a larger one.
    """
    n_copies = 800
    layers = [
        {
            name: value.expand(n_copies, *value.shape[1:])
            for name, value in params.items()
        }
        for params in _start(network, seed, members=1)
    ]
    keep = tuple(p.expand(n_copies) for p in _keep(network, members=1))
    x = _x(network, seed, 1, rows=1)
    with torch.no_grad():
        trained, _ = network.vjp(layers, keep, x, _source(seed, n_copies))
        network_params = [{n: v[:1] for n, v in params.items()} for params in layers]
        source = DrawRandom(_seeds(seed, 1), range(n_copies), CPU, F64)
        drawn = network.apply(
            network.draw(network_params, _keep(network, 1), source), x
        )
    a, b = trained[:, 0], drawn[:, 0, 0]
    for x, y in [(a, b), ((a - a.mean(0)) ** 2, (b - b.mean(0)) ** 2)]:
        error = ((x.var(0) + y.var(0)) / n_copies).sqrt()
        assert ((x.mean(0) - y.mean(0)).abs() <= 5 * error + 1e-9).all()


@pytest.mark.parametrize(
    ("place", "lead", "together"), pairwise(WIRINGS, LEADS, [1, 2])
)
def test_networks_can_be_computed_in_parts(place, seed, lead, together, monkeypatch):
    """With masks, with two members that share a seed, and with weights."""
    kinds, wiring = (Bernoulli(), MeanField()), WIRINGS[place]
    network = wiring.with_families((*kinds * 4,)[: len(wiring.fan_ins)])
    layers, keep = _start(network, seed), _keep(network)

    def step():
        source = TrainingRandom(np.array([seed, seed, seed + 1]), CPU, F64)
        source.start_epoch(0)
        with torch.no_grad():
            outputs, back = network.vjp(layers, keep, _x(network, seed, lead), source)
            return [outputs, *(v for params in back(outputs) for v in params.values())]

    whole = step()
    at_once = together * ROWS * network.widest
    monkeypatch.setattr("skbayesnn._networks.wired._MAX_VALUES", at_once)
    for value, expected in zip(step(), whole, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)


# ---- masks and counts


def test_masks_per_channel(seed):
    """Masks of the image are per pixel; later ones are per unit or per channel."""
    source = DrawRandom(_seeds(seed), range(DRAWS), CPU, F64)
    for mask_per, mask_shape in {"unit": (3, 3, 3), "channel": (3, 1, 1)}.items():
        network = replace(CONVOLUTIONAL, mask_per=mask_per)
        network = network.with_families((Bernoulli(),) * 4)
        image, channels, *layers = network.draw(
            _start(network, seed), _keep(network), source
        )
        assert image[2].shape == (DRAWS, MEMBERS, 2, 7, 6)
        assert channels[2].shape == (DRAWS, MEMBERS, *mask_shape)
        assert [len(draw) for draw in layers] == [2, 2]


@pytest.mark.parametrize("family", [Bernoulli(), Gaussian(), Concrete()], ids=label)
def test_entropy_counts_the_masks(family, seed):
    """The entropy counts one mask per masked input; the other KL counts the weights."""
    generator = torch.Generator().manual_seed(seed)
    prior = GaussianPrior(torch.tensor([0.5, 1.5, 1.0], dtype=F64))
    keep = torch.tensor([0.6, 0.8, 0.9], dtype=F64)

    def total(family, inputs, scale):
        mean = torch.randn((MEMBERS, inputs, 4), generator=generator, dtype=F64)
        params = family.init(scale * mean, 1.0, torch.zeros(MEMBERS, 4), keep)
        kl = family.kl(params, keep, prior, None)
        return kl + family.kl_constant(params, keep, prior), params

    # Masks of weights that are zero change nothing, and are not counted. Squares of
    # these weights are below the tolerance.
    placed, params = total(family.with_mask_shape((3, 5, 2)), 9, 1e-9)
    as_inputs, _ = total(family, 30, 1e-9)
    normaliser = prior.weight.log_scale(params["mean"])
    entropy_of_30_inputs = normaliser * 30 / 9
    torch.testing.assert_close(placed + normaliser, as_inputs + entropy_of_30_inputs)


def test_parameter_counts_of_the_layers(wiring, seed):
    network = wiring.with_families((Point(),) * len(wiring.fan_ins))
    layers = _start(network, seed)
    shapes = [tuple(params["mean"].shape[1:]) for params in layers]
    assert [a for a, _ in shapes] == list(network.fan_ins)
    counted = sum(value[0].numel() for params in layers for value in params.values())
    assert network.n_weights == counted
    x = _x(network, seed, 1)
    assert network.widest >= x.shape[2]
    assert network.n_units > network.widest
    assert network.peak_activation_size > 0


def test_description_restores_the_network():
    wrong = []
    for place, mix in product(WIRINGS, MIXES):
        about = json.loads(json.dumps(_network(place, mix).describe()))
        if network_from(about) != _network(place, mix):
            wrong.append(f"{place}, {mix}: {about}")
    assert not wrong, "\n".join(wrong)


def test_bias_of_the_forget_gate_starts_at_one(seed):
    """One more than the other gates; the other values do not change."""
    biases = {}
    for cell in ("lstm", "rnn"):
        network = replace(WIRINGS["lstm"], cell=cell).with_families((Point(),) * 3)
        biases[cell] = _start(network, seed)[0]["bias"]
    network = WIRINGS["lstm"].with_families((Point(),) * 3)
    numbers = initial_normal(_seeds(seed), 0, 3, 12)[:, -1]
    expected = torch.as_tensor(numbers) * (1 / (3 * 2)) ** 0.5
    expected[:, 3:6] += 1
    torch.testing.assert_close(biases["lstm"], expected)


@pytest.mark.parametrize("rows_of_members", [1, MEMBERS])
def test_tangent_kernel_equals_autograd(wiring, seed, rows_of_members, monkeypatch):
    network = wiring.with_families((Point(),) * len(wiring.fan_ins))
    layers, keep = _start(network, seed), _keep(network)
    weights = network.draw(layers, keep, DrawRandom(_seeds(seed), range(1), CPU, F64))
    x = _x(network, seed, rows_of_members)
    variances = [
        (torch.full((MEMBERS,), 0.3 + i).double(), torch.arange(1.0, 4.0).double())
        for i in range(len(weights))
    ]
    expected = tangent_kernel(network, weights, variances, x, slice(OUTPUTS))
    # Rows in chunks, and the last chunk is smaller.
    monkeypatch.setattr("skbayesnn._networks.wired._MAX_ROWS", ROWS - 1)
    with torch.no_grad():
        actual = network.tangent_kernel(weights, variances, x, slice(OUTPUTS))
        last = network.tangent_kernel(weights, variances, x, slice(1, OUTPUTS))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(last, expected[:, ROWS:, ROWS:], rtol=1e-10, atol=1e-10)


def test_constants_get_no_gradient(wiring, seed):
    network = wiring.with_families((Additive(),) * len(wiring.fan_ins))
    with torch.no_grad():
        outputs, back = network.vjp(
            _start(network, seed),
            _keep(network),
            _x(network, seed, 1),
            _source(seed),
        )
        gradients = back(torch.ones_like(outputs))
    assert all(gradient.keys() == {"mean", "bias"} for gradient in gradients)
