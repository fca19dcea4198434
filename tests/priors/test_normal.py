"""The Gaussian prior against scipy's."""

import numpy as np
import torch
from scipy.stats import norm

from skbayesnn.priors import GaussianPrior


def test_cross_entropy_is_minus_log_density_up_to_its_normaliser(seed):
    """At a point mass W: log p(0) - log p(W) under N(0, I / l^2)."""
    length_scale = np.array([0.1, 1.0, 7.0])
    weights = np.random.default_rng(seed).normal(size=(3, 4, 2))
    density = norm(scale=1 / length_scale[:, None, None])
    expected = (density.logpdf(0) - density.logpdf(weights)).sum((1, 2))
    prior = GaussianPrior(torch.as_tensor(length_scale))
    squares = torch.as_tensor((weights**2).sum((1, 2)))
    np.testing.assert_allclose(prior.cross_entropy(squares), expected, rtol=1e-12)


def test_length_scale_zero_is_flat():
    prior = GaussianPrior(torch.zeros(3))
    assert not prior.cross_entropy(torch.tensor([0.0, 1.0, 1e9])).any()
