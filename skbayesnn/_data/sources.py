"""Tables that are read block by block, because they need not fit into memory.

A :class:`RowSource` is recognised by :func:`source_of`: Parquet files, pyarrow datasets
and tables, polars LazyFrames, Dask collections, and arrays on disk (``numpy.memmap``,
HDF5, Zarr). A block is a part that is read efficiently as a whole: a row group of a
file, a chunk of an array, a partition of a collection. All sources give the rows of
their blocks in the same way, as frames or as arrays.
"""

import os
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cached_property
from glob import glob
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import sklearn

from skbayesnn._data.class_order import OrderedLabels, if_ordered
from skbayesnn._data.columns import is_frame
from skbayesnn._runtime import imported

# Bytes that an ordinary fit needs for each value of X, at most: the table itself,
# copies in double precision, and the networks of the selection on held-out rows.
BYTES_PER_VALUE = 256
# Bytes of a block of an array without chunks.
_BLOCK_BYTES = 1 << 22
# Bytes that a reader of a Parquet file holds of each column: of the file, and at most
# of a page, its dictionary and their decoded values.
_BUFFER_BYTES, _PAGE_BYTES = 1 << 16, 3 << 20
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
        shown = ", ".join(map(repr, columns[:20])) or "no named columns"
        raise ValueError(
            f"X must have a column {missing[0]!r}, which is named in place of values; "
            f"it has {shown}{', ...' * (len(columns) > 20)}."
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
        return OrderedLabels(_objects(series), ordered.orders)
    if series.dtype.is_numeric() and not series.null_count():
        return series.to_numpy()
    return _objects(series)


def _objects(series) -> np.ndarray:
    return np.array([*series.to_list(), None], dtype=object)[:-1]


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


class RowSource(ABC):
    """Rows that are read block by block.

    Parameters
    ----------
    columns : list of str, or None
        Columns to read; None for an array.
    """

    # Name for messages.
    name: str
    is_lazy = False

    def __init__(self, columns: list[str] | None):
        self.columns = columns

    @property
    @abstractmethod
    def block_rows(self) -> list[int]:
        """Number of rows of each block."""

    @abstractmethod
    def _read(self, block: int, n_at_once: int) -> Iterator[Any]:
        """Read the rows of a block in order, at most ``n_at_once`` at a time."""

    def _place(self, block: int) -> str:
        """Where a block is stored, for messages."""
        return f"{self.name}, block {block}"

    @cached_property
    def _starts(self) -> list[int]:
        """Position of the first row of every block, and the number of rows."""
        return [0, *accumulate(self.block_rows)]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._starts[-1]

    @cached_property
    def n_columns(self) -> int:
        """Number of columns, from the first rows of an array."""
        if self.columns is not None:
            return len(self.columns)
        return int(np.prod(next(self.in_order(1)).table.shape[1:]))

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
            raise ValueError(
                f"{self.name} must have the columns {', '.join(map(repr, missing))}; "
                f"it has {', '.join(map(repr, self.columns[:20]))}"
                f"{', ...' * (len(self.columns) > 20)}."
            )
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.columns = list(columns)
        vars(other).pop("n_columns", None)
        return other

    def in_order(self, n_at_once: int) -> Iterator[Rows]:
        """Iterate over all rows in order, at most ``n_at_once`` at a time."""
        for block in range(len(self.block_rows)):
            yield from self._rows_of(block, n_at_once)

    def _bytes_open(self) -> int:
        """Bytes that an open block takes, apart from the rows that it returns."""
        return max(self.block_rows) * self.n_columns * 8

    def n_open(self, n_bytes: int) -> int:
        """Number of blocks that can be open at once within ``n_bytes``, at most 8."""
        return min(max(1, n_bytes // max(1, self._bytes_open())), _MAX_OPEN)

    def shuffled(
        self, random: np.random.Generator, n_at_once: int, n_open: int
    ) -> Iterator[Rows]:
        """Iterate over all rows, with the blocks in random order.

        ``n_open`` blocks are read in turns, so that rows of several blocks are close to
        each other even if the blocks are large.
        """
        waiting = iter(random.permutation(len(self.block_rows)).tolist())
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
        """What identifies the rows: their number, their names, and some of the rows."""
        first = next(self.in_order(_ROWS_OF_FINGERPRINT), None)
        table = None if first is None else np.asarray(first.table)
        return self.name, self.n_rows, tuple(self.columns or ()), joblib.hash(table)

    def _rows_of(self, block: int, n_at_once: int) -> Iterator[Rows]:
        start, place = self._starts[block], self._place(block)
        for table in self._read(block, n_at_once):
            if len(table):
                yield Rows(table, start, place)
            start += len(table)


class SlicedSource(RowSource):
    """An array on disk, or a pyarrow table: any rows are read by position.

    Parameters
    ----------
    name : str
    n_rows : int
    rows_of_block : int
    take : callable
        Reads the rows from a start to a stop.
    columns : list of str, or None
    version : int, optional
        Time of the last change of the file that contains the rows. The fingerprint then
        depends on some of the rows only, since all would be read for it.
    """

    def __init__(
        self,
        name,
        n_rows,
        rows_of_block,
        take,
        columns=None,
        version: int | None = None,
    ):
        super().__init__(columns)
        self.name, self._take, self._version = name, take, version
        self._n, self._step = n_rows, max(1, min(rows_of_block, n_rows))

    @cached_property
    def fingerprint(self):
        return (
            self.name,
            self._n,
            tuple(self.columns or ()),
            self._version,
            digest(self._take, self._n, whole=self._version is None),
        )

    @cached_property
    def block_rows(self):
        starts = range(0, self._n, self._step)
        return [min(self._step, self._n - start) for start in starts]

    def _bytes_open(self):
        return 1

    def _read(self, block, n_at_once):
        first = block * self._step
        stop = min(first + self._step, self._n)
        for start in range(first, stop, n_at_once):
            rows = self._take(start, min(start + n_at_once, stop))
            yield rows if self.columns is None else selected_columns(rows, self.columns)

    @classmethod
    def of_array(cls, array) -> "SlicedSource":
        """A ``numpy.memmap``, or a dataset of HDF5 or Zarr."""
        chunks = getattr(array, "chunks", None)
        of_chunk = chunks[0] if chunks else 1
        bytes_of_row = array.dtype.itemsize * int(np.prod(array.shape[1:]))
        n_chunks = -(-_BLOCK_BYTES // max(1, bytes_of_row * of_chunk))
        name = getattr(array, "filename", None) or getattr(array, "name", None)
        kind = type(array).__name__
        return cls(
            f"{kind} {name}" if name else kind,
            array.shape[0],
            of_chunk * n_chunks,
            lambda start, stop: np.array(array[start:stop]),
            version=_time_of_change(array),
        )

    @classmethod
    def in_memory(cls, X) -> "SlicedSource":
        """A frame or an array in memory."""
        if not is_frame(X):
            X = np.asarray(X)
            return cls("X", len(X), len(X), lambda i, j: X[i:j])
        import narwhals.stable.v2 as narwhals

        frame = narwhals.from_native(X, eager_only=True)
        names = list(frame.columns)
        source = cls("X", len(X), len(X), lambda i, j: frame[i:j].to_native(), names)
        return source

    @classmethod
    def of_table(cls, table) -> "SlicedSource":
        """A pyarrow table, which may be mapped from a file."""
        bytes_of_row = max(1, table.nbytes // max(1, table.num_rows))
        return cls(
            "pyarrow.Table",
            table.num_rows,
            -(-_BLOCK_BYTES // bytes_of_row),
            lambda start, stop: table.slice(start, stop - start),
            table.column_names,
        )


class Partitions(RowSource):
    """A Dask collection, whose partitions are computed when they are needed.

    Parameters
    ----------
    name : str
    collection : dask.array.Array or dask.dataframe.DataFrame
    """

    is_lazy = True

    def __init__(self, name, collection, columns=None):
        super().__init__(columns)
        self.name, self._collection = name, collection

    @cached_property
    def block_rows(self):
        if self.columns is None:
            return [int(n) for n in self._collection.chunks[0]]
        lengths = self._collection.map_partitions(len).compute()
        return [int(n) for n in lengths]

    def _place(self, block):
        return f"{self.name}, partition {block}"

    def _read(self, block, n_at_once):
        if self.columns is None:
            table = np.asarray(self._collection.blocks[block].compute())
            pieces = (table[i : i + n_at_once] for i in range(0, len(table), n_at_once))
        else:
            table = self._collection[self.columns].partitions[block].compute()
            starts = range(0, len(table), n_at_once)
            pieces = (table.iloc[i : i + n_at_once] for i in starts)
        yield from pieces

    @classmethod
    def of_array(cls, array) -> "Partitions":
        """A ``dask.array``, with all columns of a row in one chunk."""
        array = array.rechunk({axis: -1 for axis in range(1, array.ndim)})
        if np.isnan(array.shape[0]):
            array = array.compute_chunk_sizes()
        return cls("dask.array", array)

    @classmethod
    def of_frame(cls, frame) -> "Partitions":
        """A data frame of Dask, by partitions."""
        return cls("dask.dataframe", frame, list(frame.columns))


class ParquetFiles(RowSource):
    """Parquet files with the same columns; the blocks are their row groups.

    Parameters
    ----------
    name : str
    paths : list of str

    Raises
    ------
    ValueError
        If a file cannot be read, or lacks a column of the first, or has another kind of
        values in it.
    """

    def __init__(self, name: str, paths: Sequence[str]):
        super().__init__(None)
        try:
            parquet = imported("pyarrow.parquet")
        except ImportError as error:
            raise ImportError(
                "Parquet files are read by pyarrow, which is not installed; install it "
                "with `pip install pyarrow`."
            ) from error
        self.name, self._paths = name, list(paths)
        groups: list[int] = []
        self._first_group = [0]
        kinds: dict[str, str] = {}
        schemas: list[Any] = []
        for path in self._paths:
            with naming_file(path):
                metadata = parquet.read_metadata(path)
                schema = metadata.schema.to_arrow_schema()
            schemas.append(schema)
            found = {field.name: _kind(field.type) for field in schema}
            kinds = kinds or found
            _check_same_columns(path, self._paths[0], found, kinds)
            groups += [
                metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)
            ]
            self._first_group.append(len(groups))
        self._groups, self.columns = groups, _names_of(schemas[0])
        # Of files whose numbers have different types; else None.
        self._schema: Any = None
        if any(not schema.equals(schemas[0]) for schema in schemas):
            unify = imported("pyarrow").unify_schemas
            self._schema = unify(schemas, promote_options="permissive")

    def _bytes_open(self):
        of_column = min(_PAGE_BYTES, 16 * max(self._groups))
        return len(self.columns or ()) * (of_column + _BUFFER_BYTES)

    @property
    def block_rows(self):
        return self._groups

    @cached_property
    def fingerprint(self):
        stats = [os.stat(path) for path in self._paths]
        versions = tuple((s.st_size, s.st_mtime_ns) for s in stats)
        return tuple(self._paths), versions, tuple(self.columns or ())

    def _file_of(self, block: int) -> tuple[str, int]:
        """Path of a block, and its number in the file."""
        i = bisect_right(self._first_group, block) - 1
        return self._paths[i], block - self._first_group[i]

    def _place(self, block):
        path, group = self._file_of(block)
        return f"{path}, row group {group}"

    def _read(self, block, n_at_once):
        arrow, parquet = imported("pyarrow"), imported("pyarrow.parquet")
        path, group = self._file_of(block)
        with (
            naming_file(path),
            parquet.ParquetFile(
                path, buffer_size=_BUFFER_BYTES, pre_buffer=False
            ) as file,
        ):
            batches = file.iter_batches(
                n_at_once, row_groups=[group], columns=self.columns
            )
            while True:
                batch = next(batches, None)
                if batch is None:
                    return
                # The columns come in the order of the file.
                table = arrow.Table.from_batches([batch]).select(self.columns)
                if self._schema is not None:
                    fields = map(self._schema.field, self.columns or ())
                    table = table.cast(arrow.schema(list(fields)))
                yield table


class Dataset(RowSource):
    """A pyarrow dataset; the blocks are its fragments, or their row groups."""

    def __init__(self, dataset):
        super().__init__(_names_of(dataset.schema))
        self.name, self._dataset = "pyarrow.dataset", dataset

    @cached_property
    def _fragments(self) -> list:
        fragments: list = []
        for fragment in self._dataset.get_fragments():
            split = getattr(fragment, "split_by_row_group", None)
            fragments += [fragment] if split is None else split()
        return fragments

    @cached_property
    def block_rows(self):
        return [self._checked(i, self._length) for i in range(len(self._fragments))]

    def _length(self, block: int) -> int:
        fragment = self._fragments[block]
        groups = getattr(fragment, "row_groups", None)
        if groups is None:
            return fragment.count_rows()
        # For a row group, `count_rows` counts the rows of the file.
        return sum(group.num_rows for group in groups)

    def _place(self, block):
        return getattr(self._fragments[block], "path", f"{self.name}, block {block}")

    def _checked(self, block: int, function: Callable):
        with naming_file(self._place(block)):
            return function(block)

    def _read(self, block, n_at_once):
        arrow = imported("pyarrow")
        batches = self._fragments[block].to_batches(
            schema=self._dataset.schema,
            columns=self.columns,
            batch_size=n_at_once,
            batch_readahead=1,
            fragment_readahead=1,
        )
        while True:
            batch = self._checked(block, lambda _: next(batches, None))
            if batch is None:
                return
            yield arrow.Table.from_batches([batch])


class LazyTable(RowSource):
    """A polars LazyFrame.

    Read in order, it is collected in batches. For any other order it is written to a
    temporary Parquet file first, so that its plan runs once.
    """

    is_lazy = True

    def __init__(self, frame):
        super().__init__(list(frame.collect_schema().names()))
        self.name, self._frame = "polars.LazyFrame", frame
        self._stored: list[ParquetFiles] = []

    def _file(self) -> ParquetFiles:
        if not self._stored:
            folder = tempfile.mkdtemp(prefix="skbayesnn-")
            path = os.path.join(folder, "rows.parquet")
            try:
                self._frame.sink_parquet(path)
                self._stored.append(ParquetFiles(self.name, [path]))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            weakref.finalize(self._stored[0], shutil.rmtree, folder, ignore_errors=True)
        return self._stored[0]

    @property
    def block_rows(self):
        return self._file().block_rows

    def _bytes_open(self):
        return self._file()._bytes_open()

    def _read(self, block, n_at_once):
        yield from self._file().only(self.columns or [])._read(block, n_at_once)

    def in_order(self, n_at_once):
        """Collect batches in the order of the frame."""
        if self._stored or not hasattr(self._frame, "collect_batches"):
            yield from super().in_order(n_at_once)
            return
        frame, start = self._frame.select(self.columns), 0
        for batch in frame.collect_batches(chunk_size=n_at_once, maintain_order=True):
            for first in range(0, len(batch), n_at_once):
                part = batch[first : first + n_at_once]
                yield Rows(part, start, self.name)
                start += len(part)


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


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Name a file in the errors of pyarrow about it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:  # pyarrow's errors are of this class, or the next
        if error.errno is not None:
            raise
        raise ValueError(f"{path} cannot be read: {error}") from error
    except imported("pyarrow").ArrowException as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _names_of(schema) -> list[str]:
    """Names of the columns, without the index of a pandas frame."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    return [name for name in schema.names if name not in index]


def _kind(arrow_type) -> str:
    """Kind of values of a column; the number of bits does not count."""
    types = imported("pyarrow.types")
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if (
        types.is_integer(arrow_type)
        or types.is_floating(arrow_type)
        or types.is_decimal(arrow_type)
    ):
        return "number"
    if types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return "string"
    return str(arrow_type)


def _check_same_columns(path: str, first: str, found: dict, kinds: dict) -> None:
    """Raise if a file has other columns than the first, or other kinds of values."""
    missing = [name for name in kinds if name not in found]
    if missing:
        raise ValueError(
            f"{path} must have the columns of {first}; it lacks "
            f"{', '.join(map(repr, missing))}."
        )
    for name, kind in kinds.items():
        # A column without any value has no kind.
        if found[name] != kind and "null" not in (found[name], kind):
            raise ValueError(
                f"column {name!r} must contain the same kind of values in all files; "
                f"it is {kind} in {first}, and {found[name]} in {path}."
            )


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
            while (value := future.result()) is not nothing:
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
    if isinstance(X, str | os.PathLike) or _is_list_of_paths(X):
        return _parquet_files(X)
    if isinstance(X, np.memmap):
        return _if_large(SlicedSource.of_array(X)) if X.ndim > 1 else None
    names = {(cls.__module__.split(".")[0], cls.__name__) for cls in type(X).__mro__}
    for key, build in _KINDS.items():
        if key in names:
            return build(X)
    return None


def _if_large(source: RowSource) -> RowSource | None:
    return None if source.is_small else source


_KINDS: dict[tuple[str, str], Callable[[Any], RowSource | None]] = {
    ("h5py", "Dataset"): SlicedSource.of_array,
    ("zarr", "Array"): SlicedSource.of_array,
    ("pyarrow", "Table"): lambda table: _if_large(SlicedSource.of_table(table)),
    ("pyarrow", "Dataset"): Dataset,
    ("polars", "LazyFrame"): LazyTable,
    ("dask", "Array"): Partitions.of_array,
    ("dask", "DataFrame"): Partitions.of_frame,
}


def is_lazy(X) -> bool:
    """Whether X is a collection of Dask, whose results are computed on demand."""
    return type(X).__module__.split(".")[0] == "dask" and hasattr(X, "dask")


def _is_list_of_paths(X) -> bool:
    """Whether X lists files; other lists of strings are rows of text."""
    return (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(
            isinstance(path, os.PathLike)
            or (isinstance(path, str) and path.endswith((".parquet", ".pq")))
            for path in X
        )
    )


def _parquet_files(X) -> ParquetFiles:
    """The Parquet files of a path, a pattern, a folder, or a list of these."""
    items = list(X) if isinstance(X, list | tuple) else [X]
    paths: list[str] = []
    for item in map(os.fspath, items):
        if Path(item).is_dir():
            found = sorted(str(path) for path in Path(item).rglob("*.parquet"))
        elif Path(item).exists():
            found = [item]
        else:
            found = sorted(glob(item, recursive=True))
        if not found:
            raise FileNotFoundError(f"no Parquet file matches {item!r}.")
        paths += found
    text = [p for p in paths if Path(p).suffix in (".csv", ".tsv", ".txt", ".json")]
    if text:
        raise ValueError(
            f"a path must be of Parquet files; got {text[0]!r}. Read text with "
            "polars.scan_csv or pyarrow.dataset.dataset, and give the result."
        )
    name = str(items[0]) if len(items) == 1 else f"{items[0]} and {len(items) - 1} more"
    return ParquetFiles(name, paths)
