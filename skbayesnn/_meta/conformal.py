"""Intervals and label sets of guaranteed coverage around any of our models."""

from collections.abc import Sequence
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from skbayesnn._batch.cross_fit import check_each_row_once
from skbayesnn._data.class_order import if_ordered
from skbayesnn._distributions.components import columns_of
from skbayesnn._meta.abstention import Abstainer
from skbayesnn._meta.base import BaseHeldOutMetaEstimator, one_target
from skbayesnn._meta.cross_conformal import (
    NUDGE,
    cross_interval,
    not_below_zero,
    too_few,
)
from skbayesnn._meta.functions import predict_with_std
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.summaries import checked_coverages
from skbayesnn._runtime import default_settings, imported, on_snapshot
from skbayesnn._sklearn_compat import ClassifierMixin, RegressorMixin, safe_indexing
from skbayesnn._typing import Array, MatrixLike


class ConformalRegressor(RegressorMixin, BaseHeldOutMetaEstimator):
    """Intervals of guaranteed coverage, as wide as the model is unsure.

    Held-out residuals are divided by the total predictive standard deviation, and the
    right order statistic of the quotients says how many standard deviations an
    interval must reach to each side. If the rows are exchangeable, an interval of
    coverage c holds a new y with probability at least c (``"split"``), whatever the
    model; with ``"cv+"`` at least 2 c - 1, and c in practice.

    Parameters
    ----------
    estimator : estimator
        A regressor of this package, or a meta-estimator around one (see
        :mod:`skbayesnn`). With ``"split"`` it may be in a ``FrozenEstimator``,
        and all rows given to ``fit`` calibrate.
    method : {"split", "cv+"}, default="split"
        ``"split"`` fits one model to a part of the rows and calibrates on the others
        [1]_ (by crepes: ``pip install "skbayesnn[conformal]"``). ``"cv+"`` fits a
        model without each fold and uses all rows for both [2]_.
    calibration_size : float or int, default=0.25
        Share or number of rows that calibrate with ``"split"``.
    cv : int, cross-validation generator or iterable, default=None
        Folds of ``"cv+"``, each row in one of them; None is five.
    n_jobs : int, default=None
        Folds fitted side by side, as in scikit-learn.
    random_state : int, RandomState instance or None, default=None
        Which rows calibrate with ``"split"``.

    Attributes
    ----------
    estimators_ : list of estimators
        One with ``"split"``, one per fold with ``"cv+"``.
    n_calibration_ : int
        Rows that calibrate.
    conformal_ : crepes.ConformalRegressor, or list of ndarray
        With ``"cv+"`` the standardised absolute residuals of every fold.
    n_features_in_, feature_names_in_
        As the estimator inside has them.

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

    estimators_: list[Any]
    n_calibration_: int
    conformal_: Any

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
        """Fit the estimator to some rows, and calibrate on others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            For the estimator. Calibration rows count alike, as exchangeability asks;
            those of weight zero are left out.
        **fit_params : dict
            For the estimator's ``fit``; ``groups`` for a ``cv`` of groups, with
            ``method="cv+"``. With metadata routing what the estimator and the splitter
            ask for.

        Returns
        -------
        self : object
        """
        if self.method not in ("split", "cv+"):
            raise ValueError(f"`method` must be 'split' or 'cv+'; got {self.method!r}.")
        if not is_regressor(self.estimator):
            raise TypeError(
                "ConformalRegressor needs a regressor; got "
                f"{type(self.estimator).__name__}. For classifiers there is "
                "ConformalClassifier."
            )
        _refuse_abstainer(self.estimator)
        engine = _crepes(self) if self.method == "split" else None
        X, y, weights, routed = self._prepared(X, y, sample_weight, fit_params)
        y = one_target(
            y,
            "For several there is MultiOutputRegressor(ConformalRegressor(...)), one "
            "by one.",
        )
        if engine:
            held_out = [self._split_fit(X, y, routed)]
        else:
            held_out = self._cross_fit(X, y, routed)
            check_each_row_once([rows for _, rows in held_out], len(y))
        parts = []
        for model, rows in held_out:
            mean, std = _predicted(model, safe_indexing(X, rows))
            kept = weights[rows] > 0
            parts.append(((y[rows] - mean)[kept], std[kept]))
        if engine:
            [(residuals, std)] = parts
            conformal = engine.ConformalRegressor().fit(residuals, sigmas=std)
        else:
            conformal = [np.abs(residuals) / std for residuals, std in parts]
        models = [model for model, _ in held_out]
        return self._become(
            models[0],
            estimators_=models,
            conformal_=conformal,
            n_calibration_=sum(len(std) for _, std in parts),
        )

    @overload
    def predict(self, X: MatrixLike, return_std: Literal[False] = False) -> Array: ...
    @overload
    def predict(
        self, X: MatrixLike, return_std: Literal[True]
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self, X: MatrixLike, return_std: bool = False
    ) -> Array | tuple[Array, Array]: ...
    @on_snapshot
    def predict(self, X, return_std=False):
        """Mean prediction of the fitted models, and what they say its spread is.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            In y's units.
        std : ndarray of shape (n_samples,)
            Only with ``return_std=True``: of the equal-weight mixture of the models,
            in y's units. It is not conformal: coverage is promised for
            ``predict_interval``.
        """
        check_is_fitted(self)
        if not return_std:
            return np.mean([model.predict(X) for model in self.estimators_], axis=0)
        predicted = [predict_with_std(model, X) for model in self.estimators_]
        means, stds = map(np.stack, zip(*predicted, strict=True))
        return means.mean(0), np.sqrt(np.square(stds).mean(0) + means.var(0))

    @on_snapshot
    def predict_interval(
        self,
        X: MatrixLike,
        coverage: float | Sequence[float] = 0.9,
        kind: str = "equal_tailed",
    ) -> Array:
        """Interval that holds y with at least the given probability.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            Above n / (n + 1), n the rows that calibrate, intervals are infinite, with
            a warning.
        kind : {"equal_tailed"}, default="equal_tailed"
            There is only this one: the interval is symmetric about the prediction.

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_coverages], 2)
            Lower and upper end in y's units; of counts (``likelihood="poisson"``) not
            below 0.
        """
        check_is_fitted(self)
        if kind != "equal_tailed":
            raise ValueError(
                "`kind` of a conformal interval must be 'equal_tailed'; got "
                f"{kind!r}. A predictive distribution has others: take the estimator "
                "inside, or CalibratedUncertaintyRegressor."
            )
        coverages = checked_coverages(coverage)
        predicted = [_predicted(model, X) for model in self.estimators_]
        result = np.empty((len(predicted[0][0]), len(coverages), 2))
        for i, level in enumerate(coverages):
            if too_few(self.n_calibration_, level):
                result[:, i] = -np.inf, np.inf
            elif isinstance(self.conformal_, list):
                result[:, i] = cross_interval(predicted, self.conformal_, level)
            else:
                [(mean, std)] = predicted
                result[:, i] = self.conformal_.predict_int(
                    mean, sigmas=std, confidence=level - NUDGE
                )
        try:
            one_row = safe_indexing(X, np.arange(1))
            opened = open_predictive(self.estimators_[0], one_row)
            result = not_below_zero(result, opened)
        except TypeError:
            pass  # an estimator with means and stds alone, which says no more of y
        return result if np.ndim(coverage) else result[:, 0]


class ConformalClassifier(ClassifierMixin, BaseHeldOutMetaEstimator):
    """Label sets of guaranteed coverage.

    One model is fitted to a part of the rows; on the others, 1 - the probability of
    the right label says how improbable a label may be and still belong to the set
    [1]_. If the rows are exchangeable, a set of coverage c holds the right label with
    probability at least c, over all classes together. A set may be empty, where every
    label is less probable than that.

    Parameters
    ----------
    estimator : estimator
        A classifier with ``predict_proba``. In a ``FrozenEstimator`` it is taken as
        fitted, and all rows given to ``fit`` calibrate.
    calibration_size : float or int, default=0.25
        Share or number of rows that calibrate.
    random_state : int, RandomState instance or None, default=None
        Which rows calibrate.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to the rows that do not calibrate.
    classes_ : ndarray of shape (n_classes,)
    n_calibration_ : int
        Rows that calibrate.
    conformal_ : crepes.ConformalClassifier
    n_features_in_, feature_names_in_
        As the estimator inside has them.

    Notes
    -----
    Needs crepes: ``pip install "skbayesnn[conformal]"``.

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

    estimator_: Any
    classes_: Array
    n_calibration_: int
    conformal_: Any

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
        """Fit the estimator to some rows, and calibrate on the others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            For the estimator. Calibration rows count alike, as exchangeability asks;
            those of weight zero are left out.
        **fit_params : dict
            For the estimator's ``fit``.

        Returns
        -------
        self : object
        """
        if not is_classifier(self.estimator):
            raise TypeError(
                "ConformalClassifier needs a classifier; got "
                f"{type(self.estimator).__name__}. For regressors there is "
                "ConformalRegressor."
            )
        engine = _crepes(self)
        given = if_ordered(y)
        X, y, weights, routed = self._prepared(X, y, sample_weight, fit_params)
        y = one_target(y, "Label sets are of one target.")
        check_classification_targets(y)
        to_fit = y if given is None else given
        model, rows = self._split_fit(X, to_fit, routed)
        rows = rows[weights[rows] > 0]
        unlikely = 1 - model.predict_proba(safe_indexing(X, rows))
        unknown = np.setdiff1d(y[rows], model.classes_)
        if len(unknown):
            raise ValueError(
                "the rows that calibrate must have labels the model knows; got "
                f"{unknown.tolist()} beside {model.classes_.tolist()}. Fit to more "
                "rows of these labels, or split with another `random_state`."
            )
        codes = columns_of(y[rows], model.classes_)
        right = unlikely[np.arange(len(rows)), codes]
        return self._become(
            model,
            estimator_=model,
            classes_=model.classes_,
            conformal_=engine.ConformalClassifier().fit(right),
            n_calibration_=len(rows),
        )

    @on_snapshot
    def predict(self, X: MatrixLike) -> Array:
        """The likeliest label, as the estimator inside says it."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def predict_proba(self, X: MatrixLike) -> Array:
        """Class probabilities of the estimator inside, (n_samples, n_classes)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @on_snapshot
    def predict_set(
        self, X: MatrixLike, coverage: float | Sequence[float] = 0.9
    ) -> Array:
        """Labels that together hold the right one with the given probability.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            Above n / (n + 1), n the rows that calibrate, every label is in every set,
            with a warning.

        Returns
        -------
        label_set : ndarray of bool, (n_samples[, n_coverages], n_classes)
            Whether each of ``classes_`` belongs to the set.
        """
        check_is_fitted(self)
        coverages = checked_coverages(coverage)
        unlikely = 1 - self.estimator_.predict_proba(X)
        result = np.empty((len(unlikely), len(coverages), len(self.classes_)), bool)
        for i, level in enumerate(coverages):
            result[:, i] = too_few(self.n_calibration_, level)
            if not result[:, i].all():
                result[:, i] = self.conformal_.predict_set(
                    unlikely, confidence=level - NUDGE, smoothing=False
                )
        return result if np.ndim(coverage) else result[:, 0]


