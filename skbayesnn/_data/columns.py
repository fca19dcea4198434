"""Read the columns of a table: kinds of data, missing values, categories, dates.

Tables are pandas, polars or pyarrow tables, which narwhals reads in the same way, or
arrays, which may contain objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

# A text column is free text if more than this share of its values differ and they have
# at least this many words on average.
_DISTINCT_SHARE = 0.5
_MIN_WORDS = 4.0
# With fewer distinct values, text is taken for categories.
_MIN_TEXTS = 20


@dataclass(frozen=True)
class Categories:
    """A column of categories.

    Parameters
    ----------
    codes : ndarray of shape (rows,), int
        Index of each row's level; -1 for a missing value.
    levels : tuple of str
    """

    codes: np.ndarray
    levels: tuple[str, ...]

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
    """

    def __init__(self, X):
        self._frame = None
        if is_frame(X):
            import narwhals.stable.v2 as narwhals

            self._frame = narwhals.from_native(X, eager_only=True)
            self.names: list[Any] = list(self._frame.columns)
            self.n_rows = len(self._frame)
        else:
            self._array = np.asarray(X)
            self.names = list(range(self._array.shape[1]))
            self.n_rows = len(self._array)

    def kind(self, j: int) -> str:
        """Kind of data: "number", "boolean", "category", "ordered", "date", "duration".

        Raises
        ------
        ValueError
            If a column contains free text, or values of no such kind.
        """
        if self._frame is None:
            column = self._array[:, j]
            if column.dtype.kind in "iuf":
                return "number"
            return _kind_of_objects(column, self.names[j])
        series = self._series(j)
        dtype = series.dtype
        name = type(dtype).__name__
        if dtype.is_numeric():
            return "number"
        if name == "Categorical" and _is_ordered(series):
            return "ordered"
        kinds = {
            "Boolean": "boolean",
            "Enum": "ordered",
            "Categorical": "category",
            "Datetime": "date",
            "Date": "date",
            "Duration": "duration",
        }
        if name in kinds:
            return kinds[name]
        return _kind_of_objects(_objects(series), self.names[j])

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

        series = self._series(j)
        if series.dtype.is_numeric() or series.dtype == narwhals.Boolean:
            return series.cast(narwhals.Float64).to_numpy().astype(np.float64)
        return _as_numbers(_objects(series), self.names[j])

    def categories(self, j: int) -> Categories:
        """Values as categories, with the levels in order of appearance."""
        if self._frame is None:
            return _as_categories(self._array[:, j])
        return _as_categories(_objects(self._series(j)))

    def ordered_levels(self, j: int) -> list[str]:
        """All levels of an ordered column, in their order."""
        series = self._series(j)
        return [_level(v) for v in series.cat.get_categories().to_list()]

    def is_complete_number(self, j: int) -> bool:
        """Whether a frame's column contains numbers or booleans, and all of them."""
        series = self._series(j)
        numeric = series.dtype.is_numeric() or type(series.dtype).__name__ == "Boolean"
        if type(series.dtype).__name__ == "Object":
            numeric = self.kind(j) in ("number", "boolean")
        if not numeric or series.null_count():
            return False
        return type(series.dtype).__name__ not in ("Float32", "Float64") or not bool(
            series.is_nan().any()
        )

    def time_zone(self, j: int) -> str | None:
        """Time zone of a column of dates."""
        if self._frame is None:
            return None
        return getattr(self._series(j).dtype, "time_zone", None)

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
            values = _as_dates(self._array[:, j], name)
            return _without_zone(values, None, time_zone, name)
        series = self._series(j)
        zone = self.time_zone(j)
        if zone is not None and time_zone is not None:
            local = series.dt.convert_time_zone(time_zone).dt.replace_time_zone(None)
            return local.to_numpy().astype("datetime64[us]")
        return _without_zone(_as_dates(_objects(series), name), zone, time_zone, name)

    def _series(self, j: int):
        assert self._frame is not None
        return self._frame[self.names[j]]


def is_frame(X) -> bool:
    """Whether X is a pandas, polars or pyarrow table."""
    return hasattr(X, "columns") and (
        hasattr(X, "dtypes") or hasattr(X, "schema") or hasattr(X, "__dataframe__")
    )


def _is_ordered(series) -> bool:
    """Whether a categorical column of pyarrow is ordered."""
    return bool(getattr(getattr(series.to_native(), "type", None), "ordered", False))


