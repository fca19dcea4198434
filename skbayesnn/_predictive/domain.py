"""Where the inverse of a target transform is defined, and what y is beyond that.

A network's predictive has all real numbers in it; the inverse of a power, of a root or
of a bounded function has not. Beyond its domain y stays at the limit that it comes to.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

# Where the inverse may be defined for a search to begin.
_STARTS = (0.0, 1.0, -1.0)
# Distances at which the end of the domain is looked for, and then pieces of a bracket,
# as often as a double has bits.
_DISTANCES = np.ldexp(1.0, np.arange(-20, 401))
_PIECES, _PASSES = 128, 10
# So many of the distances may be too far to ask for.
_REACHES = (len(_DISTANCES), 80, 25)
# A y so large that its image is that of infinity, and how near that is.
_LARGE, _NEAR = 1e300, 1e-6


@dataclass(frozen=True)
class Domain:
    """Of the inverse of a transform, per target.

    Parameters
    ----------
    ends : ndarray of shape (2, targets)
        Lowest and highest transformed values that have an inverse; may be infinite.
    limits : ndarray of shape (2, targets)
        y beyond them.
    """

    ends: np.ndarray
    limits: np.ndarray

    @classmethod
    def of(cls, transform: Any, n_targets: int) -> "Domain":
        """Of a fitted transformer of scikit-learn.

        It is looked for once, and the same whatever rows are predicted.
        """
        # scikit-learn warns of the NaN that are looked for.
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            sides = [
                [_side(transform, n_targets, j, sign) for j in range(n_targets)]
                for sign in (-1.0, 1.0)
            ]
        both = np.array(sides)
        return cls(both[..., 0], both[..., 1])

    def inverse(self, transform: Any, values: np.ndarray) -> np.ndarray:
        """y of transformed values, (rows, targets)."""
        low, high = self.ends
        if np.isinf(self.ends).all():
            return np.asarray(transform.inverse_transform(values))
        y = np.asarray(transform.inverse_transform(values.clip(low, high)))
        y = np.where(values < low, self.limits[0], y)
        return np.where(values > high, self.limits[1], y)


def _side(transform, n_targets: int, target: int, sign: float) -> tuple[float, float]:
    """End of the domain to one side, and y beyond it; infinite where there is none."""

    def at(points):
        values = np.full((len(points), n_targets), start)
        values[:, target] = points
        return np.asarray(transform.inverse_transform(values), dtype=float)[:, target]

    for start in _STARTS:
        if not np.isnan(at(np.array([start]))[0]):
            break
    else:
        return sign * np.inf, np.nan
    points, outside = _far(at, start, sign)
    if not outside.any():
        return sign * np.inf, np.nan
    for _ in range(_PASSES):
        first = int(outside.argmax())
        points = np.linspace(points[first - 1], points[first], _PIECES)
        outside = np.isnan(at(points))
        outside[0], outside[-1] = False, True
    end = points[int(outside.argmax()) - 1]
    for y in (_LARGE, -_LARGE):
        image = _image(transform, n_targets, target, y)
        if abs(image - end) <= _NEAR * max(abs(end - start), abs(end)):
            return end, np.copysign(np.inf, y)
    return end, float(at(np.array([end]))[0])


def _far(at, start: float, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """Points ever farther away, and whether each is outside of the domain."""
    for reach in _REACHES:
        points = start + sign * np.concatenate([[0.0], _DISTANCES[:reach]])
        try:
            return points, np.isnan(at(points))
        except ValueError:  # a transformer that is asked for an infinite value
            continue
    return points, np.zeros(len(points), dtype=bool)


def _image(transform, n_targets: int, target: int, y: float) -> float:
    """Of a large y; NaN where the transform refuses it."""
    values = np.ones((1, n_targets))
    values[0, target] = y
    try:
        return float(np.asarray(transform.transform(values))[0, target])
    except ValueError:
        return np.nan
