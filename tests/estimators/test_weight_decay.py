"""Conversion between weight decay and tau."""

import numpy as np
import pytest

from skbayesnn import (
    MCDropoutClassifier,
    MCDropoutRegressor,
    tau_from_weight_decay,
)
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._training_data import training_data


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_tau_is_computed_from_the_fitted_weight_decay(seed, dropout):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(31, 3)), random.normal(size=31)
    weights = random.uniform(0.5, 2, size=31)
    model = MCDropoutRegressor(
        (4,), dropout=dropout, length_scale=0.7, tau=2.5, max_iter=1, device="cpu"
    ).fit(X, y, sample_weight=weights)
    tau = tau_from_weight_decay(model.weight_decay_, weights.sum(), dropout, 0.7)
    assert tau == pytest.approx(2.5, rel=1e-12)


def test_array_of_weight_decays():
    tau = tau_from_weight_decay([1e-3, 1e-4], 100, dropout=0.5, length_scale=2)
    np.testing.assert_allclose(tau, [10.0, 100.0])


def test_weight_decay_per_layer(seed):
    """The layers of an estimator share tau."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(31, 3)), random.normal(size=31)
    dropout, scale = [0.0, 0.2, 0.5], [0.1, 0.4, 2.0]
    model = MCDropoutRegressor(
        (4, 5), dropout=dropout, length_scale=scale, tau=2.5, max_iter=1, device="cpu"
    ).fit(X, y)
    tau = tau_from_weight_decay(model.weight_decay_, 31, dropout, scale)
    np.testing.assert_allclose(tau, [2.5] * 3, rtol=1e-12)
    # The lambda_i of a single layer is no sequence.
    single = tau_from_weight_decay(model.weight_decay_[1], 31, 0.2, 0.4)
    assert isinstance(single, float) and single == pytest.approx(2.5, rel=1e-12)
    per_layer = tau_from_weight_decay(1e-3, 31, dropout, 0.4)
    expected = (1 - np.array(dropout)) * 0.16 / (2 * 31 * 1e-3)
    np.testing.assert_allclose(per_layer, expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"one value per layer; got the shapes \(3,\)"):
        tau_from_weight_decay([1e-3] * 3, 31, [0.1, 0.2])


@pytest.mark.parametrize("n_targets", [1, 2])
def test_training_weight_decay_is_the_ridge_penalty(seed, n_targets):
    """The weights of a linear model equal a ridge regression.

    `tau_` belongs to the noise of predictions, which is estimated after the training,
    and gives another lambda.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(31, 3)) * [1.0, 20.0, 0.1]
    y = X @ random.normal(size=(3, n_targets)) + random.normal(size=(31, n_targets))
    model = MCDropoutRegressor(
        (),
        dropout=0,
        length_scale=0.5,
        max_iter=3000,
        learning_rate_init=0.05,
        dtype="float64",
        random_state=seed,
    ).fit(X, y[:, 0] if n_targets == 1 else y)
    decay = np.reshape(model.weight_decay_training_, n_targets)
    assert (np.abs(np.reshape(model.weight_decay_, n_targets) / decay - 1) > 1e-3).all()
    tau = np.reshape(model.tau_training_, n_targets)
    np.testing.assert_allclose(decay, 0.25 / (2 * 31 * tau), rtol=1e-12)
    z = np.column_stack([(X - model.x_mean_) / model.x_scale_, np.ones(31)])
    for j in range(n_targets):
        target = (y - model.y_mean_)[:, j] / model.y_scale_[j]
        # In units of y the squared error is y_scale^2 times the network's.
        penalty = 2 * 31 * decay[j] / model.y_scale_[j] ** 2
        ridge = np.linalg.solve(z.T @ z + penalty * np.eye(4), z.T @ target)
        actual = [*model.parameters_["layers/0/mean"][0, :, j]]
        actual.append(model.parameters_["layers/0/bias"][0, j])
        # tau is learned with the weights until the end.
        np.testing.assert_allclose(actual, ridge, rtol=1e-3, atol=1e-3)


def test_training_weight_decay_with_a_given_tau(seed):
    """Training and predictions then have the same tau."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(31, 3)), random.normal(size=31)
    for model in (
        MCDropoutRegressor((4,), tau=2.5, max_iter=1),
        MCDropoutClassifier((4,), length_scale=1, max_iter=1),
    ):
        model.fit(X, y > 0 if model.get_params()["tau"] == 1 else y)
        assert model.tau_training_ == model.tau_
        same = model.weight_decay_training_, model.weight_decay_
        np.testing.assert_array_equal(*same)


@pytest.mark.parametrize("decay", [0.0, -1.0, [1.0, np.nan], np.inf, 1e-310])
def test_decay_must_be_positive(decay):
    with pytest.raises(ValueError, match=r"must be > 0 and .*; got .*length_scale=0"):
        tau_from_weight_decay(decay, 10)


@pytest.mark.parametrize("name", ["n_samples", "dropout", "length_scale"])
def test_other_arguments_are_checked(name):
    arguments = {"n_samples": 10, "dropout": 0.1, "length_scale": 1.0, name: -1}
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        tau_from_weight_decay(1e-3, **arguments)


def test_tau_of_a_job_is_in_the_units_of_the_data(seed):
    """Members have it in units of the standardised y."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(38, 4)), 20 * random.normal(size=38)
    estimator = MCDropoutRegressor((5,), tau=0.5, dtype="float64")
    job = training_job(estimator, training_data(estimator, X, y))
    np.testing.assert_allclose(job.tau, 0.5)
    np.testing.assert_allclose(job.members.tau, [[0.5 * y.var()]])
    assert job.total_weight == 38
