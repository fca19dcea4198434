"""Columns of X: their names, kinds and values, and their change since the training."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import chi2_contingency, fisher_exact, ks_2samp

from skbayesnn import _stored as stored
from skbayesnn._data.column_encoding import stored_name
from skbayesnn._data.columns import (
    DAY,
    KINDS,
    MISSING,
    Categories,
    TableReader,
    is_frame,
)
from skbayesnn._data.table_encoder import refuse_other_order

# Numeric values kept per column, and most levels of a column that is compared.
MAX_VALUES = 2_000
MAX_COMPARED_LEVELS = 1_000
# Fewer monotone steps can occur by chance. A few groups of rows, one after another,
# have fewer.
_MIN_STEPS = 10
# Levels are tested alone if both samples are expected to have as many rows of them.
_MIN_EXPECTED = 5.0
# The exact distribution of the test of Kolmogorov and Smirnov takes time proportional
# to the product of the numbers of rows.
_MAX_EXACT = 10_000
# A column of numbers with more different values is divided at its quartiles.
_MAX_VALUES_ALONE = 12
# Smaller changes of a share are not described.
_SMALLEST_CHANGE = 0.005


class ColumnDrift(NamedTuple):
    """How one column of new rows differs from the training rows.

    Parameters
    ----------
    column : name of the column, or its position in an array
    kind : str
        "number", "boolean", "ordered", "category", "date", "duration", or "other" for a
        column that is not compared.
    p_value : float
        Of a test whether the values, or the share of missing values, differ; NaN if
        neither is tested.
    change : str
        The largest change, in words.
    missing_share, new_missing_share : float
        Share of missing values among the training rows, and among the new rows.
    new_levels : tuple of str
        Levels of a category that no training row has.
    """

    column: Any
    kind: str
    p_value: float
    change: str
    missing_share: float
    new_missing_share: float
    new_levels: tuple[str, ...]


@dataclass(frozen=True)
class TrainingColumn:
    """Statistics of a column of the training rows.

    Parameters
    ----------
    name : str or int
        Name of the column, or its position in an array.
    kind : str
        As in ``ColumnDrift``.
    n_rows, n_missing : int
        Numbers of rows, and of missing values; of "other" columns only the rows.
    levels : tuple of str
        All levels of a category or boolean.
    counts : ndarray of shape (levels,)
        Number of rows of each level.
    values : ndarray of shape (values,)
        Sorted numbers, seconds, or dates in seconds since 1970: all that are not
        missing, or ``MAX_VALUES`` quantiles of them.
    direction : int
        1 or -1 if the values only rise or only fall from row to row, else 0.
    time_zone : str, optional
        Of ``values``, for dates.
    """

    name: stored.ColumnName
    kind: Annotated[str, Literal[*KINDS, "other"]]
    n_rows: stored.PositiveCount
    n_missing: stored.Count = 0
    levels: Annotated[tuple[str, ...], "levels"] = ()
    counts: Annotated[stored.Integers, "levels", stored.NOT_NEGATIVE] = field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )
    values: Annotated[stored.Floats, "values", stored.SORTED] = field(
        default_factory=lambda: np.zeros(0)
    )
    direction: Annotated[int, stored.between(-1, 1)] = 0
    time_zone: stored.TimeZone | None = None

    def _check_stored(self) -> None:
        if self.direction and not len(self.values):
            raise ValueError(
                "a column that rises or falls from row to row must have values."
            )

    @property
    def has_levels(self) -> bool:
        """Whether shares of levels are compared, instead of numbers."""
        return has_levels(self.kind)


# ---- values


def reader_of(X) -> TableReader | None:
    """Reader of the columns; None if X has none, as a sparse matrix or images."""
    if sparse.issparse(X):
        return None
    try:
        X = with_dtype("X", X)
    except ValueError:  # rows of different lengths
        return None
    return TableReader(X) if len(np.shape(X)) == 2 else None


def with_dtype(name: str, X):
    """A list as an array, of objects if it contains text; other X as they are.

    Raises
    ------
    ValueError
        If the rows of a list have different lengths; the message names X.
    """
    if is_frame(X) or hasattr(X, "dtype"):
        return X
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(
            f"the rows of `{name}` must have the same number of values."
        ) from error
    # NumPy would convert numbers next to text to text.
    return np.array(X, dtype=object) if array.dtype.kind == "U" else array


def column_names(X) -> list[str]:
    """Names of the columns of a frame; "column 0" and so on for an array."""
    reader = TableReader(X)
    if is_frame(X):
        return [str(name) for name in reader.names]
    return [f"column {j}" for j in reader.names]


def kind_of(reader: TableReader, j: int, table=None) -> str:
    """Kind of a column as its model sees it; "other" for free text.

    table : the model's fitted ``TableEncoder``, if it has one
    """
    if table is not None:
        return table.columns_[j].kind
    try:
        return reader[j].kind()
    except ValueError:
        return "other"


def has_levels(kind: str) -> bool:
    """Whether shares of levels are compared, instead of numbers."""
    return kind in KINDS and KINDS[kind].has_levels


def categories_of(reader: TableReader, j: int) -> Categories:
    """Values as categories: sorted levels, or in their order for an ordered column.

    In sorted levels, "shop 2" is before "shop 10".
    """
    data = reader[j].categories()
    levels = reader[j].ordered_levels() or sorted(data.levels, key=_words_and_integers)
    return Categories(data.recoded(levels), tuple(levels))


def _words_and_integers(level: str) -> list:
    parts = re.split(r"([0-9]+)", level)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def shown(value) -> str:
    """Text of a value of a column."""
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return "missing"
        number = float(value)
        is_whole = number.is_integer() and abs(number) < 1e15
        return f"{number:.0f}" if is_whole else f"{number:.6g}"
    return "missing" if value is None else str(value)


def number_text(value: float) -> str:
    """Text of a number: four digits, or an integer with separators from 1,000."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


