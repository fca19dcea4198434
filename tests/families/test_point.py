"""Closed forms of the point mass."""

import numpy as np
import torch

from skbayesnn._engine.random import DrawRandom
from skbayesnn._families import Point
from skbayesnn._priors import GaussianPrior

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
KEEP = torch.tensor([0.5, 0.9, 1.0], dtype=torch.float64)  # not used


def _source():
    return DrawRandom(np.arange(MEMBERS), range(6), KEEP.device, KEEP.dtype)


def test_kl_is_l2_over_2_times_the_squares(seed):
    random = np.random.default_rng(seed)
    mean = random.normal(size=(MEMBERS, INPUTS, OUTPUTS))
    bias = random.normal(size=(MEMBERS, OUTPUTS))
    length_scale = np.array([0.3, 2.0, 0.0])
    prior = GaussianPrior(torch.as_tensor(length_scale))
    params = {"mean": torch.as_tensor(mean), "bias": torch.as_tensor(bias)}
    kl = Point().kl(params, KEEP, prior, _source())
    squares = (mean**2).sum((1, 2)) + (bias**2).sum(1)
    np.testing.assert_allclose(kl, length_scale**2 / 2 * squares, rtol=1e-14)
    assert kl[-1] == 0  # a flat prior: maximum likelihood


def test_linear_and_draw_are_the_mean(seed):
    random = np.random.default_rng(seed)
    mean = random.normal(size=(MEMBERS, INPUTS, OUTPUTS))
    bias = random.normal(size=(MEMBERS, OUTPUTS))
    x = random.normal(size=(MEMBERS, ROWS, INPUTS))
    params = Point().init(torch.as_tensor(mean), 1.0, torch.as_tensor(bias), KEEP)
    outputs = Point().linear(params, KEEP, torch.tensor(x), _source())
    np.testing.assert_allclose(outputs, x @ mean + bias[:, None], rtol=1e-12)
    weight, biases = Point().draw(params, KEEP, _source())
    np.testing.assert_array_equal(weight, mean[None])
    np.testing.assert_array_equal(biases, bias)
