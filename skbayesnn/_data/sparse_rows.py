"""Standardised rows of a sparse table as inputs of a network, never made dense."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy import sparse

from skbayesnn._data.scaling import Scaling

# Largest share of stored values. With more, dense products are as fast.
_MAX_STORED = 0.05
# Smallest number of columns. With fewer, dense arrays are small.
_MIN_COLUMNS = 500
# Largest mean of a column in standard deviations. With a larger mean, the sum of the
# two products loses digits.
_MAX_SHIFT = 100.0


class SparseRows:
    """Standardised inputs as a sparse matrix and a dense row of shifts.

    (x - mean) / scale = x / scale - mean / scale. The first term is as sparse as x. The
    product of the second term with the weights is the same for all rows.

    Parameters
    ----------
    values : csr_array of shape (rows, inputs)
        x / scale.
    shift : ndarray of shape (inputs,)
        -mean / scale.
    """

    def __init__(self, values: sparse.csr_array, shift: np.ndarray):
        self._values, self._shift = values, shift
        self.shape = (1, *values.shape)

    @classmethod
    def of(cls, X, scaling: Scaling) -> "SparseRows":
        """Standardise a sparse table, in the precision of X."""
        data = (X.data / scaling.x_scale[X.indices]).astype(X.dtype, copy=False)
        values = sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
        return cls(values, _shift(scaling).astype(X.dtype))

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        """Compute x W, (draws, members, rows, outputs).

        weight : (draws, members, inputs, outputs), on the CPU
        """
        n_draws, n_members, n_inputs, n_outputs = weight.shape
        columns = weight.permute(2, 0, 1, 3).reshape(n_inputs, -1).numpy()
        product = self._values @ columns
        product += self._shift @ columns
        outputs = torch.from_numpy(product).view(-1, n_draws, n_members, n_outputs)
        return outputs.permute(1, 2, 0, 3).contiguous()

    def split(self, size: int, dim: int) -> Sequence["SparseRows"]:
        """Split into parts of ``size`` rows."""
        starts = range(0, self.shape[dim], size)
        return [SparseRows(self._values[i : i + size], self._shift) for i in starts]


def suits_sparse_rows(X, scaling: Scaling) -> bool:
    """Whether sparse products are faster than dense ones for these rows."""
    if not sparse.issparse(X) or X.shape[1] < _MIN_COLUMNS:
        return False
    few = X.nnz < _MAX_STORED * X.shape[0] * X.shape[1]
    return bool(few and (np.abs(_shift(scaling)) < _MAX_SHIFT).all())


def _shift(scaling: Scaling) -> np.ndarray:
    return -scaling.x_mean / scaling.x_scale
