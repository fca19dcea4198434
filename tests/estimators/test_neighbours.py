"""Soft nearest neighbours: closed forms, rows and their weights, draws, parameters."""

import math
import pickle

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from skbayesnn import NeighbourClassifier, NeighbourRegressor
from skbayesnn._runtime import snapshot
from skbayesnn.estimators import _embedding, _table_model, neighbours
from skbayesnn.preprocessing import PiecewiseLinearEncoder, TableEncoder
from tests.helpers.frames import mixed_frame, new_frame

pytest.importorskip("skbayesnn._engine.compiled.neighbours")

SHORT = {"hidden_size": 6, "embedding_size": 3, "max_iter": 4}
KINDS = pytest.mark.parametrize("kind", [NeighbourRegressor, NeighbourClassifier])


def _data(seed, n_rows=50):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n_rows, 4)) * [1, 20, 0.3, 5] + [0, 100, 0, -3]
    y = 300 + 40 * X[:, 0] + random.standard_normal(n_rows)
    return X, y, random


def _targets(kind, y):
    """y, one or two targets, or three classes."""
    return y if kind is NeighbourRegressor else (y > 300).astype(int) + (y > 330)


def _fitted(kind, seed, sample_weight=None, n_rows=50, **parameters):
    X, y, _ = _data(seed, n_rows)
    model = kind(**SHORT | {"random_state": seed} | parameters)
    return model.fit(X, _targets(kind, y), sample_weight)


def embedded(model, member, draw, X):
    """Embedding of standardised columns, with plain loops of NumPy."""
    features = X if model.encoder_ is None else model.encoder_.transform(X)
    w = {name: values[member] for name, values in model.parameters_.items()}
    keep = model._masks(int(model.seeds_[member]), draw)
    a1 = np.maximum(features @ w["w1"] + w["b1"], 0) * keep[0]
    a2 = np.maximum(a1 @ w["w2"] + w["b2"], 0) * keep[1]
    return a2 @ w["w3"] + features @ w["linear"]


def _exponents(model, member, draw, X):
    """Log weights of the training rows for each row of X, up to a constant."""
    z = embedded(model, member, draw, (X - model.x_mean_) / model.x_scale_)
    stored = embedded(model, member, draw, model.X_train_)
    distances = np.square(z[:, None] - stored).sum(-1)
    exponents = np.log(model.weights_train_) - distances
    return exponents - logsumexp(exponents, axis=1, keepdims=True)


def _pairs(model):
    n_draws = model.n_draws if model.dropout_.any() else 1
    return [(m, k) for m in range(len(model.seeds_)) for k in range(n_draws)]


def _several(X, y):
    """Two targets with other units, which depend on other columns."""
    return np.stack([y, 7 - 3 * X[:, 1]], axis=1)


# ---- closed forms


@pytest.fixture
def unmerged(monkeypatch):
    """Each neighbour of a regression is a component."""
    monkeypatch.setattr(neighbours, "N_GROUPS", 300)
    monkeypatch.setattr(neighbours, "MERGED", 0.0)


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("parameters", [{}, {"dropout": 0.0, "tau": 0.04}])
def test_density_by_a_double_loop(parameters, n_targets, seed):
    X_new, y_new, random = _data([seed, 1], 7)
    X, y, _ = _data(seed)
    y, y_new = _several(X, y)[:, :n_targets], _several(X_new, y_new)[:, :n_targets]
    weight = random.uniform(0.5, 2, 50)
    model = NeighbourRegressor(**SHORT, random_state=seed, n_draws=3, dtype="float64")
    model.set_params(**parameters).fit(X, y, weight)
    y_train = model.y_train_.reshape(50, -1) * model.y_scale_ + model.y_mean_
    densities = []
    for member, draw in _pairs(model):
        exponents = _exponents(model, member, draw, X_new)
        a = 1 / (1 + math.exp(-model.parameters_["kernel"][member, -1]))
        widths = model.kernel_std_[member].reshape(2, n_targets)
        density = 0.0
        for t in range(n_targets):
            wide, small = (
                norm.pdf(y_new[:, [t]], y_train[:, t], h) for h in widths[:, t]
            )
            density += logsumexp(exponents, b=a * wide + (1 - a) * small, axis=1)
        densities.append(density)
    expected = logsumexp(densities, axis=0) - math.log(len(_pairs(model)))
    actual = model.log_predictive_density(X_new, y_new)
    # Rows with a relative weight below 1e-10 are left out: outliers have no density.
    near = expected > -15
    assert near.any()
    np.testing.assert_allclose(actual[near], expected[near], atol=1e-5)
    if parameters:
        np.testing.assert_allclose(model.kernel_std_, 5.0)
        np.testing.assert_allclose(model.tau_, 0.04)


