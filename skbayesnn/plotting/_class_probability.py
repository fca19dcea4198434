"""Class probabilities of every posterior draw."""

from itertools import cycle

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._meta.functions import sample_f
from skbayesnn.plotting._shared import (
    COLORS,
    axes_for,
    legend_on_top,
    position,
    require_matplotlib,
    styled,
)

MOST_CLASSES = 5


class ClassProbabilityDisplay:
    """Class probabilities that posterior draws give to each row.

    It is made by :meth:`from_estimator` or :meth:`from_predictions`. A point is the
    probability of a class under one draw, as in [1]_, figure 4, where a digit is turned
    from row to row; a line joins the means over the draws. The draws of a row stand
    side by side, about its position.

    Parameters
    ----------
    probability : ndarray of shape (n_samples, n_classes, n_draws)
    labels : ndarray of shape (n_classes,)
        Of the columns.
    classes : ndarray of shape (n_shown,)
        Labels that are shown.
    x : ndarray of shape (n_samples,), default=None
        Positions of the rows; None is their order.
    x_name : str, default=None
        Label of ``x``.

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

    def __init__(self, *, probability, labels, classes, x=None, x_name=None):
        self.probability = probability
        self.labels = labels
        self.classes = classes
        self.x = x
        self.x_name = x_name

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        *,
        x=None,
        x_name=None,
        classes=None,
        n_draws=100,
        random_state=0,
        ax=None,
        **kwargs,
    ):
        """Display of a fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier
            As :func:`skbayesnn.sample_f` takes it.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows in an order that means something, as a picture that is turned.
        x : array-like of shape (n_samples,), default=None
            Position of each row, as the angle; None is their order.
        x_name : str, default=None
            Label of ``x``.
        classes : array-like, default=None
            Labels to show. None shows those that are the likeliest of some row; if
            these are more than 5, the 5 of largest mean probability.
        n_draws : int, default=100
        random_state : int, RandomState instance or None, default=0
            Of the draws.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        **kwargs : dict
            As in :meth:`plot`.

        Returns
        -------
        display : ClassProbabilityDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_estimator")
        if not is_classifier(estimator):
            raise TypeError(
                f"{cls.__name__} is of class probabilities and needs a classifier; got "
                f"{type(estimator).__name__}. For regressors there is "
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
        probability,
        labels,
        *,
        x=None,
        x_name=None,
        classes=None,
        ax=None,
        **kwargs,
    ):
        """Display of given probabilities.

        Parameters
        ----------
        probability : array-like of shape (n_samples, n_classes, n_draws)
        labels : array-like of shape (n_classes,)
            Of the columns.
        x, x_name, classes, ax, **kwargs
            As in :meth:`from_estimator`.

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
            x=position(x, len(probability)),
            x_name=x_name,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax=None, *, scatter_kwargs=None, line_kwargs=None):
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        scatter_kwargs, line_kwargs : dict, default=None
            Keywords for the draws and the means, both as matplotlib's ``plot`` takes
            them.

        Returns
        -------
        display : ClassProbabilityDisplay
        """
        ax = axes_for(self, ax)
        n_rows, _, n_draws = self.probability.shape
        x = np.arange(n_rows) if self.x is None else self.x
        order = np.argsort(x, kind="stable")
        places = x[order, None] + _offsets(x, n_draws)
        self.points_, self.lines_ = [], []
        for label, color in zip(self.classes, cycle(COLORS), strict=False):
            [column] = np.flatnonzero(self.labels == label)
            probability = self.probability[order, column]
            of_draws = styled(
                "Line2D",
                scatter_kwargs,
                color=color,
                linestyle="",
                marker=".",
                markersize=4,
                markeredgewidth=0,
                alpha=0.4,
                rasterized=True,
            )
            of_mean = styled(
                "Line2D",
                line_kwargs,
                color=color,
                marker="o",
                markersize=4,
                label=f"{label}, mean",
                # Above the draws of all classes.
                zorder=3,
            )
            self.points_ += ax.plot(places.ravel(), probability.ravel(), **of_draws)
            self.lines_ += ax.plot(x[order], probability.mean(-1), **of_mean)
        ax.set(
            xlabel=(self.x_name or "x") if self.x is not None else "row",
            ylabel="class probability of each draw",
        )
        ax.set_yticks(np.linspace(0, 1, 6))
        legend_on_top(ax)
        return self


def _shown(classes, mean, labels):
    """Labels to show, in the order of the columns."""
    if classes is not None:
        unknown = [label for label in classes if label not in labels]
        if unknown:
            raise ValueError(
                f"`classes` must be among {labels.tolist()}; got {unknown}."
            )
        return np.asarray(classes)
    likeliest = np.unique(mean.argmax(1))
    by_mean = likeliest[np.argsort(-mean.mean(0)[likeliest], kind="stable")]
    return labels[np.sort(by_mean[:MOST_CLASSES])]


def _offsets(x, n_draws):
    """Of the draws from their row's position, within the gap between rows."""
    gaps = np.diff(np.unique(x))
    width = 0.6 * gaps.min() if len(gaps) else 0.6
    return width * ((np.arange(n_draws) + 0.5) / n_draws - 0.5)
