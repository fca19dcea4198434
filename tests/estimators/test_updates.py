"""`partial_fit` after `fit`: as good as before or better, or not taken."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_friedman1

import skbayesnn
from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)
from skbayesnn.estimators._streaming import REFUSED, Difference

SMALL = {"hidden_layer_sizes": (10,), "n_draws": 20, "random_state": 0}


def codes_of(caught):
    """Codes of recorded warnings."""
    return [str(w.message)[-7:-1] for w in caught if "[SKB" in str(w.message)]


def linear(random, n_rows, slope=1.0):
    """Rows of a linear function of three columns, with noise of std 0.1."""
    X = random.normal(size=(n_rows, 3))
    return X, slope * X[:, 0] + 0.1 * random.normal(size=n_rows)


def linear_model(random, n_rows=120):
    """A model of 120 rows, and these rows."""
    X, y = linear(random, n_rows)
    return MCDropoutRegressor(**SMALL).fit(X, y), X, y


@pytest.mark.parametrize(
    "kind",
    [
        MCDropoutRegressor,
        BBBRegressor,
        VariationalDropoutRegressor,
        AnchoredEnsembleRegressor,
    ],
)
def test_an_update_is_no_worse(kind, seed):
    """With rows of the same distribution; 500 test rows have a coverage error of .013.

    Without a sample of the rows of the fit, the RMSE rises by 10 to 25 %.
    """
    X, y = make_friedman1(950, noise=1.0, random_state=seed)
    model = kind((20,), length_scale=1.0, n_draws=50, random_state=seed)
    model.fit(X[:350], y[:350])
    before = model.predict(X[450:])
    model.partial_fit(X[350:450], y[350:450])
    after, (lower, upper) = model.predict(X[450:]), model.predict_interval(X[450:]).T
    errors = [np.square(mean - y[450:]) for mean in (before, after)]
    difference = errors[1] - errors[0]
    assert difference.mean() <= 3 * difference.std() / np.sqrt(500)
    assert np.mean((lower <= y[450:]) & (y[450:] <= upper)) > 0.8


def test_wrong_rows_are_not_taken(seed):
    """Few rows in other units: the model is as before; a warning gives the reason."""
    random = np.random.default_rng(seed)
    model, X, _ = linear_model(random)
    before, parameters = model.predict(X), model.parameters_
    X_new, y_new = linear(random, 9)
    with pytest.warns(UserWarning, match=r"was not taken.*nats per row.*SKB113"):
        model.partial_fit(X_new, 100 * y_new)
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.parameters_ is parameters and model.total_weight_ == 120


def test_model_follows_a_changed_relation(seed):
    """Rows that were not taken count again once later rows confirm them."""
    random = np.random.default_rng(seed)
    model, *_ = linear_model(random)
    X_test, y_test = linear(random, 300, slope=-2.0)
    rows = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            X, y = linear(random, 60, slope=-2.0)
            model.partial_fit(X, y)
            rows += len(y)
    assert "SKB112" in codes_of(caught)
    assert 60 <= model.total_weight_ <= rows + 1e-6  # the rows of the fit are gone
    assert model.score(X_test, y_test) > 0.8


def test_an_update_that_fails_is_not_taken(seed, monkeypatch):
    """The weights of the update are noise: held-out rows are predicted worse."""
    random = np.random.default_rng(seed)
    model, X, _ = linear_model(random)
    before = model.predict(X)
    model.set_params(learning_rate_init=30.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(*linear(random, 60))
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "n_kept"),
    [(40, 3, 40), (2100, 3, 2000), (300, 2**12, 256)],
)
def test_rows_of_a_fit_are_kept(n_rows, n_columns, n_kept, seed):
    """At most 2,000, and at most 2^20 values; they stand for all rows."""
    X = sparse.random_array((n_rows, n_columns), density=0.01, rng=seed, format="csr")
    y = np.random.default_rng(seed).normal(size=n_rows)
    model = MCDropoutRegressor(**SMALL, length_scale=1.0, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    kept = model.replay_
    assert kept["X"].shape == (n_kept, n_columns)
    assert kept["weight_seen"] == n_rows == model.total_weight_
    assert len(pickle.dumps(kept)) < 2**23 + 10_000 + 40 * n_kept


def test_update_without_kept_rows_warns(seed):
    random = np.random.default_rng(seed)
    model, *_ = linear_model(random)
    del model.replay_
    with pytest.warns(UserWarning, match=r"no earlier rows are kept.*SKB114"):
        model.partial_fit(*linear(random, 30))
    assert len(model.replay_["y"]) == 30
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.partial_fit(*linear(random, 30), n_replay=0)
    assert "SKB114" not in codes_of(caught) and not hasattr(model, "replay_")


def test_refused_rows_are_saved(tmp_path, seed):
    random = np.random.default_rng(seed)
    model, *_ = linear_model(random)
    X, y = linear(random, 9)
    with pytest.warns(UserWarning, match="SKB113"):
        model.partial_fit(X, 100 * y)
    skbayesnn.save(model, tmp_path / "model.skb")
    again = skbayesnn.load(tmp_path / "model.skb")
    np.testing.assert_array_equal(again.replay_[REFUSED + "X"], X)
    again.replay_ = again.replay_ | {REFUSED + "X": X[1:]}
    with pytest.raises(ValueError, match="agree in stored rows; got 8, 9, 9"):
        skbayesnn.save(again, tmp_path / "forged.skb")


def test_four_times_the_rows_are_fitted_again(seed, monkeypatch):
    """With the layers and the scaling of a fit to all rows."""
    monkeypatch.setattr(Difference, "is_clear", False)  # every update is taken
    X, y = linear(np.random.default_rng(seed), 400)
    model = BBBRegressor(n_draws=20, max_iter=5, random_state=0).fit(X[:90], y[:90])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(X[90:200], y[90:200])
        sizes = [model.network_["sizes"]]
        model.partial_fit(X[200:], y[200:])
    sizes.append(model.network_["sizes"])
    assert sizes == [[3, 10, 1], [3, 20, 20, 1]]
    np.testing.assert_allclose(model.x_mean_, X.mean(0), atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"likelihood": "heteroscedastic"},
        {"likelihood": "student_t"},
        {"likelihood": "poisson"},
        {"tau": 2.0},
        {"targets": 2},
    ],
    ids=lambda options: next(iter(options)),
)
def test_noise_of_an_update(options, seed):
    """Each likelihood gives finite densities, and the noise is not inflated."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(260, 3))
    targets = options.pop("targets", 1)
    y = np.column_stack([X[:, i] + random.normal(size=260) for i in range(targets)])
    if options.get("likelihood") == "poisson":
        y = random.poisson(np.exp(0.3 * X[:, :1]))
    y = y[:, 0] if targets == 1 else y
    model = MCDropoutRegressor(**SMALL, **options).fit(X[:120], y[:120])
    before = model.log_predictive_density(X[160:], y[160:]).mean()
    model.partial_fit(X[120:160], y[120:160])
    after = model.log_predictive_density(X[160:], y[160:]).mean()
    assert after > before - 0.3


def test_difference():
    """The t test at 97.5 %, as scipy.stats.ttest_1samp."""
    from scipy.stats import ttest_1samp

    values = np.array([0.3, -0.1, 0.5, 0.2, 0.4])
    difference = Difference.paired(values, np.zeros(5), np.ones(5))
    test = ttest_1samp(values, 0.0, alternative="greater")
    assert difference.mean / difference.error == pytest.approx(test.statistic)
    assert difference.is_clear == (test.pvalue < 0.025)
    assert not difference.reversed.is_clear
    assert not Difference.paired(values[:1], np.zeros(1), np.ones(1)).is_clear


def test_new_class_after_the_first_rows(seed):
    """A class that the first rows lack is learned."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(150, 3)), np.repeat([0, 1, 2], 50)
    X[np.arange(150), y] += 4
    model = MCDropoutClassifier(**SMALL)
    model.partial_fit(X[:100], y[:100], classes=[0, 1, 2])
    model.partial_fit(X[25:], y[25:])
    assert model.score(X, y) > 0.8
