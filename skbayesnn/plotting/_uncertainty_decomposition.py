"""Aleatoric and epistemic parts of the predictive uncertainty."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from skbayesnn._meta.functions import predict_distribution
from skbayesnn.inspection._attributions import select_target
from skbayesnn.plotting import _axes, _rows

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


@dataclass(kw_only=True, repr=False, eq=False)
class UncertaintyDecompositionDisplay(_rows.RowsDisplay):
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

    aleatoric: Any
    epistemic: Any
    total: Any
    measure: str

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
        positions = {} if feature is None else _rows.select_feature(X, feature)
        if is_classifier(estimator):
            measure = "entropy"
            kinds = ["expected_entropy", "mutual_information", "entropy"]
        else:
            measure = "std"
            kinds = ["aleatoric", "epistemic", "total"]
        parts = predict_distribution(estimator, X).uncertainty(kinds)
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
        return cls(
            aleatoric=aleatoric,
            epistemic=epistemic,
            total=total,
            measure=measure,
            x=_rows.check_positions(x, len(total)),
            x_name=x_name,
            x_levels=x_levels,
            joined=joined,
        ).plot(ax=ax, **kwargs)

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
        ax = self._axes(ax)
        order, positions = self._on_axis(
            ax, self.total, "rows, sorted by total uncertainty"
        )
        parts = self.aleatoric[order], self.epistemic[order]
        given, names = (aleatoric_kwargs, epistemic_kwargs), NAMES[self.measure]
        total, colors = self.total[order], (_axes.BLUE, _axes.VERMILION)
        joined = self.joined and len(order) > 1
        if self.measure == "entropy" and joined:
            bounds = (0 * total, parts[0]), (parts[0], total)
            style = {"alpha": 0.6, "linewidth": 0}
            self.aleatoric_, self.epistemic_ = (
                _axes.draw_band(
                    ax, positions, *ends, kwargs, color=color, label=text, **style
                )
                for ends, kwargs, color, text in zip(
                    bounds, given, colors, names, strict=False
                )
            )
            self.total_ = self._curve(
                ax, positions, total, _axes.GREY, names[2], total_kwargs, joined
            )
        else:
            # A wide line below the others, because the larger part often covers it.
            wide = {"linewidth": 5, "alpha": 0.5, "markersize": 9}
            wide |= total_kwargs or {}
            self.total_ = self._curve(
                ax, positions, total, _axes.GREY, names[2], wide, joined
            )
            # If rows are sorted by the total, only the total is a curve.
            joined = joined and self.x is not None
            self.aleatoric_, self.epistemic_ = (
                self._curve(ax, positions, *part, joined)
                for part in zip(parts, colors, names, given, strict=False)
            )
        ax.set_ylim(bottom=0, auto=None)
        label = UNITS[self.measure]
        n_beyond = _axes.leave_out_outliers(ax, self.total[:, None], bottom=0)
        if n_beyond:
            label += f"\n({n_beyond} of {len(total)} rows reach beyond)"
        ax.set_ylabel(label)
        _axes.legend_on_top(ax)
        return self

    def _curve(self, ax, positions, values, color, text, given, joined):
        """Draw a line, or one point per row."""
        return _axes.draw_line(
            ax,
            positions,
            values,
            given,
            color=color,
            label=text,
            linestyle="-" if joined else "",
            marker="" if joined else ".",
            markersize=_axes.marker_size(len(positions)),
            rasterized=len(positions) > _axes.MANY and not joined,
        )
