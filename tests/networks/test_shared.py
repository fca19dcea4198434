"""Perceptrons with heads, against plain perceptrons with the weights of each head."""

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skbayesnn import (
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    load,
    save,
)
from skbayesnn._engine.random import DrawRandom, initial_normal
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import Bernoulli, Point
from skbayesnn._networks import Perceptron, SharedPerceptron, network_from
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._networks.shared import head_of_draws
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.networks import MLP, TabM
from tests.helpers.families import LAWS, label

MEMBERS, ROWS, HEADS, SIZES = 2, 11, 3, (4, 7, 6, 5)
CPU, F64 = torch.device("cpu"), torch.float64
FAMILIES = {label(family): family for family in (Point(), Bernoulli(), *LAWS)}


class GivenHead:
    """Random source of a network without noise: only the head of the first row."""

    def __init__(self, first: torch.Tensor):
        self.first, self.shared_by_rows = first, self

    def uniform(self, *shape: int) -> torch.Tensor:
        """Numbers whose product with the number of heads is rounded down."""
        assert shape == (1,)
        return (self.first.unsqueeze(1) + 0.5) / HEADS


def start(network, seed):
    """Initial parameters, with scales and biases of the heads that are not special."""
    generator = torch.Generator().manual_seed(seed)

    def normal(i, *shape):
        seeds = seed + np.arange(MEMBERS)
        return torch.as_tensor(initial_normal(seeds, i, *shape))

    layers = network.init(normal, keep())
    for params in layers:
        for name in ("head_scale", "head_bias"):
            shape = params[name].shape
            noise = torch.randn(shape, generator=generator, dtype=F64)
            params[name] = params[name] + 0.3 * noise
    return layers


def keep():
    return tuple(torch.full((MEMBERS,), p, dtype=F64) for p in (0.6, 0.8, 0.9))


def rows_of(seed, lead=1):
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn((lead, ROWS, SIZES[0]), generator=generator, dtype=F64)


def by_formula(layers, x, head, activation):
    """Outputs of one row under one head of one member, from the definition."""
    h = x
    for i, params in enumerate(layers):
        if i:
            h = ACTIVATIONS[activation].function(h)
        weight = params["head_scale"][head][:, None] * params["mean"]
        h = h @ weight + params["bias"] + params["head_bias"][head]
    return h


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("lead", [1, MEMBERS])
def test_training_pass_and_gradients(activation, lead, seed):
    """Against autograd of the definition, row by row; equal up to rounding."""
    network = SharedPerceptron(SIZES, activation, (Point(),) * 3, HEADS)
    layers, x = start(network, seed), rows_of(seed, lead)
    first = torch.tensor([2, 1])
    outputs, back = network.vjp(layers, keep(), x.clone(), GivenHead(first))
    leaves = [{n: v.clone().requires_grad_() for n, v in p.items()} for p in layers]
    expected = torch.stack(
        [
            torch.stack(
                [
                    by_formula(
                        [{n: v[m] for n, v in params.items()} for params in leaves],
                        x[m % lead, row],
                        (int(first[m]) + row) % HEADS,
                        activation,
                    )
                    for row in range(ROWS)
                ]
            )
            for m in range(MEMBERS)
        ]
    )
    torch.testing.assert_close(outputs, expected)
    gradient = rows_of(seed + 5, MEMBERS)[..., :1] * torch.arange(1.0, SIZES[-1] + 1)
    expected.backward(gradient)
    for params, actual in zip(leaves, back(gradient.clone()), strict=True):
        for name, value in params.items():
            torch.testing.assert_close(actual[name], value.grad)


