"""Columns of a frame as inputs of a graph, and their features: a ``TableEncoder``."""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from skbayesnn._data.column_encoding import (
    N_SUBSTITUTES,
    Column,
    level_index,
    number_features,
    order_of_substitutes,
)
from skbayesnn._data.columns import KINDS, Categories
from skbayesnn._data.level_counts import LevelCounts
from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._data.validation import table_of
from skbayesnn._onnx.graph import Graph, Tensor, concatenated
from skbayesnn._onnx.parts import parts_with_same_X

# A missing date, NumPy's NaT.
_NOT_A_TIME = np.iinfo(np.int64).min


def tables_of(model) -> Iterator[TableEncoder]:
    """Encoders of the rows that a model takes; none if it takes numbers."""
    table = model if isinstance(model, TableEncoder) else table_of(model)
    if table is not None:
        yield table
        return
    for part in parts_with_same_X(model):
        yield from tables_of(part)


def input_columns(tables: Sequence[TableEncoder]) -> dict[str, Column]:
    """Columns with a separate input, by its name; none for an array of numbers.

    Columns that ``fit`` dropped have none.

    Raises
    ------
    TypeError
        If a column cannot be an input; the message names it.
    """
    used = [column for table in tables for column in table._columns if column.suffixes]
    if all(_is_numeric(c) and not isinstance(c.name, str) for c in used):
        return {}
    columns: dict[str, Column] = {}
    for column in used:
        other = columns.setdefault(_input_name(column), column)
        if KINDS[column.kind].input_type != KINDS[other.kind].input_type:
            raise TypeError(
                "`to_onnx` needs a column to be of one kind in all estimators of a "
                f"stack; got {other.kind} and {column.kind} for column {column.name!r}."
            )
        if "" in (*column.levels, *column.rare):
            raise TypeError(
                "a graph takes the empty string for a missing category, but it is a "
                f"level of column {column.name!r}. Replace it before fit."
            )
    return columns


def add_inputs(graph: Graph, columns: dict[str, Column]) -> dict[str, Tensor]:
    """Add an input of shape (rows, 1) for each column."""
    return {
        name: graph.input(name, KINDS[column.kind].input_type, ["n_samples", 1])
        for name, column in columns.items()
    }


def description(columns: dict[str, Column]) -> dict[str, dict]:
    """Kind of every input; unit of dates and durations, and time zone of dates."""
    return {
        name: {"kind": column.kind}
        | ({"unit": unit} if (unit := KINDS[column.kind].unit) else {})
        | ({"time_zone": column.time_zone} if KINDS[column.kind].is_date else {})
        for name, column in columns.items()
    }


class Versions(NamedTuple):
    """Positions of the versions of each row, as in ``EncodedRows.versions``.

    Parameters
    ----------
    first : Tensor (rows,), int64
        Position of the first version.
    number : Tensor (rows,), int64
        Number of versions.
    """

    first: Tensor
    number: Tensor


class _Features(NamedTuple):
    """Features of a column, or a count, for all rows.

    Parameters
    ----------
    values : Tensor (rows, features), float64
    is_unknown : Tensor (rows, 1), bool; None if no value can be unknown
    spreads : Tensor (rows, features), optional
        Factor of the substitutes, if they are added to the values.
    """

    values: Tensor
    is_unknown: Tensor | None = None
    spreads: Tensor | None = None


def encoded_table(encoder: TableEncoder, inputs: dict[str, Tensor]) -> Tensor:
    """Features of the rows, (rows, features), float64; typical ones of unknown values.

    inputs : tensors (rows, 1) of the columns, or one tensor with all columns
    """
    return concatenated([block.values for block in _blocks(encoder, inputs)], 1)


def encoded_versions(
    encoder: TableEncoder, inputs: dict[str, Tensor]
) -> tuple[Tensor, Versions | None]:
    """Features of all versions of the rows, (versions, features), and their positions.

    None if no value can be unknown: each row has one version.
    """
    blocks = _blocks(encoder, inputs)
    masks = [block.is_unknown for block in blocks if block.is_unknown is not None]
    if not masks:
        return concatenated([block.values for block in blocks], 1), None
    is_unknown = reduce(lambda a, b: a.op("Or", b), masks)
    number = is_unknown.op("Where", np.array(N_SUBSTITUTES), np.array(1))
    exists = number.op("Greater", np.arange(N_SUBSTITUTES))
    places = exists.op("NonZero")
    row, version = (places.take(np.array(i), axis=0) for i in range(2))
    features, start = [], 0
    columns = [column for column in encoder._columns if column.suffixes]
    for block, column in zip_longest(blocks, columns):
        values = block.values.op("Gather", row)
        if block.is_unknown is not None:
            order = order_of_substitutes(start)
            substitutes = row.graph.op("Gather", column.substitutes[order], version)
            if block.spreads is None:
                mask = block.is_unknown.op("Gather", row)
                values = mask.op("Where", substitutes, values)
            else:
                values = values + block.spreads.op("Gather", row) * substitutes
        features.append(values)
        start += 0 if column is None else len(column.suffixes)
    number = number.op("Squeeze", np.array([1]))
    first = number.op("CumSum", np.array(0), exclusive=1)
    return concatenated(features, 1), Versions(first, number)


