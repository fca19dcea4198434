"""Outliers, ordinary rows, and the warning about rows far from the training rows."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from skbayesnn import MCDropoutRegressor
from skbayesnn._data.scaling import (
    InputColumns,
    common_range,
    is_outlier,
    ordinary_rows,
    warn_of_codes,
    warn_of_far_rows,
)

ROWS = 41
MODEL = MCDropoutRegressor()


@pytest.fixture
def values(seed):
    """Columns with different units."""
    random = np.random.default_rng(seed)
    return random.normal(size=(ROWS, 2)) * [1.0, 1e3] + [0.0, 7e4]


def test_ordinary_values_are_no_outliers(values):
    """Seven stds are within range; 41 rows determine the quartiles to a fifth."""
    assert not is_outlier(values).any()


def test_range_does_not_depend_on_the_size_of_outliers(values):
    near, far = (
        np.concatenate([values, size * np.array([[1.0, 0.0], [0.0, -1.0]])])
        for size in (1e6, 1e12)
    )
    np.testing.assert_array_equal(common_range(far), common_range(near))
    np.testing.assert_array_equal(is_outlier(near), [False] * ROWS + [True, True])


def test_integer_weights_equal_repeated_rows(values, seed):
    times = np.random.default_rng(seed).integers(0, 4, size=ROWS)
    repeated = common_range(np.repeat(values, times, axis=0))
    np.testing.assert_array_equal(common_range(values, times), repeated)


def test_no_outliers_if_half_of_the_values_are_equal():
    values = np.zeros((ROWS, 1))
    values[:3] = 1e6
    assert not is_outlier(values).any()


def test_ordinary_rows_are_those_without_outliers(values):
    values[[3, 8], [0, 1]] = 1e9
    kept = ordinary_rows(values, np.arange(ROWS))
    np.testing.assert_array_equal(np.flatnonzero(~kept), [3, 8])


def test_all_rows_are_ordinary_if_each_has_an_outlier():
    """As happens with five rows of 300 columns."""
    values = np.zeros((5, 5)) + 1e-3 * np.arange(5)[:, None] + 1e9 * np.eye(5)
    assert ordinary_rows(values).all()


def warned(call, *rows):
    """The text of the only warning, or None."""
    with warnings.catch_warnings(record=True) as actual:
        warnings.simplefilter("always")
        call(*rows)
    assert len(actual) <= 1
    return str(actual[0].message) if actual else None


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_far_rows_are_beyond_a_thousand_standard_deviations(kind):
    mean, scale = np.array([0.0, 7e4, -1.0]), np.array([1.0, 1e3, 0.5])
    rows = np.tile(mean, (5, 1))
    for n_rows, reach in ((20, 1e3), (1e6, 1e4)):
        for sign in (-1, 1):
            rows[2, 1] = mean[1] + sign * 0.999 * reach * scale[1]
            assert (
                warned(warn_of_far_rows, MODEL, kind(rows), mean, scale, n_rows) is None
            )
            rows[2, 1] = mean[1] + sign * 1.001 * reach * scale[1]
            text = warned(warn_of_far_rows, MODEL, kind(rows), mean, scale, n_rows)
            assert f"in column 1 of row 2 is {reach:.1g} standard dev" in text
    text = warned(
        warn_of_far_rows,
        MODEL,
        kind(rows),
        mean,
        scale,
        20,
        InputColumns(["a", "b", "c"]),
    )
    assert "in column 'b' of row 2" in text


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_shifted_columns_are_named(kind):
    """Half of the rows, and at least five, are beyond ten standard deviations."""
    mean, scale = np.array([0.0, 7e4, -1.0]), np.array([1.0, 1e3, 0.5])

    def text_of(n_far, n_rows, distance=10.1, are_numbers=None):
        columns = InputColumns(["a", "b", "c"], are_numbers)
        rows = np.tile(mean, (n_rows, 1))
        rows[:n_far, 1] -= distance * scale[1]
        rows[0, 0] = 900.0  # farther, but alone
        return warned(warn_of_far_rows, MODEL, kind(rows), mean, scale, 20, columns)

    text = text_of(5, 10)
    assert "column 'b' is shifted: 5 of 10 rows are more than 10 standard" in text
    for unshifted in ((4, 4), (5, 11), (10, 10, 9.9)):
        assert text_of(*unshifted) is None
    assert text_of(10, 10, are_numbers=[True, False, True]) is None


def test_heavy_tails_are_not_far(seed):
    """Student's t with 3 degrees of freedom, and a category with one training row.

    Of 1,000 new values of the former, one is beyond 1,000 standard deviations (1.7)
    with a probability of 1e-6. The latter are as far from the mean as the training row.
    """
    random = np.random.default_rng(seed)
    train, new = (random.standard_t(3, size=(n, 1)) for n in (500, 1000))
    assert (
        warned(warn_of_far_rows, MODEL, new, train.mean(0), train.std(0), 500) is None
    )
    rare = np.zeros((2_000_000, 1), np.float32)
    rare[0] = 1
    assert (
        warned(warn_of_far_rows, MODEL, rare, rare.mean(0), rare.std(0), len(rare))
        is None
    )


@pytest.mark.parametrize("code", [-9.0, -99.0, 999.0, -9999.0])
def test_codes_for_missing_values_in_training_rows(code, seed):
    X = np.random.default_rng(seed).uniform(0, 4, (ROWS, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_codes(X)
        warn_of_codes(np.where(np.arange(ROWS)[:, None] < 2, code, X))  # two rows
        # Within the range of the other values, or near it.
        warn_of_codes(np.c_[X[:, 0], np.linspace(2 * code, -code, ROWS)].round())
        warn_of_codes(np.where(X > 2, code, code + np.abs(code) * X))
        warn_of_codes(np.where(X > 2, code, 0.0))  # one other value
    X[[3, 8, 9], 1] = code
    text = warned(warn_of_codes, X, InputColumns(["a", "size"]))
    assert f"{code:g} in column 'size' (3 rows; the other values are from 0." in text
    assert "keep equal values of other columns. [SKB303]" in text
    elapsed_days = InputColumns(["a", "day"], are_numbers=[True, False])
    assert warned(warn_of_codes, X, elapsed_days) is None
    X[5, 1] = np.nan
    assert warned(warn_of_codes, X) is not None


def test_codes_for_missing_values_in_new_rows(seed):
    X = np.random.default_rng(seed).normal(15, 8, (ROWS, 2))
    moments = np.full(2, 15.0), np.full(2, 8.0)
    for make in (np.asarray, sparse.csr_array):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            X[5, 0] = 15.0
            warn_of_far_rows(MODEL, make(X), *moments, 1000)
            X[5, 0] = -98.0  # as far as a code
            warn_of_far_rows(MODEL, make(X), *moments, 1000)
        X[5, 0] = -99.0
        message = "-99 in column 'a' is 14.2 standard deviations .*SKB303"
        with pytest.warns(UserWarning, match=message):
            warn_of_far_rows(
                object(), make(X), *moments, 1000, InputColumns(["a", "b"])
            )
    elapsed_days = InputColumns(are_numbers=[False, True])
    assert warned(warn_of_far_rows, MODEL, X, *moments, 1000, elapsed_days) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A share of the many training rows may have the code.
        warn_of_far_rows(MODEL, X, *moments, 1e5)


@pytest.mark.parametrize("far", [[[0.0, 1e9]], [[-1e9, 0.0]], [[1e9, 0.0], [0, 0]]])
def test_a_code_does_not_hide_a_far_value(far):
    """In another column, on either side in the same one, or farther than a code."""
    rows = np.array([[99.0, 0.0], *far])
    text = warned(warn_of_far_rows, MODEL, rows, np.zeros(2), np.ones(2), 100)
    has_code = far[0][0] < 1e9  # else it is between other values
    assert ("99 in column 0 is 99 standard" in text) == has_code
    assert "of row 1 is 1e+09 standard deviations" in text
    rows[0] = -999999.0, 5e3  # the code is the farthest value
    rows[1:] = 0.0
    text = warned(warn_of_far_rows, MODEL, rows, np.zeros(2), np.ones(2), 100)
    assert "-999999 in column 0" in text and "5e+03 in column 1 of row 0" in text


def test_a_code_in_the_training_rows_is_not_reported_again(seed):
    X = np.random.default_rng(seed).normal(size=(1000, 1))
    X[:12] = -999.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_far_rows(MODEL, X[:20], X.mean(0), X.std(0), 1000)
