"""Groups of rows: checks, and folds that do not split them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold

from skbayesnn._data.groups import (
    check_groups,
    group_folds,
    keep_classes,
    shuffled_folds,
)
from skbayesnn._data.level_statistics import level_statistics
from skbayesnn.preprocessing import TableEncoder

ROWS, GROUPS, FOLDS = 53, 11, 4


@pytest.fixture
def groups(seed):
    """Groups of different sizes, in random order; each has a row."""
    random = np.random.default_rng([seed, 41])
    more = random.integers(GROUPS, size=ROWS - GROUPS)
    return random.permutation(np.concatenate([np.arange(GROUPS), more]))


# ---- checks


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.ndarray.tolist,
        lambda g: g - 0.5,
        lambda g: [f"patient {i:02}" for i in g],
        lambda g: pd.Series(g, index=np.arange(ROWS)[::-1]).astype("category"),
        lambda g: pd.Series(g).map(lambda i: f"{i:02}"),
        lambda g: np.datetime64("2026-01-01") + g,
    ],
)
def test_groups_of_any_kind_are_numbered(groups, convert):
    np.testing.assert_array_equal(
        check_groups(convert(groups), np.empty((ROWS, 2))), groups
    )


def test_no_groups():
    assert check_groups(None, np.empty((3, 2))) is None


@pytest.mark.parametrize(
    "groups, message",
    [
        ([1, 2], "4 rows of X; got shape \\(2,\\)"),
        ([1, None, 2, None], "got None in 2 rows, first in row 1"),
        ([1.0, 2.0, np.nan, 3.0], "got nan in 1 rows, first in row 2"),
        (["a", "b", "b", np.nan], "got nan in 1 rows, first in row 3"),
        (pd.array([1, 2, pd.NA, 3]), "in 1 rows, first in row 2"),
        (pd.to_datetime(["2026-01-01"] * 3 + [None]), "`groups` must have a value"),
        (np.array(["a", 1, "b", 2], dtype=object), "got int and str"),
        (np.ones((4, 2)), r"4 rows of X; got shape \(4, 2\)"),
        ("age", "4 rows of X; got 'age'"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        check_groups(groups, np.empty((4, 1)))


# ---- folds


def test_folds_do_not_split_groups_and_have_similar_sizes(groups, seed):
    fold = group_folds(groups, FOLDS, seed)
    assert all(len(np.unique(fold[groups == g])) == 1 for g in range(GROUPS))
    sizes = np.bincount(fold, minlength=FOLDS)
    # Groups go to the smallest fold, the largest groups first: without its last group,
    # a fold is not larger than any other.
    assert sizes.min() > 0
    assert np.ptp(sizes) <= np.bincount(groups).max()


def test_folds_do_not_depend_on_the_order_of_the_rows(groups, seed):
    labels = groups % 3
    order = np.random.default_rng(seed).permutation(ROWS)
    for y in (None, labels):
        fold = group_folds(groups, FOLDS, seed, y)
        shuffled = group_folds(groups[order], FOLDS, seed, y if y is None else y[order])
        np.testing.assert_array_equal(shuffled, fold[order])


def test_groups_of_one_size_are_shuffled(seed):
    groups = np.repeat(np.arange(GROUPS), 3)
    folds = [group_folds(groups, FOLDS, seed + i) for i in range(5)]
    assert len({fold.tobytes() for fold in folds}) > 1
    for fold in folds:
        assert np.ptp(np.bincount(fold[::3])) <= 1


def test_folds_are_stratified():
    """Each fold gets one group of each of three classes."""
    groups = np.repeat(np.arange(3 * FOLDS), 2)
    labels = np.array(["a", "b", "c"])[groups % 3]
    fold = group_folds(groups, FOLDS, 0, labels)
    for label in "abc":
        np.testing.assert_array_equal(
            np.bincount(fold[labels == label]), np.full(FOLDS, 2)
        )


def test_many_groups_are_not_stratified_but_nearly_even(monkeypatch, seed):
    monkeypatch.setattr("skbayesnn._data.groups._MOST_STRATIFIED", 10)
    groups = np.arange(4000)
    labels = np.random.default_rng(seed).integers(2, size=4000)
    fold = group_folds(groups, FOLDS, seed, labels)
    np.testing.assert_array_equal(fold, group_folds(groups, FOLDS, seed))
    shares = [labels[fold == i].mean() for i in range(FOLDS)]
    # A share of a thousand labels has a standard deviation of 0.016.
    np.testing.assert_allclose(shares, 0.5, atol=0.1)


def test_fewer_groups_than_folds(seed):
    groups = np.repeat([0, 1, 2], 5)
    for labels in (None, groups == 0):
        fold = group_folds(groups, FOLDS, seed, labels)
        assert sorted(fold[::5]) == [0, 1, 2]
    with pytest.raises(ValueError, match=r"at least 2 groups.*got 1 group in 5 rows"):
        group_folds(groups[:5], FOLDS, seed)


def test_without_groups_the_folds_are_shuffled_rows(seed):
    for n_folds, n_rows in ((5, 23), (5, 3)):
        splitter = KFold(min(n_folds, n_rows), shuffle=True, random_state=seed)
        expected = splitter.split(np.empty(n_rows))
        actual = shuffled_folds(n_rows, n_folds, seed)
        for pair, expected_pair in zip(actual, expected, strict=True):
            for rows, expected_rows in zip(pair, expected_pair, strict=True):
                np.testing.assert_array_equal(rows, expected_rows)


def test_splits_of_groups(groups, seed):
    fold = group_folds(groups, FOLDS, seed)
    for i, (rest, held_out) in enumerate(shuffled_folds(ROWS, FOLDS, seed, groups)):
        np.testing.assert_array_equal(fold[held_out], i)
        np.testing.assert_array_equal(
            np.sort(np.concatenate([rest, held_out])), np.arange(ROWS)
        )


def test_classes_of_a_single_group_are_not_held_out():
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    labels = np.array(list("abbcacbb"))
    held_out = np.array([1, 1, 0, 0, 1, 1, 0, 0], dtype=bool)
    # "a" is in the groups 0 and 2 alone; "c" is also in group 1.
    kept = keep_classes(held_out, groups, labels)
    np.testing.assert_array_equal(kept, [0, 0, 0, 0, 1, 1, 0, 0])
    np.testing.assert_array_equal(keep_classes(kept, groups, labels), kept)


# ---- statistics of y


def test_statistics_of_y_are_from_other_groups(groups, seed):
    """A level that is one group has no rows in the other folds."""
    random = np.random.default_rng([seed, 42])
    y, weights = random.normal(size=(ROWS, 1)), random.uniform(0.5, 2, size=ROWS)
    statistics, by_row = level_statistics(groups, GROUPS, [y], weights, groups)
    np.testing.assert_array_equal(by_row, 0)
    assert statistics.means[:-1].all()
    of_all_rows, _ = level_statistics(groups, GROUPS, [y], weights)
    np.testing.assert_array_equal(statistics.means, of_all_rows.means)
    # Without the rows of their fold, the rows of a level have the same encoding.
    levels = groups % 3
    by_row = level_statistics(levels, 3, [y], weights, groups)[1]
    for rest, fold in shuffled_folds(ROWS, 5, 0, groups):
        expected = level_statistics(levels[rest], 3, [y[rest]], weights[rest])[0].means
        np.testing.assert_allclose(by_row[fold], expected[levels[fold]], rtol=1e-12)


def test_encoder_takes_groups(groups, seed):
    X = pd.DataFrame({"patient": [f"{i:02}" for i in groups], "size": np.arange(ROWS)})
    X = pd.concat([X, X.assign(patient=X["patient"] + "b")])
    y, of_rows = np.random.default_rng(seed).normal(size=2 * ROWS), X["patient"]
    features = TableEncoder().fit_transform(X, y, groups=of_rows)
    np.testing.assert_array_equal(features[:, 0], 0)
    assert TableEncoder().fit_transform(X, y)[:, 0].any()
    assert TableEncoder().fit(X, y, groups=of_rows).transform(X)[:, 0].all()
    with pytest.raises(ValueError, match="`groups` must have a value"):
        TableEncoder().fit(X, y, groups=[None] * (2 * ROWS))
