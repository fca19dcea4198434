"""Which values lie far from where most of them are?"""

import numpy as np
from scipy import sparse

from skbayesnn._data.magnitude import divided, magnitude
from skbayesnn._warnings import warn_once

# Beyond the quartiles, in interquartile ranges: 7.4 standard deviations of a Gaussian.
_REACH = 5.0
# Outliers that make a standard deviation so many times larger press the rest flat.
_SWAMPED = 2.0
# Standard deviations from the mean at which a new value is far outside: at least so
# many, and so many times the root of the number of training rows. No training row can
# be farther from the mean than that root [Samuelson 1968, "How deviant can you be?",
# JASA 63]. Heavy tails stay inside, such as log-normal values with a log scale of 2 or
# Student's t with 2 degrees of freedom.
_FAR, _FAR_PER_ROOT = 1e3, 10.0
# What is warned about once per call.
FAR_ROWS = "far rows"


def common_range(
    values: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper end per column of all but outliers, (columns,) each.

    Up to a quarter of the values on each side, however far away, do not move them.
    Where half of the values are the same nothing says what is far: everything is
    within.

    values : (rows, columns), finite
    weights : (rows,), ones by default
    """
    weights = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, axis=0)
    below = np.cumsum(weights[order], axis=0)
    quartiles = [(below < share * below[-1]).sum(0) for share in (0.25, 0.75)]
    first, third = (
        np.take_along_axis(values, np.take_along_axis(order, row[None], 0), 0)[0]
        for row in quartiles
    )
    reach = np.where(third > first, _REACH * (third - first), np.inf)
    return first - reach, third + reach


def is_outlier(values: np.ndarray) -> np.ndarray:
    """Rows with a value outside of its column's common range, (rows,), bool."""
    low, high = common_range(values)
    return np.any((values < low) | (values > high), axis=1)


def swamped(values: np.ndarray) -> np.ndarray:
    """Columns whose standard deviation is that of a few values, (columns,), bool."""
    values = divided(values, magnitude(values))
    low, high = common_range(values)
    common = np.clip(values, low, high).std(0)
    return np.isfinite(low) & (values.std(0) > _SWAMPED * common)


def ordinary_rows(*tables) -> np.ndarray:
    """Those without outliers that press the others flat, (rows,), bool.

    Their predictions say nothing of whether those of the others differ. All rows where
    each has one, as few rows of many columns may.
    """
    kept = np.ones(tables[0].shape[0], dtype=bool)
    for values in tables:
        if values.ndim == 2 and not sparse.issparse(values):
            kept &= ~is_outlier(values[:, swamped(values)])
    return kept if kept.any() else ~kept


def warn_of_far_rows(X, mean, scale, n_rows: float, names=None) -> None:
    """Warn about rows far outside of the training rows, once per call.

    Parameters
    ----------
    X : (rows, columns), array or sparse, finite
    mean, scale : (columns,), of the training rows
    n_rows : float
        Sum of the weights of the training rows.
    names : (columns,), optional
    """
    lowest, highest = X.min(axis=0), X.max(axis=0)
    if sparse.issparse(X):
        lowest, highest = lowest.toarray().ravel(), highest.toarray().ravel()
    with np.errstate(over="ignore"):
        distance = np.maximum(mean - lowest, highest - mean) / scale
    column = int(distance.argmax())
    if distance[column] <= max(_FAR, _FAR_PER_ROOT * np.sqrt(n_rows)):
        return
    values = X[:, [column]]
    values = (values.toarray() if sparse.issparse(X) else values)[:, 0]
    row = int(np.abs(values - mean[column]).argmax())
    name = column if names is None else repr(str(names[column]))
    warn_once(
        FAR_ROWS,
        f"some rows lie far outside of the training rows: {values[row]:.3g} in column "
        f"{name} of row {row} is {distance[column]:.1g} standard deviations from the "
        "training mean. Predictions are extrapolations there and can be absurd. Are "
        "the rows in the units of the fit?",
    )
