"""Columns of a table, each read once: kinds of values, numbers, levels, dates.

Tables are pandas, polars or pyarrow tables, which narwhals reads in the same way, or
arrays, which may contain objects.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Number, Real
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from scipy import sparse

from skbayesnn._data import _advice
from skbayesnn._data._advice import ISO_DATE, is_iso_date, is_number
from skbayesnn._runtime import warn_once

# A text column is free text if more than this share of its values differ and they have
# at least this many words on average.
_DISTINCT_SHARE = 0.5
_MIN_WORDS = 4.0
# With fewer distinct values, text is taken for categories.
_MIN_TEXTS = 20
# Text of missing values in a column of categories.
MISSING = "missing"


class Kind(NamedTuple):
    """A kind of column.

    Parameters
    ----------
    types : tuple of type
        Types of its values in a column of objects.
    dtypes : tuple of str
        Names of its data types in narwhals, and their codes in NumPy.
    has_levels : bool
        Whether values are compared and drawn by level, instead of as numbers.
    number : str
        What its numbers are as features; empty if it has none.
    suffix : str
        What follows the name of the column in the name of this feature.
    is_date : bool
        Whether its numbers are seconds since 1970. New rows may be later than all rows
        of ``fit``.
    cycles : dict
        Seconds of the periods whose phases are features, too.
    units : dict
        Units of time in which numbers are shown, in seconds; the largest first.
    input_type : type of NumPy
        Of the values that an exported graph takes.
    unit : str
        Of the values that an exported graph takes, if they have one.
    to_number : callable
        Number of a value in a column of objects.
    """

    types: tuple[type, ...]
    dtypes: tuple[str, ...]
    has_levels: bool = False
    number: str = "number"
    suffix: str = ""
    is_date: bool = False
    cycles: Mapping[str, float] = {}
    units: Mapping[str, float] = {}
    input_type: type = np.float64
    unit: str = ""
    to_number: Callable[[Any], float] = float


DAY = 86_400.0


def _seconds(duration) -> float:
    if isinstance(duration, np.timedelta64):
        return float(duration / np.timedelta64(1, "us")) / 1e6
    return duration.total_seconds()


# The first kind with the type of a value is its kind: a timedelta64 is also an integer
# of NumPy.
KINDS = {
    "boolean": Kind((bool, np.bool_), ("Boolean", "b"), has_levels=True),
    "duration": Kind(
        (datetime.timedelta, np.timedelta64),
        ("Duration", "m"),
        number="seconds",
        units={"days": DAY, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0},
        unit="seconds",
        to_number=_seconds,
    ),
    "date": Kind(
        (datetime.date, np.datetime64),
        ("Datetime", "Date", "M"),
        number="elapsed days",
        suffix=".days",
        is_date=True,
        cycles={"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY},
        input_type=np.int64,
        unit="microseconds since 1970, local time",
    ),
    "number": Kind((Real, Decimal, np.integer, np.floating), ("i", "u", "f")),
    "category": Kind(
        (str,),
        ("Categorical", "U"),
        has_levels=True,
        number="",
        input_type=np.object_,
    ),
    "ordered": Kind(
        (),
        ("Enum",),
        has_levels=True,
        number="position of the level",
        input_type=np.object_,
    ),
}
_KIND_OF_DTYPE = {dtype: name for name, kind in KINDS.items() for dtype in kind.dtypes}


def _kind_of_type(t: type) -> str:
    return next((k for k, kind in KINDS.items() if issubclass(t, kind.types)), "other")


@dataclass(frozen=True)
class Categories:
    """A column of categories.

    Parameters
    ----------
    codes : ndarray of shape (rows,), int
        Index of each row's level; -1 for a missing value, and for the text "missing".
    levels : tuple of str
    """

    codes: np.ndarray
    levels: tuple[str, ...]

    def ordered(self, others: Sequence[str] = ()) -> "Categories":
        """The same rows with sorted levels; others : further levels, without rows."""
        levels = tuple(sorted({*self.levels, *others}))
        return Categories(self.recoded(levels), levels)

    def recoded(self, levels: Sequence[str]) -> np.ndarray:
        """Indices in other levels; -1 for missing, -2 for levels not among them."""
        position = {level: i for i, level in enumerate(levels)}
        lookup = np.array([*(position.get(v, -2) for v in self.levels), -1])
        return lookup[self.codes]


class TableColumn:
    """A column of an array.

    Parameters
    ----------
    name : name in a frame, or position in an array
    values : ndarray of shape (rows,)
        Numbers, booleans, times, text or objects.
    """

    _categories: Categories | None = None

    def __init__(self, name, values: np.ndarray):
        self.name, self._given = name, values

    def __len__(self) -> int:
        return len(self._given)

    @cached_property
    def values(self) -> np.ndarray:
        """Values as an array, which is made from a frame only if it is needed."""
        return self._given

    def kind(self) -> str:
        """Kind of data: a key of ``KINDS``.

        Raises
        ------
        ValueError
            If the column contains free text, or values of no such kind.
        """
        return _kind_of_objects(self.values, self.name)

    @property
    def is_single(self) -> bool:
        """Whether it contains float32."""
        return self.values.dtype == np.float32

    def numbers(self) -> np.ndarray:
        """Values as float64, with NaN for missing ones; durations in seconds.

        Raises
        ------
        ValueError
            If a value is not a number.
        """
        return _as_numbers(self.values, self.name)

    def may_be_numbers(self) -> bool:
        """Whether NumPy makes numbers of the values; or refuses them by their type."""
        if self.values.dtype.kind in "mM":
            return False
        try:
            self.values.astype(np.float64)
        except ValueError:
            return False
        except TypeError:
            return True
        return True

    def has_durations(self) -> bool:
        """Whether values are durations, which ``numbers`` returns in seconds."""
        if self.values.dtype.kind != "O":
            return self.values.dtype.kind == "m"
        first = next((v for v in self.values.tolist() if not is_missing(v)), None)
        return _kind_of_type(type(first)) == "duration"

    def categories(self) -> Categories:
        """Values as categories.

        Raises
        ------
        ValueError
            If values are collections, such as lists.
        """
        if self._categories is None:
            self._categories = self._read_categories()
        return self._categories

    def _read_categories(self) -> Categories:
        return _as_categories(self.values, self.name)

    def ordered_levels(self) -> list[str]:
        """All levels in their order; none if the column does not declare one."""
        return []

    def is_complete_number(self) -> bool:
        """Whether the column contains numbers or booleans, and all of them."""
        is_number = self.kind() in ("number", "boolean")
        return is_number and not np.isnan(self.numbers()).any()

    def time_zone(self) -> str | None:
        """Time zone of a column of dates; None of other columns."""
        return _zone_of_objects(self.values, self.name)

    def dates(self, time_zone: str | None = None) -> np.ndarray:
        """Local dates and times, (rows,), datetime64[us].

        time_zone : of the result; None if the values have none

        Raises
        ------
        ValueError
            If only the values or only the result have a time zone, or if a value is not
            a date.
        """
        return _as_dates(self.values, time_zone, self.name)

    def numbers_of_kind(
        self, kind: str, time_zone: str | None = None, levels: Sequence[str] = ()
    ) -> np.ndarray:
        """Numbers of the values, (rows,); NaN if missing.

        These are seconds since 1970 of dates, and positions of ordered levels.

        time_zone : of dates
        levels : of an ordered column

        Raises
        ------
        ValueError
            If a value is infinite, or of another kind.
        """
        if kind == "date":
            dates = self.dates(time_zone)
            return np.where(np.isnat(dates), np.nan, dates.astype(np.int64) / 1e6)
        if kind == "ordered":
            index = self.categories().recoded(levels).astype(np.float64)
            return np.where(index < 0, np.nan, index)
        values = self.numbers()
        if np.isinf(values).any():
            raise ValueError(
                "X must be finite or missing; Input X contains infinity or a value too "
                f"large in column {self.name!r}. Replace it by NaN if the value is "
                "unknown."
            )
        is_duration = kind == "duration"
        if self.has_durations() != is_duration and not np.isnan(values).all():
            kinds, way = _advice.DURATIONS if is_duration else _advice.NO_DURATIONS
            raise ValueError(
                f"column {self.name!r} must contain {kinds[0]}, as in `fit`; got "
                f"{kinds[1]}. Convert it with {way}, in the right unit."
            )
        return values


class _SeriesColumn(TableColumn):
    """A column of a frame: a series of narwhals, whose data type may tell its kind."""

    def __init__(self, name, series):
        super().__init__(name, series)
        self._series, self._dtype = series, series.dtype
        self._dtype_name = type(self._dtype).__name__

    @cached_property
    def values(self):
        import narwhals.stable.v2 as narwhals

        if not self._has_numbers:
            series = self._series
            if self._dtype_name == "Categorical" and (
                narwhals.get_native_namespace(series).__name__ == "pyarrow"
            ):
                # Missing values of dictionary arrays are lost in `to_numpy`.
                series = series.cast(narwhals.String)
            return np.asarray(series.to_numpy())
        values = self._series.to_numpy()
        if values.dtype.kind in "biuf":
            return values
        # Such as booleans with missing values.
        return self._series.cast(narwhals.Float64).to_numpy()

    def kind(self):
        if self._dtype.is_numeric():
            return "number"
        if self._dtype_name == "Categorical" and _is_ordered(self._series):
            return "ordered"
        if self._dtype_name in _KIND_OF_DTYPE:
            return _KIND_OF_DTYPE[self._dtype_name]
        if self._dtype.is_nested():
            raise _odd_kind(self._dtype_name, self.name)
        return super().kind()

    @property
    def is_single(self):
        return self._dtype_name == "Float32"

    @property
    def _has_numbers(self) -> bool:
        return self._dtype.is_numeric() or self._dtype_name == "Boolean"

    def may_be_numbers(self):
        if self._has_numbers:
            return True
        is_time = self.values.dtype.kind in "mM"
        return not is_time and all(
            value is None or isinstance(value, Number) for value in self.values.tolist()
        )

    def _read_categories(self):
        categorical = _pandas_categorical(self._series)
        if categorical is not None:
            return _merged(categorical.codes, categorical.categories.tolist())
        if self._has_numbers and self._series.null_count():
            # In float64, integers above 2**53 would become equal, and True would be 1.
            return _as_categories(objects_of(self._series), self.name)
        return super()._read_categories()

    def ordered_levels(self):
        if self.kind() != "ordered":
            return []
        categorical = _pandas_categorical(self._series)
        if categorical is not None:
            return [_level(v) for v in categorical.categories.tolist()]
        return [_level(v) for v in self._series.cat.get_categories().to_list()]

    def is_complete_number(self):
        may_be = self._has_numbers or self._dtype_name in ("Object", "Unknown")
        return may_be and super().is_complete_number()

    def time_zone(self):
        if self._dtype_name in ("Datetime", "Date"):
            return getattr(self._dtype, "time_zone", None)
        return super().time_zone()

    def dates(self, time_zone=None):
        if getattr(self._dtype, "time_zone", None) is None:
            return super().dates(time_zone)
        _check_zone(self.time_zone(), time_zone, self.name)
        local = self._series.dt.convert_time_zone(time_zone).dt.replace_time_zone(None)
        return local.to_numpy().astype("datetime64[us]")


class TableReader:
    """The columns of a table by position: a sequence of ``TableColumn``.

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array-like of shape (rows, columns)

    Attributes
    ----------
    names : list
        Names of the columns of a frame; positions for an array.
    n_rows : int

    Raises
    ------
    ValueError
        If several columns of a frame have one name.
    """

    def __init__(self, X):
        self.n_rows = len(X)
        self.names: list[Any]
        self._columns: list[TableColumn]
        if is_frame(X):
            refuse_repeated_names(X)
            import narwhals.stable.v2 as narwhals

            # The columns of a pyarrow table are arrays.
            self.names = list(getattr(X, "column_names", X.columns))
            frame = narwhals.from_native(X, eager_only=True)
            if hasattr(X, "iloc"):
                # Most columns of pandas are arrays, which take less time.
                self._columns = [
                    TableColumn(name, series.to_numpy())
                    if getattr(series.dtype, "kind", "") in "biufmM"
                    and isinstance(series.dtype, np.dtype)
                    else _SeriesColumn(name, frame.get_column(name))
                    for name, series in X.items()
                ]
            else:
                columns = zip(self.names, frame.iter_columns(), strict=True)
                self._columns = [_SeriesColumn(*column) for column in columns]
        else:
            values = np.asarray(X)
            self.names = list(range(values.shape[1]))
            self._columns = [TableColumn(j, values[:, j]) for j in self.names]

    def __iter__(self) -> Iterator[TableColumn]:
        return iter(self._columns)

    def __getitem__(self, j: int) -> TableColumn:
        return self._columns[j]

    @property
    def dtype(self) -> type:
        """Precision of the features: float32 if all columns are float32."""
        all_single = all(column.is_single for column in self._columns)
        return np.float32 if self._columns and all_single else np.float64


def is_frame(X) -> bool:
    """Whether X is a table in memory that narwhals can read."""
    if not hasattr(X, "columns"):
        return False
    from narwhals.stable.v2 import dependencies

    return dependencies.is_into_dataframe(X)


def refuse_repeated_names(X) -> None:
    """Raise if several columns of a frame have one name."""
    names = getattr(X, "columns", ())
    if getattr(names, "is_unique", False):  # of pandas, at once
        return
    names = getattr(X, "column_names", names)  # of pyarrow
    if len(set(names)) == len(names):
        return
    counts = Counter(names)
    repeated = [repr(name) for name in counts if counts[name] > 1]
    way_out = "Rename them"
    if hasattr(X, "iloc"):
        way_out += ", or drop them: X.loc[:, ~X.columns.duplicated()]"
    raise ValueError(
        f"the columns of X must have different names; got {_advice.listed(repeated)} "
        f"more than once. {way_out}."
    )


def first_text(values: np.ndarray) -> tuple[int, str] | None:
    """Position and value of the first text, if possible of one that is no number."""
    texts = [(i, v) for i, v in enumerate(values.tolist()) if isinstance(v, str)]
    others = (found for found in texts if not is_number(found[1]))
    return next(others, texts[0] if texts else None)


def _is_ordered(series) -> bool:
    """Whether a categorical column of pyarrow is ordered."""
    return bool(getattr(getattr(series.to_native(), "type", None), "ordered", False))


def _pandas_categorical(series):
    """The ``pandas.Categorical`` of a narwhals series; None for other columns."""
    native = series.to_native()
    is_categorical = getattr(getattr(native, "dtype", None), "name", "") == "category"
    return native.array if is_categorical else None


def is_missing(value) -> bool:
    """Whether a value is None, NaN, NaT or a missing value of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return False


