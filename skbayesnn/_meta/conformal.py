"""Conformal intervals and label sets, with guaranteed coverage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from numbers import Integral
from typing import Annotated, Any, Literal, NamedTuple, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier, is_regressor
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_consistent_length
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn._batch.cross_fit import (
    check_each_row_once,
    cross_fitted,
    held_out_folds,
)
from skbayesnn._data.class_order import if_ordered
from skbayesnn._data.columns import groups_of
from skbayesnn._data.sources import concatenated
from skbayesnn._distributions.components import columns_of
from skbayesnn._meta.abstention import Abstainer
from skbayesnn._meta.base import BaseHeldOutMetaEstimator, one_target
from skbayesnn._meta.conformal_scores import (
    Calibration,
    cross_intervals,
    levels_needed,
    quantiles,
    warn_of_few,
)
from skbayesnn._meta.functions import predict_distribution, predict_with_std
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._predictive.distribution import ModelRows, RegressionDistribution
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._runtime import atomic_update, default_settings, on_snapshot, warn
from skbayesnn._sklearn_compat import (
    ClassifierMixin,
    RegressorMixin,
    num_samples,
    safe_indexing,
)
from skbayesnn._typing import Array, MatrixLike, OutputPath
from skbayesnn._validation import check_levels, check_number
from skbayesnn.estimators._docs import complete_docstrings
from skbayesnn.estimators.laplace import LaplaceClassifier

# With a smaller effective number of rows, the coverage varies by more than 4 points at
# 90 % from one calibration set to another.
FEW_EFFECTIVE_ROWS = 50
# Folds of the classifiers that estimate the density ratio.
RATIO_FOLDS = 5


class _Part(NamedTuple):
    """New rows of one group, and the calibration rows that they use."""

    rows: np.ndarray
    own: np.ndarray
    kept: np.ndarray
    weights: np.ndarray
    levels: list[float]


class BaseConformal(BaseHeldOutMetaEstimator):
    """Weights, groups and updates of the calibration rows."""

    groups: Annotated[Any, str | int | None]
    weights: Any
    window: Annotated[int, stored.POSITIVE]
    step_size: Annotated[float, stored.NOT_NEGATIVE]
    conformal_: Calibration
    ratio_models_: Annotated[list[stored.Fitted], stored.OPTIONAL]

    @property
    def n_calibration_(self) -> int:
        """Number of calibration rows, with those of updates."""
        check_is_fitted(self)
        return len(self.conformal_.scores)

    def _calibrated(self, X, scores, models, rows, X_new) -> dict[str, Any]:
        """Fitted attributes of calibration rows of X, in the order of X.

        scores, models, rows : (calibration rows,)
        """
        check_number("window", self.window, kind=Integral, low=1)
        check_number("step_size", self.step_size, low=0)
        if self.weights is not None and X_new is not None:
            raise ValueError(
                "`X_new` estimates the density ratio, which `weights` gives; got both. "
                "Leave out one of them."
            )
        order = np.argsort(rows, kind="stable")
        X = safe_indexing(X, rows[order])
        attributes: dict[str, Any] = {}
        ratios = np.ones(len(rows))
        if X_new is not None:
            ratios, attributes["ratio_models_"] = _estimated_ratios(X, X_new)
        elif self.weights is not None:
            ratios = self._given_ratios(X)
        n_effective = ratios.sum() ** 2 / np.square(ratios).sum()
        if n_effective < min(FEW_EFFECTIVE_ROWS, len(rows) - 0.5):
            warn(
                "SKB407",
                f"The density ratios leave {n_effective:.1f} effective of {len(rows)} "
                "calibration rows: few of them are like the new rows. The coverage "
                "varies, and intervals may be infinite. Give more calibration rows, or "
                "`update` with new rows whose y is known.",
            )
        attributes["conformal_"] = Calibration.of(
            scores[order], models[order], self._groups(X), ratios
        )
        return attributes

    def _groups(self, X) -> np.ndarray:
        """Group of each row, (rows,); empty text without groups."""
        if self.groups is None:
            return np.full(num_samples(X), "")
        return groups_of(X, self.groups)

    def _given_ratios(self, X) -> np.ndarray:
        ratios = np.asarray(self.weights(X), dtype=np.float64)
        if ratios.shape != (num_samples(X),) or not (
            np.isfinite(ratios).all() and (ratios > 0).all()
        ):
            raise ValueError(
                "`weights` must return a density ratio > 0 for each row, shape "
                f"{(num_samples(X),)}; got shape {ratios.shape}, {ratios!r:.80}."
            )
        return ratios

    def _parts(self, X, coverages=()) -> list[_Part]:
        """The rows of X by group; a warning if their calibration rows are too few."""
        calibration = self.conformal_
        own, place = np.ones(num_samples(X)), ""
        if models := getattr(self, "ratio_models_", None):
            own = _ratios(models, X)
        elif self.weights is not None:
            own = self._given_ratios(X)
        if own.max() != own.min() or calibration.ratios.max() != 1:
            place = " of the density ratio of a new row"
        groups, parts, fewest = self._groups(X), [], (np.inf, "")
        for group in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == group)
            weights = calibration.weights(group)
            kept = np.flatnonzero(weights)
            levels = [calibration.level(c, group, self.step_size) for c in coverages]
            parts.append(_Part(rows, own[rows], kept, weights[kept], levels))
            n_rows = weights.sum() / own[rows].max()
            in_group = f" in the group {group!r}" * bool(group)
            fewest = min(fewest, (n_rows, place + in_group))
        for coverage in coverages:
            warn_of_few(fewest[0], coverage, fewest[1])
        return parts

    @default_settings
    def update(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Calibrate with new rows, whose y arrived after their prediction.

        The model inside does not change. The latest ``window`` rows of each group
        calibrate. The level of each group moves by s = min(m ``step_size``, 0.1) times
        the difference of the shares of missed and of expected misses among its m rows
        [1]_. After B calls with m rows of a group each, the share of them inside of the
        intervals that were predicted before each call differs from the coverage by at
        most (1 + s) / (s B), for any sequence of rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows in time order. They count as predicted before the y of one of them was
            known.
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If the calibration rows have density ratios.

        References
        ----------
        .. [1] Gibbs & Candes (2021), "Adaptive conformal inference under distribution
           shift", NeurIPS, eq. 2 and proposition 4.1.
        """
        check_is_fitted(self)
        if self.weights is not None or hasattr(self, "ratio_models_"):
            raise ValueError(
                "`update` needs calibration rows without density ratios, since new "
                "rows with y replace these. Fit without `weights` and `X_new`."
            )
        y = one_target(self._checked_target(y, X), "Update one model per target.")
        check_consistent_length(X, y)
        with atomic_update(self) as fitted:
            old = fitted.conformal_
            models = len(old.needed) + np.arange(len(y))
            models %= len(getattr(fitted, "estimators_", [0]))
            scores, needed = fitted._scores_of_update(X, y, models)
            fitted.conformal_ = old.followed_by(
                scores, models, fitted._groups(X), needed, self.window
            )
        return self


