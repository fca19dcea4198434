"""Predictions for the rows of a source, block by block, into memory or into a file."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import sklearn

from skbayesnn._data.columns import is_frame
from skbayesnn._data.files import PARQUET_ENDINGS, is_read
from skbayesnn._data.sources import (
    RowSource,
    concatenated,
    in_memory,
    read_ahead,
    resolved_columns,
    source_of,
    split_columns,
    working_memory,
)
from skbayesnn._runtime import default_settings, imported, replaced, required, snapshot
from skbayesnn._validation import numpy_random_state

P = ParamSpec("P")
R = TypeVar("R")

# Share of the working memory for the values of X of a block, and for the draws.
_SHARE_OF_ROWS, _SHARE_OF_DRAWS = 1 / 64, 1 / 8
# Most rows of a block.
_MAX_ROWS = 1 << 16
# Metadata of the files of results.
_MARK = {b"skbayesnn": b"results"}


class BlockSeed(NamedTuple):
    """Random state of the samples of one block of rows.

    The posterior draws are the same for all blocks; the observation noise is not.
    """

    seed: int
    block: int


def generators(random_state) -> tuple[np.random.Generator, np.random.Generator]:
    """Random numbers that select draws, and of the observation noise.

    random_state : scikit-learn's random_state, or a ``BlockSeed``
    """
    if isinstance(random_state, BlockSeed):
        draws, noise = np.random.default_rng(random_state.seed).spawn(2)
        if random_state.block:
            noise = np.random.default_rng([*random_state])
        return draws, noise
    draws, noise = np.random.default_rng(seed_from(random_state)).spawn(2)
    return draws, noise


def seed_from(random_state):
    """Convert scikit-learn's random_state to a seed for NumPy's generators."""
    if random_state is None:
        return None
    state = numpy_random_state(random_state)
    if isinstance(random_state, int | np.integer):
        return random_state
    return state.randint(2**31)


def refuse_unknown(method: Callable, given: Iterable[str]) -> None:
    """Raise an error that names the parameters of a prediction, and the way out."""
    parameters = list(signature(method).parameters)
    if unknown := [name for name in given if name not in parameters]:
        way = " For bounds with 90 % of y between them give coverage=0.9."
        raise TypeError(
            f"`{method.__name__}` takes {', '.join(parameters[1:])}; got "
            f"{', '.join(unknown)}.{way * ('coverage' in parameters)}"
        )


def names_parameters(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method, so that its error about unknown parameters helps."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            refuse_unknown(method, kwargs)
        return method(*args, **kwargs)

    return call


def by_blocks(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a prediction, so that X may be a source of rows.

    The method or function takes a model and X first. Its ``output`` is a path of a
    Parquet file for the results; otherwise they are returned as for an array.
    """
    arguments_of = signature(method)
    parameters = arguments_of.parameters.keys()

    @wraps(method)
    def predict(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.keys() - parameters:
            refuse_unknown(method, kwargs)
        output: Any = kwargs.pop("output", None)
        if len(args) < 2 and "X" not in kwargs:
            return method(*args, **kwargs)  # Python's error
        X = kwargs["X"] if "X" in kwargs else args[1]
        if output is None and type(X) is np.ndarray:
            return method(*args, **kwargs)
        if output is not None:
            _check_output(output, X)
        source = source_of(X)
        bound = arguments_of.bind(*args, **kwargs)
        arguments = bound.arguments
        if source is None:
            if isinstance(y := arguments.get("y"), str):
                X, y = _named_target(next(iter(arguments.values())), X, y)
                arguments.update(X=X, y=y)
            if output is None:
                return method(*bound.args, **bound.kwargs)
            source = in_memory(X)
        arguments.pop("X")
        model, *_ = (arguments.pop(name) for name in list(arguments)[:1])
        call = _Call(predict, snapshot(model), arguments)
        return default_settings(call.of_source)(source, output)

    return predict


def _named_target(model, X, y: str):
    """The features of a frame as in ``fit``, and the values of its column y."""
    import narwhals.stable.v2 as narwhals

    X, y = resolved_columns(X, y)
    frame = narwhals.from_native(X, eager_only=True)
    inputs = getattr(model, "feature_names_in_", None)
    if inputs is not None and set(inputs) <= set(frame.columns):
        X = frame.select(*inputs).to_native()
    return X, y


class _Call:
    """A call of a prediction, for any rows.

    Parameters
    ----------
    method : callable
        Decorated with ``by_blocks``; takes the model, X, and other arguments.
    model : fitted estimator
    arguments : dict
        The other arguments by name.
    """

    def __init__(self, method: Any, model, arguments: dict):
        self._method, self._model, self._arguments = method, model, arguments
        if "random_state" in signature(method).parameters:
            seed = seed_from(arguments.get("random_state", 0))
            if seed is None:
                seed = int(np.random.SeedSequence().generate_state(1)[0])
            self._seed = int(seed)
        self.needs_y = "y" in arguments

    def of_source(self, source: RowSource, output) -> Any:
        """Results for all rows; None if they are written to a file."""
        results = self._results(source)
        if output is None:
            parts = list(results)
            if not parts:
                raise ValueError(f"{source.name} must have at least one row; got none.")
            return _joined(parts)
        _write(output, (self.columns_of(result) for result in results))
        return None

    def _results(self, source: RowSource) -> Iterator[Any]:
        """Results of the blocks of a source."""
        y: Any = self._arguments.get("y")
        names = [y] if isinstance(y, str) else []
        if source.columns is not None:
            inputs = getattr(self._model, "feature_names_in_", None)
            if inputs is None:
                inputs = [name for name in source.columns if name not in names]
            source = source.only([*inputs, *names])
        elif names:
            source.only(names)  # raises
        budget = working_memory()
        n_at_once = int(budget * _SHARE_OF_ROWS / (8 * max(1, source.n_columns)))
        n_at_once = min(max(1, n_at_once), _MAX_ROWS)
        with sklearn.config_context(working_memory=budget * _SHARE_OF_DRAWS / 2**20):
            for i, rows in enumerate(read_ahead(source.in_order(n_at_once))):
                table, values = rows.table, y
                if names:
                    table, [values] = split_columns(table, names)
                elif self.needs_y:
                    values = np.asarray(y[rows.start : rows.start + len(table)])
                try:
                    yield self.of_rows(table, i, values)
                except (TypeError, ValueError) as error:
                    kind = TypeError if isinstance(error, TypeError) else ValueError
                    raise kind(f"in {rows.place}: {error}") from error

    def of_rows(self, table, block: int, y=None):
        """Result for rows in memory."""
        arguments = dict(self._arguments)
        if self.needs_y:
            arguments["y"] = y
        if hasattr(self, "_seed"):
            arguments["random_state"] = BlockSeed(self._seed, block)
        return self._method.__wrapped__(self._model, table, **arguments)

    def columns_of(self, result) -> dict[str, np.ndarray]:
        """Results of some rows as named columns."""
        if isinstance(result, dict):
            parts = result
        elif isinstance(result, tuple):
            spread = "cov" if self._arguments.get("return_cov") else "std"
            parts = dict(zip(("mean", spread), result, strict=True))
        elif is_frame(result):
            return {str(name): result[name].to_numpy() for name in result.columns}
        else:
            name = self._method.__name__.removeprefix("predict_")
            parts = {"prediction" if name == "predict" else name: result}
        columns = {}
        for name, values in parts.items():
            labels = self._labels(values)
            for place in np.ndindex(values.shape[1:]):
                suffix = [str(labels[axis][i]) for axis, i in enumerate(place)]
                columns["_".join([name, *suffix])] = values[:, *place]
        return columns

    def _labels(self, values: np.ndarray) -> list[Sequence]:
        """Labels along the axes after the rows."""
        labels: list[Sequence] = [range(n) for n in values.shape[1:]]
        name, arguments = self._method.__name__, self._arguments
        if name == "predict_interval":
            labels[-1] = ("lower", "upper")
            if np.ndim(coverage := arguments.get("coverage", 0.9)):
                labels[-2] = list(coverage)
        elif name == "predict_quantile" and np.ndim(arguments["q"]):
            labels[-1] = list(arguments["q"])
        elif name.endswith("proba"):
            labels[-1] = self._model.classes_
        return labels


def _joined(parts: list):
    """Concatenate the results of blocks."""
    first = parts[0]
    if isinstance(first, dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(map(np.concatenate, zip(*parts, strict=True)))
    return concatenated(parts)


def _check_output(output, X) -> None:
    """Raise if results cannot be written, or would replace rows that somebody needs."""
    user = "`output` writes a Parquet file with"
    parquet = required("pyarrow.parquet", user, "pip install pyarrow")
    path = Path(os.fspath(output))
    if not path.name.endswith(PARQUET_ENDINGS):
        raise ValueError(
            "`output` must be a Parquet file, whose name ends in "
            f"{', '.join(PARQUET_ENDINGS)}; got {str(path)!r}. Convert the result for "
            "another format."
        )
    if is_read(path, X):
        raise ValueError(
            f"`output` must not be one of the files that are read, or in their folder; "
            f"got {str(path)!r}. Give another folder."
        )
    if not path.exists() or not path.stat().st_size:
        return
    try:
        metadata = parquet.read_metadata(path).metadata or {}
    except (OSError, imported("pyarrow").ArrowException):
        metadata = {}
    if not _MARK.items() <= metadata.items():
        raise FileExistsError(
            "`output` must be a new file, or one that `output` has written, which is "
            f"replaced; got {str(path)!r}, which has other content. Give another name, "
            "or remove the file."
        )


def _write(output, blocks: Iterator[dict[str, np.ndarray]]) -> None:
    """Write columns to a Parquet file, which appears when it is complete.

    Raises
    ------
    OSError
        If the file cannot be written, for instance because the disk is full.
    """
    arrow, parquet = imported("pyarrow"), imported("pyarrow.parquet")
    path, writer = Path(output), None
    with replaced(path) as part:
        try:
            for columns in blocks:
                table = arrow.table(columns, metadata=_MARK)
                try:
                    writer = writer or parquet.ParquetWriter(part, table.schema)
                    writer.write_table(table)
                except OSError as error:
                    raise OSError(
                        f"{path} could not be written, and does not exist or is "
                        f"unchanged: {error}"
                    ) from error
            if writer is None:
                raise ValueError("`X` must have at least one row; got none.")
            writer.close()
        finally:
            with suppress(OSError):
                if writer is not None and writer.is_open:
                    writer.close()