def test_several_targets(seed):
    """Each has its own widths; ``tau`` may differ."""
    X, y, _ = _data(seed)
    model = NeighbourRegressor(**SHORT, random_state=seed, dtype="float64")
    model.fit(X, _several(X, y))
    n_networks = len(model.seeds_)
    assert model.y_train_.shape == (50, 2)
    assert model.kernel_std_.shape == (n_networks, 2, 2)
    assert model.tau_.shape == (2,)
    mean, std = model.predict(X[:7], return_std=True)
    assert mean.shape == std.shape == (7, 2)
    assert model.predict(X[:7], return_cov=True)[1].shape == (7, 2, 2)
    assert model.predict_interval(X[:7]).shape == (7, 2, 2)
    assert model.predict_uncertainty(X[:7], kind="epistemic").shape == (7, 2)
    assert model.sample_y(X[:7], 5, random_state=0).shape == (7, 2, 5)
    assert model.crps(X, _several(X, y)).shape == (50,)
    model.set_params(tau=[0.04, 0.25]).fit(X, _several(X, y))
    np.testing.assert_allclose(model.tau_, [0.04, 0.25])
    np.testing.assert_allclose(model.kernel_std_, [[[5, 2]] * 2] * n_networks)


def test_merged_neighbours(seed, monkeypatch):
    """Twelve groups per width have nearly the scores of all neighbours.

    The density of an outlier may differ by more.
    """
    X, y, _ = _data([seed, 1], 11)
    parameters = {"max_iter": 80, "dtype": "float64", "n_estimators": 2}
    model = _fitted(NeighbourRegressor, seed, n_rows=200, **parameters)
    assert model._open_predictive(X).whole().components.weight.shape[-1] == 24
    scores = [model.crps(X, y), model.log_predictive_density(X, y)]
    interval = model.predict_interval(X)
    monkeypatch.setattr(neighbours, "N_GROUPS", 200)
    monkeypatch.setattr(neighbours, "MERGED", 0.0)
    crps, density = model.crps(X, y), model.log_predictive_density(X, y)
    np.testing.assert_allclose(scores[0], crps, rtol=2e-3)
    assert np.median(np.abs(scores[1] - density)) < 0.02
    std = model.predict(X, return_std=True)[1][:, None]
    assert np.abs((interval - model.predict_interval(X)) / std).max() < 0.05


@pytest.mark.parametrize("n_targets", [1, 2])
def test_moments_of_the_neighbours(n_targets, seed):
    X_new, _, _ = _data([seed, 1], 7)
    X, y, _ = _data(seed)
    y = y if n_targets == 1 else _several(X, y)
    model = NeighbourRegressor(**SHORT, random_state=seed, dtype="float64").fit(X, y)
    y_train = model.y_train_ * model.y_scale_ + model.y_mean_
    means, variances = [], []
    for member, draw in _pairs(model):
        w = np.exp(_exponents(model, member, draw, X_new))
        a = 1 / (1 + math.exp(-model.parameters_["kernel"][member, -1]))
        kernel = np.array([a, 1 - a]) @ np.square(model.kernel_std_[member])
        means.append(w @ y_train)
        variances.append(w @ np.square(y_train) - means[-1] ** 2 + kernel)
    actual = model.predict_uncertainty(X_new, kind="all")
    np.testing.assert_allclose(model.predict(X_new), np.mean(means, 0), rtol=1e-7)
    np.testing.assert_allclose(actual["epistemic"], np.std(means, 0), rtol=1e-4)
    aleatoric = np.sqrt(np.mean(variances, 0))
    np.testing.assert_allclose(actual["aleatoric"], aleatoric, rtol=1e-5)


def test_probabilities_are_shares_of_the_classes(seed):
    X_new, _, random = _data([seed, 1], 7)
    weight = random.uniform(0.5, 2, 50)
    model = _fitted(NeighbourClassifier, seed, weight, dtype="float64", n_draws=2)
    shares = []
    for member, draw in _pairs(model):
        w = np.exp(_exponents(model, member, draw, X_new))
        a = 1 / (1 + math.exp(-model.parameters_["kernel"][member, 2]))
        shares.append((1 - a) * w @ np.eye(3)[model.y_train_] + a / 3)
    actual = model.predict_proba(X_new)
    np.testing.assert_allclose(actual, np.mean(shares, 0), rtol=1e-8)


