"""Class probabilities under every posterior draw."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._meta.functions import predict_distribution
from skbayesnn._typing import RandomState
from skbayesnn.inspection._attributions import short_names
from skbayesnn.plotting import _axes, _rows

MAX_CLASSES = 5
# More rows than this are sorted, unless they have positions.
MAX_UNSORTED = 30


@dataclass(kw_only=True, repr=False, eq=False)
class ClassProbabilityDisplay(_rows.RowsDisplay):
    """Class probabilities of each row under every posterior draw.

    Create it by :meth:`from_estimator` or :meth:`from_predictions`. Use it to see how
    much the draws disagree about a few rows. A small point is the probability of a
    class under one draw, as in [1]_, figure 4, where a digit is rotated from row to
    row. A large point is the mean over draws. The draws of a row are spread around its
    position. Lines join the means if the rows have positions ``x``. More than 30 rows
    without positions are sorted by their most likely class and its probability.

    Parameters
    ----------
    probability : ndarray of shape (n_samples, n_classes, n_draws)
    labels : ndarray of shape (n_classes,)
        Labels of the columns.
    classes : ndarray of shape (n_shown,)
        Labels that are shown.
    x : ndarray of shape (n_samples,), default=None
        Positions of the rows; None uses the order of the rows, or sorts them. If the
        order has a meaning, give ``np.arange(n_samples)``. Rows whose position is
        missing are not shown; the label of the x axis has their number.
    x_name : str, default=None
        Label of the x axis.
    x_levels : sequence of str, default=None
        Names of the positions 0, 1, ..., if ``x`` is the index of a category.
    joined : bool, default=True
        Whether lines join the means of rows that have positions, but no levels.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of matplotlib Artist
        The draws of each shown class.
    lines_ : list of matplotlib Artist
        The mean of each shown class.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "Dropout as a Bayesian approximation: representing
       model uncertainty in deep learning".
    """

    probability: Any
    labels: Any
    classes: Any

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        x: Any = None,
        x_name: str | None = None,
        classes: Any = None,
        n_draws: int = 100,
        random_state: RandomState = 0,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the class probabilities of a fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier
            Any classifier that :func:`skbayesnn.sample_f` accepts.
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        x : array-like of shape (n_samples,), default=None
            Position of each row, such as the angle of a rotated image or a date; None
            as in the class.
        x_name : str, default=None
            Label of the x axis.
        classes : array-like, default=None
            Labels to show. None shows all classes if there are at most 5. Otherwise it
            shows classes that are the most likely class of some row, at most 5, with
            the largest mean probability. The label of the y axis has the number shown.
        n_draws : int, default=100
        random_state : int, RandomState instance or None, default=0
            Random numbers of the draws.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : ClassProbabilityDisplay
        """
        if not is_classifier(estimator):
            raise TypeError(
                f"{cls.__name__} shows class probabilities and needs a classifier; got "
                f"{type(estimator).__name__}. For regressors use "
                "PredictionIntervalDisplay."
            )
        return cls.from_predictions(
            predict_distribution(estimator, X).functions(n_draws, random_state),
            estimator.classes_,
            x=x,
            x_name=x_name,
            classes=classes,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        probability: Any,
        labels: Any,
        *,
        x: Any = None,
        x_name: str | None = None,
        x_levels: Any = None,
        joined: bool = True,
        classes: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot given class probabilities.

        Parameters
        ----------
        probability : array-like of shape (n_samples, n_classes, n_draws)
        labels : array-like of shape (n_classes,)
            Labels of the columns.
        x, x_name, x_levels, joined
            See the class.
        classes, ax, **kwargs
            See :meth:`from_estimator`.

        Returns
        -------
        display : ClassProbabilityDisplay
        """
        probability, labels = np.asarray(probability), np.asarray(labels)
        if probability.ndim != 3 or probability.shape[1] != len(labels):
            raise ValueError(
                "`probability` must be of shape (n_samples, n_classes, n_draws) with "
                f"the {len(labels)} classes {labels.tolist()}; got shape "
                f"{probability.shape}."
            )
        return cls(
            probability=probability,
            labels=labels,
            classes=_shown(classes, probability.mean(-1), labels),
            x=_rows.check_positions(x, len(probability)),
            x_name=x_name,
            x_levels=x_levels,
            joined=joined,
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        scatter_kwargs: dict[str, Any] | None = None,
        line_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the class probabilities.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        scatter_kwargs, line_kwargs : dict, default=None
            Keywords of matplotlib's ``plot`` for the draws and for the means.

        Returns
        -------
        display : ClassProbabilityDisplay
        """
        ax = self._axes(ax)
        order, x = self._places(ax)
        n_rows, n_classes, n_draws = self.probability.shape
        places = x[:, None] + _offsets(x, n_draws)
        size = min(2 * _axes.marker_size(n_rows), 4)
        self.points_: list = []
        self.lines_: list = []
        names = short_names([str(label) for label in self.classes], 24)
        for label, name, color in zip(
            self.classes, names, cycle(_axes.COLORS), strict=False
        ):
            [column] = np.flatnonzero(self.labels == label)
            probability = self.probability[order, column]
            draws = _axes.draw_line(
                ax,
                places.ravel(),
                probability.ravel(),
                scatter_kwargs,
                color=color,
                linestyle="",
                marker=".",
                markersize=size,
                markeredgewidth=0,
                alpha=0.4 if n_rows <= MAX_UNSORTED else 0.1,
                rasterized=True,
            )
            mean = _axes.draw_line(
                ax,
                x,
                probability.mean(-1),
                line_kwargs,
                color=color,
                linestyle="" if self.x is None or not self.joined else "-",
                marker="o",
                markersize=size,
                label=_axes.plain(name),
                # Draw the means above the draws of all classes.
                zorder=3,
            )
            self.points_.append(draws)
            self.lines_.append(mean)
        ylabel = "class probability: mean and draws"
        if len(self.classes) < n_classes:
            ylabel += f"\n({len(self.classes)} of {n_classes} classes)"
        ax.set_ylabel(ylabel)
        ax.set_yticks(np.linspace(0, 1, 6))
        _axes.legend_on_top(ax)
        return self

    def _places(self, ax) -> tuple[np.ndarray, np.ndarray]:
        """Order of the rows, and their positions as numbers; label the x axis."""
        n_rows = len(self.probability)
        if n_rows <= MAX_UNSORTED or self.x is not None:
            order, x = self._on_axis(ax, np.arange(n_rows), "row")
            return order, ax.convert_xunits(x)
        mean = self.probability.mean(-1)
        # Rows whose most likely class is not shown come last.
        rank = {label: i for i, label in enumerate(self.classes)}
        ranks = np.array([rank.get(label, len(rank)) for label in self.labels])
        ax.set_xlabel("rows, sorted by their most likely class")
        _rows.integer_ticks(ax)
        order = np.lexsort([mean.max(1), ranks[mean.argmax(1)]])
        return order, np.arange(n_rows)


def _shown(classes, mean, labels):
    """Labels to show, in column order."""
    if classes is not None:
        unknown = [label for label in classes if label not in labels]
        if unknown:
            raise ValueError(
                f"`classes` must be among {labels.tolist()}; got {unknown}."
            )
        return np.asarray(classes)
    if len(labels) <= MAX_CLASSES:
        return labels
    most_likely = np.unique(mean.argmax(1))
    by_mean = most_likely[np.argsort(-mean.mean(0)[most_likely], kind="stable")]
    return labels[np.sort(by_mean[:MAX_CLASSES])]


def _offsets(x, n_draws):
    """Horizontal offsets of the draws from their row, within the space between rows."""
    steps = np.diff(np.unique(x[np.isfinite(x)]))
    width = 0.6 * steps.min() if len(steps) else 0.6
    return width * ((np.arange(n_draws) + 0.5) / n_draws - 0.5)
