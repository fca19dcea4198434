"""Convolutional and recurrent networks, against torch's own layers.

Every family, on every network: row by row, member by member, with what is held.
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
# Rows that the members share, and rows of each member.
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
# The first map is a point, the last one too, or all have the family.
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


def _noise(seed, members=MEMBERS):
    noise = TrainingRandom(_seeds(seed, members), CPU, F64)
    noise.start_epoch(0)
    return noise


def _x(network, seed, lead, rows=ROWS):
    generator = torch.Generator().manual_seed(seed)
    shape = (
        network.image_shape
        if isinstance(network, Convolutional)
        else (network.n_steps, network.n_inputs)
    )
    return torch.randn((lead, rows, int(np.prod(shape))), generator=generator).double()


# ---- by torch's own layers, one row of one network


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
    """With torch's cells, which see a state that is masked alike at every step."""
    (w, b, of_inputs), (u, c, of_state), *layers = maps
    weights = w.T, u.T, b, c
    state = cells = row.new_zeros(1, network.hidden_size)
    for x in row.view(network.n_steps, 1, network.n_inputs):
        x = x if of_inputs is None else x * of_inputs
        seen = state if of_state is None else state * of_state
        if network.cell == "lstm":
            state, cells = torch.lstm_cell(x, (seen, cells), *weights)
        elif network.cell == "rnn":
            state = torch.rnn_tanh_cell(x, seen, *weights)
        elif of_state is None:
            state = torch.gru_cell(x, state, *weights)
        else:
            state = _gru_cell(x, seen, state, *weights)
    h = state[0]
    for i, (weight, bias, mask) in enumerate(layers):
        h = h.relu() if i else h
        h = (h if mask is None else h * mask) @ weight + bias
    return h


def _gru_cell(x, seen, state, w_ih, w_hh, b_ih, b_hh):
    """[Cho et al. 2014] in torch's form; the gates see a masked state."""
    (r, z, n) = (x @ w_ih.T + b_ih).chunk(3, 1)
    (hr, hz, hn) = (seen @ w_hh.T + b_hh).chunk(3, 1)
    reset, update = (r + hr).sigmoid(), (z + hz).sigmoid()
    return update * state + (1 - update) * (n + reset * hn).tanh()


def _one_by_one(network, maps_of, x, members):
    """maps_of : (member, row) -> (weight, bias, mask or None) of every group."""
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


def _of(values, i):
    """Of one member, where one may stand for all."""
    return values[i % len(values)]


@pytest.mark.parametrize(("place", "mix", "lead"), pairwise(WIRINGS, MIXES, LEADS))
def test_a_pass_and_its_pullback_are_those_of_the_layers(network, seed, lead):
    """What is drawn for a row is the same at all places and steps of it."""
    layers, keep = _start(network, seed), _keep(network)
    x = _x(network, seed, lead)
    leaves = [
        {n: v.clone().requires_grad_(n not in family.constants) for n, v in own.items()}
        for family, own in zip(network.families, layers, strict=True)
    ]
    noise = _noise(seed)
    held = [
        family.training_draw(own, p, noise, ROWS)
        for family, own, p in zip(network.families, leaves, keep, strict=True)
    ]

    def maps_of(member, row):
        return [
            (
                _of(weight, member),
                _of(bias, member),
                _of(mask[0], member)[row] if mask else None,
            )
            for weight, bias, *mask in held
        ]

    expected = _one_by_one(network, maps_of, x, MEMBERS)
    gradient = torch.linspace(-1, 1, expected.numel(), dtype=F64).view(expected.shape)
    wanted = [v for own in leaves for v in own.values() if v.requires_grad]
    of_layers = torch.autograd.grad(expected, wanted, gradient, materialize_grads=True)
    with torch.no_grad():
        actual, pullback = network.vjp(layers, keep, x.clone(), _noise(seed))
        gradients = pullback(gradient)
    torch.testing.assert_close(actual, expected)
    flat = [
        own[name]
        for own, of_layer in zip(gradients, leaves, strict=True)
        for name in of_layer
        if name in own
    ]
    for own, other in zip(flat, of_layers, strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize(
    ("place", "mix", "lead"),
    pairwise(WIRINGS, MIXES, LEADS, interacting=[(0, 2), (1, 2)]),
)
def test_drawn_networks_are_those_of_the_layers(network, seed, lead):
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
                    _of(weight, draw)[member],
                    (bias if bias.ndim == 2 else _of(bias, draw))[member],
                    _of(mask[0], draw)[member] if mask else None,
                )
                for weight, bias, *mask in weights
            ]

        expected = _one_by_one(network, maps_of, x, MEMBERS)
        torch.testing.assert_close(_of(actual, draw).expand_as(expected), expected)


