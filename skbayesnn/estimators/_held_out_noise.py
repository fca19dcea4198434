"""The noise of y under which rows are the likeliest that the weights do not know.

What is learned of it with the weights by eq. 1 is that of the rows that these were
fitted to. Where q(W) has a width of its own that is learned, no count of parameters
says what the weights have taken up (as in `_inference/residual_noise.py`), nor where
the noise is not Gaussian; rows that were held out do. Draws are taken for normal.

Gaussian noise, with v its variance as it was trained:

      sum_n w_n max(log N(y_n; E f_n, var f_n + s^2 v_n), c) + log N(log s; 0, 0.5^2)

is maximised in the factor s on its std; c is 30 nats below most rows. Mixtures of
Gaussians the same, with the density of the mixture of all draws in the place of N.

Student's t, which weights that interpolate some of their rows leave with a scale next
to zero and the fewest degrees of freedom that it may have, all others its outliers:

      sum_n w_n log t_nu'(y_n; E f_n, s_n) + log Gamma(nu; 2, 0.1)

      s_n^2 = var f_n + s^2, nu' = nu s_n^2 / s^2

is maximised in those of s and nu that are learned, whatever the training has made of
them. The sum of normal draws and of noise with nu degrees of freedom and scale s is
nearly that (0.03 nats for nu = 2.1 and 0.002 for 4, at most). The prior is that of
Juarez & Steel (2010), "Model-based clustering of non-Gaussian panel data based on
skew-t distributions", JBES 28(1).
"""

from functools import partial

import numpy as np
from scipy.special import logsumexp

from skbayesnn._likelihoods import Likelihood
from skbayesnn._likelihoods.base import SMALLEST_NOISE
from skbayesnn._likelihoods.gaussian import HALF_LOG_2PI
from skbayesnn._likelihoods.mixture import Mixture
from skbayesnn._likelihoods.student_t import StudentT, StudentTs
from skbayesnn._predictive.recalibration import lowest, map_factor

# Of the Gaussian noise's std, that are looked at, and by how many nats a row is an
# outlier: more than of a mixture, which has tails (benchmarks/STUDY.md).
FACTORS, OUTLIER = (1e-4, 1e4), 30.0
# Of Student's t: the largest scale, in root mean squares of the residuals; the degrees
# of freedom that are looked at, from where the noise's std is 1.7 scales (at 2.1, where
# the training may end, 4.6); and the rate of their prior, whose shape is 2.
LARGEST_SCALE, DFS, DF_RATE = 3.0, (3.0, 200.0), 0.1

Noise = dict[str, np.ndarray]


def likeliest(
    likelihood: Likelihood, moments: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, Noise]:
    """Log density of every row, nats, and the likelihood's ``noise_of_predictions``.

    moments : (numbers, rows, targets), as of ``validation_moments``
    weights : (rows,)
    returns : (rows, targets), and arrays (targets,)
    """
    return _LAWS[likelihood.name](likelihood, moments, weights)


def _gaussian(likelihood, moments, weights):
    density, factors = noise_factors(moments, weights)
    return density, {"log_factor": np.log(factors)}


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


def _student_t(likelihood: StudentT, moments, weights):
    densities, found = [], []
    for of_target in np.moveaxis(moments, 2, 0):
        density, *noise = _student_t_of(likelihood, of_target, weights)
        densities.append(density)
        found.append(noise)
    scale, df = np.transpose(found)
    said = {
        "predictive_log_tau": np.log((df - 2) / (df * np.square(scale))),
        "predictive_log_df": np.log(df),
    }
    noise = {name: said[name] for name in likelihood.noise_of_predictions}
    return np.stack(densities, axis=1), noise


def _student_t_of(likelihood: StudentT, moments, weights):
    """Log density of every row, scale and degrees of freedom, of one target."""
    residual, of_draws, trained_scale, trained_df = moments
    root = np.sqrt(np.average(np.square(residual) + of_draws, weights=weights))
    scales = SMALLEST_NOISE, LARGEST_SCALE * max(root, SMALLEST_NOISE)

    def density(log_scale, df):
        ratio = 1 + of_draws * np.exp(-2 * log_scale)
        scale = np.exp(log_scale) * np.sqrt(ratio)
        rows = StudentTs(np.zeros(1), scale, df * ratio)
        return rows.log_density_per_target(residual)

    def log_scale_for(df):
        if not likelihood.learned:
            variance = trained_scale[0] ** 2 * trained_df[0] / (trained_df[0] - 2)
            return 0.5 * np.log((df - 2) / df * variance)
        return lowest(lambda one: -(weights @ density(one, df)), *np.log(scales))

    def loss(log_df):
        df = np.exp(log_df)
        return DF_RATE * df - log_df - weights @ density(log_scale_for(df), df)

    df = likelihood.df or np.exp(np.round(lowest(loss, *np.log(DFS)), 3))
    log_scale = np.round(log_scale_for(df), 3)
    return density(log_scale, df), np.exp(log_scale), df


def _mixture(likelihood: Mixture, moments, weights):
    densities, factors = [], []
    for of_target in np.moveaxis(moments, 2, 0):
        draws = of_target.reshape(3, -1, likelihood.n_components, len(weights))
        density = partial(_log_density_of_mixture, draws)
        factor = map_factor(density, weights, *FACTORS, OUTLIER)
        densities.append(density(np.log(factor)))
        factors.append(factor)
    return np.stack(densities, axis=1), {"log_factor": 2 * np.log(factors)}


def _log_density_of_mixture(draws: np.ndarray, log_factor: float) -> np.ndarray:
    """Of every row (3, draws, K, rows), with the std of the noise times a factor."""
    weight, residual, scale = draws
    density = -0.5 * np.square(residual / (scale * np.exp(log_factor)))
    density -= np.log(scale) + log_factor + HALF_LOG_2PI
    return logsumexp(density, axis=(0, 1), b=weight / len(weight))


_LAWS = {
    "gaussian": _gaussian,
    "heteroscedastic": _gaussian,
    "student_t": _student_t,
    "mixture": _mixture,
}