def objects_of(series) -> np.ndarray:
    """Values of a narwhals series as an array of objects, which are exact."""
    return np.array([*series.to_list(), None], dtype=object)[:-1]


def _kind_of_objects(values: np.ndarray, name) -> str:
    """Kind of a column by its values."""
    kind = _KIND_OF_DTYPE.get(values.dtype.kind)
    present: list = []
    if values.dtype.kind == "O":
        present = [v for v in values.tolist() if not is_missing(v)]
        kind = _kind_of_values(present, name)
    elif values.dtype.kind == "U":
        present = values.tolist()
    if kind is None:
        raise _odd_kind(str(values.dtype), name)
    if kind != "category":
        return kind
    texts = [v for v in present if isinstance(v, str)]
    if texts and len(texts) == len(present) and _are_dates(list(set(texts))):
        return "date"
    _check_text(texts, name)
    return kind


def _are_dates(texts: list[str]) -> bool:
    """Whether all texts are dates in ISO format, such as 2024-02-29 10:30."""
    return _without_zone(texts) is not None or all(map(is_iso_date, texts))


def _without_zone(texts: list) -> np.ndarray | None:
    """Dates of texts in ISO format without time zones, or None: fast.

    texts : None for a missing value
    """
    if not all(text is None or ISO_DATE.fullmatch(text) for text in texts):
        return None
    try:
        return np.array(texts, dtype="datetime64[us]")
    except ValueError:  # e.g. month 13
        return None


