"""Predictions of a regression with their intervals."""

from typing import Any, Self

import numpy as np

from skbayesnn._meta.functions import predict_interval
from skbayesnn._predictive.summaries import checked_coverages
from skbayesnn.inspection._importance import of_target
from skbayesnn.plotting._shared import (
    BLUE,
    GREY,
    MANY,
    VERMILION,
    axes_for,
    bar_width,
    column,
    common_limits,
    legend_on_top,
    marker_size,
    places,
    position,
    require_matplotlib,
    styled,
    whole_numbers,
    y_of_target,
)


class PredictionIntervalDisplay:
    """Predictions of a regression with nested intervals, and the targets.

    It is made by :meth:`from_estimator` or :meth:`from_predictions`. Over one feature,
    or with the rows sorted by their prediction; targets outside of the widest interval
    are marked and counted. Intervals without an end, as conformal ones of too few rows,
    are not drawn. A few rows whose targets or intervals are so far away that they would
    press all others flat leave the picture, which the label of the y axis then says.

    Parameters
    ----------
    prediction : ndarray of shape (n_samples,)
    interval : ndarray of shape (n_samples, n_levels, 2)
        Lower and upper ends, y's units.
    coverage : ndarray of shape (n_levels,)
        Of the intervals, as shares of one.
    y : ndarray of shape (n_samples,), default=None
        Targets; None shows none.
    x : ndarray of shape (n_samples,), default=None
        Positions of the rows; None sorts them by prediction.
    x_name : str, default=None
        Label of ``x``.
    joined : bool, default=True
        Whether neighbouring rows are joined to bands. That needs a prediction that is
        a function of ``x``; where other features vary too, each row has a bar.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Artist
        The prediction.
    bands_ : list of matplotlib Artist
        The intervals, in the order of ``coverage``.
    inside_, outside_ : matplotlib Artist or None
        Targets inside and outside of the widest interval.

    See Also
    --------
    CalibrationCurveDisplay : Whether intervals of all coverages hold what they promise.
    """

    ax_: Any
    figure_: Any
    line_: Any
    bands_: Any
    inside_: Any
    outside_: Any

    def __init__(
        self,
        *,
        prediction,
        interval,
        coverage,
        y=None,
        x=None,
        x_name=None,
        joined=True,
    ) -> None:
        self.prediction = prediction
        self.interval = interval
        self.coverage = coverage
        self.y = y
        self.x = x
        self.x_name = x_name
        self.joined = joined

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        coverage: Any = (0.5, 0.9),
        feature: Any = None,
        kind: str = "equal_tailed",
        method: str = "mixture",
        target: int | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Display of a fitted regressor.

        Parameters
        ----------
        estimator : fitted regressor
            As :func:`skbayesnn.predict_interval` takes it.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
        coverage : float or sequence of float in (0, 1), default=(0.5, 0.9)
        feature : int or str, default=None
            Column of X to draw over; None sorts rows by prediction. Rows are joined to
            bands where no other column varies.
        kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
            Kind of interval.
        method : {"mixture", "cv+"}, default="mixture"
            As in :func:`skbayesnn.predict_interval`.
        target : int, default=None
            Which target to show; needed for a model of several targets.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        **kwargs : dict
            As in :meth:`plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_estimator")
        x, x_name, joined = (
            (None, None, True) if feature is None else column(X, feature)
        )
        coverage = checked_coverages(np.atleast_1d(coverage).tolist())
        return cls.from_predictions(
            y,
            estimator.predict(X),
            predict_interval(estimator, X, coverage, kind=kind, method=method),
            coverage=coverage,
            target=target,
            x=x,
            x_name=x_name,
            joined=joined,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        prediction: Any,
        interval: Any,
        *,
        coverage: Any = (0.5, 0.9),
        target: int | None = None,
        x: Any = None,
        x_name: str | None = None,
        joined: bool = True,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Display of given predictions and intervals.

        Parameters
        ----------
        y : array-like of shape (n_samples[, n_targets]) or None
        prediction : array-like of shape (n_samples[, n_targets])
        interval : array-like of shape (n_samples[, n_targets], n_levels, 2)
            Or without the axis of the levels for a single coverage.
        coverage : float or sequence of float in (0, 1), default=(0.5, 0.9)
            Of the intervals.
        target : int, default=None
            Which target to show, where there are several.
        x, x_name, joined
            As in the class.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        **kwargs : dict
            As in :meth:`plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_predictions")
        prediction = of_target("prediction", prediction, target)
        interval = np.asarray(interval)
        if np.ndim(coverage) == 0:
            interval = interval[..., None, :]
        interval = of_target("interval", interval, target, trailing=2)
        coverage = np.atleast_1d(np.asarray(coverage, dtype=np.float64))
        if interval.shape != (len(prediction), len(coverage), 2):
            raise ValueError(
                "`interval` must have a lower and an upper end for each row and "
                f"coverage, shape {(len(prediction), len(coverage), 2)}; got "
                f"{interval.shape}."
            )
        y = None if y is None else y_of_target(y, target)
        if y is not None and len(y) != len(prediction):
            raise ValueError(
                f"`y` must have the {len(prediction)} rows of the prediction; got "
                f"{len(y)}."
            )
        display = cls(
            prediction=prediction,
            interval=interval,
            coverage=coverage,
            y=y,
            x=position(x, len(prediction)),
            x_name=x_name,
            joined=joined,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        line_kwargs: dict[str, Any] | None = None,
        band_kwargs: dict[str, Any] | None = None,
        y_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        name : str, default=None
            Of the prediction, in the legend.
        line_kwargs, band_kwargs, y_kwargs : dict, default=None
            Keywords for the prediction, the intervals and the targets, as matplotlib's
            ``plot``, ``fill_between`` (bars: ``vlines``) and ``plot`` take them.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        ax = axes_for(self, ax)
        order, place, label = places(
            self.prediction, self.x, self.x_name, "rows, sorted by prediction"
        )
        n_rows, many = len(order), len(order) > MANY
        self.bands_ = [None] * len(self.coverage)
        widest_first = np.argsort(-self.coverage, kind="stable")
        # A single row is joined to none.
        joined = self.joined and n_rows > 1
        for rank, level in enumerate(widest_first):
            lower, upper = self.interval[order, level].T
            style = styled(
                "PolyCollection",
                band_kwargs,
                color=BLUE,
                alpha=0.15 * (1 + rank),
                linewidth=0 if joined else bar_width(n_rows) * (1 + rank),
                label=f"{100 * self.coverage[level]:.4g} % interval",
                rasterized=many and not joined,
            )
            draw = ax.fill_between if joined else ax.vlines
            self.bands_[level] = draw(place, lower, upper, **style)
        style = styled(
            "Line2D",
            line_kwargs,
            color=BLUE,
            linestyle="-" if joined else "",
            marker="" if joined else "_",
            markersize=1.5 * marker_size(n_rows),
            label=name or "prediction",
            # Above the targets.
            zorder=3,
            rasterized=many and not joined,
        )
        [self.line_] = ax.plot(place, self.prediction[order], **style)
        self.inside_ = self.outside_ = None
        if self.y is not None:
            self._plot_targets(ax, order, place, widest_first[0], y_kwargs)
        ax.set(xlabel=label, ylabel="y")
        if self.x is None:
            whole_numbers(ax)
        self._show_what_is_common(ax)
        legend_on_top(ax)
        return self

    def _show_what_is_common(self, ax):
        """Leave out a few targets and ends that would press all others flat."""
        drawn = np.column_stack(
            [self.prediction, self.interval.reshape(len(self.prediction), -1)]
        )
        if self.y is not None:
            drawn = np.column_stack([drawn, self.y])
        limits = common_limits(drawn)
        if limits is None or not ax.get_autoscaley_on():
            return
        low, high = limits
        room = (high - low) / 10
        left_out = ((drawn < low - room) | (drawn > high + room)).any(axis=1).sum()
        # auto=None: what is drawn later still moves the limits.
        ax.set_ylim(low - room, high + room, auto=None)
        ax.set_ylabel(f"y ({left_out} of {len(drawn)} rows reach beyond)")

    def _plot_targets(self, ax, order, place, widest, y_kwargs):
        """Targets, those outside of the widest interval apart."""
        lower, upper = self.interval[order, widest].T
        y = self.y[order]
        inside = (lower <= y) & (y <= upper)
        share = f"{100 * self.coverage[widest]:.4g} %"
        missed = f"outside of {share}: {(~inside).sum()} of {len(y)}"
        many, size = len(y) > MANY, marker_size(len(y))
        parts = (
            (inside, ".", GREY, size, "y"),
            (~inside, "x", VERMILION, max(size, 3), missed),
        )
        self.inside_, self.outside_ = (
            ax.plot(
                place[where],
                y[where],
                **styled(
                    "Line2D",
                    y_kwargs,
                    linestyle="",
                    marker=marker,
                    color=color,
                    markersize=size,
                    label=text,
                    alpha=0.5 if many else 1,
                    rasterized=many,
                ),
            )[0]
            for where, marker, color, size, text in parts
        )
