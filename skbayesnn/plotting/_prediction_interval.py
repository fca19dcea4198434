"""Prediction intervals of a regression."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from skbayesnn._meta.functions import predict_interval
from skbayesnn._validation import check_levels
from skbayesnn.inspection._attributions import select_target
from skbayesnn.plotting import _axes, _rows

# Longest name of y on the axis and in the legend, in characters.
LONGEST_LABEL, LONGEST_IN_LEGEND = 25, 20


@dataclass(kw_only=True, repr=False, eq=False)
class PredictionIntervalDisplay(_rows.RowsDisplay):
    """Prediction intervals of a regression, nested, with predictions and targets.

    Create it by :meth:`from_estimator` or :meth:`from_predictions`. Rows are drawn over
    one feature, or sorted by their prediction. Targets outside of the widest interval
    are marked and counted. Infinite intervals, such as conformal intervals from too few
    rows, are not drawn. If a few distant targets or intervals dominate the range, the y
    axis leaves them out and its label counts them. For sorted rows with positive and
    skewed predictions and targets, such as prices, the y axis has a log scale.

    Parameters
    ----------
    prediction : ndarray of shape (n_samples,)
    interval : ndarray of shape (n_samples, n_levels, 2)
        Lower and upper bounds, in y's units.
    coverage : ndarray of shape (n_levels,)
        Coverage of the intervals, in (0, 1).
    y : ndarray of shape (n_samples,), default=None
        Targets; None shows none.
    y_name : str, default="y"
        Label of the y axis.
    x : ndarray of shape (n_samples,), default=None
        Positions of the rows, numbers or datetime64. Rows without a position are not
        shown. None sorts them by prediction.
    x_name : str, default=None
        Label of the x axis.
    x_levels : sequence of str, default=None
        Names of the positions 0, 1, ..., if ``x`` is the index of a category. Rows of a
        category are spread around its position, sorted like all rows without ``x``.
    joined : bool, default=True
        Whether neighbouring rows are joined to bands. Use it if the prediction is a
        function of ``x`` alone. If other features vary too, draw one bar per row.

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
    CalibrationCurveDisplay : Observed coverage of the intervals of all levels.
    """

    prediction: Any
    interval: Any
    coverage: Any
    y: Any = None
    y_name: str = "y"

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
        """Plot predictions and intervals of a fitted regressor.

        Parameters
        ----------
        estimator : fitted regressor
            Any regressor that :func:`skbayesnn.predict_interval` accepts.
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            The y axis has the name of a series, or of a frame's column.
        coverage : float or sequence of float in (0, 1), default=(0.5, 0.9)
        feature : int or str, default=None
            Column of X for the x axis: numbers, dates, durations or categories. None
            sorts rows by prediction. Rows are joined to bands if no other column
            varies.
        kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
            Kind of interval.
        method : {"mixture", "cv+"}, default="mixture"
            See :func:`skbayesnn.predict_interval`.
        target : int, default=None
            Index of the target; required if the model has several targets.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        positions = {} if feature is None else _rows.select_feature(X, feature)
        coverage = check_levels("coverage", coverage)
        return cls.from_predictions(
            y,
            estimator.predict(X),
            predict_interval(estimator, X, coverage, kind=kind, method=method),
            coverage=coverage,
            target=target,
            **positions,
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
        y_name: str | None = None,
        x: Any = None,
        x_name: str | None = None,
        x_levels: Any = None,
        joined: bool = True,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot given predictions and intervals.

        Parameters
        ----------
        y : array-like of shape (n_samples[, n_targets]) or None
        prediction : array-like of shape (n_samples[, n_targets])
        interval : array-like of shape (n_samples[, n_targets], n_levels, 2)
            For a single coverage also without the axis of levels.
        coverage : float or sequence of float in (0, 1), default=(0.5, 0.9)
            Coverage of the intervals.
        target : int, default=None
            Index of the target; required if there are several.
        y_name : str, default=None
            Label of the y axis; None uses the name of y.
        x, x_name, x_levels, joined
            See the class.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        prediction = select_target("prediction", prediction, target)
        interval = np.asarray(interval)
        if np.ndim(coverage) == 0:
            interval = interval[..., None, :]
        interval = select_target("interval", interval, target, trailing=2)
        coverage = np.atleast_1d(np.asarray(coverage, dtype=np.float64))
        if interval.shape != (len(prediction), len(coverage), 2):
            raise ValueError(
                "`interval` must have a lower and an upper bound for each row and "
                f"coverage, shape {(len(prediction), len(coverage), 2)}; got "
                f"{interval.shape}."
            )
        y_name = _rows.name_of_target(y, target) if y_name is None else y_name
        y = None if y is None else _rows.y_of_target(y, target)
        if y is not None and len(y) != len(prediction):
            raise ValueError(
                f"`y` must have the {len(prediction)} rows of the prediction; got "
                f"{len(y)}."
            )
        return cls(
            prediction=prediction,
            interval=interval,
            coverage=coverage,
            y=y,
            y_name=y_name,
            x=_rows.check_positions(x, len(prediction)),
            x_name=x_name,
            x_levels=x_levels,
            joined=joined,
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        line_kwargs: dict[str, Any] | None = None,
        band_kwargs: dict[str, Any] | None = None,
        y_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw predictions, intervals and targets.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        name : str, default=None
            Name of the prediction in the legend.
        line_kwargs, band_kwargs, y_kwargs : dict, default=None
            Keywords of matplotlib's ``plot`` for the prediction, ``fill_between`` or
            ``vlines`` for the intervals, and ``plot`` for the targets.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        ax = self._axes(ax)
        order, positions = self._on_axis(
            ax, self.prediction, "rows, sorted by prediction"
        )
        n_rows, many = len(order), len(order) > _axes.MANY
        # A single row has no neighbour to be joined to.
        joined = self.joined and n_rows > 1
        width = float(np.clip(300 / n_rows, 0.5, 4))
        widest_first = np.argsort(-self.coverage, kind="stable")
        self.bands_: Any = [None] * len(self.coverage)
        for rank, level in enumerate(widest_first):
            lower, upper = self.interval[order, level].T
            self.bands_[level] = _axes.draw_band(
                ax,
                positions,
                lower,
                upper,
                band_kwargs,
                joined=joined,
                color=_axes.BLUE,
                alpha=0.15 * (1 + rank),
                linewidth=0 if joined else width * (1 + rank),
                label=f"{100 * self.coverage[level]:.4g} % interval",
                rasterized=many and not joined,
            )
        self.line_ = _axes.draw_line(
            ax,
            positions,
            self.prediction[order],
            line_kwargs,
            color=_axes.BLUE,
            linestyle="-" if joined else "",
            marker="" if joined else "_",
            markersize=1.5 * _axes.marker_size(n_rows),
            label=name or "prediction",
            # Draw the prediction above the targets.
            zorder=3,
            rasterized=many and not joined,
        )
        self.inside_: Any = None
        self.outside_: Any = None
        if self.y is not None:
            self._plot_targets(ax, order, positions, widest_first[0], y_kwargs)
        label = _axes.short_label(self.y_name, LONGEST_LABEL)
        ax.set_ylabel(label + self._limit(ax))
        _axes.legend_on_top(ax)
        return self

    def _limit(self, ax) -> str:
        """Give the y axis a log scale, or leave out a few rows that dominate it.

        returns : addition to the label of the axis
        """
        if not ax.get_autoscaley_on():
            return ""
        drawn = np.column_stack([self.prediction, *[self.y] * (self.y is not None)])
        bounds = self.interval.reshape(len(drawn), -1)
        is_log = self.x is None and _axes.set_log_axis_if_skewed(ax, drawn)
        if is_log:
            n_beyond = _axes.rows_beyond(bounds, ax.get_ylim())
        else:
            n_beyond = _axes.leave_out_outliers(ax, np.column_stack([drawn, bounds]))
        texts = ["log scale"] * is_log
        if n_beyond:
            texts.append(f"{n_beyond} of {len(drawn)} rows reach beyond")
        return f" ({', '.join(texts)})" if texts else ""

    def _plot_targets(self, ax, order, positions, widest, y_kwargs):
        """Draw the targets; targets outside the widest interval have their own mark."""
        lower, upper = self.interval[order, widest].T
        y = self.y[order]
        inside, outside = (lower <= y) & (y <= upper), (y < lower) | (y > upper)
        n_measured = int((y == y).sum())
        share = f"{100 * self.coverage[widest]:.4g} %"
        missed = f"outside of {share}: {outside.sum()} of {n_measured}"
        y_name = _axes.short_label(self.y_name, LONGEST_IN_LEGEND)
        many, size = len(y) > _axes.MANY, _axes.marker_size(len(y))
        parts = (
            (inside, ".", _axes.GREY, size, y_name),
            (outside, "x", _axes.VERMILION, max(size, 3), missed),
        )
        self.inside_, self.outside_ = (
            _axes.draw_line(
                ax,
                positions[where],
                y[where],
                y_kwargs,
                linestyle="",
                marker=marker,
                color=color,
                markersize=size,
                label=text,
                alpha=0.5 if many else 1,
                rasterized=many,
            )
            for where, marker, color, size, text in parts
        )
