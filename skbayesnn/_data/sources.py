"""Tables that are read block by block, because they need not fit into memory.

A :class:`RowSource` is recognised by :func:`source_of`: Parquet files, pyarrow datasets
and tables, polars LazyFrames, Dask collections, and arrays of which rows are read by
slices (``numpy.memmap``, HDF5, Zarr). It is a list of blocks. A block is a part that is
read efficiently as a whole: a row group of a file, a chunk of an array, a partition of
a collection.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from copy import copy
from functools import cache, cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

import joblib
import numpy as np
import sklearn

from skbayesnn._data import files
from skbayesnn._data._advice import listed
from skbayesnn._data.class_order import OrderedLabels, if_ordered
from skbayesnn._data.columns import is_frame, objects_of
from skbayesnn._runtime import imported, wait_for

# Bytes that an ordinary fit needs for each value of X, at most: the table itself,
# copies in double precision, and the networks of the selection on held-out rows.
BYTES_PER_VALUE = 256
# Bytes of a block of an array without chunks.
_BLOCK_BYTES = 1 << 22
# Rows that identify a source, at each of some places.
_ROWS_OF_FINGERPRINT = 64
# Rows that are hashed at once.
_ROWS_OF_HASH = 65_536
# Most blocks that are read in turns.
_MAX_OPEN = 8


def working_memory() -> int:
    """Bytes that a call may use: scikit-learn's ``working_memory``, 1 GiB by default.

    Raises
    ------
    ValueError
        If it is not positive.
    """
    megabytes = sklearn.get_config()["working_memory"]
    if not megabytes > 0:
        raise ValueError(
            "scikit-learn's `working_memory` must be positive; got "
            f"{megabytes!r}. Set it with sklearn.set_config(working_memory=1024)."
        )
    return int(megabytes * 2**20)


# ---- rows and columns of a block


class Rows(NamedTuple):
    """Consecutive rows of a source.

    Parameters
    ----------
    table : frame or ndarray
    start : int
        Position of the first row in the source.
    place : str
        Where they are stored, for messages.
    """

    table: Any
    start: int
    place: str


def split_columns(table, names: Sequence[str]) -> tuple[Any, list[np.ndarray]]:
    """Split a frame into the other columns and the values of the named columns."""
    import narwhals.stable.v2 as narwhals

    frame = narwhals.from_native(table, eager_only=True)
    values = [column_values(frame.get_column(name)) for name in names]
    return frame.drop(*names).to_native(), values


def resolved_columns(X, *values):
    """X without its columns that ``values`` name, and these columns in their place.

    X : frame, or anything if no value is a name

    Raises
    ------
    ValueError
        If a value is a name, and X has no column of this name.
    """
    names = [value for value in values if isinstance(value, str)]
    if not names:
        return X, *values
    columns = list(getattr(X, "column_names", X.columns)) if is_frame(X) else []
    missing = [name for name in names if name not in columns]
    if missing:
        shown = listed([*map(repr, columns)], 20) or "no named columns"
        raise ValueError(
            f"X must have a column {missing[0]!r}, which is named in place of values; "
            f"it has {shown}."
        )
    X, found = split_columns(X, names)
    by_name = dict(zip(names, found, strict=True))
    return X, *(by_name[v] if isinstance(v, str) else v for v in values)


def column_values(series) -> np.ndarray:
    """Values of a column of narwhals, (rows,); labels are objects.

    Categories with an order are ``OrderedLabels``.
    """
    ordered = if_ordered(series.to_native())
    if ordered is not None:
        return OrderedLabels(objects_of(series), ordered.orders)
    if series.dtype.is_numeric() and not series.null_count():
        return series.to_numpy()
    return objects_of(series)


def concatenated(tables: Sequence):
    """Concatenate frames or arrays by rows."""
    if not is_frame(tables[0]):
        return np.concatenate(tables)
    import narwhals.stable.v2 as narwhals

    frames = [narwhals.from_native(table, eager_only=True) for table in tables]
    return narwhals.concat(frames).to_native()


def selected_rows(table, positions: np.ndarray):
    """Rows of a frame or array by position."""
    if not is_frame(table):
        return table[positions]
    import narwhals.stable.v2 as narwhals

    return narwhals.from_native(table, eager_only=True)[positions].to_native()


def selected_columns(table, names: Sequence[str]):
    """Columns of a frame by name, in the given order."""
    import narwhals.stable.v2 as narwhals

    return narwhals.from_native(table, eager_only=True).select(*names).to_native()


# ---- sources


class Block(NamedTuple):
    """Rows that are stored together, such as a row group of a file.

    Parameters
    ----------
    n_rows : int
    place : str
        Where they are stored, for messages.
    read : callable
        Takes names of columns, or None for an array, and the most rows at once.
        Iterates over the rows in order, as frames or arrays.
    bytes_of_column : int
        Bytes that a reader holds of each column, apart from the rows that it returns.
    """

    n_rows: int
    place: str
    read: Callable[[list[str] | None, int], Iterator[Any]]
    bytes_of_column: int = 0


class RowSource:
    """Rows that are read block by block.

    Parameters
    ----------
    name : str
        For messages.
    columns : list of str, or None
        Columns to read; None for an array.
    find_blocks : callable
        Returns the list of ``Block``; called when rows are needed.
    n_columns : int, optional
        Number of columns of an array.
    identity : callable, optional
        Returns what identifies the rows; by default their number and the first ones.
    """

    def __init__(
        self,
        name: str,
        columns: list[str] | None,
        find_blocks: Callable[[], list[Block]],
        n_columns: int = 0,
        identity: Callable[[], Any] | None = None,
    ):
        self.name, self.columns = name, columns
        self._find_blocks, self._identity = cache(find_blocks), identity
        self._n_columns = n_columns

    @cached_property
    def _starts(self) -> list[int]:
        """Position of the first row of every block, and the number of rows."""
        return [0, *accumulate(block.n_rows for block in self._find_blocks())]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._starts[-1]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self._n_columns if self.columns is None else len(self.columns)

    def only(self, columns: Sequence[str]) -> "RowSource":
        """The same source with some of its columns, in the given order.

        Raises
        ------
        ValueError
            If the source has no named columns, or lacks some of these.
        """
        if self.columns is None:
            raise ValueError(
                f"a name of a column, {columns[0]!r}, needs a source with names; got "
                f"{self.name}. Give an array with one value per row."
            )
        missing = [name for name in columns if name not in self.columns]
        if missing:
            in_path = any(f"{name}=" in self.name for name in missing)
            raise ValueError(
                f"{self.name} must have the columns {', '.join(map(repr, missing))}; "
                f"it has {listed([*map(repr, self.columns)], 20)}."
                + " Columns in names of folders are read below the folder that is "
                "given: give the folder above, or a pattern." * in_path
            )
        other = copy(self)
        other.columns = list(columns)
        vars(other).pop("fingerprint", None)
        return other

    def in_order(self, n_at_once: int) -> Iterator[Rows]:
        """Iterate over all rows in order, at most ``n_at_once`` at a time."""
        for i in range(len(self._find_blocks())):
            yield from self._rows_of(i, n_at_once)

    def n_open(self, n_bytes: int) -> int:
        """Number of blocks that can be open at once within ``n_bytes``, at most 8."""
        of_column = max((b.bytes_of_column for b in self._find_blocks()), default=0)
        return min(max(1, n_bytes // max(1, of_column * self.n_columns)), _MAX_OPEN)

    def shuffled(
        self, random: np.random.Generator, n_at_once: int, n_open: int
    ) -> Iterator[Rows]:
        """Iterate over all rows, with the blocks in random order.

        ``n_open`` blocks are read in turns, so that rows of several blocks are close to
        each other even if the blocks are large.
        """
        waiting = iter(random.permutation(len(self._find_blocks())).tolist())
        opened: list[Iterator[Rows]] = []
        while True:
            while len(opened) < n_open and (block := next(waiting, None)) is not None:
                opened.append(self._rows_of(block, n_at_once))
            if not opened:
                return
            for readers in list(opened):
                rows = next(readers, None)
                if rows is None:
                    opened.remove(readers)
                else:
                    yield rows

    def read(self):
        """All rows at once, as a frame or array."""
        parts = [rows.table for rows in self.in_order(self.n_rows)]
        if not parts:
            raise ValueError(f"{self.name} must have at least one row; got none.")
        return concatenated(parts)

    @property
    def is_small(self) -> bool:
        """Whether an ordinary fit to these rows stays within the working memory."""
        return self.n_rows * self.n_columns * BYTES_PER_VALUE <= working_memory()

    @cached_property
    def fingerprint(self) -> tuple:
        """What identifies the rows and their columns."""
        if self._identity is not None:
            return self._identity(), tuple(self.columns or ())
        first = next(self.in_order(_ROWS_OF_FINGERPRINT), None)
        table = None if first is None else joblib.hash(np.asarray(first.table))
        return self.name, self.n_rows, table, tuple(self.columns or ())

    def _rows_of(self, i: int, n_at_once: int) -> Iterator[Rows]:
        block, start = self._find_blocks()[i], self._starts[i]
        for table in block.read(self.columns, n_at_once):
            if len(table):
                yield Rows(table, start, block.place)
            start += len(table)


# ---- tables and arrays of which any rows are read by position


def _sliced(
    name: str,
    n_rows: int,
    rows_of_block: int,
    take: Callable[[int, int], Any],
    columns: list[str] | None = None,
    n_columns: int = 0,
    version: int | None = None,
) -> RowSource:
    """A source whose rows are read by position.

    take : reads the rows from a start to a stop
    version : time of the last change of the file that contains the rows. The
        fingerprint then depends on some of the rows only, since all would be read for
        it
    """
    step = max(1, min(rows_of_block, n_rows))

    def read(first, columns, n_at_once):
        stop = min(first + step, n_rows)
        for start in range(first, stop, n_at_once):
            try:
                rows = take(start, min(start + n_at_once, stop))
            except (OSError, RuntimeError) as error:  # of a damaged chunk
                raise ValueError(
                    f"{name} cannot be read from row {start} on: {error}"
                ) from error
            yield rows if columns is None else selected_columns(rows, columns)

    def blocks():
        return [
            Block(min(step, n_rows - start), f"{name}, block {i}", partial(read, start))
            for i, start in enumerate(range(0, n_rows, step))
        ]

    def identity():
        return name, n_rows, version, digest(take, n_rows, whole=version is None)

    return RowSource(name, columns, blocks, n_columns, identity)


def _of_array(array) -> RowSource:
    """An array of which rows are read by slices: a memory map, HDF5, Zarr."""
    if not getattr(array, "id", True):
        raise ValueError("the file of an HDF5 dataset must be open; it was closed.")
    chunks = getattr(array, "chunks", None)
    of_chunk = chunks[0] if chunks else 1
    n_columns = int(np.prod(array.shape[1:]))
    bytes_of_chunk = array.dtype.itemsize * n_columns * of_chunk
    name = getattr(array, "filename", None) or getattr(array, "name", None)
    kind = type(array).__name__
    return _sliced(
        f"{kind} {name}" if name else kind,
        array.shape[0],
        of_chunk * -(-_BLOCK_BYTES // max(1, bytes_of_chunk)),
        lambda start, stop: np.array(array[start:stop]),
        n_columns=n_columns,
        version=_time_of_change(array),
    )


def in_memory(X) -> RowSource:
    """A frame or an array in memory."""
    if not is_frame(X):
        X = np.asarray(X)
        n_columns = int(np.prod(X.shape[1:]))
        return _sliced("X", len(X), len(X), lambda i, j: X[i:j], n_columns=n_columns)
    import narwhals.stable.v2 as narwhals

    frame = narwhals.from_native(X, eager_only=True)
    names = list(frame.columns)
    return _sliced("X", len(X), len(X), lambda i, j: frame[i:j].to_native(), names)


def of_arrow_table(table) -> RowSource:
    """A pyarrow table, which may be mapped from a file."""
    bytes_of_row = max(1, table.nbytes // max(1, table.num_rows))
    return _sliced(
        "pyarrow.Table",
        table.num_rows,
        -(-_BLOCK_BYTES // bytes_of_row),
        lambda start, stop: table.slice(start, stop - start),
        table.column_names,
    )


def digest(take: Callable[[int, int], Any], n_rows: int, whole: bool = True) -> str:
    """Hash of all rows, or of rows at the start, in the middle and at the end.

    take : reads the rows from a start to a stop
    """
    n = min(_ROWS_OF_HASH if whole else _ROWS_OF_FINGERPRINT, n_rows)
    starts = range(0, n_rows, n) if whole else (0, (n_rows - n) // 2, n_rows - n)
    parts = (take(start, min(start + n, n_rows)) for start in starts)
    return joblib.hash([joblib.hash(_content(part)) for part in parts])


def _content(table) -> np.ndarray:
    """An array that differs if the values of a table differ."""
    if not hasattr(table, "iloc"):
        return np.asarray(table)
    # An array of objects for mixed columns would take ten times as long.
    return imported("pandas.util").hash_pandas_object(table, index=False).to_numpy()


def _time_of_change(array) -> int:
    """When the file of an array was changed; 0 if the file is unknown."""
    file = getattr(array, "file", array)  # of a dataset of HDF5
    path = getattr(file, "filename", None)
    return os.stat(path).st_mtime_ns if path and os.path.exists(path) else 0


# ---- other tables


def _of_dask(collection) -> RowSource:
    """A Dask array or data frame, whose parts are computed when they are needed."""
    is_array = not hasattr(collection, "map_partitions")
    if is_array:  # all columns of a row in one chunk
        axes = range(1, collection.ndim)
        collection = collection.rechunk({axis: -1 for axis in axes})
        if np.isnan(collection.shape[0]):
            collection = collection.compute_chunk_sizes()
    name = "dask.array" if is_array else "dask.dataframe"

    def read(i, columns, n_at_once):
        if is_array:
            at = rows = np.asarray(collection.blocks[i].compute())
        else:
            rows = collection[columns].partitions[i].compute()
            at = rows.iloc
        yield from (at[j : j + n_at_once] for j in range(0, len(rows), n_at_once))

    def blocks():
        if is_array:
            sizes = collection.chunks[0]
        else:
            sizes = collection.map_partitions(len).compute()
        return [
            Block(int(n), f"{name}, partition {i}", partial(read, i), 8 * int(n))
            for i, n in enumerate(sizes)
        ]

    if is_array:
        n_columns = int(np.prod(collection.shape[1:]))
        return RowSource(name, None, blocks, n_columns)
    return RowSource(name, list(collection.columns), blocks)


def _written(name: str, names: list[str], write: Callable[[str], Any]) -> RowSource:
    """Rows that are written to a temporary Parquet file when they are needed, once."""

    @cache
    def stored():
        folder = tempfile.mkdtemp(prefix="skbayesnn-")
        weakref.finalize(stored, shutil.rmtree, folder, ignore_errors=True)
        path = os.path.join(folder, "rows.parquet")
        write(path)
        return of_files(name, [path], folder)._find_blocks()

    return RowSource(name, names, stored)


def _of_dataset(dataset) -> RowSource:
    """A pyarrow dataset; without Parquet files, or with a filter, it is written."""
    name, schema = "pyarrow.dataset", dataset.schema
    with suppress(ValueError):  # of a dataset after `filter`
        fragments = list(dataset.get_fragments())
        if fragments and all(hasattr(fragment, "row_groups") for fragment in fragments):
            return _of_parquet(name, fragments, schema, True)

    def write(path):
        writer = imported("pyarrow.parquet").ParquetWriter(path, schema)
        with files.named_in_errors(name), writer:
            for batch in dataset.to_batches(batch_readahead=1, fragment_readahead=1):
                writer.write_batch(batch)

    return _written(name, files.column_names(schema), write)


def of_files(name: str, paths: Sequence[str], base: str) -> RowSource:
    """Parquet files; base : folder, below which names of folders contain columns."""
    fragments, schema = files.fragments_of(paths, base)
    return _of_parquet(name, fragments, schema, False)


def _of_parquet(name: str, fragments: Iterable, schema, is_dataset: bool) -> RowSource:
    """Parquet files; the blocks are their row groups.

    Columns in the names of folders, such as ``region=1``, are the last ones.

    fragments : iterable of pyarrow.dataset.ParquetFileFragment
    schema : of the first file, or of a dataset of pyarrow
    is_dataset : whether the schema sets the types, and columns that a file lacks are
        missing values. Otherwise all files must have the columns of the first one
    """
    found = list(map(files.ParquetFile, fragments))
    if not is_dataset:
        schema = files.common_schema(found, schema)

    def blocks():
        largest = max((size for file in found for _, size in file.groups), default=0)
        return [
            Block(
                n_rows,
                f"{file.path}, row group {group}",
                partial(file.read, group, schema),
                files.bytes_of_reader(largest),
            )
            for file in found
            for group, n_rows in file.groups
        ]

    def identity():
        return tuple((file.path, file.version) for file in found)

    return RowSource(name, files.column_names(schema), blocks, identity=identity)


def read_ahead(values: Iterator[Any]) -> Generator[Any, None, None]:
    """The same values; a thread computes the next one while the present one is used."""
    nothing = object()
    with ThreadPoolExecutor(1) as pool:
        # The thread has the settings of NumPy and of warnings of this one.
        context = copy_context()

        def following() -> Future:
            return pool.submit(context.run, lambda: next(values, nothing))

        future = following()
        try:
            while (value := wait_for([future])[0]) is not nothing:
                future = following()
                yield value
        finally:
            future.cancel()


# ---- recognise a source


def source_of(X) -> RowSource | None:
    """The source that X is; None for an array or a frame in memory, or other values.

    A small ``numpy.memmap`` or pyarrow table counts as an array or a frame.

    Raises
    ------
    FileNotFoundError, ValueError
        If X is a path without a Parquet file.
    """
    if type(X) is np.ndarray:
        return None
    if files.are_paths(X):
        return of_files(*files.found_files(X))
    if isinstance(X, np.memmap):
        return _if_large(_of_array(X)) if X.ndim > 1 else None
    names = {(cls.__module__.split(".")[0], cls.__name__) for cls in type(X).__mro__}
    if {("dask", "Array"), ("dask", "DataFrame")} & names:
        return _of_dask(X)
    if ("pyarrow", "Table") in names:
        return _if_large(of_arrow_table(X))
    if ("pyarrow", "Dataset") in names:
        return _of_dataset(X)
    if ("polars", "LazyFrame") in names:
        columns = list(X.collect_schema().names())
        return _written("polars.LazyFrame", columns, X.sink_parquet)
    # Chunks distinguish an array on disk from one in memory.
    is_chunked = hasattr(type(X), "chunks") and hasattr(type(X), "dtype")
    return _of_array(X) if is_chunked else None


def _if_large(source: RowSource) -> RowSource | None:
    return None if source.is_small else source
