"""Unseen levels of categories, and missing values that are new in a prediction.

A row with such a value has the predictive distribution of a random training value in
its place.
"""

import warnings

import numpy as np
import pandas as pd
import pytest

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    BBBClassifier,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)
from skbayesnn._data.column_encoding import N_SUBSTITUTES
from skbayesnn._data.level_statistics import pseudo_rows
from skbayesnn._data.table_encoder import AVERAGED
from skbayesnn._stacking.candidates import StackData, encode_by_fold
from skbayesnn.estimators._training_data import training_data
from skbayesnn.preprocessing import TableEncoder

# One-hot levels, and levels of shops, whose number exceeds those of one-hot columns.
# N_SUBSTITUTES is a multiple of 4, so that each level of "c" has equally many versions.
N_ROWS, LEVELS, N_SHOPS = 240, list("uvwz"), 20
SHORT = {"device": "cpu", "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:values are missing")


@pytest.fixture
def table(seed):
    """X, and y with effects of shops that are four times the noise."""
    random = np.random.default_rng(seed)
    shop = np.arange(N_ROWS) % N_SHOPS
    X = pd.DataFrame(
        {
            "a": random.normal(size=N_ROWS),
            "c": random.permutation(np.resize(LEVELS, N_ROWS)),
            "shop": [f"shop {i}" for i in shop],
        }
    )
    y = random.permutation(np.linspace(-2, 2, N_SHOPS))[shop] + X["a"].to_numpy()
    return X, y + 0.3 * random.normal(size=N_ROWS)


def new_rows(X):
    """Four rows: as they are, unseen shop, unseen level of "c", "a" missing."""
    rows = X.head(4).copy()
    rows.loc[1, "shop"] = "a new shop"
    rows.loc[2, "c"] = "q"
    rows.loc[3, "a"] = np.nan
    return rows


@pytest.mark.parametrize(
    "model",
    [
        MCDropoutRegressor(**SHORT),
        BBBRegressor(**SHORT),
        VariationalDropoutRegressor(**SHORT),
        AnchoredEnsembleRegressor(n_estimators=3, **SHORT),
    ],
    ids=lambda model: type(model).__name__,
)
def test_epistemic_uncertainty_of_an_unseen_level_is_larger(model, table):
    """The effects of the shops have a standard deviation of 1.2, their noise .3."""
    X, y = table
    _assert_uncertain(model.fit(X, y), X)


def _assert_uncertain(model, X):
    rows = new_rows(X)
    epistemic = model.predict_uncertainty(rows, kind="epistemic")
    of_seen = model.predict_uncertainty(X, kind="epistemic")
    assert epistemic[1] > 0.5
    assert epistemic[1] > of_seen.max()
    assert epistemic[3] > of_seen[3]  # "a" is missing; its coefficient is 1
    low, high = model.predict_interval(rows)[1]
    assert high - low > 2.5


@pytest.mark.parametrize(
    "model",
    [
        BBBClassifier(max_iter=100, **SHORT),
        BayesianStackingClassifier(max_iter=20, **SHORT),
    ],
    ids=lambda model: type(model).__name__,
)
def test_mutual_information_of_an_unseen_level_is_larger(model, table):
    X, y = table
    model.fit(X, y > 0)
    kind = "mutual_information"
    of_seen = model.predict_uncertainty(X, kind=kind)
    assert model.predict_uncertainty(new_rows(X), kind=kind)[1] > of_seen.mean() * 2


@pytest.mark.parametrize("n_estimators", [1, 3, 5])
@pytest.mark.parametrize("method", ["draws", "mean_weights"])
def test_prediction_is_the_mean_over_the_levels(table, n_estimators, method):
    """Exact for networks without dropout: over all networks and seen levels."""
    X, y = table
    model = MCDropoutRegressor(
        dropout=0.0,
        hidden_layer_sizes=(5,),
        max_iter=3,
        dtype="float64",
        n_estimators=n_estimators,
        **SHORT,
    ).fit(X, y)
    row = new_rows(X).iloc[[2]]
    by_level = pd.concat([row.assign(c=level) for level in LEVELS])
    f = model.predict(by_level)
    mean, std = model.predict(row, return_std=True, method=method)
    assert mean[0] == pytest.approx(f.mean(), rel=1e-9)
    # Total variance: between levels, and within them.
    within = np.square(model.predict(by_level, return_std=True)[1]).mean()
    assert std[0] == pytest.approx(np.sqrt(f.var() + within), rel=1e-6)


