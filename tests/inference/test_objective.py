"""The objective against eq. 1 to 4, written anew in NumPy and float64."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from skbayesnn.inference.noise import TrainingNoise
from skbayesnn.inference.objective import Objective, weight_decay
from skbayesnn.priors import GaussianPrior

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
    """A function that makes the parts of a program of three members."""

    def make(kind="gaussian", **changes):
        of_rows = {n: changes.pop(n) for n in ("weighted", "shared") if n in changes}
        n_rows = changes.pop("n_rows", 24)
        plan = engine.plan(kind, **changes)
        members = engine.members(plan, SEEDS + seed, KEEP, LENGTH_SCALE, TAU)
        rows = engine.rows(plan, len(SEEDS), seed, n_rows=n_rows, **of_rows)
        q = engine.start(plan, members)
        prior = tuple(GaussianPrior(torch.as_tensor(v)) for v in members.length_scale)
        objective = Objective(
            prior,
            rows.mean_weight,
            rows.total_weight,
            torch.as_tensor(1 / members.tau.mean(1)),
        )
        noise = TrainingNoise(members.seeds, torch.device("cpu"), torch.float64)
        noise.start_epoch(0)
        return SimpleNamespace(
            plan=plan, members=members, rows=rows, q=q, objective=objective, noise=noise
        )

    return make


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("batch", [1, 3, 8, 12])
def test_mean_over_batches_is_the_whole(problem, weighted, batch):
    """Eq. 2: the batch size changes nothing in expectation, to rounding."""
    p = problem(family="point", weighted=weighted)
    everything = torch.arange(p.rows.n_rows).unsqueeze(0)

    def nll(positions):
        return p.objective.nll(p.q, *p.rows.take(positions), p.noise)

    parts = torch.stack([nll(part) for part in everything.split(batch, dim=1)])
    torch.testing.assert_close(parts.mean(0), nll(everything), rtol=1e-12, atol=0)


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
def test_nll_and_kl_are_per_row(problem, weighted):
    """Both halves of F / N, N the sum of the weights."""
    p = problem(family="point", weighted=weighted)
    x, y, weights = p.rows.take(torch.arange(p.rows.n_rows).unsqueeze(0))
    f = p.q.network.forward(p.q.layers, p.q.keep, x, p.noise)
    tau = p.members.tau[:, None]
    residual = (y - f).numpy()
    of_row = (0.5 * tau * residual**2 - 0.5 * np.log(tau / (2 * np.pi))).sum(-1)
    w = np.ones_like(of_row) if weights is None else weights.numpy()
    n = w.sum(1)
    nll = p.objective.nll(p.q, x, y, weights, p.noise)
    np.testing.assert_allclose(nll, (w * of_row).sum(1) / n, rtol=1e-12)
    squares = sum(
        length_scale**2 / 2 * (np.square(m).sum((1, 2)) + np.square(b).sum(1))
        for length_scale, m, b in zip(
            p.members.length_scale, *_weights(p.q), strict=True
        )
    )
    np.testing.assert_allclose(p.objective.kl(p.q), squares / n, rtol=1e-12)


def _weights(q):
    return (
        [layer["mean"].numpy() for layer in q.layers],
        [layer["bias"].numpy() for layer in q.layers],
    )


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
def test_decay_is_two_lambda(problem, weighted):
    """Eq. 4: the gradient of KL / (N tau) is 2 lambda M, and without p for biases."""
    p = problem(weighted=weighted)
    for layer in p.q.layers:
        layer["bias"] = layer["bias"] + 0.3  # it starts at zero in the last layer
        for value in layer.values():
            value.requires_grad_()
    (p.objective.kl(p.q) * p.objective.scale).sum().backward()
    n, tau = p.rows.total_weight.numpy(), p.members.tau.mean(1)
    for layer, keep, length_scale in zip(
        p.q.layers, p.members.keep, p.members.length_scale, strict=True
    ):
        decay = weight_decay(keep, length_scale, n, tau)[:, None, None]
        mean = layer["mean"].detach().numpy()
        np.testing.assert_allclose(layer["mean"].grad, 2 * decay * mean, rtol=1e-12)
        decay = weight_decay(1, length_scale, n, tau)[:, None]
        bias = layer["bias"].detach().numpy()
        np.testing.assert_allclose(layer["bias"].grad, 2 * decay * bias, rtol=1e-12)


def _free_energy(p, masks, member, vector):
    """F of eq. 1 for one member and fixed masks, in NumPy; vector: its parameters."""
    sizes, likelihood = p.plan.network.sizes, p.plan.likelihood
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
            p.members.length_scale[i, member] ** 2
            / 2
            * (keep * (mean**2).sum() + (bias**2).sum())
        )
        h = (h * masks[i][member]) @ mean + bias
        h = np.tanh(h) if i < n_layers - 1 else h
    if y.ndim == 1:
        of_row = -p.members.tau[member] * log_softmax(h, -1)[np.arange(len(y)), y]
    else:
        tau = np.exp(vector) if likelihood.learned else p.members.tau[member]
        of_row = 0.5 * (tau * (y - h) ** 2 - np.log(tau) + np.log(2 * np.pi)).sum(-1)
    w = np.ones(len(h)) if p.rows.weights is None else p.rows.weights[member]
    return (w * of_row).sum() + kl


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("kind", ["gaussian", "gaussian, tau learned", "categorical"])
def test_training_follows_the_gradient_of_eq_1(engine, problem, kind, weighted):
    """The gradient that Adam sees, F / (N tau) or F / N, against differences of F.

    After one step Adam's first moment is a tenth of the gradient.
    """
    p = problem(kind, weighted=weighted, activation="tanh", n_epochs=1, batch_size=99)
    trained = engine.train(p.plan, p.members, p.rows)
    masks = [
        p.noise.bernoulli(keep, p.rows.n_rows, n).numpy()
        for keep, n in zip(p.q.keep, p.plan.network.fan_ins, strict=True)
    ]
    names = [f"{i}/{n}" for i in range(len(masks)) for n in ("mean", "bias")]
    names += ["noise/log_tau"] if p.plan.likelihood.learned else []
    at_start = engine.parameters(p.q)
    saved = {
        name.replace("noise", str(len(masks))): value
        for name, value in trained.optimizer.items()
    }
    for member in range(len(SEEDS)):
        vector = np.concatenate([at_start[name][member].ravel() for name in names])
        index = (name.replace("noise", str(len(masks))) for name in names)
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
        if not p.plan.likelihood.learned:
            scale *= p.members.tau[member].mean()
        # Central differences: truncation 1e-10, cancellation 1e-11 of F (about 100).
        np.testing.assert_allclose(gradient, differences / scale, rtol=1e-6, atol=1e-8)


def test_given_tau_scales_the_prior_only(problem):
    """Eq. 3: F / (N tau) has 1/2 ||y - f||^2, whatever tau."""
    p = problem(family="point")
    x, y, _ = p.rows.take(torch.arange(p.rows.n_rows).unsqueeze(0))
    gradients = []
    for factor in (1.0, 50.0):
        noise = {"log_tau": p.q.noise["log_tau"] + np.log(factor)}
        f = p.q.network.forward(p.q.layers, p.q.keep, x, p.noise).requires_grad_()
        nll = p.plan.likelihood.nll(noise, f, y).mean(1) * p.objective.scale / factor
        gradients.append(torch.autograd.grad(nll.sum(), f)[0])
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=0)
