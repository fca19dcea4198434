"""The two parts of the predictive uncertainty."""

from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn.inspection._importance import of_target
from skbayesnn.plotting._shared import (
    BLUE,
    GREY,
    MANY,
    VERMILION,
    axes_for,
    column,
    common_limits,
    legend_on_top,
    marker_size,
    places,
    position,
    require_matplotlib,
    styled,
    whole_numbers,
)

# What the parts and the whole are called, per measure; and the label of the axis.
NAMES = {
    "std": ("aleatoric (noise)", "epistemic (model)", "total"),
    "entropy": (
        "expected entropy (noise)",
        "mutual information (model)",
        "entropy",
    ),
}
UNITS = {"std": "standard deviation, y's units", "entropy": "nats"}


class UncertaintyDecompositionDisplay:
    """Aleatoric and epistemic part of the predictive uncertainty of each row.

    It is made by :meth:`from_estimator` or :meth:`from_predictions`. Over one feature,
    or with the rows sorted by their total uncertainty. The aleatoric part is noise, the
    epistemic part is the spread of what the draws say. A few rows whose uncertainty
    would press all others flat leave the picture, which the label of the y axis says.

    Of classes the two add up, expected entropy + mutual information = entropy, and are
    stacked. Of a regression the variances add up; shown are the three standard
    deviations: they have y's units, and a part of a fifth of the noise, which is a
    fiftieth of the variance, can still be seen. Over a feature they are curves; of
    sorted rows only the total is one, and the parts are points.

    Parameters
    ----------
    aleatoric, epistemic, total : ndarray of shape (n_samples,)
        Standard deviations in y's units, or entropies in nats.
    measure : {"std", "entropy"}
        Which of them.
    x : ndarray of shape (n_samples,), default=None
        Positions of the rows; None sorts them by ``total``.
    x_name : str, default=None
        Label of ``x``.
    joined : bool, default=True
        Whether neighbouring rows are joined. That needs an uncertainty that is a
        function of ``x``; where other features vary too, rows stand apart.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    aleatoric_, epistemic_, total_ : matplotlib Artist
    """

    ax_: Any
    figure_: Any
    aleatoric_: Any
    epistemic_: Any
    total_: Any

    def __init__(
        self,
        *,
        aleatoric,
        epistemic,
        total,
        measure,
        x=None,
        x_name=None,
        joined=True,
    ) -> None:
        self.aleatoric = aleatoric
        self.epistemic = epistemic
        self.total = total
        self.measure = measure
        self.x = x
        self.x_name = x_name
        self.joined = joined

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        feature: Any = None,
        target: int | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Display of a fitted regressor or classifier.

        Parameters
        ----------
        estimator : fitted estimator
            As :func:`skbayesnn.predict_uncertainty` takes it.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        feature : int or str, default=None
            Column of X to draw over; None sorts rows by their total uncertainty. Rows
            are joined where no other column varies.
        target : int, default=None
            Which target to show; needed for a model of several targets.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        **kwargs : dict
            As in :meth:`plot`.

        Returns
        -------
        display : UncertaintyDecompositionDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_estimator")
        x, x_name, joined = (
            (None, None, True) if feature is None else column(X, feature)
        )
        if is_classifier(estimator):
            measure = "entropy"
            kinds = ["expected_entropy", "mutual_information", "entropy"]
        else:
            measure = "std"
            kinds = ["aleatoric", "epistemic", "total"]
        parts = predict_uncertainty(estimator, X, kind=kinds)
        aleatoric, epistemic, total = (parts[kind] for kind in kinds)
        return cls.from_predictions(
            aleatoric,
            epistemic,
            total,
            measure=measure,
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
        aleatoric: Any,
        epistemic: Any,
        total: Any = None,
        *,
        measure: str,
        target: int | None = None,
        x: Any = None,
        x_name: str | None = None,
        joined: bool = True,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Display of given uncertainties.

        Parameters
        ----------
        aleatoric, epistemic : array-like of shape (n_samples[, n_targets])
            Standard deviations, or expected entropy and mutual information.
        total : array-like of shape (n_samples[, n_targets]), default=None
            By default what the two make: the root of the sum of squares, or the sum.
        measure : {"std", "entropy"}
            Which of them.
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
        display : UncertaintyDecompositionDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_predictions")
        if measure not in NAMES:
            raise ValueError(f"`measure` must be 'std' or 'entropy'; got {measure!r}.")
        aleatoric = of_target("aleatoric", aleatoric, target)
        epistemic = of_target("epistemic", epistemic, target)
        if total is None:
            add = np.hypot if measure == "std" else np.add
            total = add(aleatoric, epistemic)
        else:
            total = of_target("total", total, target)
        if not len(aleatoric) == len(epistemic) == len(total):
            raise ValueError(
                "`aleatoric`, `epistemic` and `total` must have the same rows; got "
                f"{len(aleatoric)}, {len(epistemic)} and {len(total)}."
            )
        display = cls(
            aleatoric=aleatoric,
            epistemic=epistemic,
            total=total,
            measure=measure,
            x=position(x, len(total)),
            x_name=x_name,
            joined=joined,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        aleatoric_kwargs: dict[str, Any] | None = None,
        epistemic_kwargs: dict[str, Any] | None = None,
        total_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        aleatoric_kwargs, epistemic_kwargs, total_kwargs : dict, default=None
            Keywords for each, as matplotlib's ``plot`` takes them; of the two areas of
            ``measure="entropy"``, as ``fill_between`` does.

        Returns
        -------
        display : UncertaintyDecompositionDisplay
        """
        ax = axes_for(self, ax)
        order, place, label = places(
            self.total, self.x, self.x_name, "rows, sorted by total uncertainty"
        )
        parts = [values[order] for values in (self.aleatoric, self.epistemic)]
        given, names = (aleatoric_kwargs, epistemic_kwargs), NAMES[self.measure]
        total = self.total[order]
        if self.measure == "entropy" and self.joined and len(order) > 1:
            self.aleatoric_, self.epistemic_ = self._areas(
                ax, place, parts[0], total, names, given
            )
            self.total_ = self._curve(ax, place, total, GREY, names[2], total_kwargs)
        else:
            # Wide and below: the larger part often lies on it.
            wide = {"linewidth": 5, "alpha": 0.5, "markersize": 9}
            wide |= total_kwargs or {}
            self.total_ = self._curve(ax, place, total, GREY, names[2], wide)
            # Sorted by the total, only the total is a curve.
            joined = self.joined and self.x is not None
            self.aleatoric_, self.epistemic_ = (
                self._curve(ax, place, *part, joined=joined)
                for part in zip(parts, (BLUE, VERMILION), names, given, strict=False)
            )
        ax.set(xlabel=label, ylabel=UNITS[self.measure])
        if self.x is None:
            whole_numbers(ax)
        ax.set_ylim(bottom=0, auto=None)
        self._leave_out_what_explodes(ax)
        legend_on_top(ax)
        return self

    def _leave_out_what_explodes(self, ax):
        """A few rows of a huge uncertainty would press all others flat; said on y."""
        limits = common_limits(self.total[:, None])
        if limits is None or not ax.get_autoscaley_on():
            return
        top = 1.1 * limits[1]
        # auto=None: what is drawn later still moves the limits.
        ax.set_ylim(0, top, auto=None)
        beyond = (self.total > top).sum()
        told = f"{beyond} of {len(self.total)} rows reach beyond"
        ax.set_ylabel(f"{UNITS[self.measure]}\n({told})")

    def _areas(self, ax, place, aleatoric, total, names, given):
        """The noise, and above it what else is in the total."""
        bounds = (0 * aleatoric, aleatoric), (aleatoric, total)
        colors = BLUE, VERMILION
        for (lower, upper), color, text, own in zip(
            bounds, colors, names, given, strict=False
        ):
            style = styled(
                "PolyCollection",
                own,
                color=color,
                alpha=0.6,
                linewidth=0,
                label=text,
            )
            yield ax.fill_between(place, lower, upper, **style)

    def _curve(self, ax, place, values, color, text, given, *, joined=None):
        """A line, or a point in each row."""
        joined = (self.joined if joined is None else joined) and len(place) > 1
        style = styled(
            "Line2D",
            given,
            color=color,
            label=text,
            linestyle="-" if joined else "",
            marker="" if joined else ".",
            markersize=marker_size(len(place)),
            rasterized=len(place) > MANY and not joined,
        )
        return ax.plot(place, values, **style)[0]
