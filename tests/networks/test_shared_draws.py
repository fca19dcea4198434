"""Draws that share products equal draws that compute one product each."""

import copy

import numpy as np
import pytest
import torch

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._engine.random import DrawRandom, initial_normal
from skbayesnn._families import Bernoulli, Concrete, Gaussian, MeanField, Point
from skbayesnn._networks import Perceptron, mlp
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._networks.mlp import is_sharing_faster

MEMBERS, ROWS, DRAWS, SIZES = 2, 5, 23, (4, 9, 6, 3)
CPU, F64 = torch.device("cpu"), torch.float64
FAMILIES = {
    "dropped": (Bernoulli(),) * 3,
    "learned": (Concrete(),) * 3,
    "inputs kept": (Point(), Bernoulli(), Bernoulli()),
    "a layer kept": (Bernoulli(), Point(), Concrete()),
}


def _parts(families, kept, seed, activation="relu"):
    """Network, parameters and keep; they differ between groups."""
    network = Perceptron(SIZES, activation, families)
    seeds = seed + np.arange(MEMBERS)
    keep_of_groups = (kept, (1 + kept) / 2, kept**2)
    keep = tuple(torch.full((MEMBERS,), p, dtype=F64) for p in keep_of_groups)

    def normal(group, *shape):
        return torch.as_tensor(initial_normal(seeds, group, *shape))

    return network, network.init(normal, keep), keep, seeds


@pytest.mark.parametrize("kept", [0.999, 0.97, 0.6, 0.02])
@pytest.mark.parametrize("families", FAMILIES)
def test_outputs_equal_one_product_per_draw(monkeypatch, families, kept, seed):
    """Also if nothing or nearly everything is dropped, whether sharing pays or not."""
    monkeypatch.setattr(mlp, "is_sharing_faster", lambda *_: True)
    network, layers, keep, seeds = _parts(FAMILIES[families], kept, seed)
    x = torch.as_tensor(np.random.default_rng(seed).normal(size=(1, ROWS, SIZES[0])))
    draws = range(7, 7 + DRAWS)

    def source():
        return DrawRandom(seeds, draws, CPU, F64)

    actual = network.sample_network(layers, keep, source(), DRAWS)(x)
    expected = network.apply(network.draw(layers, keep, source()), x)
    assert actual.shape == (DRAWS, MEMBERS, ROWS, SIZES[-1])
    # Sums of at most nine terms of size one, in another order.
    torch.testing.assert_close(actual, expected.expand_as(actual), rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_computed_in_place(monkeypatch, activation, seed):
    """Values that another draw uses are not overwritten; members have separate rows."""
    monkeypatch.setattr(mlp, "is_sharing_faster", lambda *_: True)
    parts = _parts(FAMILIES["dropped"], 0.95, seed, activation)
    network, layers, keep, seeds = parts
    values = np.random.default_rng(seed).normal(size=(MEMBERS, ROWS, SIZES[0]))
    x = torch.as_tensor(values)
    source = DrawRandom(seeds, range(DRAWS), CPU, F64)
    drawn = network.sample_network(layers, keep, source, DRAWS)
    actual, again = drawn(x), drawn(x)
    assert torch.equal(actual, again) and torch.equal(x, torch.as_tensor(values))
    source = DrawRandom(seeds, range(DRAWS), CPU, F64)
    expected = network.apply(network.draw(layers, keep, source), x)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("size", [1e2, 1e8, 1e20])
def test_huge_inputs_do_not_lose_precision(monkeypatch, activation, size, dtype, seed):
    """Draws that drop them do not depend on them, nor on the other rows."""
    monkeypatch.setattr(mlp, "is_sharing_faster", lambda *_: True)
    parts = _parts(FAMILIES["dropped"], 0.9, seed, activation)
    network, layers, keep, seeds = parts
    layers = [{name: v.to(dtype) for name, v in group.items()} for group in layers]
    keep = tuple(p.to(dtype) for p in keep)
    x = torch.as_tensor(np.random.default_rng(seed).normal(size=(1, ROWS, SIZES[0])))
    x = x.to(dtype)
    x[0, 2, 1] = size

    def source():
        return DrawRandom(seeds, range(DRAWS), CPU, dtype)

    actual = network.sample_network(layers, keep, source(), DRAWS)(x)
    alone = network.sample_network(layers, keep, source(), DRAWS)(x[:, 2:3])
    expected = network.apply(network.draw(layers, keep, source()), x)
    # For float32 and inputs of 100: 100 times its rounding, in sums of nine terms.
    relative = 1e-3 if dtype is torch.float32 else 1e-9
    within = {"rtol": relative, "atol": relative}
    torch.testing.assert_close(actual, expected, **within)
    torch.testing.assert_close(actual[:, :, 2:3], alone, **within)


def test_sharing_is_used_if_masks_drop_little():
    """By default for regressions, but not for classes, nor for a single draw."""
    default, deep = (10, 50, 50, 1), (10, 50, 50, 50, 50, 1)
    assert is_sharing_faster(default, [0.99] * 3, 200)
    assert not is_sharing_faster(default, [0.9] * 3, 200)
    assert not is_sharing_faster(default, [0.99] * 3, 1)
    assert not is_sharing_faster(deep, [0.97] * 5, 200)


@pytest.mark.parametrize("family", [Gaussian(), MeanField()])
def test_other_families_do_not_share(family):
    network = Perceptron(SIZES, "relu", (family,) * 3)
    keep = tuple(torch.full((MEMBERS,), 0.999, dtype=F64) for _ in SIZES[1:])
    assert not network.shares_draws([{}] * 3, keep, 200)


@pytest.mark.parametrize("n_estimators", [1, 3])
@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_predictions_do_not_depend_on_sharing(monkeypatch, kind, n_estimators, seed):
    """For rows in several chunks; the standard deviation too."""
    random = np.random.default_rng(seed)
    X, X_new = random.normal(size=(40, 3)), random.normal(size=(1100, 3))
    y = X[:, 0] > 0 if kind is MCDropoutClassifier else X @ [1.0, -1, 2]
    options = {"dropout": 0.01, "max_iter": 3, "dtype": "float64"}
    model = kind((20, 20), n_estimators=n_estimators, random_state=seed, **options)
    model.fit(X, y)
    actual = model.predict_uncertainty(X_new, "all")
    monkeypatch.setattr(mlp, "is_sharing_faster", lambda *_: False)
    # A copy does not store earlier predictions.
    expected = copy.deepcopy(model).predict_uncertainty(X_new, "all")
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=1e-9, atol=1e-9)
