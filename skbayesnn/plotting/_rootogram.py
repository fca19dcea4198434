"""Observed and expected frequencies of counts."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import binom

from skbayesnn._meta.functions import predict_distribution
from skbayesnn._runtime import warn_once_per_call
from skbayesnn._validation import check_number
from skbayesnn.inspection._importance import select_target
from skbayesnn.plotting import _axes, _rows

# Largest number of bars; more values share bars.
MAX_BARS = 50


@dataclass(kw_only=True, repr=False, eq=False)
class RootogramDisplay(_axes.Display):
    """Hanging rootogram: observed frequencies of counts, hung from expected ones.

    Create it by :meth:`from_estimator` or :meth:`from_predictions`. The line has the
    expected frequency of each count, the sum of its predicted probabilities over the
    rows. The bars hang from it and are as long as the observed frequencies, so that a
    bar ends above zero if the count is rarer than predicted, and below zero if it is
    more frequent. Frequencies have a scale of square roots, on which their random
    deviations are equally large (Kleiber & Zeileis 2016, "Visualizing count data
    regressions using rootograms", The American Statistician 70).

    For a calibrated model a bar ends in the band about zero with probability ``band``.
    The band is of a binomial distribution, which is slightly too wide if the
    probabilities of the rows differ.

    Parameters
    ----------
    edges : ndarray of shape (n_bars + 1,)
        Ends of the bars, half-way between counts.
    observed, expected : ndarray of shape (n_bars,)
        Number of rows in each bar.
    lower, upper : ndarray of shape (n_bars,)
        Bounds of the observed numbers of a calibrated model.
    band : float
        Probability of the band for each bar.
    y_name : str, default="y"
    n_beyond : int, default=0
        Number of rows beyond the bars.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_, line_, band_ : matplotlib Artist
    """

    edges: Any
    observed: Any
    expected: Any
    lower: Any
    upper: Any
    band: float = 0.95
    y_name: str = "y"
    n_beyond: int = 0

    @classmethod
    @warn_once_per_call
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        band: float = 0.95,
        target: int | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the rootogram of a fitted regressor.

        Parameters
        ----------
        estimator : fitted regressor
            Any regressor that :func:`skbayesnn.predict_distribution` accepts.
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Counts. More than 50 different values share bars.
        band : float in (0, 1), default=0.95
            Probability of the band for each bar.
        target : int, default=None
            Index of the target; required if the model has several targets.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : RootogramDisplay
        """
        _axes.require_matplotlib(cls.__name__)
        distribution = predict_distribution(estimator, X)
        edges = _edges(_counts(y, target))
        cdf = distribution.cdf_at(edges)
        return cls.from_predictions(
            _rows.y_of_target(y, target),
            select_target("cdf", cdf, target, 1),
            edges,
            band=band,
            y_name=_rows.name_of_target(y, target),
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        cdf: Any,
        edges: Any,
        *,
        band: float = 0.95,
        y_name: str = "y",
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot given predictions.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Counts.
        cdf : array-like of shape (n_samples, n_bars + 1)
            Predictive distribution function at ``edges``.
        edges : array-like of shape (n_bars + 1,)
            Ends of the bars, half-way between counts, such as -0.5, 0.5 and 1.5.
        band, y_name, ax, **kwargs
            See the class and :meth:`from_estimator`.

        Returns
        -------
        display : RootogramDisplay
        """
        _axes.require_matplotlib(cls.__name__)
        band = check_number("band", band, low=0, high=1, open_low=True)
        y, cdf, edges = _counts(y, None), np.asarray(cdf), np.asarray(edges)
        if cdf.shape != (len(y), len(edges)):
            raise ValueError(
                "`cdf` must have one row for each value of y and one column for each "
                f"of `edges`, shape {(len(y), len(edges))}; got {cdf.shape}."
            )
        observed, _ = np.histogram(y, edges)
        expected = np.diff(cdf, axis=1).sum(0)
        share = (expected / len(y)).clip(0, 1)
        lower, upper = binom.interval(band, len(y), share)
        return cls(
            edges=edges,
            observed=observed,
            expected=expected,
            lower=np.where(share > 0, lower, 0),
            upper=upper,
            band=band,
            y_name=y_name,
            n_beyond=int(len(y) - observed.sum()),
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        line_kwargs: dict[str, Any] | None = None,
        band_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the rootogram.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        line_kwargs, band_kwargs : dict, default=None
            Keywords of matplotlib's ``plot`` for the expected frequencies, and of
            ``vlines`` for the band.
        **kwargs : dict
            Keywords of matplotlib's ``bar``.

        Returns
        -------
        display : RootogramDisplay
        """
        ax = self._axes(ax)
        middle, width = self.edges[:-1] + np.diff(self.edges) / 2, np.diff(self.edges)
        root = np.sqrt(self.expected)
        n_rows = self.n_beyond + self.observed.sum()
        style = {"color": _axes.BLUE, "alpha": 0.35, "label": "observed"} | kwargs
        self.bars_ = ax.bar(
            middle, -np.sqrt(self.observed), 0.8 * width, bottom=root, **style
        )
        for bar in self.bars_:  # which otherwise end the axes
            bar.sticky_edges.y.clear()
        self.band_ = _axes.draw_band(
            ax,
            np.repeat(self.edges, 2)[1:-1],
            np.repeat(root - np.sqrt(self.upper), 2),
            np.repeat(root - np.sqrt(self.lower), 2),
            band_kwargs,
            color=_axes.GREY,
            alpha=0.3,
            linewidth=0,
            label=f"{100 * self.band:.4g} % band",
        )
        ax.axhline(0, color=_axes.GREY, lw=1)
        self.line_ = _axes.draw_line(
            ax,
            middle,
            root,
            line_kwargs,
            color=_axes.VERMILION,
            marker="o",
            markersize=4,
            label="expected",
        )
        label = _axes.short_label(self.y_name, 60)
        if self.n_beyond:
            label += f" ({self.n_beyond} of {n_rows} rows are beyond)"
        ax.set(xlabel=label, ylabel="square root of the number of rows")
        _axes.legend_on_top(ax)
        return self


def _counts(y, target) -> np.ndarray:
    """Check counts of one target, (rows,)."""
    counts = _rows.y_of_target(y, target)
    wrong = ~(counts >= 0) | (counts != np.floor(counts)) | np.isinf(counts)
    if wrong.any() or not len(counts):
        found = f"{counts[wrong][0]:g}" if wrong.any() else "no rows"
        raise ValueError(
            f"`y` must contain counts, 0, 1, 2 and so on; got {found}. For other y "
            "take PredictionIntervalDisplay."
        )
    return counts


def _edges(counts: np.ndarray) -> np.ndarray:
    """Ends of at most ``MAX_BARS`` bars of whole counts; without outliers."""
    common = max(np.quantile(counts, 0.99, method="higher"), 1)
    largest = min(counts.max(), _axes.LONGEST * common)
    width = np.ceil((largest + 1) / MAX_BARS)
    return np.arange(0, largest + width + 1, width) - 0.5