# ---- training rows


def training_columns(X, table=None) -> list[TrainingColumn]:
    """Statistics of each column, which ``column_drift`` compares with new rows.

    table : the model's fitted ``TableEncoder``, if it has one
    """
    reader = reader_of(X)
    if reader is None:
        return []
    return [_statistics(reader, j, table) for j in range(len(reader.names))]


def _statistics(reader: TableReader, j: int, table) -> TrainingColumn:
    kind = kind_of(reader, j, table)
    column = TrainingColumn(stored_name(reader.names[j]), kind, reader.n_rows)
    if kind == "other":
        return column
    if has_levels(kind):
        data = categories_of(reader, j)
        if len(data.levels) > MAX_COMPARED_LEVELS:
            return replace(column, kind="other")
        counts = np.bincount(data.codes + 1, minlength=len(data.levels) + 1)
        return replace(
            column, n_missing=int(counts[0]), levels=data.levels, counts=counts[1:]
        )
    zone = reader[j].time_zone()
    values = reader[j].numbers_of_kind(kind, zone)
    present = values[~np.isnan(values)]
    ordered = np.sort(present)
    if len(ordered) > MAX_VALUES:
        # Quantiles, with the smallest and the largest value.
        chosen = np.linspace(0, len(ordered) - 1, MAX_VALUES)
        ordered = ordered[chosen.round().astype(int)]
    return replace(
        column,
        n_missing=len(values) - len(present),
        values=ordered,
        direction=_direction(present),
        time_zone=zone,
    )


def _direction(values: np.ndarray) -> int:
    """1 or -1 if values only rise or only fall from row to row, else 0."""
    steps = np.diff(values)
    monotonic = (steps >= 0).all() or (steps <= 0).all()
    if not monotonic or np.count_nonzero(steps) < _MIN_STEPS:
        return 0
    return int(np.sign(values[-1] - values[0]))


def one_way(X) -> list:
    """Names of the columns that only rise or only fall from row to row."""
    reader = reader_of(X)
    if reader is None:
        return []
    names = []
    for j, name in enumerate(reader.names):
        kind = kind_of(reader, j)
        if has_levels(kind) or kind == "other":
            continue
        values = reader[j].numbers_of_kind(kind, reader[j].time_zone())
        if _direction(values[~np.isnan(values)]):
            names.append(name)
    return names


