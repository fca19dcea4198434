"""Types of what public methods take and return."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray


class SparseMatrix(Protocol):
    """A matrix or an array of SciPy, of any format."""

    def tocsr(self, copy: bool = False) -> Any:
        """Compressed sparse rows."""


# Frames are array-like.
MatrixLike = ArrayLike | SparseMatrix
Array = NDArray[Any]
RandomState = int | np.random.RandomState | None
