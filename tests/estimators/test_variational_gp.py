"""The variational Gaussian process: prior, exact limits and options."""

import numpy as np
import pytest
import torch
from scipy.special import erf

from skbayesnn import MCDropoutRegressor, VariationalGPRegressor
from skbayesnn._families import Bernoulli, FixedWidth, MeanField, Point
from skbayesnn.estimators import _fitted
from skbayesnn.model_selection import BatchedGridSearchCV
from tests.helpers.kernels import arc_cosine, arc_sine

ROWS, COLUMNS = 40, 3


@pytest.fixture
def rows(seed):
    random = np.random.default_rng([seed, 31])
    X = random.normal(size=(ROWS, COLUMNS))
    return X, np.tanh(X).sum(1) + 0.3 * random.normal(size=ROWS)


def gp(seed, **options):
    options = {"max_iter": 4, "n_draws": 7, "random_state": seed} | options
    return VariationalGPRegressor(dtype="float64", device="cpu", **options)


@pytest.mark.parametrize("activation", ["erf", "relu"])
def test_prior_has_the_kernel_of_infinitely_many_features(rows, seed, activation):
    """Over draws of the prior for any K, and for a single draw as K grows.

    Weights from N(0, 1 / length_scale_^2) go through the fitted network, whose output
    bias adds 1 / K. The tolerance is six standard errors.
    """
    X, y = rows
    kernel = {"erf": arc_sine, "relu": arc_cosine}[activation]
    generator = torch.Generator().manual_seed(seed)
    for n_features, draws in [(10, 5_000), (10_000, 1)]:
        model = gp(
            seed,
            n_features=n_features,
            activation=activation,
            length_scale=1.5,
            standardize=False,
            max_iter=1,
        ).fit(X, y)
        q = _fitted.restore_posterior(model, torch.device("cpu"), torch.float64)
        X_few = torch.as_tensor(X[:4])
        input_scale, feature_scale = model.length_scale_

        def normal(*shape, scale):
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            return values / scale

        sizes = q.network.sizes
        first = (
            normal(draws, 1, *sizes[:2], scale=input_scale),
            normal(draws, 1, sizes[1], scale=input_scale),
        )
        expected = kernel((X_few @ X_few.T).numpy() / 1.5**2 + 1 / 1.5**2)
        if draws > 1:
            last = (
                normal(draws, 1, *sizes[1:], scale=feature_scale),
                normal(draws, 1, 1, scale=feature_scale),
            )
            f = q.network.apply([first, last], X_few[None])[:, 0, :, 0].numpy()
            expected = expected + 1 / n_features
            terms = f[:, :, None] * f[:, None]
        else:
            hidden = X_few @ first[0][0, 0] + first[1][0, 0]
            units = torch.relu(hidden) if activation == "relu" else torch.erf(hidden)
            terms = units.T[:, :, None] * units.T[:, None]
            terms = (terms * n_features / feature_scale**2).numpy()
        error = terms.std(0) / np.sqrt(len(terms))
        assert (abs(terms.mean(0) - expected) < 6 * error).all()


def gp_with_random_v(seed, **options):
    """Only v is random; tau is given, and the training converges."""
    long = {"max_iter": 1500, "n_training_draws": 4, "n_draws": 2500}
    return gp(seed, sigma=(0.0, "auto"), tau=4.0, standardize=False, **long | options)


def exact(features, y, tau, new):
    """Bayesian linear regression with weights N(0, 1): mean and variance of f."""
    precision = np.eye(features.shape[1]) + tau * features.T @ features
    covariance = np.linalg.inv(precision)
    mean = tau * covariance @ features.T @ y
    return new @ mean, np.einsum("ni,ij,nj->n", new, covariance, new)


def features_of(model, X):
    """sqrt(1 / K) (sigma(w x + b), 1), with w and b point estimates."""
    arrays = model.parameters_
    hidden = X @ arrays["layers/0/mean"][0] + arrays["layers/0/bias"][0]
    units = {"erf": erf, "identity": lambda u: u}[model.activation](hidden)
    ones = np.ones((len(X), 1))
    return np.hstack([units, ones]) / np.sqrt(model.n_features)


def test_mean_equals_linear_regression_on_the_features(rows, seed):
    """If only v is random, for any number of features."""
    X, y = rows
    model = gp_with_random_v(seed, n_features=6).fit(X, y)
    mean, variance = exact(features_of(model, X), y, 4.0, features_of(model, X))
    actual = model.predict(X, method="mean_weights")
    # The training is stochastic.
    assert abs(actual - mean).max() < 0.1 * np.sqrt(variance.max())


