"""Class probabilities under every posterior draw."""

from __future__ import annotations

from itertools import cycle
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._meta.functions import sample_f
from skbayesnn._runtime import warn_once_per_call
from skbayesnn._typing import RandomState
from skbayesnn.inspection._importance import short_names
from skbayesnn.plotting._shared import (
    COLORS,
    as_numbers,
    axes_for,
    check_positions,
    label_positions,
    legend_on_top,
    marker_size,
    plain,
    require_matplotlib,
    row_positions,
    styled,
)

MAX_CLASSES = 5
# More rows than this are sorted, unless they have positions.
MAX_UNSORTED = 30


class ClassProbabilityDisplay:
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

    ax_: Any
    figure_: Any
    points_: Any
    lines_: Any

    def __init__(self, *, probability, labels, classes, x=None, x_name=None) -> None:
        self.probability = probability
        self.labels = labels
        self.classes = classes
        self.x = x
        self.x_name = x_name

    @classmethod
    @warn_once_per_call
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
        require_matplotlib(f"{cls.__name__}.from_estimator")
        if not is_classifier(estimator):
            raise TypeError(
                f"{cls.__name__} shows class probabilities and needs a classifier; got "
                f"{type(estimator).__name__}. For regressors use "
                "PredictionIntervalDisplay."
            )
        return cls.from_predictions(
            sample_f(estimator, X, n_samples=n_draws, random_state=random_state),
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
        x, x_name, classes, ax, **kwargs
            See :meth:`from_estimator`.

        Returns
        -------
        display : ClassProbabilityDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_predictions")
        probability, labels = np.asarray(probability), np.asarray(labels)
        if probability.ndim != 3 or probability.shape[1] != len(labels):
            raise ValueError(
                "`probability` must be of shape (n_samples, n_classes, n_draws) with "
                f"the {len(labels)} classes {labels.tolist()}; got shape "
                f"{probability.shape}."
            )
        display = cls(
            probability=probability,
            labels=labels,
            classes=_shown(classes, probability.mean(-1), labels),
            x=check_positions(x, len(probability)),
            x_name=x_name,
        )
        return display.plot(ax=ax, **kwargs)

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
        ax = axes_for(self, ax)
        x, order, xlabel = self._places()
        n_rows, n_classes, n_draws = self.probability.shape
        places = x[:, None] + _offsets(x, n_draws)
        size = 2 * marker_size(n_rows)
        self.points_, self.lines_ = [], []
        names = short_names([str(label) for label in self.classes], 24)
        for label, name, color in zip(self.classes, names, cycle(COLORS), strict=False):
            [column] = np.flatnonzero(self.labels == label)
            probability = self.probability[order, column]
            draws_style = styled(
                "Line2D",
                scatter_kwargs,
                color=color,
                linestyle="",
                marker=".",
                markersize=min(size, 4),
                markeredgewidth=0,
                alpha=0.4 if n_rows <= MAX_UNSORTED else 0.1,
                rasterized=True,
            )
            mean_style = styled(
                "Line2D",
                line_kwargs,
                color=color,
                linestyle="" if self.x is None else "-",
                marker="o",
                markersize=min(size, 4),
                label=plain(name),
                # Draw the means above the draws of all classes.
                zorder=3,
            )
            self.points_ += ax.plot(places.ravel(), probability.ravel(), **draws_style)
            self.lines_ += ax.plot(x, probability.mean(-1), **mean_style)
        ylabel = "class probability: mean and draws"
        if len(self.classes) < n_classes:
            ylabel += f"\n({len(self.classes)} of {n_classes} classes)"
        ax.set(xlabel=xlabel, ylabel=ylabel)
        ax.set_yticks(np.linspace(0, 1, 6))
        label_positions(ax, self.x, None)
        legend_on_top(ax)
        return self

    def _places(self):
        """Positions of the rows from left to right, their order, and the axis label.

        Rows without a position are left out.
        """
        if self.x is not None:
            order, x, label = row_positions(None, self.x, self.x_name, None)
            return as_numbers(x), order, label
        n_rows = len(self.probability)
        if n_rows <= MAX_UNSORTED:
            return np.arange(n_rows), np.arange(n_rows), "row"
        mean = self.probability.mean(-1)
        most_likely = mean.argmax(1)
        # Rows whose most likely class is not shown come last.
        shown = list(self.classes)
        last = len(shown)
        rank = [shown.index(label) if label in shown else last for label in self.labels]
        order = np.lexsort([mean.max(1), np.array(rank)[most_likely]])
        label = "rows, sorted by their most likely class"
        return np.arange(n_rows), order, label


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
