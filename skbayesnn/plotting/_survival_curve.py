"""Survival curves with the uncertainty of the model."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from skbayesnn._meta.functions import predict_distribution
from skbayesnn._runtime import warn_once_per_call
from skbayesnn._sklearn_compat import num_samples
from skbayesnn.inspection._importance import select_target
from skbayesnn.plotting import _axes

# Largest number of curves in one picture.
MAX_ROWS = len(_axes.COLORS)
# Number of times of a curve.
N_TIMES = 201


@dataclass(kw_only=True, repr=False, eq=False)
class SurvivalCurveDisplay(_axes.Display):
    """Survival curves of some rows: the probability that y exceeds a time.

    Create it by :meth:`from_estimator` or :meth:`from_predictions`. Each curve is the
    mean over the posterior draws. Its band is the interval of the draws at each time,
    with equal probabilities below and above: the epistemic uncertainty.

    Parameters
    ----------
    times : ndarray of shape (n_times,)
    survival : ndarray of shape (n_samples, n_times)
        Probabilities.
    interval : ndarray of shape (n_samples, n_times, 2), default=None
        Bounds of the bands.
    labels : list of str, default=None
        Names of the rows; None is their positions.
    band : float
        Probability of the band at each time.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_, bands_ : list of matplotlib Artist
        One per row; no bands without an interval.
    """

    times: Any
    survival: Any
    interval: Any = None
    labels: Any = None
    band: float = 0.9

    @classmethod
    @warn_once_per_call
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        times: Any = None,
        band: float = 0.9,
        labels: Any = None,
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
            At most 8 rows, one curve each.
        times : array-like of shape (n_times,), default=None
            None is a range with most of the probability of these rows.
        band : float in (0, 1), default=0.9
        labels : list of str, default=None
            Names of the rows; by default the index of a frame, or their positions.
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
        _axes.require_matplotlib(cls.__name__)
        if num_samples(X) > MAX_ROWS:
            raise ValueError(
                f"`X` must have at most {MAX_ROWS} rows, one curve each; got "
                f"{num_samples(X)}. Select some rows, such as the first five."
            )
        distribution = predict_distribution(estimator, X)
        if times is None:
            ends = select_target("quantiles", distribution.ppf([0.01, 0.95]), target, 1)
            times = _range_of(*ends.T)
        survival = 1 - distribution.cdf_at(times)
        if labels is None and hasattr(X, "iloc"):
            labels = list(X.index)
        return cls.from_predictions(
            times,
            select_target("survival", survival, target, 1),
            select_target("interval", distribution.sf_interval(times, band), target, 2),
            labels=labels,
            band=band,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        times: Any,
        survival: Any,
        interval: Any = None,
        *,
        labels: Any = None,
        band: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot given survival curves.

        Parameters
        ----------
        times, survival, interval, labels, band
            See the class.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : SurvivalCurveDisplay
        """
        _axes.require_matplotlib(cls.__name__)
        times, survival = np.asarray(times), np.asarray(survival)
        shape = survival.shape
        is_right = survival.ndim == 2 and times.shape == shape[1:]
        if interval is not None:
            interval = np.asarray(interval)
            is_right &= interval.shape == (*shape, 2)
        if not is_right or (labels is not None and len(labels) != len(survival)):
            raise ValueError(
                "`survival` must be of shape (n_samples, n_times), `interval` of "
                "(n_samples, n_times, 2), with one of `times` per column and one of "
                f"`labels` per row; got {shape}, "
                f"{None if interval is None else interval.shape}, {times.shape} and "
                f"{None if labels is None else len(labels)} labels."
            )
        return cls(
            times=times, survival=survival, interval=interval, labels=labels, band=band
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        band_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the survival curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        band_kwargs : dict, default=None
            Keywords of matplotlib's ``fill_between`` for the bands.
        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the curves.

        Returns
        -------
        display : SurvivalCurveDisplay
        """
        ax = self._axes(ax)
        labels = range(len(self.survival)) if self.labels is None else self.labels
        self.lines_: list[Any] = []
        self.bands_: list[Any] = []
        for i, label in enumerate(labels):
            color = _axes.next_color(ax)
            line = _axes.draw_line(
                ax,
                self.times,
                self.survival[i],
                kwargs,
                color=color,
                linestyle=_axes.LINE_STYLES[i % len(_axes.LINE_STYLES)],
                label=_axes.short_label(f"row {label}", 24),
            )
            self.lines_.append(line)
            if self.interval is not None:
                band = _axes.draw_band(
                    ax,
                    self.times,
                    self.interval[i, :, 0],
                    self.interval[i, :, 1],
                    band_kwargs,
                    color=line.get_color(),
                    alpha=0.15,
                    linewidth=0,
                )
                self.bands_.append(band)
        ylabel = "probability of exceeding it"
        if self.interval is not None:
            ylabel += f", with {100 * self.band:.4g} % bands"
        ax.set(xlabel="y", ylabel=ylabel, ylim=(0, None))
        ax.legend()
        return self


def _range_of(low, high) -> np.ndarray:
    """Times from the smallest of some quantiles to the largest one.

    The range starts at zero if that is near, and ends before outliers.
    """
    end = (
        min(high.max(), _axes.LONGEST * np.median(high))
        if (high > 0).all()
        else high.max()
    )
    start = low.min()
    return np.linspace(0 if 0 <= start <= end / 2 else start, end, N_TIMES)
