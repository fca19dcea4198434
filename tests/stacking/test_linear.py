"""Linear candidates: against closed forms, and against scikit-learn's solvers."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LassoCV, LogisticRegression, Ridge
from sklearn.model_selection import KFold

import skbayesnn
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
# What coordinate descent leaves of an error at the tolerance of `exact`.
OF_LASSO = 1e-4


@pytest.fixture
def table(seed):
    """More columns than rows, two of which say what y is; weights."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, COLUMNS))
    y = 2 * X[:, 3] - 3 * X[:, 5] + 0.3 * random.normal(size=ROWS)
    return X, y, random.uniform(0.5, 2, size=ROWS)


@pytest.fixture
def centred(table):
    """Weighted means of zero."""
    X, y, weights = table
    share = weights / weights.sum()
    return X - share @ X, y - share @ y, weights


@pytest.fixture
def exact(monkeypatch):
    """Coordinate descent goes on to the end."""
    monkeypatch.setattr(linear, "TOLERANCE", 1e-10)


class UnitVectors:
    """A source of "normal numbers" that hands out the rows of a unit matrix."""

    def __init__(self, size):
        self.left = np.eye(size)

    def standard_normal(self, shape):
        """The next columns of the matrix."""
        now, self.left = np.split(self.left, [shape[1]], axis=1)
        return now


def test_draws_have_the_covariance_of_the_posterior(seed):
    """They are linear in the normal numbers: the sum of squares is the covariance."""
    random = np.random.default_rng(seed)
    design, prior = random.normal(size=(7, 11)), random.uniform(0.1, 3, size=11)
    prior[4] = 0
    some, size = prior > 0, 7 + 11
    draws = deviations(design, prior, 2 * size, UnitVectors(size))
    np.testing.assert_array_equal(draws[size:], -draws[:size])
    part = design[:, some]
    expected = np.zeros((11, 11))
    expected[np.ix_(some, some)] = np.linalg.inv(
        part.T @ part + np.diag(1 / prior[some])
    )
    np.testing.assert_allclose(draws[:size].T @ draws[:size], expected, atol=1e-12)
    odd = deviations(design, prior, 5, random)
    np.testing.assert_allclose(odd.mean(0), 0, atol=1e-12)


# ---- one target


def _left_out(X, y, weights, ratio):
    """Mean and variance (over the noise's) of every row, by fits without it."""
    means, variances = np.empty(ROWS), np.empty(ROWS)
    for i in range(ROWS):
        others = np.arange(ROWS) != i
        design = np.column_stack([np.ones(ROWS - 1), X[others]])
        precision = np.diag([0.0] + [1 / ratio] * COLUMNS)
        information = design.T * weights[others]
        covariance = np.linalg.inv(information @ design + precision)
        row = np.append(1.0, X[i])
        means[i] = row @ covariance @ information @ y[others]
        variances[i] = 1 + row @ covariance @ row
    return means, variances


def test_ridge_has_the_largest_leave_one_out_density(centred):
    X, y, weights = centred
    found = ridge(X, y, weights)
    [ratio] = np.unique(found.prior)
    same = Ridge(alpha=1 / ratio, fit_intercept=False).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(found.mean, same.coef_, rtol=1e-7)

    def loss(ratio):
        means, variances = _left_out(X, y, weights, ratio)
        noise = np.average(np.square(y - means) / variances, weights=weights)
        least = np.average(variances, weights=weights) > 1 / MIN_SHARE
        spread = np.average(np.log(variances), weights=weights)
        return np.log(noise) + spread + 1e6 * least, noise

    best, noise = loss(ratio)
    assert found.noise == pytest.approx(noise, rel=1e-6)
    for factor in (0.01, 0.1, 0.9, 1.1, 10.0, 100.0):
        # Where the least share of the noise decides, the search stops near it.
        assert best < loss(ratio * factor)[0] + 1e-3


@pytest.mark.parametrize("adaptive", [False, True])
def test_lasso_is_the_mean_of_a_normal_posterior(centred, exact, adaptive):
    """Of the prior variances that it is given with; zero where these are."""
    X, y, weights = centred
    found = lasso(X, y, weights, 0, adaptive=adaptive)
    used = found.prior > 0
    np.testing.assert_array_equal(found.mean != 0, used)
    assert used[[3, 5]].all()
    part = X[:, used]
    information = part.T * weights
    mean = np.linalg.solve(
        information @ part + np.diag(1 / found.prior[used]), information @ y
    )
    np.testing.assert_allclose(found.mean[used], mean, atol=OF_LASSO)


