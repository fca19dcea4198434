"""Calibration on data from a known model: 90 % intervals cover 90 % of new rows."""

import numpy as np
import pytest

from skbayesnn import BBBRegressor, MCDropoutRegressor

N_TRAIN, N_FRESH, N_FEATURES = 3000, 20_000, 5


def _smooth(x):
    return np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] / 2 + np.cos(x[:, 3]) - x[:, 4]


def _noise_std(x, likelihood):
    """The heteroscedastic noise varies twelvefold."""
    if likelihood == "gaussian":
        return np.full(len(x), 0.4)
    return 0.1 + 0.55 * (1 + np.tanh(2 * x[:, 0]))


def _rows(random, n, likelihood):
    x = random.uniform(-1.5, 1.5, size=(n, N_FEATURES))
    std = _noise_std(x, likelihood)
    return x, _smooth(x) + std * random.standard_normal(n), std


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_intervals_cover_new_rows(seed, likelihood):
    """tau is learned from the same rows, and the dropout rate is low.

    A fixed rate forces a spread on the draws. The learned noise contains it too (1 /
    tau = E_q of the squared residual), so that higher rates cover more.
    """
    random = np.random.default_rng(seed)
    x, y, std = _rows(random, N_TRAIN, likelihood)
    model = MCDropoutRegressor(
        dropout=0.003, tau="auto", likelihood=likelihood, random_state=seed
    )
    model.fit(x.astype(np.float32), y)

    x, y, std = _rows(random, N_FRESH, likelihood)
    x = x.astype(np.float32)
    lower, upper = model.predict_interval(x, coverage=0.9).T
    inside = (lower <= y) & (y <= upper)
    # The standard error is 0.2 % from the rows, and 0.8 % between fits.
    assert 0.87 <= inside.mean() <= 0.93
    aleatoric = model.predict_uncertainty(x, "aleatoric")
    if likelihood == "gaussian":
        # Over-fitting and under-fitting change it by a few per cent.
        assert model.noise_std_ == pytest.approx(0.4, rel=0.1)
        np.testing.assert_allclose(aleatoric, model.noise_std_, rtol=1e-6)
    else:
        assert np.corrcoef(np.log(aleatoric), np.log(std))[0, 1] > 0.95
        quiet = std < np.median(std)
        assert 0.84 <= inside[quiet].mean() <= 0.96
        assert 0.84 <= inside[~quiet].mean() <= 0.96


def test_bayes_by_backprop_covers_with_many_noisy_columns(seed):
    """600 rows of 20 columns, where a network can over-fit the noise.

    With a precision of twice the learned tau, intervals cover 35 to 49 % (five seeds),
    with the default 91 to 93 %.
    """
    random = np.random.default_rng(seed)
    x = random.standard_normal((1600, 20))
    y = np.sin(x[:, 0]) + x[:, 1] / 2 + 0.5 * random.standard_normal(len(x))
    model = BBBRegressor(random_state=seed).fit(x[:600], y[:600])
    lower, upper = model.predict_interval(x[600:], coverage=0.9).T
    inside = (lower <= y[600:]) & (y[600:] <= upper)
    assert 0.82 <= inside.mean() <= 0.98
