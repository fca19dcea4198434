"""The objective against eq. 1 to 4, computed with NumPy in float64.

`test_training.py` compares its gradients with autograd, for every family.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from skbayesnn._engine.config import kl_weight
from skbayesnn._engine.objective import (
    Objective,
    make_priors,
    weight_decay,
)
from skbayesnn._engine.training_random import TrainingRandom
from tests.helpers.reference import forward, mean_nll

SEEDS = np.array([4, 0, 4])
KEEP, LENGTH_SCALE, TAU = [0.6, 0.9, 0.8], [0.7, 1.5, 0.2], [3.0, 0.5, 8.0]


def test_weight_decay_is_lambda():
    """p l^2 / (2 N tau), on numbers and arrays."""
    assert weight_decay(0.9, 0.1, 506, 0.25) == pytest.approx(
        0.9 * 0.1**2 / (2 * 506 * 0.25), rel=1e-14
    )
    keep, tau = np.array([[0.5], [1.0]]), np.array([1.0, 2.0, 4.0])
    expected = keep * 3.0**2 / (2 * 10 * tau)
    np.testing.assert_allclose(weight_decay(keep, 3.0, 10, tau), expected, rtol=1e-14)


@pytest.fixture
def problem(engine, seed):
    """A function that makes the parts of a program with three members."""

    def make(kind="gaussian", **changes):
        row_options = {
            n: changes.pop(n) for n in ("weighted", "shared") if n in changes
        }
        n_rows = changes.pop("n_rows", 24)
        config = engine.config(kind, **changes)
        members = engine.members(config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU)
        rows = engine.rows(config, len(SEEDS), seed, n_rows=n_rows, **row_options)
        q = engine.initial_posterior(config, members)
        prior = make_priors(config, members, q)
        scale = torch.as_tensor(1 / members.tau.mean(1))
        scale = torch.ones_like(scale) if config.likelihood.learned else scale
        objective = Objective(
            prior,
            rows.mean_weight,
            rows.total_weight,
            scale,
        )
        source = TrainingRandom(members.seeds, torch.device("cpu"), torch.float64)
        source.start_epoch(0)
        return SimpleNamespace(
            config=config,
            members=members,
            rows=rows,
            q=q,
            objective=objective,
            source=source,
        )

    return make


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("batch", [1, 3, 8, 12])
def test_mean_over_batches_equals_the_mean_over_rows(problem, weighted, batch):
    """Eq. 2: the batch size does not change the expectation."""
    p = problem(family="point", weighted=weighted)
    everything = torch.arange(p.rows.n_rows[0]).unsqueeze(0)

    def nll(positions):
        return mean_nll(p.objective, p.q, *p.rows.take(positions), p.source)

    parts = torch.stack([nll(part) for part in everything.split(batch, dim=1)])
    torch.testing.assert_close(parts.mean(0), nll(everything), rtol=1e-12, atol=0)


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
def test_nll_and_kl_are_per_row(problem, weighted):
    """Both parts of F / N, N the sum of the weights."""
    p = problem(family="point", weighted=weighted)
    x, y, weights = p.rows.take(torch.arange(p.rows.n_rows[0]).unsqueeze(0))
    f = forward(p.q.network, p.q.layers, p.q.keep, x, p.source)
    tau = p.members.tau[:, None]
    residual = (y - f).numpy()
    nll_of_row = (0.5 * tau * residual**2 - 0.5 * np.log(tau / (2 * np.pi))).sum(-1)
    w = np.ones_like(nll_of_row) if weights is None else weights.numpy()
    n = w.sum(1)
    nll = mean_nll(p.objective, p.q, x, y, weights, p.source)
    np.testing.assert_allclose(nll, (w * nll_of_row).sum(1) / n, rtol=1e-12)
    squares = sum(
        length_scale**2 / 2 * (np.square(m).sum((1, 2)) + np.square(b).sum(1))
        for length_scale, m, b in zip(_length_scale(p), *_weights(p.q), strict=True)
    )
    kl = p.objective.kl(p.q, p.source)
    np.testing.assert_allclose(kl, squares / n, rtol=1e-12)


def _length_scale(p):
    """Length scales, (layers, members)."""
    return np.stack([fields["length_scale"] for fields in p.members.prior])


def _weights(q):
    return (
        [layer["mean"].numpy() for layer in q.layers],
        [layer["bias"].numpy() for layer in q.layers],
    )


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
def test_decay_is_two_lambda(problem, weighted):
    """Eq. 4: the gradient of KL / (N tau) is 2 lambda M; for biases without p."""
    p = problem(weighted=weighted)
    for layer in p.q.layers:
        layer["bias"] = layer["bias"] + 0.3  # it starts at zero in the last layer
        for value in layer.values():
            value.requires_grad_()
    (p.objective.kl(p.q, p.source) * p.objective.scale).sum().backward()
    n, tau = p.rows.total_weight.numpy(), p.members.tau.mean(1)
    for layer, keep, length_scale in zip(
        p.q.layers, p.members.keep, _length_scale(p), strict=True
    ):
        decay = weight_decay(keep, length_scale, n, tau)[:, None, None]
        mean = layer["mean"].detach().numpy()
        np.testing.assert_allclose(layer["mean"].grad, 2 * decay * mean, rtol=1e-12)
        decay = weight_decay(1, length_scale, n, tau)[:, None]
        bias = layer["bias"].detach().numpy()
        np.testing.assert_allclose(layer["bias"].grad, 2 * decay * bias, rtol=1e-12)


def _free_energy(p, masks, member, vector):
    """F of eq. 1 for one member and fixed masks, in NumPy; vector: its parameters."""
    sizes, likelihood = p.config.network.sizes, p.config.likelihood
    h = p.rows.x[0]
    y, n_layers = p.rows.y[0], len(sizes) - 1
    kl = 0.0
    for i in range(n_layers):
        n_weights = sizes[i] * sizes[i + 1]
        mean = vector[:n_weights].reshape(sizes[i], sizes[i + 1])
        bias = vector[n_weights : n_weights + sizes[i + 1]]
        vector = vector[n_weights + sizes[i + 1] :]
        keep = p.members.keep[i, member]
        kl += (
            _length_scale(p)[i, member] ** 2
            / 2
            * (keep * (mean**2).sum() + (bias**2).sum())
        )
        h = (h * masks[i][member]) @ mean + bias
        h = np.tanh(h) if i < n_layers - 1 else h
    if y.ndim == 1:
        nll_of_row = -p.members.tau[member] * log_softmax(h, -1)[np.arange(len(y)), y]
    else:
        tau = np.exp(vector) if likelihood.learned else p.members.tau[member]
        nll_of_row = 0.5 * (tau * (y - h) ** 2 - np.log(tau) + np.log(2 * np.pi)).sum(
            -1
        )
    w = np.ones(len(h)) if p.rows.weights is None else p.rows.weights[member]
    return (w * nll_of_row).sum() + kl


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("kind", ["gaussian", "gaussian, tau learned", "categorical"])
def test_training_follows_the_gradient_of_eq_1(engine, problem, kind, weighted):
    """Adam's gradient, of F / (N tau) or F / N, against finite differences of F.

    After one step Adam's first moment is a tenth of the gradient.
    """
    p = problem(kind, weighted=weighted, activation="tanh", n_batches=1)
    once = replace(p.members, n_epochs=np.ones(len(SEEDS), dtype=int))
    trained = engine.train(p.config, once, p.rows)
    masks = [
        p.source.bernoulli(keep, p.rows.n_rows[0], n).numpy()
        for keep, n in zip(p.q.keep, p.config.network.fan_ins, strict=True)
    ]
    names = [f"{i}/{n}" for i in range(len(masks)) for n in ("mean", "bias")]
    names += ["likelihood/log_tau"] if p.config.likelihood.learned else []
    at_start = engine.parameters(p.q)
    saved = {
        name.replace("likelihood", str(len(masks))): value
        for name, value in trained.optimizer.items()
    }
    for member in range(len(SEEDS)):
        vector = np.concatenate([at_start[name][member].ravel() for name in names])
        index = (name.replace("likelihood", str(len(masks))) for name in names)
        gradient = 10 * np.concatenate(
            [saved[f"exp_avg/{name}"][member].ravel() for name in index]
        )
        step = 1e-5
        differences = np.array(
            [
                _free_energy(p, masks, member, vector + step * direction)
                - _free_energy(p, masks, member, vector - step * direction)
                for direction in np.eye(len(vector))
            ]
        ) / (2 * step)
        scale = p.rows.total_weight[member].item()
        if not p.config.likelihood.learned:
            scale *= p.members.tau[member].mean()
        # Central differences: truncation 1e-10, cancellation 1e-11 of F (about 100).
        np.testing.assert_allclose(gradient, differences / scale, rtol=1e-6, atol=1e-8)


def test_given_tau_scales_the_prior_only(problem):
    """Eq. 3: F / (N tau) contains 1/2 ||y - f||^2 for every tau."""
    p = problem(family="point")
    x, y, _ = p.rows.take(torch.arange(p.rows.n_rows[0]).unsqueeze(0))
    gradients = []
    for factor in (1.0, 50.0):
        likelihood_params = {
            "log_tau": p.q.likelihood_params["log_tau"] + np.log(factor)
        }
        f = forward(p.q.network, p.q.layers, p.q.keep, x, p.source).requires_grad_()
        nll = (
            p.config.likelihood.nll(likelihood_params, f, y).mean(1)
            * p.objective.scale
            / factor
        )
        gradients.append(torch.autograd.grad(nll.sum(), f)[0])
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=0)


def test_geometric_weights_do_not_overflow():
    """2^B overflows from B = 1024 on."""
    actual = [kl_weight("geometric", i, 5000) for i in range(5000)]
    assert np.isfinite(actual).all()
    assert sum(actual) == pytest.approx(5000, rel=1e-12)
