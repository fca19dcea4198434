"""The variational Gaussian process: prior, exact limits and options."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import erf
from scipy.stats import multivariate_normal
from sklearn.exceptions import NotFittedError

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
    """Over draws of the prior, for any K; single draws as K grows are below.

    Weights from N(0, 1 / length_scale_^2) go through the fitted network, whose output
    bias adds 1 / K. The tolerance is six standard errors.
    """
    X, y = rows
    kernel = {"erf": arc_sine, "relu": arc_cosine}[activation]
    generator = torch.Generator().manual_seed(seed)
    n_features, draws = 10, 5_000
    options = {"n_features": n_features, "activation": activation, "max_iter": 1}
    model = gp(seed, length_scale=1.5, standardize=False, **options).fit(X, y)
    q = _fitted.restore_posterior(model, torch.device("cpu"), torch.float64)
    X_few, sizes = torch.as_tensor(X[:4]), q.network.sizes

    def normal(*shape, scale):
        return torch.randn(shape, generator=generator, dtype=torch.float64) / scale

    weights = [
        (
            normal(draws, 1, *sizes[i : i + 2], scale=scale),
            normal(draws, 1, sizes[i + 1], scale=scale),
        )
        for i, scale in enumerate(model.length_scale_)
    ]
    f = q.network.apply(weights, X_few[None])[:, 0, :, 0].numpy()
    terms = f[:, :, None] * f[:, None]
    expected = kernel((X_few @ X_few.T).numpy() / 1.5**2 + 1 / 1.5**2) + 1 / n_features
    error = terms.std(0) / np.sqrt(draws)
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


def test_mean_equals_linear_regression_on_the_features(rows, seed):
    """If only v is random, for any number of features."""
    X, y = rows
    model = gp_with_random_v(seed, n_features=6).fit(X, y)
    mean, variance = exact(model.features(X), y, 4.0, model.features(X))
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
    mean, variance = exact(model.features(X), y, 4.0, model.features(X))
    actual = model.predict(X, method="mean_weights")
    assert abs(actual - mean).max() < 0.1 * np.sqrt(variance.max())
    # A few per cent for the training, three for the std of 2,500 draws.
    np.testing.assert_allclose(
        model.predict_uncertainty(X, "epistemic"), np.sqrt(variance), rtol=0.1
    )
    _, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(std**2, variance + 1 / 4.0, rtol=0.05)


# ---- features, kernels and the marginal likelihood


def shifted(rows):
    """Rows and two targets in other units than the network's."""
    X, y = rows
    return 2.0 + 3.0 * X, np.stack([5.0 + 4.0 * y, 0.1 * y - X[:, 0]], axis=1)


def features_by_hand(model, X, weight, bias):
    """sqrt(1 / K) (sigma(w x + b), 1)."""
    hidden = (X - model.x_mean_) / model.x_scale_ @ weight + bias
    units = {
        "erf": erf,
        "tanh": np.tanh,
        "relu": lambda u: np.maximum(u, 0),
        "identity": lambda u: u,
    }[model.activation](hidden)
    return np.hstack([units, np.ones((len(X), 1))]) / np.sqrt(model.n_features)


