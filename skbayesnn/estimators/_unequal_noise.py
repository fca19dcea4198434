"""Test whether the size of residuals depends on the row.

A likelihood with one noise variance for all rows makes intervals too wide where the
noise is small, and too narrow where it is large. The test computes rank correlations of
absolute residuals with the prediction and with every column [Glejser 1969, "A new test
for heteroskedasticity", JASA 64; with ranks as in Spearman 1904]. Noise that grows
towards both sides is found by the distance of the rank from the median.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import rankdata

# Bound of the probability that the test finds unequal noise if the noise is equal, for
# the warning and for the selection of a likelihood.
WARNING_LEVEL, SELECTION_LEVEL = 1e-4, 0.05
# Ratio of the mean absolute residuals of two thirds of the rows, below which
# differences do not matter to a user.
_LEAST_RATIO = 1.5
# With fewer rows, ranks are too few for the normal approximation.
_LEAST_ROWS = 20


class UnequalNoise(NamedTuple):
    """Result of the test, for the variable with the largest correlation.

    Parameters
    ----------
    p_value : float
        Bonferroni's bound, for all variables together.
    ratio : float
        Mean absolute residual of one third of the rows, divided by the mean absolute
        residual of the opposite third. Thirds are formed by the variable.
    column : int or None
        Column of X, or None for the prediction.
    side : str
        Where the residuals are large, for a warning.
    """

    p_value: float = 1.0
    ratio: float = 1.0
    column: int | None = None
    side: str = ""

    @property
    def matters(self) -> bool:
        """Whether a user should be warned."""
        return self.p_value < WARNING_LEVEL and self.ratio > _LEAST_RATIO


def unequal_noise(
    residual: np.ndarray, prediction: np.ndarray, X, n_independent: float
) -> UnequalNoise:
    """Test whether absolute residuals depend on the prediction or a column.

    residual, prediction : (rows, targets)
    X : {array, sparse array} of shape (rows, columns)
    n_independent : number of independent rows, at most the number of rows
    """
    n_rows, n_targets = residual.shape
    usable = np.isfinite(residual).all() and np.isfinite(prediction).all()
    if min(n_rows, n_independent) < _LEAST_ROWS or not usable:
        return UnequalNoise()
    columns = X.toarray() if hasattr(X, "toarray") else X
    best = UnequalNoise()
    for r, f in zip(np.abs(residual).T, prediction.T, strict=True):
        variables = rankdata(np.column_stack([f, columns]), axis=0)
        outer = np.abs(variables - (n_rows + 1) / 2)
        variables = np.hstack([variables, outer])
        score = _correlations(rankdata(r), variables) * np.sqrt(n_independent - 1)
        i = int(np.abs(score).argmax())
        n_tests = n_targets * variables.shape[1]
        p_value = min(1.0, 2 * n_tests * float(ndtr(-abs(score[i]))))
        if p_value < best.p_value:
            is_outer, column = divmod(i, variables.shape[1] // 2)
            names = ("far from", "near") if is_outer else ("large", "small")
            side = names[int(score[i] < 0)] + " its median" * is_outer
            ratio = _ratio_of_thirds(r, variables[:, i] * np.sign(score[i]))
            best = UnequalNoise(p_value, ratio, column - 1 if column else None, side)
    return best


def _correlations(ranks: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """Correlations of ranks (rows,) with variables (rows, n); 0 for constants."""
    ranks, variables = ranks - ranks.mean(), variables - variables.mean(0)
    norms = np.linalg.norm(ranks) * np.linalg.norm(variables, axis=0)
    return ranks @ variables / np.where(norms > 0, norms, np.inf)


def _ratio_of_thirds(values: np.ndarray, variable: np.ndarray) -> float:
    """Mean value of the upper third of the rows by a variable, over the lower."""
    ordered = values[np.argsort(variable, kind="stable")]
    n = len(values) // 3
    lower = max(ordered[:n].mean(), np.finfo(float).tiny)
    return float(ordered[-n:].mean() / lower)
