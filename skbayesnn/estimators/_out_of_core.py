"""Fit networks to the rows of a source, which need not fit into memory.

    survey   one pass over all rows: number and weight of the rows, classes, whether
             they are sorted by y; and a random sample of the rows
    job      from the sample: encoding of the columns, standardisation, held-out rows
    buffers  rows of blocks in random order, encoded, a part of the table at a time; a
             thread fills the next buffer while the networks train on the present one
    train    one training of the engine, whose epochs are buffers: learning rate, warm-
             ups and optimiser run over all passes

A pass over the table has several buffers of the same number of rows. The engine
shuffles the rows of a buffer.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.model_selection import GroupShuffleSplit

from skbayesnn import _validation
from skbayesnn._data.class_order import if_ordered, joined_labels
from skbayesnn._data.sources import (
    Rows,
    RowSource,
    concatenated,
    digest,
    read_ahead,
    selected_rows,
    split_columns,
    working_memory,
)
from skbayesnn._data.training_rows import BufferedRows
from skbayesnn._data.validation import (
    Table,
    check_classification,
    check_labels,
    check_numbers,
    check_regression,
    check_row_weights,
    refuse_one_class,
)
from skbayesnn._engine.config import Hook, TrainingConfig
from skbayesnn._engine.held_out_tau import Ensemble, HeldOutTauUpdater, draws_together
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.step import RowPerturbation
from skbayesnn._engine.training import Trained, initial_posterior, validation_draws
from skbayesnn._engine.training_random import (
    GOLDEN,
    MULTIPLIER_1,
    MULTIPLIER_2,
    SHIFT_1,
    SHIFT_2,
    SHIFT_3,
)
from skbayesnn._runtime import warn
from skbayesnn.estimators import _fit, _streaming
from skbayesnn.estimators._checkpoint import (
    Checkpoint,
    identity,
    is_continued,
    restored,
    seeded,
    settings_of,
    with_networks_of,
)
from skbayesnn.estimators._defaults import defaults_of, hidden_layer_sizes
from skbayesnn.estimators._job import TrainedJob, TrainingJob, training_job
from skbayesnn.estimators._selection import held_out_noise
from skbayesnn.estimators._training_data import training_data

# Most rows of the sample.
SAMPLE_ROWS = 100_000
# Shares of the working memory for the sample in double precision, for a buffer (there
# are two), for open blocks, and for rows that are encoded at once.
_SHARE_OF_SAMPLE, _SHARE_OF_BUFFER = 1 / 32, 1 / 8
_SHARE_OF_BLOCKS, _SHARE_AT_ONCE = 1 / 5, 1 / 64
# Smallest number of rows per class in the sample, if there are as many.
_ROWS_PER_CLASS = 20
# Most rows of the sample that are held out to estimate the observation noise, and their
# largest share.
_MAX_HELD_OUT, _SHARE_HELD_OUT = 5000, 0.1
# Rows that are standardised at once, in double precision.
_ROWS_IN_CACHE = 1024
# Parts of a buffer, which may come from different blocks.
_PARTS_OF_BUFFER = 8
# `max_iter="auto"`: most steps of a training, rounded up to a pass over all rows.
MAX_STEPS = 50_000
# The rows count as sorted if the means of y of parts of the table explain at least this
# share of the variance of y, and this many times as much as means of random rows.
_SORTED_SHARE, _SORTED_RATIO = 0.2, 10.0
# Posterior draws in the predictive distribution of held-out rows.
_N_DRAWS = 50


# ---- rows with their y, weights and groups


class Part(NamedTuple):
    """Rows of positive weight with their y.

    Parameters
    ----------
    X : frame or ndarray
    y : ndarray of shape (rows,) or (rows, targets)
    weights : ndarray of shape (rows,)
    groups : ndarray of shape (rows,), or None
    ids : ndarray of shape (rows,), int
        Positions in the source.
    place : str
    """

    X: Any
    y: np.ndarray
    weights: np.ndarray
    groups: np.ndarray | None
    ids: np.ndarray
    place: str

    def at(self, positions: np.ndarray) -> "Part":
        """Some of these rows."""
        groups = None if self.groups is None else self.groups[positions]
        return Part(
            selected_rows(self.X, positions),
            self.y[positions],
            self.weights[positions],
            groups,
            self.ids[positions],
            self.place,
        )


@contextmanager
def located(place: str) -> Iterator[None]:
    """Name the place of rows in errors about them."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"in {place}: {error}") from error


