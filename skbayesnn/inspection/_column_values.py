"""Values of columns as numbers and text that a control shows, and back in a frame."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skbayesnn._data.column_encoding import ALL_MISSING
from skbayesnn._data.scaling import common_range
from skbayesnn.inspection._columns import (
    TrainingColumn,
    categories_of,
    numbers_of,
    reader_of,
    training_columns,
)

# Points of a curve, and most levels in a picture.
N_POINTS, MAX_LEVELS = 101, 25


def changeable_columns(X, X_train=None, encoder=None) -> list["ChangeableColumn"]:
    """The columns of a frame of pandas, compared with the training rows.

    X_train : None takes the ranges of the training rows from ``encoder``, the model's
        fitted ``TableEncoder``; without an encoder X are the training rows
    """
    import pandas

    statistics = training_columns(X if X_train is None else X_train, encoder)
    if encoder is not None and X_train is None:
        pairs = zip(statistics, encoder._columns, strict=True)
        statistics = [_with_range_of(*pair) for pair in pairs]
    frames = [X] if X_train is None else [X, X_train]
    cells = pandas.concat(frames, ignore_index=True)
    reader = reader_of(cells)
    return [
        ChangeableColumn(reader, j, cells.iloc[:, j], statistics[j])
        for j in range(cells.shape[1])
    ]


def with_kinds_of(X, encoder):
    """A frame of pandas whose text has the kinds of a fitted ``TableEncoder``.

    In CSV files, ordered categories and durations are text.
    """
    import pandas

    X = X.copy()
    for j, column in enumerate(encoder._columns):
        text = X.iloc[:, j]
        if column.kind == "duration" and not hasattr(text, "dt"):
            X.isetitem(j, pandas.to_timedelta(text))
        elif column.kind == "ordered" and not hasattr(text, "cat"):
            known = dict.fromkeys(column.levels)
            levels = [*known, *sorted({*text.dropna().astype(str)} - {*known})]
            text = text.astype(str).where(text.notna())
            X.isetitem(j, pandas.Categorical(text, levels, ordered=True))
    return X


def _with_range_of(column: TrainingColumn, fitted) -> TrainingColumn:
    """Statistics with the levels, or the bounds, that an encoder was fitted to."""
    column = replace(column, n_missing=fitted.n_missing)
    named = fitted.levels if column.kind == "ordered" else fitted.named
    if levels := (*named, *fitted.rare):
        return replace(column, levels=levels)
    is_missing = fitted.encoding == ALL_MISSING
    # At least one training row has a value, unless all are missing.
    column = replace(
        column, n_rows=fitted.n_missing + (not is_missing), time_zone=fitted.time_zone
    )
    if is_missing:
        return replace(column, values=np.zeros(0))
    bounded = np.isfinite(fitted.bounds).all()  # not if the column is constant
    return replace(column, values=np.array(fitted.bounds)) if bounded else column


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


class ChangeableColumn:
    """A column that can be changed: its ``cells``, and statistics of training rows.

    A value is a number (seconds of a duration), text of a date or a level, or None if
    it is missing.
    """

    def __init__(self, reader, j: int, cells, training: TrainingColumn) -> None:
        self.training, self.kind, self._cells = training, training.kind, cells
        name = training.name if isinstance(training.name, str) else f"column {j}"
        self.name = name + " (seconds)" * (self.kind == "duration")
        self.has_slider = self.kind in ("number", "duration")
        self.levels: dict[str | None, int] = {}  # position of a cell with each level
        if training.has_levels or self.kind == "other":
            data = categories_of(reader, j, self.kind)
            self._values: Any = np.array([*data.levels, None], object)[data.codes]
            levels, cells_of = np.unique(data.codes, return_index=True)
            # Missing values, with code -1, come last.
            cells_of = np.roll(cells_of, -int(levels[0] < 0))
            self.levels = {self._values[cell]: cell for cell in cells_of.tolist()}
            n_rows = Counter(self._values)
            self._common = [v for v, _ in n_rows.most_common(MAX_LEVELS)]
            self.optional = None in self.levels
            return
        self._values = numbers_of(reader, j, self.kind, training.time_zone)
        present = self._values[~np.isnan(self._values)]
        self.optional = len(present) < len(self._values)
        # The table may have few values within the range of the training rows.
        present = np.append(present, training.values)
        present = present if len(present) else np.zeros(1)
        low, high = common_range(present[:, np.newaxis])
        usual = present[(low <= present) & (present <= high)]
        self.range = float(present.min()), float(present.max())
        self.usual_range = float(usual.min()), float(usual.max())
        # A step of the slider, and decimal places of a hundredth of it.
        span = self.usual_range[1] - self.usual_range[0]
        self.is_whole = self.kind != "date" and bool((present % 1 == 0).all())
        self._step = 10.0 ** np.floor(np.log10(span / 50)) if span else 1.0
        self._step = max(1.0, self._step) if self.is_whole else self._step
        self._digits = max(0, 2 - int(np.floor(np.log10(self._step))))

    def at(self, row: int) -> Any:
        """Value of a row."""
        return self._values[row] if self.levels else self.value(self._values[row])

    def value(self, number: float) -> Any:
        """Value of a number; of seconds since 1970 for a date."""
        if np.isnan(number) or self.kind != "date":
            return None if np.isnan(number) else round(float(number), self._digits)
        date = str(np.datetime64(round(number), "s")).replace("T", " ")
        return date.removesuffix(" 00:00:00")

    def number(self, value) -> float:
        """Number of a value."""
        if value is None or self.kind != "date":
            return np.nan if value is None else float(value)
        try:
            # NumPy would take "today" and "NaT", too.
            if not value.strip()[:1].isdigit():
                raise ValueError(value)
            date = np.datetime64(value.strip().replace(" ", "T"), "s")
        except ValueError as error:
            raise ValueError(
                f"{self.name} must be a date such as 2024-05-31; got {value!r}."
            ) from error
        return float(date.astype(np.int64))

    def slider(self) -> tuple[float, float, float]:
        """Ends and step, within the usual range: short numbers."""
        low, high = self.usual_range
        if low < high:
            low = np.ceil(low / self._step) * self._step
            high = np.floor(high / self._step) * self._step
        return round(low, self._digits), round(high, self._digits), self._step

    def grid(self, value) -> list:
        """Values of a curve, with this one."""
        if self.levels:
            return [v for v in self.levels if v in (*self._common, value, None)]
        # The usual range gets as many points as the range with outliers.
        ranges = self.usual_range, self.range
        grid = np.concatenate([np.linspace(*ends, N_POINTS) for ends in ranges])
        grid = np.append(grid.round() if self.is_whole else grid, self.number(value))
        return [self.value(number) for number in np.unique(grid[~np.isnan(grid)])]

    def series(self, values: Sequence) -> Any:
        """Values as a column of a frame."""
        if self.levels:
            cells = self._cells.iloc[[self.levels[value] for value in values]]
            return cells.reset_index(drop=True)
        import pandas

        numbers = np.array([self.number(value) for value in values])
        if self.kind == "number":
            is_single = self._cells.dtype == np.float32
            return pandas.Series(numbers, dtype=np.float32 if is_single else float)
        if self.kind not in ("date", "duration"):
            raise NotImplementedError(f"values of columns of kind {self.kind!r}")
        unit = "datetime64[us]" if self.kind == "date" else "timedelta64[us]"
        times = pandas.Series((numbers * 1e6).round().astype(unit))
        if (zone := self.training.time_zone) is None:
            return times
        # A local time may occur twice, or not at all, when clocks change.
        first = np.ones(len(times), dtype=bool)
        return times.dt.tz_localize(zone, first, "shift_forward")

    def beyond(self, value) -> str | None:
        """How a value differs from the values of the training rows, in words."""
        training = self.training
        if value is None or self.levels:
            known = (*training.levels, *[None] * bool(training.n_missing))
            if value in known or self.kind == "other":
                return None
            return f"never {'missing' if value is None else 'this level'}"
        if not len(training.values):
            is_missing = training.n_missing == training.n_rows
            return "always missing" if is_missing else None
        low, high = (self.value(number) for number in training.values[[0, -1]])
        if self.number(low) <= self.number(value) <= self.number(high):
            return None
        return f"{shown(low)} to {shown(high)}"
