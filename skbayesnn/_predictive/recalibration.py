"""Estimate corrections of a predictive distribution from held-out rows.

NumPy only, one target at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from sklearn.isotonic import IsotonicRegression

from skbayesnn._distributions.components import NO_OTHER_UNITS, Components
from skbayesnn._distributions.map_factor import minimise_on_grid
from skbayesnn._stored import RISING, Floats, Property

# Smallest distance of knots: a hundred times the rounding error of a level near 1.
_APART = 1e-14
FROM_0_TO_1 = Property("from 0 to 1", lambda v: v[[0, -1]].tolist() == [0, 1])


def likeliest_scale(parts: Sequence[Components], y, weight) -> float:
    """Estimate by maximum likelihood a factor that scales mixtures about their means.

    y' = m + s (y - m) spreads the mixture of a row about its mean m; s maximises the
    weighted log density of y. For one Gaussian, s is the root mean squared standardised
    residual [Laves et al. 2020].

    parts : of one target, (draws, rows, 1) each; y, weight : (rows of all parts,)
    """
    if any(part.discrete for part in parts):
        raise TypeError(NO_OTHER_UNITS)
    ends = np.cumsum([part.n_rows for part in parts])
    pairs = list(zip(parts, np.split(y, ends[:-1]), strict=True))
    squares = np.concatenate([_standard_squares(*pair) for pair in pairs])
    guess = 0.5 * np.log(np.average(squares, weights=weight))
    densities = [log_density_of_scale(*pair) for pair in pairs]

    def loss(log_scale):
        values = np.concatenate([density(log_scale) for density in densities])
        return -np.average(values, weights=weight)

    # The bounds of the search include s = 1.
    bounds = min(guess, 0.0) - 2, max(guess, 0.0) + 2
    return float(np.exp(minimise_on_grid(loss, *bounds)))


def _standard_squares(components: Components, y) -> np.ndarray:
    """Squares of (y - mean) / std of a mixture, (rows,)."""
    mean = components.mean[..., 0]
    total = components.variance[..., 0].mean(0) + mean.var(0)
    return np.square(y - mean.mean(0)) / total


def log_density_of_scale(components: Components, y, bound: float = np.inf, high=None):
    """Return a function: log s to log density of y, (rows,), of the scaled mixture.

    components : of one target, (draws, rows, 1); y : (rows,)
    bound : as in ``Components.scaled_about``
    high : (rows,), optional, as in ``Components.mixture_log_density``
    """
    centre = components.mean.mean(0)
    ends = [values[:, None] for values in (y, high) if values is not None]

    def density(log_scale):
        if np.isinf(bound) and components.is_location_scale:
            before = [centre + (end - centre) * np.exp(-log_scale) for end in ends]
            return components.mixture_log_density(*before) - log_scale
        spread = components.scaled_about(centre, np.exp(log_scale), bound)
        return spread.mixture_log_density(*ends)

    return density


@dataclass(frozen=True)
class QuantileMap:
    """Map from predicted level to observed share of y, piecewise linear, increasing.

    Parameters
    ----------
    level, share : ndarray of shape (knots,)
        Predicted and observed level: both increase strictly from 0 to 1. Saved files
        contain these two names.

    References
    ----------
    Kuleshov, Fenner & Ermon (2018), "Accurate uncertainties for deep learning using
    calibrated regression", algorithm 1.
    """

    level: Annotated[Floats, "knots", RISING, FROM_0_TO_1]
    share: Annotated[Floats, "knots", RISING, FROM_0_TO_1]

    @classmethod
    def fit(cls, level, weight):
        """Estimate from F(y) of held-out rows, with about sqrt(rows) pieces.

        The isotonic regression of the shares on the levels has a step at every row, and
        therefore no density. It is thinned to knots at equally spaced shares.

        level, weight : (rows,)
        """
        order = np.argsort(level)
        below = np.cumsum(weight[order]) - 0.5 * weight[order]
        isotonic = IsotonicRegression().fit(
            level[order], below / weight.sum(), sample_weight=weight[order]
        )
        effective = np.square(weight.sum()) / np.square(weight).sum()
        observed_level = np.linspace(0, 1, int(np.ceil(np.sqrt(effective))) + 1)
        inner = np.interp(
            observed_level[1:-1], isotonic.y_thresholds_, isotonic.X_thresholds_
        )
        knots = np.concatenate([[0.0], inner, [1.0]])
        # Drop knots of nearly equal level, at which the map would jump.
        distinct = (np.diff(knots[:-1]) > _APART) & (inner < 1 - _APART)
        keep = np.concatenate([[True], distinct, [True]])
        return cls(knots[keep], observed_level[keep])

    def __call__(self, level):
        """Share of y below a predicted level."""
        return np.interp(level, self.level, self.share)

    def inverse(self, observed_level):
        """Predicted level below which this share of y lies."""
        return np.interp(observed_level, self.share, self.level)

    def log_slope(self, level):
        """log(d observed level / d predicted level)."""
        slope = np.diff(self.share) / np.diff(self.level)
        piece = np.searchsorted(self.level, level, side="right") - 1
        return np.log(slope[np.clip(piece, 0, len(slope) - 1)])