class TrainingSource:
    """A source with y, and optionally weights and groups.

    Parameters
    ----------
    source : RowSource
    y, sample_weight, groups : str, array-like or None
        Names of columns, or values by row. y may be a list of names.
    """

    def __init__(self, source: RowSource, y, sample_weight=None, groups=None):
        self._transform: Callable[[Part], Part] | None = None
        self._values = {"y": y, "sample_weight": sample_weight, "groups": groups}
        self._names: dict[str, list[str]] = {}
        for role, value in self._values.items():
            if isinstance(value, str):
                self._names[role] = [value]
            elif role == "y" and _are_names(value, source.columns):
                self._names[role] = list(value)
        self._named = [name for names in self._names.values() for name in names]
        if self._named:
            source.only(self._named)  # raises
            inputs = [n for n in source.columns or () if n not in self._named]
            source = source.only([*inputs, *self._named])
        self.source = source
        self.n_inputs = source.n_columns - len(self._named)
        for role, value in self._values.items():
            if value is not None and role not in self._names:
                _check_length(role, value, source.n_rows)

    @property
    def fingerprint(self) -> tuple:
        """What identifies the rows and the roles of the columns."""
        roles = []
        for role, value in self._values.items():
            if value is not None and role not in self._names:
                value = digest(partial(_values_at, value), self.source.n_rows)
            roles.append(value if isinstance(value, str) else repr(value))
        return self.source.fingerprint, tuple(roles)

    def transformed(self, transform: Callable[[Part], Part]) -> "TrainingSource":
        """The same rows with other X or weights."""
        other = copy(self)
        other._transform = transform
        return other

    @property
    def rows_at_once(self) -> int:
        """Most rows that are read at once, for the working memory."""
        n_bytes = 8 * (self.n_inputs + 1)
        return max(1, int(working_memory() * _SHARE_AT_ONCE / n_bytes))

    @property
    def n_open(self) -> int:
        """Number of blocks that are read in turns."""
        return self.source.n_open(int(working_memory() * _SHARE_OF_BLOCKS))

    def parts(self, rows: Iterator[Rows]) -> Iterator[Part]:
        """Split y, weights and groups from X; drop rows of weight zero."""
        for table, start, place in rows:
            n, X = len(table), table
            columns: list[np.ndarray] = []
            with located(place):
                if self._named:
                    X, columns = split_columns(table, self._named)
                by_name = dict(zip(self._named, columns, strict=True))
                y, weights, groups = (
                    self._of_role(role, by_name, start, n) for role in self._values
                )
                ids = np.arange(start, start + n)
                part = Part(X, y, np.ones(n), groups, ids, place)
                if weights is not None:
                    weights = np.asarray(weights, dtype=np.float64)
                    if not (np.isfinite(weights).all() and (weights >= 0).all()):
                        check_row_weights(weights, X)  # raises
                    part = part._replace(weights=weights)
                if self._transform is not None:
                    part = self._transform(part)
            used = np.flatnonzero(part.weights)
            if len(used):
                yield part if len(used) == n else part.at(used)

    def _of_role(self, role: str, by_name: dict, start: int, n: int):
        if role in self._names:
            columns = [by_name[name] for name in self._names[role]]
            is_one = isinstance(self._values[role], str)
            return columns[0] if is_one else np.column_stack(columns)
        value = self._values[role]
        return None if value is None else _values_at(value, start, start + n)


def _values_at(values, start: int, stop: int) -> np.ndarray:
    """Some values of an array-like by position."""
    values = getattr(values, "iloc", values)[start:stop]
    ordered = if_ordered(values)
    return np.asarray(values) if ordered is None else ordered


def _are_names(value, columns) -> bool:
    return (
        isinstance(value, list | tuple)
        and columns is not None
        and len(value) > 0
        and all(isinstance(name, str) and name in columns for name in value)
    )


def _check_length(role: str, value, n_rows: int) -> None:
    length = value.shape[0] if hasattr(value, "shape") else len(value)
    if length != n_rows:
        raise ValueError(
            f"`{role}` must have one value for each of the {n_rows} rows of the source;"
            f" got {length}."
        )


# ---- survey: one pass over all rows


@dataclass
class Survey:
    """What a pass over all rows finds.

    Parameters
    ----------
    sample : Part
        Random rows of positive weight, sorted by position; and rows of rare classes.
    n_rows : int
        Number of rows of positive weight.
    weight : float
        Sum of the weights, also by class.
    class_weight : dict of label to float
        Sum of the weights of each class; empty for regression.
    n_of_class : dict of label to int
    """

    sample: Part
    n_rows: int
    weight: float
    class_weight: dict
    n_of_class: dict


