"""Convert between the units of the data and the standardised units of the network.

Only this module knows both. All other code uses one of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from skbayesnn._data._advice import CODE_FOR_MISSING, listed
from skbayesnn._distributions.components import Components
from skbayesnn._likelihoods.base import MIN_NOISE
from skbayesnn._likelihoods.intervals import joined_intervals
from skbayesnn._runtime import silence_warning, warn_of_rows, warn_once

# ---- powers of two that scale columns to about one, so that squares do not overflow

# Largest exponents of two whose squares, and sums of squares, are finite and normal.
_USUAL = {np.dtype(np.float32): 40, np.dtype(np.float64): 400}
# Largest exponent such that a power and its inverse are both finite and normal.
_MAX_EXPONENT = 1020


def power_of_two_scale(values) -> np.ndarray:
    """Power of two next to each column's largest absolute value, (columns,).

    1 if squares are finite anyway. Dividing by a power of two does not round. Values of
    1e-170 or 1e170 have no finite variance until they are divided.

    values : (rows, columns), array or sparse, finite
    """
    largest, lowest = values.max(axis=0), values.min(axis=0)
    if sparse.issparse(values):
        largest, lowest = largest.toarray().ravel(), lowest.toarray().ravel()
    extreme = np.maximum(np.abs(largest), np.abs(lowest)).astype(np.float64)
    exponent = np.frexp(extreme)[1]
    usual = (extreme == 0) | (np.abs(exponent) <= _USUAL.get(values.dtype, 0))
    return np.where(
        usual, 1.0, np.ldexp(1.0, exponent.clip(-_MAX_EXPONENT, _MAX_EXPONENT))
    )


def divided(values, unit: np.ndarray):
    """Divide columns by their units, (columns,); the same object if all units are 1."""
    if (unit == 1).all():
        return values
    if sparse.issparse(values):
        return (values.astype(np.float64) * (1 / unit)).tocsr()
    return values / unit


# ---- values far from the bulk of a column

# Distance from the quartiles in interquartile ranges: 7.4 standard deviations for a
# Gaussian.
_REACH = 5.0
# Outliers dominate a column if they multiply its standard deviation by this factor.
_SWAMPED = 2.0
# A new value is far if its distance from the mean exceeds _FAR standard deviations, and
# _FAR_PER_ROOT times the root of the number of training rows. No training row can be
# farther from the mean than that root [Samuelson 1968, "How deviant can you be?", JASA
# 63]. Heavy tails stay inside, such as log-normal values with a log scale of 2 or
# Student's t with 2 degrees of freedom.
_FAR, _FAR_PER_ROOT = 1e3, 10.0
# A column is shifted if half of the rows, and at least _SHIFTED_ROWS rows, are farther
# than _SHIFTED standard deviations. At most one training row in a hundred is, whatever
# the distribution (Chebyshev).
_SHIFTED, _SHIFTED_ROWS = 10.0, 5
# Farther values, in standard deviations, are refused: their squares would overflow.
_FARTHEST = 1e100
# Subjects of the warnings that are given once per call.
FAR_ROWS, TRAINING_CODES = "far rows", "codes in training rows"
UNCERTAIN_ROWS = "uncertain rows"
# Values that stand for a missing value in many tables. In training rows one is taken
# for such a code if it occurs in _CODE_ROWS rows and its distance from all other values
# exceeds their range. In new rows, if its distance from the mean exceeds the following
# standard deviations, but not if ten of up to 10,000 training rows, or a thousandth of
# more, have the code, too: they would be at most the root of n / 10 from the mean.
CODES = tuple(float(v) for n in range(1, 7) for v in (10**n - 1, 1 - 10**n))[1:]
_CODE_ROWS, _CODE_FAR, _CODE_FARTHEST = 3, 10.0, 1000**0.5


def common_range(
    values: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds of each column without outliers, (columns,) each.

    Up to a quarter of the values on each side can be arbitrarily far away without
    changing the bounds. If half of the values are equal, the bounds are infinite,
    because no value can be called far.

    values : (rows, columns), finite
    weights : (rows,), ones by default
    """
    weights = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, axis=0)
    below = np.cumsum(weights[order], axis=0)
    quartiles = [(below < share * below[-1]).sum(0) for share in (0.25, 0.75)]
    first, third = (
        np.take_along_axis(values, np.take_along_axis(order, row[None], 0), 0)[0]
        for row in quartiles
    )
    reach = np.where(third > first, _REACH * (third - first), np.inf)
    return first - reach, third + reach


