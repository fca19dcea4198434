"""What is far from where most values are."""

import numpy as np
import pytest

from skbayesnn._data.outliers import common_range, is_outlier, ordinary_rows

ROWS = 41


@pytest.fixture
def values(seed):
    """Columns in units of their own."""
    random = np.random.default_rng(seed)
    return random.normal(size=(ROWS, 2)) * [1.0, 1e3] + [0.0, 7e4]


def test_of_ordinary_values_none_is_an_outlier(values):
    """Seven stds are in reach; sample quartiles of 41 rows are known to a fifth."""
    assert not is_outlier(values).any()


def test_how_far_outliers_are_does_not_matter(values):
    near, far = (
        np.concatenate([values, size * np.array([[1.0, 0.0], [0.0, -1.0]])])
        for size in (1e6, 1e12)
    )
    np.testing.assert_array_equal(common_range(far), common_range(near))
    np.testing.assert_array_equal(is_outlier(near), [False] * ROWS + [True, True])


def test_weights_are_rows(values, seed):
    times = np.random.default_rng(seed).integers(0, 4, size=ROWS)
    repeated = common_range(np.repeat(values, times, axis=0))
    np.testing.assert_array_equal(common_range(values, times), repeated)


def test_where_half_are_the_same_nothing_is_far():
    values = np.zeros((ROWS, 1))
    values[:3] = 1e6
    assert not is_outlier(values).any()


def test_ordinary_rows_are_those_without_outliers(values):
    values[[3, 8], [0, 1]] = 1e9
    kept = ordinary_rows(values, np.arange(ROWS))
    np.testing.assert_array_equal(np.flatnonzero(~kept), [3, 8])


def test_where_each_row_has_an_outlier_all_are_ordinary():
    """As five rows of 300 columns: of something there are always some."""
    values = np.zeros((5, 5)) + 1e-3 * np.arange(5)[:, None] + 1e9 * np.eye(5)
    assert ordinary_rows(values).all()
