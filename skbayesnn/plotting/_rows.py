"""Positions of rows on the x axis: sorted, or by a column of X; and targets of y."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skbayesnn._data.columns import KINDS, MISSING, is_frame
from skbayesnn.inspection._attributions import select_target, short_names
from skbayesnn.inspection._columns import (
    categories_of,
    chosen_unit,
    column_names,
    has_levels,
    kind_of,
    reader_of,
)
from skbayesnn.metrics._validation import as_floats
from skbayesnn.plotting._axes import Display, plain, short_label

# Most levels of a category on an axis; the others share a position.
MAX_SHOWN_LEVELS = 20
# Share of the space between two levels that the rows of a level take.
LEVEL_WIDTH = 0.7
# Longest label of a level, and most characters of all labels in one line.
LONGEST_LEVEL, MAX_IN_LINE = 20, 60


@dataclass(kw_only=True, repr=False, eq=False)
class RowsDisplay(Display):
    """A display with the rows on the x axis, sorted or at positions ``x``.

    The last four parameters of its subclasses.
    """

    x: Any = None
    x_name: str | None = None
    x_levels: Any = None
    joined: bool = True

    def __post_init__(self) -> None:
        self.joined = self.joined and self.x_levels is None

    def _on_axis(self, ax, order_by, sorted_name) -> tuple[np.ndarray, np.ndarray]:
        """Order of the rows, and their positions; label the x axis.

        Rows of one level are spread around its position, in the order of ``order_by``.

        order_by : (rows,), values that the rows are sorted by if there is no ``x``
        """
        x, x_name = self.x, self.x_name or "x"
        if x is None:
            ax.set_xlabel(sorted_name)
            integer_ticks(ax)
            return np.argsort(order_by, kind="stable"), np.arange(len(order_by))
        ax.set_xlabel(x_name)
        if self.x_levels is not None:
            in_line = sum(map(len, self.x_levels)) <= MAX_IN_LINE
            style = {} if in_line else {"rotation": 45, "ha": "right"}
            n_levels = len(self.x_levels)
            ax.set_xticks(range(n_levels), self.x_levels, **style)
            ax.set_xlim(-0.6, n_levels - 0.4)
            order = np.lexsort([order_by, x])
            return order, _spread(x[order])
        if x.dtype.kind == "M":
            from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

            locator = AutoDateLocator(maxticks=7)
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        n_missing = int((x != x).sum())
        if n_missing:
            text = f"{n_missing} of {len(x)} rows have no value, not shown"
            ax.set_xlabel(f"{x_name} ({text})")
        order = np.argsort(x, kind="stable")[: len(x) - n_missing]
        return order, x[order]


def _spread(levels: np.ndarray) -> np.ndarray:
    """Spread sorted positions of rows evenly around their level."""
    _, counts = np.unique(levels, return_counts=True)
    offsets = [LEVEL_WIDTH * ((np.arange(n) + 0.5) / n - 0.5) for n in counts]
    return levels + np.concatenate(offsets)


def integer_ticks(ax) -> None:
    """Put ticks of the x axis at integers only, for an axis that counts rows."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))


def check_positions(x, n_rows) -> np.ndarray | None:
    """Check ``x`` of a display, numbers or dates; None stays None."""
    if x is None:
        return None
    x = np.asarray(x)
    if x.dtype.kind != "M":
        x = x.astype(np.float64)
    if x.shape != (n_rows,):
        raise ValueError(
            f"`x` must have one number or date per row, shape ({n_rows},); got "
            f"{x.shape}."
        )
    return x


# ---- targets of y


def y_of_target(y, target) -> np.ndarray:
    """Select one target of y: its column, or y itself if it has one axis."""
    y = as_floats("y", y)
    return select_target("y", y, target if y.ndim == 2 else None)


