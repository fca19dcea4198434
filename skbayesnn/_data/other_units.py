"""Detect validation rows that were not scaled like the training rows.

A ``Pipeline`` transforms X, but passes a fit parameter such as ``X_val`` unchanged. X
is then scaled and X_val is not. Two conditions together detect this: most columns of X
look like the output of a scaler, and in most of these columns X_val lies where rows
that have merely drifted do not lie.
"""

import numpy as np
from scipy import sparse

from skbayesnn._data.scaling import Scaling
from skbayesnn._runtime import warn

THROUGH_STEPS = (
    "In a Pipeline, `X_val` must go through the steps before the estimator: enable "
    "metadata routing, give Pipeline(steps, transform_input=['X_val']), and call "
    "set_fit_request(X_val=True, y_val=True) on the estimator; or give "
    "pipeline[:-1].transform(X_val)."
)
# Distance of the median of X_val from the mean of X, in standard deviations of X.
_FAR = 10.0
# X_val is narrow if its range is less than this share of X's range. Both are ranges
# of 90 % of the rows.
_NARROW = 0.1
# With fewer rows, X_val is never narrow.
_ENOUGH_ROWS = 10
# A discrete column has at most this many values, each in ten rows on average.
_FEW_VALUES = 20
# The units differ if at least this share of the columns is far or has other values.
_MAX_FAR = 0.5
# The units differ if at least this share of the columns is far or narrow.
_MAX_STRANGE = 0.75
# Rounding error of a scaler's output, in standard deviations of the column.
_ROUNDING = 1e-5
# Largest number of rows of X whose range is computed.
_SOME_ROWS = 2000


def warn_of_other_units(X, X_val) -> None:
    """Warn if ``X_val`` seems to be unscaled while ``X`` is scaled.

    X : (rows, columns), training rows; X_val : (validation rows, columns)
    """
    if sparse.issparse(X) or sparse.issparse(X_val):
        return
    scaling = Scaling.of(X, X, np.ones(len(X)), inputs=True, targets=False)
    varies = X.min(0) != X.max(0)
    far = np.abs(np.median(scaling.x_to_network(X_val), axis=0)) > _FAR
    for j in np.flatnonzero(varies & ~far):
        far[j] = _has_other_values(X[:, j], X_val[:, j], scaling.x_scale[j])
    strange = far | _is_narrow(X, X_val)
    if not _most(far, strange, varies):
        return
    # Last, because it costs more.
    scaled = [
        varies[j] and _is_scaled(X[:, j], scaling.x_scale[j]) for j in range(X.shape[1])
    ]
    if 2 * np.sum(scaled) >= varies.sum() and _most(far, strange, np.array(scaled)):
        warn(
            "SKB210",
            "`X_val` seems to be in other units than `X`, whose columns are scaled: "
            "its scores are meaningless, and training stops too early or too late. "
            f"{THROUGH_STEPS}",
        )


def _most(far, strange, selected) -> bool:
    """Whether most selected columns are far, or strange; (columns,) bool each."""
    if not selected.any():
        return False
    return bool(
        far[selected].mean() >= _MAX_FAR or strange[selected].mean() >= _MAX_STRANGE
    )


def _is_narrow(X, X_val) -> np.ndarray:
    """Whether X_val varies, but far less than X, (columns,) bool."""
    if len(X_val) < _ENOUGH_ROWS:
        return np.zeros(X.shape[1], dtype=bool)
    subset = X[:: -(-len(X) // _SOME_ROWS)]
    range_x, range_val = (
        np.diff(np.quantile(v, [0.05, 0.95], 0), axis=0)[0] for v in (subset, X_val)
    )
    return (range_val > 0) & (range_val < _NARROW * range_x)


def _has_other_values(x, x_val, scale: float) -> bool:
    """Whether X_val has integers only, and none of the values of a discrete column."""
    if (x_val != np.floor(x_val)).any():
        return False
    if len(np.unique(x[: 10 * _FEW_VALUES])) > _FEW_VALUES:
        return False
    values = np.unique(x)
    if len(values) > min(_FEW_VALUES, len(x) / 10):
        return False
    return bool(np.abs(x_val[:, None] - values).min() > _ROUNDING * scale)


def _is_scaled(x, scale: float) -> bool:
    """Whether a column looks scaled: by its mean, its range or its median."""
    near = _ROUNDING * scale
    if abs(x.mean(dtype=np.float64)) < near:
        return True
    # A range of [0, 1] or [-1, 1], unless the column is a 0/1 label.
    if abs(max(-x.min(), x.max()) - 1) < near and not np.isin(x, [0, 1]).all():
        return True
    lower, median, upper = np.quantile(x, [0.25, 0.5, 0.75])
    return bool(abs(median) < near and abs(upper - lower - 1) < near)
