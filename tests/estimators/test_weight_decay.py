"""From weight decay to tau and back."""

import numpy as np
import pytest

from skbayesnn import MCDropoutRegressor, tau_from_weight_decay


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_it_is_the_inverse_of_what_estimators_say(seed, dropout):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(31, 3)), random.normal(size=31)
    weights = random.uniform(0.5, 2, size=31)
    model = MCDropoutRegressor(
        (4,), dropout=dropout, length_scale=0.7, tau=2.5, max_iter=1, device="cpu"
    ).fit(X, y, sample_weight=weights)
    tau = tau_from_weight_decay(model.weight_decay_, weights.sum(), dropout, 0.7)
    assert tau == pytest.approx(2.5, rel=1e-12)


def test_many_at_once():
    tau = tau_from_weight_decay([1e-3, 1e-4], 100, dropout=0.5, length_scale=2)
    np.testing.assert_allclose(tau, [10.0, 100.0])


@pytest.mark.parametrize("decay", [0.0, -1.0, [1.0, np.nan], np.inf, 1e-310])
def test_decay_must_be_positive(decay):
    with pytest.raises(ValueError, match=r"must be > 0 and .*; got .*length_scale=0"):
        tau_from_weight_decay(decay, 10)


@pytest.mark.parametrize("name", ["n_samples", "dropout", "length_scale"])
def test_others_are_checked(name):
    arguments = {"n_samples": 10, "dropout": 0.1, "length_scale": 1.0, name: -1}
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        tau_from_weight_decay(1e-3, **arguments)