def test_ensemble_of_few_draws_uses_all_levels(table):
    X, y = table
    model = AnchoredEnsembleRegressor(
        n_estimators=3, max_iter=3, dtype="float64", **SHORT
    ).fit(X, y)
    row = new_rows(X).iloc[[2]]
    by_level = pd.concat([row.assign(c=level) for level in LEVELS])
    expected = model.predict(by_level).mean()
    assert model.predict(row)[0] == pytest.approx(expected, rel=1e-9)


def test_samples_of_functions_use_all_levels(table):
    """With a single network, they are the versions of a row."""
    X, y = table
    model = MCDropoutRegressor((4,), dropout=0.0, max_iter=5, **SHORT).fit(X, y)
    rows = new_rows(X)
    samples = model.sample_f(rows, 3000, random_state=0)
    means = [np.unique(values).mean() for values in samples]
    np.testing.assert_allclose(means, model.predict(rows), rtol=1e-5)


def test_missing_number_of_a_table_of_numbers(seed):
    """y = 3 x: the std of the unknown x, times 3, is in the epistemic part."""
    random = np.random.default_rng(seed)
    X = random.normal(loc=5, scale=2, size=(300, 2))
    y = 3 * X[:, 0] + 0.1 * random.normal(size=300)
    for table in (X, np.where(np.arange(600).reshape(300, 2) == 0, np.nan, X)):
        # The second table has one missing value, so that it has no indicator.
        model = BBBRegressor(**SHORT).fit(table, y)
        row = np.array([[np.nan, 5.0]])
        with pytest.warns(UserWarning, match="fewer than five missing values"):
            epistemic = model.predict_uncertainty(row, kind="epistemic")[0]
        # Quantiles of 16 values: the std of a normal variable is 4 % too small; the
        # network's error is below 10 %.
        assert 4.5 < epistemic < 7.5
        assert model.predict(row)[0] == pytest.approx(15, abs=2)


def test_rare_levels_of_the_training_rows_are_known(seed):
    """They have their own encoding, "other", and no averaging over other levels."""
    random = np.random.default_rng(seed)
    level = np.array(["a"] * 60 + ["b"] * 60 + ["rare"] * 4)
    y = np.select([level == "a", level == "b"], [-1.0, 1.0], 8.0)
    X = pd.DataFrame({"c": level, "x": random.normal(size=len(y))})
    y = y + 0.1 * random.normal(size=len(y))
    model = BBBRegressor(**SHORT).fit(X, y)
    rare, unseen = X.iloc[[-1]], X.iloc[[-1]].assign(c="unseen")
    assert model.predict(rare)[0] > 5
    epistemic = [model.predict_uncertainty(r, "epistemic")[0] for r in (rare, unseen)]
    assert epistemic[1] > 2 * epistemic[0]


def test_known_rows_do_not_depend_on_unknown_ones(table):
    X, y = table
    model = BBBClassifier(max_iter=20, **SHORT).fit(X, np.where(y > 0, "yes", "no"))
    rows = new_rows(X)
    together, alone = (
        model.predict_uncertainty(r, "all") for r in (rows, rows.iloc[[0]])
    )
    for kind, values in together.items():
        # Another order of summation, in float32.
        assert alone[kind][0] == pytest.approx(values[0], rel=1e-4, abs=1e-6), kind