def _kind_of_values(values: list, name) -> str:
    """Kind of a column by its values that are not missing."""
    kinds = {t: _kind_of_type(t) for t in {type(value) for value in values}}
    odd = sorted(t.__name__ for t, kind in kinds.items() if kind == "other")
    found = set(kinds.values())
    mixed = [kind for kind in ("category", "number", "boolean") if kind in found]
    if odd or (len(found) > 1 and len(mixed) < len(found)):
        names = odd or sorted(t.__name__ for t in kinds)
        raise _odd_kind(" and ".join(names), name)
    return next(iter([*mixed, *found]), "number")


def _odd_kind(got: str, name) -> ValueError:
    return ValueError(
        "every column of X must contain values of one kind: numbers, booleans, "
        f"categories, text, dates or durations; got {got} in column {name!r}. Convert "
        "the column, or drop it."
    )


def _check_text(texts: list[str], name) -> None:
    """Raise if a column contains sentences; warn if it contains numbers or dates."""
    distinct = list(dict.fromkeys(texts))
    is_long = len(distinct) >= _MIN_TEXTS
    found = _advice.about_text(distinct, is_long)
    if found is not None:
        content, way = found
        warn_once(
            "SKB204",
            f"text in column {name!r}",
            f"column {name!r} contains text that seems to represent {content} and is "
            f"read as categories. If it does: {way} If the values are categories, name "
            f"the column: categorical_features=[{name!r}].",
        )
        return
    n_words = np.mean([len(text.split()) for text in distinct]) if distinct else 0
    different = len(distinct) >= _DISTINCT_SHARE * len(texts)
    if is_long and different and n_words >= _MIN_WORDS:
        raise ValueError(
            f"column {name!r} contains free text, {len(distinct)} different values "
            f"such as {texts[0][:40]!r}. {_advice.ENCODE_TEXT}\n"
            "If the values are categories, name the column: "
            f"categorical_features=[{name!r}]."
        )


