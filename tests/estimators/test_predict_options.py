"""Options of predict: covariances of several targets, and the mean weights."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator

from skbayesnn import (
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutRegressor,
    predict_interval,
)
from skbayesnn.estimators._fitted import fitted_posterior
from skbayesnn.model_selection import BatchedGridSearchCV


@pytest.fixture
def model(data, small):
    """Three targets, two networks."""
    model = MCDropoutRegressor(n_estimators=2, **small | {"dropout": 0.2})
    return model.fit(data.X, data.Y)


def test_covariance_equals_the_draws(data, model):
    mean, cov = model.predict(data.X_new, return_cov=True)
    mean_alone, std = model.predict(data.X_new, return_std=True)
    np.testing.assert_allclose(mean, mean_alone, rtol=1e-12)
    assert cov.shape == (11, 3, 3)
    np.testing.assert_allclose(np.diagonal(cov, axis1=1, axis2=2), std**2, rtol=1e-10)
    np.testing.assert_array_equal(cov, cov.transpose(0, 2, 1))
    # NumPy's estimate from the draws of every row; the noise is uncorrelated.
    draws = model._open_predictive(data.X_new).whole().sample_f(np.arange(26))
    for actual, drawn in zip(cov, draws, strict=True):
        expected = np.cov(drawn, ddof=0)
        off = ~np.eye(3, dtype=bool)
        np.testing.assert_allclose(actual[off], expected[off], rtol=1e-9)
    assert abs(cov[:, 0, 1]).max() > 1e-3 * std[:, :2].prod(1).max()


def test_covariance_of_one_target(data, small):
    model = MCDropoutRegressor(**small).fit(data.X, data.y)
    mean, cov = model.predict(data.X_new.astype(np.float32), return_cov=True)
    assert mean.shape == (11,) and cov.shape == (11, 1, 1)
    assert mean.dtype == cov.dtype == np.float32


def test_covariance_after_a_recalibration_keeps_the_correlation(data, model):
    opened = model._open_predictive(data.X_new)
    plain = opened.whole()
    wider = plain.scaled(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(
        wider.covariance(),
        plain.covariance() * np.outer([1, 2, 3], [1, 2, 3]),
        rtol=1e-10,
    )
    assert model.predict_distribution(data.X_new).cov().shape == (11, 3, 3)


def test_covariance_of_a_stack(data, small):
    network = MCDropoutRegressor(**small | {"dropout": 0.2})
    stack = BayesianStackingRegressor(
        [("all", network, {"length_scale": [0.1, 1.0]})], cv=2, random_state=0
    ).fit(data.X, data.Y)
    mean, cov = stack.predict(data.X_new, return_cov=True)
    mean_alone, std = stack.predict(data.X_new, return_std=True)
    np.testing.assert_allclose(mean, mean_alone, rtol=1e-10)
    np.testing.assert_allclose(np.diagonal(cov, axis1=1, axis2=2), std**2, rtol=1e-8)
    with pytest.raises(ValueError, match="at most one of"):
        stack.predict(data.X_new, return_std=True, return_cov=True)


def test_std_and_covariance_together_are_refused(data, model):
    with pytest.raises(ValueError, match="at most one of `return_std` and"):
        model.predict(data.X_new, return_std=True, return_cov=True)


def test_mean_weights_equal_a_deterministic_network(data, model):
    """Units are scaled by p; the mean and spread of two networks, by hand."""
    mean, std = model.predict(data.X_new, return_std=True, method="mean_weights")
    x = (data.X_new - model.x_mean_) / model.x_scale_
    posterior = fitted_posterior(model, data.X_new)
    outputs = []
    for k in range(2):
        h = torch.as_tensor(x)
        for i, params in enumerate(posterior.layers):
            h = h.relu() if i else h
            h = 0.8 * h @ params["mean"][k] + params["bias"][k]
        outputs.append(h.numpy() * model.y_scale_ + model.y_mean_)
    np.testing.assert_allclose(mean, np.mean(outputs, axis=0), rtol=1e-4)
    noise = model.predict_uncertainty(data.X_new, "aleatoric")
    np.testing.assert_allclose(std, np.hypot(noise, np.std(outputs, axis=0)), rtol=1e-4)


def test_mean_weights_without_dropout_equal_the_draws(data, small):
    """Up to the order of sums, which differs between the compiled loop and torch."""
    model = MCDropoutRegressor(**small | {"dropout": 0.0}).fit(data.X, data.y)
    np.testing.assert_allclose(
        model.predict(data.X_new, method="mean_weights"),
        model.predict(data.X_new),
        rtol=1e-12,
    )


def test_method_is_checked(data, model):
    with pytest.raises(ValueError, match="`method` must be"):
        model.predict(data.X_new, method="mode")


@pytest.mark.parametrize("method", ["scale", "isotonic"])
def test_covariance_of_a_recalibrated_model(data, model, method):
    calibrated = CalibratedUncertaintyRegressor(FrozenEstimator(model), method=method)
    calibrated.fit(data.X, data.Y)
    _, cov = calibrated.predict(data.X_new, return_cov=True)
    _, std = calibrated.predict(data.X_new, return_std=True)
    np.testing.assert_allclose(np.diagonal(cov, axis1=1, axis2=2), std**2, rtol=1e-8)


@pytest.mark.parametrize("name", ["alpha", "level", "confidence"])
def test_other_names_of_the_coverage(data, model, name):
    message = f"`predict_interval` takes X, coverage, .*; got {name}.*coverage=0.9"
    search = BatchedGridSearchCV(MCDropoutRegressor(max_iter=1), {"tau": [1.0]}, cv=2)
    search.fit(data.X, data.Y)
    for predict in (
        model.predict_interval,
        partial(predict_interval, model),
        search.predict_interval,
    ):
        with pytest.raises(TypeError, match=message):
            predict(data.X_new, **{name: 0.1})
    with pytest.raises(TypeError, match=r"`predict` takes X, .*; got std\.$"):
        model.predict(data.X_new, std=True)
    distribution = model.predict_distribution(data.X_new)
    message = f"`interval` takes coverage, kind; got {name}.*coverage=0.9"
    with pytest.raises(TypeError, match=message):
        distribution.interval(**{name: 0.1})
