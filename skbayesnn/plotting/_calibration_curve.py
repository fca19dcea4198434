"""Calibration curves of predictive probabilities."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import binom
from sklearn.base import is_classifier
from sklearn.utils.validation import column_or_1d

from skbayesnn._meta.functions import predict_distribution
from skbayesnn._validation import Integral, check_number
from skbayesnn.inspection._attributions import select_target
from skbayesnn.metrics._calibration import (
    check_probabilities,
    equal_mass_bins,
    labelled,
)
from skbayesnn.metrics._validation import drop_zero_weights
from skbayesnn.plotting import _axes

# Largest number of bins of a reliability diagram.
MAX_BINS = 10
# Smallest number of rows per bin.
ROWS_PER_BIN = 10
# Nominal coverages of a regression's curve.
LEVELS = np.linspace(0, 1, 101)
LABELS = {
    "coverage": ("nominal coverage of central intervals", "observed coverage"),
    "reliability": ("confidence in the most likely class", "accuracy"),
}


@dataclass(kw_only=True, repr=False, eq=False)
class CalibrationCurveDisplay(_axes.Display):
    """Calibration curve: observed against nominal probability, with a chance band.

    Create it by :meth:`from_estimator` or :meth:`from_predictions`.

    Regression: for every coverage c, the share of targets in the central interval of
    coverage c, which is the share with ``abs(2 F(y) - 1) <= c``, where F is the
    predictive distribution function (the probability integral transform of [1]_). Below
    the diagonal, intervals are too narrow.

    A y with a probability, such as a count or a zero, or in an interval, has no single
    F(y). It counts with the share of [P(Y < y), P(Y <= y)] that is in the central
    interval, and an interval with the share between the values of F at its ends (the
    nonrandomised transform of [4]_). The curve of a calibrated model is then on the
    diagonal, too, and varies less than the band.

    Classification: a reliability diagram [2]_ of the most likely class. Rows are put
    into bins of equal mass by their confidence, the probability of that class. The
    accuracy of each bin is drawn over its mean confidence. Below the diagonal,
    predictions are overconfident.

    At each point, the band contains the observed share of a calibrated model with
    probability ``band``, given this number of rows: quantiles of a binomial
    distribution, like the consistency bars of [3]_. Within a bin all confidences are
    replaced by their mean, which makes the band slightly too wide. With weights the
    number of rows is the effective number, (sum w)^2 / sum w^2, rounded down.

    Parameters
    ----------
    nominal : ndarray of shape (n_points,)
        Coverage, or mean confidence of each bin.
    observed : ndarray of shape (n_points,)
        Observed coverage, or accuracy of each bin.
    lower, upper : ndarray of shape (n_points,)
        Bounds of the band.
    n_rows : float or ndarray of shape (n_points,)
        Number of rows that the band is computed for; for classification in each bin.
    kind : {"coverage", "reliability"}
        Regression or classification.
    band : float
        Probability of the band at each point.
    name : str, default=None
        Name of the curve in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Artist
        The curve.
    band_ : matplotlib Artist or None
        None if the axes has the same band from an earlier plot.
    diagonal_ : matplotlib Artist

    References
    ----------
    .. [1] Gneiting, Balabdaoui & Raftery (2007), "Probabilistic forecasts, calibration
       and sharpness".
    .. [2] Guo, Pleiss, Sun & Weinberger (2017), "On calibration of modern neural
       networks".
    .. [3] Broecker & Smith (2007), "Increasing the reliability of reliability
       diagrams".
    .. [4] Czado, Gneiting & Held (2009), "Predictive model assessment for count data".
    """

    nominal: Any
    observed: Any
    lower: Any
    upper: Any
    n_rows: Any
    kind: str
    band: float = 0.95
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        n_bins: int | str = "auto",
        band: float | None = 0.95,
        target: int | None = None,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the calibration curve of a fitted regressor or classifier.

        Parameters
        ----------
        estimator : fitted estimator
            A regressor that :func:`skbayesnn.predictive_cdf` accepts, or any classifier
            with ``predict_proba``.
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Held-out rows, which the model was not fitted to. Also intervals.
        n_bins : "auto" or int, default="auto"
            Number of bins for classifiers. "auto" is 10, or fewer to have at least 10
            rows per bin.
        band : float in (0, 1), default=0.95
            Probability of the band at each point.
        target : int, default=None
            Index of the target; required if a regressor has several targets.
        sample_weight : array-like of shape (n_samples,), default=None
        name : str, default=None
            Name of the curve; by default the estimator's class.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : CalibrationCurveDisplay
        """
        if is_classifier(estimator):
            predictions = {
                "y": y,
                "probability": estimator.predict_proba(X),
                "classes": estimator.classes_,
            }
        else:
            below, cdf = np.moveaxis(predict_distribution(estimator, X).pit(y), -1, 0)
            predictions = {"cdf": cdf, "cdf_below": below}
        return cls.from_predictions(
            **predictions,
            n_bins=n_bins,
            band=band,
            target=target,
            sample_weight=sample_weight,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y: Any = None,
        probability: Any = None,
        *,
        classes: Any = None,
        cdf: Any = None,
        cdf_below: Any = None,
        n_bins: int | str = "auto",
        band: float | None = 0.95,
        target: int | None = None,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the calibration curve of given predictions.

        Give ``cdf`` for regression, and ``y`` and ``probability`` for classification.

        Parameters
        ----------
        y : array-like of shape (n_samples,), default=None
            Labels.
        probability : array-like of shape (n_samples, n_classes), default=None
        classes : array-like of shape (n_classes,), default=None
            Labels of the columns; by default the sorted labels of y.
        cdf : array-like of shape (n_samples[, n_targets]), default=None
            Predictive distribution function at the targets, in [0, 1].
        cdf_below : array-like of shape (n_samples[, n_targets]), default=None
            Probability of values below the targets, or the distribution function at the
            lower end of intervals; by default equal to ``cdf``. The method ``pit`` of a
            predictive distribution returns both.
        n_bins, band, target, sample_weight, name, ax, **kwargs
            See :meth:`from_estimator`.

        Returns
        -------
        display : CalibrationCurveDisplay
        """
        if (cdf is None) == (y is None or probability is None):
            raise TypeError(
                "give either `cdf` (regression) or `y` and `probability` (classes); "
                f"got cdf {_given(cdf)}, y {_given(y)}, probability "
                f"{_given(probability)}."
            )
        band = check_number("band", band, low=0, high=1, open_low=True)
        if n_bins != "auto":
            n_bins = check_number("n_bins", n_bins, kind=Integral, low=1)
        if cdf is not None:
            below = cdf if cdf_below is None else cdf_below
            cdf = select_target("cdf", cdf, target)
            below = select_target("cdf_below", below, target)
            weights, cdf, below = drop_zero_weights(sample_weight, cdf, below)
            check_probabilities("cdf", cdf)
            check_probabilities("cdf_below", below)
            nominal, observed = LEVELS, _observed_coverage(below, cdf, weights)
            n_rows = _effective_number(weights)
        else:
            y = column_or_1d(y)
            weights, codes, probability = labelled(
                y, probability, classes, sample_weight
            )
            if n_bins == "auto":
                most = int(_effective_number(weights) / ROWS_PER_BIN)
                n_bins = min(max(most, 1), MAX_BINS)
            confidence, correct = probability.max(1), probability.argmax(1) == codes
            bins, _ = equal_mass_bins(confidence, weights, n_bins)
            nominal, observed, n_rows = _per_bin(bins, confidence, correct, weights)
        # The factor keeps integers that are an ulp too small from being rounded down.
        n_rows = np.floor(n_rows * (1 + 1e-9))
        lower, upper = binom.interval(band, n_rows, nominal) / n_rows
        return cls(
            nominal=nominal,
            observed=observed,
            lower=lower,
            upper=upper,
            n_rows=n_rows,
            kind="reliability" if cdf is None else "coverage",
            band=band,
            name=name,
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        band_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the calibration curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        name : str, default=None
            Name of the curve in the legend; by default ``self.name``.
        band_kwargs : dict, default=None
            Keywords of matplotlib's ``fill_between`` for the band.
        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the curve.

        Returns
        -------
        display : CalibrationCurveDisplay
        """
        ax = self._axes(ax)
        color, grey = _axes.next_color(ax), _axes.GREY
        self.diagonal_ = ax.axline((1, 1), slope=1, color=grey, ls=":", lw=1)
        self.band_ = self._plot_band(ax, color, band_kwargs)
        self.line_ = _axes.draw_line(
            ax,
            self.nominal,
            self.observed,
            kwargs,
            color=color,
            marker="o" if self.kind == "reliability" else "",
            markersize=5,
            label=self.name if name is None else name,
        )
        xlabel, ylabel = LABELS[self.kind]
        ax.set(xlabel=xlabel, ylabel=ylabel, aspect="equal")
        # Equal limits of both axes; auto=None: later artists may widen them.
        limits = min(ax.get_xlim()[0], ax.get_ylim()[0]), ax.get_ylim()[1]
        ax.set_xlim(limits, auto=None)
        ax.set_ylim(limits, auto=None)
        ax.legend()
        return self

    def _plot_band(self, ax, color, band_kwargs):
        """Grey if the band depends on the number of rows alone, else in ``color``."""
        text = f"{100 * self.band:.4g} % band"
        if self.kind == "coverage":
            text += f", {self.n_rows:.0f} row{'s' * (round(self.n_rows) != 1)}"
            if text in ax.get_legend_handles_labels()[1]:
                return None
        joined = len(self.nominal) > 1  # otherwise the area has no width
        return _axes.draw_band(
            ax,
            self.nominal,
            self.lower,
            self.upper,
            band_kwargs,
            joined=joined,
            color=_axes.GREY if self.kind == "coverage" else color,
            alpha=0.2,
            linewidth=0 if joined else 8,
            label=text,
        )


def _given(value):
    return "missing" if value is None else "given"


def _observed_coverage(below, cdf, weights):
    """Share of the rows in the central interval of each of ``LEVELS``."""
    is_point = below >= cdf
    distance = np.abs(2 * cdf[is_point] - 1)
    order = np.argsort(distance)
    mass = np.concatenate([[0.0], weights[is_point][order].cumsum()])
    covered = mass[np.searchsorted(distance[order], LEVELS, side="right")]
    below, cdf, others = below[~is_point], cdf[~is_point], weights[~is_point]
    for i, level in enumerate(LEVELS):
        low, high = (1 - level) / 2, (1 + level) / 2
        inside = np.minimum(cdf, high) - np.maximum(below, low)
        covered[i] += others @ (np.maximum(inside, 0.0) / (cdf - below))
    return covered / weights.sum()


def _effective_number(weights) -> float:
    return np.square(weights.sum()) / np.square(weights).sum()


def _per_bin(bins, confidence, correct, weights):
    """Mean confidence, accuracy and effective number of rows of the non-empty bins."""
    mass = np.bincount(bins, weights)
    filled = mass > 0
    mass = mass[filled]
    mean = np.bincount(bins, weights * confidence)[filled] / mass
    accuracy = np.bincount(bins, weights * correct)[filled] / mass
    n_rows = np.square(mass) / np.bincount(bins, np.square(weights))[filled]
    # A mean of ones may exceed one by rounding.
    return mean.clip(0, 1), accuracy, n_rows
