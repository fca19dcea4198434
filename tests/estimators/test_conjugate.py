"""Linear networks against Bayesian linear regression.

With a given tau and a Gaussian prior on the weights and the bias, the posterior of a
linear model is normal, with precision A = tau Z'Z + l^2 I and mean tau A^-1 Z'y. Z
contains the inputs and a column of ones. The best mean-field approximation has the same
mean, and the variances 1 / A_jj (MacKay 2003, "Information theory, inference, and
learning algorithms", section 33.5). They equal the conjugate variances if Z'Z is
diagonal.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from skbayesnn import BBBRegressor, MCDropoutRegressor

ROWS, INPUTS, TARGETS, NETWORKS = 12, 3, 2, 4
LENGTH_SCALE = 1.3
TAU = np.array([4.0, 9.0])
# Every row is repeated, and its weight divided by this number: the same posterior, but
# gradients with less variance, since each copy has other random numbers.
COPIES = 500
# 1 / A_jj differs enough from (A^-1)_jj, and the matrix is well conditioned.
MIXING = np.array([[1.0, 0.6, 0.0], [0.0, 0.8, -0.3], [0.0, 0.0, 0.9]])


def _network(seed, **params):
    return BBBRegressor(
        (),
        likelihood="gaussian",
        length_scale=LENGTH_SCALE,
        tau=TAU.tolist(),
        n_estimators=NETWORKS,
        batch_size=ROWS * COPIES,
        max_iter=1000,
        learning_rate_init=0.03,
        device="cpu",
        random_state=seed,
        **params,
    )


def _repeated(X, y):
    weights = np.full(len(X) * COPIES, 1 / COPIES)
    return np.repeat(X, COPIES, axis=0), np.repeat(y, COPIES, axis=0), weights


def _orthogonal(random, n_rows):
    """Columns with X'X = n I that sum to zero."""
    ones = np.ones((n_rows, 1))
    q, _ = np.linalg.qr(np.hstack([ones, random.normal(size=(n_rows, INPUTS))]))
    return q[:, 1:] * np.sqrt(n_rows)


def _targets(random, X):
    slopes = random.normal(size=(INPUTS, TARGETS))
    noise = random.normal(size=(len(X), TARGETS)) / np.sqrt(TAU)
    return X @ slopes + [0.7, -0.4] + noise


def _conjugate(X, y, tau):
    """Mean, std and precision of the posterior of (weights, bias), per target."""
    Z = np.column_stack([X, np.ones(len(X))])
    prior = LENGTH_SCALE**2 * np.eye(INPUTS + 1)
    precision = tau[:, None, None] * (Z.T @ Z) + prior
    mean = np.linalg.solve(precision, (tau * (Z.T @ y)).T[..., None])[..., 0]
    std = np.sqrt(np.linalg.inv(precision).diagonal(axis1=1, axis2=2))
    return SimpleNamespace(mean=mean, std=std, precision=precision)


def _learned(model):
    """Mean over the networks of the means and variances, (targets, inputs + 1)."""

    def joined(weight, bias):
        weight = model.parameters_[f"layers/0/{weight}"]
        bias = model.parameters_[f"layers/0/{bias}"]
        return np.concatenate([weight, bias[:, None]], axis=1).transpose(0, 2, 1)

    sigma = np.logaddexp(0, joined("rho", "bias_rho"))
    return joined("mean", "bias").mean(0), (sigma**2).mean(0)


def _check(model, mean, variance, tolerance=0.01):
    """Compare means, relative to their standard deviation, and variances.

    The random gradients leave a distance from the optimum: 0.35 % (one standard
    deviation) of a variance, 0.3 % of a standard deviation for a mean. The mean over
    four networks with different seeds has half of it.
    """
    learned_mean, learned_variance = _learned(model)
    np.testing.assert_allclose(learned_variance, variance, rtol=tolerance)
    distance = np.abs(learned_mean - mean) / np.sqrt(variance)
    assert distance.max() < 2 * tolerance
    largest = np.abs(mean).max(1, keepdims=True)
    assert (np.abs(learned_mean - mean) < tolerance * largest).all()


