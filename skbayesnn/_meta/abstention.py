"""Selective prediction: abstain on uncertain rows."""

from __future__ import annotations

import math
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn._data.class_order import if_ordered
from skbayesnn._data.scaling import TRAINING_CODES
from skbayesnn._meta import functions
from skbayesnn._meta.base import DecidingMetaEstimator, one_target
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._predictive.classes import check_known
from skbayesnn._predictive.summaries import CLASSIFICATION_KINDS, REGRESSION_KINDS
from skbayesnn._runtime import on_snapshot, silenced, warn, warn_once_per_call
from skbayesnn._sklearn_compat import safe_indexing
from skbayesnn._typing import Array, MatrixLike, OutputPath
from skbayesnn._validation import check_number, check_option, check_row_weights
from skbayesnn.metrics import risk_coverage_curve

# Searches for a threshold start at this share of accepted rows, at a half of it, a
# quarter and so on, as long as these are MIN_START rows. More searches find smaller
# shares, but each has a looser bound.
FIRST_START, MIN_START = 0.6, 100


class Abstainer(DecidingMetaEstimator):
    """Classifier or regressor that abstains on uncertain rows.

    Use it if a wrong prediction costs more than no prediction. A row is accepted if its
    uncertainty is at most a threshold. Give the threshold, or the largest acceptable
    error of the accepted rows. In the second case held-out rows of a cross-validation
    select the threshold [1]_, which takes one more fit per fold. It is the largest
    threshold for which an upper confidence bound of the error meets the target [2]_.

    Parameters
    ----------
    estimator : estimator
        A classifier or regressor of this package, or a meta-estimator around one (see
        :mod:`skbayesnn`). A ``FrozenEstimator`` is not fitted again: all rows of
        ``fit`` select the threshold, and the model must not have been fitted to them.
    kind : str, default=None
        Measure of uncertainty, as in ``predict_uncertainty``. None is ``"entropy"`` for
        classifiers and ``"total"`` for regressors.
    threshold : float, default=None
        Largest accepted uncertainty, in the units of ``kind``: nats, a share, or y's
        units. Give either ``threshold`` or ``target_error``.
    target_error : float, default=None
        Largest error among the accepted rows: share of wrong labels; for a regressor
        the share of errors above ``tolerance``, or without a tolerance the root mean
        squared error in y's units.
    tolerance : float, default=None
        Only for regressors: a prediction is wrong if its absolute error is larger, in
        y's units. It is required if ``target_error`` is to hold with a ``confidence``.
    confidence : float, default=0.9
        Probability with which the error of accepted new rows is at most
        ``target_error``; see the notes. With few rows or a small target the bound may
        reject nearly all rows: even without any wrong prediction a target of 0.05 needs
        about 60 accepted held-out rows, and 0.01 about 300. None is no bound: the
        error of the held-out rows is at most the target, and the error of new rows is
        often larger.
    abstain_label : label, default="auto"
        Prediction for rejected rows. ``"auto"`` is NaN for regressors, -1 for
        classifiers with numeric labels and ``"abstain"`` for string labels.
    cv : int, cross-validation generator or iterable, default=None
        Folds that select the threshold. None is five folds.
    n_jobs : int, default=None
        Number of folds fitted in parallel, as in scikit-learn.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to all rows.
    threshold_ : float
        Minus infinity, with a warning, if no threshold meets ``target_error``.
    coverage_, error_ : float
        Share of accepted held-out rows, and the error among them. They exist only with
        ``target_error``. The error is optimistic, since the threshold was selected on
        the same rows; use :meth:`report` on other rows.
    error_bound_ : float
        Upper confidence bound of the error of accepted rows. It exists only with
        ``target_error`` and ``confidence``.
    classes_ : ndarray of shape (n_classes,)
        Classes of a classifier, without the label of abstention.
    abstain_label_ : label
    n_features_in_, feature_names_in_
        As in the fitted estimator, if it has them.

    Notes
    -----
    The bound of a share is by Clopper & Pearson: the largest share of wrong predictions
    that is compatible with the observed number, as in [2]_. There are several searches
    for the threshold. They start at fixed shares of accepted rows: 60 %, 30 %, 15 % and
    so on, down to 100 rows. Each continues to larger thresholds until the bound exceeds
    the target [3]_. The searches share the probability of an error equally
    (Bonferroni).

    The statement is about the average over training sets, for new rows that are
    independent and distributed like the training rows. For a ``FrozenEstimator`` it
    needs no further assumption. With ``cv`` it is approximate, since models of the
    folds select the threshold for a model of all rows, which is often more certain and
    accepts more rows. It is also approximate for rows
    in groups and with unequal ``sample_weight``, whose number of rows is the square of
    the sum of weights divided by the sum of squares.

    The root mean squared error of a regressor has no bound that holds for every
    distribution: a few rows, which the held-out rows need not contain, may have most of
    the squared error. So a confidence needs a tolerance.

    References
    ----------
    .. [1] Chow (1970), "On optimum recognition error and reject tradeoff", IEEE Trans.
       Information Theory 16.
    .. [2] Geifman & El-Yaniv (2017), "Selective classification for deep neural
       networks", NeurIPS, algorithm 1.
    .. [3] Angelopoulos, Bates, Candes, Jordan & Lei (2021), "Learn then test:
       calibrating predictive algorithms to achieve risk control", arXiv:2110.01052.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayesnn import Abstainer, MCDropoutClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> network = MCDropoutClassifier((16,), random_state=0)
    >>> model = Abstainer(network, kind="entropy", target_error=0.1).fit(X, y)
    >>> sorted(model.report(X, y))
    ['coverage', 'error', 'n_accepted']
    """

    estimator: stored.Estimator
    kind: str | None
    tolerance: Annotated[float, stored.NOT_NEGATIVE] | None
    estimator_: stored.Fitted
    # An infinite threshold accepts all rows, or none.
    threshold_: Annotated[float, stored.NOT_NAN]
    coverage_: Annotated[float, stored.SHARE, stored.OPTIONAL]
    error_: Annotated[float, stored.ANY, stored.OPTIONAL]
    error_bound_: Annotated[float, stored.ANY, stored.OPTIONAL]
    classes_: Annotated[stored.Labels, stored.OPTIONAL]
    abstain_label_: Annotated[Any, str | stored.Record]

    def __init__(
        self,
        estimator,
        *,
        kind=None,
        threshold=None,
        target_error=None,
        tolerance=None,
        confidence=0.9,
        abstain_label="auto",
        cv=None,
        n_jobs=None,
    ) -> None:
        self.estimator = estimator
        self.kind = kind
        self.threshold = threshold
        self.target_error = target_error
        self.tolerance = tolerance
        self.confidence = confidence
        self.abstain_label = abstain_label
        self.cv = cv
        self.n_jobs = n_jobs

    def _check_stored(self) -> None:
        """Raise if the label of rejected rows is not the one of the parameter."""
        if not hasattr(self, "abstain_label_"):
            return
        allowed = [self.abstain_label]
        if isinstance(self.abstain_label, str) and self.abstain_label == "auto":
            allowed = ["abstain", -1] if hasattr(self, "classes_") else [math.nan]
        if repr(self.abstain_label_) not in map(repr, allowed):
            raise ValueError(
                f"`abstain_label_` must be one of {allowed}; got "
                f"{self.abstain_label_!r}."
            )

    @warn_once_per_call
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the estimator, and select the threshold on held-out rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights for the estimator, for the error and for the share of accepted rows.
        **fit_params : dict
            Parameters of the estimator's ``fit``. ``groups`` are for a ``cv`` of groups
            and for an estimator whose ``fit`` takes them, such as a network. With
            metadata routing the parameters that the estimator and the splitter request.

        Returns
        -------
        self : object
        """
        self._check_parameters()
        ordered_y = if_ordered(y)
        X, y, weights, routed = self._validate_fit_arguments(
            X, y, sample_weight, fit_params
        )
        y = one_target(
            y,
            "Several targets have an uncertainty each: fit one Abstainer per target.",
        )
        label = self._checked_label(y)
        to_fit = y if ordered_y is None else ordered_y
        attributes: dict[str, Any] = {"threshold_": self.threshold}
        if self.target_error is not None:
            with silenced(TRAINING_CODES):  # the fit to all rows warns
                held_out = self._cross_fit(X, to_fit, routed)
            attributes = self._select_threshold(
                *self._held_out_losses(X, y, weights, held_out)
            )
        model = clone(self.estimator).fit(X, to_fit, **routed.estimator.fit)
        if is_classifier(model):
            attributes["classes_"] = model.classes_
        return self._set_fitted(
            model, estimator_=model, abstain_label_=label, **attributes
        )

    @on_snapshot
    def accepts(self, X: MatrixLike) -> Array:
        """Return whether the uncertainty of each row is at most the threshold.

        Returns
        -------
        accepted : ndarray of bool, (n_samples,)
        """
        return self.predict_uncertainty(X) <= self.threshold_

    @by_blocks
    @on_snapshot
    def predict(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Predict the accepted rows; return ``abstain_label_`` for the others.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        accepted = self.accepts(X)
        y = self.estimator_.predict(X)
        if accepted.all():
            return y
        return np.where(accepted, y, self.abstain_label_)

    @by_blocks
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: Any = None,
        as_frame: bool = False,
        *,
        output: OutputPath = None,
    ) -> Any:
        """Uncertainty of the fitted estimator, by default of the ``kind`` it uses."""
        check_is_fitted(self)
        kind = self.kind if kind is None else kind
        return functions.predict_uncertainty(self.estimator_, X, kind, as_frame)

    @on_snapshot
    def report(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> dict[str, float]:
        """Compute the share of accepted rows, and the error among them.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        report : dict
            ``"coverage"``, the share of accepted rows; ``"error"``, the share of wrong
            predictions, or without a ``tolerance`` the root mean squared error in y's
            units, NaN if no row is accepted; ``"n_accepted"``.
        """
        accepted, y, weights = self._accepted(X, y, sample_weight)
        losses = self._losses(self.estimator_, X, y)[accepted]
        kept = weights[accepted]
        error = np.average(losses, weights=kept) if kept.sum() > 0 else np.nan
        return {
            "coverage": float(kept.sum() / weights.sum()),
            "error": float(self._error(error)),
            "n_accepted": int(accepted.sum()),
        }

    @on_snapshot
    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Accuracy or R^2 among the accepted rows; NaN if no row is accepted.

        Compare models at the same share of accepted rows; see :meth:`report`.
        """
        accepted, y, weights = self._accepted(X, y, sample_weight)
        if not weights[accepted].any():
            return float("nan")
        score = accuracy_score if is_classifier(self) else r2_score
        predicted = self.estimator_.predict(safe_indexing(X, accepted))
        return score(y[accepted], predicted, sample_weight=weights[accepted])

    def _accepted(self, X, y, sample_weight) -> tuple[Array, Array, Array]:
        """Whether each row is accepted, and the validated y and weights, (rows,)."""
        accepted = self.accepts(X)
        y = one_target(self._checked_target(y, X), "An Abstainer has one target.")
        check_consistent_length(X, y)
        if is_classifier(self) and not np.isin(y, self.classes_).any():
            check_known(y, self.classes_)
        return accepted, y, check_row_weights(sample_weight, y)

    def _check_parameters(self):
        if not (is_classifier(self.estimator) or is_regressor(self.estimator)):
            raise TypeError(
                "Abstainer needs a classifier or a regressor; got "
                f"{type(self.estimator).__name__}."
            )
        if (self.threshold is None) == (self.target_error is None):
            raise ValueError(
                "exactly one of `threshold` and `target_error` must be given; got "
                f"threshold={self.threshold!r} and target_error={self.target_error!r}."
            )
        if self.kind is not None and not isinstance(self.kind, str):
            raise TypeError(
                f"`kind` must be the name of one measure; got {self.kind!r}."
            )
        classifies = is_classifier(self.estimator)
        kinds = CLASSIFICATION_KINDS if classifies else REGRESSION_KINDS
        if self.kind is not None:
            check_option("kind", self.kind, kinds)
        if self.threshold is not None and self.threshold not in (-np.inf, np.inf):
            check_number("threshold", self.threshold)
        if self.tolerance is not None:
            check_number("tolerance", self.tolerance, low=0)
            if classifies:
                raise ValueError(
                    "`tolerance` is for regressors; got "
                    f"{type(self.estimator).__name__} and tolerance={self.tolerance!r}."
                    " Leave it out: a label is right or wrong."
                )
        if self.confidence is not None:
            check_number("confidence", self.confidence, low=0, high=1, open_low=True)
        if self.target_error is None:
            return
        # A share of predictions: 5 would be 500 %, and accept all rows.
        high = 1 if self._counts_wrong else None
        check_number("target_error", self.target_error, low=0, high=high)
        if self.confidence is not None and not self._counts_wrong:
            raise ValueError(
                "`confidence` needs a `tolerance` for a regressor, because no bound of "
                "a mean squared error holds for every distribution; got "
                f"confidence={self.confidence!r} and tolerance=None. Give the largest "
                "acceptable absolute error as `tolerance` and the acceptable share of "
                "larger errors as `target_error`; or set confidence=None, which bounds "
                "the error of the held-out rows only."
            )

    def _checked_label(self, y):
        """Label of abstention, which must not be a label of y."""
        if not is_classifier(self.estimator):
            return np.nan if self.abstain_label == "auto" else self.abstain_label
        label, strings = self.abstain_label, y.dtype.kind in "OUS"
        if isinstance(label, str) and label == "auto":
            label = "abstain" if strings else -1
        if isinstance(label, str) != strings:
            raise TypeError(
                f"`abstain_label` must be {'a string' if strings else 'a number'}, as "
                f"the labels of y are; got {label!r}."
            )
        if (y == label).any():
            raise ValueError(
                f"`abstain_label` must not be a label of y; got {label!r}. Give "
                "another label."
            )
        return label

    def _held_out_losses(self, X, y, weights, held_out) -> list[Array]:
        """Losses, uncertainties and weights of held-out rows, (rows,) each."""
        uncertainties, losses, row_weights = [], [], []
        for model, rows in held_out:
            X_test = safe_indexing(X, rows)
            distribution = functions.predict_distribution(model, X_test)
            uncertainties.append(distribution.uncertainty(self.kind))
            losses.append(self._losses(model, X_test, y[rows]))
            row_weights.append(weights[rows])
        return [np.concatenate(v) for v in (losses, uncertainties, row_weights)]

    def _select_threshold(self, losses, uncertainty, weights) -> dict:
        """Largest threshold whose error, or its bound, meets the target."""
        values = (losses, uncertainty, weights)
        coverage, risk, threshold = risk_coverage_curve(*values)
        error = self._error(risk)
        if self.confidence is None:
            bound, what, probably = error, "error", ""
            starts = np.arange(len(error))
        else:
            shares = starting_shares(weights)
            starts = np.searchsorted(coverage, shares)
            level = 1 - (1 - self.confidence) / len(shares)
            bound = upper_bounds(*values, level)
            what, probably = "bound", f" with a probability of {self.confidence:.0%}"
        last = last_before_failure(bound <= self.target_error, starts)
        if last is None:
            best = starts[bound[starts].argmin()]
            warn(
                "SKB401",
                f"No threshold keeps the error among the accepted rows at or below "
                f"{self.target_error:g}{probably}; the smallest {what} on held-out "
                f"rows is {bound[best]:.3g}, with {coverage[best]:.1%} of the rows. "
                "All rows are rejected. Give a larger `target_error`, or more rows.",
            )
            threshold_, coverage_, error_, bound_ = -np.inf, 0.0, np.nan, np.nan
        else:
            threshold_, coverage_, error_, bound_ = (
                curve[last] for curve in (threshold, coverage, error, bound)
            )
        found = {"threshold_": threshold_, "coverage_": coverage_, "error_": error_}
        if self.confidence is not None:
            found["error_bound_"] = bound_
        return {name: float(value) for name, value in found.items()}

    @property
    def _counts_wrong(self) -> bool:
        """Whether a prediction is right or wrong, and the error a share."""
        return is_classifier(self.estimator) or self.tolerance is not None

    def _losses(self, model, X, y):
        """Loss of each row: 0 or 1, or a squared error."""
        predicted = model.predict(X)
        if is_classifier(self.estimator):
            return (predicted != y).astype(float)
        if self.tolerance is None:
            return np.square(predicted - y)
        return (np.abs(predicted - y) > self.tolerance).astype(float)

    def _error(self, risk):
        """Convert mean losses to the units of ``target_error``."""
        return risk if self._counts_wrong else np.sqrt(risk)


