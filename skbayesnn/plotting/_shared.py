"""Shared parts of the displays: colours, axes, and positions of rows on them."""

from typing import Any, NamedTuple

import numpy as np

from skbayesnn._data.columns import MISSING, is_frame
from skbayesnn._data.scaling import common_range
from skbayesnn.inspection._column_values import number_text
from skbayesnn.inspection._columns import (
    categories_of,
    column_names,
    kind_of,
    numbers_of,
    reader_of,
    unit_of_time,
)
from skbayesnn.inspection._importance import select_target, short_names

# Colours for colour-blind readers (Okabe & Ito), with grey instead of yellow, which is
# faint on white.
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
COLORS = (
    BLUE,
    VERMILION,
    GREEN,
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
)
# For curves that may overlap.
LINE_STYLES = ("-", "--", "-.", ":")
# With more rows than this, points and bars are rasterised in vector graphics.
MANY = 1000
# An axis shows everything, unless its range is more than this many times the range
# without outliers.
LONGEST = 4
# Values are skewed if their median is in this share of the axis, at its lower end.
SKEWED = 0.2
# Most levels of a category on an axis; the others share a position.
MAX_SHOWN_LEVELS = 20
# Share of the space between two levels that the rows of a level take.
LEVEL_WIDTH = 0.7
# Longest label of a level, and most characters of all labels in one line.
LONGEST_LEVEL, MAX_IN_LINE = 20, 60
# Space about a legend, in inches.
LEGEND_PAD = 0.06


def require_matplotlib(caller):
    """Raise an ImportError with the install command, before any computation.

    caller : str
        Method that needs it, such as "PredictionIntervalDisplay.plot".
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{caller} requires matplotlib. You can install it with "
            '`pip install "skbayesnn[plot]"`.'
        ) from error


def axes_for(display, ax):
    """Return the axes to draw on, new for None; set ``ax_`` and ``figure_``."""
    require_matplotlib(f"{type(display).__name__}.plot")
    if ax is None:
        import matplotlib.pyplot as plt

        # Constrained layout keeps long labels from being cut off.
        _, ax = plt.subplots(layout="constrained")
    display.ax_, display.figure_ = ax, ax.figure
    return ax


def styled(artist, given, **defaults):
    """Merge default keywords for an artist with the user's keywords.

    artist : {"Line2D", "PolyCollection"}
        Class that defines the short names ("c", "lw").
    given : dict or None
        The user's keywords, which override the defaults.
    """
    from matplotlib import cbook, collections, lines

    artist_class = getattr(lines, artist, None) or getattr(collections, artist)
    return defaults | cbook.normalize_kwargs(given or {}, artist_class)


def next_color(ax):
    """The first of ``COLORS`` that no line on the axes uses."""
    from matplotlib.colors import to_hex

    used = {to_hex(line.get_color()).upper() for line in ax.get_lines()}
    return next((color for color in COLORS if color.upper() not in used), COLORS[0])


def legend_on_top(ax, **kwargs):
    """Place a legend at the top of the axes, and make room for it above the data."""
    style = {"loc": "upper left", "columnspacing": 1, "handlelength": 1.2} | kwargs
    room, dpi = ax.get_window_extent(), ax.figure.dpi
    for n_columns in (5, 4, 3, 2, 1):
        legend = ax.legend(ncols=n_columns, **style)
        box = legend.get_window_extent().padded(LEGEND_PAD * dpi)
        if box.width < room.width:
            break
    for handle in legend.legend_handles:
        if hasattr(handle, "set_markersize"):
            handle.set_markersize(max(handle.get_markersize(), 4))
    if ax.get_autoscaley_on():
        scale = ax.yaxis.get_transform()  # linear or logarithmic
        low, high = scale.transform(ax.get_ylim())
        share = min(box.height / room.height, 0.6)
        limits = low, low + (high - low) / (1 - share)
        # auto=None: later artists still move the limits.
        ax.set_ylim(scale.inverted().transform(limits), auto=None)


def plain(name: str) -> str:
    """A name as matplotlib shows it: no formula between dollars, and no blank.

    Legends leave out labels that begin with an underscore, so a space is put before.
    """
    name = name.replace("$", r"\$") if name.strip() else repr(name)
    return f" {name}" if name.startswith("_") else name


def short_label(name: str, longest: int) -> str:
    """A name as matplotlib shows it, with its middle cut out if it is long."""
    return plain(*short_names([name], longest))


def marker_size(n_rows):
    """Size of a marker in points: smaller with more rows."""
    return float(np.clip(60 / np.sqrt(n_rows), 1.5, 6))


def bar_width(n_rows):
    """Width of a row's bar in points: smaller with more rows."""
    return float(np.clip(300 / n_rows, 0.5, 4))