@pytest.mark.slow
def test_orthogonal_design_gives_the_conjugate_posterior(seed):
    """Of half the rows, and of all by Bayes' rule: the posterior is the next prior.

    In standardised units. The columns are orthogonal within each half, so that mean
    field is exact; the errors of two fits add up.
    """
    random = np.random.default_rng([seed, 1])
    halves = [_orthogonal(random, ROWS) * scale for scale in (1.0, [0.5, 2.0, 1.2])]
    X = np.vstack(halves)
    y = _targets(random, X)
    X = X * [1.0, 0.2, 30.0] + [0.0, -1.0, 100.0]
    model = _network(seed, standardize=True).fit(*_repeated(X[:ROWS], y[:ROWS]))
    Z = (X - model.x_mean_) / model.x_scale_
    targets = (y - model.y_mean_) / model.y_scale_
    tau = TAU * model.y_scale_**2
    expected = _conjugate(Z[:ROWS], targets[:ROWS], tau)
    _check(model, expected.mean, expected.std**2)
    model.partial_fit(*_repeated(X[ROWS:], y[ROWS:]), prior="previous")
    expected = _conjugate(Z, targets, tau)
    _check(model, expected.mean, expected.std**2, tolerance=0.02)


def test_learned_tau_gives_the_posterior_of_the_training_precision(seed):
    """If tau is learned, the posterior is the one for the given ``tau_training_``."""
    random = np.random.default_rng([seed, 5])
    X = _orthogonal(random, ROWS)
    y = _targets(random, X)
    model = _network(seed, standardize=False).set_params(tau="auto")
    model.fit(*_repeated(X, y))
    expected = _conjugate(X, y, model.tau_training_)
    _check(model, expected.mean, expected.std**2)
    decay = LENGTH_SCALE**2 / (2 * ROWS * model.tau_training_)
    np.testing.assert_allclose(model.weight_decay_training_, decay)


def test_correlated_design_gives_the_best_mean_field_posterior(seed):
    """The means are conjugate; the variances are conditional, and smaller."""
    random = np.random.default_rng([seed, 2])
    X = _orthogonal(random, ROWS) @ MIXING + 0.4
    y = _targets(random, X)
    # Adam takes longer along correlated columns.
    model = _network(seed, standardize=False).set_params(max_iter=2000)
    model.fit(*_repeated(X, y))
    expected = _conjugate(X, y, TAU)
    variance = 1 / expected.precision.diagonal(axis1=1, axis2=2)
    assert (variance < 0.8 * expected.std**2).any()
    _check(model, expected.mean, variance)


@pytest.mark.parametrize("standardize", [False, True], ids=["as it is", "standardised"])
def test_no_dropout_and_flat_prior_is_least_squares(seed, standardize):
    """dropout=0 and length_scale=0 give maximum likelihood for every tau.

    Ridge regression, length_scale > 0, is in tests/engine/test_training.py.
    """
    random = np.random.default_rng([seed, 4])
    X = _orthogonal(random, ROWS) @ MIXING + 0.4
    y = _targets(random, X)
    model = MCDropoutRegressor(
        (),
        dropout=0.0,
        length_scale=0.0,
        tau=TAU.tolist(),
        standardize=standardize,
        max_iter=1500,
        learning_rate_init=0.05,
        device="cpu",
        dtype="float64",
        random_state=seed,
    ).fit(X, y)
    np.testing.assert_array_equal(model.weight_decay_, 0)
    Z = np.column_stack([X, np.ones(ROWS)])
    solution, *_ = np.linalg.lstsq(Z, y)
    np.testing.assert_allclose(model.predict(X), Z @ solution, atol=1e-5)