@pytest.mark.parametrize(
    ("place", "mix"),
    pairwise(list(WIRINGS)[:2], SAME_LAW, interacting=[])
    + pairwise(list(WIRINGS)[2:], SAME_LAW, interacting=[]),
)
def test_training_and_prediction_have_the_same_posterior(network, seed):
    """Mean and variance of one row's outputs over members, and over draws.

    Every family in a convolutional and in a recurrent network; the two tests above
    compare the networks with torch's. 5 standard errors, the variance's own estimated;
    heavy tails have larger ones.
    """
    many = 800
    layers = [
        {name: value.expand(many, *value.shape[1:]) for name, value in own.items()}
        for own in _start(network, seed, members=1)
    ]
    keep = tuple(p.expand(many) for p in _keep(network, members=1))
    x = _x(network, seed, 1, rows=1)
    with torch.no_grad():
        trained, _ = network.vjp(layers, keep, x, _noise(seed, many))
        one = [{n: v[:1] for n, v in own.items()} for own in layers]
        noise = DrawRandom(_seeds(seed, 1), range(many), CPU, F64)
        drawn = network.apply(network.draw(one, _keep(network, 1), noise), x)
    a, b = trained[:, 0], drawn[:, 0, 0]
    for x, y in [(a, b), ((a - a.mean(0)) ** 2, (b - b.mean(0)) ** 2)]:
        error = ((x.var(0) + y.var(0)) / many).sqrt()
        assert ((x.mean(0) - y.mean(0)).abs() <= 5 * error + 1e-9).all()


@pytest.mark.parametrize(
    ("place", "lead", "together"), pairwise(WIRINGS, LEADS, [1, 2])
)
def test_some_networks_at_a_time_are_all_of_them(
    place, seed, lead, together, monkeypatch
):
    """With masks, of members of which two share a seed, and with weights."""
    kinds, wiring = (Bernoulli(), MeanField()), WIRINGS[place]
    network = wiring.with_families((*kinds * 4,)[: len(wiring.fan_ins)])
    layers, keep = _start(network, seed), _keep(network)

    def step():
        noise = TrainingRandom(np.array([seed, seed, seed + 1]), CPU, F64)
        noise.start_epoch(0)
        with torch.no_grad():
            outputs, back = network.vjp(layers, keep, _x(network, seed, lead), noise)
            return [outputs, *(v for own in back(outputs) for v in own.values())]

    whole = step()
    at_once = together * ROWS * network.widest
    monkeypatch.setattr("skbayesnn._networks.wired._MAX_VALUES", at_once)
    for value, expected in zip(step(), whole, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)


# ---- what is placed, and what counts


def test_masks_are_where_they_should_be(seed):
    """Pixels have their own in the image, channels behind; layers as ever."""
    noise = DrawRandom(_seeds(seed), range(DRAWS), CPU, F64)
    for mask_per, behind in {"unit": (3, 3, 3), "channel": (3, 1, 1)}.items():
        network = replace(CONVOLUTIONAL, mask_per=mask_per)
        network = network.with_families((Bernoulli(),) * 4)
        image, channels, *layers = network.draw(
            _start(network, seed), _keep(network), noise
        )
        assert image[2].shape == (DRAWS, MEMBERS, 2, 7, 6)
        assert channels[2].shape == (DRAWS, MEMBERS, *behind)
        assert [len(draw) for draw in layers] == [2, 2]


@pytest.mark.parametrize("family", [Bernoulli(), Gaussian(), Concrete()], ids=label)
def test_entropy_counts_the_masks_that_are_placed(family, seed):
    """A placed family's KL is that of as many inputs; the rest is the weights'."""
    generator = torch.Generator().manual_seed(seed)
    prior = GaussianPrior(torch.tensor([0.5, 1.5, 1.0], dtype=F64))
    keep = torch.tensor([0.6, 0.8, 0.9], dtype=F64)

    def total(family, inputs, scale):
        mean = torch.randn((MEMBERS, inputs, 4), generator=generator, dtype=F64)
        params = family.init(scale * mean, 1.0, torch.zeros(MEMBERS, 4), keep)
        kl = family.kl(params, keep, prior, None)
        return kl + family.kl_constant(params, keep, prior), params

    placed, params = total(family.with_mask_shape((3, 5, 2)), 9, 0.0)
    as_inputs, _ = total(family, 30, 0.0)
    normaliser = prior.weight.log_scale(params["mean"])
    of_30 = normaliser * 30 / 9
    torch.testing.assert_close(placed + normaliser, as_inputs + of_30)


