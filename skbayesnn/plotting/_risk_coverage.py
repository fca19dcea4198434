"""What is gained by leaving the uncertain rows to somebody else."""

from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn.inspection._importance import of_target
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
    """Error of the rows that are accepted against their share, the surest first.

    It is made by :meth:`from_estimator` or :meth:`from_predictions`. Rows are accepted
    in the order of their uncertainty [1]_. Dashed: rejection at random, which leaves
    the error as it is on average; dotted: the oracle, which rejects the largest error
    first. A good uncertainty is near the oracle. Errors that would press all others
    flat leave the picture, which the label of the y axis says.

    Parameters
    ----------
    coverage, risk, threshold : dict of ndarray
        Per kind of uncertainty: share of the rows accepted, their error, and the
        uncertainty up to which rows are accepted.
    oracle_coverage, oracle_risk : ndarray
    overall_risk : float
        Error of all rows.
    metric : {"error_rate", "rmse"}
    name : str, default=None
        Goes before the kind in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : dict of matplotlib Artist
        Per kind of uncertainty.
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
        """Display of a fitted regressor or classifier.

        Parameters
        ----------
        estimator : fitted estimator
            As :func:`skbayesnn.predict_uncertainty` takes it.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        kind : str or list of str, default=None
            Uncertainties to reject by, a curve each; None is ``"total"`` for regressors
            and ``"entropy"`` for classifiers.
        target : int, default=None
            Which target to show; needed for a model of several targets.
        sample_weight : array-like of shape (n_samples,), default=None
        name : str, default=None
            Goes before the kind in the legend.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        **kwargs : dict
            As in :meth:`plot`.

        Returns
        -------
        display : RiskCoverageDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_estimator")
        classes = is_classifier(estimator)
        if classes:
            # Not `predict`, by which an Abstainer refuses rows.
            prediction = estimator.classes_[estimator.predict_proba(X).argmax(1)]
        else:
            prediction = estimator.predict(X)
            if np.isnan(prediction).any():
                raise ValueError(
                    "a prediction is needed for each row; got NaN for "
                    f"{np.isnan(prediction).sum()}. Of an Abstainer, give the "
                    "estimator inside, `estimator_`."
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
        """Display of given predictions.

        Parameters
        ----------
        y, prediction : array-like of shape (n_samples[, n_targets])
        uncertainty : array-like of shape (n_samples[, n_targets]), or dict of them
            Larger is less sure; a dict has a curve per name.
        metric : {"error_rate", "rmse"}
            Of classes or of a regression.
        target : int, default=None
            Which target of a regression to show, where there are several.
        sample_weight : array-like of shape (n_samples,), default=None
        name, ax, **kwargs
            As in :meth:`from_estimator`.

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
            prediction = of_target("prediction", prediction, target)
            error = np.square(y_of_target(y, target) - prediction)
        if not isinstance(uncertainty, dict):
            uncertainty = {"uncertainty": uncertainty}
        in_units = np.sqrt if metric == "rmse" else np.asarray
        coverage, risk, threshold = {}, {}, {}
        for kind, values in uncertainty.items():
            values = of_target(kind, values, target)
            coverage[kind], mean, threshold[kind] = risk_coverage_curve(
                error, values, sample_weight=sample_weight
            )
            risk[kind] = in_units(mean)
        oracle_coverage, mean, _ = risk_coverage_curve(
            error, error, sample_weight=sample_weight
        )
        display = cls(
            coverage=coverage,
            risk=risk,
            threshold=threshold,
            oracle_coverage=oracle_coverage,
            oracle_risk=in_units(mean),
            overall_risk=float(in_units(mean[-1])),
            metric=metric,
            name=name,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        name : str, default=None
            Goes before the kind in the legend; by default ``self.name``.
        **kwargs : dict
            Keywords for the curves, as matplotlib's ``plot`` takes them.

        Returns
        -------
        display : RiskCoverageDisplay
        """
        ax = axes_for(self, ax)
        name = self.name if name is None else name
        before = "" if name is None else f"{name}, "
        self.lines_ = {}
        for i, (kind, coverage) in enumerate(self.coverage.items()):
            style = styled(
                "Line2D",
                kwargs,
                color=next_color(ax),
                linestyle=LINE_STYLES[i % len(LINE_STYLES)],
                # An uncertainty that is the same for all rows has one point.
                marker="o" if len(coverage) == 1 else "",
                label=before + kind.replace("_", " "),
            )
            [self.lines_[kind]] = ax.plot(coverage, self.risk[kind], **style)
        self.random_ = ax.axhline(
            self.overall_risk, color=GREY, ls="--", lw=1, label=f"{before}random"
        )
        [self.oracle_] = ax.plot(
            self.oracle_coverage,
            self.oracle_risk,
            color=GREY,
            ls=":",
            label=f"{before}oracle",
        )
        ax.set(xlabel="share of rows accepted", ylabel=LABELS[self.metric])
        if ax.get_autoscalex_on():
            ax.set_xlim(-0.05, 1.05, auto=None)
        self._leave_out_what_explodes(ax)
        # Lines at zero are seen whole.
        ax.set_ylim(bottom=-0.03 * ax.get_ylim()[1], auto=None)
        ax.legend()
        return self

    def _leave_out_what_explodes(self, ax):
        """Show the errors but those that would press all others flat."""
        curves = [self.oracle_risk, *self.risk.values()]
        limits = common_limits(np.concatenate(curves)[:, None])
        if limits is None or not ax.get_autoscaley_on():
            return
        # auto=None: what is drawn later still moves the limits.
        top = 1.1 * limits[1]
        ax.set_ylim(top=top, auto=None)
        largest = max(curve.max() for curve in curves)
        ax.set_ylabel(f"{LABELS[self.metric]}\n(the largest, {largest:.3g}, is beyond)")
        if self.overall_risk > top:
            label = f"{self.random_.get_label()}: {self.overall_risk:.3g}"
            self.random_.set_label(label)
