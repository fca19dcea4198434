"""Conformal intervals and label sets, with guaranteed coverage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn._batch.cross_fit import check_each_row_once
from skbayesnn._data.class_order import if_ordered
from skbayesnn._distributions.components import columns_of
from skbayesnn._meta.abstention import Abstainer
from skbayesnn._meta.base import BaseHeldOutMetaEstimator, one_target
from skbayesnn._meta.cross_conformal import (
    NUDGE,
    cross_intervals,
    too_few,
)
from skbayesnn._meta.functions import predict_distribution, predict_with_std
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._runtime import default_settings, on_snapshot, required
from skbayesnn._sklearn_compat import ClassifierMixin, RegressorMixin, safe_indexing
from skbayesnn._typing import Array, MatrixLike, OutputPath
from skbayesnn._validation import check_levels

_Scores = Annotated[
    Any, stored.Property("a model of crepes", lambda v: hasattr(v, "alphas"))
]


class ConformalRegressor(RegressorMixin, BaseHeldOutMetaEstimator):
    """Intervals with guaranteed coverage around a regressor.

    Use it if the coverage must hold even if the model is wrong. The width of an
    interval is proportional to the predictive standard deviation of its row. The
    factor is an order statistic of held-out residuals, divided by their predictive
    standard deviations. If the rows are exchangeable, an interval of coverage c
    contains a new y with probability at least c with ``"split"``. With ``"cv+"`` and n
    rows the bound is 2 c - 1 - sqrt(2 / n), and the probability in practice about c.
    ``"split"`` uses a part of the rows for calibration only; ``"cv+"`` fits one model
    per fold. Rows in groups are not exchangeable with rows of new groups: ``"split"``
    then has no guarantee and refuses ``groups``. Use ``"cv+"`` with ``groups`` and a
    ``cv`` that keeps them together.

    Parameters
    ----------
    estimator : estimator
        A regressor of this package, or a meta-estimator around one (see
        :mod:`skbayesnn`). With ``"split"`` it may be in a ``FrozenEstimator``: then all
        rows of ``fit`` calibrate, and the model must not have been fitted to them.
    method : {"split", "cv+"}, default="split"
        Use ``"cv+"`` with few rows. ``"split"`` fits one model to a part of the rows
        and calibrates on the others [1]_. It requires crepes:
        ``pip install "skbayesnn[conformal]"``. ``"cv+"`` fits a model without each fold
        and uses all rows for training and calibration [2]_.
    calibration_size : float or int, default=0.25
        Share or number of calibration rows with ``"split"``.
    cv : int, cross-validation generator or iterable, default=None
        Folds of ``"cv+"``. Each row must be in exactly one of them. None is five folds.
    n_jobs : int, default=None
        Number of folds fitted in parallel, as in scikit-learn.
    random_state : int, RandomState instance or None, default=None
        Seed of the selection of calibration rows with ``"split"``.

    Attributes
    ----------
    estimators_ : list of estimators
        One estimator with ``"split"``, one per fold with ``"cv+"``.
    n_calibration_ : int
        Number of calibration rows.
    conformal_ : crepes.ConformalRegressor, or list of ndarray
        With ``"cv+"`` the standardised absolute residuals of each fold.
    n_features_in_, feature_names_in_
        As in the fitted estimators, if they have them.

    References
    ----------
    .. [1] Lei, G'Sell, Rinaldo, Tibshirani & Wasserman (2018), "Distribution-free
       predictive inference for regression", JASA, sections 2.2 and 5.2.
    .. [2] Barber, Candes, Ramdas & Tibshirani (2021), "Predictive inference with the
       jackknife+", Annals of Statistics, section 3.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import ConformalRegressor, MCDropoutRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> network = MCDropoutRegressor((16,), max_iter=20, random_state=0)
    >>> model = ConformalRegressor(network, method="cv+").fit(X, y)
    >>> model.predict_interval(X[:4], coverage=0.8).shape
    (4, 2)
    """

    estimator: stored.Estimator
    random_state: stored.Seed
    estimators_: Annotated[list[stored.Fitted], "models"]
    n_calibration_: stored.PositiveCount
    conformal_: Annotated[Any, _Scores | Annotated[list[stored.Floats], "models"]]

    def __init__(
        self,
        estimator,
        *,
        method="split",
        calibration_size=0.25,
        cv=None,
        n_jobs=None,
        random_state=None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.calibration_size = calibration_size
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the estimator to a part of the rows, and calibrate on the others.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights for the estimator. Exchangeability requires that all calibration
            rows have the same weight; rows of weight zero do not calibrate.
        **fit_params : dict
            Parameters of the estimator's ``fit``. With ``method="cv+"``, ``groups`` are
            for a ``cv`` of groups and for an estimator whose ``fit`` takes them, such
            as a network. With metadata routing the parameters that the estimator and
            the splitter request.

        Returns
        -------
        self : object
        """
        if self.method not in ("split", "cv+"):
            raise ValueError(f"`method` must be 'split' or 'cv+'; got {self.method!r}.")
        if not is_regressor(self.estimator):
            raise TypeError(
                "ConformalRegressor needs a regressor; got "
                f"{type(self.estimator).__name__}. Use ConformalClassifier for "
                "classifiers."
            )
        _check_no_abstainer(self.estimator)
        crepes = _crepes(self) if self.method == "split" else None
        X, y, weights, routed = self._validate_fit_arguments(
            X, y, sample_weight, fit_params
        )
        y = one_target(
            y, "Use MultiOutputRegressor(ConformalRegressor(...)) for several targets."
        )
        if crepes:
            held_out = [self._split_fit(X, y, routed)]
        else:
            held_out = self._cross_fit(X, y, routed)
            check_each_row_once([rows for _, rows in held_out], len(y))
        parts = []
        for model, rows in held_out:
            mean, std = _finite_mean_and_std(model, safe_indexing(X, rows))
            kept = weights[rows] > 0
            parts.append(((y[rows] - mean)[kept], std[kept]))
        if crepes:
            [(residuals, std)] = parts
            conformal = crepes.ConformalRegressor().fit(residuals, sigmas=std)
        else:
            conformal = [np.abs(residuals) / std for residuals, std in parts]
        models = [model for model, _ in held_out]
        return self._set_fitted(
            models[0],
            estimators_=models,
            conformal_=conformal,
            n_calibration_=sum(len(std) for _, std in parts),
        )

    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[False] = False,
        *,
        output: OutputPath = None,
    ) -> Array: ...
    @overload
    def predict(
        self, X: MatrixLike, return_std: Literal[True], *, output: OutputPath = None
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self, X: MatrixLike, return_std: bool = False, *, output: OutputPath = None
    ) -> Array | tuple[Array, Array]: ...
    @by_blocks
    @on_snapshot
    def predict(self, X, return_std=False, *, output=None):
        """Predict the mean over the fitted models, and its standard deviation.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        return_std : bool, default=False
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            In y's units.
        std : ndarray of shape (n_samples,)
            Only with ``return_std=True``: total standard deviation of the equal-weight
            mixture of the models, in y's units. It is not conformal; only
            ``predict_interval`` has guaranteed coverage.
        """
        check_is_fitted(self)
        if not return_std:
            return np.mean([model.predict(X) for model in self.estimators_], axis=0)
        predicted = [predict_with_std(model, X) for model in self.estimators_]
        means, stds = map(np.stack, zip(*predicted, strict=True))
        return means.mean(0), np.sqrt(np.square(stds).mean(0) + means.var(0))

    @by_blocks
    @on_snapshot
    def predict_interval(
        self,
        X: MatrixLike,
        coverage: float | Sequence[float] = 0.9,
        kind: str = "equal_tailed",
        *,
        output: OutputPath = None,
    ) -> Array:
        """Predict an interval that contains y with at least the given probability.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            With n calibration rows, intervals for coverages above n / (n + 1) are
            infinite, with a warning.
        kind : {"equal_tailed"}, default="equal_tailed"
            The only option: the interval is symmetric about the prediction.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_coverages], 2)
            Lower and upper bound in y's units; for counts
            (``likelihood="poisson"``) at least 0.
        """
        check_is_fitted(self)
        if kind != "equal_tailed":
            raise ValueError(
                "`kind` of a conformal interval must be 'equal_tailed'; got "
                f"{kind!r}. Use the estimator inside or CalibratedUncertaintyRegressor "
                "for other kinds."
            )
        coverages = check_levels("coverage", coverage)
        predicted = [_finite_mean_and_std(model, X) for model in self.estimators_]
        if isinstance(self.conformal_, list):
            columns = [(mean[:, None], std[:, None]) for mean, std in predicted]
            scores = [values[:, None] for values in self.conformal_]
            result = cross_intervals(columns, scores, coverages)[:, 0]
        else:
            [(mean, std)] = predicted
            result = np.empty((len(mean), len(coverages), 2))
            for i, level in enumerate(coverages):
                result[:, i] = -np.inf, np.inf
                if not too_few(self.n_calibration_, level):
                    result[:, i] = self.conformal_.predict_int(
                        mean, sigmas=std, confidence=level - NUDGE
                    )
        one_row = safe_indexing(X, np.arange(1))
        # Without a predictive distribution, the bounds of y are not known.
        with suppress(TypeError):
            support = predict_distribution(self.estimators_[0], one_row).support()
            result = result.clip(*support)
        return result if np.ndim(coverage) else result[:, 0]


