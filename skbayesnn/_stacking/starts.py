"""What further starts take off the error of a mixture, and so off its spread.

Out of fold a candidate is one network; fitted to all rows it is several, from different
starts. Their mean errs less than each of them, and the mixture of them is wider.

Pure NumPy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from skbayesnn._stacking.mixture import pooled

# Of the factor that held-out rows ask for, whatever is taken off.
LEAST_LEFT = 0.5


def factor_with_starts(
    factor: np.ndarray, taken_off: np.ndarray, row_weights: np.ndarray
) -> np.ndarray:
    """The correction of the mixture of more starts, (targets,).

    v is the mixture's variance, and d what more starts take off the squared error of
    its mean, and add to v. Where factor^2 (v - d) was the expected squared error, it is
    factor^2 (v - d) - d now: v times factor^2 (1 - d / v) - d / v.

    factor : (targets,), of the mixture out of fold
    taken_off : (rows, targets), d / v
    row_weights : (rows,)
    """
    ratio = np.maximum(np.average(taken_off, axis=0, weights=row_weights), 0)
    square = np.square(factor)
    least = np.square(LEAST_LEFT) * square
    return np.sqrt(np.maximum(square * (1 - ratio) - ratio, least))


def share_of_starts(
    parts: Sequence[Any],
    n_draws: Sequence[int],
    n_before: Sequence[int],
    n_now: Sequence[int],
) -> np.ndarray:
    """What more starts take off the squared error, in units of the variance: d / v.

    Starts of candidate c differ by V_c(x), independently. With its weight w_c, and n_c
    of them in place of k_c, d(x) = sum_c w_c^2 V_c(x) (1 / k_c - 1 / n_c). On training
    rows starts agree more than elsewhere, so that rather too little is taken off.

    parts : MixturePredictive of each candidate, of the same rows, fitted to all rows
    n_draws : of each in the mixture
    n_before, n_now : networks of each, out of fold and now
    returns : (rows, targets)
    """
    mixture = pooled(parts, n_draws).components
    share = np.asarray(n_draws) / np.sum(n_draws)
    taken_off = np.zeros(mixture.mean.shape[1:])
    for part, w, before, now in zip(parts, share, n_before, n_now, strict=True):
        if now > before:
            difference = 1 / before - 1 / now
            taken_off += w**2 * variance_of_starts(part, now) * difference
    return taken_off / (mixture.variance.mean(0) + mixture.mean.var(0))


def variance_of_starts(part, n_networks: int) -> np.ndarray:
    """Of the mean of a network's draws about that of all, unbiased, (rows, targets).

    Where each network has one draw, the spread of draws is in it.

    part : MixturePredictive, the networks side by side within every draw
    """
    means = part.components.mean
    means = means.reshape(-1, n_networks, *means.shape[1:])
    variance = means.mean(0).var(0, ddof=1)
    n_draws = len(means)
    if n_draws == 1:
        return variance
    return variance - means.var(0, ddof=1).mean(0) / n_draws
