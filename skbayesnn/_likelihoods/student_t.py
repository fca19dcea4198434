"""Student's t likelihood: noise with outliers, one precision per target.

y = f + s t, with t of ``df`` degrees of freedom. tau stays 1 / variance, so the squared
scale is s^2 = (df - 2) / (df tau). A residual pulls on f with a bounded force: rows far
out count less the farther they are [Lange, Little & Taylor 1989, "Robust statistical
modeling using the t distribution", JASA].
"""

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import gammaln, stdtr, stdtrit

from skbayesnn._distributions.components import Components
from skbayesnn._distributions.crps import spread_levels, weighted_sample_crps
from skbayesnn._distributions.map_factor import log_mean_exp, median
from skbayesnn._likelihoods.base import SMALLEST_NOISE, Precision, check_same_shape

# Learned degrees of freedom start here, and count as the nearest of the bounds outside:
# from noise whose variance is just finite to what cannot be told from a Gaussian.
START_DF = 5.0
DF_BOUNDS = (2.1, 200.0)
# Those that rows held out may tell: from where the noise's std is 1.7 scales (at 2.1,
# where the training may end, 4.6); where that is looked for from; and the rate of their
# prior, whose shape is 2.
HELD_OUT_DF, STARTS_DF, DF_RATE = (3.0, 200.0), (4.0, 30.0), 0.1
# The largest variance that is looked at, in mean squares of the residuals.
LARGEST_VARIANCE = 10.0
# Given ones: above 2 also in float32, and small enough for differences of lgamma.
FEWEST_DF, MOST_DF = 2.001, 1e6
# Quantiles that stand for a mixture in its CRPS, all draws together, and of each draw.
N_POINTS, FEWEST_OF_A_DRAW = 1000, 5
# SciPy's quantile is wrong in sign below levels of about 1e-200.
SMALLEST_LEVEL = 1e-100


@dataclass(frozen=True)
class StudentTs(Components):
    """mean + scale t, arrays of shape (draws, rows, targets)."""

    mean: np.ndarray
    scale: np.ndarray
    df: np.ndarray

    @property
    def variance(self):
        """scale^2 df / (df - 2)."""
        return np.square(self.scale) * self.df / (self.df - 2)

    def log_density_per_target(self, y):
        """log p(y)."""
        df = self.df.astype(np.float64)
        constant = gammaln(0.5 * (df + 1)) - gammaln(0.5 * df)
        constant -= 0.5 * np.log(np.pi * df) + np.log(self.scale)
        return constant - 0.5 * (df + 1) * np.log1p(np.square(self._t_of(y)) / df)

    def cdf(self, y):
        """P(Y <= y)."""
        return stdtr(self.df.astype(np.float64), self._t_of(y))

    def quantile(self, level):
        """Of every draw by itself."""
        df = self.df.astype(np.float64)
        return self.mean + self.scale * stdtrit(df, np.maximum(level, SMALLEST_LEVEL))

    def sample(self, random):
        """Means with noise."""
        noise = random.standard_t(self.df).astype(self.mean.dtype)
        return self.mean + self.scale * noise

    def rescaled(self, shift, factor):
        """Of shift + factor y."""
        return StudentTs(self.mean * factor + shift, self.scale * factor, self.df)

    def mixture_crps(self, y):
        """Of quantiles of the draws, whose levels interlace.

        The mixture's own would take many times as long. Draws that say the same are
        as good as one with all the levels.
        """
        n_each = max(FEWEST_OF_A_DRAW, math.ceil(N_POINTS / self.n_draws))
        n = n_each * self.n_draws
        levels, weights = (
            values.reshape(n_each, self.n_draws) for values in spread_levels(n)
        )
        points = [self.quantile(of_draws[:, None, None]) for of_draws in levels]
        weights = weights / (self.n_draws * weights.sum(0))
        return weighted_sample_crps(y, np.concatenate(points), weights.ravel())

    def _t_of(self, y):
        return (y - self.mean.astype(np.float64)) / self.scale