def test_it_learns(seed):
    """One column of four determines y; nearest neighbours of all columns are worse."""
    X, y, _ = _data(seed, 400)
    parameters = {"max_iter": 150, "n_estimators": 1, "random_state": seed}
    model = NeighbourRegressor(**parameters).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.95
    assert model.loss_curve_[-1] < model.loss_curve_[0] - 0.5
    labels = np.where(y > 300, "high", "low")
    model = NeighbourClassifier(**parameters).fit(X[:300], labels[:300])
    assert model.score(X[300:], labels[300:]) > 0.9


@KINDS
def test_training_rows_are_embedded_in_parts(kind, seed, monkeypatch):
    X, _, _ = _data(seed)
    model = _fitted(kind, seed)
    expected = model.predict(X)
    monkeypatch.setattr(neighbours, "ENCODED_ROWS", 7)
    model._protect()
    np.testing.assert_array_equal(model.predict(X), expected)


# ---- held-out rows


@pytest.mark.parametrize(
    ("n_rows", "share", "n_held_out"),
    [
        *[(119, 0.1, 0), (120, 0.1, 60), (701, 0.1, 70), (9000, 0.1, 500)],
        *[(701, 0, 0), (150, 0.9, 75)],
    ],
)
def test_number_of_held_out_rows(n_rows, share, n_held_out, seed):
    model = NeighbourRegressor(validation_fraction=share)
    model.X_train_ = np.zeros((n_rows, 1))
    held_out = model._held_out_rows(None, np.random.RandomState(seed))
    assert np.count_nonzero(held_out) == n_held_out


@pytest.fixture
def calibrations(monkeypatch):
    """Arguments and result of every call of ``calibrated``."""
    calls = []

    def recorded(model, *arguments):
        result = _embedding.calibrated(model, *arguments)
        calls.append((snapshot(model), *arguments, result))
        return result

    monkeypatch.setattr(neighbours, "calibrated", recorded)
    return calls


@pytest.mark.usefixtures("unmerged")
@KINDS
def test_held_out_density(kind, seed, calibrations):
    """It is the predictive density of a model of the other rows."""
    model = _fitted(kind, seed, n_rows=200, dtype="float64", dropout=0)
    [(_, trainer, held_out, _)] = calibrations
    assert held_out.sum() == 60
    other = _embedding.of_other_rows(model, held_out)
    features = model._encoded(model.X_train_[held_out])
    queries = other._queries(features, other._embedded_draws())
    y, kernel = model.y_train_[held_out], model.parameters_["kernel"]
    arguments = trainer.rows, *trainer.targets(y), kernel, queries
    actual, unit = _embedding.log_density(*arguments), 0.0
    if kind is NeighbourRegressor:
        y, unit = y * model.y_scale_ + model.y_mean_, np.log(model.y_scale_)
    else:
        y = model.classes_[y]
    targets = other._stored_targets()
    distribution = other._distribution(queries, targets, np.dtype(float))
    expected = distribution.log_density(y) + unit
    near = expected > -15
    assert near.any()
    np.testing.assert_allclose(actual[near], expected[near], atol=1e-5)


def test_calibration_scales_embedding_and_kernel(seed, calibrations):
    _fitted(NeighbourRegressor, seed, n_rows=200, dtype="float64")
    [(model, _, held_out, after)] = calibrations
    before = model.parameters_
    factors = [after[name] / before[name] for name in ("w3", "linear")]
    np.testing.assert_allclose(np.concatenate(factors, 1), factors[0].flat[0])
    widths = np.exp(after["kernel"] - before["kernel"])
    np.testing.assert_allclose(widths[:, :2], widths.flat[0])
    np.testing.assert_allclose(widths[:, 2], 1)
    for name in ("w1", "b1", "w2", "b2"):
        np.testing.assert_array_equal(after[name], before[name])
    # All embeddings, of the held-out rows too, have this factor.
    features, queries = model._encoded(model.X_train_[held_out]), []
    for model.parameters_ in (before, after):
        queries.append(model._queries(features, model._embedded_draws()))
    scaled, expected = _embedding.scaled(queries[0], factors[0].flat[0]), queries[1]
    for (draw, z), (expected_draw, expected_z) in zip(scaled, expected, strict=True):
        np.testing.assert_allclose(z, expected_z, rtol=1e-9)
        np.testing.assert_allclose(draw.columns, expected_draw.columns, rtol=1e-9)
        np.testing.assert_allclose(draw.offsets, expected_draw.offsets, rtol=1e-9)


