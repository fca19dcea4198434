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
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from fnmatch import fnmatch
from functools import cached_property
from glob import escape, glob
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import sklearn

from skbayesnn._data.class_order import OrderedLabels, if_ordered
from skbayesnn._data.columns import is_frame
from skbayesnn._runtime import imported

# Endings of the names of Parquet files in folders.
PARQUET_ENDINGS = (".parquet", ".pq", ".parq")
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
            in_path = any(f"{name}=" in self.name for name in missing)
            raise ValueError(
                f"{self.name} must have the columns {', '.join(map(repr, missing))}; "
                f"it has {', '.join(map(repr, self.columns[:20]))}"
                f"{', ...' * (len(self.columns) > 20)}."
                + " Columns in names of folders are read below the folder that is "
                "given: give the folder above, or a pattern." * in_path
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
            try:
                rows = self._take(start, min(start + n_at_once, stop))
            except (OSError, RuntimeError) as error:  # of a damaged chunk
                raise ValueError(
                    f"{self.name} cannot be read from row {start} on: {error}"
                ) from error
            yield rows if self.columns is None else selected_columns(rows, self.columns)

    @classmethod
    def of_array(cls, array) -> "SlicedSource":
        """A ``numpy.memmap``, or a dataset of HDF5 or Zarr."""
        if not getattr(array, "id", True):
            raise ValueError("the file of an HDF5 dataset must be open; it was closed.")
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
    """Parquet files; the blocks are their row groups.

    Columns in the names of folders, such as ``region=1``, are the last ones.

    Parameters
    ----------
    name : str
    fragments : iterable of pyarrow.dataset.ParquetFileFragment
        The files, and the values of the columns in the names of their folders.
    schema : pyarrow.Schema
        Columns of the first file, or of a dataset of pyarrow.
    is_dataset : bool
        Whether the schema sets the types, and columns that a file lacks are missing
        values. Otherwise all files must have the columns of the first one.

    Raises
    ------
    ValueError
        If a file cannot be read, or lacks a column of the first, or has another kind of
        values in it.
    """

    def __init__(self, name: str, fragments: Iterable, schema, is_dataset: bool):
        super().__init__(_names_of(schema))
        keys_of = imported("pyarrow.dataset").get_partition_keys
        self.name, self._schema = name, schema
        self._files: list[_File] = []
        # The file of each block, the row group in it, and its number of rows.
        self._groups: list[tuple[int, int]] = []
        self._sizes: list[int] = []
        for fragment in fragments:
            path, filesystem = fragment.path, fragment.filesystem
            keys = keys_of(fragment.partition_expression)
            with naming_file(path):
                version = _version(filesystem, path)
                groups, found = fragment.row_groups, fragment.physical_schema
            if not is_dataset:
                first = self._files[0].path if self._files else path
                self._schema = _merged(self._schema, first, found, path, keys)
            self._groups += [(len(self._files), group.id) for group in groups]
            self._sizes += [group.num_rows for group in groups]
            self._files.append(_File(path, filesystem, keys, version))

    def _bytes_open(self):
        of_column = min(_PAGE_BYTES, 16 * max(self._sizes))
        return len(self.columns or ()) * (of_column + _BUFFER_BYTES)

    @property
    def block_rows(self):
        return self._sizes

    @cached_property
    def fingerprint(self):
        files = tuple((file.path, file.version) for file in self._files)
        return files, tuple(self.columns or ())

    def _place(self, block):
        i, group = self._groups[block]
        return f"{self._files[i].path}, row group {group}"

    def _read(self, block, n_at_once):
        arrow, parquet = imported("pyarrow"), imported("pyarrow.parquet")
        i, group = self._groups[block]
        file, names = self._files[i], self.columns or []
        schema = arrow.schema([self._schema.field(name) for name in names])
        # Of the columns that the file lacks.
        of_file = {
            field.name: arrow.array([file.keys.get(field.name)], field.type)
            for field in schema
        }
        with (
            naming_file(file.path),
            parquet.ParquetFile(
                file.path,
                filesystem=file.filesystem,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            ) as opened,
        ):
            if _version(file.filesystem, file.path) != file.version:
                raise ValueError(
                    f"{file.path} must not change while its rows are used; it was "
                    "replaced or written meanwhile. Call again when it is complete."
                )
            stored = {*opened.schema_arrow.names}.intersection(names)
            for batch in opened.iter_batches(
                n_at_once, row_groups=[group], columns=[*stored]
            ):
                first = arrow.repeat(0, len(batch))
                columns = [
                    batch.column(name) if name in stored else of_file[name].take(first)
                    for name in names
                ]
                yield arrow.Table.from_arrays(columns, names).cast(schema)


class _File(NamedTuple):
    """A Parquet file.

    Parameters
    ----------
    path : str
    filesystem : pyarrow.fs.FileSystem
    keys : dict
        Values of the columns in the names of its folders.
    version : tuple
        Size and time of the last change.
    """

    path: str
    filesystem: Any
    keys: dict
    version: tuple


def _version(filesystem, path: str) -> tuple:
    """Size and time of the last change of a file."""
    info = filesystem.get_file_info(path)
    return info.size, info.mtime_ns


class Dataset(RowSource):
    """A pyarrow dataset of other files or of tables; the blocks are its fragments."""

    def __init__(self, dataset, fragments: list):
        super().__init__(_names_of(dataset.schema))
        self.name, self._schema = "pyarrow.dataset", dataset.schema
        self._fragments = fragments

    @cached_property
    def block_rows(self):
        rows = []
        for block, fragment in enumerate(self._fragments):
            with naming_file(self._place(block)):
                rows.append(fragment.count_rows())
        return rows

    def _place(self, block):
        return getattr(self._fragments[block], "path", f"{self.name}, block {block}")

    def _read(self, block, n_at_once):
        arrow = imported("pyarrow")
        with naming_file(self._place(block)):
            for batch in self._fragments[block].to_batches(
                schema=self._schema,
                columns=self.columns,
                batch_size=n_at_once,
                batch_readahead=1,
                fragment_readahead=1,
            ):
                yield arrow.Table.from_batches([batch])


def _of_dataset(dataset) -> RowSource:
    """The source of a pyarrow dataset."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:  # of a dataset after `filter`
        raise ValueError(
            "a pyarrow.dataset must not be filtered, since a fit reads its files in "
            "parts. If its rows fit into memory, give dataset.to_table(); else "
            "filter with polars: polars.scan_parquet(path).filter(...)."
        ) from error
    if fragments and all(hasattr(fragment, "row_groups") for fragment in fragments):
        return ParquetFiles("pyarrow.dataset", fragments, dataset.schema, True)
    return Dataset(dataset, fragments)


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
                self._stored.append(files_as_source(self.name, [path], folder))
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


def _merged(schema, first: str, found, path: str, keys: dict):
    """The schema of all files, with types that contain the values of a further file.

    first : path of the first file, which has the columns of the schema
    found : schema of the further file
    keys : columns in the names of its folders
    """
    names = {*found.names, *keys}
    if len({*found.names}) < len(found.names):
        twice = [name for name in names if found.names.count(name) > 1]
        raise ValueError(
            f"{path} must have columns with different names; it has several columns "
            f"{min(twice)!r}. Rename them."
        )
    if missing := [name for name in schema.names if name not in names]:
        raise ValueError(
            f"{path} must have the columns of the other files; it lacks "
            f"{', '.join(map(repr, missing))}."
        )
    for i, field in enumerate(schema):
        if field.name not in found.names:  # but in the names of folders
            continue
        other = found.field(field.name).type
        if other != field.type:
            kind = _common_type(field.type, other)
            if kind is None:
                raise ValueError(
                    f"column {field.name!r} must contain the same kind of values in "
                    f"all files; it is {field.type} in {first}, and {other} in {path}."
                )
            schema = schema.set(i, field.with_type(kind))
    return schema


def _common_type(*kinds):
    """Type of pyarrow that contains the values of two types; None if none does.

    Categories and text are both text, unless the categories are the same.
    """
    arrow, types = imported("pyarrow"), imported("pyarrow.types")

    def as_values(kind):
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return arrow.large_string() if types.is_string_view(kind) else kind

    for pair in (kinds, map(as_values, kinds)):
        schemas = [arrow.schema([("", kind)]) for kind in pair]
        with suppress(arrow.ArrowException):
            unified = arrow.unify_schemas(schemas, promote_options="permissive")
            return unified.field(0).type
    return None


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
    ("pyarrow", "Dataset"): _of_dataset,
    ("polars", "LazyFrame"): LazyTable,
    ("dask", "Array"): Partitions.of_array,
    ("dask", "DataFrame"): Partitions.of_frame,
}


def _is_list_of_paths(X) -> bool:
    """Whether X lists files; other lists of strings are rows of text."""
    return (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(
            isinstance(path, os.PathLike)
            or (isinstance(path, str) and path.endswith(PARQUET_ENDINGS))
            for path in X
        )
    )


def _parquet_files(X) -> ParquetFiles:
    """The Parquet files of a path, a pattern, a folder, or a list of these.

    Every file counts once, also if links lead to it.
    """
    items = [os.fspath(item) for item in (X if isinstance(X, list | tuple) else [X])]
    paths: list[str] = []
    bases, real_paths = [], set[str]()
    for item in items:
        base, found = _files_of(item)
        by_real_path: dict[str, str] = {}
        for path in found:
            by_real_path.setdefault(os.path.realpath(path), path)
        if twice := real_paths & by_real_path.keys():
            raise ValueError(
                f"a list of paths must contain a file once; got {min(twice)!r} again. "
                "For a larger weight of its rows, give `sample_weight`."
            )
        real_paths |= by_real_path.keys()
        paths += by_real_path.values()
        bases.append(os.path.abspath(base))
    name = items[0] if len(items) == 1 else f"{items[0]} and {len(items) - 1} more"
    return files_as_source(name, paths, os.path.commonpath(bases))


def files_as_source(name: str, paths: Sequence[str], base: str) -> ParquetFiles:
    """A source of Parquet files.

    base : folder; the names of folders below it contain columns
    """
    try:
        datasets = imported("pyarrow.dataset")
    except ImportError as error:
        raise ImportError(
            "Parquet files are read by pyarrow, which is not installed; install it "
            "with `pip install pyarrow`."
        ) from error
    for path in paths:
        if Path(path).suffix in (".csv", ".tsv", ".txt", ".json"):
            raise ValueError(
                f"a path must be of Parquet files; got {path!r}. Read text with "
                "polars.scan_csv or pyarrow.dataset.dataset, and give the result."
            )
        if not os.path.isfile(path):
            raise ValueError(
                f"a path must be of a file; {path!r} is a broken link, a named pipe or "
                "a device."
            )
    factory = datasets.FileSystemDatasetFactory(
        imported("pyarrow.fs").LocalFileSystem(),
        [os.path.abspath(path) for path in paths],
        datasets.ParquetFileFormat(),
        datasets.FileSystemFactoryOptions(
            partition_base_dir=base, partitioning=datasets.HivePartitioning.discover()
        ),
    )
    with naming_file(paths[0]):
        schema, of_folders = factory.inspect_schemas()
    # Some writers also store these columns in the files.
    for field in of_folders:
        if field.name not in schema.names:
            schema = schema.append(field)
    # New fragments, since a dataset keeps what its fragments read of their files.
    fragments = (
        f.format.make_fragment(f.path, f.filesystem, f.partition_expression)
        for f in factory.finish(schema).get_fragments()
    )
    return ParquetFiles(name, fragments, schema, False)


def _files_of(item: str) -> tuple[str, list[str]]:
    """Files of a path, a pattern or a folder, and the folder to which it refers."""
    if os.path.isdir(item):
        base, paths = item, _files_below(item)
    elif os.path.exists(item):
        return os.path.dirname(item), [item]
    else:
        parts = Path(item).parts
        fixed = takewhile(lambda part: escape(part) == part, parts[:-1])
        base, paths = os.path.join(*fixed, ""), []
        for match in glob(item, recursive=True):
            paths += _files_below(match) if os.path.isdir(match) else [match]
        paths = [
            path
            for path in paths
            if not any(map(_is_skipped, Path(path).relative_to(base).parts))
        ]
    if os.path.isdir(os.path.join(base, "_delta_log")):
        raise ValueError(
            f"a folder must not be a Delta table, since some files may not be valid "
            f"any more; got {base!r}. Give "
            "deltalake.DeltaTable(path).to_pyarrow_dataset()."
        )
    if not paths:
        raise FileNotFoundError(
            f"no Parquet file matches {item!r}. Names that begin with '_' or '.' are "
            "skipped."
        )
    return base, sorted(paths)


def _files_below(folder: str) -> list[str]:
    """Parquet files in a folder and its folders; enters a folder once."""
    paths, entered = [], {os.path.realpath(folder)}
    for parent, folders, names in os.walk(folder, followlinks=True):
        for name in list(folders):
            real = os.path.realpath(os.path.join(parent, name))
            if _is_skipped(name) or real in entered:
                folders.remove(name)
            entered.add(real)
        paths += [
            os.path.join(parent, name)
            for name in names
            if name.lower().endswith(PARQUET_ENDINGS) and not _is_skipped(name)
        ]
    return paths


def _is_skipped(name: str) -> bool:
    """Whether a file or folder is hidden or temporary, as pyarrow and Spark have it."""
    return name.startswith(("_", "."))


def is_read(path: str | os.PathLike, X) -> bool:
    """Whether a file is, or would be, among the files of a path, pattern or folder."""
    real = os.path.realpath(path)
    for item in X if isinstance(X, list | tuple) else [X]:
        if isinstance(item, str | os.PathLike):
            pattern = os.path.realpath(item)
            pattern = escape(pattern) + "/*" if os.path.isdir(item) else pattern
            if real == os.path.realpath(item) or fnmatch(real, pattern):
                return True
    return False
