"""Types of the arguments and results of public methods."""

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray


class SparseMatrix(Protocol):
    """A sparse matrix or sparse array of SciPy, in any format."""

    def tocsr(self, copy: bool = False) -> Any:
        """Convert to compressed sparse rows."""


class LazyFrame(Protocol):
    """A LazyFrame of polars."""

    def collect_schema(self) -> Any:
        """Names and types of the columns."""


class Dataset(Protocol):
    """A dataset of pyarrow."""

    def get_fragments(self) -> Any:
        """Parts of the dataset."""


# Data frames, and arrays on disk, are array-like; so are paths as strings.
MatrixLike = ArrayLike | SparseMatrix | os.PathLike[str] | LazyFrame | Dataset
Array = NDArray[Any]
# Path of a file for predictions; None returns them.
OutputPath = str | os.PathLike[str] | None
RandomState = int | np.random.RandomState | None