def test_numbers_of_the_maps(wiring, seed):
    network = wiring.with_families((Point(),) * len(wiring.fan_ins))
    layers = _start(network, seed)
    shapes = [tuple(own["mean"].shape[1:]) for own in layers]
    assert [a for a, _ in shapes] == list(network.fan_ins)
    counted = sum(value[0].numel() for own in layers for value in own.values())
    assert network.n_weights == counted
    x = _x(network, seed, 1)
    assert network.widest >= x.shape[2]
    assert network.n_units > network.widest
    assert network.peak_activation_size > 0


def test_description_makes_the_same_network():
    wrong = []
    for place, mix in product(WIRINGS, MIXES):
        about = json.loads(json.dumps(_network(place, mix).describe()))
        if network_from(about) != _network(place, mix):
            wrong.append(f"{place}, {mix}: {about}")
    assert not wrong, "\n".join(wrong)


def test_a_forget_gate_starts_open(seed):
    """One higher than the other gates; nothing else has changed."""
    biases = {}
    for cell in ("lstm", "rnn"):
        network = replace(WIRINGS["lstm"], cell=cell).with_families((Point(),) * 3)
        biases[cell] = _start(network, seed)[0]["bias"]
    network = WIRINGS["lstm"].with_families((Point(),) * 3)
    numbers = initial_normal(_seeds(seed), 0, 3, 12)[:, -1]
    expected = torch.as_tensor(numbers) * (1 / (3 * 2)) ** 0.5
    expected[:, 3:6] += 1
    torch.testing.assert_close(biases["lstm"], expected)


def test_kernel_of_small_changes_is_that_of_finite_ones(wiring, seed):
    """J V J^T, with the weights' own variances: the sum over weights of squares."""
    network = wiring.with_families(
        (Bernoulli(), *(Point(),) * (len(wiring.fan_ins) - 1))
    )
    layers, keep = _start(network, seed), _keep(network)
    weights = network.draw(layers, keep, DrawRandom(_seeds(seed), range(1), CPU, F64))
    x = _x(network, seed, 1)
    variances = [
        (torch.full((MEMBERS,), 0.3 + i).double(), torch.full((MEMBERS,), 0.2).double())
        for i in range(len(weights))
    ]
    actual = network.tangent_kernel(weights, variances, x, slice(OUTPUTS))
    assert actual.shape == (MEMBERS, OUTPUTS * ROWS, OUTPUTS * ROWS)
    step, expected = 1e-6, torch.zeros(MEMBERS, OUTPUTS * ROWS, dtype=F64)
    for group, (weight, bias, *_) in enumerate(weights):
        for values, variance in zip((weight, bias), variances[group], strict=True):
            flat = values.reshape(MEMBERS, -1)
            for place in range(flat.shape[1]):
                outputs = []
                for sign in (1, -1):
                    flat[:, place] += sign * step
                    outputs.append(network.apply(weights, x)[0].mT.flatten(1))
                    flat[:, place] -= sign * step
                slope = (outputs[0] - outputs[1]) / (2 * step)
                expected += variance[:, None] * slope.square()
    torch.testing.assert_close(
        actual.diagonal(dim1=1, dim2=2), expected, rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("rows_of_members", [1, MEMBERS])
def test_kernel_is_that_of_autograd(wiring, seed, rows_of_members, monkeypatch):
    network = wiring.with_families((Point(),) * len(wiring.fan_ins))
    layers, keep = _start(network, seed), _keep(network)
    weights = network.draw(layers, keep, DrawRandom(_seeds(seed), range(1), CPU, F64))
    x = _x(network, seed, rows_of_members)
    variances = [
        (torch.full((MEMBERS,), 0.3 + i).double(), torch.arange(1.0, 4.0).double())
        for i in range(len(weights))
    ]
    expected = tangent_kernel(network, weights, variances, x, slice(OUTPUTS))
    # Some rows after the others, and the last of them fewer.
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
            _noise(seed),
        )
        gradients = back(torch.ones_like(outputs))
    assert all(own.keys() == {"mean", "bias"} for own in gradients)
