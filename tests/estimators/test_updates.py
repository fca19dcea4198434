"""`partial_fit`: as good as before or better, or not taken; rows that are kept."""

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
from skbayesnn._data.validation import Table
from skbayesnn.estimators._streaming import (
    REFUSED,
    Difference,
    update_reservoir,
    with_kept,
)

SMALL = {"hidden_layer_sizes": (10,), "n_draws": 20, "random_state": 0}
KINDS = (
    MCDropoutRegressor,
    BBBRegressor,
    VariationalDropoutRegressor,
    AnchoredEnsembleRegressor,
)


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


@pytest.mark.parametrize("kind", KINDS)
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
    with pytest.raises(ValueError, match="agree in the number of refused rows"):
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
    assert sizes == [[3, 10, 2], [3, 20, 20, 2]]
    np.testing.assert_allclose(model.x_mean_, X.mean(0), atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"likelihood": "heteroscedastic"},
        {"likelihood": "student_t"},
        {"likelihood": "poisson"},
        {"likelihood": "negative_binomial"},
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
    if options.get("likelihood") in ("poisson", "negative_binomial"):
        y = random.poisson(np.exp(0.3 * X[:, :1]))
    y = y[:, 0] if targets == 1 else y
    model = MCDropoutRegressor(**SMALL, **options).fit(X[:120], y[:120])
    before = model.log_predictive_density(X[160:], y[160:]).mean()
    model.partial_fit(X[120:160], y[120:160])
    after = model.log_predictive_density(X[160:], y[160:]).mean()
    assert after > before - 0.3


def test_later_dates_are_learned_without_a_warning(seed):
    """Later rows are the usual reason for an update."""
    pandas = pytest.importorskip("pandas")
    dates = pandas.date_range("2024-01-01", periods=90, freq="D")
    frame = pandas.DataFrame({"date": dates, "x": np.arange(90.0) % 7})
    model = MCDropoutRegressor(**SMALL, length_scale=1.0, max_iter=20)
    model.fit(frame[:60], frame["x"][:60])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.partial_fit(frame[60:], frame["x"][60:])
    assert "SKB305" not in codes_of(caught)


def test_difference():
    """The t test at 97.5 %, as scipy.stats.ttest_1samp."""
    from scipy.stats import ttest_1samp

    values = np.array([0.3, -0.1, 0.5, 0.2, 0.4])
    difference = Difference.paired(values, np.zeros(5), np.ones(5))
    test = ttest_1samp(values, 0.0, alternative="greater")
    assert difference.mean / difference.error == pytest.approx(test.statistic)
    assert difference.is_clear == (test.pvalue < 0.025)
    assert not Difference.paired(np.zeros(5), values, np.ones(5)).is_clear
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


# ---- the sample of earlier rows

COLUMNS, TARGETS = 3, 2
TINY = {"hidden_layer_sizes": (5,), "n_draws": 4, "random_state": 0}


def _table(random, n_rows, first=0):
    """A table with row numbers in the first column."""
    X = random.normal(size=(n_rows, COLUMNS))
    X[:, 0] = first + np.arange(n_rows)
    return Table(X, random.normal(size=(n_rows, TARGETS)), random.uniform(1, 3, n_rows))


@pytest.mark.parametrize("n_kept", [1, 7, 200])
def test_kept_rows_have_the_weight_of_all_rows(n_kept, seed):
    """They are distinct rows of the stream."""
    random = np.random.default_rng(seed)
    kept, seen = None, 0.0
    for first, n_rows in ((0, 11), (11, 4), (15, 30)):
        table = _table(random, n_rows, first)
        combined = with_kept(table, kept)
        np.testing.assert_allclose(combined.sample_weight[n_rows:].sum(), seen)
        seen += table.sample_weight.sum()
        kept = update_reservoir(table, kept, n_kept, seed)
    assert len(kept["X"]) == min(n_kept, 45) and kept["n_seen"] == 45
    assert len(np.unique(kept["X"][:, 0])) == len(kept["X"])


def test_every_row_is_kept_equally_often(seed):
    """From every call: shares of 400 samples, within six standard errors."""
    random = np.random.default_rng(seed)
    tables = [_table(random, 8), _table(random, 12, 8)]
    count, n_samples, n_kept = np.zeros(20), 400, 6
    for sample in range(n_samples):
        kept = None
        for table in tables:
            kept = update_reservoir(table, kept, n_kept, seed + sample)
        count[kept["X"][:, 0].astype(int)] += 1
    share = n_kept / 20
    error = np.sqrt(share * (1 - share) / n_samples)
    assert abs(count / n_samples - share).max() < 6 * error


def test_rows_of_weight_zero_are_not_kept(seed):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(9, COLUMNS)), random.normal(size=9)
    weights = np.r_[np.zeros(4), np.ones(5)]
    few = MCDropoutRegressor(**TINY).partial_fit(X[4:], y[4:], n_replay=6)
    all_rows = MCDropoutRegressor(**TINY).partial_fit(X, y, weights, n_replay=6)
    for name, values in few.replay_.items():
        np.testing.assert_array_equal(all_rows.replay_[name], values)


