"""Aleatoric and epistemic parts of the predictive uncertainty."""

from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn._runtime import warn_once_per_call
from skbayesnn.inspection._importance import select_target
from skbayesnn.plotting._shared import (
    BLUE,
    GREY,
    MANY,
    VERMILION,
    axes_for,
    check_positions,
    common_limits,
    label_positions,
    legend_on_top,
    marker_size,
    require_matplotlib,
    row_positions,
    select_feature,
    styled,
)

# Names of the two parts and the total, per measure; and the label of the y axis.
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
    """Aleatoric and epistemic uncertainty of each row.

    Create it by :meth:`from_estimator` or :meth:`from_predictions`. Rows are drawn over
    one feature, or sorted by their total uncertainty. The aleatoric part is observation
    noise; the epistemic part is the disagreement of the posterior draws. If a few rows
    of large uncertainty dominate the range, the y axis leaves them out and its label
    counts them.

    Classification: expected entropy + mutual information = entropy; the two parts are
    stacked. Regression: the variances add up, but the three standard deviations are
    shown. They have y's units, and a small part stays visible: a fifth of the noise's
    standard deviation is a 25th of its variance. Over a feature all three are curves.
    For sorted rows only the total is a curve, and the parts are points.

    Parameters
    ----------
    aleatoric, epistemic, total : ndarray of shape (n_samples,)
        Standard deviations in y's units, or entropies in nats.
    measure : {"std", "entropy"}
        Whether the uncertainties are standard deviations or entropies.
    x : ndarray of shape (n_samples,), default=None
        Positions of the rows, numbers or datetime64. Rows without a position are not
        shown. None sorts them by ``total``.
    x_name : str, default=None
        Label of the x axis.
    x_levels : sequence of str, default=None
        Names of the positions 0, 1, ..., if ``x`` is the index of a category. Rows of a
        category are spread around its position, sorted like all rows without ``x``.
    joined : bool, default=True
        Whether neighbouring rows are joined. Use it if the uncertainty is a function of
        ``x`` alone. If other features vary too, rows are drawn separately.

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
        x_levels=None,
        joined=True,
    ) -> None:
        self.aleatoric = aleatoric
        self.epistemic = epistemic
        self.total = total
        self.measure = measure
        self.x = x
        self.x_name = x_name
        self.x_levels = x_levels
        self.joined = joined and x_levels is None

    @classmethod
    @warn_once_per_call
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
        """Plot the uncertainties of a fitted regressor or classifier.

        Parameters
        ----------
        estimator : fitted estimator
            Any model that :func:`skbayesnn.predict_uncertainty` accepts.
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        feature : int or str, default=None
            Column of X for the x axis: numbers, dates, durations or categories. None
            sorts rows by their total uncertainty. Rows are joined if no other column
            varies.
        target : int, default=None
            Index of the target; required if the model has several targets.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : UncertaintyDecompositionDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_estimator")
        positions = {} if feature is None else select_feature(X, feature)._asdict()
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
            **positions,
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
        x_levels: Any = None,
        joined: bool = True,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot given uncertainties.

        Parameters
        ----------
        aleatoric, epistemic : array-like of shape (n_samples[, n_targets])
            Standard deviations, or expected entropy and mutual information.
        total : array-like of shape (n_samples[, n_targets]), default=None
            By default computed from the two parts: the root of the sum of squares for
            standard deviations, the sum for entropies.
        measure : {"std", "entropy"}
            Whether the uncertainties are standard deviations or entropies.
        target : int, default=None
            Index of the target; required if there are several.
        x, x_name, x_levels, joined
            See the class.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : UncertaintyDecompositionDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_predictions")
        if measure not in NAMES:
            raise ValueError(f"`measure` must be 'std' or 'entropy'; got {measure!r}.")
        aleatoric = select_target("aleatoric", aleatoric, target)
        epistemic = select_target("epistemic", epistemic, target)
        if total is None:
            add = np.hypot if measure == "std" else np.add
            total = add(aleatoric, epistemic)
        else:
            total = select_target("total", total, target)
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
            x=check_positions(x, len(total)),
            x_name=x_name,
            x_levels=x_levels,
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
        """Draw the uncertainties.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        aleatoric_kwargs, epistemic_kwargs, total_kwargs : dict, default=None
            Keywords of matplotlib's ``plot`` for each part; of ``fill_between`` for the
            two areas of ``measure="entropy"``.

        Returns
        -------
        display : UncertaintyDecompositionDisplay
        """
        ax = axes_for(self, ax)
        order, positions, label = row_positions(
            self.total,
            self.x,
            self.x_name,
            "rows, sorted by total uncertainty",
            self.x_levels,
        )
        parts = [values[order] for values in (self.aleatoric, self.epistemic)]
        given, names = (aleatoric_kwargs, epistemic_kwargs), NAMES[self.measure]
        total = self.total[order]
        if self.measure == "entropy" and self.joined and len(order) > 1:
            self.aleatoric_, self.epistemic_ = self._areas(
                ax, positions, parts[0], total, names, given
            )
            self.total_ = self._curve(
                ax, positions, total, GREY, names[2], total_kwargs
            )
        else:
            # A wide line below the others, because the larger part often covers it.
            wide = {"linewidth": 5, "alpha": 0.5, "markersize": 9}
            wide |= total_kwargs or {}
            self.total_ = self._curve(ax, positions, total, GREY, names[2], wide)
            # If rows are sorted by the total, only the total is a curve.
            joined = self.joined and self.x is not None
            self.aleatoric_, self.epistemic_ = (
                self._curve(ax, positions, *part, joined=joined)
                for part in zip(parts, (BLUE, VERMILION), names, given, strict=False)
            )
        ax.set(xlabel=label, ylabel=UNITS[self.measure])
        label_positions(ax, self.x, self.x_levels)
        ax.set_ylim(bottom=0, auto=None)
        self._limit_to_common_range(ax)
        legend_on_top(ax)
        return self

    def _limit_to_common_range(self, ax):
        """Leave out a few rows of large uncertainty that dominate the range."""
        limits = common_limits(self.total[:, None])
        if limits is None or not ax.get_autoscaley_on():
            return
        top = 1.1 * limits[1]
        # auto=None: later artists still move the limits.
        ax.set_ylim(0, top, auto=None)
        n_beyond = (self.total > top).sum()
        count = f"{n_beyond} of {len(self.total)} rows reach beyond"
        ax.set_ylabel(f"{UNITS[self.measure]}\n({count})")

    def _areas(self, ax, positions, aleatoric, total, names, given):
        """Draw the aleatoric part, and above it the rest of the total."""
        bounds = (0 * aleatoric, aleatoric), (aleatoric, total)
        colors = BLUE, VERMILION
        for (lower, upper), color, text, kwargs in zip(
            bounds, colors, names, given, strict=False
        ):
            style = styled(
                "PolyCollection",
                kwargs,
                color=color,
                alpha=0.6,
                linewidth=0,
                label=text,
            )
            yield ax.fill_between(positions, lower, upper, **style)

    def _curve(self, ax, positions, values, color, text, given, *, joined=None):
        """Draw a line, or one point per row."""
        joined = (self.joined if joined is None else joined) and len(positions) > 1
        style = styled(
            "Line2D",
            given,
            color=color,
            label=text,
            linestyle="-" if joined else "",
            marker="" if joined else ".",
            markersize=marker_size(len(positions)),
            rasterized=len(positions) > MANY and not joined,
        )
        return ax.plot(positions, values, **style)[0]