def test_best_factor_maximises_the_posterior():
    """Of densities -(x - c)^2 with weights v: x = 2 v c / (2 v + 1 / std^2)."""
    weights = np.array([2.0, 5.0])
    factor = _embedding.best_factor(weights, lambda x: np.full(2, -((x - 0.7) ** 2)))
    precision = _embedding.PRIOR_STD**-2
    best = 2 * 7 * 0.7 / (2 * 7 + precision)
    assert np.log(factor) == pytest.approx(best, abs=_embedding.LOG_PRECISION)


# ---- rows and their weights


@pytest.mark.usefixtures("unmerged")
@KINDS
def test_stored_row_of_weight_two_is_two_rows(kind, seed):
    """For predictions; the training uses random rows."""
    X, y, _ = _data(seed)
    weights = np.random.default_rng(seed).integers(1, 4, 50).astype(float)
    model = _fitted(kind, seed, weights)
    repeated = pickle.loads(pickle.dumps(model))
    times = model.weights_train_.astype(int)
    repeated.X_train_ = np.repeat(model.X_train_, times, axis=0)
    repeated.y_train_ = np.repeat(model.y_train_, times)
    repeated.weights_train_ = np.ones(times.sum())
    # Weights are sums of single-precision exponentials.
    np.testing.assert_allclose(repeated.predict(X), model.predict(X), rtol=1e-4)
    labels = _targets(kind, y)
    np.testing.assert_allclose(
        repeated.log_predictive_density(X, labels),
        model.log_predictive_density(X, labels),
        rtol=1e-3,
        atol=1e-3,
    )


@KINDS
def test_rows_of_weight_zero_are_removed(kind, seed):
    X, y, random = _data(seed)
    labels, weights = _targets(kind, y), np.ones(50)
    removed = random.permutation(50)[:9]
    weights[removed] = 0
    parameters = SHORT | {"random_state": seed}
    model = kind(**parameters).fit(X, labels, weights)
    kept = weights > 0
    other = kind(**parameters).fit(X[kept], labels[kept])
    assert len(model.X_train_) == 41
    np.testing.assert_array_equal(model.predict(X), other.predict(X))


def test_weights_count_in_the_loss(seed):
    """Their sum is N: with twice the weights, the prior counts half."""
    model = _fitted(NeighbourRegressor, seed, np.full(50, 2.0))
    assert model.total_weight_ == 100
    decay = _fitted(NeighbourRegressor, seed).weight_decay_
    np.testing.assert_allclose(model.weight_decay_, decay / 2)
    np.testing.assert_allclose(decay, np.array([1, 0.9, 0.9]) * 9 / 100)


def test_classes_are_weighted(seed):
    X, y, _ = _data(seed)
    labels = _targets(NeighbourClassifier, y)
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    parameters = SHORT | {"random_state": seed}
    model = NeighbourClassifier(**parameters, class_weight=weights).fit(X, labels)
    by_row = np.array([weights[label] for label in labels])
    other = NeighbourClassifier(**parameters).fit(X, labels, by_row)
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))


# ---- groups


def test_rows_of_a_group_do_not_predict_each_other(seed):
    """Copies of rows would, and the kernel would be too narrow."""
    X, y, random = _data(seed, 60)
    noise, groups = 30, np.arange(240) % 60
    y = np.tile(y + noise * random.standard_normal(60), 4)
    parameters = SHORT | {"max_iter": 200, "n_estimators": 1, "random_state": seed}
    with_groups, without = (
        NeighbourRegressor(**parameters).fit(np.tile(X, (4, 1)), y, groups=values)
        for values in (groups, None)
    )
    new, y_new, random = _data([seed, 1], 200)
    y_new = y_new + noise * random.standard_normal(200)
    density = [m.log_predictive_density(new, y_new) for m in (with_groups, without)]
    bounded = np.maximum(density, -20).mean(1)
    assert bounded[0] > bounded[1] + 0.3


@KINDS
def test_groups_of_single_rows_are_no_groups(kind, seed):
    """The held-out rows would be others."""
    X, y, random = _data(seed)
    labels = _targets(kind, y)
    model = kind(**SHORT, validation_fraction=0.0, random_state=seed)
    expected = model.fit(X, labels).predict(X)
    groups = random.permutation(50)
    np.testing.assert_array_equal(
        model.fit(X, labels, groups=groups).predict(X), expected
    )


