"""Detect rows that have drifted away from the training rows of a model."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm, rankdata
from sklearn.base import is_classifier
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn._batch.cross_fit import cross_fitted, held_out_folds, refuse_fitted
from skbayesnn._data.columns import groups_of
from skbayesnn._data.target import as_intervals
from skbayesnn._data.validation import named_after, refuse_column_name, table_of
from skbayesnn._meta.functions import predict_distribution, predict_uncertainty
from skbayesnn._runtime import (
    atomic_update,
    default_settings,
    on_snapshot,
    replace_fitted,
    warn,
    warn_once_per_call,
)
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    OutlierMixin,
    num_samples,
    safe_indexing,
    safe_split,
)
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._validation import check_number
from skbayesnn.estimators.anchored_ensemble import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
)
from skbayesnn.inspection._attributions import default_kind
from skbayesnn.inspection._columns import (
    ColumnDrift,
    TrainingColumn,
    column_drift,
    one_way,
    training_columns,
)
from skbayesnn.inspection._watches import Alarm, Watches

# Pseudo-rows with full agreement, which regularise the estimate for few rows. Too low
# an estimate of the agreement is a false alarm.
_PSEUDO_ROWS = 10


class DriftMonitor(OutlierMixin, BaseEstimator):
    """Detects new rows with more uncertain predictions than the training rows.

    Cross-validation estimates the uncertainty of predictions for held-out rows, which
    have not drifted. New rows are flagged if their predictions are more uncertain than
    the predictions of nearly all held-out rows. At most a share ``false_alarm_rate`` of
    rows without drift is flagged by mistake. No labels of the new rows are needed.
    Drift is detected if it leads away from the training rows and makes predictions more
    uncertain. See Notes for what is not detected.

    Parameters
    ----------
    estimator : estimator, default=None
        Model of one target that :func:`skbayesnn.predict_uncertainty` accepts. None is
        :class:`~skbayesnn.AnchoredEnsembleRegressor`, or its classifier if the labels
        are strings or booleans. For numeric labels give a classifier.
    kind : str, default=None
        A kind of :func:`skbayesnn.predict_uncertainty`; None is ``"epistemic"`` for
        regressors and ``"mutual_information"`` for classifiers.
    false_alarm_rate : float in (0, 1), default=0.01
        Largest share of undrifted rows that ``predict`` flags, on average. It flags
        fewer if the models of the folds disagree; see Notes. ``fit`` needs at least
        1 / rate - 1 rows. It is also the largest probability with which ``update`` ever
        gives a false alarm.
    groups : str, int or list of them, default=None
        Columns of X, by name or position in an array, whose values are groups.
        ``update`` also tests each group with at least 50 rows, and names it.
    cv : int, splitter or iterable, default=5
        Folds, as in scikit-learn. For time series use contiguous blocks,
        ``KFold(shuffle=False)``. For regressors an int is also a number of contiguous
        blocks.
    random_state : int, RandomState instance or None, default=None
        Used by the default estimator.

    Attributes
    ----------
    estimators_ : list of fitted estimators
        One model per fold, trained without the fold's rows.
    uncertainty_ : ndarray of shape (n_samples,)
        Out-of-fold uncertainty of the held-out rows, fold by fold.
    held_out_ : list of ndarray of int
        Indices of the rows that each of ``estimators_`` was not trained on, in the
        order of ``uncertainty_``.
    offset_ : float
        Minus the uncertainty above which a row is flagged.
    training_columns_ : list of TrainingColumn
        Statistics of each column of the training rows, which ``column_report`` compares
        with new rows: counts of levels, sorted numbers, missing values. Empty if X is
        sparse or has more than two dimensions.
    watches_ : Watches
        The tests of ``update``; not if y has intervals, or the estimator has no
        predictive distribution.
    n_updated_ : int
        Number of rows of updates.

    See Also
    --------
    attributions : Find the column that makes rows uncertain.

    Notes
    -----
    Changes that make no prediction more uncertain are not detected: a sensor that is
    stuck at a usual value, a column whose spread shrinks, many changes of a correlation
    between columns, and changes of y alone (more observation noise, another relation to
    X). :meth:`update` detects changes of y that make predictions worse, once y is
    known. :meth:`column_report` tests each column alone, and detects a stuck or
    shrinking column, other shares of categories, new categories and more missing
    values. A
    classifier detects a changed correlation, if it is cross-validated to distinguish
    training rows from new rows [1]_.

    The threshold of ``predict`` is a quantile of the uncertainty of held-out rows, each
    from one model. The uncertainty of a new row is the mean over the models of all
    folds. If the models disagree, means are less often large than single values, and
    fewer undrifted rows than ``false_alarm_rate`` are flagged. So are fewer drifted
    rows: use :meth:`p_value` for a batch of rows, which takes the disagreement into
    account.

    With a column that only moves forward, such as a date or a row number, all new rows
    seem to have drifted. ``fit`` warns about columns that only rise or only fall from
    row to row, and predictions warn if all new rows lie beyond the range of such a
    column. Remove the column, or replace it by features that recur (hour, weekday,
    month). ``column_report`` does not test such columns, and no dates.

    References
    ----------
    .. [1] Lopez-Paz & Oquab (2017), "Revisiting classifier two-sample tests", ICLR.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from skbayesnn import AnchoredEnsembleRegressor
    >>> from skbayesnn.inspection import DriftMonitor
    >>> X, y = make_friedman1(400, noise=0.5, random_state=0)
    >>> model = AnchoredEnsembleRegressor(max_iter=50, random_state=0)
    >>> monitor = DriftMonitor(model).fit(X[:300], y[:300])
    >>> bool(monitor.p_value(X[300:]) > 0.001)
    True
    >>> bool(monitor.p_value(X[300:] + 1) < 1e-6)
    True

    A stuck sensor is detected by a test of each column, not by the uncertainty:

    >>> X_new = X[300:].copy()
    >>> X_new[:, 0] = 0.5
    >>> bool(monitor.p_value(X_new) > 0.001)
    True
    >>> first, *_ = monitor.column_report(X_new)
    >>> first.column, bool(first.p_value * X.shape[1] < 1e-6)
    (0, True)
    """

    kind: str | None
    random_state: stored.Seed
    estimators_: Annotated[list[stored.Fitted], "models"]
    uncertainty_: Annotated[stored.Floats, "rows"]
    held_out_: Annotated[
        list[Annotated[stored.Integers, "_", stored.Index("rows")]], "models"
    ]
    offset_: float
    training_columns_: list[TrainingColumn]
    watches_: Annotated[Watches, stored.OPTIONAL]
    n_updated_: stored.Count

    def __init__(
        self,
        estimator=None,
        *,
        kind=None,
        false_alarm_rate=0.01,
        groups=None,
        cv=5,
        random_state=None,
    ) -> None:
        self.estimator = estimator
        self.kind = kind
        self.false_alarm_rate = false_alarm_rate
        self.groups = groups
        self.cv = cv
        self.random_state = random_state

    @warn_once_per_call
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Fit one model per fold, without the fold's rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows that have not drifted.
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If the estimator is fitted already, as in a ``FrozenEstimator``.
        """
        rate = check_number(
            "false_alarm_rate", self.false_alarm_rate, low=0, high=1, open_low=True
        )
        refuse_column_name(type(self).__name__, y)
        X, y = indexable(X, y)
        estimator = self._estimator(y)
        # Before the models are fitted, which takes longer.
        _warn_of_one_way(one_way(X))
        is_classification = is_classifier(estimator)
        splits = held_out_folds(self.cv, X, y, is_classification=is_classification)
        with self._named_after_default(estimator):
            refuse_fitted(estimator)
            models = cross_fitted(estimator, X, y, splits)
            uncertainty_per_fold = [
                self._uncertainty(model, safe_split(model, X, y, test, train)[0])
                for model, (train, test) in zip(models, splits, strict=True)
            ]
        uncertainty = np.concatenate(uncertainty_per_fold)
        if np.ptp(uncertainty) == 0:
            raise ValueError(
                "drift detection needs uncertainties that differ from row to row; got "
                f"{uncertainty[0]:g} for all. Give another estimator: an ensemble, or "
                "one with posterior draws."
            )
        fitted = {
            "estimators_": models,
            "uncertainty_": uncertainty,
            "held_out_": [test for _, test in splits],
            "offset_": -_threshold(uncertainty, rate),
            "training_columns_": training_columns(X, table_of(models[0])),
            "n_updated_": 0,
        }
        parts = []
        # Other models have no predictive distribution.
        with suppress(TypeError):
            if as_intervals(y) is None:
                parts = [
                    _scores(model, *safe_split(model, X, y, test, train))
                    for model, (train, test) in zip(models, splits, strict=True)
                ]
        if parts:
            held_out = np.concatenate([test for _, test in splits])
            scores = {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
            groups = self._groups(safe_indexing(X, held_out))
            fitted["watches_"] = Watches.of(scores, groups)
        replace_fitted(self, fitted)
        return self

    def fit_predict(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Equal ``fit(X, y).predict(X)``, with the same parameters and shapes."""
        return self.fit(X, y).predict(X)

    @default_settings
    def update(self, X: MatrixLike, y: ArrayLike) -> list[Alarm]:
        """Test whether rows with y are predicted as well as the training rows.

        Tests of two signals: whether fewer rows than before are in their 90 %
        intervals, and whether more rows have a log density below its median; of all
        rows, and of each group of ``groups``. Call it with all rows, in their order;
        each is used once, by the model of one fold. If the rows are exchangeable with
        the training rows, the probability of any alarm, at any time, is at most
        ``false_alarm_rate``. The level of the intervals does not matter: the tests
        compare with the held-out rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        alarms : list of Alarm
            Named tuples ``signal``, ``column``, ``group``, ``p_value``, ``n_rows``,
            ``share``, ``expected`` of the tests whose p-value has ever been at most
            ``false_alarm_rate``; empty without an alarm.

        Notes
        -----
        The guarantee is exact for a single model and independent held-out rows. With
        cross-validation it holds approximately.
        """
        check_is_fitted(self)
        if not hasattr(self, "watches_"):
            raise ValueError(
                "`update` needs exact values of y and an estimator with a predictive "
                "distribution; `fit` got intervals, or another estimator. Fit the "
                "monitor to rows with exact values, with an estimator of this package."
            )
        X, y = indexable(X, y)
        n_rows, models = num_samples(X), self.estimators_
        # Each row is scored by one model, as the held-out rows are.
        of_model = (self.n_updated_ + np.arange(n_rows)) % len(models)
        scores: dict[str, np.ndarray] = {}
        for k, model in enumerate(models):
            rows = np.flatnonzero(of_model == k)
            if len(rows):
                found = _scores(model, safe_indexing(X, rows), safe_indexing(y, rows))
                for signal, values in found.items():
                    scores.setdefault(signal, np.empty(n_rows))[rows] = values
        with atomic_update(self) as fitted:
            fitted.watches_ = self.watches_.after(scores, self._groups(X))
            fitted.n_updated_ = self.n_updated_ + n_rows
        return [a for a in self.alarms() if a.p_value <= self.false_alarm_rate]

    @on_snapshot
    def alarms(self) -> list[Alarm]:
        """All tests of :meth:`update`, the smallest p-value first.

        ``pandas.DataFrame(monitor.alarms())`` shows a table.

        Returns
        -------
        alarms : list of Alarm
        """
        check_is_fitted(self)
        return self.watches_.alarms() if hasattr(self, "watches_") else []

    def _groups(self, X) -> dict:
        """Group of each row, by column; in the column "" all rows are one group."""
        given = self.groups if isinstance(self.groups, list | tuple) else [self.groups]
        columns = [column for column in given if column is not None]
        all_rows = {"": np.full(num_samples(X), "")}
        return all_rows | {str(column): groups_of(X, column) for column in columns}

    @on_snapshot
    def score_samples(self, X: MatrixLike) -> Array:
        """Minus the models' mean uncertainty: lower for rows that have drifted further.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        score : ndarray of shape (n_samples,)
        """
        return -np.mean(self._uncertainty_per_model(X), axis=0)

    @on_snapshot
    def decision_function(self, X: MatrixLike) -> Array:
        """``score_samples(X) - offset_``: negative for rows that are flagged.

        Parameters and shapes are the same as for ``score_samples``.
        """
        return self.score_samples(X) - self.offset_

    @on_snapshot
    def predict(self, X: MatrixLike) -> Array:
        """Return -1 for rows that have drifted, 1 for all others.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        is_inlier : ndarray of shape (n_samples,), int
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    @on_snapshot
    def p_value(self, X: MatrixLike) -> float:
        """Test whether rows, taken together, are more uncertain than the training rows.

        Use it to detect a small drift of many rows, when no single row is flagged. It
        is Mann and Whitney's test (one-sided), stratified by the models of the folds:
        each model ranks the new rows among its held-out rows. The new rows must be
        independent; ten rows are too few.

        The statistic is the mean over the folds' rows. Its variance has two parts. The
        variance due to new rows is proportional to Kendall's W, the agreement of the
        models' rankings. The variance due to held-out rows is doubled, because each
        held-out row is a training row of the other folds' models, which correlates
        their uncertainties.

        The test is slightly conservative: of 120 batches of 100 undrifted rows, 2.5 %
        had a p value below 0.05, and 18 % below 0.2 (six fits of the default estimator
        to 150 rows with four columns).

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        p : float
        """
        per_model = self._uncertainty_per_model(X)
        fold_sizes = np.array([len(rows) for rows in self.held_out_])
        per_fold = np.split(self.uncertainty_, np.cumsum(fold_sizes)[:-1])
        shares = [
            _mean_share_below(fold, new)
            for fold, new in zip(per_fold, per_model, strict=True)
        ]
        n_new, n_pairs = len(per_model[0]), len(per_model[0]) * fold_sizes.sum()
        share_new = _agreement(per_model, fold_sizes) / n_new
        share_held_out = (1 + 1 / n_new) * _held_out_variance(self.held_out_)
        variance = (share_new + share_held_out) / 12
        excess = np.average(shares, weights=fold_sizes) - 0.5 - 0.5 / n_pairs
        return float(norm.sf(excess / np.sqrt(variance)))

    @on_snapshot
    def column_report(self, X: MatrixLike) -> list[ColumnDrift]:
        """Compare each column of new rows with the training rows, by its name.

        Use it to find what changed, and changes that leave predictions as certain as
        before. Numbers and durations are compared by the test of Kolmogorov and
        Smirnov; shares of categories, booleans and missing values by the chi-squared
        test or, for two levels, Fisher's exact test. With many columns, one has a small
        p-value by chance: multiply it by the number of columns. Dates, and columns that
        only rise or only fall from row to row, are not tested, because their new values
        always differ; the report has their range. The rows must be independent.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
            Not sparse.

        Returns
        -------
        report : list of ColumnDrift
            Named tuples ``column``, ``kind``, ``p_value``, ``change``,
            ``missing_share``, ``new_missing_share``, ``new_levels``, one per column;
            ``pandas.DataFrame(report)`` shows a table.
        """
        check_is_fitted(self)
        return column_drift(X, self.training_columns_)

    def _uncertainty_per_model(self, X) -> list[np.ndarray]:
        """Uncertainty of the rows, (rows,) for the model of each fold."""
        check_is_fitted(self)
        with self._named_after_default(self.estimators_[0]):
            return [self._uncertainty(model, X) for model in self.estimators_]

    def _named_after_default(self, inner) -> AbstractContextManager[None]:
        """Replace the default estimator's name in errors by the monitor's."""
        return named_after(self, inner) if self.estimator is None else nullcontext()

    def _estimator(self, y):
        if self.estimator is not None:
            return self.estimator
        is_classification = np.asarray(y).dtype.kind in "OUSb"
        network_class = (
            AnchoredEnsembleClassifier
            if is_classification
            else AnchoredEnsembleRegressor
        )
        return network_class(random_state=self.random_state)

    def _uncertainty(self, model, X):
        kind = default_kind(model) if self.kind is None else self.kind
        uncertainty: Any = predict_uncertainty(model, X, kind)
        if np.ndim(uncertainty) != 1:
            raise ValueError(
                "drift detection needs one kind of uncertainty, of one target; got "
                f"values of shape {np.shape(uncertainty)}. Fit one monitor per target."
            )
        return uncertainty


def _scores(model, X, y) -> dict[str, np.ndarray]:
    """Scores of each row by signal: large if y is far from its prediction."""
    distribution: Any = predict_distribution(model, X)
    density = -distribution.logpdf(y)
    if is_classifier(model):
        return {"coverage": density, "log density": density}
    residual = np.abs(np.asarray(y, dtype=np.float64) - distribution.mean())
    return {"coverage": residual / distribution.std(), "log density": density}


def _threshold(uncertainty: np.ndarray, rate: float) -> float:
    """Return the value that a new row exceeds with probability ``rate``.

    Warn if there are too few rows. Each of n + 1 exchangeable rows is equally likely
    to be the largest, so the threshold has rank (n + 1) (1 - rate).
    """
    n_rows = len(uncertainty)
    # In floating point 1 / 0.05 - 1 is a little more than 19.
    if rate * (n_rows + 1) < 1 - 1e-9:
        warn(
            "SKB403",
            f"false_alarm_rate={rate:g} needs at least {1 / rate - 1:.0f} held-out "
            f"rows; got {n_rows}. The threshold is their largest uncertainty, which "
            f"{1 / (n_rows + 1):.2g} of undrifted rows exceed. Give more rows, or "
            "expect this share of false alarms.",
        )
    return float(np.quantile(uncertainty, 1 - rate, method="weibull"))


def _warn_of_one_way(names) -> None:
    """Warn about columns that only move forward."""
    if names:
        warn(
            "SKB404",
            "these columns only rise or only fall from row to row, as a time or a row "
            f"number does: {', '.join(map(repr, names))}. New rows lie beyond the "
            "range of such columns, and are flagged only for this reason. Remove the "
            "columns from X, or replace them by features that recur (hour, weekday, "
            "month). If the rows are only sorted, shuffle them.",
        )


def _mean_share_below(held_out, new) -> float:
    """P(held_out < new), ties half: Mann and Whitney's statistic, as a share."""
    held_out = np.sort(held_out)
    below, up_to = (np.searchsorted(held_out, new, side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(held_out)))


def _held_out_variance(held_out) -> float:
    """Variance of the held-out rows' mean rank, as a share of one rank's variance.

    Two close rows in different folds make each other less uncertain, because the model
    that holds out one of them is trained on the other. Their shared part has twice the
    variance of independent rows. With a single fold there is no such pair.
    """
    # A row that several folds hold out is counted each time, but is no further row.
    times = np.unique(np.concatenate(held_out), return_counts=True)[1]
    share = np.square(times).sum() / np.square(times.sum())
    return float(share if len(held_out) == 1 else 2 * share)


def _agreement(per_model, weights) -> float:
    """Kendall's W: variance of the models' mean ranks, relative to a rank's variance.

    [Kendall & Babington Smith 1939, "The problem of m rankings", Annals of Mathematical
    Statistics 10]. Computed as if ``_PSEUDO_ROWS`` further rows were ranked alike.
    """
    n_rows = len(per_model[0])
    ranks = np.average(rankdata(per_model, axis=1), axis=0, weights=weights)
    total = 12 * ranks.var() / (n_rows**2 - 1) * n_rows if n_rows > 1 else 1.0
    return float((total + _PSEUDO_ROWS) / (n_rows + _PSEUDO_ROWS))
