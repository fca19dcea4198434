"""Rates that dropout="auto" learns [GHK17]: uncertainty that data reduce."""

import warnings

import numpy as np
import pytest

from skbayesnn import MCDropoutRegressor
from skbayesnn.networks import ConvNet

# Steps of each fit, for any number of rows, so that rates can change equally far.
STEPS, BATCH = 800, 100


def _learned_rate(seed, n_rows, noise):
    """Mean over the layers of three networks, on a curved surface with noise."""
    random = np.random.default_rng([seed, n_rows])
    X = random.uniform(-2, 2, size=(n_rows, 4))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    y += noise * random.standard_normal(n_rows)
    model = MCDropoutRegressor(
        (32,),
        dropout="auto",
        length_scale="fan_in",
        n_estimators=3,
        batch_size=BATCH,
        max_iter=STEPS // (n_rows // BATCH),
        device="cpu",
        random_state=seed,
    ).fit(X, y)
    assert np.shape(model.dropout_) == (2,)
    return np.mean(model.dropout_)


def test_rate_falls_with_the_number_of_rows(seed):
    """From about 0.25 to less than 0.01."""
    few, many = (_learned_rate(seed, n_rows, 0.3) for n_rows in (100, 3000))
    assert many < few / 5


def test_rate_rises_with_the_noise(seed):
    """About fivefold: with more noise a row is less informative."""
    little, much = (_learned_rate(seed, 1000, noise) for noise in (0.1, 1.0))
    assert much > 2 * little


def _network_of_little_noise(**changed):
    """A network with next to no noise, for which masks are costly."""
    settings = {"dropout": "auto", "tau": 1e4, "max_iter": 30, "batch_size": BATCH}
    return MCDropoutRegressor((32,), device="cpu", **settings | changed)


def test_warning_of_vanishing_rates(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(3000, 4))
    y = X @ random.normal(size=4)
    y /= y.std()
    with pytest.warns(
        UserWarning, match="learned dropout rates are nearly zero"
    ) as caught:
        model = _network_of_little_noise(random_state=seed).fit(X, y)
    # Less than one dropped unit in ten draws of 4 inputs and 32 hidden units.
    assert model.dropout_ @ [4, 32] < 0.1
    assert any(
        f"({model.dropout_.max():.1g} at most)" in str(w.message) for w in caught
    )
    # With a probability above exp(-0.1) a draw drops nothing, and equals the others.
    [f] = model.sample_f(X[:1], n_samples=200)
    assert np.isclose(f, np.median(f), rtol=1e-4).mean() > 0.8


@pytest.mark.parametrize(
    "changed", [{"dropout": 1e-4}, {"n_estimators": 2}, {"tau": 0.1}]
)
def test_no_warning_of_given_rates_or_remaining_uncertainty(changed, seed):
    """Several networks differ without masks; rows with much noise leave uncertainty."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(3000, 4))
    y = X @ random.normal(size=4)
    y /= y.std()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _network_of_little_noise(random_state=seed, **changed).fit(X, y)
    assert not any("are nearly zero" in str(w.message) for w in caught)


@pytest.mark.parametrize(("mask_per", "warned"), [("unit", False), ("channel", True)])
def test_warning_counts_the_masks_of_an_image(mask_per, warned, monkeypatch):
    """36 pixels, then 72 units or two channels, and one unit: 109 or 39 masks.

    With a rate of 0.002 a draw drops 0.22 or 0.08 of them; a single mask per layer
    would give 0.01.
    """
    monkeypatch.setattr(MCDropoutRegressor, "_start_rate", 0.002)
    random = np.random.default_rng(0)
    X, y = random.normal(size=(40, 1, 6, 6)), random.normal(size=40)
    network = ConvNet((1, 6, 6), (2, 1), 1, (1, 6), (), mask_per)
    model = MCDropoutRegressor(
        network=network,
        dropout="auto",
        learning_rate_init=1e-6,
        max_iter=1,
        device="cpu",
        random_state=0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert any("are nearly zero" in str(w.message) for w in caught) == warned
