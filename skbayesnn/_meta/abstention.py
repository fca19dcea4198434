"""Selective prediction: abstain on uncertain rows."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skbayesnn._data.class_order import if_ordered
from skbayesnn._data.scaling import TRAINING_CODES
from skbayesnn._meta import functions
from skbayesnn._meta.base import BaseHeldOutMetaEstimator, one_target
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._predictive.classes import check_known
from skbayesnn._predictive.summaries import CLASSIFICATION_KINDS, REGRESSION_KINDS
from skbayesnn._runtime import on_snapshot, silenced, warn, warn_once_per_call
from skbayesnn._sklearn_compat import available_if, safe_indexing
from skbayesnn._typing import Array, MatrixLike, OutputPath
from skbayesnn._validation import check_number, check_option
from skbayesnn.metrics import risk_coverage_curve
from skbayesnn.metrics._validation import drop_zero_weights


class Abstainer(BaseHeldOutMetaEstimator):
    """Classifier or regressor that abstains on uncertain rows.

    Use it if a wrong prediction costs more than no prediction. A row is accepted if its
    uncertainty is at most a threshold. Give the threshold, or the largest acceptable
    error of the accepted rows. In the second case cross-validation selects the largest
    threshold with at most this error [1]_ [2]_, which takes one more fit per fold.

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
        Largest error among the accepted rows: share of wrong labels, or root mean
        squared error in y's units.
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
        ``target_error``. The error is slightly optimistic, since the threshold was
        selected on the same rows; use :meth:`report` on other rows.
    classes_ : ndarray of shape (n_classes,)
        Classes of a classifier, without the label of abstention.
    abstain_label_ : label
    n_features_in_, feature_names_in_
        As in the fitted estimator, if it has them.

    References
    ----------
    .. [1] Chow (1970), "On optimum recognition error and reject tradeoff", IEEE Trans.
       Information Theory 16.
    .. [2] Geifman & El-Yaniv (2017), "Selective classification for deep neural
       networks", NeurIPS; here without the bound of their algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayesnn import Abstainer, MCDropoutClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> network = MCDropoutClassifier((16,), random_state=0)
    >>> model = Abstainer(network, kind="entropy", target_error=0.02).fit(X, y)
    >>> sorted(model.report(X, y))
    ['coverage', 'error', 'n_accepted']
    """

    estimator_: Any
    threshold_: float
    coverage_: float
    error_: float
    classes_: Array
    abstain_label_: Any

    def __init__(
        self,
        estimator,
        *,
        kind=None,
        threshold=None,
        target_error=None,
        abstain_label="auto",
        cv=None,
        n_jobs=None,
    ) -> None:
        self.estimator = estimator
        self.kind = kind
        self.threshold = threshold
        self.target_error = target_error
        self.abstain_label = abstain_label
        self.cv = cv
        self.n_jobs = n_jobs

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
            attributes = self._select_threshold(X, y, weights, held_out)
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

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    @by_blocks
    def predict_proba(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Class probabilities of all rows, including rejected rows."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

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
            labels or the root mean squared error in y's units, NaN if no row is
            accepted; ``"n_accepted"``.
        """
        accepted, y, weights = self._accepted(X, y, sample_weight)
        losses = self._losses(self.estimator_, X, y)[accepted]
        kept = weights[accepted]
        error = np.average(losses, weights=kept) if kept.sum() > 0 else np.nan
        return {
            "coverage": float(kept.sum() / weights.sum()),
            "error": self._error(error),
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
        y = one_target(self._checked_target(y), "An Abstainer has one target.")
        check_consistent_length(X, y)
        if is_classifier(self) and not np.isin(y, self.classes_).any():
            check_known(y, self.classes_)
        if sample_weight is None:
            return accepted, y, np.ones(len(y))
        drop_zero_weights(sample_weight, y)  # raises for invalid weights
        return accepted, y, np.asarray(sample_weight, dtype=np.float64)

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
        if self.target_error is not None:
            check_number("target_error", self.target_error, low=0)
        if self.threshold is not None and self.threshold not in (-np.inf, np.inf):
            check_number("threshold", self.threshold)

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

    def _select_threshold(self, X, y, weights, held_out) -> dict:
        """Largest threshold whose error on held-out rows meets the target."""
        uncertainties, losses, row_weights = [], [], []
        for model, rows in held_out:
            X_test = safe_indexing(X, rows)
            uncertainties.append(
                functions.predict_uncertainty(model, X_test, self.kind)
            )
            losses.append(self._losses(model, X_test, y[rows]))
            row_weights.append(weights[rows])
        coverage, risk, threshold = risk_coverage_curve(
            *(np.concatenate(parts) for parts in (losses, uncertainties, row_weights))
        )
        error = np.array([self._error(value) for value in risk])
        acceptable = np.flatnonzero(error <= self.target_error)
        if len(acceptable) == 0:
            warn(
                "SKB401",
                f"No threshold keeps the error among the accepted rows at or below "
                f"{self.target_error:g}; the smallest on held-out rows is "
                f"{error.min():.3g}, with {coverage[error.argmin()]:.1%} of the rows. "
                "All rows are rejected. Give a larger `target_error`.",
            )
            return {"threshold_": -np.inf, "coverage_": 0.0, "error_": np.nan}
        last = acceptable[-1]
        return {
            "threshold_": float(threshold[last]),
            "coverage_": float(coverage[last]),
            "error_": float(error[last]),
        }

    def _losses(self, model, X, y):
        """Loss of each row: 0 or 1 for labels, squared error for regression."""
        predicted = model.predict(X)
        if is_classifier(self.estimator):
            return (predicted != y).astype(float)
        return np.square(predicted - y)

    def _error(self, risk) -> float:
        """Convert a mean loss to the units of ``target_error``."""
        return float(risk if is_classifier(self.estimator) else np.sqrt(risk))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        return tags
