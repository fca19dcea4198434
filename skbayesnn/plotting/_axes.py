"""What all displays share: their base class, colours, legends and limits of axes."""

from functools import wraps
from typing import Any

import numpy as np

from skbayesnn._data.scaling import common_range
from skbayesnn._runtime import required, warn_once_per_call
from skbayesnn.inspection._attributions import short_names
from skbayesnn.inspection._columns import number_text

# Colours for colour-blind readers (Okabe & Ito), with grey instead of yellow, which is
# faint on white.
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
COLORS = (BLUE, VERMILION, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
# For curves that may overlap.
LINE_STYLES = ("-", "--", "-.", ":")
# With more rows than this, points and bars are rasterised in vector graphics.
MANY = 1000
# An axis shows everything, unless its range is more than this many times the range
# without outliers.
LONGEST = 4
# Values are skewed if their median is in this share of the axis, at its lower end.
SKEWED = 0.2
# Space about a legend, in inches.
LEGEND_PAD = 0.06


class Display:
    """Stored values, and ``plot`` that draws them.

    A display is a dataclass of its values. A class method ``from_...`` computes the
    values and draws them; it requires matplotlib before it computes, and repeats no
    warning.
    """

    ax_: Any
    figure_: Any

    def __init_subclass__(cls) -> None:
        for name in [name for name in vars(cls) if name.startswith("from_")]:
            setattr(cls, name, classmethod(_drawing(vars(cls)[name].__func__)))

    def _axes(self, ax) -> Any:
        """The axes to draw on, new for None; set ``ax_`` and ``figure_``."""
        require_matplotlib(type(self).__name__)
        if ax is None:
            import matplotlib.pyplot as plt

            # Constrained layout keeps long labels from being cut off.
            _, ax = plt.subplots(layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def _drawing(create):
    """A method ``from_...`` of a display: function of the class, and its arguments."""

    @wraps(create)
    def wrapper(cls, *args, **kwargs):
        require_matplotlib(cls.__name__)
        return create(cls, *args, **kwargs)

    return warn_once_per_call(wrapper)


def require_matplotlib(caller: str) -> None:
    """Raise an ImportError with the install command, before any computation.

    caller : class or function that needs it
    """
    required("matplotlib", f"{caller} needs", 'pip install "skbayesnn[plot]"')


# ---- artists


def draw_line(ax, x, y, given, **defaults) -> Any:
    """Draw a line; keywords that the user has given replace the defaults.

    Both may have short names ("c", "lw").
    """
    from matplotlib.cbook import normalize_kwargs
    from matplotlib.lines import Line2D

    return ax.plot(x, y, **defaults | normalize_kwargs(given or {}, Line2D))[0]


def draw_band(ax, x, lower, upper, given, *, joined=True, **defaults) -> Any:
    """Draw an area, or a bar per row; keywords as of ``draw_line``."""
    from matplotlib.cbook import normalize_kwargs
    from matplotlib.collections import PolyCollection

    style = defaults | normalize_kwargs(given or {}, PolyCollection)
    return (ax.fill_between if joined else ax.vlines)(x, lower, upper, **style)


def next_color(ax) -> str:
    """The first of ``COLORS`` that no line on the axes uses."""
    from matplotlib.colors import to_hex

    used = {to_hex(line.get_color()).upper() for line in ax.get_lines()}
    return next((color for color in COLORS if color.upper() not in used), COLORS[0])


def marker_size(n_rows: int) -> float:
    """Size of a marker in points: smaller with more rows."""
    return float(np.clip(60 / np.sqrt(n_rows), 1.5, 6))


# ---- text


def plain(name: str) -> str:
    """A name as matplotlib shows it: no formula between dollars, and no blank.

    Legends leave out labels that begin with an underscore, so a space is put before.
    """
    name = name.replace("$", r"\$") if name.strip() else repr(name)
    return f" {name}" if name.startswith("_") else name


def short_label(name: str, longest: int) -> str:
    """A name as matplotlib shows it, with its middle cut out if it is long."""
    return plain(*short_names([name], longest))


def legend_on_top(ax) -> None:
    """Place a legend at the top of the axes, and make room for it above the data."""
    room, dpi = ax.get_window_extent(), ax.figure.dpi
    style = {"loc": "upper left", "columnspacing": 1, "handlelength": 1.2}
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


# ---- limits


def leave_out_outliers(
    ax, drawn: np.ndarray, bottom: float | None = None, axis: str = "y"
) -> int:
    """Limit an axis to the range without outliers, if these dominate it.

    drawn : (rows, values); values that are not finite are ignored
    bottom : lower limit; None also leaves out small values

    returns : number of rows that reach beyond the limits
    """
    finite = drawn[np.isfinite(drawn)]
    if not len(finite) or not getattr(ax, f"get_autoscale{axis}_on")():
        return 0
    low, high = common_range(finite[:, None])
    common = finite[(low <= finite) & (finite <= high)]
    low, high, room = common.min(), common.max(), np.ptp(common) / 10
    if np.ptp(finite) <= LONGEST * np.ptp(common):
        return 0
    limits = (low - room, high + room) if bottom is None else (bottom, 1.1 * high)
    # auto=None: later artists still move the limits.
    getattr(ax, f"set_{axis}lim")(limits, auto=None)
    return rows_beyond(drawn, limits)


def rows_beyond(drawn: np.ndarray, limits: tuple[float, float]) -> int:
    """Number of rows with a value outside of the limits; drawn : (rows, values)."""
    return int(((drawn < limits[0]) | (drawn > limits[1])).any(axis=1).sum())


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
