"""``elbo_`` equals the bound in closed form, with all terms in l and p."""

import numpy as np
import pytest
import torch
from scipy.special import entr

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._engine import training
from skbayesnn._engine.bound import Bound
from skbayesnn._families import FAMILIES
from skbayesnn._priors import PRIORS

ROWS, COLUMNS, HIDDEN = 37, 3, 5
UNITS = COLUMNS + HIDDEN
WEIGHTS = COLUMNS * HIDDEN + HIDDEN
BIASES = HIDDEN + 1


@pytest.fixture
def rows(seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(ROWS, COLUMNS)), random.normal(size=ROWS)


def entropy(noise, p):
    """Entropy of all masks."""
    if noise == "gaussian":
        return UNITS * 0.5 * np.log(2 * np.pi * np.e * p * (1 - p))
    n_masks = {"bernoulli": UNITS, "dropconnect": WEIGHTS}[noise]
    return n_masks * (entr(p) + entr(1 - p))


@pytest.mark.parametrize("noise", ["bernoulli", "dropconnect", "gaussian"])
@pytest.mark.parametrize("length_scale", [0.1, 3.0])
def test_bound_contains_prior_normaliser_and_mask_entropy(rows, noise, length_scale):
    rate = 0.2
    model = MCDropoutRegressor(
        (HIDDEN,),
        noise=noise,
        dropout=rate,
        length_scale=length_scale,
        # With so much noise that the draws hardly matter.
        tau=1e-3,
        max_iter=N_STILL,
        learning_rate_init=1e-300,
        dtype="float64",
        n_estimators=2,
    ).fit(*rows)
    loss, error = mean_loss(model)
    # log p(w) has log l for every weight and bias.
    log_normaliser = (WEIGHTS + BIASES) * np.log(length_scale)
    expected = -ROWS * loss + log_normaliser + entropy(noise, 1 - rate)
    error = np.hypot(ROWS * error, model.elbo_std_error_)
    assert abs(model.elbo_ - expected) < 6 * error
    # Both terms are larger than the error.
    assert 6 * error < min(abs(log_normaliser), abs(entropy(noise, 1 - rate)))


# Epochs of networks with constant weights: every epoch draws the loss.
N_STILL = 300


def mean_loss(model):
    """Mean loss per row over epochs and networks, and its standard error."""
    loss = model.history_["loss"].mean(1)
    return loss.mean(), loss.std(ddof=1) / np.sqrt(len(loss))


@pytest.mark.parametrize("rate", [0.0, "auto"])
def test_bound_without_dropout_and_with_learned_rates(rows, rate):
    """Without dropout there is no entropy; with learned rates the KL contains it."""
    X, y = rows
    model = MCDropoutClassifier(
        (HIDDEN,),
        dropout=rate,
        length_scale=2.0,
        max_iter=N_STILL,
        learning_rate_init=1e-300,
        dtype="float64",
    ).fit(X, y > 0)
    # A classifier of two classes has two outputs.
    n_weights = COLUMNS * HIDDEN + 2 * HIDDEN + HIDDEN + 2
    loss, error = mean_loss(model)
    expected = -ROWS * loss + n_weights * np.log(2.0)
    if rate == 0:
        assert error < 1e-12 and model.elbo_std_error_ == 0
        assert model.elbo_ == pytest.approx(expected, rel=1e-9)
    error = np.hypot(ROWS * error, model.elbo_std_error_)
    assert abs(model.elbo_ - expected) <= 6 * error + 1e-6