@dataclass(frozen=True)
class StudentT(Precision):
    """Noise that is the same for all rows.

    df : degrees of freedom, given, or None: learned, one per target
    """

    name = "student_t"
    robust = True
    components_class = StudentTs

    df: float | None = None

    def __post_init__(self):
        if self.df is None:
            return
        if isinstance(self.df, bool) or not isinstance(self.df, Real):
            raise TypeError(f"`df` must be a number or None; got {self.df!r}.")
        if not FEWEST_DF <= self.df <= MOST_DF:
            raise ValueError(
                f"`df` must be in [{FEWEST_DF:g}, {MOST_DF:g}], where the noise has a "
                f"variance and can be told from Gaussian; got {self.df!r}. Without "
                "outliers there is likelihood='gaussian'."
            )
        # A plain number, whatever a grid holds: the description is kept.
        object.__setattr__(self, "df", float(self.df))

    @property
    def n_outputs(self):
        """Outputs of the network: one mean per target."""
        return self.n_targets

    @property
    def trainable(self):
        """Names of the parameters that are learned."""
        return super().trainable + (("log_df",) if self.df is None else ())

    def init(self, tau, statistics=None):
        """tau : (members, targets), the given precision, or where learning starts."""
        params = super().init(tau)
        if self.df is None:
            params["log_df"] = torch.full_like(tau, math.log(START_DF))
        return params

    @property
    def predictive_params(self):
        """Precision and degrees of freedom, those that are learned."""
        return tuple(f"predictive_{name}" for name in self.trainable)

    def predictive_log_tau(self, params):
        """That of rows held out, where it was made anew."""
        if "predictive_log_tau" in params:
            return params["predictive_log_tau"].unsqueeze(1)
        return self.log_tau(params)

    def degrees_of_freedom(self, params):
        """(members, 1, targets), or a number as a float64 tensor where it is given."""
        if self.df is not None:
            return torch.tensor(self.df, dtype=torch.float64)
        return params["log_df"].unsqueeze(1).clamp(*map(math.log, DF_BOUNDS)).exp()

    def predictive_degrees_of_freedom(self, params):
        """Those of rows held out, where they were made anew."""
        if "predictive_log_df" in params:
            return params["predictive_log_df"].unsqueeze(1).exp()
        return self.degrees_of_freedom(params)

    def nll(self, params, outputs, y):
        """-log p(y | f), (..., members, rows)."""
        check_same_shape(outputs, y)
        df, log_tau = self.degrees_of_freedom(params), self.log_tau(params)
        constant = torch.lgamma(0.5 * df) - torch.lgamma(0.5 * (df + 1))
        constant = constant + 0.5 * (math.pi * (df - 2)).log() - 0.5 * log_tau
        squares = log_tau.exp() * (y - outputs).square() / (df - 2)
        return (constant + 0.5 * (df + 1) * squares.log1p()).sum(-1)

    def components(self, params, outputs):
        """Mean, scale and df of every draw, (draws, members, rows, targets)."""
        df = self.predictive_degrees_of_freedom(params)
        variance = self.predictive_log_tau(params).neg().exp()
        scale = ((df - 2) / df * variance).sqrt()
        return outputs, scale.expand_as(outputs), df.to(outputs).expand_as(outputs)

    def held_out_draws(self, params, outputs, y):
        """Residuals, scales and degrees of freedom.

        returns : (members, rows, 3, draws, targets)
        """
        mean, scale, df = self.components(params, outputs)
        return torch.stack([y - mean, scale, df]).permute(2, 3, 0, 1, 4)

    def fit_predictive_params(self, draws, weights):
        """draws : residuals, scales and dfs, (rows, 3, draws, targets)"""
        densities, estimates = [], []
        for of_target in draws.transpose(3, 1, 2, 0):
            density, log_noise = self._likeliest_of_target(of_target, weights)
            densities.append(density)
            estimates.append(log_noise)
        log_df, log_variance = np.transpose(estimates)
        known = {"predictive_log_tau": -log_variance, "predictive_log_df": log_df}
        noise = {name: known[name] for name in self.predictive_params}
        return np.stack(densities, axis=1), noise

    def _likeliest_of_target(self, draws, weights):
        """Log density of every row; logs of degrees of freedom and variance.

        draws : (3, draws, rows)
        """
        residual, scale, df = draws
        squares = np.square(residual)
        # What is given is as it was trained, the same for all rows.
        scale, df = scale[0, :1], df[0, :1]
        dfs, variances = df, np.square(scale) * df / (df - 2)
        if self.df is None:
            dfs = np.array(HELD_OUT_DF)
        if self.learned:
            most = np.average(squares.mean(0), weights=weights)
            least = SMALLEST_NOISE**2
            variances = np.array([least, LARGEST_VARIANCE * max(most, least)])

        def density(log_noise):
            return _log_density_of_mixture(squares, *np.exp(log_noise))

        def loss(log_noise):
            prior = log_noise[0] - DF_RATE * np.exp(log_noise[0])
            return -(weights @ density(log_noise) + prior) / weights.sum()

        nearest = 2 * max(median(squares.min(0), weights), variances[0])
        usual = 2 * max(median(np.square(residual.mean(0)), weights), variances[0])
        starts = np.log(
            [
                (STARTS_DF[0], nearest),
                (STARTS_DF[0], usual),
                (STARTS_DF[1], variances[-1]),
            ]
        )
        bounds = [(one[0], one[-1]) for one in (np.log(dfs), np.log(variances))]
        lower, upper = np.transpose(bounds)
        fits = [
            minimize(loss, start.clip(lower, upper), bounds=bounds, method="L-BFGS-B")
            for start in starts
        ]
        best = min(fits, key=lambda one: one.fun)
        # What is given stays exact.
        log_noise = np.where(lower == upper, lower, np.round(best.x, 3))
        return density(log_noise), log_noise


def _log_density_of_mixture(
    squares: np.ndarray, df: float, variance: float
) -> np.ndarray:
    """Log density of every row, (rows,), under the mixture of all draws.

    squares : (draws, rows), squared residuals
    """
    square = variance * (df - 2) / df
    constant = gammaln(0.5 * (df + 1)) - gammaln(0.5 * df)
    constant -= 0.5 * np.log(np.pi * df * square)
    density = -0.5 * (df + 1) * np.log1p(squares / (df * square))
    return constant + log_mean_exp(density)
