"""Frequent values of a column get a feature each: against loops, and exceptions."""

import warnings
from collections import Counter
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

from skbayesnn.preprocessing import PiecewiseLinearEncoder

ROWS, CODES = 400, 23
# Clearly different relative to each other, but closer than one decimal place.
AMOUNTS = np.array([100.0 * (k + 1) ** 2 for k in range(CODES)] + [101.0])


@pytest.fixture
def random(seed):
    return np.random.default_rng([seed, 31])


@pytest.fixture
def column(random):
    """Mostly 0; the other rows have one of 24 amounts, some of them rare."""
    amounts = random.choice(AMOUNTS, ROWS, p=random.dirichlet(np.full(CODES + 1, 0.8)))
    column = np.where(np.arange(ROWS) < 0.7 * ROWS, 0.0, amounts)
    # The two close values occur for every seed, and rare values stay rare.
    column[-2:] = 100.0, 101.0
    return random.permutation(column)


def values_of(column, n_values):
    """The repeated values, by a loop."""
    counts = Counter(column.tolist())
    [(_, n), *less_frequent] = counts.most_common()
    steps = [high - low for low, high in pairwise(sorted(counts))]
    if 2 * n < len(column) or len(less_frequent) < 2 or median(steps) < 10 * min(steps):
        return []
    less_frequent.sort(key=lambda item: (-item[1], item[0]))
    return sorted(value for value, n in less_frequent[:n_values] if n >= 2)


@pytest.mark.parametrize("n_values", [0, 1, 5, 100])
@pytest.mark.parametrize("keep", [False, True])
def test_encoding_equals_a_loop(random, column, n_values, keep):
    X = np.column_stack([random.standard_normal(ROWS), column, -column / 7])
    encoder = PiecewiseLinearEncoder(3, keep_columns=keep, n_values=n_values).fit(X)
    expected = [
        values_of(values_of_column, n_values)
        for values_of_column in X.astype(np.float32).T
    ]
    assert [values.tolist() for values in encoder.values_] == expected
    assert len(expected[1]) == len(expected[2]) <= n_values
    bins = PiecewiseLinearEncoder(3, keep_columns=keep).fit(X)
    for rows in (X, X[:17] + random.integers(2, size=(17, 1))):
        encoding, bin_encoding, done = encoder.transform(rows), bins.transform(rows), 0
        blocks = []
        for j, n_bins in enumerate(bins.n_bins_):
            blocks.append(bin_encoding[:, done : done + n_bins + keep])
            done += n_bins + keep
            blocks += [rows[:, [j]].astype(np.float32) == v for v in expected[j]]
        np.testing.assert_array_equal(encoding, np.hstack(blocks))


def test_repeated_values_are_detected(column):
    """The rarest are dropped if the number exceeds the limit."""
    counts = Counter(column.tolist())
    encoder = PiecewiseLinearEncoder(n_values=100).fit(column[:, np.newaxis])
    [values] = encoder.values_
    assert set(values) == {v for v, n in counts.items() if n >= 2} - {0.0}
    assert values.dtype == np.float32 and (np.diff(values) > 0).all()
    [few] = encoder.set_params(n_values=2).fit(column[:, np.newaxis]).values_
    left_out = [counts[value] for value in set(values) - set(few)]
    assert len(few) == 2 and min(counts[value] for value in few) >= max(left_out)


def test_columns_without_repeated_values(random):
    """Continuous columns, or without a majority value, or with one or two values."""
    zero = np.arange(ROWS) < 0.7 * ROWS
    columns = {
        "counts": np.where(zero, 0, random.poisson(4, ROWS)),
        "counts, missing by a number far away": np.where(
            np.arange(ROWS) < 9, -9999, np.where(zero, 0, random.poisson(4, ROWS))
        ),
        "rounded": np.where(zero, 0.0, random.gamma(2, 2, ROWS).round(1)),
        "not rounded": np.where(zero, 0.0, random.random(ROWS)),
        "codes alone": random.choice(AMOUNTS[:-1], ROWS),
        "two": np.where(zero, 0.0, 7298.0),
        "one": np.full(ROWS, 3.0),
    }
    X = np.column_stack(list(columns.values()))
    values = PiecewiseLinearEncoder(n_values=9).fit(X).values_
    actual = {
        name: len(repeated) for name, repeated in zip(columns, values, strict=True)
    }
    assert actual == dict.fromkeys(columns, 0)


def test_repeated_values_improve_a_linear_fit(column, random):
    """If each code has a separate effect, a linear model of the features fits it."""
    effect = dict(zip([0.0, *AMOUNTS], random.standard_normal(CODES + 2), strict=True))
    y = np.array([effect[value] for value in column])
    repeated = np.isin(column, [v for v, n in Counter(column).items() if n >= 2])
    X = column[repeated, np.newaxis]

    def error(n_values):
        encoder = PiecewiseLinearEncoder(2, n_values=n_values)
        features = encoder.fit(column[:, np.newaxis]).transform(X)
        model = LinearRegression().fit(features, y[repeated])
        return np.abs(model.predict(features) - y[repeated]).max()

    assert error(100) < 1e-8 < error(0)


def test_integer_weights_equal_repeated_rows(column, random):
    """Up to the rounding of a unit."""
    weights = random.integers(0, 4, ROWS)
    X = column[:, np.newaxis]
    encoder = PiecewiseLinearEncoder(5, n_values=100)
    [expected] = encoder.fit(np.repeat(X, weights, axis=0)).values_
    for unit in (1, 1 - 1e-15):
        [actual] = encoder.fit(X, sample_weight=unit * weights).values_
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("unit", [0.1, 1 / 3, 1e-20])
def test_float32_and_float64_values_match(column, unit):
    """Fitted in one dtype and used in the other: 0.1 differs in float32."""
    X = unit * column[:, np.newaxis]
    encodings = [
        encoder.transform(X.astype(new))
        for encoder in (
            PiecewiseLinearEncoder(2, n_values=50).fit(X.astype(old))
            for old in (np.float64, np.float32)
        )
        for new in (np.float64, np.float32)
    ]
    for encoding in encodings:
        np.testing.assert_array_equal(encoding[:, 2:], encodings[0][:, 2:])
    assert encodings[0][:, 2:].sum() > 0.2 * ROWS


def test_values_beyond_the_range_of_float32(column):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = np.column_stack([column, 1e300 * column])
        encoder = PiecewiseLinearEncoder(n_values=50).fit(X)
        assert len(encoder.values_[0]) and not len(encoder.values_[1])
        far = encoder.transform(np.full((1, 2), 1e300))
    assert ((far >= 0) & (far <= 1)).all()


def test_names_inverse_and_sparse(column, random):
    X = np.column_stack([random.standard_normal(ROWS), column])
    for keep in (False, True):
        encoder = PiecewiseLinearEncoder(2, n_values=2, keep_columns=keep).fit(X)
        names = encoder.get_feature_names_out(["age", "gain"]).tolist()
        assert names[-2:] == [f"gain_{value}" for value in encoder.values_[1].tolist()]
        encoding = encoder.transform(X)
        assert encoding.shape == (ROWS, len(names))
        actual = encoder.inverse_transform(encoding)
        np.testing.assert_allclose(actual, X, rtol=1e-14, atol=1e-12)
        compressed = encoder.set_params(sparse_output=True).transform(X)
        assert isinstance(compressed, sparse.csr_array)
        np.testing.assert_array_equal(compressed.toarray(), encoding)
