"""Observed and expected frequencies of counts."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import binom

from skbayesnn._meta.functions import predict_distribution
from skbayesnn._validation import check_number
from skbayesnn.inspection._attributions import select_target
from skbayesnn.plotting import _axes, _rows

# Largest number of bars; more values share bars.
MAX_BARS = 50


@dataclass(kw_only=True, repr=False, eq=False)
class RootogramDisplay(_axes.Display):
    """Hanging rootogram: observed frequencies of counts, hung from expected ones.

    Create it by :meth:`from_estimator`. The line has the expected frequency of each
    count, the sum of its predicted probabilities over the rows. The bars hang from it
    and are as long as the observed frequencies, so that a bar ends above zero if the
    count is rarer than predicted, and below zero if it is more frequent. Frequencies
    have a scale of square roots, on which their random deviations are equally large
    (Kleiber & Zeileis 2016, "Visualizing count data regressions using rootograms", The
    American Statistician 70).

    For a calibrated model a bar ends in the band about zero with probability ``band``.
    The band is of a binomial distribution, which is slightly too wide if the
    probabilities of the rows differ.

    Parameters
    ----------
    edges : ndarray of shape (n_bars + 1,)
        Ends of the bars, half-way between counts.
    observed, expected : ndarray of shape (n_bars,)
        Number of rows in each bar.
    interval : ndarray of shape (n_bars, 2)
        Bounds of the observed numbers of a calibrated model.
    n_rows : int
        Number of rows, also of those beyond the bars.
    band : float
        Probability of the band for each bar.
    y_name : str, default="y"

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_, line_, band_ : matplotlib Artist
    """

    edges: Any
    observed: Any
    expected: Any
    interval: Any
    n_rows: int
    band: float = 0.95
    y_name: str = "y"

    @classmethod
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
        band = check_number("band", band, low=0, high=1, open_low=True)
        counts = _counts(y, target)
        edges = _edges(counts)
        cdf = predict_distribution(estimator, X).cdf_at(edges)
        cdf = select_target("cdf", cdf, target, 1)
        expected = np.diff(cdf, axis=1).sum(0).clip(0)  # rounding
        share = (expected / len(counts)).clip(1e-12, 1)
        return cls(
            edges=edges,
            observed=np.histogram(counts, edges)[0],
            expected=expected,
            interval=np.stack(binom.interval(band, len(counts), share), axis=-1),
            n_rows=len(counts),
            band=band,
            y_name=_rows.name_of_target(y, target),
        ).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the rootogram.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of matplotlib's ``bar``.

        Returns
        -------
        display : RootogramDisplay
        """
        ax = self._axes(ax)
        middle, width = self.edges[:-1] + np.diff(self.edges) / 2, np.diff(self.edges)
        root, length = np.sqrt(self.expected), -np.sqrt(self.observed)
        style = {"color": _axes.BLUE, "alpha": 0.35, "label": "observed"} | kwargs
        self.bars_ = ax.bar(middle, length, 0.8 * width, bottom=root, **style)
        for bar in self.bars_:  # which otherwise end the axes
            bar.sticky_edges.y.clear()
        low, high = np.repeat(root[:, None] - np.sqrt(self.interval), 2, axis=0).T
        style = {"color": _axes.GREY, "alpha": 0.3, "linewidth": 0}
        style["label"] = f"{100 * self.band:.4g} % band"
        ends = np.repeat(self.edges, 2)[1:-1]
        self.band_ = _axes.draw_band(ax, ends, low, high, style)
        ax.axhline(0, color=_axes.GREY, lw=1)
        style = {"color": _axes.VERMILION, "marker": "o", "markersize": 4}
        self.line_ = _axes.draw_line(ax, middle, root, style, label="expected")
        label = _axes.short_label(self.y_name, 60)
        if n_beyond := self.n_rows - self.observed.sum():
            label += f" ({n_beyond} of {self.n_rows} rows are beyond)"
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