def test_lasso_is_that_of_scikit_learn(centred, exact):
    """With the penalty of the same folds; the noise is the error of these."""
    X, y, _ = centred
    X, y = X - X.mean(0), y - y.mean()
    found = lasso(X, y, np.ones(ROWS), 4, adaptive=False)
    folds = KFold(N_FOLDS, shuffle=True, random_state=4)
    same = LassoCV(alphas=30, eps=1e-2, cv=folds, tol=1e-10, random_state=0).fit(X, y)
    np.testing.assert_allclose(found.mean, same.coef_, atol=OF_LASSO)
    used = np.flatnonzero(found.prior)
    gram = X[:, used].T @ X[:, used]
    inside = np.trace(np.linalg.solve(gram + np.diag(1 / found.prior[used]), gram))
    error = found.noise * (1 + (1 + inside) / ROWS)
    # Folds of four and five rows: their mean of means is not that of all rows.
    assert error == pytest.approx(same.mse_path_.mean(1).min(), rel=0.1)


def test_adaptive_lasso_has_penalties_by_the_weights_of_the_first(centred, exact):
    """A weight's penalty is one over its absolute value in the plain lasso."""
    X, y, weights = centred
    plain, adaptive = (lasso(X, y, weights, 0, adaptive=a) for a in (False, True))
    used = adaptive.mean != 0
    assert (plain.mean[used] != 0).all()
    penalties = np.abs(adaptive.mean[used]) / adaptive.prior[used]
    same = penalties * np.abs(plain.mean[used])
    np.testing.assert_allclose(same, same[0], rtol=1e-9)


# ---- one class against the others


def test_logistic_weights_are_modes_and_means(table):
    """The gradient is zero; so are the normal equations given Polya-Gamma variables."""
    X, y, weights = table
    is_class = y > 0
    for how in (ridge_logistic, lasso_logistic):
        more = [] if how is ridge_logistic else [0]
        mean, intercept, prior = how(X, is_class, weights, 0.3, *more)
        used = prior > 0
        assert used.any()
        logit = X @ mean + intercept
        gradient = X[:, used].T @ (weights * (is_class - expit(logit)))
        gradient -= mean[used] / prior[used]
        # Both solvers stop at some 1e-4 of the gradient of all rows.
        np.testing.assert_allclose(gradient, 0, atol=0.02)
        omega = np.tanh(logit / 2) / (2 * logit)
        normal = X[:, used].T @ (weights * (is_class - 0.5 - omega * logit))
        normal -= mean[used] / prior[used]
        np.testing.assert_allclose(normal, gradient, atol=1e-9)


@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
def test_probabilities_are_those_of_the_draws(table, penalty):
    X, y, weights = table
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-1.0, 1.0])]
    of_two = np.where(y > 0, "up", "down")
    for target in (of_two, labels):
        model = ShrunkLinearClassifier(penalty, 0.3, n_draws=DRAWS).fit(
            X, target, sample_weight=weights
        )
        predictive = open_predictive(model, X).whole()
        outputs = expit(
            np.einsum("dkc,rc->drk", model.coef_, X[:, model.columns_])
            + model.intercept_[:, None]
        )
        if target is of_two:
            outputs = np.concatenate([1 - outputs, outputs], axis=-1)
        expected = outputs / outputs.sum(-1, keepdims=True)
        np.testing.assert_allclose(predictive.probability, expected, rtol=1e-10)
        most = expected.mean(0).argmax(1)
        np.testing.assert_array_equal(model.predict(X), np.unique(target)[most])
        assert model.classes_.tolist() == sorted(set(target))


def test_ridge_of_classes_has_the_mode_of_scikit_learn(table):
    X, y, weights = table
    model = ShrunkLinearClassifier("ridge", 0.7).fit(X, y > 0, sample_weight=weights)
    Z = (X - model.x_mean_) / model.x_scale_
    variance = 0.7**2 / np.square(Z).sum(1).mean()
    same = LogisticRegression(C=variance, tol=1e-8, max_iter=10_000)
    same.fit(Z, y > 0, sample_weight=weights)
    mean = model.coef_.mean(0)[0] * model.x_scale_
    np.testing.assert_allclose(mean, same.coef_[0], atol=1e-3)


# ---- estimators


