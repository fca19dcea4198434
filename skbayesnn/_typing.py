"""Types of the arguments and results of public methods."""

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray


class SparseMatrix(Protocol):
    """A sparse matrix or sparse array of SciPy, in any format."""

    def tocsr(self, copy: bool = False) -> Any:
        """Convert to compressed sparse rows."""


# Data frames are array-like.
MatrixLike = ArrayLike | SparseMatrix
Array = NDArray[Any]
# Path of a file for predictions; None returns them.
OutputPath = str | os.PathLike[str] | None
RandomState = int | np.random.RandomState | None
