"""Unseen levels of categories, and missing values that are new in a prediction.

A row with such a value has the predictive distribution of a random training value in
its place.
"""

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
from skbayesnn._data.table_encoder import N_VERSIONS, _pseudo_rows
from skbayesnn._stacking.candidates import StackData, encode_by_fold
from skbayesnn.preprocessing import TableEncoder

# One-hot levels, and levels of shops, whose number exceeds those of one-hot columns.
# N_VERSIONS is a multiple of 4, so that each level of "c" has equally many versions.
N_ROWS, LEVELS, N_SHOPS = 240, list("uvwz"), 20
SHORT = {"device": "cpu", "random_state": 0}
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:values are missing"
)


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
        BayesianStackingRegressor(max_iter=20, **SHORT),
    ],
    ids=lambda model: type(model).__name__,
)
def test_epistemic_uncertainty_of_an_unseen_level_is_larger(model, table):
    """The effects of the shops have a standard deviation of 1.2, their noise .3."""
    X, y = table
    model.fit(X, y)
    rows = new_rows(X)
    epistemic = model.predict_uncertainty(rows, kind="epistemic")
    of_seen = model.predict_uncertainty(X, kind="epistemic")
    assert epistemic[1] > 0.5
    assert epistemic[1] > of_seen.max()
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
    assert model.predict_uncertainty(new_rows(X), kind=kind)[1] > np.median(of_seen)


def test_prediction_is_the_mean_over_the_levels(table):
    """Exact for a network without noise: the mean over rows with each seen level."""
    X, y = table
    model = MCDropoutRegressor(
        dropout=0.0, hidden_layer_sizes=(5,), max_iter=3, dtype="float64", **SHORT
    ).fit(X, y)
    row = new_rows(X).iloc[[2]]
    by_level = model.predict(pd.concat([row.assign(c=level) for level in LEVELS]))
    assert model.predict(row)[0] == pytest.approx(by_level.mean(), rel=1e-9)
    epistemic = model.predict_uncertainty(row, kind="epistemic")[0]
    assert epistemic == pytest.approx(by_level.std(), rel=1e-6)


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
    features, n_versions = encoder.transform_versions(encoder, new_rows(X))
    assert n_versions.tolist() == [1, N_VERSIONS, N_VERSIONS, N_VERSIONS]
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
    shrinkage = _pseudo_rows(codes[order], y.reshape(-1, 1)[order], np.ones(len(codes)))
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
