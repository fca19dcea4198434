"""The engine trains and predicts with any `Network`, not only perceptrons."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from skbayesnn._engine.posterior import PosteriorPredictor
from skbayesnn._families import Bernoulli, Concrete, MeanField
from skbayesnn._networks import Network, Perceptron
from tests.helpers.engine import INPUTS, TARGETS


@dataclass(frozen=True)
class Branches(Network):
    """f(x) = a(x) + b(x)."""

    a: Network
    b: Network

    families = property(lambda self: self.a.families + self.b.families)
    fan_ins = property(lambda self: self.a.fan_ins + self.b.fan_ins)
    n_weights = property(lambda self: self.a.n_weights + self.b.n_weights)
    n_units = property(lambda self: self.a.n_units + self.b.n_units)
    widest = property(lambda self: max(self.a.widest, self.b.widest))
    peak_activation_size = property(
        lambda self: self.a.peak_activation_size + self.b.peak_activation_size
    )

    def describe(self):
        return {"a": self.a.describe(), "b": self.b.describe()}

    @classmethod
    def from_description(cls, about):
        return cls(*(Perceptron.from_description(about[part]) for part in "ab"))

    def init(self, normal, keep):
        n = len(self.a.families)
        init_b = self.b.init(lambda i, *shape: normal(n + i, *shape), keep[n:])
        return self.a.init(normal, keep[:n]) + init_b

    def vjp(self, layers, keep, x, source):
        n = len(self.a.families)
        outputs_a, back_a = self.a.vjp(layers[:n], keep[:n], x.clone(), source)
        outputs_b, back_b = self.b.vjp(layers[n:], keep[n:], x, source)
        return outputs_a + outputs_b, lambda g: back_a(g.clone()) + back_b(g)

    def tangent_kernel(self, weights, variances, x, outputs):
        n = len(self.a.families)
        kernel_a = self.a.tangent_kernel(weights[:n], variances[:n], x, outputs)
        return kernel_a + self.b.tangent_kernel(weights[n:], variances[n:], x, outputs)

    def apply(self, weights, x):
        n = len(self.a.families)
        return self.a.apply(weights[:n], x) + self.b.apply(weights[n:], x)


SEEDS = np.array([4, 0, 4])


@pytest.fixture(params=[Bernoulli(), MeanField(), Concrete()], ids=repr)
def setup(engine, seed, request):
    family = request.param
    branches = Branches(
        Perceptron((INPUTS, 7, 6, TARGETS), "relu", (family,) * 3),
        Perceptron((INPUTS, TARGETS), "identity", (MeanField(),)),
    )
    config = replace(engine.config(kl_warm_up=0.5), network=branches)
    members = engine.members(config, SEEDS + seed, [0.6, 0.9, 0.8], 0.5, [3, 1, 9.0])
    return config, members, engine.rows(config, len(SEEDS), seed, shared=False)


def test_branches_train_as_each_alone(engine, setup):
    config, members, rows = setup
    together = engine.train(config, members, rows)
    start = engine.parameters(engine.initial_posterior(config, members))
    for i in range(len(SEEDS)):
        alone = engine.train(config, engine.member(members, i), rows.of_member(i))
        expected = engine.parameters(alone.posterior)
        for name, values in engine.parameters(together.posterior).items():
            # Nine steps in float64; Adam divides by the gradient's size.
            np.testing.assert_allclose(
                values[i], expected[name][0], rtol=1e-8, atol=1e-9
            )
            if name.endswith("mean"):
                assert (values[i] != start[name][i]).all()


def test_pullback_equals_the_pullbacks_of_the_branches(engine, setup):
    """Both branches draw from the same random source, one after the other."""
    config, members, rows = setup
    q = engine.initial_posterior(config, members)
    source = [engine.random_source(members, epoch) for epoch in (0, 0)]
    x = torch.as_tensor(rows.x)
    with torch.no_grad():
        f, back = config.network.vjp(q.layers, q.keep, x.clone(), source[0])
        actual = back(torch.ones_like(f))
    n = len(config.network.a.families)
    a, back_a = config.network.a.vjp(q.layers[:n], q.keep[:n], x.clone(), source[1])
    b, back_b = config.network.b.vjp(q.layers[n:], q.keep[n:], x.clone(), source[1])
    torch.testing.assert_close(f, a + b)
    grad_of_parts = back_a(torch.ones_like(a)) + back_b(torch.ones_like(b))
    for gradients, expected in zip(actual, grad_of_parts, strict=True):
        assert gradients.keys() == expected.keys()
        for name, value in gradients.items():
            torch.testing.assert_close(value, expected[name])


def test_prediction_does_not_depend_on_the_memory_budget(engine, setup, seed):
    """In chunks of rows and draws."""
    config, members, rows = setup
    posterior = engine.train(config, members, rows).posterior
    x = np.random.default_rng(seed).normal(size=(29, INPUTS))

    def predict(budget):
        def rows_of(chunk):
            return torch.as_tensor(x[chunk])

        return PosteriorPredictor(posterior, rows_of, 29, 5, budget).whole().mean

    with torch.no_grad():
        outputs = posterior.outputs(torch.as_tensor(x)[None], range(5))
    expected = outputs.flatten(0, 1).numpy()
    for budget in (1 << 10, 1 << 14, 1 << 26):
        np.testing.assert_allclose(predict(budget), expected, rtol=1e-9, atol=1e-12)


def test_description_of_branches(setup):
    network = setup[0].network
    assert Branches.from_description(network.describe()) == network
