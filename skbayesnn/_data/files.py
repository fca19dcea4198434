"""Parquet files of a path, a pattern, a folder or a list: which, and their columns."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from glob import escape, glob
from itertools import takewhile
from pathlib import Path
from typing import Any

from skbayesnn._runtime import imported, required

# Endings of the names of Parquet files in folders.
PARQUET_ENDINGS = (".parquet", ".pq", ".parq")
# Bytes that a reader of a Parquet file holds of each column: of the file, and at most
# of a page, its dictionary and their decoded values.
_BUFFER_BYTES, _PAGE_BYTES = 1 << 16, 3 << 20


@contextmanager
def named_in_errors(path: str) -> Iterator[None]:
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


# ---- content


class ParquetFile:
    """A Parquet file, and what is known of it before its rows are read.

    Parameters
    ----------
    fragment : pyarrow.dataset.ParquetFileFragment

    Attributes
    ----------
    path : str
    groups : list of tuple of int
        Number of each row group, and its number of rows.
    schema : pyarrow.Schema
    keys : dict
        Values of the columns in the names of its folders.
    version : tuple of int
        Size and time of the last change.
    """

    def __init__(self, fragment):
        self.path, self._filesystem = fragment.path, fragment.filesystem
        self.keys: dict[str, Any] = imported("pyarrow.dataset").get_partition_keys(
            fragment.partition_expression
        )
        with named_in_errors(self.path):
            self.version = self._present_version()
            self.groups = [(group.id, group.num_rows) for group in fragment.row_groups]
            self.schema = fragment.physical_schema

    def _present_version(self) -> tuple[int, int]:
        info = self._filesystem.get_file_info(self.path)
        return info.size, info.mtime_ns

    def read(
        self, group: int, schema, names: Sequence[str], n_at_once: int
    ) -> Iterator[Any]:
        """Tables of the rows of a row group, with the named columns of a schema.

        A scanner of pyarrow would decode the whole row group at once.
        """
        arrow, parquet = imported("pyarrow"), imported("pyarrow.parquet")
        schema = arrow.schema([schema.field(name) for name in names])
        # Of the columns that the file lacks.
        of_file = {
            field.name: arrow.array([self.keys.get(field.name)], field.type)
            for field in schema
        }
        with (
            named_in_errors(self.path),
            parquet.ParquetFile(
                self.path,
                filesystem=self._filesystem,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            ) as opened,
        ):
            if self._present_version() != self.version:
                raise ValueError(
                    f"{self.path} must not change while its rows are used; it was "
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


def bytes_of_reader(n_rows: int) -> int:
    """Bytes that a reader of a row group holds of each column."""
    return min(_PAGE_BYTES, 16 * n_rows) + _BUFFER_BYTES


def column_names(schema) -> list[str]:
    """Names of the columns, without the index of a pandas frame."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    return [name for name in schema.names if name not in index]


def common_schema(files: Sequence[ParquetFile], schema):
    """The schema of the first file, with types that contain the values of all files.

    Raises
    ------
    ValueError
        If a file lacks a column of the first, or has another kind of values in it.
    """
    for file in files:
        found, path = file.schema, file.path
        names = {*found.names, *file.keys}
        if len({*found.names}) < len(found.names):
            twice = [name for name in names if found.names.count(name) > 1]
            raise ValueError(
                f"{path} must have columns with different names; it has several "
                f"columns {min(twice)!r}. Rename them."
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
            if other == field.type:
                continue
            kind = _common_type(field.type, other)
            if kind is None:
                raise ValueError(
                    f"column {field.name!r} must contain the same kind of values in "
                    f"all files; it is {field.type} in {files[0].path}, and {other} "
                    f"in {path}."
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


def fragments_of(paths: Sequence[str], base: str) -> tuple[list, Any]:
    """Fragments of files, with the columns of their folders, and the first schema.

    base : folder; the names of folders below it contain columns
    """
    user = "Parquet files are read by"
    datasets = required("pyarrow.dataset", user, "pip install pyarrow")
    for path in paths:
        if Path(path).suffix in (".csv", ".tsv", ".txt", ".json"):
            raise ValueError(
                f"a path must name Parquet files; got {path!r}. Read text with "
                "polars.scan_csv or pyarrow.dataset.dataset, and give the result."
            )
    factory = datasets.FileSystemDatasetFactory(
        imported("pyarrow.fs").LocalFileSystem(),
        [os.path.abspath(path) for path in paths],
        datasets.ParquetFileFormat(),
        datasets.FileSystemFactoryOptions(
            partition_base_dir=base, partitioning=datasets.HivePartitioning.discover()
        ),
    )
    with named_in_errors(paths[0]):
        schema, of_folders = factory.inspect_schemas()
    # Some writers also store these columns in the files.
    for field in of_folders:
        if field.name not in schema.names:
            schema = schema.append(field)
    # New fragments, since a dataset keeps what its fragments read of their files.
    return [
        f.format.make_fragment(f.path, f.filesystem, f.partition_expression)
        for f in factory.finish(schema).get_fragments()
    ], schema


# ---- which files


def are_paths(X) -> bool:
    """Whether X is a path, or lists files; other lists of strings are rows of text."""
    if isinstance(X, str | os.PathLike):
        return True
    return (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(
            isinstance(path, os.PathLike)
            or (isinstance(path, str) and path.endswith(PARQUET_ENDINGS))
            for path in X
        )
    )


def found_files(X) -> tuple[str, list[str], str]:
    """Name, files and folder of a path, a pattern, a folder, or a list of these."""
    items = [os.fspath(item) for item in (X if isinstance(X, list | tuple) else [X])]
    bases, found = zip(*map(_files_of, items), strict=True)
    paths = [path for of_item in found for path in of_item]
    counts = Counter(map(os.path.realpath, paths))
    [(path, n)] = counts.most_common(1)
    if n > 1:
        raise ValueError(
            f"every file must be given once; got {path!r} {n} times, perhaps by links. "
            "For a larger weight of its rows, give `sample_weight`."
        )
    name = items[0] if len(items) == 1 else f"{items[0]} and {len(items) - 1} more"
    return name, paths, os.path.commonpath(map(os.path.abspath, bases))


def _files_of(item: str) -> tuple[str, list[str]]:
    """Files of a path, a pattern or a folder, and the folder to which it refers."""
    if os.path.exists(item) and not os.path.isdir(item):
        return os.path.dirname(item), [item]
    base, paths, matches = item, set[str](), [item]
    if not os.path.isdir(item):
        parts = Path(item).parts
        fixed = takewhile(lambda part: escape(part) == part, parts[:-1])
        base, matches = os.path.join(*fixed, ""), glob(item, recursive=True)
    for match in matches:
        paths.update(_files_below(match) if os.path.isdir(match) else [match])
    paths = {
        path
        for path in paths
        if not any(map(_is_skipped, Path(path).relative_to(base).parts))
    }
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
    """Parquet files in a folder and its folders."""
    return [
        path
        for path in glob(os.path.join(escape(folder), "**", "*"), recursive=True)
        if path.lower().endswith(PARQUET_ENDINGS) and not os.path.isdir(path)
    ]


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
