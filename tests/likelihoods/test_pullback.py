"""``nll_vjp`` of every likelihood against autograd through ``nll``."""

import pytest
import torch

from skbayesnn._likelihoods import Categorical, Gaussian, Heteroscedastic
from skbayesnn._likelihoods.gaussian import LARGEST_LOG_TAU

MEMBERS, ROWS, TARGETS = 3, 5, 2

LIKELIHOODS = {
    "gaussian": Gaussian(TARGETS, learned=False),
    "gaussian, tau learned": Gaussian(TARGETS, learned=True),
    "heteroscedastic": Heteroscedastic(TARGETS, learned=False),
    "heteroscedastic, tau learned": Heteroscedastic(TARGETS, learned=True),
    "categorical": Categorical(4),
}


@pytest.mark.parametrize("lead", [1, MEMBERS], ids=["shared rows", "own rows"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_pullback_is_autograds(name, lead, seed):
    likelihood = LIKELIHOODS[name]
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    classes = name == "categorical"
    params = likelihood.init(normal(MEMBERS, 1 if classes else TARGETS).exp())
    likelihood.schedule(params, 0.4)
    if likelihood.learned:
        params["log_tau"][0, 0] = LARGEST_LOG_TAU + 1  # clamped: no gradient
    outputs = normal(MEMBERS, ROWS, likelihood.n_outputs)
    y = normal(lead, ROWS, TARGETS)
    if classes:
        y = torch.randint(4, (lead, ROWS), generator=generator)
    gradient = normal(MEMBERS, ROWS)

    leaf = outputs.clone().requires_grad_()
    learned = {
        key: params[key].clone().requires_grad_() for key in likelihood.trainable
    }
    nll = likelihood.nll(params | learned, leaf, y)
    expected = torch.autograd.grad(nll, [leaf, *learned.values()], gradient)

    with torch.no_grad():
        result, pullback = likelihood.nll_vjp(params, outputs, y)
        of_outputs, of_learned = pullback(gradient)
    torch.testing.assert_close(result, nll)
    torch.testing.assert_close(of_outputs, expected[0])
    assert of_learned.keys() == learned.keys()
    for value, wanted in zip(of_learned.values(), expected[1:], strict=True):
        torch.testing.assert_close(value, wanted)