def parts_of_columns(X) -> Iterator[tuple[Any, str, np.ndarray]]:
    """Name of a column, values and rows of each part by the values of the column.

    The parts are levels, single numbers, or quarters of the numbers; and rows with a
    missing value.
    """
    reader = reader_of(X)
    if reader is None:
        return
    for j, name in enumerate(reader.names):
        kind = kind_of(reader, j)
        if has_levels(kind):
            data = categories_of(reader, j)
            codes, texts = data.codes, [*data.levels]
        elif kind != "other":
            values = reader[j].numbers_of_kind(kind, reader[j].time_zone())
            present = values[~np.isnan(values)]
            starts = np.unique(present)
            if len(starts) > _MAX_VALUES_ALONE:
                starts = np.unique(np.quantile(present, [0, 0.25, 0.5, 0.75]))
            codes = np.searchsorted(starts, values, side="right") - 1
            codes[np.isnan(values)] = -1
            in_parts = (values[codes == k] for k in range(len(starts)))
            text_of = _dates if KINDS[kind].is_date else _range
            texts = list(map(text_of, in_parts))
        else:
            continue
        for k, text in enumerate([*texts, MISSING]):
            yield name, text, codes == (k if k < len(texts) else -1)


# ---- comparison


def column_drift(X, columns: Sequence[TrainingColumn]) -> list[ColumnDrift]:
    """Compare each column of new rows with the training rows."""
    reader = reader_of(X)
    if not columns:
        raise TypeError(
            "columns can be compared if `fit` got a frame or a dense array of two "
            "dimensions; it got a sparse matrix, or rows of more dimensions."
        )
    if reader is None:
        raise TypeError(
            "columns can be compared for frames and dense arrays of two dimensions; "
            f"got {type(X).__name__}. Give some rows as `X.toarray()`."
        )
    if len(reader.names) != len(columns):
        raise ValueError(
            f"`X` must have the {len(columns)} columns of `fit`; got "
            f"{len(reader.names)}."
        )
    names = [stored_name(name) for name in reader.names]
    refuse_other_order(names, [column.name for column in columns])
    if not reader.n_rows:
        raise ValueError("`X` must have at least one row; got none.")
    return [_compared(reader, j, column) for j, column in enumerate(columns)]


def _compared(reader: TableReader, j: int, column: TrainingColumn) -> ColumnDrift:
    kind, n_rows = column.kind, (column.n_rows, reader.n_rows)
    if kind == "other":
        text = "not compared: free text or too many levels"
        return ColumnDrift(column.name, kind, np.nan, text, np.nan, np.nan, ())
    new_levels: tuple[str, ...] = ()
    if column.has_levels:
        data = reader[j].categories()
        is_new = [level not in column.levels for level in data.levels]
        new_levels = tuple(np.array(data.levels, dtype=object)[is_new].tolist())
        n_missing = column.n_missing, int((data.codes < 0).sum())
        p_value, change = _compared_levels(column, data, new_levels)
    else:
        values = reader[j].numbers_of_kind(kind, column.time_zone)
        present = values[~np.isnan(values)]
        n_missing = column.n_missing, len(values) - len(present)
        p_value, change = _compared_numbers(column, present)
        if any(n_missing):
            p_missing = _p_of_counts(
                np.array([n_missing, np.subtract(n_rows, n_missing)])
            )
            # Two tests: the smaller p-value is doubled (Bonferroni).
            tested = [p for p in (p_value, p_missing) if not np.isnan(p)]
            p_value = min(1.0, len(tested) * min(tested))
    before, now = np.divide(n_missing, n_rows)
    if abs(now - before) >= _SMALLEST_CHANGE and not change.startswith(MISSING):
        change += f"; missing {now:.0%}, was {before:.0%}"
    return ColumnDrift(
        column.name, kind, p_value, change, float(before), float(now), new_levels
    )


def _compared_numbers(column: TrainingColumn, new: np.ndarray) -> tuple[float, str]:
    """P-value and change of values that are not missing."""
    old, kind = column.values, KINDS[column.kind]
    if not len(old) or not len(new):
        return np.nan, "all values are missing in one of the samples"
    if kind.is_date:
        later, earlier = (new > old[-1]).mean(), (new < old[0]).mean()
        change = f"not tested, {_dates(new)}, was {_dates(old)}"
        shares = (later, "later"), (earlier, "earlier")
        beyond = [f"; {share:.0%} are {word}" for share, word in shares if share]
        return np.nan, change + "".join(beyond)
    change = f"{_middle(new, kind.units)}, was {_middle(old, kind.units)}"
    if column.direction:
        word = "rises" if column.direction > 0 else "falls"
        return np.nan, f"not tested, only {word} from row to row: {change}"
    method = "exact" if len(old) * len(new) <= _MAX_EXACT else "asymp"
    return float(ks_2samp(old, new, method=method).pvalue), change


