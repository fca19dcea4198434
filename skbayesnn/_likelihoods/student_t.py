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
from scipy.special import gammaln, stdtr, stdtrit

from skbayesnn._distributions.base import Components
from skbayesnn._distributions.crps import spread_levels, weighted_sample_crps
from skbayesnn._distributions.likeliest import lowest
from skbayesnn._likelihoods.base import SMALLEST_NOISE, Precision, check_same_shape

# Learned degrees of freedom start here, and count as the nearest of the bounds outside:
# from noise whose variance is just finite to what cannot be told from a Gaussian.
START_DF = 5.0
DF_BOUNDS = (2.1, 200.0)
# Those that rows held out may tell: from where the noise's std is 1.7 scales (at 2.1,
# where the training may end, 4.6); the rate of their prior, whose shape is 2; and the
# largest scale that is looked at, in root mean squares of the residuals.
HELD_OUT_DF, DF_RATE, LARGEST_SCALE = (3.0, 200.0), 0.1, 3.0
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
    def noise_of_predictions(self):
        """Precision and degrees of freedom, those that are learned."""
        return tuple(f"predictive_{name}" for name in self.trainable)

    def predictive_log_tau(self, params):
        """That of rows held out, where it was made anew."""
        if "predictive_log_tau" in params:
            return params["predictive_log_tau"].unsqueeze(1)
        return self.log_tau(params)

    def degrees_of_freedom(self, params, name="log_df"):
        """(members, 1, targets), or a number as a float64 tensor where it is given."""
        if self.df is not None:
            return torch.tensor(self.df, dtype=torch.float64)
        return params[name].unsqueeze(1).clamp(*map(math.log, DF_BOUNDS)).exp()

    def predictive_degrees_of_freedom(self, params):
        """Those of rows held out, where they were made anew."""
        anew = "predictive_log_df"
        return self.degrees_of_freedom(params, anew if anew in params else "log_df")

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

    def likeliest_noise(self, moments, weights):
        """moments : residuals, the variance of the draws, scales, degrees of freedom"""
        densities, found = [], []
        for of_target in np.moveaxis(moments, 2, 0):
            density, *noise = self._likeliest_of_target(of_target, weights)
            densities.append(density)
            found.append(noise)
        scale, df = np.transpose(found)
        said = {
            "predictive_log_tau": np.log((df - 2) / (df * np.square(scale))),
            "predictive_log_df": np.log(df),
        }
        noise = {name: said[name] for name in self.noise_of_predictions}
        return np.stack(densities, axis=1), noise

    def _likeliest_of_target(self, moments, weights):
        """Log density of every row, scale and degrees of freedom."""
        residual, of_draws, trained_scale, trained_df = moments
        root = np.sqrt(np.average(np.square(residual) + of_draws, weights=weights))
        scales = SMALLEST_NOISE, LARGEST_SCALE * max(root, SMALLEST_NOISE)

        def density(log_scale, df):
            ratio = 1 + of_draws * np.exp(-2 * log_scale)
            scale = np.exp(log_scale) * np.sqrt(ratio)
            rows = StudentTs(np.zeros(1), scale, df * ratio)
            return rows.log_density_per_target(residual)

        def log_scale_for(df):
            if not self.learned:
                variance = trained_scale[0] ** 2 * trained_df[0] / (trained_df[0] - 2)
                return 0.5 * np.log((df - 2) / df * variance)
            return lowest(lambda one: -(weights @ density(one, df)), *np.log(scales))

        def loss(log_df):
            df = np.exp(log_df)
            return DF_RATE * df - log_df - weights @ density(log_scale_for(df), df)

        df = self.df or np.exp(np.round(lowest(loss, *np.log(HELD_OUT_DF)), 3))
        log_scale = np.round(log_scale_for(df), 3)
        return density(log_scale, df), np.exp(log_scale), df
