"""Numbers of training rows with a level, and with a combination of levels."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from skbayesnn._data.level_counts import MAX_COMBINED, candidates
from skbayesnn.preprocessing import TableEncoder

ROWS, N_LEVELS = 90, (14, 17, 23)


@pytest.fixture
def random(seed):
    return np.random.default_rng([seed, 41])


def table(random, n_rows=ROWS):
    return pd.DataFrame(
        {
            name: [f"{name}{i}" for i in random.integers(0, n, n_rows)]
            for name, n in zip("abc", N_LEVELS, strict=True)
        }
    )


def counted(encoder):
    """Names of the columns of each count, always as a tuple."""
    names = [c.column for c in encoder.columns_ if c.kind == "count"]
    return [n if isinstance(n, tuple) else (n,) for n in names]


def n_equal(X, row, names):
    """Rows of X that equal a row in some columns, by comparison."""
    return int((X[list(names)] == row[list(names)]).all(axis=1).sum())


def fitted(X, y, **parameters):
    encoder = TableEncoder()
    features = encoder.fit_transform(X, y, **parameters)
    n_counts = len(counted(encoder))
    return encoder, np.expm1(features[:, features.shape[1] - n_counts :])


def test_features_are_numbers_of_other_rows(random):
    X, new, y = table(random), table(random, 31), random.standard_normal(ROWS)
    encoder, of_training = fitted(X, y)
    names = counted(encoder)
    assert names[:3] == [("a",), ("b",), ("c",)]
    expected = [[n_equal(X, row, n) - 1 for n in names] for _, row in X.iterrows()]
    np.testing.assert_allclose(of_training, expected, atol=1e-12)
    of_new = np.expm1(encoder.transform(new)[:, -len(names) :])
    expected = [[n_equal(X, row, n) for n in names] for _, row in new.iterrows()]
    np.testing.assert_allclose(of_new, expected, atol=1e-12)


def test_unseen_and_missing_levels(random):
    X, y = table(random), random.standard_normal(ROWS)
    X.loc[:11, "a"] = None
    encoder, _ = fitted(X, y)
    new = X.iloc[[0, 0]].copy()
    new.iloc[1, 0] = "unseen"
    names = counted(encoder)
    counts = np.expm1(encoder.transform(new)[:, -len(names) :])
    np.testing.assert_allclose(counts[0, names.index(("a",))], 12)
    is_of_a = np.array(["a" in n for n in names])
    assert (counts[1, is_of_a] == 0).all()
    np.testing.assert_allclose(counts[1, ~is_of_a], counts[0, ~is_of_a])


def test_a_row_of_weight_two_counts_as_two_rows(random):
    X, y = table(random), random.standard_normal(ROWS)
    weights = random.integers(1, 3, ROWS).astype(float)
    repeated = np.repeat(np.arange(ROWS), weights.astype(int))
    expected, of_repeated = fitted(X.iloc[repeated], y[repeated])
    encoder, of_rows = fitted(X, y, sample_weight=weights)
    assert counted(encoder) == counted(expected)
    np.testing.assert_allclose(of_rows[repeated], of_repeated, atol=1e-12)


def test_rows_of_weight_zero_do_not_count(random):
    X, y = table(random), random.standard_normal(ROWS)
    weights = (random.random(ROWS) < 0.8).astype(float)
    used = weights > 0
    _, of_rows = fitted(X, y, sample_weight=weights)
    expected, of_used = fitted(X[used], y[used])
    np.testing.assert_allclose(of_rows[used], of_used, atol=1e-12)
    others = np.expm1(expected.transform(X[~used])[:, -of_used.shape[1] :])
    np.testing.assert_allclose(of_rows[~used], others, atol=1e-12)


def test_levels_that_the_first_fit_has_not_seen_are_not_counted(random):
    X, y = table(random), random.standard_normal(ROWS)
    encoder = TableEncoder(target_type="continuous").fit(X, y)
    later = table(random, 43)
    later.loc[:9, "a"] = "new"
    ones = np.ones(43)
    [(again, features)] = encoder.with_statistics_of(later, ones, [ones])
    counts = again._counts[0]
    assert counts.columns == (0,) and (counts.keys >= 0).all()
    assert counts.counts.sum() == 33
    n_counts = len(encoder._counts)
    assert (features[:10, -n_counts] == 0).all()


def test_groups_are_not_counted_for_their_own_rows(random):
    X, y = table(random), random.standard_normal(ROWS)
    groups = random.integers(0, 13, ROWS)
    encoder, of_rows = fitted(X, y, groups=groups)
    for i in (0, 7, 50):
        others = X[groups != groups[i]]
        expected = [n_equal(others, X.iloc[i], n) for n in counted(encoder)]
        np.testing.assert_allclose(of_rows[i], expected, atol=1e-12)


def test_a_repeated_column_is_not_counted_twice(random):
    X, y = table(random), random.standard_normal(ROWS)
    encoder, _ = fitted(X[["a", "b"]].assign(copy=X["a"]), y)
    assert counted(encoder) == [("a",), ("b",), ("a", "b")]


def test_levels_without_other_rows_have_no_feature(random):
    y = random.standard_normal(ROWS)
    X = pd.DataFrame({"zip": [f"9{i:04}" for i in range(ROWS)], "x": y})
    encoder, _ = fitted(X, y + X["zip"].str[3].astype(int) * 10)
    assert encoder.columns_[0].features == ("zip",)  # Its text predicts y.
    assert counted(encoder) == []


@pytest.mark.parametrize("n_columns", [1, 2, MAX_COMBINED, MAX_COMBINED + 3])
def test_combined_columns(n_columns):
    n_levels = {2 * j: 20 + j for j in range(n_columns)}
    most = list(n_levels)[-MAX_COMBINED:]
    expected = [(j,) for j in n_levels] + list(combinations(most, 2))
    if n_columns > 2:
        expected.append(tuple(most))
    assert list(candidates(n_levels)) == expected


def test_all_columns_are_not_combined_if_keys_would_overflow():
    n_levels = dict.fromkeys(range(MAX_COMBINED), 10_000)
    assert max(map(len, candidates(n_levels))) == 2
