"""Training history of a network."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from skbayesnn._meta.find import find_estimator
from skbayesnn.plotting import _axes


@dataclass(kw_only=True, repr=False, eq=False)
class TrainingCurveDisplay(_axes.Display):
    """Training curves: negative log-likelihood, KL and validation score per epoch.

    Create it by :meth:`from_estimator`. Use it to see whether the training converged.
    The two parts of the loss, in nats per row, have separate panels, because the KL may
    be orders of magnitude larger or smaller. The validation score, a log density, is
    drawn with opposite sign next to the negative log-likelihood. With several networks
    each has a thin line, and the thick line is the mean over networks still in
    training. If y is transformed, the likelihood refers to the transformed target.

    Parameters
    ----------
    negative_log_likelihood, kl : ndarray of shape (n_epochs, n_networks)
        Nats per row; NaN after a network has stopped.
    validation_score : ndarray of shape (n_epochs, n_networks), default=None
        Mean log density of the validation rows; None without early stopping.
    name : str, default=None
        Prefix of the labels in the legend.

    Attributes
    ----------
    axes_ : ndarray of shape (2,) of matplotlib Axes
        Axes of the log-likelihood and of the KL.
    ax_ : matplotlib Axes
        The first of ``axes_``.
    figure_ : matplotlib Figure
    negative_log_likelihood_, kl_, validation_ : list of matplotlib Artist or None
        Line of the mean, then one line per network if there are several; None without
        validation rows.
    """

    negative_log_likelihood: Any
    kl: Any
    validation_score: Any = None
    name: str | None = None

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: Any = None, **kwargs: Any
    ) -> Self:
        """Plot the ``history_`` of a fitted network.

        Parameters
        ----------
        estimator : fitted estimator
            Network of this package, or a meta-estimator around one, such as a pipeline
            or a search.
        name : str, default=None
            Prefix of the labels in the legend.
        ax : matplotlib Axes or array-like of two of them, default=None
            See :meth:`plot`.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : TrainingCurveDisplay
        """
        history = _network(estimator).history_
        return cls(
            negative_log_likelihood=history["negative_log_likelihood"],
            kl=history["kl"],
            validation_score=history.get("validation_score"),
            name=name,
        ).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the training curves.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of two of them, default=None
            Two axes are drawn on; the first shows the log-likelihood. A single axes is
            divided into the two panels and shows nothing else; to draw there again,
            give ``axes_``. None creates a new figure.
        name : str, default=None
            Prefix of the labels in the legend; by default ``self.name``.
        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the lines.

        Returns
        -------
        display : TrainingCurveDisplay
        """
        _axes.require_matplotlib(type(self).__name__)
        self.axes_ = _panels(ax)
        top, bottom = self.axes_
        self.ax_, self.figure_ = top, top.figure
        name = self.name if name is None else name
        prefix = "" if name is None else f"{name}, "
        color = _axes.next_color(top)
        self.negative_log_likelihood_ = _curves(
            top, self.negative_log_likelihood, color, f"{prefix}training", kwargs
        )
        self.validation_: Any = None
        if self.validation_score is not None:
            nll, other_color = -self.validation_score, _axes.next_color(top)
            self.validation_ = _curves(
                top, nll, other_color, f"{prefix}validation", kwargs
            )
        self.kl_ = _curves(bottom, self.kl, color, name, kwargs)
        top.set(ylabel="negative log-likelihood")
        bottom.set(xlabel="epoch", ylabel="KL")
        _axes.legend_on_top(top)
        return self


def _network(model):
    """Find the fitted network inside of meta-estimators."""
    network = find_estimator(model)
    if not hasattr(network, "history_"):
        raise TypeError(
            "a training curve needs one network that was trained here; got "
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
            "`ax` must not be divided by an earlier plot; got such an Axes. "
            "Give the `axes_` of the earlier display."
        )
    ax.set_axis_off()
    top = ax.inset_axes((0, 0.42, 1, 0.58))
    bottom = ax.inset_axes((0, 0, 1, 0.36), sharex=top)
    top.tick_params(labelbottom=False)
    return np.array([top, bottom])


def _curves(ax, values, color, label, kwargs):
    """Draw the mean over networks, and each network if there are several."""
    epochs = np.arange(1, len(values) + 1)
    mean = np.nanmean(values, axis=1)
    lines = [_axes.draw_line(ax, epochs, mean, kwargs, color=color, label=label)]
    if values.shape[1] > 1:
        for network in values.T:
            line = _axes.draw_line(ax, epochs, network, kwargs, color=color)
            line.set(linewidth=0.8, alpha=0.4, label="")
            lines.append(line)
    return lines