class ConformalRegressor(RegressorMixin, BaseConformal):
    """Intervals with guaranteed coverage around a regressor.

    Use it if the coverage must hold even if the model is wrong. The width of an
    interval is proportional to the predictive standard deviation of its row. The
    factor is an order statistic of held-out residuals, divided by their predictive
    standard deviations. If the rows are exchangeable, an interval of coverage c
    contains a new y with probability at least c with ``"split"``. With ``"cv+"`` and n
    rows the bound is 2 c - 1 - sqrt(2 / n), and the probability in practice about c.
    ``"split"`` uses a part of the rows for calibration only; ``"cv+"`` fits one model
    per fold. If rows of a patient or machine belong together and new rows are of new
    patients, ``"split"`` has no guarantee and ``fit`` refuses ``groups``. Use ``"cv+"``
    with ``fit(groups=)`` and a ``cv`` that keeps them together.

    The parameter ``groups`` is for coverage in each of some known groups, ``weights``
    and ``X_new`` are for rows whose X has another distribution, and :meth:`update` is
    for streams.

    Parameters
    ----------
    estimator : estimator
        A regressor of this package, or a meta-estimator around one (see
        :mod:`skbayesnn`). With ``"split"`` it may be in a ``FrozenEstimator``: then all
        rows of ``fit`` calibrate, and the model must not have been fitted to them.
    method : {"split", "cv+"}, default="split"
        Use ``"cv+"`` with few rows. ``"split"`` fits one model to a part of the rows
        and calibrates on the others [1]_. ``"cv+"`` fits a model without each fold and
        uses all rows for training and calibration [2]_.
    calibration_size : float or int, default=0.25
        Share or number of calibration rows with ``"split"``.
    cv : int, cross-validation generator or iterable, default=None
        Folds of ``"cv+"``. Each row must be in exactly one of them. None is five folds.
    groups : str or int, default=None
        Column of X, by its name or its position in an array, whose values are groups:
        the coverage then holds in each group that has at least 50 calibration rows. A
        smaller group also takes the scores of all other rows, which together count as
        the rows that are missing to 50. A new group takes all rows.
    weights : callable, default=None
        Takes X and returns the density of new rows divided by the density of
        calibration rows, (n_samples,), for a known shift of X. A constant factor has no
        effect. To estimate the ratio, leave it out and give ``X_new`` to ``fit``.
    window : int, default=150
        Number of the latest rows of each group that calibrate after ``update``.
    step_size : float, default=0.02
        Step of the level for a row of ``update``; 0 keeps the level.
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
    conformal_ : Calibration
        Scores of the calibration rows, the absolute residuals divided by the standard
        deviation, with their groups and density ratios.
    ratio_models_ : list of LaplaceClassifier
        Only with ``X_new``.
    n_features_in_, feature_names_in_
        As in the fitted estimators, if they have them.

    References
    ----------
    .. [1] Lei, G'Sell, Rinaldo, Tibshirani & Wasserman (2018), "Distribution-free
       predictive inference for regression", JASA, sections 2.2 and 5.2.
    .. [2] Barber, Candes, Ramdas & Tibshirani (2021), "Predictive inference with the
       jackknife+", Annals of Statistics, section 3.
    .. [3] Vovk, Lindsay, Nouretdinov & Gammerman (2003), "Mondrian confidence machine".
    .. [4] Tibshirani, Barber, Candes & Ramdas (2019), "Conformal prediction under
       covariate shift", NeurIPS.

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

    def __init__(
        self,
        estimator,
        *,
        method="split",
        calibration_size=0.25,
        cv=None,
        groups=None,
        weights=None,
        window=150,
        step_size=0.02,
        n_jobs=None,
        random_state=None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.calibration_size = calibration_size
        self.cv = cv
        self.groups = groups
        self.weights = weights
        self.window = window
        self.step_size = step_size
        self.n_jobs = n_jobs
        self.random_state = random_state

    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_new: MatrixLike | None = None,
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
        X_new : {frame, array-like} of shape (n_new, n_features), default=None
            Rows from where the model is used, without y, if X has another distribution
            there. Networks by evidence (:class:`LaplaceClassifier`) estimate the
            density ratio: they distinguish these rows from the calibration rows, which
            they predict out of fold.
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
        X, y, weights, routed = self._validate_fit_arguments(
            X, y, sample_weight, fit_params
        )
        y = one_target(
            y, "Use MultiOutputRegressor(ConformalRegressor(...)) for several targets."
        )
        if self.method == "split":
            held_out = [self._split_fit(X, y, routed)]
        else:
            held_out = self._cross_fit(X, y, routed)
            check_each_row_once([rows for _, rows in held_out], len(y))
        parts = []
        for k, (model, rows) in enumerate(held_out):
            rows = rows[weights[rows] > 0]
            if len(rows):
                scores = _residuals(model, safe_indexing(X, rows), y[rows])
                parts.append((scores, np.full(len(rows), k), rows))
        models = [model for model, _ in held_out]
        scores, fold, rows = map(np.concatenate, zip(*parts, strict=True))
        return self._set_fitted(
            models[0],
            estimators_=models,
            **self._calibrated(X, scores, fold, rows, X_new),
        )

    def _scores_of_update(self, X, y, models):
        """Scores of new rows, and the levels that their intervals needed."""
        predicted = [_finite_mean_and_std(model, X) for model in self.estimators_]
        means, stds = map(np.array, zip(*predicted, strict=True))
        rows, needed = np.arange(len(y)), np.empty(len(y))
        for part in self._parts(X):
            needed[part.rows] = levels_needed(
                *self._of_part(predicted, part, y[part.rows])
            )
        return np.abs(y - means[models, rows]) / stds[models, rows], needed

    def _of_part(self, predicted, part, *arguments) -> tuple:
        """Predictions of a part, the scores of each model, and their weights."""
        models, scores = (
            values[part.kept]
            for values in (self.conformal_.models, self.conformal_.scores)
        )
        folds = [np.flatnonzero(models == k) for k in range(len(predicted))]
        return (
            [(mean[part.rows, None], std[part.rows, None]) for mean, std in predicted],
            [scores[fold, None] for fold in folds],
            *arguments,
            part.weights[np.concatenate(folds)],
            part.own,
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

    @on_snapshot
    def predict_distribution(self, X: MatrixLike) -> Any:
        """Equal-weight mixture of the fitted models, which is not conformal."""
        check_is_fitted(self)
        distribution = RegressionDistribution([ModelRows(self, X)])
        distribution.open()
        return distribution

    def _open_predictive(self, X) -> PredictiveBlocks:
        members = [open_predictive(model, X) for model in self.estimators_]
        if len(members) == 1:
            return members[0]
        return PredictiveBlocks.mapped(
            members,
            lambda *parts: MixturePredictive.pooled(
                parts, [max(part.n_draws for part in parts)] * len(parts)
            ),
        )

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
        result = np.empty((num_samples(X), len(coverages), 2))
        for part in self._parts(X, coverages):
            of_part = self._of_part(predicted, part, part.levels)
            result[part.rows] = cross_intervals(*of_part)[:, 0]
        one_row = safe_indexing(X, np.arange(1))
        # Without a predictive distribution, the bounds of y are not known.
        with suppress(TypeError):
            support = predict_distribution(self.estimators_[0], one_row).support()
            result = result.clip(*support)
        return result if np.ndim(coverage) else result[:, 0]


class ConformalClassifier(ClassifierMixin, BaseConformal):
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
    groups, weights, window, step_size
        As in :class:`ConformalRegressor`.
    random_state : int, RandomState instance or None, default=None
        Seed of the selection of calibration rows.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to the rows that do not calibrate.
    classes_ : ndarray of shape (n_classes,)
    n_calibration_, ratio_models_
        As in :class:`ConformalRegressor`.
    conformal_ : Calibration
        Scores of the calibration rows, one minus the probability of y, with their
        groups and density ratios.
    n_features_in_, feature_names_in_
        As in the fitted estimator, if it has them.

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

    def __init__(
        self,
        estimator,
        *,
        calibration_size=0.25,
        groups=None,
        weights=None,
        window=150,
        step_size=0.02,
        random_state=None,
    ) -> None:
        self.estimator = estimator
        self.calibration_size = calibration_size
        self.groups = groups
        self.weights = weights
        self.window = window
        self.step_size = step_size
        self.random_state = random_state

    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_new: MatrixLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the estimator to a part of the rows, and calibrate on the others.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight, X_new, **fit_params
            As in :meth:`ConformalRegressor.fit` with ``method="split"``.

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
        ordered_y = if_ordered(y)
        X, y, weights, routed = self._validate_fit_arguments(
            X, y, sample_weight, fit_params
        )
        y = one_target(y, "Fit one ConformalClassifier per target.")
        check_classification_targets(y)
        to_fit = y if ordered_y is None else ordered_y
        model, rows = self._split_fit(X, to_fit, routed)
        rows = rows[weights[rows] > 0]
        scores = _improbabilities(model, safe_indexing(X, rows), y[rows])
        return self._set_fitted(
            model,
            estimator_=model,
            classes_=model.classes_,
            **self._calibrated(X, scores, np.zeros(len(rows), int), rows, X_new),
        )

    def _scores_of_update(self, X, y, models):
        """Scores of new rows, and the levels that their sets needed."""
        scores, needed = _improbabilities(self.estimator_, X, y), np.empty(len(y))
        for part in self._parts(X):
            below = self.conformal_.scores[part.kept] < scores[part.rows, None]
            needed[part.rows] = below @ part.weights / (part.weights.sum() + part.own)
        return scores, needed

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
        for part in self._parts(X, coverages):
            known = self.conformal_.scores[part.kept], part.weights, part.own
            for i, level in enumerate(part.levels):
                largest = quantiles(*known, level)[:, None] if level > 0 else -np.inf
                result[part.rows, i] = scores[part.rows] <= largest
        return result if np.ndim(coverage) else result[:, 0]


complete_docstrings([ConformalRegressor, ConformalClassifier])


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


def _residuals(model, X, y):
    """Absolute residuals in units of the standard deviation of their row, (rows,)."""
    mean, std = _finite_mean_and_std(model, X)
    return np.abs(y - mean) / std


def _improbabilities(model, X, y):
    """One minus the probability of each label, (rows,)."""
    unknown = np.setdiff1d(y, model.classes_)
    if len(unknown):
        raise ValueError(
            "calibration rows must have labels of the training rows, "
            f"{model.classes_.tolist()}; got {unknown.tolist()}. Fit to more rows "
            "of these labels, or split with another `random_state`."
        )
    codes = columns_of(y, model.classes_)
    return 1 - model.predict_proba(X)[np.arange(len(y)), codes]


def _estimated_ratios(X, X_new) -> tuple[np.ndarray, list]:
    """Density ratios of calibration rows out of fold, and the classifiers."""
    both = concatenated([X, X_new])
    n_rows = num_samples(X)
    is_new = (np.arange(num_samples(both)) >= n_rows).astype(int)
    folds = held_out_folds(
        StratifiedKFold(RATIO_FOLDS, shuffle=True, random_state=0),
        both,
        is_new,
        is_classification=True,
    )
    models = cross_fitted(LaplaceClassifier(random_state=0), both, is_new, folds)
    ratios = np.empty(len(is_new))
    for model, (_, rows) in zip(models, folds, strict=True):
        ratios[rows] = _ratios([model], safe_indexing(both, rows))
    return ratios[:n_rows], models


def _ratios(models, X) -> np.ndarray:
    """Density ratios up to a constant: the mean odds of a new row, (rows,)."""
    odds = [np.divide(p[:, 1], p[:, 0]) for p in (m.predict_proba(X) for m in models)]
    return np.exp(np.mean(np.log(odds), axis=0))
