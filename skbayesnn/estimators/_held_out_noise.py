"""The noise of y under which rows are the likeliest that the weights do not know.

A tau that is learned with the weights by eq. 1 is that of the rows that these were
fitted to. Where q(W) has a width of its own that is learned, no count of parameters
says what the weights have taken up (as in `_inference/residual_noise.py`); rows that
were held out do. Draws and noise are taken for normal:

      sum_n w_n max(log N(y_n; E f_n, var f_n + s^2 v_n), c) + log N(log s; 0, 0.5^2)

is maximised in the factor s on the std of the noise, v its variance as it was trained;
c is 30 nats below most rows.
"""

from functools import partial

import numpy as np

from skbayesnn._predictive.recalibration import map_factor

# Of the noise's std, that are looked at, and by how many nats a row is an outlier: more
# than of a mixture, which has tails (benchmarks/STUDY.md).
FACTORS, OUTLIER = (1e-4, 1e4), 30.0


def noise_factors(moments: np.ndarray, weights) -> tuple[np.ndarray, np.ndarray]:
    """Log density of every row, nats, and the factors s^2 of the noise's variance.

    moments : (3, rows, targets), residuals from the mean of the draws, and the variance
        of the draws and of the noise
    weights : (rows,)
    returns : (rows, targets), (targets,)
    """
    densities, factors = [], []
    for of_target in np.moveaxis(moments, 2, 0):
        density = partial(_log_density, of_target)
        factor = map_factor(density, weights, *FACTORS, OUTLIER)
        densities.append(density(np.log(factor)))
        factors.append(factor**2)
    return np.stack(densities, axis=1), np.array(factors)


def _log_density(moments: np.ndarray, log_factor: float) -> np.ndarray:
    """Of every row (3, rows), with the std of the noise times a factor."""
    residual, of_draws, of_noise = moments
    variance = of_draws + of_noise * np.exp(2 * log_factor)
    return -0.5 * (np.square(residual) / variance + np.log(2 * np.pi * variance))
