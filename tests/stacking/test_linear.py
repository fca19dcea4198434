"""Linear candidates against closed forms and scikit-learn's solvers."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LassoCV, LogisticRegression, Ridge
from sklearn.model_selection import KFold, PredefinedSplit

from skbayesnn._data.groups import group_folds
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._stacking import linear
from skbayesnn._stacking.linear import (
    MIN_SHARE,
    N_FOLDS,
    ShrunkLinearClassifier,
    ShrunkLinearRegressor,
    deviations,
    lasso,
    lasso_logistic,
    ridge,
    ridge_logistic,
)

ROWS, COLUMNS, TARGETS, DRAWS = 23, 31, 2, 9
PENALTIES = "ridge", "lasso", "adaptive_lasso"
# Error of coordinate descent at the tolerance of `exact`.
LASSO_ERROR = 1e-4


@pytest.fixture
def table(seed):
    """More columns than rows, with y a function of two of them; and weights."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, COLUMNS))
    y = 2 * X[:, 3] - 3 * X[:, 5] + 0.3 * random.normal(size=ROWS)
    return X, y, random.uniform(0.5, 2, size=ROWS)


@pytest.fixture
def centred(table):
    """X and y with weighted means of zero, and weights."""
    X, y, weights = table
    share = weights / weights.sum()
    return X - share @ X, y - share @ y, weights


@pytest.fixture
def exact(monkeypatch):
    """Coordinate descent converges."""
    monkeypatch.setattr(linear, "TOLERANCE", 1e-10)


class UnitVectors:
    """A random generator whose normal numbers are the rows of a unit matrix."""

    def __init__(self, size):
        self.remaining = np.eye(size)

    def standard_normal(self, shape):
        """Return the next columns of the matrix."""
        columns, self.remaining = np.split(self.remaining, [shape[1]], axis=1)
        return columns


def test_draws_have_the_covariance_of_the_posterior(seed):
    """Draws are linear in the normal numbers; their squares sum to the covariance."""
    random = np.random.default_rng(seed)
    design, prior = random.normal(size=(7, 11)), random.uniform(0.1, 3, size=11)
    prior[4] = 0
    used, size = prior > 0, 7 + 11
    draws = deviations(design, prior, 2 * size, UnitVectors(size))
    np.testing.assert_array_equal(draws[size:], -draws[:size])
    part = design[:, used]
    expected = np.zeros((11, 11))
    expected[np.ix_(used, used)] = np.linalg.inv(
        part.T @ part + np.diag(1 / prior[used])
    )
    np.testing.assert_allclose(draws[:size].T @ draws[:size], expected, atol=1e-12)
    odd_draws = deviations(design, prior, 5, random)
    np.testing.assert_allclose(odd_draws.mean(0), 0, atol=1e-12)


# ---- one target


def _left_out(X, y, weights, ratio, groups):
    """Mean and variance (relative to the noise variance) of every row left out.

    The other rows of its group are left out too.
    """
    means, variances = np.empty(ROWS), np.empty(ROWS)
    for i in range(ROWS):
        kept = groups != groups[i]
        design = np.column_stack([np.ones(kept.sum()), X[kept]])
        precision = np.diag([0.0] + [1 / ratio] * COLUMNS)
        information = design.T * weights[kept]
        covariance = np.linalg.inv(information @ design + precision)
        row = np.append(1.0, X[i])
        means[i] = row @ covariance @ information @ y[kept]
        variances[i] = 1 + row @ covariance @ row
    return means, variances


@pytest.mark.parametrize("n_groups", [None, 7, ROWS])
def test_ridge_has_the_largest_leave_one_out_density(centred, n_groups):
    """Of rows, or of groups."""
    X, y, weights = centred
    groups = np.arange(ROWS) % (n_groups or ROWS)
    actual = ridge(X, y, weights, groups if n_groups else None)
    [ratio] = np.unique(actual.prior)
    expected = Ridge(alpha=1 / ratio, fit_intercept=False).fit(
        X, y, sample_weight=weights
    )
    np.testing.assert_allclose(actual.mean, expected.coef_, rtol=1e-7)

    def loss(ratio):
        means, variances = _left_out(X, y, weights, ratio, groups)
        noise = np.average(np.square(y - means) / variances, weights=weights)
        least = np.average(variances, weights=weights) > 1 / MIN_SHARE
        spread = np.average(np.log(variances), weights=weights)
        return np.log(noise) + spread + 1e6 * least, noise

    best, noise = loss(ratio)
    assert actual.noise == pytest.approx(noise, rel=1e-6)
    for factor in (0.01, 0.1, 0.9, 1.1, 10.0, 100.0):
        # If the least share of the noise decides, the search stops near it.
        assert best < loss(ratio * factor)[0] + 1e-3


@pytest.mark.parametrize("adaptive", [False, True])
def test_lasso_is_the_mean_of_a_normal_posterior(centred, exact, adaptive):
    """With the prior variances that it returns; zero if these are zero."""
    X, y, weights = centred
    actual = lasso(X, y, weights, 0, adaptive=adaptive)
    used = actual.prior > 0
    np.testing.assert_array_equal(actual.mean != 0, used)
    assert used[[3, 5]].all()
    part = X[:, used]
    information = part.T * weights
    mean = np.linalg.solve(
        information @ part + np.diag(1 / actual.prior[used]), information @ y
    )
    np.testing.assert_allclose(actual.mean[used], mean, atol=LASSO_ERROR)