def _refuse_abstainer(estimator) -> None:
    """Rows that are chosen by the model itself are not exchangeable with the others."""
    inside = [estimator, *estimator.get_params().values()]
    if any(isinstance(one, Abstainer) for one in inside):
        raise TypeError(
            "ConformalRegressor needs a prediction of every row; got an Abstainer, "
            "which refuses some, and what is calibrated on the others covers neither. "
            "Take the estimator inside of it, and refuse rows by the width of their "
            "interval."
        )


def _predicted(model, X):
    """Mean and total std, (rows,), of every row."""
    mean, std = predict_with_std(model, X)
    lacking = ~(np.isfinite(mean) & np.isfinite(std))
    if lacking.any():
        raise ValueError(
            "the estimator must predict a finite mean and standard deviation of every "
            f"row; got {mean[lacking][0]} and {std[lacking][0]} in {lacking.sum()} of "
            f"{len(mean)} rows. Behind a target transform the standard deviation may "
            "be infinite; has the training diverged?"
        )
    return mean, std


def _crepes(model):
    """The library of the calibration, or how to get it."""
    try:
        return imported("crepes")
    except ImportError as error:
        raise ImportError(
            f"{type(model).__name__} needs crepes, which is not installed: "
            'pip install "skbayesnn[conformal]"'
        ) from error
