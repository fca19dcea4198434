"""Importance of columns for the uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from skbayesnn._typing import RandomState
from skbayesnn.inspection import uncertainty_importance
from skbayesnn.inspection._importance import default_kind, short_names
from skbayesnn.plotting import _axes

# Largest number of columns that are shown.
MAX_COLUMNS = 20


@dataclass(kw_only=True, repr=False, eq=False)
class UncertaintyImportanceDisplay(_axes.Display):
    """Bar chart of the columns whose values make rows uncertain, most important on top.

    Create it by :meth:`from_estimator` or :meth:`from_importances`. A bar is the mean
    uncertainty of the rows minus their uncertainty after the column's values are
    replaced by values of reference rows. Its error bar is one standard deviation over
    repeats. To the right: the column's values make the rows uncertain. To the left:
    other values would make them more uncertain, which is usual for important columns of
    ordinary rows. Long names are shortened.

    Parameters
    ----------
    importances : ndarray of shape (n_features, n_repeats)
    names : sequence of str
        Names of the columns.
    kind : str
        Kind of uncertainty.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : matplotlib BarContainer
    """

    importances: Any
    names: Sequence[str]
    kind: str

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        background: Any = None,
        kind: str | None = None,
        n_repeats: int = 5,
        random_state: RandomState = None,
        target: int | None = None,
        feature_names: Sequence[str] | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Compute and plot the importances for a fitted model and rows to be explained.

        Parameters
        ----------
        estimator, X, background, kind, n_repeats, random_state, target, feature_names
            See :func:`skbayesnn.inspection.uncertainty_importance`.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        display : UncertaintyImportanceDisplay
        """
        result = uncertainty_importance(
            estimator,
            X,
            background=background,
            kind=kind,
            n_repeats=n_repeats,
            random_state=random_state,
            target=target,
            feature_names=feature_names,
        )
        kind = (kind or default_kind(estimator)).replace("_", " ")
        if kind in ("total", "epistemic", "aleatoric"):
            kind += " uncertainty"
        return cls.from_importances(result, kind=kind, ax=ax, **kwargs)

    @classmethod
    def from_importances(
        cls,
        result: Any,
        *,
        names: Any = None,
        kind: str = "uncertainty",
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot a result of :func:`~skbayesnn.inspection.uncertainty_importance`.

        Parameters
        ----------
        result : Bunch
        names : sequence of str, default=None
            Names of the columns; None uses the ``feature_names`` of the result.
        kind : str, default="uncertainty"
            Kind of uncertainty for the axis label.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        display : UncertaintyImportanceDisplay
        """
        importances = np.asarray(result.importances)
        if names is None:
            numbered = [f"column {i}" for i in range(len(importances))]
            names = getattr(result, "feature_names", numbered)
        names = [str(name) for name in names]
        if len(names) != len(importances):
            raise ValueError(
                f"`names` must be of the {len(importances)} columns; got {len(names)}."
            )
        display = cls(importances=importances, names=names, kind=kind)
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the bars; with more than 20 columns the most important ones.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of matplotlib's ``barh``.

        Returns
        -------
        self : object
        """
        ax = self._axes(ax)
        mean, std = self.importances.mean(1), self.importances.std(1)
        chosen = np.argsort(np.abs(mean))[-MAX_COLUMNS:]
        chosen = chosen[np.argsort(mean[chosen])]
        style = {
            "color": _axes.BLUE,
            "ecolor": _axes.GREY,
            "xerr": std[chosen],
        } | kwargs
        positions = np.arange(len(chosen))
        self.bars_ = ax.barh(positions, mean[chosen], **style)
        ax.axvline(0, color=_axes.GREY, linewidth=0.8)
        ax.locator_params(axis="x", nbins=5)
        ax.set_xlabel(f"decrease of mean {self.kind}\nif the column is replaced")
        names = short_names([self.names[i] for i in chosen])
        ax.set_yticks(positions, [_axes.plain(name) for name in names])
        if len(chosen) < len(mean):
            ax.set_ylabel(f"{len(chosen)} of {len(mean)} columns")
        return self
