"""Survival curves with the uncertainty of the model."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from skbayesnn._meta.functions import predict_distribution
from skbayesnn._sklearn_compat import num_samples
from skbayesnn.inspection._attributions import select_target
from skbayesnn.plotting import _axes

# Largest number of curves in one picture.
MAX_ROWS = len(_axes.COLORS)
# Number of times of a curve.
N_TIMES = 201


@dataclass(kw_only=True, repr=False, eq=False)
class SurvivalCurveDisplay(_axes.Display):
    """Survival curves of some rows: the probability that y exceeds a time.

    Create it by :meth:`from_estimator`. Each curve is the mean over the posterior
    draws. Its band is the interval of the draws at each time, with equal probabilities
    below and above: the epistemic uncertainty.

    Parameters
    ----------
    times : ndarray of shape (n_times,)
    survival : ndarray of shape (n_samples, n_times)
        Probabilities.
    interval : ndarray of shape (n_samples, n_times, 2)
        Bounds of the bands.
    labels : sequence
        Names of the rows.
    band : float
        Probability of the band at each time.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_, bands_ : list of matplotlib Artist
        One per row.
    """

    times: Any
    survival: Any
    interval: Any
    labels: Any
    band: float = 0.9

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        times: Any = None,
        band: float = 0.9,
        target: int | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot survival curves of a fitted regressor.

        Parameters
        ----------
        estimator : fitted regressor
            Any regressor that :func:`skbayesnn.predict_distribution` accepts.
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            At most 8 rows, one curve each. They have the names of the index of a frame,
            or their positions.
        times : array-like of shape (n_times,), default=None
            None is a range with most of the probability of these rows.
        band : float in (0, 1), default=0.9
        target : int, default=None
            Index of the target; required if the model has several targets.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : SurvivalCurveDisplay
        """
        if num_samples(X) > MAX_ROWS:
            raise ValueError(
                f"`X` must have at most {MAX_ROWS} rows, one curve each; got "
                f"{num_samples(X)}. Select some rows, such as the first five."
            )
        distribution = predict_distribution(estimator, X)
        if times is None:
            ends = select_target("quantiles", distribution.ppf([0.01, 0.95]), target, 1)
            times = _range_of(*ends.T)
        survival, interval = (
            1 - distribution.cdf_at(times),
            distribution.sf_interval(times, band),
        )
        return cls(
            times=times,
            survival=select_target("survival", survival, target, 1),
            interval=select_target("interval", interval, target, 2),
            labels=X.index if hasattr(X, "iloc") else range(num_samples(X)),
            band=band,
        ).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the survival curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the curves.

        Returns
        -------
        display : SurvivalCurveDisplay
        """
        ax = self._axes(ax)
        self.lines_: list[Any] = []
        self.bands_: list[Any] = []
        for i, label in enumerate(self.labels):
            style: dict[str, Any] = {
                "color": _axes.next_color(ax),
                "linestyle": _axes.LINE_STYLES[i % len(_axes.LINE_STYLES)],
                "label": _axes.short_label(f"row {label}", 24),
            }
            line = _axes.draw_line(ax, self.times, self.survival[i], kwargs, **style)
            style = {"color": line.get_color(), "alpha": 0.15, "linewidth": 0}
            low, high = self.interval[i].T
            self.bands_.append(_axes.draw_band(ax, self.times, low, high, style))
            self.lines_.append(line)
        ylabel = f"probability of exceeding it, with {100 * self.band:.4g} % bands"
        ax.set(xlabel="y", ylabel=ylabel, ylim=(0, None))
        ax.legend()
        return self


def _range_of(low, high) -> np.ndarray:
    """Times from the smallest of some quantiles to the largest one.

    The range starts at zero if that is near, and ends before outliers.
    """
    start, end = low.min(), high.max()
    if start >= 0:
        end = min(end, _axes.LONGEST * np.median(high))
    return np.linspace(0 if 0 <= start <= end / 2 else start, end, N_TIMES)
