"""What happened in training."""

from typing import Any, Self

import numpy as np

from skbayesnn._meta.find import find_estimator
from skbayesnn.plotting._shared import (
    legend_on_top,
    next_color,
    require_matplotlib,
    styled,
)


class TrainingCurveDisplay:
    """Negative log-likelihood and KL per epoch, and the validation rows' score.

    It is made by :meth:`from_estimator`. The two parts of the loss, in nats per row,
    have a panel each, since the KL may be orders larger or smaller. The validation
    score, a log density, is shown with its sign changed beside the negative
    log-likelihood. Of several networks every one has a thin line, and the thick line is
    their mean, of those still in training. Behind a target transform the likelihood is
    that of the transformed target.

    Parameters
    ----------
    negative_log_likelihood, kl : ndarray of shape (n_epochs, n_networks)
        Nats per row; NaN after a network has stopped.
    validation_score : ndarray of shape (n_epochs, n_networks), default=None
        Mean log density of the validation rows; None without early stopping.
    name : str, default=None
        Goes before the labels in the legend.

    Attributes
    ----------
    axes_ : ndarray of shape (2,) of matplotlib Axes
        Of the log-likelihood and of the KL.
    ax_ : matplotlib Axes
        The first of them.
    figure_ : matplotlib Figure
    negative_log_likelihood_, kl_, validation_ : list of matplotlib Artist or None
        The mean's line, and those of each network where there are several; None where
        there is no validation.
    """

    axes_: Any
    ax_: Any
    figure_: Any
    negative_log_likelihood_: Any
    kl_: Any
    validation_: Any

    def __init__(
        self, *, negative_log_likelihood, kl, validation_score=None, name=None
    ) -> None:
        self.negative_log_likelihood = negative_log_likelihood
        self.kl = kl
        self.validation_score = validation_score
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: Any = None, **kwargs: Any
    ) -> Self:
        """Display of the ``history_`` of a fitted network.

        Parameters
        ----------
        estimator : fitted estimator
            Of this package, or a meta-estimator around one: the last step of a
            pipeline, the best estimator of a search.
        name : str, default=None
            Goes before the labels in the legend.
        ax : matplotlib Axes or array-like of two of them, default=None
            As in :meth:`plot`.
        **kwargs : dict
            As in :meth:`plot`.

        Returns
        -------
        display : TrainingCurveDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_estimator")
        history = _network(estimator).history_
        display = cls(
            negative_log_likelihood=history["negative_log_likelihood"],
            kl=history["kl"],
            validation_score=history.get("validation_score"),
            name=name,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of two of them, default=None
            Two axes are drawn on, the first for the log-likelihood. In one axes the
            two panels are made, and it shows nothing else: to draw there again, give
            ``axes_``. None makes a new figure.
        name : str, default=None
            Goes before the labels in the legend; by default ``self.name``.
        **kwargs : dict
            Keywords for the lines, as matplotlib's ``plot`` takes them.

        Returns
        -------
        display : TrainingCurveDisplay
        """
        require_matplotlib(f"{type(self).__name__}.plot")
        self.axes_ = _panels(ax)
        top, bottom = self.axes_
        self.ax_, self.figure_ = top, top.figure
        name = self.name if name is None else name
        before = "" if name is None else f"{name}, "
        color = next_color(top)
        self.negative_log_likelihood_ = _curves(
            top, self.negative_log_likelihood, color, f"{before}training", kwargs
        )
        self.validation_ = None
        if self.validation_score is not None:
            self.validation_ = _curves(
                top,
                -self.validation_score,
                next_color(top),
                f"{before}validation",
                kwargs,
            )
        self.kl_ = _curves(bottom, self.kl, color, name, kwargs)
        top.set(ylabel="negative log-likelihood")
        bottom.set(xlabel="epoch", ylabel="KL")
        legend_on_top(top)
        return self


def _network(model):
    """The fitted network inside of meta-estimators."""
    network = find_estimator(model)
    if not hasattr(network, "history_"):
        raise TypeError(
            "a training curve is that of one network which was trained here; got "
            f"{type(network).__name__}. For a stack give one of its `estimators_`."
        )
    return network


def _panels(ax):
    """Two axes, one above the other."""
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes

    if ax is None:
        _, ax = plt.subplots(
            2, 1, sharex=True, height_ratios=[3, 2], layout="constrained"
        )
        return ax
    if not isinstance(ax, Axes):
        axes = np.asarray(ax, dtype=object).ravel()
        if len(axes) != 2:
            raise ValueError(
                "`ax` must be one Axes, or two: for the log-likelihood and the KL; got "
                f"{len(axes)}."
            )
        return axes
    if not ax.axison:
        raise ValueError(
            "`ax` must not have been divided by an earlier plot; got such an Axes. "
            "Give the `axes_` of the earlier display."
        )
    ax.set_axis_off()
    top = ax.inset_axes((0, 0.42, 1, 0.58))
    bottom = ax.inset_axes((0, 0, 1, 0.36), sharex=top)
    top.tick_params(labelbottom=False)
    return np.array([top, bottom])


def _curves(ax, values, color, label, kwargs):
    """The mean over networks, and each network where there are several."""
    epochs = np.arange(1, len(values) + 1)
    style = styled("Line2D", kwargs, color=color, label=label)
    lines = ax.plot(epochs, np.nanmean(values, axis=1), **style)
    if values.shape[1] > 1:
        thin = style | {"linewidth": 0.8, "alpha": 0.4, "label": None}
        lines += ax.plot(epochs, values, **thin)
    return lines