def test_predictive_equals_linear_regression_on_one_feature(seed):
    """The feature is centred, so that weight and bias are independent."""
    random = np.random.default_rng([seed, 32])
    half = random.normal(size=(ROWS // 2, 1))
    X = np.vstack([half, -half])
    noise = 0.5 * random.normal(size=ROWS // 2)
    y = 1.5 * X[:, 0] + np.r_[noise, -noise]
    model = gp_with_random_v(seed, n_features=1, activation="identity").fit(X, y)
    mean, variance = exact(features_of(model, X), y, 4.0, features_of(model, X))
    actual = model.predict(X, method="mean_weights")
    assert abs(actual - mean).max() < 0.1 * np.sqrt(variance.max())
    # A few per cent for the training, three for the std of 2,500 draws.
    np.testing.assert_allclose(
        model.predict_uncertainty(X, "epistemic"), np.sqrt(variance), rtol=0.1
    )
    _, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(std**2, variance + 1 / 4.0, rtol=0.05)


def test_sigma_zero_equals_mc_dropout(rows, seed):
    """Exactly a perceptron with the same prior."""
    X, y = rows
    model = gp(seed, n_features=9, sigma=0.0, dropout=0.2, length_scale=0.7).fit(X, y)
    dropout = MCDropoutRegressor(
        (9,),
        "erf",
        dropout=0.2,
        length_scale=[0.7, 3.0],
        max_iter=4,
        n_draws=7,
        dtype="float64",
        device="cpu",
        random_state=seed,
    ).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), dropout.predict(X))


@pytest.mark.parametrize(
    ("options", "families"),
    [
        ({}, [FixedWidth(sigma=0.05), FixedWidth(sigma=0.1 / 3)]),
        (
            {"dropout": [0.1, 0.0], "sigma": [0.2, 0.3]},
            [FixedWidth(spike=True, sigma=0.1), FixedWidth(sigma=0.1)],
        ),
        (
            {"dropout": 0.1, "sigma": ["auto", 0]},
            [MeanField(spike=True), Bernoulli()],
        ),
        ({"sigma": (0.0, "auto")}, [Point(), MeanField()]),
        ({"sigma": np.float32(1)}, [FixedWidth(sigma=0.5), FixedWidth(sigma=1 / 3)]),
    ],
)
def test_options_determine_the_families(rows, seed, options, families):
    """Widths are multiples of the prior standard deviations, 1 / 2 and 1 / 3."""
    model = gp(seed, n_features=9, length_scale=2.0, **options)
    actual = model._posterior_spec((COLUMNS, 9)).families
    for family, expected in zip(actual, families, strict=True):
        assert type(family) is type(expected)
        assert getattr(family, "spike", None) == getattr(expected, "spike", None)
        if isinstance(family, FixedWidth):
            assert family.sigma == pytest.approx(expected.sigma)
    model.fit(*rows)
    np.testing.assert_allclose(model.length_scale_, [2.0, 3.0])
    assert np.isfinite(model.elbo_)


def test_given_width_is_not_trained(rows, seed):
    X, y = rows
    model = gp(seed, n_features=9, sigma=0.2, length_scale=2.0, max_iter=30).fit(X, y)
    for i, width in enumerate([0.1, 0.2 / 3]):
        for name in ("rho", "bias_rho"):
            sigma = np.logaddexp(0, model.parameters_[f"layers/{i}/{name}"])
            np.testing.assert_allclose(sigma, width)


def test_search_over_the_length_scale(rows, seed):
    """Together with tau and the number of features."""
    grid = {"length_scale": [0.5, 2.0], "tau": [1.0, 9.0], "n_features": [5, 8]}
    search = BatchedGridSearchCV(gp(seed), grid, cv=2).fit(*rows)
    assert search.best_params_.keys() == grid.keys()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_features": 0}, ValueError, "`n_features` must be finite and >= 1; got 0"),
        ({"length_scale": 0.0}, ValueError, "`length_scale` must be finite and > 0"),
        ({"length_scale": "auto"}, TypeError, "`length_scale` must be a number"),
        ({"sigma": -0.1}, ValueError, "`sigma` must be finite and >= 0; got -0.1"),
        ({"sigma": "learned"}, ValueError, "`sigma` must be a number or 'auto'"),
        ({"sigma": [0.1] * 3}, ValueError, r"`sigma` must be a float.*got \[0.1, 0.1"),
        ({"dropout": [0.1] * 3}, ValueError, "2 here.*got 3"),
    ],
)
def test_invalid_options_are_refused(rows, seed, options, error, message):
    with pytest.raises(error, match=message):
        gp(seed, **options).fit(*rows)


def test_error_names_the_number_of_features(rows, seed):
    with pytest.raises(ValueError, match="`n_features` must be at most 1000000"):
        gp(seed, n_features=10**9).fit(*rows)