def y_of_target(y, target) -> np.ndarray:
    """Select one target of y: its column, or y itself if it has one axis."""
    y = np.asarray(y)
    return select_target("y", y, target if y.ndim == 2 else None)


def name_of_target(y, target) -> str:
    """Name of a series, or of the target's column of a frame; "y" if it has none."""
    name: Any = getattr(y, "name", None)
    if is_frame(y):
        name = column_names(y)[target or 0]
    return name if isinstance(name, str) and name else "y"


class Positions(NamedTuple):
    """Positions of the rows on the x axis, from a column of X.

    Parameters
    ----------
    x : ndarray of shape (n_samples,)
        Numbers, datetime64, or indices of ``levels``.
    x_name : str
        Name of the column.
    x_levels : list of str or None
        Names of the positions 0, 1, ... of a category.
    joined : bool
        Whether neighbouring rows may be joined: no other column of X varies.
    """

    x: np.ndarray
    x_name: str
    x_levels: list[str] | None
    joined: bool


def select_feature(X, feature) -> Positions:
    """Positions of the rows by a column of X.

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
        values = X[:, [index]].toarray().ravel().astype(np.float64)
        return Positions(values, f"feature {index}", None, _n_varying(X) <= 1)
    index %= len(names)
    kind = kind_of(reader, index)
    name = f"feature {index}" if not is_frame(X) else column_names(X)[index]
    name = short_label(name, 60)
    if kind == "other":
        raise ValueError(
            f"`feature` must contain numbers, dates or categories; got {feature!r}, "
            "which is free text. Give positions as `x` to `from_predictions`."
        )
    if kind in ("category", "ordered", "boolean"):
        x, levels = _level_positions(reader, index, kind)
        return Positions(x, name, levels, False)
    x = numbers_of(reader, index, kind, reader.time_zone(index))
    if kind == "date":
        x = np.array([_datetime(seconds) for seconds in x], dtype="datetime64[ms]")
    elif kind == "duration":
        unit, seconds = unit_of_time(x)
        x, name = x / seconds, f"{name} ({unit})"
    return Positions(x, name, None, _n_varying(X) <= 1)


def _datetime(seconds: float) -> np.datetime64:
    if np.isnan(seconds):
        return np.datetime64("NaT")
    return np.datetime64(round(1000 * seconds), "ms")


def _level_positions(reader, j: int, kind: str) -> tuple[np.ndarray, list[str]]:
    """Positions of the rows by their levels, and the names of the positions.

    Rare levels share a position if there are many, and missing values come last.
    """
    data = categories_of(reader, j, kind)
    counts = np.bincount(data.codes[data.codes >= 0], minlength=len(data.levels))
    shown = np.flatnonzero(counts)
    others = np.zeros(0, dtype=int)
    if len(shown) > MAX_SHOWN_LEVELS:
        by_count = shown[np.argsort(-counts[shown], kind="stable")]
        shown, others = (
            np.sort(by_count[: MAX_SHOWN_LEVELS - 1]),
            by_count[MAX_SHOWN_LEVELS - 1 :],
        )
    labels = [data.levels[i] for i in shown]
    labels = [plain(label) for label in short_names(labels, LONGEST_LEVEL)]
    lookup = np.zeros(len(data.levels) + 1)
    lookup[shown] = np.arange(len(shown))
    if len(others):
        lookup[others] = len(labels)
        labels.append(f"{len(others)} other levels")
    if (data.codes < 0).any():
        lookup[-1] = len(labels)
        labels.append(MISSING)
    return lookup[data.codes], labels


def _n_varying(X) -> int:
    """Number of columns that are not constant."""
    if hasattr(X, "tocsc"):
        X = X.tocsc()
        return int((X.max(axis=0).toarray() != X.min(axis=0).toarray()).sum())
    reader: Any = reader_of(X)
    columns = (reader.categories(j) for j in range(len(reader.names)))
    return sum(len(np.unique(data.codes)) > 1 for data in columns)


def row_positions(order_by, x, x_name, sorted_name, x_levels=None):
    """Return the order of the rows, their sorted positions, and the axis label.

    Rows of one level are spread around its position, in the order of ``order_by``.

    order_by : ndarray of shape (n_samples,)
        Values that the rows are sorted by if ``x`` is None.
    """
    if x is None:
        return (
            np.argsort(order_by, kind="stable"),
            np.arange(len(order_by)),
            sorted_name,
        )
    label = x_name or "x"
    if x_levels is not None:
        order = np.lexsort([order_by, x])
        return order, _spread(x[order]), label
    n_missing = int((x != x).sum())
    if n_missing:
        label += f" ({n_missing} of {len(x)} rows have no value, not shown)"
    order = np.argsort(x, kind="stable")[: len(x) - n_missing]
    return order, x[order], label


def _spread(levels: np.ndarray) -> np.ndarray:
    """Spread sorted positions of rows evenly around their level."""
    _, counts = np.unique(levels, return_counts=True)
    offsets = [LEVEL_WIDTH * ((np.arange(n) + 0.5) / n - 0.5) for n in counts]
    return levels + np.concatenate(offsets)


def label_positions(ax, x, x_levels) -> None:
    """Set the ticks of the x axis: integers for counts of rows, levels, or dates."""
    if x is None:
        integer_ticks(ax)
    elif x_levels is not None:
        in_line = sum(map(len, x_levels)) <= MAX_IN_LINE
        style = {} if in_line else {"rotation": 45, "ha": "right"}
        ax.set_xticks(range(len(x_levels)), x_levels, **style)
        ax.set_xlim(-0.6, len(x_levels) - 0.4, auto=None)
    elif x.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(maxticks=7)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def integer_ticks(ax) -> None:
    """Put ticks of the x axis at integers only, for an axis that counts rows."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))


