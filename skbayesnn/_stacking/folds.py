"""Which rows are held out, and when."""

import warnings
from numbers import Integral

import numpy as np
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
)

from skbayesnn._meta.held_out import held_out_folds
from skbayesnn._stacking.copies import warn_of_copies

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