@pytest.mark.parametrize("n_groups", [None, 9])
def test_lasso_equals_scikit_learn(centred, exact, n_groups):
    """With the penalty of the same folds, and the noise from their errors."""
    X, y, _ = centred
    X, y = X - X.mean(0), y - y.mean()
    groups = np.arange(ROWS) % n_groups if n_groups else None
    actual = lasso(X, y, np.ones(ROWS), 4, groups, adaptive=False)
    folds = KFold(N_FOLDS, shuffle=True, random_state=4)
    if n_groups:
        folds = PredefinedSplit(group_folds(groups, N_FOLDS, 4))
    expected = LassoCV(alphas=30, eps=1e-2, cv=folds, tol=1e-10, random_state=0).fit(
        X, y
    )
    np.testing.assert_allclose(actual.mean, expected.coef_, atol=LASSO_ERROR)
    used = np.flatnonzero(actual.prior)
    gram = X[:, used].T @ X[:, used]
    inside = np.trace(np.linalg.solve(gram + np.diag(1 / actual.prior[used]), gram))
    error = actual.noise * (1 + (1 + inside) / ROWS)
    # Folds have four or five rows: the mean of their means is not the mean of all rows.
    assert error == pytest.approx(expected.mse_path_.mean(1).min(), rel=0.1)


def test_adaptive_lasso_has_penalties_from_the_plain_lasso(centred, exact):
    """A weight's penalty is one over its absolute value in the plain lasso."""
    X, y, weights = centred
    plain, adaptive = (lasso(X, y, weights, 0, adaptive=a) for a in (False, True))
    used = adaptive.mean != 0
    assert (plain.mean[used] != 0).all()
    penalties = np.abs(adaptive.mean[used]) / adaptive.prior[used]
    products = penalties * np.abs(plain.mean[used])
    np.testing.assert_allclose(products, products[0], rtol=1e-9)


# ---- one-versus-rest classifiers


def test_logistic_weights_are_modes_and_means(table):
    """The gradient is zero, and so is the one given Polya-Gamma variables."""
    X, y, weights = table
    is_class = y > 0
    for fit in (ridge_logistic, lasso_logistic):
        random_state = [] if fit is ridge_logistic else [0]
        mean, intercept, prior = fit(X, is_class, weights, 0.3, *random_state)
        used = prior > 0
        assert used.any()
        logit = X @ mean + intercept
        gradient = X[:, used].T @ (weights * (is_class - expit(logit)))
        gradient -= mean[used] / prior[used]
        # Both solvers stop at about 1e-4 of the gradient of all rows.
        np.testing.assert_allclose(gradient, 0, atol=0.02)
        omega = np.tanh(logit / 2) / (2 * logit)
        normal = X[:, used].T @ (weights * (is_class - 0.5 - omega * logit))
        normal -= mean[used] / prior[used]
        np.testing.assert_allclose(normal, gradient, atol=1e-9)


@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
def test_probabilities_are_computed_from_the_draws(table, penalty):
    X, y, weights = table
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-1.0, 1.0])]
    two_labels = np.where(y > 0, "up", "down")
    for target in (two_labels, labels):
        model = ShrunkLinearClassifier(penalty, 0.3, n_draws=DRAWS).fit(
            X, target, sample_weight=weights
        )
        predictive = open_predictive(model, X).whole()
        outputs = expit(
            np.einsum("dkc,rc->drk", model.coef_, X[:, model.columns_])
            + model.intercept_[:, None]
        )
        if target is two_labels:
            outputs = np.concatenate([1 - outputs, outputs], axis=-1)
        expected = outputs / outputs.sum(-1, keepdims=True)
        np.testing.assert_allclose(predictive.probability, expected, rtol=1e-10)
        most = expected.mean(0).argmax(1)
        np.testing.assert_array_equal(model.predict(X), np.unique(target)[most])
        assert model.classes_.tolist() == sorted(set(target))


def test_ridge_classifier_equals_scikit_learn(table):
    X, y, weights = table
    model = ShrunkLinearClassifier("ridge", 0.7).fit(X, y > 0, sample_weight=weights)
    Z = (X - model.x_mean_) / model.x_scale_
    variance = 0.7**2 / np.square(Z).sum(1).mean()
    expected = LogisticRegression(C=variance, tol=1e-8, max_iter=10_000)
    expected.fit(Z, y > 0, sample_weight=weights)
    mean = model.coef_.mean(0)[0] * model.x_scale_
    np.testing.assert_allclose(mean, expected.coef_[0], atol=1e-3)


# ---- estimators


