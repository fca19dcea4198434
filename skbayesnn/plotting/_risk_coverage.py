"""Error that remains if the most uncertain rows are rejected."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skbayesnn._meta.functions import predict_distribution
from skbayesnn.inspection._attributions import select_target
from skbayesnn.inspection._columns import number_text
from skbayesnn.metrics import risk_coverage_curve
from skbayesnn.plotting import _axes, _rows

LABELS = {
    "error_rate": "error rate of the accepted rows",
    "rmse": "root mean squared error of the accepted rows",
}


@dataclass(kw_only=True, repr=False, eq=False)
class RiskCoverageDisplay(_axes.Display):
    """Risk-coverage curve: error of the accepted rows against their share.

    Create it by :meth:`from_estimator` or :meth:`from_predictions`. Use it to judge
    whether rejecting uncertain rows reduces the error. Rows are accepted in the order
    of their uncertainty, the least uncertain first [1]_. Dashed: random rejection,
    which does not change the error on average. Dotted: the oracle, which rejects the
    largest errors first. A good uncertainty is close to the oracle. If a few errors
    dominate the range, the y axis leaves them out and its label mentions them.

    Parameters
    ----------
    coverage, risk, threshold : dict of ndarray
        For each kind of uncertainty: share of accepted rows, their error, and the
        largest accepted uncertainty.
    oracle_coverage, oracle_risk : ndarray
        Curve that rejects the largest errors first.
    overall_risk : float
        Error of all rows.
    metric : {"error_rate", "rmse"}
    name : str, default=None
        Prefix of the kind in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : dict of matplotlib Artist
        One curve per kind of uncertainty.
    oracle_, random_ : matplotlib Artist

    References
    ----------
    .. [1] El-Yaniv & Wiener (2010), "On the foundations of noise-free selective
       classification".
    """

    coverage: Any
    risk: Any
    threshold: Any
    oracle_coverage: Any
    oracle_risk: Any
    overall_risk: float
    metric: str
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        kind: str | None = None,
        target: int | None = None,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the risk-coverage curve of a fitted regressor or classifier.

        Parameters
        ----------
        estimator : fitted estimator
            Any model that :func:`skbayesnn.predict_uncertainty` accepts.
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        kind : str or list of str, default=None
            Uncertainties to reject by, one curve each; None is ``"total"`` for
            regressors and ``"entropy"`` for classifiers.
        target : int, default=None
            Index of the target; required if the model has several targets.
        sample_weight : array-like of shape (n_samples,), default=None
        name : str, default=None
            Prefix of the kind in the legend.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : RiskCoverageDisplay
        """
        classes = is_classifier(estimator)
        if classes:
            # An Abstainer's `predict` rejects rows.
            prediction = estimator.classes_[estimator.predict_proba(X).argmax(1)]
        else:
            prediction = estimator.predict(X)
            if np.isnan(prediction).any():
                raise ValueError(
                    "every row must have a prediction; got NaN for "
                    f"{np.isnan(prediction).sum()}. Instead of an Abstainer, give its "
                    "`estimator_`."
                )
        if kind is None:
            kind = "entropy" if classes else "total"
        kinds = [kind] if isinstance(kind, str) and kind != "all" else kind
        return cls.from_predictions(
            y,
            prediction,
            predict_distribution(estimator, X).uncertainty(kinds),
            metric="error_rate" if classes else "rmse",
            target=target,
            sample_weight=sample_weight,
            name=name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        prediction: Any,
        uncertainty: Any,
        *,
        metric: Any,
        target: int | None = None,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the risk-coverage curve of given predictions.

        Parameters
        ----------
        y, prediction : array-like of shape (n_samples[, n_targets])
        uncertainty : array-like of shape (n_samples[, n_targets]), or dict of them
            Larger is less certain; a dict gives one curve per name.
        metric : {"error_rate", "rmse"}
            Error rate for classification, root mean squared error for regression.
        target : int, default=None
            Index of the target; required if a regression has several.
        sample_weight : array-like of shape (n_samples,), default=None
        name, ax, **kwargs
            See :meth:`from_estimator`.

        Returns
        -------
        display : RiskCoverageDisplay
        """
        if metric not in LABELS:
            raise ValueError(
                f"`metric` must be 'error_rate' or 'rmse'; got {metric!r}."
            )
        check_consistent_length(y, prediction)
        if metric == "error_rate":
            error = (column_or_1d(y) != column_or_1d(prediction)).astype(np.float64)
        else:
            prediction = select_target("prediction", prediction, target)
            error = np.square(_rows.y_of_target(y, target) - prediction)
        if not isinstance(uncertainty, dict):
            uncertainty = {"uncertainty": uncertainty}
        to_units = np.sqrt if metric == "rmse" else np.asarray
        coverage, risk, threshold = {}, {}, {}
        for kind, values in uncertainty.items():
            values = select_target(kind, values, target)
            coverage[kind], mean, threshold[kind] = risk_coverage_curve(
                error, values, sample_weight=sample_weight
            )
            risk[kind] = to_units(mean)
        oracle_coverage, mean, _ = risk_coverage_curve(
            error, error, sample_weight=sample_weight
        )
        return cls(
            coverage=coverage,
            risk=risk,
            threshold=threshold,
            oracle_coverage=oracle_coverage,
            oracle_risk=to_units(mean),
            overall_risk=float(to_units(mean[-1])),
            metric=metric,
            name=name,
        ).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the risk-coverage curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        name : str, default=None
            Prefix of the kind in the legend; by default ``self.name``.
        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the curves.

        Returns
        -------
        display : RiskCoverageDisplay
        """
        ax = self._axes(ax)
        name = self.name if name is None else name
        prefix = "" if name is None else f"{name}, "
        self.lines_ = {
            kind: _axes.draw_line(
                ax,
                coverage,
                self.risk[kind],
                kwargs,
                color=_axes.next_color(ax),
                linestyle=_axes.LINE_STYLES[i % len(_axes.LINE_STYLES)],
                # An uncertainty that is constant over the rows gives a single point.
                marker="o" if len(coverage) == 1 else "",
                label=prefix + kind.replace("_", " "),
            )
            for i, (kind, coverage) in enumerate(self.coverage.items())
        }
        style = {"color": _axes.GREY, "ls": "--", "lw": 1, "label": f"{prefix}random"}
        self.random_ = ax.axhline(self.overall_risk, **style)
        style = {"color": _axes.GREY, "ls": ":", "label": f"{prefix}oracle"}
        [self.oracle_] = ax.plot(self.oracle_coverage, self.oracle_risk, **style)
        ax.set(xlabel="share of rows accepted", ylabel=LABELS[self.metric])
        if ax.get_autoscalex_on():
            ax.set_xlim(-0.05, 1.05, auto=None)
        risk = np.concatenate([self.oracle_risk, *self.risk.values()])
        if _axes.leave_out_outliers(ax, risk[:, None], bottom=0):
            beyond = f"(the largest, {number_text(risk.max())}, is beyond)"
            ax.set_ylabel(f"{LABELS[self.metric]}\n{beyond}")
            if self.overall_risk > ax.get_ylim()[1]:
                self.random_.set_label(
                    f"{prefix}random: {number_text(self.overall_risk)}"
                )
        # Leave room below, so that lines at zero are not cut in half.
        ax.set_ylim(bottom=-0.03 * ax.get_ylim()[1], auto=None)
        ax.legend()
        return self
