"""CV+ intervals, from the held-out residuals of several models."""

import numpy as np

from skbayesnn._runtime import warn

# Rows predicted at a time: each needs two bounds per calibration row.
BLOCK = 512
# In floating point 1 - 0.9 is less than 0.1, which would change the rank by one.
NUDGE = 1e-12


def too_few(n_rows: int, coverage: float) -> bool:
    """Whether the calibration rows are too few for a coverage; warns if so."""
    is_too_few = (coverage - NUDGE) * (n_rows + 1) > n_rows
    if is_too_few:
        warn(
            "SKB402",
            f"A coverage of {coverage:g} needs at least "
            f"{int(np.ceil(coverage / (1 - coverage) - NUDGE))} calibration rows; got "
            f"{n_rows}: intervals are infinite, and label sets contain every label.",
        )
    return is_too_few


def cross_interval(predicted, scores, coverage: float) -> np.ndarray:
    """CV+ interval of each row, (rows, 2); Barber et al. 2021, eq. 11.

    With a single fold it equals the split conformal interval.

    predicted : mean and std of the model of each fold, (rows,)
    scores : standardised absolute residuals of the rows of each fold
    """
    n = sum(map(len, scores))
    rank = int(np.floor((1 - coverage + NUDGE) * (n + 1)))
    n_rows = len(predicted[0][0])
    result = np.empty((n_rows, 2))
    for start in range(0, n_rows, BLOCK):
        rows = slice(start, start + BLOCK)
        lower, upper = (
            np.concatenate(
                [
                    mean[rows, None] + sign * std[rows, None] * fold_scores
                    for (mean, std), fold_scores in zip(predicted, scores, strict=True)
                ],
                axis=1,
            )
            for sign in (-1, 1)
        )
        result[rows, 0] = np.partition(lower, rank - 1, axis=1)[:, rank - 1]
        result[rows, 1] = np.partition(upper, n - rank, axis=1)[:, n - rank]
    return result