@pytest.mark.parametrize("penalty", PENALTIES)
def test_predictive_of_a_regression(table, penalty):
    """Mean, parts and log density by hand, from the draws."""
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
    found = model.log_predictive_density(X, y)
    np.testing.assert_allclose(found, np.log(density.mean(1)), rtol=1e-8)


def test_draws_do_not_move_the_mean(table):
    """However many there are, and whether their number is odd or even."""
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
            alone = ShrunkLinearRegressor(penalty, n_draws=DRAWS)
            alone.fit(X, Y[:, j], weights)
            # Sums in another order, of which coordinate descent makes more.
            found = model.predict(X)[:, j]
            np.testing.assert_allclose(found, alone.predict(X), atol=OF_LASSO)
            noise = alone.noise_variance_[0]
            assert model.noise_variance_[j] == pytest.approx(noise, rel=OF_LASSO)


def test_units_and_constant_columns_do_not_matter(table, exact):
    X, y, weights = table
    scale = np.geomspace(1e-6, 1e6, COLUMNS)
    other = np.column_stack([X * scale + 3 * scale, np.full(ROWS, 0.1)])
    for penalty in PENALTIES:
        model = ShrunkLinearRegressor(penalty, n_draws=DRAWS)
        before = model.fit(X, y, weights).predict(X)
        after = model.fit(other, 1e3 * y - 5, weights).predict(other)
        np.testing.assert_allclose(after, 1e3 * before - 5, rtol=1e-5, atol=1e-2)


def test_sparse_is_dense_and_weight_zero_is_absent(table, exact, seed):
    X, y, weights = table
    X = np.where(np.random.default_rng(seed).random(X.shape) < 0.5, X, 0)
    weights[[1, 7]] = 0
    models = [ShrunkLinearRegressor(p, n_draws=DRAWS) for p in PENALTIES]
    models += [ShrunkLinearClassifier(p, 0.3, n_draws=DRAWS) for p in PENALTIES[:2]]
    for model in models:
        of_numbers = isinstance(model, ShrunkLinearRegressor)
        target = y if of_numbers else y > 0
        predict = "predict" if of_numbers else "predict_proba"
        dense = getattr(model.fit(X, target, weights), predict)(X)
        wild = np.where((weights > 0)[:, None], X, 1e9)
        absent = getattr(model.fit(wild, target, weights), predict)(X)
        np.testing.assert_allclose(absent, dense, rtol=1e-7)
        csr = sparse.csr_array(X)
        found = getattr(model.fit(csr, target, weights), predict)(csr)
        np.testing.assert_allclose(found, dense, rtol=1e-7)


def test_targets_that_are_explained_entirely_or_not_at_all(table):
    """Noise stays positive, densities finite."""
    X, _, _ = table
    few = X[:, :4]
    for penalty in PENALTIES:
        for y in (few @ [1.0, 2.0, 3.0, 4.0], np.full(ROWS, 7.0), np.arange(ROWS) % 2):
            model = ShrunkLinearRegressor(penalty, n_draws=DRAWS).fit(few, y)
            assert np.isfinite(model.log_predictive_density(few, y)).all()
            assert model.noise_variance_.min() > 0


def test_a_row_alone_is_predicted_as_among_others(table):
    X, y, _ = table
    for penalty in PENALTIES:
        model = ShrunkLinearRegressor(penalty, n_draws=DRAWS).fit(X, y)
        alone = [model.predict(row[None])[0] for row in X]
        np.testing.assert_allclose(alone, model.predict(X), rtol=1e-10)
        same = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(same.predict(X), model.predict(X))


def test_an_error_leaves_it_as_it_was(table):
    X, y, _ = table
    model = ShrunkLinearRegressor(n_draws=DRAWS).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 1, np.nan, X), y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_saved_and_loaded(table, tmp_path):
    X, y, _ = table
    models = [ShrunkLinearRegressor(p, n_draws=DRAWS) for p in PENALTIES]
    models = [one.fit(X, y) for one in models]
    models += [ShrunkLinearClassifier("lasso", 0.3, n_draws=DRAWS).fit(X, y > 0)]
    for i, model in enumerate(models):
        skbayesnn.save(model, tmp_path / str(i))
        same = skbayesnn.load(tmp_path / str(i))
        np.testing.assert_array_equal(same.predict(X), model.predict(X))
        model.coef_ = model.coef_ * np.nan
        with pytest.raises(ValueError, match="finite"):
            skbayesnn.save(model, tmp_path / "changed")
