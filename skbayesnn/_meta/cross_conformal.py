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


def cross_intervals(predicted, scores, coverages) -> np.ndarray:
    """CV+ intervals, (rows, targets, coverages, 2); Barber et al. 2021, eq. 11.

    With a single fold they equal split conformal intervals.

    predicted : mean and std of the model of each fold, (rows, targets)
    scores : standardised absolute residuals of the rows of each fold, by target
    """
    n = sum(map(len, scores))
    ranks = {
        i: int(np.floor((1 - coverage + NUDGE) * (n + 1)))
        for i, coverage in enumerate(coverages)
        if not too_few(n, coverage)
    }
    result = np.empty((*predicted[0][0].shape, len(coverages), 2))
    result[:] = -np.inf, np.inf
    for start in range(0, len(result), BLOCK):
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
        for i, rank in ranks.items():
            result[rows, :, i, 0] = np.partition(lower, rank - 1, axis=1)[:, rank - 1]
            result[rows, :, i, 1] = np.partition(upper, n - rank, axis=1)[:, n - rank]
    return result