def _objects(series) -> np.ndarray:
    """Values of a narwhals series: an array of objects, dates or durations."""
    import narwhals.stable.v2 as narwhals

    if narwhals.get_native_namespace(series).__name__ == "pyarrow" and (
        series.dtype == narwhals.Categorical
    ):
        # Missing values of dictionary arrays are lost in `to_numpy`.
        series = series.cast(narwhals.String)
    return np.asarray(series.to_numpy())


def _is_missing(value) -> bool:
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
    if values.dtype.kind == "O":
        present = [value for value in values if not _is_missing(value)]
        kind = _kind_of_values(present, name)
    if kind == "category":
        _refuse_free_text(values, name)
    return kind


def _kind_of_values(values: list, name) -> str:
    import datetime

    types = {type(value) for value in values}
    if all(issubclass(t, bool | np.bool_) for t in types):
        return "boolean" if types else "number"
    if all(issubclass(t, Number | np.number) for t in types):
        return "number"
    if all(issubclass(t, datetime.date | np.datetime64) for t in types):
        return "date"
    if all(issubclass(t, datetime.timedelta | np.timedelta64) for t in types):
        return "duration"
    if all(issubclass(t, str | Number | np.number | np.bool_) for t in types):
        return "category"
    odd = next(v for v in values if not isinstance(v, str | Number))
    raise ValueError(
        "every column of X must contain numbers, booleans, categories, text or dates; "
        f"got {type(odd).__name__} in column {name!r}. Convert the column, or drop it."
    )


def _refuse_free_text(values: np.ndarray, name) -> None:
    """Raise if a column contains sentences instead of categories."""
    distinct = {value for value in values.tolist() if isinstance(value, str)}
    n_present = sum(isinstance(value, str) for value in values.tolist())
    if len(distinct) < max(_MIN_TEXTS, _DISTINCT_SHARE * n_present):
        return
    n_words = np.mean([len(text.split()) for text in distinct])
    if n_words < _MIN_WORDS:
        return
    example = next(value for value in values if isinstance(value, str))
    raise ValueError(
        f"column {name!r} contains free text, {len(distinct)} different values such as "
        f"{example[:40]!r}. Encode it in a pipeline:\n"
        "    from skrub import TableVectorizer\n"
        "    make_pipeline(TableVectorizer(), estimator)\n"
        f"If the values are categories, name the column: categorical_features=[{name!r}"
        "]."
    )


def _as_numbers(values: np.ndarray, name) -> np.ndarray:
    if values.dtype.kind == "m":
        seconds = values.astype("timedelta64[us]").astype(np.float64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    out = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if not _is_missing(value):
            out[i] = _as_number(value, name)
    return out


def _as_number(value, name) -> float:
    import datetime

    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "us")) / 1e6
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"column {name!r} must contain numbers, as in `fit`; got {value!r}."
        ) from error


def _as_categories(values: np.ndarray) -> Categories:
    index: dict[Any, int] = {}
    if values.dtype.kind in "biufUSmM":
        distinct, codes = np.unique(values, return_inverse=True)
        keys = distinct.tolist()
    else:
        codes = np.fromiter(
            (index.setdefault(value, len(index)) for value in values.tolist()),
            dtype=np.intp,
            count=len(values),
        )
        keys = list(index)
    # Different objects may be the same level, such as 1 and 1.0.
    levels: dict[str, int] = {}
    lookup = [
        -1 if _is_missing(key) else levels.setdefault(_level(key), len(levels))
        for key in keys
    ]
    codes = np.array(lookup, dtype=np.intp)[codes.ravel()]
    return Categories(codes, tuple(levels))


def _level(value) -> str:
    """Text of a level; a float that is an integer is written as the integer.

    Columns of integers become columns of floats if values are missing.
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _as_dates(values: np.ndarray, name) -> np.ndarray:
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    dates = [None if _is_missing(value) else value for value in values.tolist()]
    try:
        return np.array(dates, dtype="datetime64[us]")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"column {name!r} must contain dates, as in `fit`; got "
            f"{next(v for v in dates if v is not None)!r}."
        ) from error


def _without_zone(values, zone: str | None, wanted: str | None, name) -> np.ndarray:
    """Values as they are, if they have no time zone or all values are missing."""
    if zone == wanted or np.isnat(values).all():
        return values
    raise ValueError(
        f"the dates of column {name!r} must have "
        f"{f'a time zone ({wanted} in `fit`)' if wanted else 'no time zone'}, as in "
        f"`fit`; got {zone or 'none'}."
    )