@pytest.mark.parametrize("activation", ["erf", "tanh", "relu", "identity"])
def test_features_at_the_posterior_means(rows, seed, activation):
    """In any container, also if rows of w are dropped: their mean is p m."""
    X, Y = shifted(rows)
    options = {"activation": activation, "dropout": [0.3, 0.0], "n_features": 6}
    model = gp(seed, **options).fit(X, Y)
    arrays = model.parameters_
    weight, bias = 0.7 * arrays["layers/0/mean"][0], arrays["layers/0/bias"][0]
    expected = features_by_hand(model, X, weight, bias)
    features = model.features(X)
    assert features.shape == (ROWS, 7)
    # Sums in another order.
    np.testing.assert_allclose(features, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(model.features(sparse.csr_array(X)), features)
    single = model.features(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sigma", [0.0, 0.4])
def test_predictions_average_the_features_of_draws(rows, seed, sigma):
    """Each draw of f is the sum of its features, times its weights."""
    X, Y = shifted(rows)
    options = {"sigma": sigma, "dropout": 0.2, "n_features": 6, "n_estimators": 2}
    model = gp(seed, **options).fit(X, Y)
    posterior = _fitted.restore_posterior(model, torch.device("cpu"), torch.float64)
    functions = []
    for number in range(2 * 7):
        draw, member = divmod(number, 2)
        *_, (weight, bias) = posterior.draw(range(draw, draw + 1))
        v = np.vstack([weight[0, member], bias.expand(1, 2, -1)[0, [member]]])
        f = np.sqrt(6) * model.features(X, draw=number) @ v
        functions.append(f * model.y_scale_ + model.y_mean_)
    mean = np.mean(functions, axis=0)
    np.testing.assert_allclose(mean, model.predict(X), rtol=1e-9, atol=1e-9)


def test_kernel_is_the_product_of_features(rows, seed):
    X, Y = shifted(rows)
    model = gp(seed, n_features=6).fit(X, Y)
    for draw in (None, 3):
        left, right = (model.features(part, draw=draw) for part in (X, X[:5]))
        kernel = model.kernel(X, X[:5], draw=draw)
        np.testing.assert_allclose(kernel, left @ right.T, rtol=1e-12)
        np.testing.assert_array_equal(
            model.kernel(X[:5], draw=draw), model.kernel(X[:5], X[:5], draw=draw)
        )
    assert not np.array_equal(model.kernel(X, draw=3), model.kernel(X, draw=4))


@pytest.mark.parametrize(
    ("activation", "limit"),
    [("erf", arc_sine), ("relu", arc_cosine), ("identity", lambda inner: inner)],
)
def test_kernel_of_many_features_is_the_prior_kernel(rows, seed, activation, limit):
    """With w and b from the prior: the limit, and 1 / K for the constant.

    sigma = 1 is the width of the prior. The means are replaced by zeros, so that draws
    of the posterior are draws of the prior. The tolerance is six standard errors of the
    mean over K = 20,000 features.
    """
    X = 2.0 + 3.0 * rows[0][:4]
    options = {"activation": activation, "length_scale": 1.5, "sigma": 1.0}
    model = gp(seed, n_features=20_000, max_iter=1, **options).fit(X, rows[1][:4])
    for name in ("mean", "bias"):
        key = f"layers/0/{name}"
        model.parameters_[key] = np.zeros_like(model.parameters_[key])
    Z = (X - model.x_mean_) / model.x_scale_
    expected = limit((Z @ Z.T + 1) / 1.5**2) + 1 / 20_000
    np.testing.assert_allclose(model.prior_kernel(X), expected, rtol=1e-10)
    np.testing.assert_allclose(model.prior_kernel(X, X[:3]), expected[:, :3])
    units = np.sqrt(20_000) * model.features(X, draw=2)
    products = units[:, None] * units
    error = products.std(-1) / np.sqrt(20_000)
    assert (abs(model.kernel(X, draw=2) - expected) < 6 * error).all()


@pytest.mark.parametrize("n_features", [5, 60])
@pytest.mark.parametrize("tau", ["auto", 7.0, [0.4, 90.0]])
def test_marginal_likelihood_is_a_multivariate_normal(rows, seed, n_features, tau):
    """With fewer and with more features than rows, for several targets in their units.

    Two factorisations of well-conditioned matrices agree to about 1e-10.
    """
    X, Y = shifted(rows)
    model = gp(seed, n_features=n_features, tau=tau).fit(X, Y)
    X_new, Y_new = X[:9] + 0.5, Y[:9] - 0.2
    for draw in (None, 5):
        kernel, expected = model.kernel(X_new, draw=draw), 0.0
        for target in range(2):
            noise = np.eye(9) / np.broadcast_to(model.tau_, 2)[target]
            covariance = model.y_scale_[target] ** 2 * kernel + noise
            mean = np.full(9, model.y_mean_[target])
            normal = multivariate_normal(mean, covariance)
            expected += normal.logpdf(Y_new[:, target])
        actual = model.log_marginal_likelihood(X_new, Y_new, draw=draw)
        assert actual == pytest.approx(expected, rel=1e-8)


def test_marginal_likelihood_is_at_least_the_evidence_bound(rows, seed):
    """Given w and b, the bound is the marginal minus a KL of v, minus the prior of w.

    With points w and b, ``elbo_`` contains - l^2 / 2 (|w|^2 + |b|^2) and the constant
    of the prior without the entropy of points, log l for every weight.
    """
    X, y = rows
    model = gp_with_random_v(seed, n_features=6, max_iter=300, length_scale=1.3)
    model.fit(X, y)
    arrays = [model.parameters_[f"layers/0/{name}"] for name in ("mean", "bias")]
    log_prior = sum(
        (np.log(1.3) - 0.5 * np.square(1.3 * values)).sum() for values in arrays
    )
    slack = 5 * model.elbo_std_error_
    marginal = model.log_marginal_likelihood(X, y)
    assert marginal + log_prior > model.elbo_ - slack


def test_features_refuse_what_has_no_kernel(rows, seed):
    X, y = rows
    model = gp(seed, n_features=6, activation="tanh", likelihood="student_t").fit(X, y)
    for call, message in [
        (lambda: model.prior_kernel(X), "closed form, 'erf', 'relu'.*got 'tanh'"),
        (lambda: model.log_marginal_likelihood(X, y), "'gaussian'.*got 'student_t'"),
        (lambda: model.features(X, draw=7), r"`draw` must be in \[0, 7\); got 7"),
        (lambda: model.kernel(X, X[:, :2]), "2 features"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with_nan = X.copy()
    with_nan[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"without missing values.*got 1 columns"):
        with pytest.warns(UserWarning, match="missing"):
            model.features(with_nan)
    gaussian = gp(seed, n_features=6).fit(X, y)
    with pytest.raises(
        ValueError, match="`y` must have the 1 targets of the fit; got 2"
    ):
        gaussian.log_marginal_likelihood(X, np.stack([y, y], axis=1))
    with pytest.raises(NotFittedError):
        gp(seed).features(X)


# ---- options


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