def check_positions(x, n_rows):
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


def as_numbers(x: np.ndarray) -> np.ndarray:
    """Numbers of matplotlib for dates; other positions unchanged."""
    if x.dtype.kind != "M":
        return x
    from matplotlib.dates import date2num

    return date2num(x)


def common_limits(drawn: np.ndarray) -> tuple[float, float] | None:
    """Limits of an axis without outliers; None if outliers do not dominate the range.

    drawn : (rows, values); values that are not finite are ignored
    """
    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return None
    low, high = common_range(finite[:, None])
    common = finite[(low <= finite) & (finite <= high)]
    if np.ptp(finite) <= LONGEST * np.ptp(common):
        return None
    return float(common.min()), float(common.max())


def set_log_axis_if_skewed(ax, drawn: np.ndarray) -> bool:
    """Give the y axis a log scale if the values are positive and skewed to the right.

    They are if their median is near the lower end of a linear axis, and is not near an
    end of a logarithmic one.

    drawn : values of any shape, which set the limits of the axis
    """
    if not (np.isfinite(drawn).all() and (drawn > 0).all()):
        return False
    log = np.log10(drawn)
    middle, middle_of_log = (
        (np.median(values) - values.min()) / (np.ptp(values) or 1)
        for values in (drawn, log)
    )
    if middle >= SKEWED or not SKEWED <= middle_of_log <= 1 - SKEWED:
        return False
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set_yscale("log", nonpositive="clip")
    subs = (1, 2, 5) if np.ptp(log) < 3 else (1,)
    ax.yaxis.set_major_locator(LogLocator(subs=subs))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))
    ax.yaxis.set_minor_locator(NullLocator())
    room = np.ptp(log) / 10
    # auto=None: later artists still move the limits.
    ax.set_ylim(10 ** (log.min() - room), 10 ** (log.max() + room), auto=None)
    return True