def is_outlier(values: np.ndarray) -> np.ndarray:
    """Rows with a value outside of its column's common range, (rows,), bool."""
    low, high = common_range(values)
    return np.any((values < low) | (values > high), axis=1)


def dominated_by_outliers(values: np.ndarray) -> np.ndarray:
    """Whether a few values determine a column's standard deviation, (columns,) bool."""
    values = divided(values, power_of_two_scale(values))
    low, high = common_range(values)
    common = np.clip(values, low, high).std(0)
    return np.isfinite(low) & (values.std(0) > _SWAMPED * common)


def ordinary_rows(*tables) -> np.ndarray:
    """Rows without dominating outliers, (rows,), bool; all rows if none is left.

    Outliers hide whether the predictions of the other rows differ. In a few rows with
    many columns, each row may have an outlier.
    """
    is_ordinary = np.ones(tables[0].shape[0], dtype=bool)
    for values in tables:
        if values.ndim == 2 and not sparse.issparse(values):
            is_ordinary &= ~is_outlier(values[:, dominated_by_outliers(values)])
    return is_ordinary if is_ordinary.any() else ~is_ordinary


class InputColumns(NamedTuple):
    """Columns of the user's table from which inputs of a network come, for messages.

    Parameters
    ----------
    names : (columns,), or None
    are_numbers : (columns,) of bool, or None
        Whether a column has the numbers of the user's table as they are; None if all
        have.
    """

    names: Sequence | None = None
    are_numbers: Sequence[bool] | None = None

    def name(self, j: int) -> str:
        """Name or position of a column, for a message."""
        return str(j) if self.names is None else repr(str(self.names[j]))


_UNNAMED = InputColumns()


def warn_of_far_rows(
    estimator, X, mean, scale, n_rows: float, columns: InputColumns = _UNNAMED
) -> None:
    """Warn about rows far outside of the training rows, once per fitted estimator.

    Parameters
    ----------
    estimator : that predicts
    X : (rows, columns), array or sparse, finite
    mean, scale : (columns,), of the training rows
    n_rows : float
        Sum of the weights of the training rows.
    columns : InputColumns

    Raises
    ------
    ValueError
        If a row is so far outside that predictions would overflow.
    """
    lowest, highest = X.min(axis=0), X.max(axis=0)
    if sparse.issparse(X):
        lowest, highest = lowest.toarray().ravel(), highest.toarray().ravel()
    with np.errstate(over="ignore"):
        # Of the smallest and of the largest value of each column.
        distance = np.array([mean - lowest, highest - mean]) / scale
    enough = min(max(math.sqrt(n_rows / 10), _CODE_FAR), _CODE_FARTHEST)
    farthest = float(distance.max())
    if farthest <= _SHIFTED:
        return
    if farthest > _FARTHEST:
        side, column = np.unravel_index(distance.argmax(), distance.shape)
        value = (lowest, highest)[side][column]
        raise ValueError(
            f"`X` must be within {_FARTHEST:g} standard deviations of the training "
            f"mean, so that predictions are finite; {value:.3g} in column "
            f"{columns.name(int(column))} is {farthest:.1g} away. Remove this value."
        )
    texts = []
    is_code = (distance > enough) & np.isin([lowest, highest], CODES)
    if columns.are_numbers is not None:
        is_code &= columns.are_numbers
    if is_code.any():
        parts = [
            f"{(lowest, highest)[side][j]:g} in column {columns.name(j)} is "
            f"{distance[side, j]:.3g} standard deviations from the training mean"
            for j, side in np.argwhere(is_code.T).tolist()
        ]
        texts.append(_about_codes(parts, "Predictions are extrapolations there."))
    # A code must not hide a farther value.
    distance[is_code] = 0
    side, column = np.unravel_index(distance.argmax(), distance.shape)
    too_far = max(_FAR, _FAR_PER_ROOT * math.sqrt(n_rows))
    if distance[side, column] > too_far:
        values = X[:, [column]]
        values = (values.toarray() if sparse.issparse(X) else values)[:, 0]
        row = int(values.argmax() if side else values.argmin())
        n_far = np.count_nonzero(
            np.abs(values - mean[column]) > too_far * scale[column]
        )
        texts.append(
            f"some rows lie far outside of the training rows: {values[row]:.3g} in "
            f"column {columns.name(int(column))} of row {row} is "
            f"{distance[side, column]:.1g} standard deviations from the training mean, "
            f"and {n_far} of {len(values)} rows are far by this column. "
            "Predictions are extrapolations there and can be absurd. Check that the "
            "rows have the units of the training rows."
        )
    elif (shifted := _shifted_column(X, mean, scale, distance, columns)) is not None:
        place, count = shifted
        texts.append(
            f"column {columns.name(place)} is shifted: {count} of {X.shape[0]} rows "
            f"are more than {_SHIFTED:g} standard deviations from the training mean, "
            "but at most 1 % of the training rows. Predictions are extrapolations "
            "there and can be absurd. Check that the column has the units of the "
            "training rows."
        )
    if texts:
        warn_of_rows(estimator, "SKB303", FAR_ROWS, " Also, ".join(texts))
        # Far rows are uncertain, too.
        silence_warning(UNCERTAIN_ROWS)


