"""Shared parts of the displays: colours, axes, and positions of rows on them."""

import numpy as np

from skbayesnn._data.scaling import common_range
from skbayesnn._sklearn_compat import safe_indexing
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
        low, high = ax.get_ylim()
        share = min(box.height / room.height, 0.6)
        # auto=None: later artists still move the limits.
        ax.set_ylim(low, low + (high - low) / (1 - share), auto=None)


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


def select_feature(X, feature):
    """Select a feature for the x axis.

    Return its values, its name, and whether no other column of X varies.

    feature : int or str
        Name or index of a column.

    Raises
    ------
    ValueError
        If X does not have the feature, or the feature is not numeric.
    """
    X = np.asarray(X) if isinstance(X, list | tuple) else X
    names = list(getattr(X, "columns", ()))
    index = names.index(feature) if feature in names else feature
    if isinstance(index, str) or not -X.shape[1] <= index < X.shape[1]:
        raise ValueError(
            f"`feature` must be a column of X; got {feature!r} for X of shape "
            f"{X.shape}" + (f" with columns {names}." if names else " without names.")
        )
    values = safe_indexing(X, index, axis=1)
    values = values.toarray() if hasattr(values, "toarray") else values
    try:
        values = np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`feature` must hold numbers; got {feature!r}, which cannot be converted. "
            "Give positions as `x` to `from_predictions`."
        ) from error
    name = str(names[index]) if names else f"feature {index}"
    [name] = short_names([name], 60)
    return values, name, _n_varying(X) <= 1


def _n_varying(X):
    """Number of columns that are not constant."""
    if hasattr(X, "tocsc"):
        X = X.tocsc()
        return int((X.max(axis=0).toarray() != X.min(axis=0).toarray()).sum())
    table = np.asarray(X)
    return int((table != table[:1]).any(0).sum())


def row_positions(order_by, x, x_name, sorted_name):
    """Return the order of the rows, their sorted positions, and the axis label.

    order_by : ndarray of shape (n_samples,)
        Values that the rows are sorted by if ``x`` is None.
    """
    if x is None:
        return (
            np.argsort(order_by, kind="stable"),
            np.arange(len(order_by)),
            sorted_name,
        )
    order = np.argsort(x, kind="stable")
    return order, x[order], x_name or "x"


def integer_ticks(ax) -> None:
    """Put ticks of the x axis at integers only, for an axis that counts rows."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))


def check_positions(x, n_rows):
    """Check ``x`` of a display; None stays None."""
    if x is None:
        return None
    x = np.asarray(x, dtype=np.float64)
    if x.shape != (n_rows,):
        raise ValueError(
            f"`x` must have one number per row, shape ({n_rows},); got {x.shape}."
        )
    return x


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
