"""Folds of the stacks, and a warning if rows are repeated."""

import math
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
from skbayesnn._data.groups import group_folds, splits_of
from skbayesnn._runtime import warn

# ---- repeated rows

# Share of repeated rows from which on a warning is given.
_REPEATED = 1 / 3
# There is no warning if more than this share of the repeated rows of X has several
# values of y. The columns then have few distinct values, and rows of X are equal by
# chance.
_WITH_OTHER_Y = 0.1


def warn_of_copies(X, y) -> None:
    """Warn if folds would separate equal rows, which makes memorising look accurate.

    X : {array, sparse matrix} of shape (rows, columns); other kinds are not checked
    y : (rows[, targets])
    """
    if sparse.issparse(X):
        # Rows with equal random projections are equal, up to a probability of 1e-16.
        X = X @ np.random.default_rng(0).random((X.shape[1], 1))
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "iufb":
        return
    x_codes, y_codes = _codes(X), _codes(y.reshape(len(y), -1))
    codes = _codes(np.column_stack([x_codes, y_codes]))
    share = np.mean(np.bincount(codes)[codes] > 1)
    if share < _REPEATED:
        return
    _, first = np.unique(codes, return_index=True)
    n_rows, n_values_of_y = np.bincount(x_codes), np.bincount(x_codes[first])
    if np.mean(n_values_of_y[n_rows > 1] > 1) > _WITH_OTHER_Y:
        return
    warn(
        "SKB207",
        f"{share:.0%} of the rows are repeated, y included. Folds separate equal rows, "
        "so that a network that memorises rows seems accurate: weights, intervals and "
        "summary would be overconfident. Give each row once, with its count as "
        "`sample_weight`; or give `groups`, whose rows stay together.",
    )


def _codes(table: np.ndarray) -> np.ndarray:
    """Integer codes of the rows, equal for equal rows, (rows,)."""
    codes = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        column_codes = np.unique(column, return_inverse=True)[1]
        # Renumbering after each column keeps the products small.
        codes = np.unique(
            codes * (column_codes.max() + 1) + column_codes, return_inverse=True
        )[1]
    return codes


# ---- folds

# With fewer rows, every fold is held out. With more, one fold is held out.
FOLDS_BELOW = 700
# Number of folds.
N_FOLDS = 5
# Largest number of held-out rows if one fold is held out.
MAX_HELD_OUT = 4_000
# From this many rows on, candidates with little weight on a sample are dropped.
SAMPLED_FROM = 10_000
# Largest numbers of training and held-out rows of the sample, in each fold, and its
# largest share of the rows.
SAMPLE, SAMPLE_SHARE = (4_000, 1_000), 0.25
# Smallest weight on the sample with which a candidate is fitted to all rows.
SAMPLE_WEIGHT = 0.1
# With this number of rows and all of the default folds, candidates without weight on
# the first folds are dropped.
FIRST_FROM, N_FIRST = 200, 2


def make_folds(
    cv,
    data,
    groups,
    *,
    is_classification: bool,
    seed: int,
    folds_below: int | None = None,
) -> list[tuple]:
    """Row indices (train, test) of every fold.

    cv : None, by the number of rows; int, shuffled folds; or as scikit-learn takes it
    groups : the argument of ``fit``, for splitters of scikit-learn
    folds_below : with fewer rows, and ``cv`` None, every fold is held out; None is
        ``FOLDS_BELOW``
    """
    y = data.y
    below = folds_below or FOLDS_BELOW
    is_default = cv is None or isinstance(cv, Integral)
    if is_default and groups is not None:
        splits = _default_group_folds(cv, data, is_classification, seed, below)
    elif is_default:
        warn_of_copies(data.X, y)
        splits = _default_folds(
            cv, y, data.sample_weight, is_classification, seed, below
        )
    else:
        splits = held_out_folds(
            cv, data.X, y, is_classification=is_classification, groups=groups
        )
    if not splits:
        raise ValueError(f"`cv` must have at least one split; got {cv!r}.")
    if groups is not None:
        _check_groups(cv, data, splits)
    if is_classification:
        _check_classes(y, data.sample_weight, splits)
    return splits


def thinned(splits: list[tuple], weights: np.ndarray) -> list[tuple]:
    """Folds with a sample of their rows, in the same order.

    splits : of the rows, or of the copies that ``encode_by_fold`` makes
    weights : of the rows
    """

    def sample(rows, most):
        used = rows[weights[rows % len(weights)] > 0]
        most = min(most, math.ceil(SAMPLE_SHARE * len(used)))
        chosen = np.random.default_rng(0).permutation(len(used))[:most]
        return used[np.sort(chosen)]

    return [tuple(map(sample, fold, SAMPLE)) for fold in splits]