@pytest.mark.parametrize("kind", KINDS)
def test_replay_reduces_the_error_on_earlier_rows(kind, seed):
    """The error on the first half of the line, after training on the second."""
    random = np.random.default_rng(seed)
    X = np.sort(random.uniform(-2, 2, (120, 1)), axis=0)
    y = np.abs(X[:, 0]) + 0.05 * random.normal(size=120)
    error = {}
    for n_replay in (0, 40):
        model = kind((20,), n_draws=10, learning_rate_init=0.01, random_state=seed)
        options = {"n_epochs": 60, "n_replay": n_replay}
        model.partial_fit(X[::7], y[::7], **options)  # determines the scaling
        for part in np.split(np.arange(120), 4):
            model.partial_fit(X[part], y[part], **options)
        error[n_replay] = np.square(model.predict(X[:60]) - y[:60]).mean()
    assert error[40] < error[0]
    assert model.total_weight_ == pytest.approx(120 + len(X[::7]))


@pytest.mark.parametrize("as_sparse", [False, True])
def test_classes_and_sparse_rows(as_sparse, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(2, 10, COLUMNS))
    y = np.array(["a", "b", "c", "b", "a"] * 2)
    parts = [sparse.csr_array(part) if as_sparse else part for part in X]
    model = MCDropoutClassifier(**TINY)
    for part in parts:
        model.partial_fit(part, y, n_epochs=2, n_replay=4)
    assert model.replay_["X"].shape == (4, COLUMNS)
    assert model.n_iter_ == 4 and model.total_weight_ == pytest.approx(20)


@pytest.mark.parametrize("class_weight", [{0: 3.0, 1: 3.0}, {0: 1.0, 1: 9.0}])
@pytest.mark.parametrize("n_replay", [0, 4, 100])
def test_total_weight_counts_every_row_once(n_replay, class_weight, seed, monkeypatch):
    """Weighted by its class, for any number of replayed rows."""
    monkeypatch.setattr(Difference, "is_clear", False)  # every update is taken
    random = np.random.default_rng(seed)
    X, n = random.normal(size=(3, 11, COLUMNS)), 0.0
    model = MCDropoutClassifier(**TINY, class_weight=class_weight)
    for part in X:
        y = random.permutation(np.arange(len(part)) % 2)
        model.partial_fit(part, y, classes=[0, 1], n_replay=n_replay)
        n += sum(class_weight[label] for label in y)
        assert model.total_weight_ == pytest.approx(n)


def test_pickled_stream_continues_alike(seed, monkeypatch):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(3, 8, COLUMNS)), random.normal(size=(3, 8))
    options = {"n_epochs": 2, "n_replay": 5}
    model = MCDropoutRegressor(**TINY)
    for part, values in zip(X[:2], y[:2], strict=True):
        model.partial_fit(part, values, **options)
    restored = pickle.loads(pickle.dumps(model))
    for stream in (model, restored):
        stream.partial_fit(X[2], y[2], **options)
    np.testing.assert_array_equal(model.predict(X[0]), restored.predict(X[0]))
    # A fit keeps its own rows, a call without replay none.
    np.testing.assert_array_equal(
        np.sort(model.fit(X[2], y[2]).replay_["y"], 0), np.sort(y[2][:, None], 0)
    )
    monkeypatch.setattr(Difference, "is_clear", False)
    assert not hasattr(restored.partial_fit(X[2], y[2], n_replay=0), "replay_")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (MCDropoutRegressor, {"n_epochs": 0}, "n_epochs.*>= 1.*got 0"),
        (MCDropoutRegressor, {"n_replay": -1}, "n_replay.*>= 0.*got -1"),
        (BBBRegressor, {"prior": "previous", "n_replay": 3}, "runs a full fit"),
        (MCDropoutRegressor, {"prior": "previous"}, "requires .* BBBClassifier; got"),
    ],
)
def test_invalid_options_are_refused(kind, options, message, seed):
    X = np.random.default_rng(seed).normal(size=(9, COLUMNS))
    with pytest.raises(ValueError, match=message):
        kind(**TINY).partial_fit(X, X[:, 0], **options)


def test_larger_reservoir_keeps_the_shares_of_rows(seed):
    """40 of the first 400 rows were kept, and their share stays a tenth."""
    random = np.random.default_rng(seed)
    kept, n_first = None, 400
    for first, n_kept in ((0, 40), (n_first, 400)):
        kept = update_reservoir(_table(random, n_first, first), kept, n_kept, seed)
    row_numbers = kept["X"][:, 0]
    # About 40 of each; the number of new rows is binomial, within six std.
    assert (row_numbers < n_first).sum() == 40
    assert abs((row_numbers >= n_first).sum() - 40) < 6 * np.sqrt(80)
