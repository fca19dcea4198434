"""Which rows are held out, and when.

Is the table one of rows that are there several times?
"""

import warnings
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
)

from skbayesnn._batch.cross_fit import held_out_folds
from skbayesnn._runtime import warn

# ---- is the table one of rows that are there several times?

# Share of the rows that have a copy from which on it is told; up to which share of the
# rows of X that are there several times may have another y each time: where there are
# more, columns have few values, and rows are alike by chance.
_MANY, _FEW = 1 / 3, 0.1


def warn_of_copies(X, y) -> None:
    """Where folds would separate equal rows, so that remembering looks like knowing.

    X : {array, sparse matrix} of shape (rows, columns); of other kinds nothing is said
    y : (rows[, targets])
    """
    if sparse.issparse(X):
        # Equal rows have equal products; others do not, but by a chance of 1e-16.
        X = X @ np.random.default_rng(0).random((X.shape[1], 1))
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "iufb":
        return
    of_x, of_y = _numbered(X), _numbered(y.reshape(len(y), -1))
    of_both = _numbered(np.column_stack([of_x, of_y]))
    share = np.mean(np.bincount(of_both)[of_both] > 1)
    if share < _MANY:
        return
    _, first = np.unique(of_both, return_index=True)
    n_rows, n_values = np.bincount(of_x), np.bincount(of_x[first])
    if np.mean(n_values[n_rows > 1] > 1) > _FEW:
        return
    warn(
        f"{share:.0%} of the rows are there several times, y included. Folds separate "
        "them, so that networks that remember rows seem to predict them: weights, "
        "intervals and summary would be too sure. Give each row once, how often it "
        "counts as `sample_weight`; or `groups`, and a `cv` that keeps them together "
        "(GroupKFold)."
    )


def _numbered(table: np.ndarray) -> np.ndarray:
    """Numbers of the rows, equal where these are, (rows,)."""
    numbers = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        of_column = np.unique(column, return_inverse=True)[1]
        # Few enough numbers for the product to be one, column by column.
        numbers = np.unique(
            numbers * (of_column.max() + 1) + of_column, return_inverse=True
        )[1]
    return numbers


# ---- Which rows are held out, and when

# With fewer rows, folds; from here on a fifth of the rows, held out once.
FOLDS_BELOW, N_FOLDS = 700, 5


def folds_of(cv, rows, groups, *, of_classes: bool, seed: int) -> list[tuple]:
    """(train, test) of every fold, numbers of rows.

    cv : None, by the number of rows; int, shuffled folds; or as scikit-learn takes it
    """
    y = rows.y
    own = cv is None or isinstance(cv, Integral)
    if own and groups is not None:
        raise ValueError(
            f"`groups` need a `cv` that keeps them together; got cv={cv!r}. Give "
            "sklearn.model_selection.GroupKFold() or another one of groups."
        )
    if own:
        warn_of_copies(rows.X, y)
        splits = _own_folds(cv, y, rows.sample_weight, of_classes, seed)
    else:
        splits = held_out_folds(cv, rows.X, y, of_classes=of_classes, groups=groups)
    if not splits:
        raise ValueError(f"`cv` must have at least one split; got {cv!r}.")
    if of_classes:
        _check_classes(y, rows.sample_weight, splits)
    return splits


def _own_folds(n_folds, y, weights, of_classes: bool, seed: int) -> list[tuple]:
    """Of the rows that have weight: the others are as if they were not there."""
    used = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    by = _splitter(n_folds, y[used], of_classes, seed)
    with warnings.catch_warnings():
        # A class of fewer rows than folds is not in all of them.
        warnings.filterwarnings("ignore", message="The least populated class")
        splits = [(used[a], used[b]) for a, b in by.split(used, y[used])]
    # Folds of equally many rows share a program: some train on one row less, unless it
    # is the last one of its class.
    n_train = min(len(train) for train, _ in splits)
    equal = [(train[:n_train], test) for train, test in splits]
    if of_classes and any(
        len(np.unique(y[fewer])) < len(np.unique(y[train]))
        for (fewer, _), (train, _) in zip(equal, splits, strict=True)
    ):
        return splits
    return equal


def _splitter(n_folds, y, of_classes: bool, seed: int):
    """Shuffled; stratified where there are enough rows of the classes."""
    n_rows = len(y)
    if n_rows < 2:
        raise ValueError(
            "a stack needs at least 2 rows, to train on one and hold out the other; "
            f"got n_samples={n_rows}. A single estimator can be fitted to one row."
        )
    counts = np.unique(y, return_counts=True)[1] if of_classes else np.array([0])
    if n_folds is None and n_rows >= FOLDS_BELOW:
        all_classes = counts.min() >= 2 and n_rows / N_FOLDS >= len(counts)
        once = StratifiedShuffleSplit if all_classes else ShuffleSplit
        return once(1, test_size=1 / N_FOLDS, random_state=seed)
    if n_folds is None:
        n_folds = min(N_FOLDS, n_rows)
    kind = StratifiedKFold if counts.max() >= n_folds else KFold
    return kind(n_folds, shuffle=True, random_state=seed)


def _check_classes(y, weights, splits) -> None:
    """Refuse folds that leave the rows of a single class to train on."""
    used = np.ones(len(y), dtype=bool) if weights is None else np.asarray(weights) > 0
    classes, counts = np.unique(y[used], return_counts=True)
    if any(len(np.unique(y[train][used[train]])) < 2 for train, _ in splits):
        rarest = counts.argmin()
        raise ValueError(
            "a stack of classifiers needs rows of at least 2 classes to train on in "
            f"every fold; got class {classes.tolist()[rarest]!r} in {counts[rarest]} "
            f"of {used.sum()} rows. Give each class at least 2 rows, and a `cv` that "
            "stratifies or shuffles them, or fit a single estimator."
        )