def _compared_levels(
    column: TrainingColumn, new: Categories, new_levels
) -> tuple[float, str]:
    """P-value and change of the shares of all levels, of which missing is one."""
    levels = [*column.levels, *new_levels]
    old_counts = np.zeros(len(levels) + 1, dtype=int)
    old_counts[0] = column.n_missing
    old_counts[1 : len(column.levels) + 1] = column.counts
    codes = new.recoded(levels)
    counts = np.stack(
        [old_counts, np.bincount(codes + 1, minlength=len(old_counts))], 1
    )
    shares = counts / counts.sum(0)
    names = [MISSING, *map(repr, levels)]
    rise = shares[:, 1] - shares[:, 0]
    # Of two equal changes, the share that is larger now.
    largest = int(np.lexsort([rise, np.abs(rise).round(9)])[-1])
    before, now = shares[largest]
    change = f"{names[largest]} {now:.0%} of the rows, was {before:.0%}"
    if abs(now - before) < _SMALLEST_CHANGE:
        change = "equal shares"
    if new_levels:
        share = shares[len(column.levels) + 1 :, 1].sum()
        listed = ", ".join(map(repr, new_levels[:3])) + ", ..." * (len(new_levels) > 3)
        change += f"; {share:.0%} have new levels: {listed}"
    return _p_of_counts(counts), change


def _p_of_counts(counts: np.ndarray) -> float:
    """P-value of equal shares in two samples; counts : (levels, 2).

    Levels that are rare in a sample are tested together. Fisher's exact test for two
    levels, else the chi-squared test.
    """
    counts = counts[counts.sum(1) > 0]
    smaller = counts.sum(0).min() / max(counts.sum(), 1)
    counts = counts[np.argsort(-counts.sum(1), kind="stable")]
    n_alone = int((counts.sum(1) * smaller >= _MIN_EXPECTED).sum())
    # With Fisher's test the last of two levels may be rare.
    n_alone = max(n_alone, 1)
    together = counts[n_alone:].sum(0)
    if n_alone > 1 and 0 < together.sum() * smaller < _MIN_EXPECTED:
        n_alone -= 1
        together = together + counts[n_alone]
    if together.any():
        counts = np.concatenate([counts[:n_alone], together[None]])
    if len(counts) < 2 or not counts.sum(0).all():
        return 1.0
    if len(counts) == 2:
        return float(fisher_exact(counts).pvalue)
    return float(chi2_contingency(counts, correction=False).pvalue)


def chosen_unit(values: np.ndarray, units: Mapping[str, float]) -> tuple[str, float]:
    """The largest unit of which the largest value has two, or the last; or none."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    chosen = (name for name, unit in units.items() if largest >= 2 * unit)
    name = next(chosen, next(reversed([*units]), ""))
    return name, units.get(name, 1.0)


def _middle(values: np.ndarray, units: Mapping[str, float]) -> str:
    """Median, and the range of the middle half of the values."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    name, unit = chosen_unit(values, units)
    low, middle, high = (f"{value / unit:.4g}" for value in (low, middle, high))
    return f"median {middle}{' ' * bool(name)}{name} (middle half {low} to {high})"


def _range(values: np.ndarray) -> str:
    """Smallest and largest value."""
    ends = dict.fromkeys(map(number_text, (values.min(), values.max())))
    return " to ".join(ends)


def _dates(seconds: np.ndarray) -> str:
    """First and last date of seconds since 1970; with times for less than two days."""
    unit = "D" if np.ptp(seconds) >= 2 * DAY else "s"
    first, last = (
        str(np.datetime64(round(bound), "s").astype(f"datetime64[{unit}]"))
        for bound in (seconds.min(), seconds.max())
    )
    return f"{first} to {last}".replace("T", " ")
