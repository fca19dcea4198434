"""Rows of a source with their y, and what one pass over all of them finds.

The survey counts the rows and the classes, takes a random sample, and notices whether
the rows are sorted by y.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._data._advice import REMOVE_ROWS
from skbayesnn._data.class_order import if_ordered, joined_labels
from skbayesnn._data.columns import is_missing
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
from skbayesnn._data.validation import check_labels, check_numbers
from skbayesnn._runtime import warn
from skbayesnn._validation import check_row_weights, compute_class_weights

# Most rows of the sample.
SAMPLE_ROWS = 100_000
# Shares of the working memory for the sample in double precision, for open blocks, and
# for rows that are encoded at once.
_SHARE_OF_SAMPLE, _SHARE_OF_BLOCKS, _SHARE_AT_ONCE = 1 / 32, 1 / 5, 1 / 64
# Smallest number of rows per class in the sample, if there are as many.
_ROWS_PER_CLASS = 20
# The rows count as sorted if the means of y of parts of the table explain at least this
# share of the variance of y, and this many times as much as means of random rows.
_N_PARTS, _SORTED_SHARE, _SORTED_RATIO = 20, 0.2, 10.0


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
def located(place: str, part: Part | None = None) -> Iterator[None]:
    """Name the place of rows in errors about them, and the rows without a value of y.

    part : rows whose y is checked, if any
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        ids: Any = ()
        if part is not None and kind is ValueError:
            ids = _ids_without_y(part)
        message = str(error)
        if len(ids):
            shown = ", ".join(map(str, ids[:5])) + ", ..." * (len(ids) > 5)
            message = (
                f"{message.partition(REMOVE_ROWS)[0].rstrip()} Positions in the whole "
                f"source: {shown}. Remove these rows, or give them a weight of zero."
            )
        raise kind(f"in {place}: {message}") from error


def _ids_without_y(part: Part) -> np.ndarray:
    """Positions of rows whose y is missing or infinite."""

    def is_odd(value):
        return is_missing(value) or (isinstance(value, float) and np.isinf(value))

    rows = np.asarray(part.y).reshape(len(part.ids), -1).tolist()
    return part.ids[np.array([any(map(is_odd, row)) for row in rows], dtype=bool)]


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

    def weighted(self, factors: dict) -> tuple[float, int]:
        """Sum of the weights, and number of rows, with factors by class."""
        if not factors:
            return self.weight, self.n_rows
        weight = sum(factors[c] * w for c, w in self.class_weight.items())
        return weight, sum(n for c, n in self.n_of_class.items() if factors[c] > 0)

    def class_factors(self, class_weight) -> dict:
        """Factors of the row weights by class, from the classes of all rows.

        returns : empty without class weights
        """
        if class_weight is None or not self.n_of_class:
            return {}
        labels = list(self.n_of_class)
        factors = compute_class_weights(class_weight, np.array(labels))
        if isinstance(class_weight, dict):
            return dict(zip(labels, factors.tolist(), strict=True))
        # As scikit-learn computes it from all labels.
        n = sum(self.n_of_class.values())
        return {c: n / (len(labels) * self.n_of_class[c]) for c in labels}


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
    lowest, highest = np.full((2, 1), [[np.inf], [-np.inf]])
    rows = source.in_order(min(training.rows_at_once, max(1, n_sample // 4)))
    for part in read_ahead(training.parts(rows)):
        codes, ends = None, np.empty(0, int)
        with located(part.place, part):
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
            else:
                y = check_numbers(estimator, part.y).reshape(len(part.ids), -1)
                # The bounds of y are in the sample.
                is_new = np.r_[y.min(0) < lowest, y.max(0) > highest]
                ends = np.r_[y.argmin(0), y.argmax(0)][is_new]
                lowest, highest = (
                    np.minimum(lowest, y.min(0)),
                    np.maximum(highest, y.max(0)),
                )
        n_rows, weight = n_rows + len(part.ids), weight + float(part.weights.sum())
        reservoir.add(part, codes, ends)
    if not n_rows:
        raise ValueError(
            "`sample_weight` must be positive for at least one row; got zeros only."
        )
    sample = reservoir.sample()._replace(place=f"a sample of {source.name}")
    values = np.asarray(sample.y)
    if n_of_class:
        values = values[:, None] == np.array(list(n_of_class))
    else:
        values = check_numbers(estimator, values).reshape(len(values), -1)
    _warn_if_sorted(source.name, values * 1.0)
    return Survey(sample, n_rows, weight, class_weight, n_of_class)


def smallest_keys(
    keys: np.ndarray, n: int, limit: float = np.inf
) -> tuple[np.ndarray, float]:
    """Indices of at most ``n`` keys below a limit, the smallest first; the new limit.

    Rows with random keys form a uniform sample of a stream [Vitter 1985]. ``limit`` is
    the smallest key that was ever dropped: earlier rows with larger keys are lost. So
    the sample stays uniform if ``n`` grows.
    """
    order = np.argsort(keys, kind="stable")[: n + 1]
    if len(order) > n:
        limit = min(limit, float(keys[order[-1]]))
    return order[keys[order] < limit], limit


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
        self._limit = np.inf

    def add(self, part: Part, codes: np.ndarray | None, always: np.ndarray) -> None:
        """Add consecutive rows.

        codes : number of the class of each row, or None
        always : indices of rows that are kept in any case
        """
        numbers = self._random.random(len(part.ids))
        numbers[always] = 0.0
        self._keep(part, numbers, codes)
        n_held = sum(len(numbers) for _, numbers, _ in self._held)
        of_classes = 0 if codes is None else _ROWS_PER_CLASS * (int(codes.max()) + 1)
        if n_held > 2 * (self._n + of_classes):
            self._drop()

    def sample(self) -> Part:
        """Rows of the sample, sorted by position."""
        self._drop()
        return self._held[0][0]

    def _keep(self, part: Part, numbers, codes) -> None:
        is_kept = numbers < self._limit
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
        _, self._limit = smallest_keys(all_numbers, self._n, self._limit)
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


def _warn_if_sorted(name: str, values: np.ndarray) -> None:
    """Warn if parts of the table differ much more than parts of shuffled rows would.

    values : y, or an indicator of each class, of the sample, (rows, columns)
    """
    # Differences, so that a large mean does not round them.
    values = values - values[0]
    parts = np.array_split(values, _N_PARTS)
    means = np.array([part.mean(0) for part in parts if len(part)])
    total, between = values.var(0), means.var(0)
    share = float((between / np.where(total > 0, total, 1.0)).max())
    expected = (len(means) - 1) / max(len(values) - 1, 1)
    if share > max(_SORTED_SHARE, _SORTED_RATIO * expected):
        warn(
            "SKB211",
            f"the rows of {name} are sorted by y or nearly: parts of the table explain "
            f"{share:.0%} of the variance of y. Training reads blocks in random order "
            "and shuffles the rows of a few blocks at a time, so its batches are no "
            "random samples. Shuffle the rows.",
        )
