"""Read the columns of a table: kinds of data, missing values, categories, dates.

Tables are pandas, polars or pyarrow tables, which narwhals reads in the same way, or
arrays, which may contain objects.
"""

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

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


class TableReader:
    """The columns of a table by position.

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
        self._frame: Any = X if is_frame(X) else None
        refuse_repeated_names(self._frame)
        self.names: list[Any]
        if self._frame is None:
            self._array = np.asarray(X)
            self.names = list(range(self._array.shape[1]))
        else:  # The columns of a pyarrow table are arrays.
            self.names = list(getattr(X, "column_names", X.columns))
        self.n_rows = len(X)
        self._categories: dict[int, Categories] = {}

    @cached_property
    def _series(self) -> list:
        """The columns of a frame: converted once, since that takes much of the time."""
        import narwhals.stable.v2 as narwhals

        return list(narwhals.from_native(self._frame, eager_only=True).iter_columns())

    @cached_property
    def _dtypes(self) -> list:
        """Data types of the columns of a frame."""
        return [series.dtype for series in self._series]

    @property
    def dtype(self) -> type:
        """Precision of the features: float32 if all columns are float32."""
        if self._frame is None:
            return np.float32 if self._array.dtype == np.float32 else np.float64
        dtypes = {type(dtype).__name__ for dtype in self._dtypes}
        return np.float32 if dtypes == {"Float32"} else np.float64

    def kind(self, j: int) -> str:
        """Kind of data: "number", "boolean", "category", "ordered", "date", "duration".

        Raises
        ------
        ValueError
            If a column contains free text, or values of no such kind.
        """
        name = self.names[j]
        if self._frame is None:
            return _kind_of_objects(self._array[:, j], name)
        series, dtype = self._series[j], self._dtypes[j]
        if dtype.is_numeric():
            return "number"
        dtype_name = type(dtype).__name__
        if dtype_name == "Categorical" and _is_ordered(series):
            return "ordered"
        kinds = {
            "Boolean": "boolean",
            "Enum": "ordered",
            "Categorical": "category",
            "Datetime": "date",
            "Date": "date",
            "Duration": "duration",
        }
        if dtype_name in kinds:
            return kinds[dtype_name]
        if dtype.is_nested():
            raise _odd_kind(dtype_name, name)
        return _kind_of_objects(_objects(series), name)

    def numbers(self, j: int) -> np.ndarray:
        """Values as float64, with NaN for missing ones; durations in seconds.

        Raises
        ------
        ValueError
            If a value is not a number.
        """
        if self._frame is None:
            return _as_numbers(self._array[:, j], self.names[j])
        import narwhals.stable.v2 as narwhals

        series, dtype = self._series[j], self._dtypes[j]
        if dtype.is_numeric() or dtype == narwhals.Boolean:
            values = series.to_numpy()
            if values.dtype.kind not in "biuf":  # such as booleans with missing values
                values = series.cast(narwhals.Float64).to_numpy()
            return values.astype(np.float64)
        return _as_numbers(_objects(series), self.names[j])

    def has_durations(self, j: int) -> bool:
        """Whether values are durations, which ``numbers`` returns in seconds."""
        values = self._array[:, j] if self._frame is None else None
        if values is None:
            dtype_name = type(self._dtypes[j]).__name__
            if dtype_name not in ("Object", "Unknown"):
                return dtype_name == "Duration"
            values = _objects(self._series[j])
        if values.dtype.kind != "O":
            return values.dtype.kind == "m"
        first = next((v for v in values.tolist() if not is_missing(v)), None)
        return _kind_of_type(type(first)) == "duration"

    def categories(self, j: int) -> Categories:
        """Values as categories.

        Raises
        ------
        ValueError
            If values are collections, such as lists.
        """
        if j not in self._categories:
            self._categories[j] = self._read_categories(j)
        return self._categories[j]

    def _read_categories(self, j: int) -> Categories:
        if self._frame is None:
            return _as_categories(self._array[:, j], self.names[j])
        series = self._series[j]
        categorical = _pandas_categorical(series)
        if categorical is not None:
            return _merged(categorical.codes, categorical.categories.tolist())
        if self._dtypes[j].is_integer() and series.null_count():
            # In float64, integers above 2**53 would become equal.
            values = np.array([*series.to_list(), None], dtype=object)[:-1]
            return _as_categories(values, self.names[j])
        return _as_categories(_objects(series), self.names[j])

    def ordered_levels(self, j: int) -> list[str]:
        """All levels of an ordered column, in their order."""
        series = self._series[j]
        categorical = _pandas_categorical(series)
        if categorical is not None:
            return [_level(v) for v in categorical.categories.tolist()]
        return [_level(v) for v in series.cat.get_categories().to_list()]

    def values(self, j: int) -> np.ndarray:
        """Values of a column as they are, (rows,), of objects for a frame."""
        return self._array[:, j] if self._frame is None else _objects(self._series[j])

    def is_complete_number(self, j: int) -> bool:
        """Whether a frame's column contains numbers or booleans, and all of them."""
        series, dtype = self._series[j], self._dtypes[j]
        dtype_name = type(dtype).__name__
        numeric = dtype.is_numeric() or dtype_name == "Boolean"
        if dtype_name in ("Object", "Unknown"):
            numeric = self.kind(j) in ("number", "boolean")
            return numeric and not np.isnan(self.numbers(j)).any()
        if not numeric or series.null_count():
            return False
        return dtype_name not in ("Float32", "Float64") or not bool(
            series.is_nan().any()
        )

    def time_zone(self, j: int) -> str | None:
        """Time zone of a column of dates."""
        if self._frame is None:
            return _zone_of_objects(self._array[:, j], self.names[j])
        series, dtype = self._series[j], self._dtypes[j]
        if type(dtype).__name__ in ("Datetime", "Date"):
            return getattr(dtype, "time_zone", None)
        return _zone_of_objects(_objects(series), self.names[j])

    def dates(self, j: int, time_zone: str | None = None) -> np.ndarray:
        """Local dates and times, (rows,), datetime64[us].

        time_zone : of the result; None if the values have none

        Raises
        ------
        ValueError
            If only the values or only the result have a time zone, or if a value is not
            a date.
        """
        name = self.names[j]
        if self._frame is None:
            return _as_dates(self._array[:, j], time_zone, name)
        series = self._series[j]
        if getattr(self._dtypes[j], "time_zone", None) is None:
            return _as_dates(_objects(series), time_zone, name)
        _check_zone(self.time_zone(j), time_zone, name)
        local = series.dt.convert_time_zone(time_zone).dt.replace_time_zone(None)
        return local.to_numpy().astype("datetime64[us]")


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
    repeated = [name for name in counts if counts[name] > 1]
    listed = ", ".join(map(repr, repeated[:10])) + ", ..." * (len(repeated) > 10)
    way_out = "Rename them"
    if hasattr(X, "iloc"):
        way_out += ", or drop them: X.loc[:, ~X.columns.duplicated()]"
    raise ValueError(
        f"the columns of X must have different names; got {listed} more "
        f"than once. {way_out}."
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


def _objects(series) -> np.ndarray:
    """Values of a narwhals series: an array of objects, dates or durations."""
    import narwhals.stable.v2 as narwhals

    if narwhals.get_native_namespace(series).__name__ == "pyarrow" and (
        series.dtype == narwhals.Categorical
    ):
        # Missing values of dictionary arrays are lost in `to_numpy`.
        series = series.cast(narwhals.String)
    return np.asarray(series.to_numpy())


def is_missing(value) -> bool:
    """Whether a value is None, NaN, NaT or a missing value of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return False


def _kind_of_objects(values: np.ndarray, name) -> str:
    """Kind of a column by its values."""
    by_dtype = {"b": "boolean", "M": "date", "m": "duration", "U": "category"}
    kind = by_dtype.get(values.dtype.kind, "number")
    present: list = []
    if values.dtype.kind == "O":
        present = [v for v in values.tolist() if not is_missing(v)]
        kind = _kind_of_values(present, name)
    elif values.dtype.kind == "U":
        present = values.tolist()
    elif values.dtype.kind not in "iufbMm":
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
    if odd or (len(found) > 1 and found & {"date", "duration"}):
        names = odd or sorted(t.__name__ for t in kinds)
        raise _odd_kind(" and ".join(names), name)
    for kind in ("category", "number", "date", "duration", "boolean"):
        if kind in found:
            return kind
    return "number"


def _kind_of_type(t: type) -> str:
    # A timedelta64 is an integer of NumPy.
    kinds: dict[str, Any] = {
        "boolean": bool | np.bool_,
        "duration": datetime.timedelta | np.timedelta64,
        "date": datetime.date | np.datetime64,
        "number": Real | Decimal | np.integer | np.floating,
        "category": str,
    }
    return next((k for k, types in kinds.items() if issubclass(t, types)), "other")


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
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "us")) / 1e6
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        way = ""
        if isinstance(value, str):
            value, way = str(value), f" {advice_for_texts(values, 'column')}"
        raise ValueError(
            f"column {name!r} must contain numbers, as in `fit`; got {value!r} in row "
            f"{row}.{way}"
        ) from error


def advice_for_texts(values: np.ndarray, column: str) -> str:
    """How to make numbers of the texts among some values; column : as Python code."""
    texts = [value for value in values.tolist() if isinstance(value, str)]
    return _advice.for_numbers(texts, column)


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
    present = [value for value in dates if value is not None]
    odd = [
        (row, value)
        for row, value in enumerate(dates)
        if not (value is None or isinstance(value, datetime.date | np.datetime64))
    ]
    if odd:
        row, value = odd[0]
        texts = [v for _, v in odd if isinstance(v, str)]
        types = {type(v) for _, v in odd}
        kinds = {
            "number" if _kind_of_type(t) == "number" else t.__name__ for t in types
        }
        way = _advice.for_dates(texts, kinds, len(odd) < len(present))
        raise ValueError(
            f"column {name!r} must contain dates, as in `fit`; got {value!r} in row "
            f"{row}, and {len(odd) - 1} others. {way}"
        )
    if present:
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
