"""What y is: plain, skewed, a share, limited, or intervals; and what follows from it.

The rules look at the values of y alone. They choose candidates; held-out rows decide
which of these get weight. Figures: docs/defaults.md, "Stacks: kinds of y".
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import CensoredData, ecdf, norm, skew

from skbayesnn._data.target import (
    check_bounds,
    check_within,
    exposure_column,
    interval_target,
    space_of_values,
)
from skbayesnn._distributions.recorded import TargetSpace
from skbayesnn._runtime import warn_once

# Rows beyond a frequent value may be errors if they are at most this share.
FEW_BEYOND = 0.01
# The smallest value of y is a floor if at least this number and share of the rows have
# it, and it is more frequent than any other value by this factor; so is a cap.
MIN_ROWS, MIN_SHARE, MIN_FACTOR = 10, 0.02, 2.5
# With fewer different values y is plain.
MIN_VALUES = 5
# y is skewed if its skewness is above the first, and if the skewness of its logarithm
# is smaller by the second.
SKEWNESS, SHARE_OF_SKEWNESS = 1.0, 0.5
# y in [0, 1] is a share if this part of the rows is within this distance of an end, and
# if y spans this part of [0, 1].
SHARE_NEAR_END, NEAR_END, SPAN_OF_SHARES = 0.1, 0.05, 0.5
# Non-negative integers are counts if the smallest is below this share of the mean, and
# below this number. Amounts in whole units often are not; counts cost them accuracy.
SHARE_OF_MEAN, FIRST_COUNT = 0.2, 10
# Knots of the quantile scale: at most this many, and one for this many values.
MAX_KNOTS, VALUES_PER_KNOT = 16, 10


@dataclass(frozen=True)
class Target:
    """What y is.

    Parameters
    ----------
    scale : {"identity", "log", "logit", "count"}
        Scale on which further candidates are fitted.
    low, high : float
        Bounds of y, given or found; may be infinite.
    has_floor, has_cap : bool
        Whether many rows are at the lower or the upper bound.
    has_intervals : bool
        Whether y is given as intervals.
    inner : tuple of float
        Smallest and largest value between the bounds.
    exposure : int or None
        Column of X with the exposure of counts.
    quantiles : TargetSpace or None
        Of lifetimes: the scale of normal quantiles, for all default candidates.
    """

    scale: str = "identity"
    low: float = -np.inf
    high: float = np.inf
    has_floor: bool = False
    has_cap: bool = False
    has_intervals: bool = False
    inner: tuple[float, float] = (-np.inf, np.inf)
    exposure: int | None = None
    quantiles: TargetSpace | None = None

    @classmethod
    def of(cls, y: np.ndarray, weights: np.ndarray, bounds: Any) -> "Target":
        """Find what y is.

        y : (rows[, targets]), or of ``interval_target``
        bounds : given (low, high), or None
        """
        low, high = check_bounds(bounds, "identity")
        y = y[weights > 0]
        given = cls(low=low, high=high, has_intervals=y.dtype.names is not None)
        if given.has_intervals:
            is_positive = (y["lower"] >= 0).all()
            low = max(low, 0.0) if is_positive else low
            if is_positive and np.isinf(y["upper"]).any():
                # Lifetimes: no interval has values below 0, and some have no end.
                return replace(given, low=low, quantiles=quantile_space(y, low, high))
            ends = np.concatenate([y["lower"], y["upper"]])
            ends = ends[np.isfinite(ends)]
            scale = _scale_of(ends, low, high) if len(ends) else "identity"
            return replace(given, scale=scale, low=low)
        check_within(y, low, high)
        if y.ndim == 2:
            return given
        values, counts = np.unique(y, return_counts=True)
        if len(values) < MIN_VALUES:
            return given
        if bounds is None:
            _warn_of_few_beyond(values, counts)
        most = max(MIN_ROWS, MIN_SHARE * len(y), MIN_FACTOR * counts[1:-1].max())
        has_floor = counts[0] >= most and low in (-np.inf, values[0])
        has_cap = counts[-1] >= most and high in (np.inf, values[-1])
        low, high = (values[0] if has_floor else low), (values[-1] if has_cap else high)
        inner = y[(y > low) & (y < high)]
        first = min(SHARE_OF_MEAN * y.mean(), FIRST_COUNT)
        is_count = (y == np.floor(y)).all() and 0 <= y.min() < first
        if is_count and low in (-np.inf, 0):
            scale, low = "count", 0.0
        else:
            scale = _scale_of(inner, low, high)
        span = (float(inner.min()), float(inner.max())) if len(inner) else (low, high)
        limits = bool(has_floor), bool(has_cap)
        return cls(scale, float(low), float(high), *limits, inner=span)

    def with_exposure(self, exposure: str | int, names: list | None) -> "Target":
        """The same counts, with the column of their exposure.

        names : of the columns of X, or None
        """
        if self.scale != "count":
            raise ValueError(
                f"`exposure` requires a `y` of counts, integers from 0 on; got {self}."
            )
        return replace(self, exposure=exposure_column(exposure, names))

    @property
    def bounds(self) -> tuple[float | None, float | None] | None:
        """Parameter ``y_bounds`` of an estimator."""
        if np.isinf([self.low, self.high]).all():
            return None
        low, high = self.low, self.high
        return (low if np.isfinite(low) else None, high if np.isfinite(high) else None)

    @property
    def on_scale(self) -> dict[str, Any]:
        """Parameters of a network on the other scale, with a point mass at a limit."""
        params: dict[str, Any] = {}
        if self.scale != "identity":
            params["target_scale"] = self.scale
        if self.exposure is not None:
            params["exposure"] = self.exposure
        if self.has_floor:
            params["point_mass"] = self.low
        elif self.has_cap:
            params["point_mass"] = self.high
        return params

    @property
    def scale_without_limits(self) -> str:
        """Scale of candidates that know neither limits nor counts."""
        if self.quantiles is not None:
            return "quantiles"
        has_limits = self.has_floor or self.has_cap or self.scale == "count"
        return "identity" if has_limits else self.scale

    def space(self, scale: str = "identity") -> TargetSpace | None:
        """Space of a candidate without bounds; None if it needs none."""
        if scale == "quantiles":
            return self.quantiles
        low, high = check_bounds(self.bounds, scale)
        space = space_of_values(np.array(self.inner), scale, low, high)
        return None if space.is_plain else space

    def __str__(self) -> str:
        parts = []
        if self.has_intervals:
            parts.append("intervals")
        if self.has_floor or self.has_cap:
            ends = [self.low] * self.has_floor + [self.high] * self.has_cap
            parts.append(f"many rows at {' and '.join(f'{end:g}' for end in ends)}")
        if self.scale == "count":
            parts.append("counts" + " per exposure" * (self.exposure is not None))
        elif self.quantiles is not None:
            parts.append("fitted on the scale of normal quantiles")
        elif self.scale != "identity":
            parts.append(f"also fitted on the {self.scale} scale")
        if self.bounds:
            parts.append(f"bounds {self.low:g} to {self.high:g}")
        return ", ".join(parts) or "plain numbers"


def _warn_of_few_beyond(values: np.ndarray, counts: np.ndarray) -> None:
    """Warn if a frequent value is no floor, or no cap, because of very few rows."""
    n, i = counts.sum(), int(counts.argmax())
    others = np.delete(counts, [0, i, len(counts) - 1])
    if counts[i] < max(MIN_ROWS, MIN_SHARE * n, MIN_FACTOR * others.max()):
        return
    n_below, n_above = counts[:i].sum(), counts[i + 1 :].sum()
    if not 0 < min(n_below, n_above) <= FEW_BEYOND * n < max(n_below, n_above):
        return
    value = f"{values[i] + 0.0:g}"  # no -0
    beyond, limit, bounds = (
        (f"{n_below} of {n} rows of y are below", "floor", f"({value}, None)")
        if n_below < n_above
        else (f"{n_above} of {n} rows of y are above", "cap", f"(None, {value})")
    )
    warn_once(
        "SKB212",
        "frequent value",
        f"{beyond} {value}, which {counts[i]} rows have; so {value} is not taken as a "
        f"{limit}. If these rows are errors, correct them or leave them out: "
        f"`y_bounds={bounds}` refuses them. If they are right, add a network with "
        f"`point_mass={value}` to `estimators`.",
    )


def _scale_of(y: np.ndarray, low: float, high: float) -> str:
    """Scale on which further candidates are fitted.

    y : values between the bounds
    """
    if len(y) < MIN_ROWS or len(np.unique(y)) < MIN_VALUES:
        return "identity"
    start = low if np.isfinite(low) else 0.0
    if y.min() < start:
        return "identity"
    if y.min() > start and skew(y) > SKEWNESS:
        if abs(skew(np.log(y - start))) < SHARE_OF_SKEWNESS * skew(y):
            return "log"
    is_share = start >= 0 and max(y.max(), high if np.isfinite(high) else 0) <= 1
    near_end = np.mean((y < NEAR_END) | (y > 1 - NEAR_END))
    if is_share and near_end > SHARE_NEAR_END and np.ptp(y) > SPAN_OF_SHARES:
        return "logit"
    return "identity"


def quantile_space(y: np.ndarray, low: float, high: float) -> TargetSpace:
    """Space in which z of all rows together is about standard normal.

    The knots are quantiles of the Kaplan-Meier estimator of the distribution of y. h is
    linear between them in the logarithm of the distance from ``low``, and has its mean
    slope beyond them.

    y : intervals; those without an upper bound are censored, others count as their
        upper bound
    """
    ends, is_open = np.concatenate([y["lower"], y["upper"]]), np.isinf(y["upper"])
    exact = y["lower"][y["lower"] == y["upper"]]
    space = space_of_values(exact, "log", low, high, all_values=ends)
    values = space.to_latent(np.where(is_open, y["lower"], y["upper"]))
    is_inner = np.isfinite(values)
    values, is_open = values[is_inner], is_open[is_inner]
    n_knots = min(int((~is_open).sum()) // VALUES_PER_KNOT, MAX_KNOTS)
    if n_knots < 2:
        return space
    known = CensoredData(uncensored=values[~is_open], right=values[is_open])
    estimated = ecdf(known).cdf
    share = np.diff(estimated.probabilities, prepend=0)
    points, share = estimated.quantiles[share > 0], share[share > 0]
    middle = np.cumsum(share) - share / 2
    levels = np.linspace(0, share.sum(), n_knots + 2)[1:-1]
    at = np.unique(np.searchsorted(middle, levels).clip(max=len(middle) - 1))
    if len(at) < 2:
        return space
    scaled, z = points[at], norm.ppf(middle[at])
    reach = float(np.ptp(scaled))
    rise = float(np.polyfit(scaled, z, 1)[0]) * reach
    scaled, z = (
        tuple(np.concatenate([v[:1] - step, v, v[-1:] + step]).tolist())
        for v, step in ((scaled, reach), (z, rise))
    )
    return replace(space, knots=(scaled, z))


def latent_intervals(y: np.ndarray, space: TargetSpace) -> np.ndarray:
    """Intervals of z, for intervals of y."""
    is_value = y["lower"] == y["upper"]
    lower = np.where(is_value, space.below(y["lower"]), space.up_to(y["lower"]))
    upper = space.up_to(y["upper"])
    return interval_target(lower, upper)
