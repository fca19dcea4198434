"""Held-out predictives and what came to pass -> a correction of the predictive.

Pure NumPy, one target at a time.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import IsotonicRegression

from skbayesnn._distributions.components import NO_OTHER_UNITS, Components
from skbayesnn._distributions.map_factor import minimise_on_grid

# Levels of a map's knots; a hundred times the rounding of a level next to 1.
_APART = 1e-14


def likeliest_scale(components: Components, y, weight) -> float:
    """Factor s about the predictive mean m that makes y the likeliest.

    y' = m + s (y - m) spreads the mixture about its mean; s maximises the weighted log
    density of y. Of one Gaussian it is the root mean squared standardised residual
    [Laves et al. 2020].

    components : of one target, (draws, rows, 1); y, weight : (rows,)
    """
    if components.discrete:
        raise TypeError(NO_OTHER_UNITS)
    mean = components.mean[..., 0]
    total = components.variance[..., 0].mean(0) + mean.var(0)
    squares = np.square(y - mean.mean(0)) / total
    guess = 0.5 * np.log(np.average(squares, weights=weight))
    density = log_density_of_scale(components, y)

    def loss(log_scale):
        return -np.average(density(log_scale), weights=weight)

    # 1 must not be missed.
    ends = min(guess, 0.0) - 2, max(guess, 0.0) + 2
    return float(np.exp(minimise_on_grid(loss, *ends)))


def log_density_of_scale(components: Components, y, bound: float = np.inf):
    """log s -> log density of y, (rows,), of the mixture spread about its mean by s.

    components : of one target, (draws, rows, 1); y : (rows,)
    bound : as of ``Components.spread``
    """
    centre = components.mean.mean(0)

    def density(log_scale):
        if np.isinf(bound):
            y_before = centre[:, 0] + (y - centre[:, 0]) * np.exp(-log_scale)
            return components.mixture_log_density(y_before[:, None]) - log_scale
        spread = components.spread(centre, np.exp(log_scale), bound)
        return spread.mixture_log_density(y[:, None])

    return density


@dataclass(frozen=True)
class QuantileMap:
    """Level of the predictive -> share of y below it; piecewise linear, rising.

    Parameters
    ----------
    level, share : ndarray of shape (knots,)
        Both rise strictly from 0 to 1.

    References
    ----------
    Kuleshov, Fenner & Ermon (2018), "Accurate uncertainties for deep learning using
    calibrated regression", algorithm 1.
    """

    level: np.ndarray
    share: np.ndarray

    @classmethod
    def fit(cls, level, weight):
        """From F(y) of held-out rows, with about sqrt(rows) pieces.

        The isotonic regression of the shares on the levels has a step for every row,
        and so no density; here it is thinned to knots at even shares.

        level, weight : (rows,)
        """
        order = np.argsort(level)
        below = np.cumsum(weight[order]) - 0.5 * weight[order]
        isotonic = IsotonicRegression().fit(
            level[order], below / weight.sum(), sample_weight=weight[order]
        )
        effective = np.square(weight.sum()) / np.square(weight).sum()
        share = np.linspace(0, 1, int(np.ceil(np.sqrt(effective))) + 1)
        inner = np.interp(share[1:-1], isotonic.y_thresholds_, isotonic.X_thresholds_)
        knots = np.concatenate([[0.0], inner, [1.0]])
        # Where many rows share one level the map would be a jump; the ends stay.
        apart = (np.diff(knots[:-1]) > _APART) & (inner < 1 - _APART)
        kept = np.concatenate([[True], apart, [True]])
        return cls(knots[kept], share[kept])

    def __call__(self, level):
        """Share of y below a level of the predictive."""
        return np.interp(level, self.level, self.share)

    def inverse(self, share):
        """Level of the predictive below which a share of y lies."""
        return np.interp(share, self.share, self.level)

    def log_slope(self, level):
        """log d share / d level."""
        slope = np.diff(self.share) / np.diff(self.level)
        piece = np.searchsorted(self.level, level, side="right") - 1
        return np.log(slope[np.clip(piece, 0, len(slope) - 1)])