def _as_numbers(values: np.ndarray, name) -> np.ndarray:
    if values.dtype.kind == "m":
        seconds = values.astype("timedelta64[us]").astype(np.float64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    out = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if not is_missing(value):
            out[i] = _as_number(values, i, name)
    return out


def _as_number(values: np.ndarray, row: int, name) -> float:
    value = values[row]
    kind = _kind_of_type(type(value))
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return KINDS[kind].to_number(value) if kind in KINDS else float(value)
    except (TypeError, ValueError) as error:
        way = ""
        if isinstance(value, str):
            value, way = str(value), f" {_advice.NUMBERS.format('column')}"
        raise ValueError(
            f"column {name!r} must contain numbers, as in `fit`; got {value!r} in row "
            f"{row}.{way}"
        ) from error


def _as_categories(values: np.ndarray, name) -> Categories:
    if values.dtype.kind in "mM":  # The text does not depend on the unit.
        values = values.astype(f"{values.dtype.kind}8[us]")
    if values.dtype.kind in "biufUmM":
        distinct, codes = np.unique(values, return_inverse=True)
        return _merged(codes.ravel(), distinct.tolist())
    index: dict[Any, int] = {}
    keys = values.tolist()
    if not {bool, np.bool_}.isdisjoint(map(type, keys)):
        # True equals 1, but is another level.
        keys = [v if is_missing(v) else _level(v) for v in keys]
    try:
        codes = np.fromiter(
            (index.setdefault(key, len(index)) for key in keys), np.intp, len(keys)
        )
    except TypeError as error:
        kinds = {type(v).__name__ for v in keys if type(v).__hash__ is None}
        raise _odd_kind(" and ".join(sorted(kinds)), name) from error
    return _merged(codes, list(index))


def _merged(codes: np.ndarray, keys: Iterable) -> Categories:
    """Categories of distinct objects, some of which may be the same level: 1 and 1.0.

    codes : index of each row's object; -1 for a missing value
    """
    levels: dict[str, int] = {}
    lookup = [
        -1
        if is_missing(key) or (level := _level(key)) == MISSING
        else levels.setdefault(level, len(levels))
        for key in keys
    ]
    return Categories(np.array([*lookup, -1], dtype=np.intp)[codes], tuple(levels))


def _level(value) -> str:
    """Text of a level; a float that is an integer is written as the integer.

    Columns of integers become columns of floats if values are missing.
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _as_dates(values: np.ndarray, zone: str | None, name) -> np.ndarray:
    """Local dates and times in a zone, datetime64[us]."""
    values = _parsed(values)
    if values.dtype.kind == "M":
        if not np.isnat(values).all():
            _check_zone(None, zone, name)
        return values.astype("datetime64[us]")
    dates = values.tolist()
    odd = [
        (row, value)
        for row, value in enumerate(dates)
        if not (value is None or isinstance(value, datetime.date | np.datetime64))
    ]
    if odd:
        row, value = odd[0]
        raise ValueError(
            f"column {name!r} must contain dates, as in `fit`; got {value!r} in row "
            f"{row}, and {len(odd) - 1} others. {_advice.DATES}"
        )
    if any(value is not None for value in dates):
        _check_zone(_zone_of_objects(values, name), zone, name)
    if zone is not None:
        dates = [None if v is None else _local(v, _zone(zone), name) for v in dates]
    return np.array(dates, dtype="datetime64[us]")


def _local(date: datetime.datetime, zone: datetime.tzinfo, name) -> datetime.datetime:
    """Local time in a zone, without the zone."""
    try:
        return date.astimezone(zone).replace(tzinfo=None)
    except OverflowError as error:
        raise ValueError(
            f"the dates of column {name!r} must be between the years 1 and 9999 in the "
            f"time zone {zone}; got {str(date)!r}. Replace it by a missing value."
        ) from error


def _parsed(values: np.ndarray) -> np.ndarray:
    """Dates in place of text in ISO format, among dates and missing values."""
    if values.dtype.kind == "M":
        return values
    objects = [None if is_missing(value) else value for value in values.tolist()]
    if {type(value) for value in objects} <= {str, type(None)}:
        dates = _without_zone(objects)
        if dates is not None:
            return dates
    parsed = np.empty(len(objects), dtype=object)
    parsed[:] = [
        datetime.datetime.fromisoformat(value)
        if isinstance(value, str) and is_iso_date(value)
        else value
        for value in objects
    ]
    return parsed


def _zone_of_objects(values: np.ndarray, name) -> str | None:
    """Time zone of dates; UTC if they have several, or one without a name."""
    if values.dtype.kind not in "OU":
        return None
    values = _parsed(values)
    if values.dtype.kind == "M":
        return None
    zones = {
        getattr(value, "tzinfo", None) for value in values.tolist() if value is not None
    }
    if zones <= {None}:
        return None
    if None in zones:
        raise ValueError(
            f"the dates of column {name!r} must have a time zone, or none of them; got "
            "both. Convert them, for instance with pandas.to_datetime(column, "
            "format='ISO8601', utc=True)."
        )
    zone = str(zones.pop())
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return "UTC"
    return "UTC" if zones else zone


def _zone(name: str) -> datetime.tzinfo:
    return datetime.UTC if name == "UTC" else ZoneInfo(name)


def _check_zone(zone: str | None, wanted: str | None, name) -> None:
    """Raise if only one of two time zones is None."""
    if (zone is None) != (wanted is None):
        raise ValueError(
            f"the dates of column {name!r} must have "
            f"{f'a time zone ({wanted} in `fit`)' if wanted else 'no time zone'}, as "
            f"in `fit`; got {zone or 'none'}."
        )


def groups_of(X, column) -> np.ndarray:
    """Text of the values of a column of X, (rows,); missing values are a group, too.

    column : its name, or its position in an array

    Raises
    ------
    ValueError
        If X has no such column.
    """
    reader = None if sparse.issparse(X) or len(np.shape(X)) != 2 else TableReader(X)
    if reader is None or column not in reader.names:
        names = ["none"] if reader is None else [*map(repr, reader.names)]
        raise ValueError(
            "`groups` must be the name of a column of X, or its position in a dense "
            f"array; got {column!r}, and columns {_advice.listed(names, 20)}."
        )
    data = reader[reader.names.index(column)].categories()
    return np.array([*data.levels, MISSING], dtype=np.str_)[data.codes]