def test_groups_reach_the_statistics_of_categories(seed):
    """A row is encoded by y of other groups."""
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(10), 13)
    frame = pandas.DataFrame({"level": [f"l{i}" for i in random.integers(0, 14, 130)]})
    y = random.standard_normal(130)
    model = NeighbourRegressor(**SHORT, random_state=0).fit(frame, y, groups=group)
    encoder = TableEncoder(target_type="continuous")
    expected = encoder.fit_transform(frame, y, groups=group)
    order = np.argsort(y)
    actual = model.X_train_[:, 0] * model.x_scale_[0] + model.x_mean_[0]
    # X_train_ has single precision.
    np.testing.assert_allclose(actual, expected[order, 0], atol=1e-5)


def test_a_later_precision_does_not_change_predictions(seed):
    X = _data(seed)[0]
    model = _fitted(NeighbourRegressor, seed)
    expected = model.predict(X)
    model.set_params(dtype="float64")
    np.testing.assert_array_equal(model.predict(X), expected)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), expected)


def test_groups_are_held_out_together(seed):
    random = np.random.default_rng(seed)
    groups = random.integers(0, 40, 400)
    model = NeighbourRegressor()
    model.X_train_ = np.zeros((400, 1))
    held_out = model._held_out_rows(groups, np.random.RandomState(seed))
    assert 30 <= held_out.sum() <= 60
    assert not np.intersect1d(groups[held_out], groups[~held_out]).size
    # Two groups stay.
    groups = np.repeat([0, 1, 2], [30, 30, 340])
    held_out = model._held_out_rows(groups, np.random.RandomState(seed))
    assert len(np.unique(groups[~held_out])) >= 2
    X, y, _ = _data(seed)
    with pytest.raises(ValueError, match="at least 2 groups"):
        NeighbourRegressor(**SHORT).fit(X, y, groups=np.zeros(50))


# ---- predictions are a function of the fitted model


@KINDS
def test_row_does_not_depend_on_its_block(kind, seed, monkeypatch):
    """The distributions are equal; NumPy may add their draws in another order."""
    X, y, _ = _data(seed)
    model, labels = _fitted(kind, seed), _targets(kind, y)
    together = model._open_predictive(X).whole().sample_f(np.arange(8))
    monkeypatch.setattr(_table_model, "MAX_COMPONENTS", 1)
    blocks = model._open_predictive(X)
    assert blocks.block == 1
    alone = [block.sample_f(np.arange(8)) for _, block in blocks.blocks()]
    np.testing.assert_array_equal(np.concatenate(alone), together)
    density = model.log_predictive_density(X, labels)
    monkeypatch.undo()
    expected = model.log_predictive_density(X, labels)
    np.testing.assert_allclose(density, expected, rtol=1e-12)


def test_draws_do_not_depend_on_their_number(seed):
    X, _, _ = _data(seed)
    model = _fitted(NeighbourRegressor, seed, n_estimators=1, n_draws=3, dropout=0.4)
    distribution = model._open_predictive(X).whole()
    few = distribution.sample_f(np.arange(3))
    more = model.set_params(n_draws=5)._open_predictive(X).whole()
    np.testing.assert_array_equal(more.sample_f(np.arange(3)), few)
    assert not np.array_equal(few[:, 0], few[:, 1])
    point = _fitted(NeighbourRegressor, seed, n_estimators=2, dropout=0)
    assert point._open_predictive(X).whole().n_draws == 2