def _default_group_folds(
    n_folds, data, is_classification: bool, seed: int, below: int
) -> list[tuple]:
    """Shuffled folds of the rows with positive weight, which do not split groups."""
    used = np.flatnonzero(data.weights)
    groups, y = data.groups[used], data.y[used]
    n_groups = len(np.unique(groups))
    if n_folds is not None and not 2 <= n_folds <= n_groups:
        raise ValueError(
            "`cv` as a number of folds must be between 2 and the number of groups, "
            f"{n_groups}; got {n_folds}. Give a smaller `cv`, or None."
        )
    fold = group_folds(
        groups, n_folds or N_FOLDS, seed, y if is_classification else None
    )
    splits = [(used[train], used[test]) for train, test in splits_of(fold)]
    is_single = n_folds is None and len(used) >= below
    return splits[:1] if is_single else splits


def _check_groups(cv, data, splits) -> None:
    """Raise if the training rows of a fold are in a single group."""
    weights = data.weights
    for train, _ in splits:
        groups = data.groups[train[weights[train] > 0]]
        if len(np.unique(groups)) < 2:
            n_groups = len(np.unique(data.groups[weights > 0]))
            raise ValueError(
                "a stack with `groups` needs rows of at least 2 groups to train on in "
                "every fold, since its candidates hold out groups too; got "
                f"{n_groups} groups and cv={cv!r}. Give at least 3 groups and a larger "
                "number of folds; or fit without `groups`, and give the folds as "
                "cv=list(splitter.split(X, y, groups))."
            )


def _default_folds(
    n_folds, y, weights, is_classification: bool, seed: int, below: int
) -> list[tuple]:
    """Shuffled folds of the rows with positive weight."""
    used = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    splitter = _splitter(n_folds, y[used], is_classification, seed, below)
    with warnings.catch_warnings():
        # A class with fewer rows than folds is missing from some of them.
        warnings.filterwarnings("ignore", message="The least populated class")
        splits = [
            (used[train], used[test]) for train, test in splitter.split(used, y[used])
        ]
    # Folds with equally many training rows share a program. Drop one row from the
    # larger ones, unless this removes a class.
    n_train = min(len(train) for train, _ in splits)
    equal = [(train[:n_train], test) for train, test in splits]
    return splits if is_classification and lacks_class(y, equal, splits) else equal


def lacks_class(y, smaller: list[tuple], splits: list[tuple]) -> bool:
    """Whether smaller training sets lack a class that those of ``splits`` have."""
    return any(
        len(np.unique(y[fewer])) < len(np.unique(y[train]))
        for (fewer, _), (train, _) in zip(smaller, splits, strict=True)
    )


def _splitter(n_folds, y, is_classification: bool, seed: int, below: int):
    """A shuffled splitter, stratified if the classes have enough rows."""
    n_rows = len(y)
    if n_rows < 2:
        raise ValueError(
            "a stack needs at least 2 rows, one to train on and one to hold out; got "
            f"n_samples={n_rows}. Fit a single estimator to one row."
        )
    counts = np.unique(y, return_counts=True)[1] if is_classification else np.array([0])
    if n_folds is None and n_rows >= below:
        n_held_out = min(math.ceil(n_rows / N_FOLDS), MAX_HELD_OUT)
        can_stratify = counts.min() >= 2 and n_held_out >= len(counts)
        splitter_class = StratifiedShuffleSplit if can_stratify else ShuffleSplit
        return splitter_class(1, test_size=n_held_out, random_state=seed)
    if n_folds is None:
        n_folds = min(N_FOLDS, n_rows)
    splitter_class = StratifiedKFold if counts.max() >= n_folds else KFold
    return splitter_class(n_folds, shuffle=True, random_state=seed)


def _check_classes(y, weights, splits) -> None:
    """Raise if the training rows of a fold have a single class."""
    used = np.ones(len(y), dtype=bool) if weights is None else np.asarray(weights) > 0
    classes, counts = np.unique(y[used], return_counts=True)
    if any(len(np.unique(y[train][used[train]])) < 2 for train, _ in splits):
        rarest = counts.argmin()
        raise ValueError(
            "a stack of classifiers needs rows of at least 2 classes to train on in "
            f"every fold; got class {classes.tolist()[rarest]!r} in {counts[rarest]} "
            f"of {used.sum()} rows. Give each class at least 2 rows, of different "
            "groups if there are groups, and a `cv` that stratifies or shuffles them, "
            "or fit a single estimator."
        )