def _shifted_column(
    X, mean, scale, distance, columns: InputColumns
) -> tuple[int, int] | None:
    """A column of numbers in which half of the rows are far, and how many are.

    distance : (2, columns), of the smallest and of the largest value, in units of scale
    """
    farthest = distance.max(axis=0)
    if columns.are_numbers is not None:
        farthest = np.where(columns.are_numbers, farthest, 0)
    for j in np.argsort(-farthest)[: np.count_nonzero(farthest > _SHIFTED)].tolist():
        values = X[:, [j]]
        values = values.toarray() if sparse.issparse(values) else values
        n_far = int((np.abs(values - mean[j]) > _SHIFTED * scale[j]).sum())
        if n_far >= max(_SHIFTED_ROWS, X.shape[0] / 2):
            return j, n_far
    return None


def warn_of_codes(X, columns: InputColumns = _UNNAMED) -> None:
    """Warn if a column of training rows has a code for missing values, once per call.

    X : (rows, columns), array or sparse; a sparse one is not checked; NaN is missing
    """
    if sparse.issparse(X) or not len(X):
        return
    may_have = np.isin(np.fmin.reduce(X), CODES) | np.isin(np.fmax.reduce(X), CODES)
    if columns.are_numbers is not None:
        may_have &= columns.are_numbers
    parts = []
    for j in np.flatnonzero(may_have).tolist():
        values = X[~np.isnan(X[:, j]), j]
        is_code = np.isin(values, CODES)
        others = values[~is_code]
        low, high = (others.min(), others.max()) if len(others) else (0.0, 0.0)
        found = np.unique(values[is_code], return_counts=True)
        for code, n in zip(*found, strict=True):
            gap = max(low - code, code - high)
            if n >= _CODE_ROWS and gap > high - low > 0:
                parts.append(
                    f"{code:g} in column {columns.name(j)} ({n} rows; the other values "
                    f"are from {low:.3g} to {high:.3g})"
                )
    if parts:
        text = _about_codes(parts, "It is read as a number.")
        warn_once("SKB303", TRAINING_CODES, text)


def _about_codes(parts: Sequence[str], consequence: str) -> str:
    return (
        f"a value looks like a code for missing values: {listed(parts, 5)}. "
        f"{consequence} {CODE_FOR_MISSING}"
    )


# ---- units of the data <-> units of the network

# Shift and factor between two scales: (values - shift) * factor.
Affine = tuple[np.ndarray, np.ndarray]
# Shape of a row, and the axis along which its inputs share one mean and one scale.
Alike = tuple[tuple[int, ...], int]

# Largest step between neighbouring values of y in single precision, as a share of y's
# standard deviation: a tenth of the smallest observation noise that is learned.
_MAX_STEP = 0.1 * MIN_NOISE
# Standard deviations of y whose squares are finite and normal in single precision.
_SINGLE_SCALES = 1e-15, 1e15


