"""Held-out residuals of several models -> intervals of guaranteed coverage (CV+)."""

import numpy as np

from skbayesnn._predictive.mixin import PredictiveBlocks
from skbayesnn._runtime import warn

# Rows of which the ends of all calibrating rows are held at once.
BLOCK = 512
# 1 - 0.9 is less than a tenth in floating point, which would cost one rank.
NUDGE = 1e-12


def too_few(n_rows: int, coverage: float) -> bool:
    """Whether so few rows say nothing of a coverage, with a warning."""
    few = (coverage - NUDGE) * (n_rows + 1) > n_rows
    if few:
        warn(
            f"A coverage of {coverage:g} needs at least "
            f"{int(np.ceil(coverage / (1 - coverage) - NUDGE))} rows that calibrate; "
            f"got {n_rows}: everything is inside.",
        )
    return few


def not_below_zero(interval: np.ndarray, opened: PredictiveBlocks) -> np.ndarray:
    """Of counts, whose predictive says that they are: with lower bounds of 0 at least.

    interval : (..., 2); opened : the predictive of rows that are predicted
    """
    if getattr(opened.distribution(slice(0, 1)), "counts", False):
        interval[..., 0] = np.maximum(interval[..., 0], 0)
    return interval


def cross_interval(predicted, scores, coverage: float) -> np.ndarray:
    """CV+ interval of each row, (rows, 2); Barber et al. 2021, eq. 11.

    Of a single fold it is the split conformal one.

    predicted : mean and std of every fold's model, (rows,)
    scores : standardised absolute residuals of every fold's rows
    """
    n = sum(len(one) for one in scores)
    rank = int(np.floor((1 - coverage + NUDGE) * (n + 1)))
    n_rows = len(predicted[0][0])
    result = np.empty((n_rows, 2))
    for start in range(0, n_rows, BLOCK):
        rows = slice(start, start + BLOCK)
        ends = [
            [mean[rows, None] + sign * std[rows, None] * score for sign in (-1, 1)]
            for (mean, std), score in zip(predicted, scores, strict=True)
        ]
        low, high = (np.concatenate(side, axis=1) for side in zip(*ends, strict=True))
        result[rows, 0] = np.partition(low, rank - 1, axis=1)[:, rank - 1]
        result[rows, 1] = np.partition(high, n - rank, axis=1)[:, n - rank]
    return result
