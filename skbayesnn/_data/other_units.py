"""Validation rows that did not go through the scaler in front of the estimator.

A ``Pipeline`` transforms X, and hands on a fit parameter such as ``X_val`` as it is.
X has then been scaled and X_val has not, which is seen by two things together: most
columns of X are as a scaler makes them, and in most of these X_val is where rows that
have only drifted are not.
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
# The median of X_val is so many standard deviations of X from its mean.
_FAR = 10.0
# X_val has less than this share of the range of X (of 90 % of the rows each), in at
# least so many rows.
_NARROW, _ENOUGH_ROWS = 0.1, 10
# A column is discrete that has at most so many values, each in ten rows on average.
_FEW_VALUES = 20
# Shares of the columns that are far or have other values, or are narrow as well.
_MOST_FAR, _MOST_STRANGE = 0.5, 0.75
# By which numbers of a scaler may be off, in standard deviations of the column.
_ROUNDING = 1e-5
# Rows of X whose range is looked at.
_SOME_ROWS = 2000


def warn_of_other_units(X, X_val) -> None:
    """Say that ``X_val`` seems to have the units that X had before it was scaled.

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
    # Only now, since it costs more.
    scaled = [
        varies[j] and _is_scaled(X[:, j], scaling.x_scale[j]) for j in range(X.shape[1])
    ]
    if 2 * np.sum(scaled) >= varies.sum() and _most(far, strange, np.array(scaled)):
        warn(
            "`X_val` seems to be in other units than `X`, whose columns have been "
            "scaled: its scores mean nothing, and the training stops too early or too "
            f"late. {THROUGH_STEPS}"
        )


def _most(far, strange, among) -> bool:
    """Whether most of some columns are far, or strange; (columns,) bool each."""
    if not among.any():
        return False
    return bool(
        far[among].mean() >= _MOST_FAR or strange[among].mean() >= _MOST_STRANGE
    )


def _is_narrow(X, X_val) -> np.ndarray:
    """Whether X_val varies, but far less than X, (columns,) bool."""
    if len(X_val) < _ENOUGH_ROWS:
        return np.zeros(X.shape[1], dtype=bool)
    some = X[:: -(-len(X) // _SOME_ROWS)]
    of_x, of_val = (
        np.diff(np.quantile(v, [0.05, 0.95], 0), axis=0)[0] for v in (some, X_val)
    )
    return (of_val > 0) & (of_val < _NARROW * of_x)


def _has_other_values(x, x_val, scale: float) -> bool:
    """Whether X_val has whole numbers, and none of the values of a discrete column."""
    if (x_val != np.floor(x_val)).any():
        return False
    if len(np.unique(x[: 10 * _FEW_VALUES])) > _FEW_VALUES:
        return False
    values = np.unique(x)
    if len(values) > min(_FEW_VALUES, len(x) / 10):
        return False
    return bool(np.abs(x_val[:, None] - values).min() > _ROUNDING * scale)


def _is_scaled(x, scale: float) -> bool:
    """Whether a column is as a scaler makes it: by its mean, range or median."""
    near = _ROUNDING * scale
    if abs(x.mean(dtype=np.float64)) < near:
        return True
    # A range of [0, 1] or [-1, 1], unless it is that of a label.
    if abs(max(-x.min(), x.max()) - 1) < near and not np.isin(x, [0, 1]).all():
        return True
    quarter, median, three = np.quantile(x, [0.25, 0.5, 0.75])
    return bool(abs(median) < near and abs(three - quarter - 1) < near)