def _blocks(encoder: TableEncoder, inputs: dict[str, Tensor]) -> list[_Features]:
    """Features of the columns, and then of the counts."""
    columns = [
        _features(column, _input_of(column, j, inputs))
        for j, column in enumerate(encoder._columns)
        if column.suffixes
    ]
    counts = [
        _Features(_row_counts(counts, encoder._columns, inputs))
        for counts in encoder.level_counts
    ]
    return columns + counts


def _is_numeric(column: Column) -> bool:
    return KINDS[column.kind].input_type is np.float64


def _input_name(column: Column) -> str:
    """Name of a column; columns of an array are named as features."""
    return column.name if isinstance(column.name, str) else f"x{column.name}"


def _input_of(column: Column, j: int, inputs: dict[str, Tensor]) -> Tensor:
    """Values of a column, (rows, 1)."""
    name = _input_name(column)
    if name in inputs:
        return inputs[name]
    if len(inputs) == 1 and _is_numeric(column):
        [x] = inputs.values()
        return x.take(np.array([j]), axis=1)
    raise TypeError(
        f"`initial_types` must have an input {name!r}, of column {column.name!r} "
        f"({column.kind}); got {', '.join(inputs)}. Leave `initial_types` out."
    )


def _features(column: Column, x: Tensor) -> _Features:
    """Features of a column."""
    if column.is_category:
        return _level_features(column, x)
    input_type = KINDS[column.kind].input_type
    if input_type is np.object_:
        positions = {level: i for i, level in enumerate(column.levels)}
        index = _looked_up(x, positions, -1).cast(np.float64)
        x = index.op("Less", 0.0).where(np.nan, index)
    elif input_type is np.int64:
        missing = x.op("Equal", np.array(_NOT_A_TIME))
        x = missing.where(np.nan, x.cast(np.float64) / 1e6)
    else:
        x = x.cast(np.float64)  # also single precision in `initial_types`
    values = concatenated(number_features(x, column), 1)
    return _Features(values, None if column.indicator else x.isnan())


def _level_features(column: Column, x: Tensor) -> _Features:
    """Features of the level of each row."""
    n_levels, graph = len(column.levels), x.graph
    levels = _level_rows(column)
    if column.uses_y:
        index = _looked_up(x, levels, n_levels).op("Squeeze", np.array([1]))
        values = graph.op("Gather", column.level_features, index)
        is_unknown = column.spreads.any(axis=1, keepdims=True)
        return _Features(
            values,
            graph.op("Gather", is_unknown, index) if is_unknown.any() else None,
            graph.op("Gather", column.spreads, index),
        )
    # Rare levels have the features of an unseen one, but are known.
    known = levels | dict.fromkeys(column.rare, n_levels)
    if not column.indicator:
        del known[""]
    index = _looked_up(x, known, -1)
    values = graph.op(
        "Gather", column.level_features, index.op("Squeeze", np.array([1]))
    )
    return _Features(values, index.op("Less", np.array(0)))


def _level_rows(column: Column) -> dict[str, int]:
    """Index of a missing value, and of each level."""
    every = Categories(np.arange(-1, len(column.levels)), column.levels)
    index = level_index(column, every).tolist()
    return dict(zip(("", *column.levels), index, strict=True))


def _row_counts(
    counts: LevelCounts, columns: Sequence[Column], inputs: dict[str, Tensor]
) -> Tensor:
    """Feature of the number of rows with the same levels, (rows, 1)."""
    index, is_seen = [], None
    for j in counts.columns:
        column = columns[j]
        of_rows = _looked_up(
            _input_of(column, j, inputs), _level_rows(column), len(column.levels)
        )
        is_level = of_rows.op("Less", np.array(len(column.levels)))
        is_seen = is_level if is_seen is None else is_seen.op("And", is_level)
        index.append(of_rows)
    key = index[0]
    for j, of_rows in zip(counts.columns[1:], index[1:], strict=True):
        key = key * np.array(len(columns[j].levels)) + of_rows
    n_rows = key.op(
        "LabelEncoder",
        domain="ai.onnx.ml",
        keys_int64s=counts.keys.tolist(),
        values_floats=counts.counts.tolist(),
        default_float=0.0,
    ).cast(np.float64)
    n_rows = key.graph.op("Where", is_seen, n_rows, np.array(0.0))
    return (n_rows + np.array(1.0)).op("Log")


def _looked_up(x: Tensor, values: dict[str, int], default: int) -> Tensor:
    """Integer of each string."""
    return x.op(
        "LabelEncoder",
        domain="ai.onnx.ml",
        keys_strings=list(values),
        values_int64s=list(values.values()),
        default_int64=default,
    )
