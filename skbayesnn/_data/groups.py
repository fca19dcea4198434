"""Groups of dependent rows, such as all rows of a patient: checks, and folds.

Wherever rows are held out, the rows of a group stay together.
"""

import warnings

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold

from skbayesnn._data.columns import is_missing
from skbayesnn._sklearn_compat import num_samples

# With more groups, shuffled groups have nearly the same shares of the classes in every
# fold, and the search for the most even folds takes seconds.
_MOST_STRATIFIED = 1000


def check_groups(groups, X) -> np.ndarray | None:
    """Index of each row's group, (rows,); None without groups.

    Raises
    ------
    ValueError
        If ``groups`` has another length than X, missing values, or values that cannot
        be sorted together.
    """
    if groups is None:
        return None
    values = groups
    if not hasattr(groups, "dtype"):
        # NumPy would convert NaN among strings to text.
        values = np.array(groups, dtype=object)
    values = np.asarray(values)
    if values.shape[1:] == (1,):
        values = values[:, 0]
    if values.shape != (num_samples(X),):
        got = f"shape {values.shape}" if values.ndim else repr(groups)[:40]
        raise ValueError(
            f"`groups` must have one value for each of the {num_samples(X)} rows of X; "
            f"got {got}."
        )
    if values.dtype.kind in "fOmM":
        missing = [row for row, v in enumerate(values.tolist()) if is_missing(v)]
        if missing:
            raise ValueError(
                "`groups` must have a value for every row; got "
                f"{values.tolist()[missing[0]]!r} in {len(missing)} rows, first in row "
                f"{missing[0]}. Give each of these rows a group; a row that depends on "
                "no other row is a group alone."
            )
    try:
        return np.unique(values, return_inverse=True)[1]
    except TypeError as error:
        kinds = sorted({type(value).__name__ for value in values})
        raise ValueError(
            "`groups` must have values of one kind, which can be sorted; got "
            f"{' and '.join(kinds)}. Make all of them strings."
        ) from error


def check_can_hold_out(groups: np.ndarray | None) -> None:
    """Raise if all rows are in one group.

    groups : groups of the training rows with positive weight
    """
    if groups is not None and len(np.unique(groups)) < 2:
        raise ValueError(
            "`groups` must contain at least 2 groups in the training rows of positive "
            "weight, since a group is held out as a whole and others must be left; got "
            f"1 group in {len(groups)} rows. Early stopping holds out groups, too. Add "
            "rows of other groups, or fit without `groups`."
        )


def group_folds(
    groups: np.ndarray, n_folds: int, seed: int, labels: np.ndarray | None = None
) -> np.ndarray:
    """Fold of each row, (rows,) int; the rows of a group are in the same fold.

    There are as many folds as groups if these are fewer than ``n_folds``. The folds
    have about the same number of rows and, with labels, the same shares of the classes.
    They do not depend on the order of the rows.

    Raises
    ------
    ValueError
        If there are fewer than two groups.
    """
    check_can_hold_out(groups)
    names, index = np.unique(groups, return_inverse=True)
    n_folds = min(n_folds, len(names))
    # scikit-learn assigns groups of the same size in their order.
    index = np.random.RandomState(seed).permutation(len(names))[index]
    splitter = GroupKFold(n_folds)
    if labels is not None and len(names) <= _MOST_STRATIFIED:
        labels, counts = np.unique(labels, return_inverse=True, return_counts=True)[1:]
        if counts.max() >= n_folds:
            splitter = StratifiedGroupKFold(n_folds)
    fold = np.empty(len(index), dtype=int)
    with warnings.catch_warnings():
        # A class with fewer rows than folds is missing from some of them.
        warnings.filterwarnings("ignore", message="The least populated class")
        for i, (_, rows) in enumerate(splitter.split(index, labels, index)):
            fold[rows] = i
    return fold


def keep_classes(
    held_out: np.ndarray, groups: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Take groups out of the held-out rows, so that all classes are in the other rows.

    held_out : (rows,) bool; and the result
    """
    held_out = held_out.copy()
    for label in np.setdiff1d(labels, labels[~held_out]):
        if held_out[labels == label].all():
            held_out &= groups != groups[labels == label].min()
    return held_out


def shuffled_folds(
    n_rows: int, n_folds: int, seed: int, groups: np.ndarray | None = None
) -> list[tuple]:
    """Row indices (other rows, held-out rows) of every fold.

    groups : groups of the rows, which are not split
    """
    if groups is None:
        splitter = KFold(min(n_folds, n_rows), shuffle=True, random_state=seed)
        return list(splitter.split(np.empty(n_rows)))
    return splits_of(group_folds(groups, n_folds, seed))


def splits_of(fold: np.ndarray) -> list[tuple]:
    """Row indices (other rows, held-out rows) of every fold.

    fold : (rows,), the fold of each row
    """
    return [
        (np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in np.unique(fold)
    ]
