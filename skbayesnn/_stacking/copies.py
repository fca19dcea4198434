"""Is the table one of rows that are there several times?"""

import numpy as np
from scipy import sparse

from skbayesnn._warnings import warn

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