def name_of_target(y, target) -> str:
    """Name of a series, or of the target's column of a frame; "y" if it has none."""
    name: Any = getattr(y, "name", None)
    if is_frame(y):
        names = column_names(y)
        [position] = select_target("y", [np.arange(len(names))], target)
        name = names[int(position)]
    return name if isinstance(name, str) and name else "y"


# ---- a column of X


def select_feature(X, feature) -> dict[str, Any]:
    """Positions of the rows by a column of X, as keywords of ``RowsDisplay``.

    Rows may be joined if no other column of X varies.

    feature : int or str
        Name or index of a column.

    Raises
    ------
    ValueError
        If X does not have the feature, or the feature is free text.
    """
    reader = reader_of(X)
    names = getattr(reader, "names", list(range(np.shape(X)[1])))
    index = names.index(feature) if feature in names else feature
    if isinstance(index, str) or not -len(names) <= index < len(names):
        named = names and isinstance(names[0], str)
        raise ValueError(
            f"`feature` must be a column of X; got {feature!r} for X of shape "
            f"{X.shape}" + (f" with columns {names}." if named else " without names.")
        )
    if reader is None:  # sparse
        x = X[:, [index]].toarray().ravel().astype(np.float64)
        name, joined = f"feature {index}", _n_varying(X, reader) <= 1
        return {"x": x, "x_name": name, "joined": joined}
    index %= len(names)
    kind = kind_of(reader, index)
    name = column_names(X)[index] if is_frame(X) else f"feature {index}"
    name = short_label(name, 60)
    if kind == "other":
        raise ValueError(
            f"`feature` must contain numbers, dates or categories; got {feature!r}, "
            "which is free text. Give positions as `x` to `from_predictions`."
        )
    if has_levels(kind):
        x, levels = _level_positions(reader, index)
        return {"x": x, "x_name": name, "x_levels": levels}
    column = reader[index]
    x = column.numbers_of_kind(kind, column.time_zone())
    if KINDS[kind].is_date:
        milliseconds = np.where(np.isnan(x), 0, np.round(1000 * x)).astype(np.int64)
        dates = milliseconds.astype("datetime64[ms]")
        x = np.where(np.isnan(x), np.datetime64("NaT"), dates)
    elif KINDS[kind].units:
        unit, seconds = chosen_unit(x, KINDS[kind].units)
        x, name = x / seconds, f"{name} ({unit})"
    return {"x": x, "x_name": name, "joined": _n_varying(X, reader) <= 1}


def _level_positions(reader, j: int) -> tuple[np.ndarray, list[str]]:
    """Positions of the rows by their levels, and the names of the positions.

    Rare levels share a position if there are many, and missing values come last.
    """
    data = categories_of(reader, j)
    counts = np.bincount(data.codes[data.codes >= 0], minlength=len(data.levels))
    shown, n_rare = np.flatnonzero(counts), 0
    if len(shown) > MAX_SHOWN_LEVELS:
        by_count = shown[np.argsort(-counts[shown], kind="stable")]
        n_rare = len(shown) - (MAX_SHOWN_LEVELS - 1)
        shown = np.sort(by_count[: MAX_SHOWN_LEVELS - 1])
    labels = short_names([data.levels[i] for i in shown], LONGEST_LEVEL)
    labels = [plain(label) for label in labels]
    # Positions of all levels, and of missing values at the end.
    position = np.full(len(data.levels) + 1, float(len(shown)))
    position[shown] = np.arange(len(shown))
    if n_rare:
        labels.append(f"{n_rare} other levels")
    if (data.codes < 0).any():
        position[-1] = len(labels)
        labels.append(MISSING)
    return position[data.codes], labels


def _n_varying(X, reader) -> int:
    """Number of columns that are not constant."""
    if reader is None:
        X = X.tocsc()
        return int((X.max(axis=0).toarray() != X.min(axis=0).toarray()).sum())
    columns = (column.categories() for column in reader)
    return sum(len(np.unique(data.codes)) > 1 for data in columns)
