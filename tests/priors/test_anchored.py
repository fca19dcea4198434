"""The anchored prior: a normal prior about its own draw."""

import numpy as np
import torch
from scipy.stats import norm

from skbayesnn._priors import AnchoredPrior

MEMBERS, INPUTS, OUTPUTS = 3, 4, 2


def test_density_about_the_anchor(seed):
    random = np.random.default_rng(seed)
    scale, bias_scale = np.array([0.3, 1.0, 4.0]), np.array([2.0, 0.5, 1.0])
    numbers = random.normal(size=(MEMBERS, INPUTS, OUTPUTS))
    bias_numbers = random.normal(size=(MEMBERS, OUTPUTS))
    prior = AnchoredPrior(
        *map(torch.as_tensor, (scale, bias_scale, numbers, bias_numbers))
    )
    weight, bias = random.normal(size=numbers.shape), random.normal(size=(MEMBERS, 2))
    std = 1 / scale[:, None, None]
    np.testing.assert_allclose(
        prior.weight.log_density(torch.as_tensor(weight)),
        norm(numbers * std, std).logpdf(weight).sum((1, 2)),
    )
    std = 1 / bias_scale[:, None]
    np.testing.assert_allclose(
        prior.bias.log_density(torch.as_tensor(bias)),
        norm(bias_numbers * std, std).logpdf(bias).sum(1),
    )
