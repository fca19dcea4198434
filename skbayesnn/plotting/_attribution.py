"""Contributions of columns to predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from skbayesnn.inspection import attributions
from skbayesnn.inspection._attributions import cell_text, short_names
from skbayesnn.plotting import _axes

# Largest number of columns, and of rows with points, that are shown.
MAX_COLUMNS, MAX_POINTS = 20, 500


@dataclass(kw_only=True, repr=False, eq=False)
class AttributionDisplay(_axes.Display):
    """Bar chart of the contributions of columns to a prediction, the largest on top.

    Create it by :meth:`from_estimator` or :meth:`from_attributions`. A bar is the mean
    contribution over rows, with an error bar of two standard errors; points are the
    contributions to single rows. The columns are sorted by the mean size of these. With
    one row, the names have its values. Long names are shortened.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features)
    standard_errors : ndarray of shape (n_samples, n_features)
    names : sequence of str
        Names of the columns.
    of : str
        What the columns contribute to.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : matplotlib BarContainer
    points_ : matplotlib Line2D or None
        None for one row.
    """

    values: Any
    standard_errors: Any
    names: Sequence[str]
    of: str

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        background: Any,
        of: Any = "mean",
        target: int | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Compute and plot the contributions for a fitted model.

        Parameters
        ----------
        estimator, X, background, of, target
            See :func:`skbayesnn.inspection.attributions`.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        display : AttributionDisplay
        """
        result = attributions(estimator, X, background=background, of=of, target=target)
        return cls.from_attributions(result, ax=ax, **kwargs)

    @classmethod
    def from_attributions(cls, result: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Plot a result of :func:`~skbayesnn.inspection.attributions`.

        Parameters
        ----------
        result : Attributions
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        display : AttributionDisplay
        """
        names = short_names(result.feature_names)
        if len(result.values) == 1:
            cells = [cell_text(result.data, 0, j) for j in range(len(names))]
            cells = [short_names([text], 20)[0] for text in cells]
            names = [
                f"{name} = {value}" for name, value in zip(names, cells, strict=True)
            ]
        display = cls(
            values=result.values,
            standard_errors=result.standard_errors,
            names=names,
            of=result.of,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the bars; with more than 20 columns the largest ones.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of matplotlib's ``barh``.

        Returns
        -------
        display : AttributionDisplay
        """
        ax = self._axes(ax)
        n_rows, n_columns = self.values.shape
        chosen = np.abs(self.values).mean(0).argsort(kind="stable")[-MAX_COLUMNS:]
        position, mean = np.arange(len(chosen)), self.values.mean(0)[chosen]
        style = {
            "color": _axes.BLUE,
            "ecolor": _axes.VERMILION,
            "xerr": 2 * self.standard_errors.mean(0)[chosen],
        } | kwargs
        self.bars_, self.points_ = ax.barh(position, mean, **style), None
        if n_rows > 1:
            shown = self.values[:: -(-n_rows // MAX_POINTS), chosen]
            y = np.broadcast_to(position, shown.shape)
            place = {"color": _axes.GREY, "alpha": 0.4, "ms": 3, "mew": 0}
            [self.points_] = ax.plot(shown.ravel(), y.ravel(), "o", **place)
        ax.axvline(0, color=_axes.GREY, linewidth=0.8)
        ax.locator_params(axis="x", nbins=5)
        rows = f", mean of {n_rows} rows" * (n_rows > 1)
        # Of each row: most columns contribute little, which is no sign of an outlier.
        ends = np.stack([self.values.min(1), self.values.max(1)], axis=1)
        if n_beyond := _axes.leave_out_outliers(ax, ends, axis="x"):
            rows += f"; {n_beyond} reach{'es' * (n_beyond == 1)} beyond"
        ax.set_xlabel(f"contribution to the {self.of}{rows}")
        ax.set_yticks(position, [_axes.plain(self.names[j]) for j in chosen])
        if len(chosen) < n_columns:
            ax.set_ylabel(f"{len(chosen)} of {n_columns} columns")
        return self