@pytest.mark.parametrize("standardize", [False, True], ids=["as it is", "standardised"])
def test_linear_model_against_the_closed_form(seed, standardize):
    """For the fitted networks, within the standard error."""
    random = np.random.default_rng([seed, 5])
    X = random.normal(size=(ROWS, COLUMNS)) * [1.0, 3.0, 0.2]
    y = X @ [1.0, -0.5, 3.0] + 0.3 * random.normal(size=ROWS)
    rate, tau, scale = 0.2, 10.0, 0.7
    model = MCDropoutRegressor(
        (),
        dropout=rate,
        tau=tau,
        length_scale=scale,
        standardize=standardize,
        n_estimators=3,
        random_state=seed,
    ).fit(X, y)
    z, residual = (X - model.x_mean_) / model.x_scale_, (y - model.y_mean_)[:, None]
    bounds = []
    for weight, bias in zip(
        model.parameters_["layers/0/mean"].astype(float),
        model.parameters_["layers/0/bias"].astype(float),
        strict=True,
    ):
        f = model.y_scale_ * ((1 - rate) * z @ weight + bias)
        spread = rate * (1 - rate) * np.square(model.y_scale_ * z * weight.T).sum(1)
        squares = np.square(residual - f).sum() + spread.sum()
        nll = 0.5 * (tau * squares + ROWS * np.log(2 * np.pi / tau))
        energy = 0.5 * scale**2 * ((1 - rate) * weight**2).sum()
        energy += 0.5 * scale**2 * (bias**2).sum()
        n_masks = COLUMNS * (entr(rate) + entr(1 - rate))
        bounds.append(-nll - energy + n_masks + (COLUMNS + 1) * np.log(scale))
    assert abs(model.elbo_ - np.mean(bounds)) < 6 * model.elbo_std_error_
    # An epoch has one draw per row.
    nll = ROWS * model.history_["negative_log_likelihood"][-20:].mean(1)
    assert 0 < model.elbo_std_error_ < nll.std() / 5


def test_bound_does_not_change_the_fit(rows, monkeypatch):
    options = {"hidden_layer_sizes": (HIDDEN,), "max_iter": 5, "random_state": 0}
    model = MCDropoutRegressor(**options).fit(*rows)
    monkeypatch.setattr(training, "estimate_bound", lambda *_: Bound(*np.zeros((4, 1))))
    without = MCDropoutRegressor(**options).fit(*rows)
    assert without.elbo_std_error_ == 0
    for name, values in model.parameters_.items():
        np.testing.assert_array_equal(values, without.parameters_[name])
    np.testing.assert_array_equal(model.predict(rows[0]), without.predict(rows[0]))


def test_bound_does_not_favour_the_flattest_prior(seed):
    """The normaliser of the prior falls with l."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(200, COLUMNS))
    y = X @ [1.0, 0.5, -0.5] + 0.5 * random.normal(size=200)
    bounds = [
        MCDropoutRegressor(
            (), dropout=0.0, length_scale=scale, learning_rate_init=0.05, random_state=0
        )
        .fit(X, y)
        .elbo_
        for scale in (1e-3, 1.0, 1e2)
    ]
    assert np.argmax(bounds) == 1


def test_exact_entropy_of_gaussian_masks(seed):
    """The KL of noise="gaussian" omits -log of the size of a row.

    One weight w = z m, z ~ N(p, p (1 - p)): KL(q || N(0, 1 / l^2)) by quadrature.
    """
    family, p, scale = (
        FAMILIES["gaussian"](),
        torch.tensor([0.8], dtype=torch.float64),
        2.0,
    )
    prior = PRIORS["gaussian"](torch.tensor([scale], dtype=torch.float64))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    missing = []
    for m in (0.05, 0.2, 0.5, 1.0):
        params = {
            "mean": torch.tensor([[[m]]], dtype=torch.float64),
            "bias": torch.zeros(1, 1).double(),
        }
        kl = family.kl(params, p, prior, None) + family.kl_constant(params, p, prior)
        # Remove log l of the bias, which is a point.
        kl = float(kl) + np.log(scale)
        std = m * np.sqrt(0.8 * 0.2)
        w = 0.8 * m + std * nodes
        log_q = -0.5 * nodes**2 - np.log(std) - 0.5 * np.log(2 * np.pi)
        log_prior = -0.5 * (scale * w) ** 2 + np.log(scale) - 0.5 * np.log(2 * np.pi)
        missing.append(weights @ (log_q - log_prior) - kl)
    # Up to the constant log sqrt(2 pi) of the prior.
    expected = -np.log([0.05, 0.2, 0.5, 1.0]) + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(missing, expected, rtol=1e-9)
