"""partial_fit with replay of earlier rows."""

import pickle

import numpy as np
import pytest
from scipy import sparse

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)
from skbayesnn._data.validation import Table
from skbayesnn.estimators._streaming import Difference, update_reservoir, with_kept

COLUMNS, TARGETS = 3, 2
SMALL = {"hidden_layer_sizes": (5,), "n_draws": 4, "random_state": 0}


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
    few = MCDropoutRegressor(**SMALL).partial_fit(X[4:], y[4:], n_replay=6)
    all_rows = MCDropoutRegressor(**SMALL).partial_fit(X, y, weights, n_replay=6)
    for name, values in few.replay_.items():
        np.testing.assert_array_equal(all_rows.replay_[name], values)


@pytest.mark.parametrize(
    "kind",
    [
        MCDropoutRegressor,
        BBBRegressor,
        VariationalDropoutRegressor,
        AnchoredEnsembleRegressor,
    ],
)
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
    model = MCDropoutClassifier(**SMALL)
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
    model = MCDropoutClassifier(**SMALL, class_weight=class_weight)
    for part in X:
        y = random.permutation(np.arange(len(part)) % 2)
        model.partial_fit(part, y, classes=[0, 1], n_replay=n_replay)
        n += sum(class_weight[label] for label in y)
        assert model.total_weight_ == pytest.approx(n)


def test_pickled_stream_continues_alike(seed, monkeypatch):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(3, 8, COLUMNS)), random.normal(size=(3, 8))
    options = {"n_epochs": 2, "n_replay": 5}
    model = MCDropoutRegressor(**SMALL)
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
    ],
)
def test_invalid_options_are_refused(kind, options, message, seed):
    X = np.random.default_rng(seed).normal(size=(9, COLUMNS))
    with pytest.raises(ValueError, match=message):
        kind(**SMALL).partial_fit(X, X[:, 0], **options)


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
