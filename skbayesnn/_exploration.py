"""Predictions of a model along one column of a table, and why a row is uncertain.

These are the numbers and texts of the page of :mod:`skbayesnn.explore`.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._meta.find import described_estimator, find_encoder
from skbayesnn._meta.functions import predict_interval, predict_uncertainty, sample_f
from skbayesnn._report import MAX_COLUMNS_WITH_REASONS, N_REPLACED, uncertainty_without
from skbayesnn.inspection._column_values import (
    changeable_columns,
    number_text,
    shown,
    with_kinds_of,
)
from skbayesnn.inspection._importance import select_target

# Functions of the band of a probability, most classes in a picture, causes of a row,
# rows of the table, and rows that a row is compared with.
N_FUNCTIONS, MAX_CLASSES, N_CAUSES = 200, 5, 3
MAX_ROWS, MAX_COMPARED = 10_000, 500
# Kinds of uncertainty, by whether the model is a classifier.
PARTS = {
    False: {"total": "total", "epistemic": "epistemic", "aleatoric": "aleatoric"},
    True: {
        "total": "entropy",
        "epistemic": "mutual_information",
        "aleatoric": "expected_entropy",
    },
}


class Line(NamedTuple):
    """Mean or probability (points,), and bands: name, lower and upper (points,)."""

    name: str
    middle: np.ndarray
    bands: list[tuple[str, np.ndarray, np.ndarray]]


class Exploration:
    """Predictions of a model for rows of a table, and for changed rows.

    ``changes`` of a row are new values of its columns, by the positions of the columns.
    ``X``, ``X_train`` : frames; without ``X_train``, an encoder of frames contains the
    range of the training rows, and X replaces them for other models.
    """

    def __init__(self, model, X, y=None, X_train=None) -> None:
        if not hasattr(model, "predict"):
            raise TypeError(
                "the model must be a regressor or classifier; got "
                f"{type(model).__name__}."
            )
        if not len(X):
            raise ValueError("the table must have at least one row; got none.")
        self.model, self.is_classifier = model, is_classifier(model)
        self.X, self.y = _columns_of(model, X)[:MAX_ROWS], y
        self.estimator, encoder = described_estimator(model), find_encoder(model)
        if X_train is not None:
            X_train = _columns_of(model, X_train)
        if encoder is not None:
            self.X = with_kinds_of(self.X, encoder)
            X_train = None if X_train is None else with_kinds_of(X_train, encoder)
        self.columns = changeable_columns(self.X, X_train, encoder)
        kinds = {column.kind for column in self.columns}
        self._is_numeric = kinds <= {"number", "boolean"}
        names = "rows of the table", "training rows"
        self.compared_with = names[X_train is not None]
        self.range_of = names[X_train is not None or encoder is not None]
        training = self.X if X_train is None else X_train
        chosen = np.random.RandomState(0).permutation(len(training))[:MAX_COMPARED]
        self._compared = self._inputs(training.iloc[chosen])
        self._of_compared: dict[int, np.ndarray] = {}  # uncertainty, by target
        prediction = np.asarray(model.predict(self._inputs(self.X[:1])))
        self.n_targets = 1 if prediction.ndim == 1 else prediction.shape[1]
        self.lines(self.X[:1], 0)  # raises if there is no distribution

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

    def curve(self, j: int, row: int, changes: Mapping[int, Any], target: int):
        """Values of a column, and the predictions there: a list of lines."""
        grid = self.columns[j].grid((self.row(row) | dict(changes))[j])
        frame = self.changed(row, changes).iloc[[0] * len(grid)].reset_index(drop=True)
        frame.isetitem(j, self.columns[j].series(grid))
        return grid, self.lines(frame, target)

    def lines(self, frame, target: int) -> list[Line]:
        """Predictions of the rows of a frame: one line, or one per class."""
        X = self._inputs(frame)
        if not self.is_classifier:
            mean = select_target("prediction", self.model.predict(X), target)
            bounds = predict_interval(self.model, X, (0.9, 0.5))
            wide, narrow = np.moveaxis(
                select_target("interval", bounds, target, 2), 1, 0
            )
            intervals = [("90 % interval", *wide.T), ("50 % interval", *narrow.T)]
            return [Line("mean", mean, intervals)]
        probability, classes = self.model.predict_proba(X), self.model.classes_
        bands: list[list] = [[] for _ in classes]
        with suppress(TypeError):  # e.g. calibrated afterwards
            draws = sample_f(self.model, X, N_FUNCTIONS)
            bounds = np.quantile(draws, [0.05, 0.95], axis=2).transpose(2, 0, 1)
            bands = [[("90 % of the posterior draws", *b)] for b in bounds]
        chosen = [1] if len(classes) == 2 else np.argsort(-probability.mean(0))
        return [
            Line(str(classes[k]), probability[:, k], bands[k])
            for k in sorted(chosen[:MAX_CLASSES])
        ]

    def most_uncertain(self, target: int) -> list[int]:
        """Rows of the table, the largest epistemic uncertainty first."""
        with suppress(TypeError):  # The model has intervals only.
            values = self._uncertainty(self._inputs(self.X), target)
            return np.argsort(-values, kind="stable").tolist()
        return list(range(len(self.X)))

    def reasons(self, row: int, changes: Mapping[int, Any], target: int):
        """Facts about a row, columns out of the training range, and causes."""
        frame, values = self.changed(row, changes), self.row(row) | dict(changes)
        facts = {}
        for line in self.lines(frame, target):
            kind = "probability of " if self.is_classifier else ""
            facts[kind + line.name] = number_text(line.middle[0])
            for name, (low,), (high,) in line.bands:
                band = f"{number_text(low)} to {number_text(high)}"
                if self.is_classifier:
                    facts[kind + line.name] += f" ({band})"
                else:
                    facts[name] = band
        if self.y is not None and values == self.row(row):
            y = self.y.iat[row, target]
            is_number = isinstance(y, Number) and y == y and not self.is_classifier
            facts["measured"] = number_text(y) if is_number else shown(y)
        outside = [
            f"{column.name} = {shown(values[j])} ({self.range_of}: {words})"
            for j, column in enumerate(self.columns)
            if (words := column.beyond(values[j])) is not None
        ]
        X, causes = self._inputs(frame), []
        try:
            for part in PARTS[self.is_classifier]:
                [value] = self._uncertainty(X, target, part)
                facts[f"{part} uncertainty"] = number_text(value)
            uncertainty = partial(self._uncertainty, target=target)
            [value], compared = uncertainty(X), self._compared_uncertainty(target)
            # A row is not more certain than itself, also up to rounding.
            share = np.mean(compared < 0.999 * value)
            name = f"{self.compared_with} with a smaller epistemic uncertainty"
            facts[name] = f"{100 * share:.0f} %"
            if len(self.columns) <= MAX_COLUMNS_WITH_REASONS:
                others = np.arange(min(N_REPLACED, len(compared)))
                [after] = uncertainty_without(uncertainty, X, self._compared, others)
                causes = [
                    f"{self.columns[j].name} = {shown(values[j])} "
                    f"(\u2212{100 * (1 - after[j] / value):.0f} %)"
                    for j in np.argsort(after)[:N_CAUSES]
                    if after[j] < 0.995 * value
                ]
        except TypeError as error:
            facts["uncertainty"] = f"not available: {error}"
        return facts, outside, causes

    def _compared_uncertainty(self, target: int) -> np.ndarray:
        if target not in self._of_compared:
            self._of_compared[target] = self._uncertainty(self._compared, target)
        return self._of_compared[target]

    def _uncertainty(self, X, target: int, part: str = "epistemic") -> np.ndarray:
        kind = PARTS[self.is_classifier][part]
        return select_target(kind, predict_uncertainty(self.model, X, kind), target)

    def _inputs(self, frame):
        """Rows as the model takes them: without names if it was fitted without."""
        if hasattr(self.model, "feature_names_in_"):
            return frame
        if self._is_numeric:
            return frame.to_numpy(float, na_value=np.nan)
        return frame.to_numpy(object)


def names_in_fit(model) -> list[str]:
    """Names of the columns of the model; empty if they have none, as of an array."""
    if hasattr(model, "feature_names_in_"):
        return list(model.feature_names_in_)
    encoder = find_encoder(model)
    columns = [] if encoder is None else encoder.columns_[: encoder.n_features_in_]
    names = [c.column for c in columns]
    # scikit-learn stores no names that are numbers or pairs.
    return [] if names == [*range(len(names))] else list(map(str, names))


def _columns_of(model, X) -> Any:
    """The columns of a frame that the model uses."""
    names = names_in_fit(model)
    by_name = {str(name): name for name in X.columns}
    missing = [name for name in names if name not in by_name]
    if names and not missing:
        return X[[by_name[name] for name in names]]
    if hasattr(model, "feature_names_in_"):
        raise ValueError(
            "the table must have the columns of the model; it lacks "
            f"{_listed(missing)}. Its columns are {_listed(X.columns)}."
        )
    n_columns = getattr(model, "n_features_in_", X.shape[1])
    if n_columns != X.shape[1]:
        raise ValueError(
            f"the table must have the {n_columns} columns of the model, which have no "
            f"names; got {_listed(X.columns)}. Name targets by --y."
        )
    return X


def _listed(names) -> str:
    names = list(map(str, names))
    return ", ".join(names[:20]) + ", ..." * (len(names) > 20)