@pytest.mark.parametrize("penalty", PENALTIES)
def test_predictive_distribution_of_a_regressor(table, penalty):
    """Mean, parts and log density computed by hand from the draws."""
    X, y, weights = table
    model = ShrunkLinearRegressor(penalty, n_draws=DRAWS).fit(X, y, weights)
    means = X[:, model.columns_] @ model.coef_[:, 0].T + model.intercept_[:, 0]
    np.testing.assert_allclose(model.predict(X), means.mean(1), rtol=1e-8)
    parts = model.predict_uncertainty(X, "all")
    np.testing.assert_allclose(parts["epistemic"], means.std(1), rtol=1e-8)
    aleatoric = np.full(ROWS, model.noise_variance_[0] ** 0.5)
    np.testing.assert_allclose(parts["aleatoric"], aleatoric)
    density = np.exp(-0.5 * (y[:, None] - means) ** 2 / model.noise_variance_)
    density /= np.sqrt(2 * np.pi * model.noise_variance_)
    actual = model.log_predictive_density(X, y)
    np.testing.assert_allclose(actual, np.log(density.mean(1)), rtol=1e-8)


def test_mean_does_not_depend_on_the_number_of_draws(table):
    """For an odd or even number."""
    X, y, _ = table
    for penalty in PENALTIES:
        means = [
            ShrunkLinearRegressor(penalty, n_draws=n).fit(X, y).predict(X)
            for n in (1, 2, 7)
        ]
        np.testing.assert_allclose(means[1:], [means[0]] * 2, rtol=1e-8)


def test_targets_are_independent(table, exact):
    X, y, weights = table
    Y = np.column_stack([y, np.exp(y / 3)])
    for penalty in PENALTIES:
        model = ShrunkLinearRegressor(penalty, n_draws=DRAWS).fit(X, Y, weights)
        for j in range(TARGETS):
            single = ShrunkLinearRegressor(penalty, n_draws=DRAWS)
            single.fit(X, Y[:, j], weights)
            # Rounding of sums, which coordinate descent amplifies.
            actual = model.predict(X)[:, j]
            np.testing.assert_allclose(actual, single.predict(X), atol=LASSO_ERROR)
            noise = single.noise_variance_[0]
            assert model.noise_variance_[j] == pytest.approx(noise, rel=LASSO_ERROR)


def test_units_and_constant_columns_do_not_matter(table, exact):
    X, y, weights = table
    scale = np.geomspace(1e-6, 1e6, COLUMNS)
    scaled = np.column_stack([X * scale + 3 * scale, np.full(ROWS, 0.1)])
    for penalty in PENALTIES:
        model = ShrunkLinearRegressor(penalty, n_draws=DRAWS)
        before = model.fit(X, y, weights).predict(X)
        after = model.fit(scaled, 1e3 * y - 5, weights).predict(scaled)
        np.testing.assert_allclose(after, 1e3 * before - 5, rtol=1e-5, atol=1e-2)


def test_sparse_equals_dense_and_weight_zero_an_absent_row(table, exact, seed):
    X, y, weights = table
    X = np.where(np.random.default_rng(seed).random(X.shape) < 0.5, X, 0)
    weights[[1, 7]] = 0
    groups = np.arange(ROWS) % 6
    models = [ShrunkLinearRegressor(p, n_draws=DRAWS) for p in PENALTIES]
    models += [ShrunkLinearClassifier(p, 0.3, n_draws=DRAWS) for p in PENALTIES[:2]]
    for model in models:
        is_regressor = isinstance(model, ShrunkLinearRegressor)
        target = y if is_regressor else y > 0
        predict = "predict" if is_regressor else "predict_proba"
        dense = getattr(model.fit(X, target, weights, groups), predict)(X)
        X_outliers = np.where((weights > 0)[:, None], X, 1e9)
        absent = getattr(model.fit(X_outliers, target, weights, groups), predict)(X)
        np.testing.assert_allclose(absent, dense, rtol=1e-7)
        csr = sparse.csr_array(X)
        from_sparse = getattr(model.fit(csr, target, weights, groups), predict)(csr)
        np.testing.assert_allclose(from_sparse, dense, rtol=1e-7)


def test_targets_without_noise_or_variation(table):
    """The noise stays positive, and densities are finite."""
    X, _, _ = table
    few = X[:, :4]
    for penalty in PENALTIES:
        for y in (few @ [1.0, 2.0, 3.0, 4.0], np.full(ROWS, 7.0), np.arange(ROWS) % 2):
            model = ShrunkLinearRegressor(penalty, n_draws=DRAWS).fit(few, y)
            assert np.isfinite(model.log_predictive_density(few, y)).all()
            assert model.noise_variance_.min() > 0


def test_predictions_do_not_depend_on_other_rows(table):
    X, y, _ = table
    for penalty in PENALTIES:
        model = ShrunkLinearRegressor(penalty, n_draws=DRAWS).fit(X, y)
        single = [model.predict(row[None])[0] for row in X]
        np.testing.assert_allclose(single, model.predict(X), rtol=1e-10)
        restored = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(restored.predict(X), model.predict(X))


def test_failed_fit_keeps_the_previous_fit(table):
    X, y, _ = table
    model = ShrunkLinearRegressor(n_draws=DRAWS).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.where(X > 1, np.inf, X), y)
    np.testing.assert_array_equal(model.predict(X), before)