@pytest.mark.parametrize("name", FAMILIES)
def test_one_head_with_unit_scales_is_the_perceptron(name, seed):
    """Initial values, a training step with noise, its gradients, and the draws."""
    families = (FAMILIES[name],) * 3
    plain = Perceptron(SIZES, "tanh", families)
    network = SharedPerceptron(SIZES, "tanh", families)
    steps, draws = [], []
    for net in (plain, network):
        layers = net.init(
            lambda i, *shape: torch.as_tensor(
                initial_normal(seed + np.arange(MEMBERS), i, *shape)
            ),
            keep(),
        )
        source = TrainingRandom(seed + np.arange(MEMBERS), CPU, F64)
        source.start_epoch(0)
        outputs, back = net.vjp(layers, keep(), rows_of(seed), source)
        steps.append((outputs, back(torch.ones_like(outputs))))
        random = DrawRandom(seed + np.arange(MEMBERS), range(4), CPU, F64)
        sampled = net.sample_network(layers, keep(), random, 4)(rows_of(seed))
        draws.append(sampled.expand(4, -1, -1, -1))
    (outputs, grads), (actual, actual_grads) = steps
    torch.testing.assert_close(actual, outputs)
    for group, actual_group in zip(grads, actual_grads, strict=True):
        for key, value in group.items():
            torch.testing.assert_close(actual_group[key], value)
    torch.testing.assert_close(draws[1], draws[0])
    assert TabM((7, 6), n_heads=1).build(4, 5, "tanh") == MLP((7, 6)).build(
        4, 5, "tanh"
    )


def test_draws_are_draws_of_the_heads(seed):
    """Each draw has the weights of one head; blocks of draws have all heads."""
    network = SharedPerceptron(SIZES, "relu", (Point(),) * 3, HEADS)
    layers, x = start(network, seed), rows_of(seed)
    draws = range(HEADS - 1, 3 * HEADS + 1)
    random = DrawRandom(seed + np.arange(MEMBERS), draws, CPU, F64)
    outputs = network.sample_network(layers, keep(), random, len(draws))(x)
    heads = head_of_draws(range(4 * HEADS), HEADS)
    assert np.array_equal(head_of_draws(draws, HEADS), heads[draws.start : draws.stop])
    for block in heads.reshape(-1, HEADS):
        assert sorted(block) == list(range(HEADS))
    for draw, output in zip(draws, outputs, strict=True):
        for m in range(MEMBERS):
            member = [{n: v[m] for n, v in params.items()} for params in layers]
            expected = by_formula(member, x[0], heads[draw], "relu")
            torch.testing.assert_close(output[m], expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_training_and_prediction_have_the_same_posterior(name, seed):
    """Mean and variance of one row's outputs over copies and over draws.

    5 standard errors; the error of the variance is estimated, since heavy tails have a
    larger one.
    """
    n_copies = 1500
    network = SharedPerceptron(SIZES, "tanh", (FAMILIES[name],) * 3, HEADS)
    layers = [{n: v[:1] for n, v in p.items()} for p in start(network, seed)]
    copied = [
        {n: v.expand(n_copies, *v.shape[1:]) for n, v in params.items()}
        for params in layers
    ]
    x, seeds = rows_of(seed)[:, :1], seed + np.arange(n_copies)
    of_copies = tuple(p[:1].expand(n_copies) for p in keep())
    source = TrainingRandom(seeds, CPU, F64)
    source.start_epoch(0)
    with torch.no_grad():
        trained, _ = network.vjp(copied, of_copies, x, source)
        random = DrawRandom(seeds[:1], range(n_copies), CPU, F64)
        one = tuple(p[:1] for p in keep())
        drawn = network.apply(network.draw(layers, one, random), x)
    a, b = trained[:, 0], drawn[:, 0, 0]
    for u, v in [(a, b), ((a - a.mean(0)) ** 2, (b - b.mean(0)) ** 2)]:
        error = ((u.var(0) + v.var(0)) / n_copies).sqrt()
        assert ((u.mean(0) - v.mean(0)).abs() <= 5 * error + 1e-9).all()


def test_description_is_complete():
    network = SharedPerceptron(SIZES, "silu", (Point(), Bernoulli(), Point()), HEADS)
    assert network_from(json.loads(json.dumps(network.describe()))) == network
    layers = start(network, 0)
    with pytest.raises(ValueError, match="at least one head"):
        network_from(network.describe() | {"n_heads": 0})
    n_parameters = sum(
        value[0].numel() for params in layers for value in params.values()
    )
    assert network.n_weights == n_parameters


# ---- through the estimators

SMALL = {"max_iter": 4, "dtype": "float64", "device": "cpu", "tau": 3.0}


@pytest.fixture
def table(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(31, 4))
    return X, np.sin(X[:, 0]) + 0.1 * random.normal(size=31)


def test_prediction_is_the_mean_of_the_heads(table, seed):
    """Without dropout; also from the mean weights, and with fewer draws than heads."""
    X, y = table
    net = TabM((7, 6), n_heads=HEADS)
    params = SMALL | {"random_state": seed, "standardize": False, "dropout": 0.0}
    model = MCDropoutRegressor(network=net, n_draws=7, **params).fit(X, y)
    names = ("mean", "bias", "head_scale", "head_bias")
    layers = [
        {n: torch.as_tensor(model.parameters_[f"layers/{i}/{n}"][0]) for n in names}
        for i in range(3)
    ]
    of_heads = torch.stack(
        [by_formula(layers, torch.as_tensor(X), h, "relu") for h in range(HEADS)]
    )
    expected = of_heads.mean(0)[:, 0].numpy()
    for method in ("draws", "mean_weights"):
        actual = model.predict(X, method=method)
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)
    model.set_params(n_draws=HEADS - 1)
    used = head_of_draws(range(HEADS - 1), HEADS)
    expected = of_heads[used].mean(0)[:, 0].numpy()
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9, atol=1e-12)


