"""Predictions of a model along one column of a table, and why a row is uncertain.

These are the pictures and texts of the page of :mod:`skbayesnn.explore`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._data._advice import listed
from skbayesnn._data.columns import TableReader
from skbayesnn._data.scaling import common_range
from skbayesnn._meta.find import described_estimator, find_encoder
from skbayesnn._meta.functions import predict_interval, predict_uncertainty, sample_f
from skbayesnn._report import MAX_COLUMNS_WITH_REASONS, N_PERMUTATIONS, new_axes
from skbayesnn.inspection import _columns
from skbayesnn.inspection._attributions import (
    attributions,
    default_kind,
    reasons,
    select_target,
)
from skbayesnn.inspection._columns import TrainingColumn, number_text, shown
from skbayesnn.plotting import ClassProbabilityDisplay, PredictionIntervalDisplay
from skbayesnn.plotting._axes import GREY
from skbayesnn.plotting._rows import MAX_SHOWN_LEVELS, name_of_target, select_feature

# Points of a curve, and most levels in a picture besides a missing one and the row's.
N_POINTS, MAX_LEVELS = 101, MAX_SHOWN_LEVELS - 2
# Posterior draws, most classes among the facts, causes of a row, rows of the table, and
# rows that a row is compared with.
N_DRAWS, MAX_CLASSES, N_CAUSES, MAX_ROWS, MAX_COMPARED = 100, 5, 3, 10_000, 500


class Exploration:
    """Predictions of a model for rows of a table, and for changed rows.

    ``changes`` of a row are new values of its columns, by the positions of the columns.
    The model's encoder contains the ranges of the training rows. Without an encoder,
    the rows of the frame ``X`` replace them.
    """

    def __init__(self, model, X, y=None) -> None:
        if not hasattr(model, "predict"):
            name = type(model).__name__
            raise TypeError(f"the model must be a regressor or classifier; got {name}.")
        if not len(X):
            raise ValueError("the table must have at least one row; got none.")
        self.model, self.is_classifier, self.y = model, is_classifier(model), y
        self.estimator, encoder = described_estimator(model), find_encoder(model)
        self.X, self.range_of = columns_of(model, X)[:MAX_ROWS], "rows of the table"
        ranges = _columns.training_columns(self.X, encoder)
        if encoder is not None:
            self.range_of = "training rows"
            ranges = list(map(_range_of_fit, ranges, encoder._columns))
        self.columns = [ChangeableColumn(self.X, *pair) for pair in enumerate(ranges)]
        chosen = np.random.RandomState(0).permutation(len(self.X))[:MAX_COMPARED]
        self._compared = self._inputs(self.X.iloc[chosen])
        first = self._inputs(self.X[:1])
        self.n_targets = np.asarray(model.predict(first)).reshape(1, -1).shape[1]
        self._uncertainty(first, 0)  # raises if there is no distribution

    def row(self, row: int) -> dict[int, Any]:
        """Values of a row."""
        return {j: column.at(row) for j, column in enumerate(self.columns)}

    def changed(self, row: int, changes: Mapping[int, Any]) -> Any:
        """A row of the table with other values, as a frame."""
        frame, old = self.X.iloc[[row]].reset_index(drop=True), self.row(row)
        for j, value in changes.items():
            if value != old[j]:
                frame.isetitem(j, self.columns[j].series([value]))
        return frame

    def curve(self, j: int, row: int, changes: Mapping[int, Any], target: int) -> Any:
        """A display of the predictions along a column, with a mark at the row."""
        column, value = self.columns[j], (self.row(row) | dict(changes))[j]
        grid = column.grid(value)
        frame = self.changed(row, changes).iloc[[0] * len(grid)].reset_index(drop=True)
        frame.isetitem(j, column.series(grid))
        X, drawn = self._inputs(frame), select_feature(frame, frame.columns[j])
        drawn["ax"] = new_axes()
        display: Any
        if self.is_classifier:
            probability, labels = sample_f(self.model, X, N_DRAWS), self.model.classes_
            drawn["classes"] = labels[_most_probable(probability.mean((0, 2)))]
            display = ClassProbabilityDisplay.from_predictions(
                probability, labels, **drawn
            )
        else:
            interval = predict_interval(self.model, X, (0.5, 0.9))
            drawn |= {"target": target, "y_name": name_of_target(self.y, target)}
            display = PredictionIntervalDisplay.from_predictions(
                None, self.model.predict(X), interval, **drawn
            )
        if value in grid:
            display.ax_.axvline(display.x[grid.index(value)], color=GREY, ls=":")
        return display

    def most_uncertain(self) -> list[int]:
        """Rows of the table, the largest epistemic uncertainty of target 0 first."""
        values = self._uncertainty(self._inputs(self.X), 0)
        return np.argsort(-values, kind="stable").tolist()

    def reasons(self, row: int, changes: Mapping[int, Any], target: int):
        """Facts about a row, and columns in words.

        The lists of columns: those that raise or lower the prediction, or the
        probability of the likeliest class; that make it uncertain; and that have values
        out of the training range.
        """
        values = self.row(row) | dict(changes)
        X = self._inputs(self.changed(row, changes))
        facts = self._prediction(X, target)
        if self.y is not None and values == self.row(row):
            facts["measured"] = shown(self.y.iat[row, target])
        texts = [f"{c.name} = {shown(values[j])}" for j, c in enumerate(self.columns)]
        outside = [
            f"{text} ({self.range_of}: {words})"
            for j, text in enumerate(texts)
            if (words := self.columns[j].beyond(values[j])) is not None
        ]
        of: Any = "mean"
        if self.is_classifier:
            [probability] = self.model.predict_proba(X)
            of = "probability", self.model.classes_[probability.argmax()]
        of_prediction = self._reasons(X, of, target, texts, both_signs=True)
        suffix = "" if self.is_classifier else " uncertainty"
        for kind, of_kind in predict_uncertainty(self.model, X, "all").items():
            [value] = select_target(kind, of_kind, target)
            facts[kind.replace("_", " ") + suffix] = number_text(value)
        [value] = self._uncertainty(X, target)
        compared = self._uncertainty(self._compared, target)
        # A row is not more certain than itself, also up to rounding.
        share = 100 * np.mean(compared < 0.999 * value)
        facts["rows of the table with a smaller epistemic uncertainty"] = (
            f"{share:.0f} %"
        )
        causes = self._reasons(X, default_kind(self.model), target, texts)
        return facts, of_prediction, causes, outside

    def _reasons(self, X, of, target: int, texts, both_signs=False) -> list[str]:
        """Texts of the columns with the largest contributions to a value of one row."""
        if len(texts) > MAX_COLUMNS_WITH_REASONS:
            return []
        result = attributions(
            self.model,
            X,
            background=self._compared,
            of=of,
            n_permutations=N_PERMUTATIONS,
            target=target,
        )
        [found] = reasons(result, [texts], both_signs)
        return found[:N_CAUSES]

    def _prediction(self, X, target: int) -> dict[str, str]:
        """Texts of the prediction of one row."""
        if self.is_classifier:
            [probability] = self.model.predict_proba(X)
            return {
                f"probability of {self.model.classes_[k]}": number_text(probability[k])
                for k in _most_probable(probability)
            }
        [mean] = select_target("prediction", self.model.predict(X), target)
        bounds = predict_interval(self.model, X, (0.9, 0.5))
        [intervals] = select_target("interval", bounds, target, 2)
        texts = [f"{number_text(a)} to {number_text(b)}" for a, b in intervals]
        names = "mean", "90 % interval", "50 % interval"
        return dict(zip(names, (number_text(mean), *texts), strict=True))

    def _uncertainty(self, X, target: int) -> np.ndarray:
        kind = default_kind(self.model)
        return select_target(kind, predict_uncertainty(self.model, X, kind), target)

    def _inputs(self, frame):
        """Rows as the model takes them: without names if it was fitted without."""
        if hasattr(self.model, "feature_names_in_"):
            return frame
        if {column.kind for column in self.columns} <= {"number", "boolean"}:
            return frame.to_numpy(float, na_value=np.nan)
        return frame.to_numpy(object)


def _most_probable(probability: np.ndarray) -> list[int]:
    """Classes that are shown: the second of two, or the most probable ones."""
    is_binary = len(probability) == 2
    return [1] if is_binary else sorted(np.argsort(-probability)[:MAX_CLASSES].tolist())


# ---- columns


class ChangeableColumn:
    """A column of a frame whose values can be changed, and its training range.

    A value is a number (seconds of a duration), text of a date or a level, or None if
    it is missing.
    """

    def __init__(self, table, j: int, training: TrainingColumn) -> None:
        self.training, self.kind = training, training.kind
        self._cells = table.iloc[:, j]
        reader = TableReader(self._cells.to_frame())
        name = training.name if isinstance(training.name, str) else f"column {j}"
        self.name = name + " (seconds)" * (self.kind == "duration")
        self.levels: dict[str | None, int] = {}  # position of a cell with each level
        if training.has_levels or self.kind == "other":
            data = _columns.categories_of(reader, 0)
            levels = np.array([*data.levels, None], object)
            self._values: Any = levels[data.codes]
            cell = {level: i for i, level in enumerate(self._values)}
            self.levels = {level: cell[level] for level in levels if level in cell}
        else:
            zone = training.time_zone
            self._values = reader[0].numbers_of_kind(self.kind, zone)

    def at(self, row: int) -> Any:
        """Value of a row."""
        return self._values[row] if self.levels else self.value(self._values[row])

    def value(self, number: float) -> Any:
        """Value of a number; of seconds since 1970 for a date."""
        if np.isnan(number) or self.kind != "date":
            return None if np.isnan(number) else float(f"{number:.9g}")
        date = str(np.datetime64(round(number), "s")).replace("T", " ")
        return date.removesuffix(" 00:00:00")

    def numbers(self, values: Sequence) -> np.ndarray:
        """Numbers of values, NaN for missing ones."""
        if self.kind != "date":
            return np.array(values, dtype=float)
        try:
            dates = np.array(values, dtype="datetime64[s]")
        except ValueError as error:
            raise ValueError(
                f"{self.name} must be a date such as 2024-05-31. ({error})"
            ) from error
        return np.where(np.isnat(dates), np.nan, dates.astype(float))

    def grid(self, value) -> list:
        """Values of a curve: the range without outliers, and this value."""
        if self.levels:
            common = dict(Counter(self._values).most_common(MAX_LEVELS))
            return [v for v in self.levels if v in (*common, value, None)]
        # The table may have few values within the range of the training rows.
        known = np.append(self._values, self.training.values)
        known = known[~np.isnan(known)] if (known == known).any() else np.zeros(1)
        low, high = common_range(known[:, np.newaxis])
        usual = known[(low <= known) & (known <= high)]
        grid = np.linspace(usual.min(), usual.max(), N_POINTS)
        is_whole = self.kind != "date" and (known % 1 == 0).all()
        grid = np.append(grid.round() if is_whole else grid, self.numbers([value]))
        return [self.value(number) for number in np.unique(grid[~np.isnan(grid)])]

    def series(self, values: Sequence) -> Any:
        """Values as a column of a frame."""
        if self.levels:
            cells = self._cells.iloc[[self.levels[value] for value in values]]
            return cells.reset_index(drop=True)
        import pandas

        numbers = self.numbers(values)
        if self.kind not in ("date", "duration"):
            return pandas.Series(numbers)
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
            return None
        # Rounded, as values are.
        ends = [self.value(number) for number in training.values[[0, -1]]]
        low, number, high = self.numbers([ends[0], value, ends[1]])
        return None if low <= number <= high else " to ".join(map(shown, ends))


def _range_of_fit(column: TrainingColumn, fitted) -> TrainingColumn:
    """Statistics with the levels, or the bounds, that an encoder was fitted to."""
    named = fitted.levels if column.kind == "ordered" else fitted.named
    has_bounds = np.isfinite(fitted.bounds).all()  # not if the column is constant
    return replace(
        column,
        n_missing=fitted.n_missing,
        levels=(*named, *fitted.rare) or column.levels,
        values=np.array(fitted.bounds) if has_bounds else column.values,
        time_zone=fitted.time_zone,
    )


def columns_of(model, X) -> Any:
    """The columns of a frame that the model uses."""
    names = list(getattr(model, "feature_names_in_", ()))
    missing = [name for name in names if name not in X]
    if missing:
        raise ValueError(
            f"the table must have the columns of the model; it lacks {listed(missing)}."
        )
    n_columns = getattr(model, "n_features_in_", X.shape[1])
    if not names and n_columns != X.shape[1]:
        raise ValueError(
            f"the table must have the {n_columns} columns of the model, which have no "
            f"names; its columns are {listed(X.columns)}. Name targets by --y."
        )
    return X[names] if names else X
