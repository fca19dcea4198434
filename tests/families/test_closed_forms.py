"""Closed forms of families whose masks or noise have a given size; float64.

The KL and the moments of every family against one formula and against the family's own
draws, with all masks enumerated or by a rule that is exact for normal numbers.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.special import logit
from scipy.stats import bernoulli, norm

from skbayesnn._engine.random import DrawRandom
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import (
    Additive,
    Bernoulli,
    Concrete,
    DropConnect,
    Gaussian,
    Needed,
    Point,
)
from skbayesnn._priors import GaussianPrior

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 5, 4, 2
WEIGHTS = INPUTS * OUTPUTS
CPU = torch.device("cpu")
KEEP = torch.tensor([0.5, 0.95, 0.8], dtype=torch.float64)
VARIANCE = torch.tensor([1.7, 0.02, 0.4], dtype=torch.float64)
LENGTH_SCALE = torch.tensor([0.3, 2.0, 1.1], dtype=torch.float64)
PRIOR = GaussianPrior(LENGTH_SCALE)


class Law(NamedTuple):
    """A family, its number of random numbers per draw, and what these are."""

    family: object
    n_random: int = 0
    masks: bool = False
    # Weights of a row of W share their random number.
    by_row: bool = False
    # Training draws normal outputs: random numbers per row of X.
    n_of_row: int = 0


LAWS = {
    "point": Law(Point()),
    "bernoulli": Law(Bernoulli(), INPUTS, masks=True, by_row=True),
    "concrete": Law(Concrete(), INPUTS, masks=True, by_row=True),
    "dropconnect": Law(DropConnect(), WEIGHTS, masks=True, n_of_row=OUTPUTS),
    "gaussian": Law(Gaussian(), INPUTS, by_row=True, n_of_row=INPUTS),
    "additive": Law(Additive(), WEIGHTS, n_of_row=OUTPUTS),
}


def of(condition):
    """The families for which a condition holds, as parameters of ``law``."""
    laws = {name: law for name, law in LAWS.items() if condition(law)}
    return pytest.mark.parametrize("law", laws.values(), ids=laws)


every_law = of(lambda law: True)


@pytest.fixture
def params(law, seed):
    random = np.random.default_rng(seed)
    params = {
        "mean": torch.as_tensor(random.normal(size=(MEMBERS, INPUTS, OUTPUTS))),
        "bias": torch.as_tensor(random.normal(size=(MEMBERS, OUTPUTS))),
    }
    # A learned rate replaces ``keep``; only ``init`` of additive noise uses it.
    extra = {
        Concrete: {"logit": torch.as_tensor(logit(KEEP.numpy()))},
        Additive: {"variance": VARIANCE},
    }
    return params | extra.get(type(law.family), {})


def draws(law, params, exact):
    """All outcomes of a draw, weights and biases, with probabilities or weights."""
    if law.masks:
        source, probability = exact.masks(KEEP, law.n_random)
    else:
        source = exact.nodes(law.n_random)
        probability = np.full((2**law.n_random, MEMBERS), 0.5**law.n_random)
    weight, bias = law.family.draw(params, KEEP, source)
    return weight.expand(len(probability), *weight.shape[1:]), bias, probability


def moments(law, params):
    """Mean (members, weights) and covariance of W in closed form."""
    mean = params["mean"].flatten(1).numpy()
    p = KEEP.numpy()[:, None, None]
    if isinstance(law.family, Point):
        return mean, np.zeros((MEMBERS, WEIGHTS, WEIGHTS))
    if isinstance(law.family, Additive):
        return mean, VARIANCE.numpy()[:, None, None] * np.eye(WEIGHTS)
    block = np.ones((OUTPUTS, OUTPUTS)) if law.by_row else np.eye(OUTPUTS)
    products = mean[:, :, None] * mean[:, None]
    return p[..., 0] * mean, p * (1 - p) * products * np.kron(np.eye(INPUTS), block)


def moments_of(values, probability):
    """Mean and covariance of values (outcomes, members, n)."""
    mean = np.einsum("ti,tin->in", probability, values)
    centred = values - mean
    return mean, np.einsum("ti,tin,tim->inm", probability, centred, centred)


@every_law
def test_kl_in_closed_form(law, params):
    """Eq. 4 before the division by N tau, l^2 / 2 (p ||M||^2 + ||b||^2), p = E z.

    Learned masks add their entropy, -K H(p) [GHK17 eq. 3 and 4], and additive noise of
    variance v adds K D / 2 (l^2 v - log(l^2 v) - 1).
    """
    l2, p = LENGTH_SCALE**2, KEEP
    extra = 0.0
    if isinstance(law.family, Point | Additive):
        p = torch.ones(MEMBERS)
    if isinstance(law.family, Concrete):
        extra = -INPUTS * bernoulli(KEEP).entropy()
    if isinstance(law.family, Additive):
        ratio = l2 * VARIANCE
        extra = (0.5 * WEIGHTS * (ratio - ratio.log() - 1)).numpy()
    squares = p * params["mean"].square().sum((1, 2))
    squares = squares + params["bias"].square().sum(1)
    expected = (l2 / 2 * squares).numpy() + extra
    kl = law.family.kl(params, KEEP, PRIOR, None)
    np.testing.assert_allclose(kl, expected, rtol=1e-13, atol=1e-13)
    # A flat prior: maximum likelihood.
    if isinstance(law.family, Point):
        flat = GaussianPrior(0 * LENGTH_SCALE)
        assert not law.family.kl(params, KEEP, flat, None).any()


@every_law
def test_kl_is_the_expectation_under_q(law, params, exact):
    """E_q[log q - log p] over all draws; -log p alone if rates are given."""
    weight, bias, probability = draws(law, params, exact)
    terms = exact.minus_log_prior(LENGTH_SCALE, weight, bias)
    if isinstance(law.family, Concrete):
        terms = terms + np.log(probability)
    if isinstance(law.family, Additive):
        std = VARIANCE.sqrt().numpy()[:, None, None]
        log_q = norm.logpdf(weight, params["mean"], std).sum((-2, -1))
        terms = terms + log_q - WEIGHTS * norm.logpdf(0, 0, 1 / LENGTH_SCALE)
    kl = law.family.kl(params, KEEP, PRIOR, None)
    expected = (probability * terms).sum(0)
    np.testing.assert_allclose(kl, expected, rtol=1e-12, atol=1e-12)


@every_law
def test_moments_of_the_weights(law, params, exact):
    """Gaussian dropout has the two moments of Bernoulli dropout."""
    if law.masks or not law.n_random:
        weight, _, probability = draws(law, params, exact)
        actual = moments_of(weight.flatten(2).numpy(), probability)
    else:
        actual = exact.normal_moments(
            lambda source: law.family.draw(params, KEEP, source)[0], law.n_random
        )
    mean, covariance = moments(law, params)
    np.testing.assert_allclose(actual[0], mean, rtol=1e-12)
    np.testing.assert_allclose(actual[1], covariance, atol=1e-13)


@of(lambda law: law.n_of_row)
def test_moments_of_the_activations(law, params, exact, seed):
    """Those of x W + b of a row; in training rows are independent.

    DropConnect's masks correlate no outputs of a row.
    """
    x = torch.as_tensor(np.random.default_rng([seed, 1]).normal(size=(ROWS, INPUTS)))
    mean, covariance = exact.normal_moments(
        lambda source: law.family.linear(params, KEEP, x[None], source),
        ROWS * law.n_of_row,
    )
    mean_of_weights, covariance_of_weights = moments(law, params)
    expected = x.numpy() @ mean_of_weights.reshape(MEMBERS, INPUTS, OUTPUTS)
    expected = (expected + params["bias"].numpy()[:, None]).reshape(MEMBERS, -1)
    np.testing.assert_allclose(mean, expected, rtol=1e-11)
    shape = MEMBERS, INPUTS, OUTPUTS, INPUTS, OUTPUTS
    of_row = np.einsum(
        "ra,rb,iajbk->irjk", x, x, covariance_of_weights.reshape(shape), optimize=True
    )
    expected = np.einsum("irjk,rs->irjsk", of_row, np.eye(ROWS))
    np.testing.assert_allclose(
        covariance, expected.reshape(covariance.shape), atol=1e-12
    )


@of(lambda law: law.masks)
def test_masks_drop_weights_and_do_not_rescale_them(law, params, exact):
    """A weight is m or zero, never m / p; whole rows if these share a mask."""
    weight, bias, _ = draws(law, params, exact)
    kept, dropped = weight == params["mean"], weight == 0
    if law.by_row:
        kept, dropped = kept.all(-1), dropped.all(-1)
    assert (kept ^ dropped).all()
    assert len(weight[:, 0].flatten(1).unique(dim=0)) == 2**law.n_random
    assert torch.equal(bias, params["bias"])


@of(lambda law: not isinstance(law.family, Additive))
def test_start_has_the_given_size(law, params):
    """E ||W||^2 is the given squared norm."""
    wanted = params["mean"]
    start = law.family.init(wanted, 1.0, params["bias"], KEEP)
    mean, covariance = moments(law, start)
    squares = np.square(mean).sum(1) + covariance.trace(axis1=1, axis2=2)
    np.testing.assert_allclose(squares, wanted.square().sum((1, 2)), rtol=1e-13)
    np.testing.assert_array_equal(start["bias"], params["bias"])


@pytest.mark.parametrize("law", [LAWS["additive"]])
def test_start_divides_the_variance_of_the_weights(params):
    """alpha v = (1 - p) s^2 is noise, v = p s^2 is in the means: E ||W||^2 is as given.

    alpha = (1 - p) / p, as in Gaussian dropout.
    """
    scale = 0.7
    start = Additive().init(params["mean"], scale, params["bias"], KEEP)
    v = KEEP * scale**2
    np.testing.assert_allclose(start["variance"], (1 - KEEP) / KEEP * v, rtol=1e-14)
    kept = start["mean"].square().sum((1, 2)) / params["mean"].square().sum((1, 2))
    np.testing.assert_allclose(kept + start["variance"] / scale**2, 1, rtol=1e-14)


@pytest.mark.parametrize("law", [LAWS["bernoulli"]])
def test_no_dropout_equals_the_point_mass(params, seed):
    """At p = 1 all functions return the values of the point family, bit for bit."""
    seeds, keep = seed + np.arange(MEMBERS), torch.ones_like(KEEP)
    x = torch.as_tensor(np.random.default_rng([seed, 2]).normal(size=(ROWS, INPUTS)))
    results = []
    for family in (Bernoulli(), Point()):
        start = family.init(params["mean"].clone(), 1.0, params["bias"].clone(), keep)
        source = TrainingRandom(seeds, CPU, torch.float64)
        source.start_epoch(0)
        draw = DrawRandom(seeds, range(1), CPU, torch.float64)
        outputs, pullback = family.linear_vjp(start, keep, x[None].clone(), source)
        gradients, _ = pullback(torch.ones_like(outputs), Needed.NONE)
        results.append(
            [
                *(values[name] for values in (start, gradients) for name in params),
                family.linear(start, keep, x[None], source),
                outputs,
                *family.draw(start, keep, draw),
                family.kl(start, keep, PRIOR, source),
            ]
        )
    outputs = x.numpy() @ params["mean"].numpy() + params["bias"].numpy()[:, None]
    np.testing.assert_allclose(results[1][4], outputs, rtol=1e-12)
    for masked, point in zip(*results, strict=True):
        assert torch.equal(masked, point)
