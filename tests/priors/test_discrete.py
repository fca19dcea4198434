"""The discrete prior: probabilities, KL and evidence bound by enumeration; float64."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm

from skbayesnn import BBBRegressor, MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._families import FAMILIES
from skbayesnn._priors import N_POSITIVE, DiscretePrior, GaussianPrior
from skbayesnn.networks import ConvNet

MEMBERS, INPUTS, OUTPUTS = 4, 3, 2
# The last is uniform.
LENGTH_SCALE = np.array([0.3, 2.0, 5.0, 0.0])
STEP = np.array([0.001, 0.25, 1.0, 0.5])
KEEP = torch.tensor([0.8, 0.5, 0.9, 0.7], dtype=torch.float64)
NUMBERS = np.arange(-N_POSITIVE, N_POSITIVE + 1)


@pytest.fixture
def prior():
    return DiscretePrior(torch.as_tensor(LENGTH_SCALE), torch.as_tensor(STEP))


def log_probabilities():
    """Of all values: (members, values), computed in another way."""
    energy = 0.5 * (LENGTH_SCALE * STEP)[:, None] ** 2 * NUMBERS**2
    return -energy - logsumexp(-energy, axis=1, keepdims=True)


def numbered(seed):
    """Numbers of weights and biases, with a unit whose weights are zero."""
    random = np.random.default_rng([seed, 51])
    weight = random.integers(-4, 5, size=(MEMBERS, INPUTS, OUTPUTS))
    weight[:, 0] = 1, -2
    weight[:, 1] = 0
    return weight, random.integers(-4, 5, size=(MEMBERS, OUTPUTS))


def test_log_density_on_a_finite_set(prior):
    """16 bits of values, whose probabilities sum to one; others have none."""
    assert len(NUMBERS) == 2**16 - 1
    values = torch.as_tensor(NUMBERS[:, None] * STEP)
    for part, extra in ((prior.weight, 2), (prior.bias, 1)):
        shaped = values.view(len(NUMBERS), MEMBERS, *(1,) * extra)
        actual = part.log_density(shaped).numpy().T
        np.testing.assert_allclose(actual, log_probabilities(), rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(np.exp(actual).sum(1), 1, rtol=1e-10)
        assert part.log_density(shaped[:7] + 1e-4).isneginf().all()


def test_values_are_rounded_to_the_nearest(prior, seed):
    numbers, _ = numbered(seed)
    step = STEP[:, None, None]
    random = np.random.default_rng(seed)
    near = numbers + random.uniform(-0.49, 0.49, size=numbers.shape)
    actual = prior.weight.nearest(torch.as_tensor(near * step))
    np.testing.assert_allclose(actual, numbers * step, rtol=1e-12)
    far = prior.weight.nearest(torch.full((MEMBERS, 1, 1), 1e6).double())
    np.testing.assert_allclose(far.flatten(), N_POSITIVE * STEP)


def masks_of(name, p):
    """All masks of W, (masks, inputs, outputs), and their log probabilities."""
    if name == "point":
        return np.ones((1, INPUTS, OUTPUTS)), np.zeros(1)
    units = INPUTS * OUTPUTS if name == "dropconnect" else INPUTS
    masks = np.array(list(product([0, 1], repeat=units)), dtype=float)
    log_p = (masks * np.log(p) + (1 - masks) * np.log(1 - p)).sum(1)
    if name == "dropconnect":
        return masks.reshape(-1, INPUTS, OUTPUTS), log_p
    return np.repeat(masks[:, :, None], OUTPUTS, axis=2), log_p


@pytest.mark.parametrize("name", ["point", "bernoulli", "dropconnect", "concrete"])
def test_kl_is_the_sum_over_all_weights(prior, seed, name):
    """The sum of q log(q / p) over the distinct W: masks of zeros do not count."""
    weight, bias = numbered(seed)
    log_p = log_probabilities()
    family = FAMILIES[name]()
    params = {
        "mean": torch.as_tensor(weight * STEP[:, None, None]),
        "bias": torch.as_tensor(bias * STEP[:, None]),
    }
    if name == "concrete":
        params["logit"] = KEEP.logit()
    actual = family.kl(params, KEEP, prior, None)
    actual = actual + family.kl_constant(params, KEEP, prior)
    for member in range(MEMBERS):
        masks, log_q = masks_of(name, KEEP[member].item())
        drawn = (masks * weight[member]).astype(int).reshape(len(masks), -1)
        distinct, index = np.unique(drawn, axis=0, return_inverse=True)
        assert name == "point" or len(distinct) < len(masks)
        expected = 0.0
        for i, values in enumerate(distinct):
            q = np.exp(log_q[index.ravel() == i]).sum()
            # Numbers of values are their indices, from -N_POSITIVE on.
            numbers = np.concatenate([values, bias[member]]) + N_POSITIVE
            expected += q * (np.log(q) - log_p[member, numbers].sum())
        assert actual[member].item() == pytest.approx(expected, rel=1e-10)


def test_fine_steps_are_the_gaussian_prior(seed):
    """A probability is the density times the step; relative error (l step)^2 / 24."""
    length_scale, step = torch.tensor([0.5, 2.0]).double(), torch.tensor([0.002] * 2)
    discrete = DiscretePrior(length_scale, step.double()).weight
    random = np.random.default_rng(seed)
    values = discrete.nearest(torch.as_tensor(random.normal(size=(2, INPUTS, OUTPUTS))))
    expected = GaussianPrior(length_scale).weight.log_density(values)
    expected = expected + INPUTS * OUTPUTS * np.log(0.002)
    np.testing.assert_allclose(discrete.log_density(values), expected, atol=1e-5)


def test_normal_weights_have_an_infinite_kl(prior):
    variance = torch.full((MEMBERS, INPUTS, OUTPUTS), 0.1).double()
    assert prior.weight.kl_of_width(variance).isposinf().all()


# ---- estimators

ROWS, COLUMNS = 29, 1
SMALL = {
    "length_scale": 1.0,
    "tau": 4.0,
    "standardize": False,
    "max_iter": 60,
    "learning_rate_init": 0.05,
    "n_draws": 5,
    "dtype": "float64",
    "device": "cpu",
}


@pytest.fixture
def rows(seed):
    random = np.random.default_rng([seed, 52])
    X = random.normal(size=(ROWS, COLUMNS))
    return X, 1.2 * X[:, 0] + 0.5 + 0.5 * random.normal(size=ROWS)


def log_evidence(X, y, step):
    """By a sum over slopes and intercepts within 60 steps, in nats.

    All omitted terms are positive: the evidence is at least this.
    """
    values = step * np.arange(-60, 61)
    log_prior = -0.5 * values**2 - logsumexp(-0.5 * values**2)
    slope, intercept = np.meshgrid(values, values, indexing="ij")
    f = slope[..., None] * X[:, 0] + intercept[..., None]
    log_joint = norm.logpdf(y, f, 0.5).sum(-1) + log_prior[:, None] + log_prior
    return logsumexp(log_joint)


@pytest.mark.parametrize("step", [0.1, 0.5])
def test_bound_of_a_point_is_its_joint_log_density(rows, seed, step):
    """log p(y, w) of one value w: at most log p(y)."""
    X, y = rows
    model = MCDropoutRegressor(
        (), dropout=0, prior="discrete", prior_step=step, random_state=seed, **SMALL
    ).fit(X, y)
    slope, intercept = (
        model.parameters_[f"layers/0/{name}"].item() for name in ("mean", "bias")
    )
    # 200 steps contain all of the mass of N(0, 1).
    log_z = logsumexp(-0.5 * (step * np.arange(-200, 201)) ** 2)
    expected = norm.logpdf(y, slope * X[:, 0] + intercept, 0.5).sum()
    expected -= 0.5 * (slope**2 + intercept**2) + 2 * log_z
    assert model.elbo_ == pytest.approx(expected, rel=1e-9)
    assert model.elbo_std_error_ == 0
    assert model.elbo_ <= log_evidence(X, y, step) + 1e-9


@pytest.mark.parametrize(
    "options", [{"dropout": 0.05}, {"dropout": 0.2, "noise": "dropconnect"}]
)
def test_bound_is_below_the_evidence(rows, seed, options):
    """With masks, which DropConnect and dropout have alike for one column and output.

    The expectation over both masks is known: f has the slope, or 0.
    """
    X, y = rows
    options = options | {"prior": "discrete", "prior_step": 0.1}
    model = MCDropoutRegressor((), **options, random_state=seed, **SMALL).fit(X, y)
    slope, intercept = (
        model.parameters_[f"layers/0/{name}"].item() for name in ("mean", "bias")
    )
    p = 1 - options["dropout"]
    log_z = logsumexp(-0.5 * (0.1 * np.arange(-400, 401)) ** 2)
    log_likelihood = [
        norm.logpdf(y, z * slope * X[:, 0] + intercept, 0.5).sum() for z in (0, 1)
    ]
    exact = np.dot([1 - p, p], log_likelihood)
    exact -= 0.5 * (p * slope**2 + intercept**2) + 2 * log_z
    exact -= p * np.log(p) + (1 - p) * np.log(1 - p)
    assert exact < log_evidence(X, y, 0.1)
    if "noise" not in options:  # DropConnect estimates it with normal activations.
        assert abs(model.elbo_ - exact) < 6 * model.elbo_std_error_


@pytest.mark.parametrize(
    "options", [{}, {"dropout": "auto"}, {"dropout": 0.1, "noise": "dropconnect"}]
)
@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_weights_of_the_gaussian_prior_are_rounded(rows, seed, options, kind):
    """The training is the same; all weights and biases are multiples of the step."""
    X, y = rows
    y = y > 0.5 if kind is MCDropoutClassifier else y
    options = SMALL | {"hidden_layer_sizes": (5,), "random_state": seed} | options
    gaussian = kind(**options).fit(X, y)
    discrete = kind(**options, prior="discrete", prior_step=0.01).fit(X, y)
    for i, name in product(range(2), ("mean", "bias")):
        key = f"layers/{i}/{name}"
        numbers = np.round(gaussian.parameters_[key] / 0.01)
        np.testing.assert_allclose(discrete.parameters_[key], 0.01 * numbers, rtol=1e-9)
    np.testing.assert_allclose(discrete.weight_decay_, gaussian.weight_decay_)
    # Of 2 * 5 + 5 + 1 values, each has a log Z of at least log(2.5 / .01).
    assert discrete.elbo_ < gaussian.elbo_


def test_continued_fits_stay_on_the_values(rows, seed):
    X, y = rows
    options = SMALL | {"prior": "discrete", "prior_step": 0.01, "random_state": seed}
    model = MCDropoutRegressor((5,), **options, warm_start=True).fit(X, y)
    before = model.parameters_["layers/0/mean"]
    model.fit(X, y).partial_fit(X, y)
    after = model.parameters_["layers/0/mean"]
    assert not np.array_equal(before, after)
    np.testing.assert_allclose(after / 0.01, np.round(after / 0.01), atol=1e-9)


def test_flat_prior_is_proper(rows, seed):
    """length_scale=0 is uniform over 2^16 - 1 values of every weight and bias."""
    X, y = rows
    options = SMALL | {"length_scale": 0.0, "dropout": 0.0, "random_state": seed}
    model = MCDropoutRegressor((), **options, prior="discrete").fit(X, y)
    residuals = y - model.predict(X)
    expected = norm.logpdf(residuals, 0, 0.5).sum() - 2 * np.log(2**16 - 1)
    assert model.elbo_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (BBBRegressor(prior="discrete"), "KL to a discrete prior is infinite"),
        (
            MCDropoutRegressor(prior="discrete", noise="gaussian"),
            "requires noise='bernoulli' or 'dropconnect'.*got noise='gaussian'",
        ),
        (
            MCDropoutRegressor(prior="discrete", noise="additive"),
            "a density is infinite; got noise='additive'",
        ),
        (
            MCDropoutRegressor(prior="discrete", network=ConvNet((1, 1, 1), pool=1)),
            "requires a perceptron.*got network=ConvNet",
        ),
        (
            MCDropoutRegressor(prior="discrete", prior_step=0),
            "`prior_step` must be finite and > 0; got 0",
        ),
        (MCDropoutRegressor(prior="laplace"), "one of 'gaussian', 'discrete'"),
    ],
)
def test_what_has_no_discrete_prior_is_refused(rows, model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*rows)