@dataclass(frozen=True)
class Scaling:
    """Mean and scale of inputs and targets; converts between data and network.

    Parameters
    ----------
    x_mean, x_scale : ndarray of shape (inputs,), float64
    y_mean, y_scale : ndarray of shape (targets,), float64
        0 and 1 if y is not standardised.
    """

    x_mean: np.ndarray
    x_scale: np.ndarray
    y_mean: np.ndarray
    y_scale: np.ndarray

    @classmethod
    def of(
        cls,
        X,
        y,
        weights: np.ndarray,
        *,
        inputs: bool,
        targets: bool,
        robust: bool = False,
        alike: Alike | None = None,
    ):
        """Compute weighted means and standard deviations; constant columns get scale 1.

        Parameters
        ----------
        X : (rows, inputs), array or sparse
        y : ndarray of shape (rows, targets), or (rows,) of class indices
        weights : ndarray of shape (rows,)
        inputs, targets : bool
            Whether inputs and targets are standardised.
        robust : bool
            Whether outliers of y are clipped to the bounds of its common range.
        alike : tuple, optional
            Inputs that share one mean and one scale, see ``Alike``.
        """
        identity = cls.none(X.shape[1], 1 if y.ndim == 1 else y.shape[1])
        x_stats = identity.x_mean, identity.x_scale
        y_stats = identity.y_mean, identity.y_scale
        if inputs:
            x_stats = _mean_and_scale(X, weights, alike)
        if targets:
            common = np.clip(y, *common_range(y, weights)) if robust else y
            y_stats = _mean_and_scale(common, weights)
        return cls(*x_stats, *y_stats)

    @classmethod
    def none(cls, n_inputs: int, n_targets: int) -> "Scaling":
        """Create a scaling that changes nothing: means 0 and scales 1."""
        return cls(*_unit(n_inputs), *_unit(n_targets))

    @classmethod
    def finest(cls, scalings: Sequence["Scaling"]) -> "Scaling":
        """Per column, take mean and scale from the scaling with the smallest scale."""

        def select(means, scales):
            means, scales = np.stack(means), np.stack(scales)
            smallest = scales.argmin(0), np.arange(scales.shape[1])
            return means[smallest], scales[smallest]

        return cls(
            *select([s.x_mean for s in scalings], [s.x_scale for s in scalings]),
            *select([s.y_mean for s in scalings], [s.y_scale for s in scalings]),
        )

    @property
    def n_targets(self) -> int:
        """Number of targets; 1 for classes."""
        return len(self.y_mean)

    def x_to_network(self, X):
        """Standardise inputs, (rows, inputs)."""
        values = X - self.x_mean
        values /= self.x_scale
        return values

    def y_to_network(self, y):
        """Standardise targets, (rows, targets)."""
        return (y - self.y_mean) / self.y_scale

    def intervals_to_network(self, intervals):
        """Standardise the two bounds of each target, (rows, 3 targets)."""
        shift, factor = of_intervals(self.y_mean, 1 / self.y_scale)
        return joined_intervals(*np.split((intervals - shift) * factor, 3, axis=1))

    def y_from_network(self, values, axis: int = 1):
        """Convert values of y back to y's units; ``axis`` is the axis of targets."""
        trailing = (1,) * (values.ndim - 1 - axis % values.ndim)
        scale, mean = (v.reshape(-1, *trailing) for v in (self.y_scale, self.y_mean))
        return values * scale + mean

    def dtype_of_y(self, dtype) -> np.dtype:
        """Precision of predictions of y, if X has the precision ``dtype``.

        float32 stays float32, as in scikit-learn, unless float32 cannot resolve y:
        steps at y's mean are too coarse, or y's scale is out of range. Then float64.
        """
        step = np.finfo(np.float32).eps * np.abs(self.y_mean)
        low, high = _SINGLE_SCALES
        resolved = step <= _MAX_STEP * self.y_scale
        resolved &= (self.y_scale >= low) & (self.y_scale <= high)
        return np.dtype(dtype if resolved.all() else np.float64)

    def moments_from_network(self, mean, variance):
        """Convert mean and variance to y's units, with the targets on the last axis."""
        return mean * self.y_scale + self.y_mean, variance * np.square(self.y_scale)

    def components_from_network(self, components: Components) -> Components:
        """Convert distributions of y to y's units."""
        if not self.y_mean.any() and (self.y_scale == 1).all():
            return components
        return components.rescaled(self.y_mean, self.y_scale)

    def std_from_network(self, std):
        """Convert standard deviations to y's units, (..., targets)."""
        return std * self.y_scale

    def log_density_shift(self) -> float:
        """Constant to add to the network's log density, joint over targets."""
        return -np.log(self.y_scale).sum()

    def tau_to_network(self, tau):
        """Convert precisions, 1 / variance, to the network's units, (..., targets)."""
        return tau * self.y_scale**2

    def tau_from_network(self, variance):
        """Convert a noise variance to a precision in y's units, (targets,)."""
        return 1 / (variance * self.y_scale**2)

    def signal_precision(self) -> np.ndarray:
        """Precision of y itself, 1 / variance in y's units, (targets,)."""
        return 1 / self.y_scale**2

    def x_affine_to(self, other: "Scaling") -> Affine:
        """Shift and factor from this scale of the inputs to another, (inputs,) each."""
        return _affine(self.x_mean, self.x_scale, other.x_mean, other.x_scale)

    def y_affine_to(self, other: "Scaling") -> Affine:
        """Shift and factor from this scale of targets to another, (targets,) each."""
        return _affine(self.y_mean, self.y_scale, other.y_mean, other.y_scale)