class ConformalClassifier(ClassifierMixin, BaseHeldOutMetaEstimator):
    """Sets of labels with guaranteed coverage around a classifier.

    Use it if the coverage must hold even if the probabilities are wrong. It fits one
    model to a part of the rows. On the other rows it estimates a threshold: the set
    contains all labels whose probability is at least the threshold [1]_. If the rows
    are exchangeable, a set of coverage c contains the correct label with probability at
    least c, on average over all classes. A set is empty if no label is probable enough.

    Parameters
    ----------
    estimator : estimator
        A classifier with ``predict_proba``. In a ``FrozenEstimator`` it is not fitted
        again: all rows of ``fit`` calibrate, and the model must not have been fitted to
        them.
    calibration_size : float or int, default=0.25
        Share or number of calibration rows.
    random_state : int, RandomState instance or None, default=None
        Seed of the selection of calibration rows.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to the rows that do not calibrate.
    classes_ : ndarray of shape (n_classes,)
    n_calibration_ : int
        Number of calibration rows.
    conformal_ : crepes.ConformalClassifier
    n_features_in_, feature_names_in_
        As in the fitted estimator, if it has them.

    Notes
    -----
    Requires crepes: ``pip install "skbayesnn[conformal]"``.

    References
    ----------
    .. [1] Sadinle, Lei & Wasserman (2019), "Least ambiguous set-valued classifiers
       with bounded error levels", JASA.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayesnn import ConformalClassifier, MCDropoutClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> network = MCDropoutClassifier((16,), max_iter=20, random_state=0)
    >>> model = ConformalClassifier(network, random_state=0).fit(X, y)
    >>> model.predict_set(X[:4]).shape
    (4, 3)
    """

    estimator: stored.Estimator
    random_state: stored.Seed
    estimator_: stored.Fitted
    classes_: stored.Labels
    n_calibration_: stored.PositiveCount
    conformal_: _Scores

    def __init__(self, estimator, *, calibration_size=0.25, random_state=None) -> None:
        self.estimator = estimator
        self.calibration_size = calibration_size
        self.random_state = random_state

    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the estimator to a part of the rows, and calibrate on the others.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights for the estimator. Exchangeability requires that all calibration
            rows have the same weight; rows of weight zero do not calibrate.
        **fit_params : dict
            Parameters of the estimator's ``fit``.

        Returns
        -------
        self : object
        """
        if not is_classifier(self.estimator):
            raise TypeError(
                "ConformalClassifier needs a classifier; got "
                f"{type(self.estimator).__name__}. Use ConformalRegressor for "
                "regressors."
            )
        crepes = _crepes(self)
        ordered_y = if_ordered(y)
        X, y, weights, routed = self._validate_fit_arguments(
            X, y, sample_weight, fit_params
        )
        y = one_target(y, "Fit one ConformalClassifier per target.")
        check_classification_targets(y)
        to_fit = y if ordered_y is None else ordered_y
        model, rows = self._split_fit(X, to_fit, routed)
        rows = rows[weights[rows] > 0]
        scores = 1 - model.predict_proba(safe_indexing(X, rows))
        unknown = np.setdiff1d(y[rows], model.classes_)
        if len(unknown):
            raise ValueError(
                "calibration rows must have labels of the training rows, "
                f"{model.classes_.tolist()}; got {unknown.tolist()}. Fit to more rows "
                "of these labels, or split with another `random_state`."
            )
        codes = columns_of(y[rows], model.classes_)
        return self._set_fitted(
            model,
            estimator_=model,
            classes_=model.classes_,
            conformal_=crepes.ConformalClassifier().fit(
                scores[np.arange(len(rows)), codes]
            ),
            n_calibration_=len(rows),
        )

    @by_blocks
    @on_snapshot
    def predict(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Predict labels with the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @by_blocks
    def predict_proba(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Class probabilities of the fitted estimator, (n_samples, n_classes)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @on_snapshot
    def predict_distribution(self, X: MatrixLike) -> Any:
        """Predictive distribution of the fitted estimator, which is not conformal."""
        check_is_fitted(self)
        return predict_distribution(self.estimator_, X)

    @by_blocks
    @on_snapshot
    def predict_set(
        self,
        X: MatrixLike,
        coverage: float | Sequence[float] = 0.9,
        *,
        output: OutputPath = None,
    ) -> Array:
        """Predict a set of labels that contains the correct one with high probability.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            Probability that the set contains the correct label. With n calibration
            rows, sets for coverages above n / (n + 1) contain every label, with a
            warning.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        label_set : ndarray of bool, (n_samples[, n_coverages], n_classes)
            Whether each of ``classes_`` belongs to the set.
        """
        check_is_fitted(self)
        coverages = check_levels("coverage", coverage)
        scores = 1 - self.estimator_.predict_proba(X)
        result = np.empty((len(scores), len(coverages), len(self.classes_)), bool)
        for i, level in enumerate(coverages):
            result[:, i] = too_few(self.n_calibration_, level)
            if not result[:, i].all():
                result[:, i] = self.conformal_.predict_set(
                    scores, confidence=level - NUDGE, smoothing=False
                )
        return result if np.ndim(coverage) else result[:, 0]


def _check_no_abstainer(estimator) -> None:
    """Raise for an Abstainer: the rows that a model selects are not exchangeable."""
    values = [estimator, *estimator.get_params().values()]
    if any(isinstance(value, Abstainer) for value in values):
        raise TypeError(
            "ConformalRegressor needs a prediction for every row; got an Abstainer, "
            "which returns no prediction for some rows. The coverage is not guaranteed "
            "for a selection of rows. Give the estimator inside of the Abstainer, and "
            "reject rows by the width of their interval."
        )


def _finite_mean_and_std(model, X):
    """Finite mean and total standard deviation of every row, (rows,)."""
    mean, std = predict_with_std(model, X)
    invalid = ~(np.isfinite(mean) & np.isfinite(std))
    if invalid.any():
        raise ValueError(
            "the estimator must predict a finite mean and standard deviation for every "
            f"row; got {mean[invalid][0]} and {std[invalid][0]} in {invalid.sum()} of "
            f"{len(mean)} rows. With a target transform the standard deviation may be "
            "infinite. Otherwise check whether the training diverged."
        )
    return mean, std


def _crepes(model):
    """Import crepes, or raise with the command that installs it."""
    user, command = (
        f"{type(model).__name__} needs",
        'pip install "skbayesnn[conformal]"',
    )
    return required("crepes", user, command)
