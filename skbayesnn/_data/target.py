"""y as people have it: intervals, bounds, other scales, and point masses.

``interval_target`` makes a y of intervals. ``latent_target`` converts y to the latent
values that a network is trained on, and to the ``TargetSpace`` from which predictions
return to y.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_consistent_length

from skbayesnn._distributions.recorded import SCALES, TargetSpace

# If some values are only known to be larger than a bound, predictions on the log scale
# may exceed the largest known value and bound by this factor (docs/defaults.md).
TOP_OF_CENSORED = 100.0

# Models without limits are fitted to rows that are moved beyond the limit, by these
# standard deviations of the other rows: then their noise rarely crosses it.
BEYOND = 0.3

INTERVAL = np.dtype([("lower", np.float64), ("upper", np.float64)])


def interval_target(lower: ArrayLike, upper: ArrayLike) -> np.ndarray:
    """Make a y whose values are known to be in intervals.

    Use it for censored values: below a limit of detection, above a cap, a lifetime that
    still runs, or a rounded value. Regressors fit the probability of each interval. The
    result can be indexed and split, as any array, and is given to ``fit`` as y.

    Parameters
    ----------
    lower, upper : array-like of shape (n_samples,)
        Bounds of each value. Equal bounds are an observed value. -inf and inf mean no
        bound: ``lower=-inf`` is a value below ``upper``.

    Returns
    -------
    y : structured ndarray of shape (n_samples,)
        With the fields ``lower`` and ``upper``.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayesnn import interval_target
    >>> interval_target([1.2, -np.inf, 5.0], [1.2, 0.25, np.inf])["upper"]
    array([1.2 , 0.25,  inf])
    """
    lower, upper = (
        np.asarray(check_array(v, ensure_2d=False, ensure_all_finite=False), float)
        for v in (lower, upper)
    )
    check_consistent_length(lower, upper)
    wrong = ~(lower <= upper) | ((lower == upper) & np.isinf(lower))
    if lower.ndim != 1 or upper.ndim != 1 or wrong.any():
        i = int(np.argmax(wrong.ravel()))
        raise ValueError(
            "`lower` and `upper` must be of shape (n_samples,), with lower <= upper; "
            f"got shapes {lower.shape} and {upper.shape}, and from "
            f"{lower.ravel()[i]:g} to {upper.ravel()[i]:g} in row {i}. Rows without "
            "any value must be left out."
        )
    y = np.empty(len(lower), INTERVAL)
    y["lower"], y["upper"] = lower, upper
    return y


_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_BELOW = re.compile(rf"(?:<|<=|\u2264)\s*({_NUMBER})")
_ABOVE = re.compile(rf"(?:>|>=|\u2265)\s*({_NUMBER})|({_NUMBER})\s*\+")
_BETWEEN = re.compile(rf"({_NUMBER})\s*(?:-|\u2013|to|\.\.)\s*({_NUMBER})")


def parse_limits(values: ArrayLike) -> np.ndarray:
    """Convert text such as "<0.25", ">100" and "5-7" to a y of intervals.

    Use it for a column of measurements with limits of detection, or of ranges.

    Parameters
    ----------
    values : array-like of shape (n_samples,)
        Numbers, or text: a number, "<0.25" or "<=0.25" (below a limit), ">100",
        ">=100" or "100+" (above), "5-7", "5 to 7" or "5..7" (between).

    Returns
    -------
    y : structured ndarray of shape (n_samples,)
        As of :func:`skbayesnn.interval_target`.

    Raises
    ------
    ValueError
        If a value is missing, or cannot be read.

    Examples
    --------
    >>> from skbayesnn.preprocessing import parse_limits
    >>> parse_limits(["<0.25", 1.5, "5-7"])["lower"]
    array([-inf,  1.5,  5. ])
    """
    column = np.asarray(values, dtype=object)
    bounds = [_limits_of(value, row) for row, value in enumerate(column)]
    return interval_target(*np.array(bounds, dtype=np.float64).reshape(-1, 2).T)


def _limits_of(value, row: int) -> tuple[float, float]:
    """Bounds of one value."""
    text = str(value).strip().replace(",", "")
    if found := _BELOW.fullmatch(text):
        return -np.inf, float(found[1])
    if found := _ABOVE.fullmatch(text):
        return float(found[1] or found[2]), np.inf
    if found := _BETWEEN.fullmatch(text):
        return float(found[1]), float(found[2])
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(
            "`values` must be numbers, or text such as '<0.25', '>100' or '5-7'; got "
            f"{value!r} in row {row}. Leave out rows without a value."
        )
    return number, number


def as_intervals(y: Any) -> np.ndarray | None:
    """y as ``interval_target`` makes it, if it contains intervals; or None.

    y : also a pandas Series or array of intervals, or a structured array of
        scikit-survival: whether the event was observed, and the time
    """
    array = getattr(y, "array", y)  # of a pandas Series
    if type(array).__name__ == "IntervalArray":
        return interval_target(array.left, array.right)
    names = getattr(getattr(y, "dtype", None), "names", None)
    if not names:
        return None
    if names == INTERVAL.names:
        return interval_target(y["lower"], y["upper"])
    kinds = [y.dtype[name].kind for name in names]
    if len(names) == 2 and kinds[0] == "b" and kinds[1] in "iuf":
        observed, time = y[names[0]], y[names[1]].astype(float)
        return interval_target(time, np.where(observed, time, np.inf))
    raise ValueError(
        "a structured `y` must have the fields lower and upper, as interval_target "
        f"makes it, or an event indicator (bool) and a time; got {y.dtype}."
    )


class Latent(NamedTuple):
    """What a network is trained on.

    Parameters
    ----------
    y : ndarray of shape (rows, targets)
        A latent value of every row; of an interval, one of its bounds or its middle.
    intervals : ndarray of shape (rows, 3 targets), or None
        y of the likelihoods of intervals, if not all rows are exact values.
    spaces : tuple of TargetSpace
    """

    y: np.ndarray
    intervals: np.ndarray | None
    spaces: tuple[TargetSpace, ...]


def check_bounds(bounds: Any, scale: str) -> tuple[float, float]:
    """Check ``y_bounds``; a missing bound is the one of the scale, or infinite."""
    ends = (None, None) if bounds is None else bounds
    are_two = isinstance(ends, Sequence | np.ndarray) and len(ends) == 2
    if not (are_two and all(b is None or isinstance(b, Real) for b in ends)):
        raise ValueError(
            f"`y_bounds` must be None or (low, high), each None if y has no such "
            f"bound; got {bounds!r}."
        )
    of_scale = {"log": (0.0, np.inf), "logit": (0.0, 1.0), "count": (0.0, np.inf)}
    default = of_scale.get(scale, (-np.inf, np.inf))
    low, high = (
        d if b is None else float(b) for b, d in zip(ends, default, strict=True)
    )
    is_valid = TargetSpace.bounded(scale, low, high).is_valid
    if not is_valid or (scale == "count" and low != 0):
        raise ValueError(
            "`y_bounds` must be (low, high) with low < high, a finite low for "
            "target_scale='log', 0 for 'count', and both finite for 'logit'; got "
            f"{bounds!r}."
        )
    return low, high


def latent_target(
    y: np.ndarray,
    scale: str,
    bounds: Any = None,
    point: float | None = None,
    spaces: Sequence[TargetSpace] | None = None,
) -> Latent:
    """Convert y to latent values.

    y : of ``interval_target``, or finite numbers of shape (rows, targets)
    spaces : of the training rows, if y is of held-out rows

    Raises
    ------
    ValueError
        If y is outside of its bounds, or has no logarithm.
    """
    if scale not in SCALES:
        raise ValueError(
            f"`target_scale` must be one of {', '.join(map(repr, SCALES))}; got "
            f"{scale!r}."
        )
    low, high = check_bounds(bounds, scale)
    is_interval = y.dtype.names is not None
    lower = y["lower"][:, None] if is_interval else y
    upper = y["upper"][:, None] if is_interval else y
    exact = lower == upper
    check_within(lower[exact], low, high, scale)
    if spaces is None:
        spaces = [
            _space_of(lower[:, j], upper[:, j], scale, low, high, point)
            for j in range(lower.shape[1])
        ]
    columns = [
        _latent_column(lower[:, j], upper[:, j], space)
        for j, space in enumerate(spaces)
    ]
    values, starts, ends, at_point = zip(*columns, strict=True)
    z, start, end, is_point = (
        np.stack(parts, axis=1) for parts in (values, starts, ends, at_point)
    )
    has_intervals = bool((start < end).any() or is_point.any())
    parts = [start, end, is_point.astype(float)]
    intervals = np.concatenate(parts, axis=1) if has_intervals else None
    return Latent(z, intervals, tuple(spaces))


def check_within(
    y: np.ndarray, low: float, high: float, scale: str = "identity"
) -> None:
    """Raise if a value is outside of the bounds, or no count on that scale."""
    outside = (y < low) | (y > high)
    if outside.any():
        of_scale = ("", "")
        if scale != "identity":
            of_scale = f", for target_scale={scale!r}", ", or target_scale='identity'"
        raise ValueError(
            f"`y` must be within its bounds, {low:g} to {high:g}{of_scale[0]}; got "
            f"{y[outside][0]:g}. Set other `y_bounds`{of_scale[1]}, or correct y."
        )
    if scale == "count" and (y != np.floor(y)).any():
        raise ValueError(
            "`y` must contain counts, 0, 1, 2 and so on, for target_scale='count'; "
            f"got {y[y != np.floor(y)][0]:g}."
        )


def _is_point(lower, upper, point) -> np.ndarray:
    """Whether each row is at the point mass, (rows,)."""
    return (lower == upper) & (lower == (np.nan if point is None else point))


def _space_of(lower, upper, scale, low, high, point) -> TargetSpace:
    """Space of a target, from its training rows."""
    exact, is_point = lower == upper, _is_point(lower, upper, point)
    if point is not None and not is_point.any():
        raise ValueError(
            f"`point_mass` must be a value of y; got {point!r}, which no row has."
        )
    space = space_of_values(
        lower[exact & ~is_point], scale, low, high, point, np.r_[lower, upper]
    )
    if not np.isinf(upper).any() or np.isinf(space.top):
        return space
    return replace(space, top=low + TOP_OF_CENSORED * (space.top - low))


def space_of_values(
    y: np.ndarray,
    scale: str,
    low: float,
    high: float,
    point: float | None = None,
    all_values: np.ndarray | None = None,
) -> TargetSpace:
    """Space of a target.

    y : (rows,), exact values; they have no latent value at a bound, and are then in
        the last half of the way there
    all_values : also bounds of intervals, and values of a point mass
    """
    space = TargetSpace.bounded(scale, low, high, point=point)
    inside = y[(y > low) & (y < high)]
    if scale == "identity" or not len(inside):
        return space
    # New shares may be at a bound; a logarithm has values there only if y has.
    is_share = scale == "logit"
    if scale != "count" and point != low and (is_share or (y == low).any()):
        space = replace(space, low_edge=(low + float(inside.min())) / 2)
    if scale != "count" and point != high and (is_share or (y == high).any()):
        space = replace(space, high_edge=(high + float(inside.max())) / 2)
    values = inside if all_values is None else all_values
    top = float(values[np.isfinite(values)].max())
    return replace(space, top=top) if scale in ("log", "count") and top > low else space


def latent_values(
    y: np.ndarray,
    space: TargetSpace | None,
    weights: np.ndarray,
    spread: np.ndarray | None = None,
) -> np.ndarray:
    """Latent values for a model without limits: rows at a bound are beyond it.

    y : (rows[, targets])
    space : None for y itself
    weights : (rows,)
    spread : (targets,), standard deviations; by default of rows between the bounds
    """
    if space is None:
        return y
    if y.ndim == 2:
        spreads = [None] * y.shape[1] if spread is None else spread[:, None]
        columns = zip(y.T, spreads, strict=True)
        return np.stack([latent_values(v, space, weights, s) for v, s in columns], 1)
    z = space.to_latent(y)
    # A share of exactly 0 or 1 is infinite on the logit scale.
    is_low = (y <= space.low) | (z == -np.inf)
    is_high = (y >= space.high) | (z == np.inf)
    inner = z[~(is_low | is_high) & (weights > 0)]
    if not len(inner):
        return y
    beyond = BEYOND * (inner.std() if spread is None else spread)
    z = np.where(is_low, np.fmax(z, inner.min()) - beyond, z)
    return np.where(is_high, np.fmin(z, inner.max()) + beyond, z)


def _latent_column(lower, upper, space: TargetSpace):
    """Latent value, interval, and whether it is the point mass, of each row."""
    exact, is_point = lower == upper, _is_point(lower, upper, space.point)
    start = np.where(exact, space.below(lower), space.up_to(lower))
    end = space.up_to(upper)
    z = np.where(np.isfinite(start), start, end)
    known, both = np.isfinite(z), np.isfinite(start) & np.isfinite(end)
    z[both] = (start[both] + end[both]) / 2
    if not (known | is_point).any():
        raise ValueError(
            "`y` must have rows with a finite bound; got intervals from -inf to inf."
        )
    z = np.where(known, z, z[known].min() if known.any() else 0.0)
    # A point mass without latent values, such as zero on the log scale.
    is_empty = ~(start < end) & (is_point | ~np.isfinite(start))
    start, end = np.where(is_empty, z, start), np.where(is_empty, z, end)
    return z, start, end, is_point


def refuse_values_of_intervals(y: Any) -> None:
    """Raise if y has intervals where numbers are needed."""
    if as_intervals(y) is not None:
        raise ValueError(
            "`y` must be exact values here; got intervals. `fit` of networks and of "
            "BayesianStackingRegressor takes intervals, with all rows in memory (at "
            "most n_selection_rows in a stack); log_density_scorer scores them."
        )


def exposure_column(exposure: str | int, names: list | None) -> int:
    """Position of the column of exposure.

    names : of the columns of X, or None
    """
    if not isinstance(exposure, str):
        return int(exposure)
    if names is None or exposure not in names:
        raise ValueError(
            "`exposure` must be the name or the index of a column of numbers of X; got "
            f"{exposure!r}."
        )
    return names.index(exposure)