def _unit(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(n), np.ones(n)


def of_intervals(shift: np.ndarray, factor: np.ndarray) -> Affine:
    """Shift and factor of intervals, (3 targets,) each: of both bounds, and a flag."""
    return (
        np.concatenate([shift, shift, np.zeros_like(shift)]),
        np.concatenate([factor, factor, np.ones_like(factor)]),
    )


def _affine(mean, scale, other_mean, other_scale) -> Affine:
    return (other_mean - mean) / scale, scale / other_scale


def _mean_and_scale(values, weights, alike: Alike | None = None):
    """Weighted mean and standard deviation per column, by StandardScaler."""
    unit = power_of_two_scale(values)
    if alike is not None:  # one unit, because there is one scale
        unit = np.full_like(unit, unit.max())
    scaler = StandardScaler(with_mean=not sparse.issparse(values))
    scaler.fit(divided(values, unit), sample_weight=weights)
    if alike is not None:
        mean, scale, constant = _pooled(scaler.mean_, scaler.var_, *alike)
    else:
        mean, scale = scaler.mean_, np.sqrt(scaler.var_)
        # The constant columns of the divided values are constant in their own units.
        constant = scaler.scale_ != scale
        if constant.any() and not sparse.issparse(values):
            _separate_close_values(
                divided(values, unit), weights, mean, scale, constant
            )
    return unit * mean, np.where(constant, 1.0, unit * scale)


def _separate_close_values(values, weights, mean, scale, constant) -> None:
    """Correct mean, scale and ``constant`` of columns with large, close values.

    StandardScaler takes numbers such as 10**16, 10**16 + 100 and so on for constants
    with rounding errors, the more rows there are.
    """
    used = weights > 0
    first = values[used.argmax()].astype(np.float64)
    for j in np.flatnonzero(constant):
        difference = values[used, j] - first[j]  # exact, because the values are close
        if np.ptp(difference) > 10 * np.finfo(values.dtype).eps * np.abs(first[j]):
            shift = np.average(difference, weights=weights[used])
            square = np.square(difference - shift)
            mean[j] = first[j] + shift
            scale[j] = np.sqrt(np.average(square, weights=weights[used]))
            constant[j] = False
        else:  # The mean of equal large numbers has rounding errors.
            mean[j] = first[j]


def _pooled(means, variances, shape: tuple[int, ...], axis: int):
    """Pool columns; return mean, standard deviation and whether constant per column."""
    means = means.reshape(shape)
    mean = means.mean(axis, keepdims=True)
    spread = variances.reshape(shape) + np.square(means - mean)
    scale = np.sqrt(spread.mean(axis, keepdims=True))
    # The spread of constants is rounding error only.
    constant = scale <= 10 * np.finfo(scale.dtype).eps * np.abs(mean)
    parts = mean, scale, constant
    return tuple(np.broadcast_to(v, shape).ravel().copy() for v in parts)
