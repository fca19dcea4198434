"""Error that remains if the most uncertain rows are rejected."""

from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn._runtime import warn_once_per_call
from skbayesnn.inspection._importance import select_target
from skbayesnn.metrics import risk_coverage_curve
from skbayesnn.plotting._shared import (
    GREY,
    LINE_STYLES,
    axes_for,
    common_limits,
    next_color,
    require_matplotlib,
    styled,
    y_of_target,
)

LABELS = {
    "error_rate": "error rate of the accepted rows",
    "rmse": "root mean squared error of the accepted rows",
}


class RiskCoverageDisplay:
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

    ax_: Any
    figure_: Any
    lines_: Any
    oracle_: Any
    random_: Any

    def __init__(
        self,
        *,
        coverage,
        risk,
        threshold,
        oracle_coverage,
        oracle_risk,
        overall_risk,
        metric,
        name=None,
    ) -> None:
        self.coverage = coverage
        self.risk = risk
        self.threshold = threshold
        self.oracle_coverage = oracle_coverage
        self.oracle_risk = oracle_risk
        self.overall_risk = overall_risk
        self.metric = metric
        self.name = name

    @classmethod
    @warn_once_per_call
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
        require_matplotlib(f"{cls.__name__}.from_estimator")
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
            predict_uncertainty(estimator, X, kind=kinds),
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
        require_matplotlib(f"{cls.__name__}.from_predictions")
        if metric not in LABELS:
            raise ValueError(
                f"`metric` must be 'error_rate' or 'rmse'; got {metric!r}."
            )
        check_consistent_length(y, prediction)
        if metric == "error_rate":
            error = (column_or_1d(y) != column_or_1d(prediction)).astype(np.float64)
        else:
            prediction = select_target("prediction", prediction, target)
            error = np.square(y_of_target(y, target) - prediction)
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
        display = cls(
            coverage=coverage,
            risk=risk,
            threshold=threshold,
            oracle_coverage=oracle_coverage,
            oracle_risk=to_units(mean),
            overall_risk=float(to_units(mean[-1])),
            metric=metric,
            name=name,
        )
        return display.plot(ax=ax, **kwargs)

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
        ax = axes_for(self, ax)
        name = self.name if name is None else name
        prefix = "" if name is None else f"{name}, "
        self.lines_ = {}
        for i, (kind, coverage) in enumerate(self.coverage.items()):
            style = styled(
                "Line2D",
                kwargs,
                color=next_color(ax),
                linestyle=LINE_STYLES[i % len(LINE_STYLES)],
                # An uncertainty that is constant over the rows gives a single point.
                marker="o" if len(coverage) == 1 else "",
                label=prefix + kind.replace("_", " "),
            )
            [self.lines_[kind]] = ax.plot(coverage, self.risk[kind], **style)
        self.random_ = ax.axhline(
            self.overall_risk, color=GREY, ls="--", lw=1, label=f"{prefix}random"
        )
        [self.oracle_] = ax.plot(
            self.oracle_coverage,
            self.oracle_risk,
            color=GREY,
            ls=":",
            label=f"{prefix}oracle",
        )
        ax.set(xlabel="share of rows accepted", ylabel=LABELS[self.metric])
        if ax.get_autoscalex_on():
            ax.set_xlim(-0.05, 1.05, auto=None)
        self._limit_to_common_range(ax)
        # Leave room below, so that lines at zero are not cut in half.
        ax.set_ylim(bottom=-0.03 * ax.get_ylim()[1], auto=None)
        ax.legend()
        return self

    def _limit_to_common_range(self, ax):
        """Leave out a few large errors that dominate the range."""
        curves = [self.oracle_risk, *self.risk.values()]
        limits = common_limits(np.concatenate(curves)[:, None])
        if limits is None or not ax.get_autoscaley_on():
            return
        # auto=None: later artists still move the limits.
        top = 1.1 * limits[1]
        ax.set_ylim(top=top, auto=None)
        largest = max(curve.max() for curve in curves)
        ax.set_ylabel(f"{LABELS[self.metric]}\n(the largest, {largest:.3g}, is beyond)")
        if self.overall_risk > top:
            label = f"{self.random_.get_label()}: {self.overall_risk:.3g}"
            self.random_.set_label(label)