def test_stack(table, monkeypatch):
    """Also in intervals from folds; one warning, and one encoding of each call."""
    X, y = table
    model = BayesianStackingRegressor(max_iter=20, **SHORT).fit(X, y)
    _assert_uncertain(model, X)
    calls = []
    encode = TableEncoder.encode
    monkeypatch.setattr(
        TableEncoder, "encode", lambda *args: calls.append(1) or encode(*args)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict(new_rows(X))
    assert len(calls) == 1
    assert sum("fewer than five" in str(w.message) for w in caught) == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        low, high = model.predict_interval(new_rows(X), method="cv+").T
    assert sum("fewer than five" in str(w.message) for w in caught) == 1
    assert (high - low)[1] > 1.5 * (high - low)[0]


def test_warm_start_does_not_encode_a_row_by_its_own_y(table):
    """A second fit to the same rows trains on the features of the first."""
    X, y = table
    model = MCDropoutRegressor(max_iter=2, warm_start=True, **SHORT).fit(X, y)
    first = training_data(MCDropoutRegressor(), X, y).table.X
    np.testing.assert_array_equal(
        training_data(model, X, y, reset=False).table.X, first
    )
    model.fit(X, y)
    np.testing.assert_array_equal(model.table_.transform(X), first_table(X, y))


def first_table(X, y):
    encoder = TableEncoder(target_type="continuous").fit(X, y)
    return encoder.transform(X)


def test_rows_alone_and_together(table):
    X, y = table
    model = BBBRegressor(max_iter=5, **SHORT).fit(X, y)
    rows = new_rows(X)
    together = model.predict(rows, return_std=True)
    for i in range(len(rows)):
        alone = model.predict(rows.iloc[[i]], return_std=True)
        for values, value in zip(together, alone, strict=True):
            # Rows without unknown values take another path: rounding of float32.
            assert value[0] == pytest.approx(values[i], rel=1e-4, abs=1e-5)


def test_versions_of_a_row(table):
    X, y = table
    encoder = TableEncoder().fit(X, y)
    rows = encoder.encode(encoder, new_rows(X), AVERAGED)
    features, n_versions = rows.versions(slice(0, 4))
    assert n_versions.tolist() == [1, N_SUBSTITUTES, N_SUBSTITUTES, N_SUBSTITUTES]
    assert len(features) == n_versions.sum()
    names = encoder.get_feature_names_out().tolist()
    unseen_shop, unseen_level, missing = np.split(features[1:], 3)
    for versions, changed in (
        (unseen_shop, ["shop"]),
        (unseen_level, [f"c={level}" for level in LEVELS]),
        (missing, ["a"]),
    ):
        varies = np.ptp(versions, axis=0) > 0
        assert [n for n, v in zip(names, varies, strict=True) if v] == changed
    of_levels = unseen_level[:, [names.index(f"c={level}") for level in LEVELS]]
    np.testing.assert_array_equal(of_levels.mean(0), np.full(len(LEVELS), 0.25))
    assert np.isin(missing[:, names.index("a")], X["a"]).all()


def test_shrinkage_of_equally_frequent_levels(seed):
    """Balanced analysis of variance: MSW / ((MSB - MSW) / rows per level)."""
    random = np.random.default_rng(seed)
    n_levels, n_each = 15, 7
    effect = random.normal(size=(n_levels, 1))
    y = 3 * effect + random.normal(size=(n_levels, n_each))
    means = y.mean(1)
    within = np.square(y - means[:, None]).sum() / (n_levels * (n_each - 1))
    between = n_each * np.var(means, ddof=1)
    codes = np.repeat(np.arange(n_levels), n_each)
    order = random.permutation(len(codes))
    shrinkage = pseudo_rows(codes[order], y.reshape(-1, 1)[order], np.ones(len(codes)))
    assert shrinkage == pytest.approx(within / ((between - within) / n_each))


def test_fold_tables_do_not_depend_on_held_out_y(table):
    X, y = table
    train, test = np.split(np.random.default_rng(0).permutation(N_ROWS), [190])
    features = []
    for targets in (y, np.where(np.isin(np.arange(N_ROWS), test), 1e3, y)):
        # The table of all rows depends on y; only the features of the fold count.
        encoder = TableEncoder(target_type="continuous")
        data = StackData(
            encoder.fit_transform(X, targets), targets, None, frame=X, encoder=encoder
        )
        fold_data, [(_, rows)], [fold_encoder] = encode_by_fold(data, [(train, test)])
        features.append(fold_data.X)
        np.testing.assert_array_equal(fold_data.y, targets)
        np.testing.assert_array_equal(
            fold_data.X[rows], fold_encoder.transform(X.iloc[test])
        )
    np.testing.assert_array_equal(*features)