@KINDS
def test_cache_is_not_part_of_the_state(kind, seed):
    X, y, _ = _data(seed)
    model = _fitted(kind, seed)
    labels = _targets(kind, y)
    before = model.log_predictive_density(X, labels)
    copy = pickle.loads(pickle.dumps(model))
    assert not copy._cache
    after = copy.log_predictive_density(X, labels)
    np.testing.assert_array_equal(after, before)
    for name in ("X_train_", "y_train_", "weights_train_", "seeds_", "dropout_"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(copy, name)[0] = 0
    # New targets replace the cache; open predictions keep the old ones.
    opened = copy._open_predictive(X)
    copy.y_train_ = copy.y_train_[::-1].copy()
    reversed_targets = copy.log_predictive_density(X, labels)
    assert not np.array_equal(reversed_targets, before)
    other = pickle.loads(pickle.dumps(copy)).log_predictive_density(X, labels)
    np.testing.assert_array_equal(other, reversed_targets)
    expected = model._open_predictive(X).whole().sample_f(np.arange(8))
    np.testing.assert_array_equal(opened.whole().sample_f(np.arange(8)), expected)
    # A new fit replaces the embeddings.
    copy.fit(X[::-1], labels)
    assert not np.array_equal(copy.log_predictive_density(X, labels), before)


# ---- tables


@KINDS
def test_frames_with_missing_values(kind, seed):
    random = np.random.default_rng(seed)
    frame, other = mixed_frame(50, random), new_frame(7, random)
    y = _targets(kind, _data(seed)[1])
    model = kind(**SHORT, random_state=seed).fit(frame, y)
    assert model.table_ is not None
    assert np.isfinite(model.predict(other)).all()


@KINDS
def test_dense_equals_sparse(kind, seed):
    sparse = pytest.importorskip("scipy.sparse")
    X, y, _ = _data(seed)
    X[X < 0] = 0
    parameters, labels = SHORT | {"random_state": seed}, _targets(kind, y)
    dense = kind(**parameters).fit(X, labels).predict(X)
    model = kind(**parameters).fit(sparse.csr_array(X), labels)
    np.testing.assert_array_equal(model.predict(sparse.csr_array(X)), dense)


def test_columns_are_encoded_by_bins(seed):
    model = _fitted(NeighbourRegressor, seed)
    encoder = PiecewiseLinearEncoder(16, keep_columns=True).fit(model.X_train_)
    for edges, expected in zip(
        model.encoder_.bin_edges_, encoder.bin_edges_, strict=True
    ):
        np.testing.assert_allclose(edges, expected)
    assert _fitted(NeighbourRegressor, seed, n_bins=0).encoder_ is None
    # With too many columns for two bins each, none is encoded.
    wide = np.random.default_rng(seed).standard_normal((9, 129))
    assert NeighbourRegressor(**SHORT).fit(wide, np.arange(9.0)).encoder_ is None


def test_ties_bound_the_width(seed):
    """y in steps of 2: a width of 2 / sqrt(12) or more."""
    X, y, _ = _data(seed, 200)
    parameters = {"max_iter": 100, "n_estimators": 1, "random_state": seed}
    tied = NeighbourRegressor(**parameters).fit(X, 2 * np.round(y / 10))
    assert tied.kernel_std_.min() >= 2 / math.sqrt(12) - 1e-5
    free = NeighbourRegressor(**parameters).fit(X, y / 5)
    assert free.kernel_std_.min() < 2 / math.sqrt(12)


def test_far_rows_have_finite_predictions(seed):
    model = _fitted(NeighbourRegressor, seed)
    with pytest.warns(UserWarning, match="far outside"):
        mean, std = model.predict([[1e30, 0, 0, 0]], return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all()


# ---- parameters


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"dropout": 1.0}, ValueError, "dropout"),
        ({"embedding_size": 0}, ValueError, "embedding_size"),
        ({"hidden_size": 2.5}, TypeError, "hidden_size"),
        ({"learning_rate_init": 0}, ValueError, "learning_rate_init"),
        ({"length_scale": "large"}, ValueError, "length_scale"),
        ({"max_iter": "all"}, ValueError, "max_iter"),
        ({"n_bins": 1}, ValueError, "n_bins"),
        ({"n_draws": 0}, ValueError, "n_draws"),
        ({"n_estimators": 0}, ValueError, "n_estimators"),
        ({"subset_size": 1}, ValueError, "subset_size"),
        ({"tau": 0.0}, ValueError, "tau"),
        ({"dtype": "float16"}, ValueError, "dtype"),
    ],
)
def test_bad_parameters(parameters, error, message, seed):
    X, y, _ = _data(seed)
    model = NeighbourRegressor(**SHORT | parameters)
    with pytest.raises(error, match=message):
        model.fit(X, y)
    assert not hasattr(model, "parameters_")


def test_bad_rows(seed):
    X, y, _ = _data(seed)
    with pytest.raises(ValueError, match="at least 2 rows"):
        NeighbourRegressor(**SHORT).fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="at least 2 classes"):
        NeighbourClassifier(**SHORT).fit(X, np.zeros(50))


def test_divergence_is_reported(seed):
    with pytest.raises(ValueError, match="learning_rate_init"):
        _fitted(NeighbourRegressor, seed, learning_rate_init=1e30, max_iter=40)