def survey(
    estimator, training: TrainingSource, seed: int, n_sample: int | None = None
) -> Survey:
    """Read all rows once; warn if they are sorted by y.

    n_sample : most rows of the sample, by default for the working memory
    """
    source = training.source
    if source.n_rows == 0:
        raise ValueError(f"{source.name} must have at least one row; got none.")
    if n_sample is None:
        n_values = working_memory() * _SHARE_OF_SAMPLE / 8
        most = int(n_values / max(1, training.n_inputs))
        n_sample = min(SAMPLE_ROWS, max(most, 1000))
    reservoir = _Reservoir(min(n_sample, source.n_rows), seed)
    n_rows, weight = 0, 0.0
    class_weight: dict = {}
    n_of_class: dict = {}
    statistics = _BlockStatistics()
    rows = source.in_order(min(training.rows_at_once, max(1, n_sample // 4)))
    for part in read_ahead(training.parts(rows)):
        codes = None
        with located(part.place):
            if is_classifier(estimator):
                labels, codes = np.unique(check_labels(part.y), return_inverse=True)
                counts, sums = np.bincount(codes), np.bincount(codes, part.weights)
                for label, n, of_label in zip(
                    labels.tolist(), counts.tolist(), sums, strict=True
                ):
                    n_of_class[label] = n_of_class.get(label, 0) + n
                    class_weight[label] = class_weight.get(label, 0.0) + of_label
                places = {label: i for i, label in enumerate(n_of_class)}
                codes = np.array([places[label] for label in labels.tolist()])[codes]
                statistics.add_classes(codes, len(places))
            else:
                y = check_numbers(estimator, part.y)
                statistics.add(y.reshape(len(y), -1))
        n_rows, weight = n_rows + len(part.ids), weight + float(part.weights.sum())
        reservoir.add(part, codes)
    if not n_rows:
        raise ValueError(
            "`sample_weight` must be positive for at least one row; got zeros only."
        )
    statistics.warn_if_sorted(source.name)
    sample = reservoir.sample()._replace(place=f"a sample of {source.name}")
    return Survey(sample, n_rows, weight, class_weight, n_of_class)


class _Reservoir:
    """Random rows of all rows, and at least some of every class, in one pass.

    Each row gets a random number. The rows with the smallest numbers are the sample.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int
    """

    def __init__(self, n: int, seed: int):
        self._n, self._random = n, np.random.default_rng(seed)
        self._held: list[tuple[Part, np.ndarray, np.ndarray | None]] = []
        # No row with a larger number is among the smallest of all.
        self._largest = np.inf

    def add(self, part: Part, codes: np.ndarray | None) -> None:
        """Add consecutive rows.

        codes : number of the class of each row, or None
        """
        self._keep(part, self._random.random(len(part.ids)), codes)
        n_held = sum(len(numbers) for _, numbers, _ in self._held)
        of_classes = 0 if codes is None else _ROWS_PER_CLASS * (int(codes.max()) + 1)
        if n_held > 2 * (self._n + of_classes):
            self._drop()

    def sample(self) -> Part:
        """Rows of the sample, sorted by position."""
        self._drop()
        return self._held[0][0]

    def _keep(self, part: Part, numbers, codes) -> None:
        is_kept = numbers <= self._largest
        if codes is not None:
            order = np.lexsort([numbers, codes])
            starts = np.searchsorted(codes[order], codes[order])
            is_kept[order[np.arange(len(order)) - starts < _ROWS_PER_CLASS]] = True
        kept = np.flatnonzero(is_kept)
        if len(kept):
            codes = None if codes is None else codes[kept]
            self._held.append((part.at(kept), numbers[kept], codes))

    def _drop(self) -> None:
        """Join the parts; drop the rows that are not among the smallest any more."""
        parts, numbers, codes = zip(*self._held, strict=True)
        self._held = []
        all_numbers = np.concatenate(numbers)
        if len(all_numbers) > self._n:
            self._largest = np.partition(all_numbers, self._n - 1)[self._n - 1]
        all_codes = None if codes[0] is None else np.concatenate(codes)
        self._keep(_joined(parts), all_numbers, all_codes)


def _joined(parts: Sequence[Part]) -> Part:
    groups = None
    if parts[0].groups is not None:
        groups = np.concatenate([part.groups for part in parts])
    return Part(
        concatenated([part.X for part in parts]),
        joined_labels([part.y for part in parts]),
        np.concatenate([part.weights for part in parts]),
        groups,
        np.concatenate([part.ids for part in parts]),
        parts[0].place,
    )


class _BlockStatistics:
    """Means of y, or shares of the classes, of consecutive parts of the table."""

    def __init__(self):
        self._sizes: list[int] = []
        self._means: list[np.ndarray] = []
        # Sum of squared differences from the mean of the part.
        self._within: Any = 0.0
        self._of_classes = False

    def add(self, y: np.ndarray) -> None:
        """Add the y of a part, (rows, targets)."""
        self._sizes.append(len(y))
        # The second mean is of small numbers: it removes the rounding of the first.
        start = y.mean(0)
        mean = start + (y - start).mean(0)
        self._means.append(mean)
        self._within = self._within + np.square(y - mean).sum(0)

    def add_classes(self, codes: np.ndarray, n_classes: int) -> None:
        """Add the classes of a part by their numbers."""
        self._of_classes = True
        self._sizes.append(len(codes))
        self._means.append(np.bincount(codes, minlength=n_classes) / len(codes))

    def warn_if_sorted(self, name: str) -> None:
        """Warn if the parts differ much more than parts of shuffled rows would."""
        n_parts, sizes = len(self._sizes), np.array(self._sizes)[:, None]
        widest = max(map(len, self._means))
        means = np.stack([np.pad(m, (0, widest - len(m))) for m in self._means])
        total = sizes.sum()
        # Differences, so that a large mean does not round them.
        means, first = means - means[0], means[0]
        mean = (sizes * means).sum(0) / total
        between = (sizes * np.square(means - mean)).sum(0)
        if self._of_classes:
            mean = first + mean
            squares = total * mean * (1 - mean)
        else:
            squares = self._within + between
        if n_parts < 2 or not (squares > 0).all():
            return
        share = float(between.sum() if self._of_classes else (between / squares).max())
        if self._of_classes:
            share /= float(squares.sum())
        expected = (n_parts - 1) / max(total - 1, 1)
        if share > max(_SORTED_SHARE, _SORTED_RATIO * expected):
            warn(
                "SKB211",
                f"the rows of {name} are sorted by y or nearly: parts of {sizes.max()} "
                f"consecutive rows explain {share:.0%} of the variance of y. Training "
                "reads blocks in random order and shuffles the rows of a few blocks "
                "at a time, so its batches are no random samples. Shuffle the rows.",
            )


# ---- buffers: encoded rows in random order


@dataclass(frozen=True)
class Passes:
    """Division of the training into passes and buffers.

    Parameters
    ----------
    n_passes, n_buffers : int
        Number of passes over the table, and of buffers of a pass.
    n_rows : int
        Rows of a buffer.
    n_batches : int
        Batches of a buffer.
    """

    n_passes: int
    n_buffers: int
    n_rows: int
    n_batches: int

    @classmethod
    def of(cls, estimator, n_rows: int, bytes_of_row: int) -> "Passes":
        """Divide ``n_rows`` rows so that a buffer stays within the working memory."""
        most = max(1, int(working_memory() * _SHARE_OF_BUFFER / bytes_of_row))
        n_buffers = math.ceil(n_rows / most)
        of_buffer = math.ceil(n_rows / n_buffers)
        batch = min(_validation.batch_rows(estimator.batch_size, n_rows), of_buffer)
        n_batches = math.ceil(of_buffer / batch)
        max_iter = estimator.max_iter
        if isinstance(max_iter, str):
            steps = defaults_of(estimator).steps_per_sqrt_n * math.sqrt(n_rows)
            steps = min(steps, MAX_STEPS)
            _validation.epochs(max_iter, n_rows, n_batches, 1)  # checks the name
            n_passes = math.ceil(steps / (n_buffers * n_batches))
        else:
            n_passes = _validation.epochs(max_iter, n_rows, n_batches, 1)
        return cls(n_passes, n_buffers, of_buffer, n_batches)

    @property
    def n_epochs(self) -> int:
        """Number of buffers of all passes, which are the epochs of the engine."""
        return self.n_passes * self.n_buffers


class Buffer(NamedTuple):
    """Standardised rows in the precision of the training.

    Parameters
    ----------
    x : ndarray of shape (rows, inputs)
    y : ndarray of shape (rows, targets), or class indices (rows,)
    weights : ndarray of shape (rows,)
        Divided by their mean over the table.
    ids : ndarray of shape (rows,), int
    """

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    ids: np.ndarray

    def at(self, positions) -> "Buffer":
        """Some of these rows."""
        return Buffer(*(values[positions] for values in self))


@dataclass(frozen=True)
class Encoder:
    """Encodes rows of the source as the network takes them.

    Parameters
    ----------
    estimator : BayesianNetwork
        With the columns of the fit.
    job : TrainingJob
        Of the sample.
    sample_ids : ndarray of int
        Positions of the rows of the sample, in the order of its table.
    factor_of_class : dict of label to float
        Class weights; empty without.
    mean_weight : float
    dtype : dtype of the training
    """

    estimator: Any
    job: TrainingJob
    sample_ids: np.ndarray
    factor_of_class: dict
    mean_weight: float
    dtype: np.dtype

    def __call__(self, part: Part) -> Buffer:
        with located(part.place):
            table = self._table(part)
        weights = part.weights * table.sample_weight / self.mean_weight
        scaling, y = self.job.scaling, table.y
        if self.job.data.classes is None:
            y = scaling.y_to_network(table.y).astype(self.dtype)
        elif self.factor_of_class:
            classes = self.job.data.classes
            factors = np.array([self.factor_of_class[c] for c in classes.tolist()])
            weights = weights * factors[table.y]
        y = table.codes if self.job.data.classes is not None else y
        return Buffer(self._standardised(part, table), y, weights, part.ids)

    def _standardised(self, part: Part, table: Table) -> np.ndarray:
        features = self._features(part, table)
        x = np.empty(features.shape, self.dtype)
        for start in range(0, len(x), _ROWS_IN_CACHE):
            rows = slice(start, start + _ROWS_IN_CACHE)
            x[rows] = self.job.scaling.x_to_network(features[rows])
        return x

    def _table(self, part: Part) -> Table:
        data = self.job.data
        if data.classes is None:
            table, _ = check_regression(
                self.estimator, part.X, part.y, None, reset=False
            )
            return table
        table, _ = check_classification(
            self.estimator, part.X, part.y, None, reset=False, classes=data.classes
        )
        return replace(table, ranks=data.table.ranks)

    def _features(self, part: Part, table: Table) -> np.ndarray:
        """Features, without the row's own y in statistics of y."""
        encoder = getattr(self.estimator, "table_", None)
        if encoder is None or not encoder.uses_y:
            return table.X
        return with_sampled_rows(table.X, part.ids, self.job.table.X, self.sample_ids)


def with_sampled_rows(
    X: np.ndarray, ids: np.ndarray, sample: np.ndarray, sample_ids: np.ndarray
) -> np.ndarray:
    """A copy of encoded rows, with those of the sample as it has them.

    ids, sample_ids : positions in the source; those of the sample are sorted
    """
    at = np.searchsorted(sample_ids, ids)
    at = np.minimum(at, len(sample_ids) - 1)
    is_sampled = sample_ids[at] == ids
    X = X.copy()
    X[is_sampled] = sample[at[is_sampled]]
    return X


class Buffers:
    """The buffers of a training, in order.

    Parameters
    ----------
    training : TrainingSource
    encode : Encoder
    passes : Passes
    held_out : Part
        Rows that are left out, and their groups with all their rows.
    seed : int
    """

    def __init__(
        self,
        training: TrainingSource,
        encode: Encoder,
        passes: Passes,
        held_out: Part,
        seed: int,
    ):
        self._training, self._encode, self._passes = training, encode, passes
        self._held_out_ids, self._seed = np.sort(held_out.ids), seed
        # Here and not in a thread, in which scikit-learn has its default settings.
        part = max(1, passes.n_rows // _PARTS_OF_BUFFER)
        self._n_at_once = min(training.rows_at_once, part)
        self._n_open = training.n_open
        self._held_out_groups = None
        if held_out.groups is not None and len(held_out.ids):
            self._held_out_groups = np.unique(held_out.groups)

    def from_number(self, first: int) -> Iterator[Buffer]:
        """Iterate over the buffers from one on.

        All have the same arrays: use a buffer before the next one is requested.
        """
        spare: Buffer | None = None
        n, n_buffers = self._passes.n_rows, self._passes.n_buffers
        for n_pass in range(first // n_buffers, self._passes.n_passes):
            # A pass has exactly its number of buffers: with too few rows, the last one
            # is filled up from the start of the pass.
            number, n_filled = n_pass * n_buffers, 0
            end = number + n_buffers
            for rows in chain.from_iterable(self._again(n_pass)):
                start = 0
                spare = spare or _empty(rows, n)
                while start < len(rows.ids) and number < end:
                    stop = min(len(rows.ids), start + n - n_filled)
                    place = slice(n_filled, n_filled + stop - start)
                    for target, values in zip(spare, rows, strict=True):
                        target[place] = values[start:stop]
                    start, n_filled = stop, place.stop
                    if n_filled == n:
                        if number >= first:
                            yield spare
                        number, n_filled = number + 1, 0
                if number == end:
                    break

    def _again(self, n_pass: int) -> Iterator[Iterator[Buffer]]:
        """The rows of a pass, as often as they are requested."""
        while True:
            yield self._encoded(n_pass)

    def _encoded(self, n_pass: int) -> Iterator[Buffer]:
        random = np.random.default_rng([self._seed, n_pass])
        rows = self._training.source.shuffled(random, self._n_at_once, self._n_open)
        for part in self._training.parts(rows):
            out = np.isin(part.ids, self._held_out_ids, assume_unique=True)
            if self._held_out_groups is not None and part.groups is not None:
                out |= np.isin(part.groups, self._held_out_groups)
            kept = part if not out.any() else part.at(np.flatnonzero(~out))
            if len(kept.ids):
                encoded = self._encode(kept)
                used = encoded.weights > 0
                yield encoded if used.all() else encoded.at(used)


def _empty(like: Buffer, n: int) -> Buffer:
    return Buffer(*(np.empty((n, *v.shape[1:]), v.dtype) for v in like))


class Refill(Hook):
    """Hook that loads the next buffer after each epoch of the engine.

    A thread fills it during the epoch. An error while reading ends the training as an
    interruption does, so that the finished part is kept; the caller raises ``error``.

    Parameters
    ----------
    buffers : iterator of Buffer
    n_epochs : int
        Number of epochs of the training.
    """

    rows: BufferedRows
    perturbation: "PerturbationById | None" = None

    def __init__(self, buffers: Iterator[Buffer], n_epochs: int):
        self._buffers, self._n_epochs = buffers, n_epochs
        self._pool = ThreadPoolExecutor(1)
        # The thread has the settings of NumPy and of warnings of this one.
        self._context = copy_context()
        self.error: Exception | None = None

    def fill(self) -> None:
        """Start to fill the next buffer."""
        buffers = self._buffers
        self._next = self._pool.submit(self._context.run, next, buffers)

    def epoch_end(self, n_done, posterior):
        if n_done == self._n_epochs:
            return
        try:
            buffer = self._next.result()
        except Exception as error:
            self.error = error
            raise KeyboardInterrupt from error
        if self.perturbation is not None:
            self.perturbation.renew(buffer.ids, buffer.weights)
        self.rows.load(buffer.x, buffer.y, buffer.weights)
        if n_done < self._n_epochs - 1:
            self.fill()

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(cancel_futures=True)


class PerturbationById(RowPerturbation):
    """Perturbation of the rows of a buffer, a function of seed and position.

    So a row has the same perturbation in all passes.

    Parameters
    ----------
    config : TrainingConfig
    seeds : ndarray of shape (members,), int
    rows : BufferedRows
    buffer : Buffer
        The rows of the first buffer.
    """

    def __init__(
        self, config: TrainingConfig, seeds: np.ndarray, rows: BufferedRows, buffer
    ):
        self._seeds, self._n_targets = seeds, config.likelihood.gaussian_targets
        self._on_y = self._n_targets > 0
        width = max(1, self._n_targets)
        shape = (len(seeds), len(buffer.ids), width)
        self._values = torch.zeros(shape).to(rows.mean_weight)
        self.renew(buffer.ids, buffer.weights)

    def renew(self, ids: np.ndarray, weights: np.ndarray) -> None:
        """Compute the perturbation of other rows, in place."""
        for member, seed in enumerate(self._seeds):
            for target in range(self._values.shape[2]):
                uniform = [_uniform(int(seed), ids, 2 * target + k) for k in range(2)]
                if self._on_y:
                    radius = np.sqrt(-2 * np.log1p(-uniform[0]))
                    values = radius * np.cos(2 * np.pi * uniform[1]) / np.sqrt(weights)
                else:
                    values = _gamma_quantile(weights, uniform[0]) / weights
                self._values[member, :, target] = torch.as_tensor(values)


def _gamma_quantile(shape: np.ndarray, probability: np.ndarray) -> np.ndarray:
    if (shape == 1).all():
        return -np.log1p(-probability)
    from scipy.special import gammaincinv

    return gammaincinv(shape, probability)


def _uniform(seed: int, ids: np.ndarray, stream: int) -> np.ndarray:
    """Uniform numbers in [0, 1), a hash of seed and position [Steele et al. 2014]."""
    state = _finalise(np.array([seed], dtype=np.uint64))
    with np.errstate(over="ignore"):
        state = _finalise(state + np.array([stream + 1], dtype=np.uint64))
        words = _finalise(state + (ids.astype(np.uint64) + 1) * np.uint64(GOLDEN))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _finalise(words: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        for shift, multiplier in ((SHIFT_1, MULTIPLIER_1), (SHIFT_2, MULTIPLIER_2)):
            words = (words ^ (words >> np.uint64(shift))) * np.uint64(multiplier)
        return words ^ (words >> np.uint64(SHIFT_3))


# ---- the fit


@dataclass
class Unfinished:
    """An interrupted training, from which the next ``fit`` continues.

    Parameters
    ----------
    of_fit : dict
        ``identity`` of the fit.
    twin : BayesianNetwork
        Estimator with an integer as random state.
    job : TrainingJob
    found : Survey
    attributes : dict
        Attributes of the estimator that depend on the columns.
    trained : Trained
        Its epochs are buffers.
    warm : bool
        Whether the fit started from fitted weights.
    first_epoch : int
        Number of epochs of fits before.
    """

    of_fit: dict
    twin: Any
    job: TrainingJob
    found: Survey
    attributes: dict
    trained: Trained
    warm: bool
    first_epoch: int


def refuse_validation_set(X_val, y_val) -> None:
    """Raise for a validation set, which is not supported for sources."""
    if X_val is not None or y_val is not None:
        raise ValueError(
            "`X_val` and `y_val` must be left out if X is a source of rows: early "
            "stopping holds out random rows. Fit to a table in memory to give them."
        )


def fit_source(
    estimator,
    new,
    training: TrainingSource,
    *,
    warm: bool = False,
    variance_source: str | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[TrainedJob, float, int]:
    """Train the networks of an estimator on all rows of a source.

    estimator : with the parameters, and the state of an earlier fit
    new : copy that gets the fitted attributes
    warm : whether to start from the fitted weights
    variance_source : of the configuration of the training, by default as for a table
    returns : trained networks with the sample as their rows; total weight of other
        rows; number of epochs of fits before

    Raises
    ------
    KeyboardInterrupt, Exception
        If the training is interrupted, or reading fails. The finished part is stored
        in ``estimator._unfinished``, for the next call.
    """
    of_fit = identity(estimator, training.fingerprint)
    # It sets the rows of the sample and of a buffer.
    of_fit["parameters"]["working_memory"] = repr(working_memory())
    # The estimator keeps it until the end of this fit.
    before = estimator._unfinished
    vars(new).pop("_unfinished", None)
    trained = posterior = None
    if before is not None and before.of_fit == of_fit:
        twin, found, trained = before.twin, before.found, before.trained
        job, warm, first_epoch = before.job, before.warm, before.first_epoch
        vars(new).update(before.attributes)
    else:
        of_file = is_continued(estimator, of_fit)
        warm = warm and not of_file
        first_epoch = estimator.n_epochs_seen_ if warm else 0
        twin = seeded(estimator, continued=of_file)
        found = survey(new, training, _seed_of(twin))
        job, posterior = _job(twin, new, found, warm)
        if variance_source is not None:
            config = replace(job.config, variance_source=variance_source)
            job = replace(job, config=config)
        if of_file:
            job = with_networks_of(job, estimator)
            device = _validation.device_for_fit(estimator.device)
            dtype = _fit.computed_in(job.config, device)
            trained = restored(estimator, device, dtype)
    plan = _Plan.of(estimator, new, training, found, job, _seed_of(twin), warm)
    if checkpoint is not None:
        unfinished = None if warm else of_fit | settings_of(twin, plan.job)
        checkpoint.begin(plan.result, unfinished, first_epoch, plan.others)
    trained, error = plan.train(estimator, posterior, trained, first_epoch, checkpoint)
    if trained.interrupted:
        columns = ("n_features_in_", "feature_names_in_", "table_")
        attributes = {name: vars(new)[name] for name in columns if name in vars(new)}
        state = Unfinished(
            of_fit, twin, job, found, attributes, trained, warm, first_epoch
        )
        # In `new` for a fit that returns, in `estimator` for one that raises.
        new._unfinished = estimator._unfinished = state
        if error is not None:
            raise error
        if not estimator.warm_start:
            raise trained.lost or KeyboardInterrupt
    return plan.result(trained), plan.others, first_epoch


def _seed_of(estimator) -> int:
    """Seed of the sample and of the order of the rows."""
    # The job draws from a source of the same seed: take another number.
    random_state = _validation.random_source(estimator.random_state)
    return int(random_state.randint(2**31, size=2)[1])


def _job(estimator, new, found: Survey, warm: bool) -> tuple[TrainingJob, Any]:
    """The job of the sample, and the fitted posterior of a warm start."""
    sample = found.sample
    data = training_data(
        new,
        sample.X,
        sample.y,
        sample.weights,
        groups=sample.groups,
        reset=not warm,
    )
    if data.classes is not None:
        refuse_one_class(new, data.classes)
    if not warm:
        hidden = hidden_layer_sizes(estimator, found.weight)
        return training_job(estimator, data, hidden), None
    return _streaming.continued(estimator, data)


@dataclass(frozen=True)
class _Plan:
    """A training on all rows.

    Parameters
    ----------
    job : TrainingJob
        Of the sample, with the schedule of all rows.
    passes : Passes
    buffers : Buffers
    held_out : Buffer
        Encoded rows that no network trains on.
    total_weight : float
        N, without held-out rows.
    is_weighted : bool
    """

    job: TrainingJob
    passes: Passes
    buffers: Buffers
    held_out: Buffer
    total_weight: float
    is_weighted: bool

    @classmethod
    def of(
        cls, estimator, new, training, found: Survey, job, seed: int, warm: bool
    ) -> "_Plan":
        """Plan the training: held-out rows, class weights, passes and schedule.

        warm : whether the length scale of the fit before is kept
        """
        job = replace(job, settings=())
        out = _held_out(job, found.sample, seed)
        factors = class_factors(getattr(estimator, "class_weight", None), found)
        weight, n_rows = found.weight, found.n_rows
        if factors:
            sums = found.class_weight
            weight = sum(factors[c] * w for c, w in sums.items())
            n_rows = sum(n for c, n in found.n_of_class.items() if factors[c] > 0)
        encode = Encoder(
            new,
            job,
            found.sample.ids,
            factors,
            weight / n_rows,
            np.dtype(str(job.config.dtype).removeprefix("torch.")),
        )
        held_out = encode(found.sample.at(out)) if len(out) else None
        n_held_out, weight_held_out = len(out), 0.0
        if held_out is not None:
            weight_held_out = float(held_out.weights.sum()) * encode.mean_weight
            if found.sample.groups is not None:
                # All rows of the groups are left out; the sample shows their share.
                share = len(out) / len(found.sample.ids)
                n_held_out = int(share * n_rows)
                weight_held_out = share * weight
        total_weight = weight - weight_held_out
        n_inputs = job.table.X.shape[1]
        passes = Passes.of(
            estimator,
            max(1, n_rows - n_held_out),
            (n_inputs + 2) * encode.dtype.itemsize,
        )
        config = replace(job.config, n_batches=passes.n_batches, keep_interrupted=True)
        if config.patience is not None:
            config = replace(config, patience=config.patience * passes.n_buffers)
        n_epochs = np.full_like(job.members.n_epochs, passes.n_epochs)
        members = replace(job.members, n_epochs=n_epochs)
        if not warm:
            fan_ins = config.network.prior_fan_ins
            scale = estimator._length_scales(fan_ins, total_weight)
            job = job.with_length_scale(scale)
            members = replace(job.members, n_epochs=n_epochs)
        if job.estimates_tau:
            start = 1 / job.variance_of_y[None]
            members = replace(
                members,
                tau=np.repeat(start, job.n_members, axis=0),
                learns_likelihood=np.zeros(job.n_members, dtype=bool),
            )
        job = replace(job, config=config, members=members)
        encode = replace(encode, job=job)
        buffers = Buffers(training, encode, passes, found.sample.at(out), seed)
        if held_out is None:
            held_out = encode(found.sample.at(np.arange(1))).at(slice(0))
        weights = found.sample.weights
        is_weighted = bool(factors) or bool((weights != weights[0]).any())
        is_weighted = is_weighted or not math.isclose(
            found.weight, found.n_rows * weights[0]
        )
        return cls(job, passes, buffers, held_out, total_weight, is_weighted)

    @property
    def others(self) -> float:
        """Total weight of the rows that are not among the job's rows."""
        return self.total_weight - self.job.total_weight

    def train(
        self,
        estimator,
        posterior: Posterior | None,
        before: Trained | None,
        first_epoch: int,
        checkpoint: Checkpoint | None,
    ) -> tuple[Trained, Exception | None]:
        """Train on all rows.

        posterior : of a warm start
        before : unfinished result to continue
        returns : trained networks, with an epoch for each buffer, and an error of
            reading that has interrupted the training
        """
        job, passes = self.job, self.passes
        device = _validation.device_for_fit(estimator.device)
        dtype = _fit.computed_in(job.config, device)
        n_done = 0 if before is None else before.epochs_done
        buffers = self.buffers.from_number(min(n_done, passes.n_epochs - 1))
        first = next(buffers)
        x, y, weights, _ = map(np.concatenate, zip(first, self.held_out, strict=True))
        rows = BufferedRows(
            Table(x, y, weights),
            job.n_members,
            passes.n_rows,
            device,
            dtype,
            self.total_weight,
            self.is_weighted,
        )
        refill = Refill(buffers, passes.n_epochs)
        refill.rows = rows
        hooks: list[Hook] = [refill]
        if job.config.perturbed:
            refill.perturbation = PerturbationById(
                job.config, job.members.seeds, rows, first
            )
        if job.estimates_tau and len(self.held_out.ids):
            ensemble = Ensemble(np.arange(job.n_members)[None], passes.n_epochs)
            hooks.insert(
                0, HeldOutTauUpdater(rows, [ensemble], _N_DRAWS, job.members.tau)
            )
        if before is not None:
            posterior = before.posterior.to(device, dtype)
            before = replace(before, posterior=posterior)
        elif posterior is None:
            posterior = initial_posterior(job.config, job.members, device, dtype)
        del first, x, y, weights  # the thread overwrites the buffer
        if n_done < passes.n_epochs - 1:
            refill.fill()
        try:
            trained = _fit.run(
                [estimator],
                job.config,
                job.members,
                rows,
                posterior,
                first_epoch=first_epoch,
                hooks=hooks,
                perturbation=refill.perturbation,
                rows_of_epoch=passes.n_rows,
                before=before,
                checkpoint=checkpoint,
            )
        except KeyboardInterrupt:
            if refill.error is not None:
                raise refill.error from None
            raise
        finally:
            refill.close()
        return trained, refill.error

    def result(self, trained: Trained) -> TrainedJob:
        """The result of the fit: with the noise of held-out rows, an epoch per pass."""
        return TrainedJob(self.job, _by_pass(self._with_noise(trained), self.passes))

    def _with_noise(self, trained: Trained) -> Trained:
        """Estimate the observation noise on held-out rows."""
        job, out, posterior = self.job, self.held_out, trained.posterior
        if not (job.estimates_variance and len(out.ids)):
            return trained
        # The held-out rows stand for the training rows, too, which are not used.
        x, y, weights, _ = (np.concatenate([values] * 2) for values in out)
        rows = BufferedRows(
            Table(x, y, weights),
            job.n_members,
            len(out.ids),
            posterior.device,
            posterior.dtype,
            self.total_weight,
            self.is_weighted,
        )
        alive = np.flatnonzero(trained.failed == 0)
        draws = validation_draws(posterior, rows, _N_DRAWS, [alive])
        together = draws_together(next(draws).cpu().double().numpy())
        values = held_out_noise(job, together, self.held_out.y, self.held_out.weights)
        if values is None:
            return trained
        return replace(trained, posterior=posterior.with_predictive_params(values))


def _held_out(job: TrainingJob, sample: Part, seed: int) -> np.ndarray:
    """Rows of the sample for early stopping, or to estimate the noise."""
    held_out = job.row_subsets[0].held_out_rows
    if len(held_out) or not job.estimates_variance:
        return np.sort(held_out)
    n = len(sample.ids)
    size = min(_MAX_HELD_OUT, int(_SHARE_HELD_OUT * n))
    if sample.groups is None:
        random = np.random.default_rng([seed, 1])
        return np.sort(random.choice(n, size, replace=False))
    splitter = GroupShuffleSplit(1, test_size=size / n, random_state=seed % 2**31)
    [(_, rows)] = splitter.split(sample.ids, groups=sample.groups)
    return np.sort(rows)


def class_factors(class_weight, found: Survey) -> dict:
    """Factors of the row weights by class, from the classes of all rows.

    returns : empty without class weights
    """
    if class_weight is None or not found.n_of_class:
        return {}
    labels = list(found.n_of_class)
    factors = _validation.compute_class_weights(class_weight, np.array(labels))
    if isinstance(class_weight, dict):
        return dict(zip(labels, factors.tolist(), strict=True))
    # As scikit-learn computes it from all labels.
    n = sum(found.n_of_class.values())
    return {c: n / (len(labels) * found.n_of_class[c]) for c in labels}


def _by_pass(trained: Trained, passes: Passes) -> Trained:
    """Average the history over the buffers of every pass."""
    n = passes.n_buffers

    def averaged(values):
        if values is None:
            return None
        starts = range(0, len(values), n)
        return np.stack([values[i : i + n].mean(0) for i in starts])

    return replace(
        trained,
        nll=averaged(trained.nll),
        kl=averaged(trained.kl),
        validation=averaged(trained.validation),
        n_epochs=-(-trained.n_epochs // n),
        failed=-(-trained.failed // n),
    )