def test_networks_with_heads_learn(table, seed):
    """More heads do not keep a network from fitting a smooth function."""
    X, y = table
    net = TabM((20, 20), n_heads=4)
    params = SMALL | {"max_iter": 400, "tau": 100.0, "length_scale": 1.0}
    model = MCDropoutRegressor(network=net, dropout=0, random_state=seed, **params)
    assert model.fit(X, y).score(X, y) > 0.9


def test_gradients_that_need_one_set_of_weights_are_refused(table):
    net = TabM((7,), n_heads=2)
    model = BBBRegressor(network=net, gradient="score", max_iter=2)
    with pytest.raises(ValueError, match=r"several heads needs gradient='pathwise'"):
        model.fit(*table)
    with pytest.raises(ValueError, match=r"`n_heads` must be"):
        MCDropoutRegressor(network=TabM(n_heads=0)).fit(*table)


def test_classes(table, seed):
    X, y = table
    net = TabM((7,), n_heads=HEADS)
    model = MCDropoutClassifier(network=net, max_iter=5, random_state=seed)
    probability = model.fit(X, y > 0).predict_proba(X)
    np.testing.assert_allclose(probability.sum(1), 1.0, rtol=1e-6)


def test_saved_networks_predict_the_same(table, seed, tmp_path):
    X, y = table
    net = TabM((7, 6), n_heads=HEADS)
    model = MCDropoutRegressor(network=net, random_state=seed, **SMALL).fit(X, y)
    save(model, tmp_path / "model.skb")
    loaded = load(tmp_path / "model.skb")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert clone(model).get_params()["network__n_heads"] == HEADS
    assert clone(model).network == net


def test_search_over_heads_equals_single_fits(table, seed):
    """Networks that are trained in one program equal those that are trained alone."""
    X, y = table
    model = MCDropoutRegressor(
        network=TabM((7,), n_heads=HEADS), random_state=seed, n_draws=9, **SMALL
    )
    grid = {"dropout": [0.0, 0.2], "network__n_heads": [2, 4]}
    search = BatchedGridSearchCV(model, grid, cv=2).fit(X, y)
    plain = GridSearchCV(model, grid, cv=2).fit(X, y)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"],
        plain.cv_results_["mean_test_score"],
        rtol=1e-6,
    )
