"""Adam on the vector of all parameters, against torch.optim.Adam in float64."""

import numpy as np
import pytest
import torch

from skbayesnn._engine.optimizer import EPSILON, Adam, FlatParameters
from skbayesnn._engine.step import Schedule


@pytest.fixture
def problem_posterior(engine, seed):
    config = engine.config("gaussian, tau learned")
    members = engine.members(config, [seed, seed + 1, seed + 2], 0.9, 1.0, 1.0)
    return engine.initial_posterior(config, members)


def _step_size_and_epsilon(rate, n):
    """Step size of the n-th step, and epsilon for the biased second moment."""
    unbiased = torch.tensor(1 - 0.99**n, dtype=torch.float64).sqrt()
    return -rate * unbiased / (1 - 0.9**n), EPSILON * unbiased


def test_moments_of_finished_members_are_kept(problem_posterior):
    """Two members end at different steps; the third one continues."""
    flat = FlatParameters(problem_posterior)
    adam, results = Adam(flat), []
    for step in range(3):
        adam.step(flat.values.clone(), *_step_size_and_epsilon(0.1, step + 1))
        adam.keep_moments(np.arange(3) == step) if step < 2 else None
        results.append(Adam.moments(adam))
    alone = Adam(flat, results[2])
    assert alone.moments().keys() == results[2].keys()
    for name, values in results[2].items():
        for step in range(3):
            np.testing.assert_array_equal(values[step], results[step][name][step])
        if name.endswith("mean"):
            assert (results[2][name][0] != results[1][name][1]).any()


def test_missing_gradients_are_zero(problem_posterior):
    """Gradients are matched by name, in any order."""
    flat = FlatParameters(problem_posterior)
    parts = flat.posterior(torch.arange(len(flat.values)).to(flat.values))
    layers = [dict(reversed(layer.items())) for layer in parts.layers]
    whole = flat.vector(layers, parts.likelihood_params)
    assert torch.equal(whole, torch.arange(len(flat.values)).to(flat.values))
    del layers[1]["mean"]
    without = flat.posterior(flat.vector(layers, {}))
    assert not without.layers[1]["mean"].any()
    assert not any(value.any() for value in without.likelihood_params.values())
    assert torch.equal(without.layers[1]["bias"], parts.layers[1]["bias"])
    assert torch.equal(without.layers[2]["mean"], parts.layers[2]["mean"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_schedule(engine, dtype):
    """The formulas; tensors of single steps and arrays of many have the same values."""
    config = engine.config(kl_weighting="geometric", kl_warm_up=0.5, learning_rate=0.1)
    n_epochs, first = np.array([2, 4, 2]), np.array([0, 7, 0])
    member_of = torch.tensor([2, 2, 1, 0])
    schedule = Schedule(config, n_epochs, first, member_of)
    arrays = schedule.arrays(range(12), dtype)[schedule.index]
    for m, n_steps in enumerate(3 * n_epochs):
        for done in range(12):
            rate = 0.05 * (1 + np.cos(np.pi * done / n_steps))
            n = int(first[m]) + done + 1
            expected = (
                *(v.item() for v in _step_size_and_epsilon(rate, n)),
                config.kl_weights(done % 3, np.array((n - 1) / n_steps)),
            )
            if done >= n_steps:
                expected = 0.0, *expected[1:]
            # A few roundings of the type, larger where the cosine is near -1.
            accuracy = 100 * torch.finfo(dtype).eps
            np.testing.assert_allclose(arrays[m, done], expected, rtol=accuracy)
    steps = list(schedule.step_values(torch.empty(0, dtype=dtype)))
    assert len(steps) == 12
    values = torch.stack([torch.stack(step) for step in steps])
    np.testing.assert_array_equal(values.permute(2, 0, 1), arrays[member_of.numpy()])
