"""Closed forms of the point mass."""

import numpy as np
import torch

from skbayesnn.families import point
from skbayesnn.inference.noise import DrawNoise
from skbayesnn.priors import GaussianPrior

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
KEEP = torch.tensor([0.5, 0.9, 1.0], dtype=torch.float64)  # of no meaning here


def test_kl_is_l2_over_2_times_the_squares(seed):
    mean = np.random.default_rng(seed).normal(size=(MEMBERS, INPUTS, OUTPUTS))
    length_scale = np.array([0.3, 2.0, 0.0])
    prior = GaussianPrior(torch.as_tensor(length_scale))
    kl = point.kl({"mean": torch.as_tensor(mean)}, KEEP, prior)
    expected = length_scale**2 / 2 * (mean**2).sum((1, 2))
    np.testing.assert_allclose(kl, expected, rtol=1e-14)
    assert kl[-1] == 0  # a flat prior: maximum likelihood


def test_linear_and_draw_are_the_mean(seed):
    random = np.random.default_rng(seed)
    mean = random.normal(size=(MEMBERS, INPUTS, OUTPUTS))
    bias = random.normal(size=(MEMBERS, OUTPUTS))
    x = random.normal(size=(MEMBERS, ROWS, INPUTS))
    params = point.init(torch.as_tensor(mean), KEEP)
    noise = DrawNoise(np.arange(MEMBERS), range(6), KEEP.device, KEEP.dtype)
    outputs = point.linear(params, KEEP, torch.tensor(x), torch.tensor(bias), noise)
    np.testing.assert_allclose(outputs, x @ mean + bias[:, None], rtol=1e-12)
    np.testing.assert_array_equal(point.draw(params, KEEP, noise), mean[None])
