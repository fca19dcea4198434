"""Powers of two by which columns are near one, so that their squares are floats."""

import numpy as np
from scipy import sparse

# Exponents of two up to which squares, and sums of them, are floats.
_USUAL = {np.dtype(np.float32): 40, np.dtype(np.float64): 400}
# A power and its inverse are both floats.
_MOST = 1020


def magnitude(values) -> np.ndarray:
    """Per column a power of two, (columns,): 1, or what is next to its largest value.

    1 where squares are floats anyway. To divide by it rounds nothing, and what is of
    order one has a variance, which values of 1e-170 or 1e170 have not.

    values : (rows, columns), array or sparse, finite
    """
    largest, lowest = values.max(axis=0), values.min(axis=0)
    if sparse.issparse(values):
        largest, lowest = largest.toarray().ravel(), lowest.toarray().ravel()
    extreme = np.maximum(np.abs(largest), np.abs(lowest)).astype(np.float64)
    exponent = np.frexp(extreme)[1]
    usual = (extreme == 0) | (np.abs(exponent) <= _USUAL.get(values.dtype, 0))
    return np.where(usual, 1.0, np.ldexp(1.0, exponent.clip(-_MOST, _MOST)))


def divided(values, unit: np.ndarray):
    """Columns by their units, (columns,); the same object where all are 1."""
    if (unit == 1).all():
        return values
    if sparse.issparse(values):
        return (values.astype(np.float64) * (1 / unit)).tocsr()
    return values / unit