def upper_bounds(
    losses: Array, uncertainty: Array, weights: Array, level: float
) -> Array:
    """Upper confidence bound of the share of wrong rows up to each threshold.

    losses, uncertainty, weights : (rows,); losses are 0 or 1
    level : probability of each bound to be at least the share in new rows

    returns : (thresholds,), in the order of :func:`risk_coverage_curve`
    """
    used = weights > 0
    losses, weights = losses[used], weights[used]
    value = np.unique(uncertainty[used], return_inverse=True)[1]

    def up_to(terms):
        return np.bincount(value, terms).cumsum()

    total = up_to(weights)
    n = total**2 / up_to(weights**2)
    wrong = np.clip(n * up_to(weights * losses) / total, 0, n)
    right = n - wrong
    some = right > 1e-9 * n
    bound = betaincinv(wrong + 1, np.where(some, right, 1.0), level)
    return np.where(some, bound, 1.0)


def starting_shares(weights: Array) -> Array:
    """Shares of accepted rows at which searches start; they depend on no loss."""
    n = weights.sum() ** 2 / np.square(weights).sum()
    halvings = int(np.log2(max(FIRST_START * n / MIN_START, 1)))
    return FIRST_START * 0.5 ** np.arange(halvings + 1)


def last_before_failure(meets: Array, starts: Array) -> int | None:
    """Largest threshold that is reached from one of the starts without a failure.

    meets : of bool, (thresholds,)
    starts : indices of thresholds
    """
    failures = np.append(np.flatnonzero(~meets), len(meets))
    end = failures[np.searchsorted(failures, starts)]
    return int(end[end > starts].max()) - 1 if (end > starts).any() else None
