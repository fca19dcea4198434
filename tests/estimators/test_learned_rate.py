"""Rates that dropout="auto" learns [GHK17]: uncertainty, which data explain away."""

import numpy as np

from skbayesnn import MCDropoutRegressor

# Steps of each fit, whatever the number of rows: rates go as far in all of them.
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
        n_estimators=3,
        batch_size=BATCH,
        max_iter=STEPS // (n_rows // BATCH),
        device="cpu",
        random_state=seed,
    ).fit(X, y)
    assert np.shape(model.dropout_) == (2,)
    return np.mean(model.dropout_)


def test_rate_falls_with_the_number_of_rows(seed):
    """From about 0.25 to less than 0.01: with few rows much is left open."""
    few, many = (_learned_rate(seed, n_rows, 0.3) for n_rows in (100, 3000))
    assert many < few / 5


def test_rate_rises_with_the_noise(seed):
    """About fivefold: a row tells less, and the posterior is as wide as that."""
    little, much = (_learned_rate(seed, 1000, noise) for noise in (0.1, 1.0))
    assert much > 2 * little
