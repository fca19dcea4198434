"""Student's t likelihood: noise with outliers, one precision per target.

y = f + s t, where t has ``df`` degrees of freedom. tau is 1 / variance, so the squared
scale is s^2 = (df - 2) / (df tau). The gradient of a residual is bounded, so the
influence of outliers decreases with their distance [Lange, Little & Taylor 1989,
"Robust statistical modeling using the t distribution", JASA].
"""

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import gammaln, stdtr, stdtrit

from skbayesnn._distributions.components import Components
from skbayesnn._distributions.map_factor import log_mean_exp, median
from skbayesnn._likelihoods.base import MIN_NOISE, Precision, check_same_shape

# Initial value and bounds of learned degrees of freedom: from a variance that is just
# finite to noise that is practically Gaussian. Values are clipped to the bounds.
START_DF = 5.0
DF_BOUNDS = (2.1, 200.0)
# Bounds of df if held-out rows estimate it. At df = 3 the std is 1.7 scales; at 2.1,
# the bound in the training, it is 4.6 scales.
HELD_OUT_DF_BOUNDS = (3.0, 200.0)
# Initial values of df in the estimate on held-out rows.
STARTS_DF = (4.0, 30.0)
# Rate of the gamma prior of df, with shape 2, in this estimate.
DF_RATE = 0.1
# Upper bound of the variance, in units of the mean square of the residuals.
MAX_VARIANCE_RATIO = 10.0
# Lower bound of a given df, which is above 2 also in float32.
MIN_DF = 2.001
# Upper bound of a given df. With a larger one, differences of lgamma lose their digits.
MAX_DF = 1e6
# SciPy's quantile has the wrong sign below levels of about 1e-200.
MIN_LEVEL = 1e-100


@dataclass(frozen=True)
class StudentTs(Components):
    """Distributions of mean + scale t, arrays of shape (draws, rows, targets)."""

    mean: np.ndarray
    scale: np.ndarray
    df: np.ndarray

    @property
    def variance(self):
        """scale^2 df / (df - 2)."""
        return np.square(self.scale) * self.df / (self.df - 2)

    def log_density_per_target(self, y):
        """Log density of y."""
        df = self.df.astype(np.float64)
        constant = gammaln(0.5 * (df + 1)) - gammaln(0.5 * df)
        constant -= 0.5 * np.log(np.pi * df) + np.log(self.scale)
        return constant - 0.5 * (df + 1) * np.log1p(
            np.square(self._standardised(y)) / df
        )

    def cdf(self, y):
        """P(Y <= y)."""
        return stdtr(self.df.astype(np.float64), self._standardised(y))

    def quantile(self, level):
        """Quantile of every draw."""
        df = self.df.astype(np.float64)
        return self.mean + self.scale * stdtrit(df, np.maximum(level, MIN_LEVEL))

    def sample(self, random):
        """Sample y from every draw."""
        noise = random.standard_t(self.df).astype(self.mean.dtype)
        return self.mean + self.scale * noise

    def rescaled(self, shift, factor):
        """Distributions of shift + factor y."""
        return StudentTs(self.mean * factor + shift, self.scale * factor, self.df)

    def _standardised(self, y):
        return (y - self.mean.astype(np.float64)) / self.scale


@dataclass(frozen=True)
class StudentT(Precision):
    """Student's t noise with the same scale for all rows.

    df : degrees of freedom; None: learned, one value per target
    """

    name = "student_t"
    robust = True
    components_class = StudentTs

    df: float | None = None

    def __post_init__(self):
        if self.df is None:
            return
        if isinstance(self.df, bool) or not isinstance(self.df, Real):
            raise TypeError(f"`df` must be a float or None; got {self.df!r}.")
        if not MIN_DF <= self.df <= MAX_DF:
            raise ValueError(
                f"`df` must be in [{MIN_DF:g}, {MAX_DF:g}], where the noise has a "
                f"variance and differs from Gaussian noise; got {self.df!r}. Use "
                "likelihood='gaussian' for data without outliers."
            )
        # A plain float for ``describe``; parameter grids may contain NumPy types.
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
        """Initial parameters, with tau (members, targets) given or learned."""
        params = super().init(tau)
        if self.df is None:
            params["log_df"] = torch.full_like(tau, math.log(START_DF))
        return params

    @property
    def predictive_params(self):
        """Names of the precision and the degrees of freedom, if they are learned."""
        return tuple(f"predictive_{name}" for name in self.trainable)

    def predictive_log_tau(self, params):
        """Log precision of predictions, estimated on held-out rows if available."""
        if "predictive_log_tau" in params:
            return params["predictive_log_tau"].unsqueeze(1)
        return self.log_tau(params)

    def degrees_of_freedom(self, params):
        """df in the training, (members, 1, targets), or a float64 scalar if given."""
        if self.df is not None:
            return torch.tensor(self.df, dtype=torch.float64)
        return params["log_df"].unsqueeze(1).clamp(*map(math.log, DF_BOUNDS)).exp()

    def predictive_degrees_of_freedom(self, params):
        """df of predictions, estimated on held-out rows if available."""
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
        """Estimate precision and degrees of freedom on held-out rows.

        draws : residuals, scales and dfs, (rows, 3, draws, targets)
        """
        densities, estimates = [], []
        for target_draws in draws.transpose(3, 1, 2, 0):
            density, log_params = self._fit_target(target_draws, weights)
            densities.append(density)
            estimates.append(log_params)
        log_df, log_variance = np.transpose(estimates)
        estimated = {"predictive_log_tau": -log_variance, "predictive_log_df": log_df}
        params = {name: estimated[name] for name in self.predictive_params}
        return np.stack(densities, axis=1), params

    def _fit_target(self, draws, weights):
        """Estimate the logs of degrees of freedom and variance of one target.

        draws : (3, draws, rows)
        returns : log density of every row, (rows,); (log df, log variance)
        """
        residual, scale, df = draws
        squares = np.square(residual)
        # Given parameters are the same for all draws and rows.
        scale, df = scale[0, :1], df[0, :1]
        dfs, variances = df, np.square(scale) * df / (df - 2)
        if self.df is None:
            dfs = np.array(HELD_OUT_DF_BOUNDS)
        if self.learned:
            mean_square = np.average(squares.mean(0), weights=weights)
            min_variance = MIN_NOISE**2
            variances = np.array(
                [min_variance, MAX_VARIANCE_RATIO * max(mean_square, min_variance)]
            )

        def density(log_params):
            return _log_density_of_mixture(squares, *np.exp(log_params))

        def loss(log_params):
            prior = log_params[0] - DF_RATE * np.exp(log_params[0])
            return -(weights @ density(log_params) + prior) / weights.sum()

        closest_draw = 2 * max(median(squares.min(0), weights), variances[0])
        mean_of_draws = 2 * max(
            median(np.square(residual.mean(0)), weights), variances[0]
        )
        starts = np.log(
            [
                (STARTS_DF[0], closest_draw),
                (STARTS_DF[0], mean_of_draws),
                (STARTS_DF[1], variances[-1]),
            ]
        )
        bounds = [(v[0], v[-1]) for v in (np.log(dfs), np.log(variances))]
        lower, upper = np.transpose(bounds)
        fits = [
            minimize(loss, start.clip(lower, upper), bounds=bounds, method="L-BFGS-B")
            for start in starts
        ]
        best = min(fits, key=lambda fit: fit.fun)
        # Given parameters are not rounded.
        log_params = np.where(lower == upper, lower, np.round(best.x, 3))
        return density(log_params), log_params


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
