"""Have rows drifted away from those that a model was fitted to?"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.stats import norm, rankdata
from sklearn.base import is_classifier
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn._batch.cross_fit import cross_fitted, held_out_folds, refuse_fitted
from skbayesnn._data.validation import named_after
from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn._runtime import on_snapshot, one_call, replace_fitted, warn
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    OutlierMixin,
    safe_indexing,
    safe_split,
)
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._validation import check_number
from skbayesnn.estimators.anchored_ensemble import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
)
from skbayesnn.inspection._importance import default_kind

# So many new rows, on whose ranks all models agree, are added to those whose agreement
# is measured: of a few rows it is not known, and too little would be a false alarm.
_ROWS_AGREED_ON = 10
# So many steps in one direction do not happen by chance, and a few groups of rows, one
# after the other, have fewer.
_FEWEST_STEPS = 10
# NumPy's types of times, by the kind that a column has.
_TIMES = {"M": "datetime64[ns]", "m": "timedelta64[ns]"}


class DriftMonitor(OutlierMixin, BaseEstimator):
    """Detects rows that a model is more uncertain about than about its training rows.

    Cross-validation estimates how uncertain a model is about rows that it has not seen
    and that have not drifted. New rows that are more uncertain than nearly all of
    these are flagged; the share of undrifted rows that is flagged by mistake is
    ``false_alarm_rate``. Drift is detected without labels, as far as it leads away from
    the training rows and makes predictions more uncertain. See Notes for what it does
    not detect.

    Parameters
    ----------
    estimator : estimator, default=None
        One that :func:`skbayesnn.predict_uncertainty` takes once it is fitted, of one
        target. None is :class:`~skbayesnn.AnchoredEnsembleRegressor`, or its classifier
        for labels that are strings or booleans; give it for labels that are numbers.
    kind : str, default=None
        A kind of :func:`skbayesnn.predict_uncertainty`; None is ``"epistemic"`` for
        regressors and ``"mutual_information"`` for classifiers.
    false_alarm_rate : float in (0, 1), default=0.01
        Share of undrifted rows that ``predict`` tells. It needs 1 / rate - 1 rows.
    cv : int, splitter or iterable, default=5
        Folds, as in scikit-learn. Rows of a time series want blocks,
        ``KFold(shuffle=False)``, which is what an int is for regressors.
    random_state : int, RandomState instance or None, default=None
        Of the default estimator.

    Attributes
    ----------
    estimators_ : list of fitted estimators
        Each without a fold.
    uncertainty_ : ndarray of shape (n_samples,)
        Out of fold, of the rows that are in one, fold by fold.
    held_out_ : list of ndarray of int
        Numbers of the rows that each of ``estimators_`` has not seen, in the order of
        ``uncertainty_``.
    offset_ : float
        Minus the uncertainty beyond which a row is told.
    one_way_columns_ : ndarray of shape (n_one_way, 3)
        Columns that only rise or only fall from row to row: position, first value and
        last value of each.

    See Also
    --------
    uncertainty_importance : Which column it is.

    Notes
    -----
    Not detected are changes that make no row more uncertain: a sensor that is stuck at
    a usual value, a column whose spread shrinks, many changes of a correlation between
    columns, and whatever changes y alone (more noise, another relation to X). A
    two-sample test of the columns detects a stuck or shrinking column:
    :func:`scipy.stats.ks_2samp` for each one, with the smallest p-value times the
    number of columns. A changed correlation is detected by a classifier that is
    cross-validated to distinguish the training rows from the new ones [1]_.

    A column that only moves forward, such as a date or a row number, makes all new rows
    look drifted. ``fit`` warns about columns that only rise or only fall from row to
    row, and predictions warn where all new rows lie beyond such a column's range.
    Remove the column, or replace it by features that recur (hour, weekday, month).

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

    A stuck sensor is detected by a two-sample test, not by the monitor:

    >>> from scipy.stats import ks_2samp
    >>> X_new = X[300:].copy()
    >>> X_new[:, 0] = 0.5
    >>> bool(monitor.p_value(X_new) > 0.001)
    True
    >>> bool(ks_2samp(X[:300], X_new).pvalue.min() * X.shape[1] < 1e-6)
    True
    """

    estimators_: list[Any]
    uncertainty_: Array
    held_out_: list[Array]
    offset_: float
    one_way_columns_: Array

    def __init__(
        self,
        estimator=None,
        *,
        kind=None,
        false_alarm_rate=0.01,
        cv=5,
        random_state=None,
    ) -> None:
        self.estimator = estimator
        self.kind = kind
        self.false_alarm_rate = false_alarm_rate
        self.cv = cv
        self.random_state = random_state

    @one_call
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Fit a model without each of the folds.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows that have not drifted.
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For an estimator that is fitted already, as in a ``FrozenEstimator``.
        """
        rate = check_number(
            "false_alarm_rate", self.false_alarm_rate, low=0, high=1, open_low=True
        )
        X, y = indexable(X, y)
        estimator = self._estimator(y)
        one_way = _one_way_columns(X)
        _warn_of_one_way(X, one_way)
        of_classes = is_classifier(estimator)
        splits = held_out_folds(self.cv, X, y, of_classes=of_classes)
        with self._named_after_default(estimator):
            refuse_fitted(estimator)
            models = cross_fitted(estimator, X, y, splits)
            of_folds = [
                self._uncertainty(model, safe_split(model, X, y, test, train)[0])
                for model, (train, test) in zip(models, splits, strict=True)
            ]
        of_rows = np.concatenate(of_folds)
        if np.ptp(of_rows) == 0:
            raise ValueError(
                "drift is told by uncertainties that differ from row to row; got "
                f"{of_rows[0]:g} for all. Give an estimator that has some: an "
                "ensemble, or one with draws."
            )
        fitted = {
            "estimators_": models,
            "uncertainty_": of_rows,
            "held_out_": [test for _, test in splits],
            "offset_": -_threshold(of_rows, rate),
            "one_way_columns_": one_way,
        }
        replace_fitted(self, fitted)
        return self

    def fit_predict(self, X: MatrixLike, y: ArrayLike) -> Array:
        """``fit(X, y).predict(X)``; parameters and shapes as there."""
        return self.fit(X, y).predict(X)

    @on_snapshot
    def score_samples(self, X: MatrixLike) -> Array:
        """Minus the models' mean uncertainty: the lower, the further a row has drifted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        score : ndarray of shape (n_samples,)
        """
        return -np.mean(self._of_models(X), axis=0)

    @on_snapshot
    def decision_function(self, X: MatrixLike) -> Array:
        """``score_samples(X) - offset_``: negative for rows that are told.

        Parameters and shapes as in ``score_samples``.
        """
        return self.score_samples(X) - self.offset_

    @on_snapshot
    def predict(self, X: MatrixLike) -> Array:
        """-1 for rows that have drifted, 1 for the others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        is_inlier : ndarray of shape (n_samples,), int
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    @on_snapshot
    def p_value(self, X: MatrixLike) -> float:
        """Whether rows, taken together, are more uncertain than those of the fit.

        Mann and Whitney's test (one-sided), stratified by the models of the folds:
        each ranks the rows among those that it has not seen, and where nothing has
        drifted all these are alike to it. Small drift of many rows shows where no
        single row is told. The rows are to be independent, and not few: ten say
        little.

        The statistic is the mean over the folds' rows; what the new rows contribute to
        its variance goes with how far the models agree on their ranks (Kendall's W).
        What the known rows contribute is counted twice: each is in the training rows
        of other folds' models, so that close rows make each other less uncertain.

        It is a little conservative: of 120 batches of 100 undrifted rows 2.5 % had a p
        value below 0.05, and 18 % below 0.2 (six fits of the default estimator to 150
        rows of four columns).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        p : float
        """
        of_models = self._of_models(X)
        sizes = np.array([len(rows) for rows in self.held_out_])
        of_folds = np.split(self.uncertainty_, np.cumsum(sizes)[:-1])
        shares = [
            _mean_share_below(fold, new)
            for fold, new in zip(of_folds, of_models, strict=True)
        ]
        n_new, n_pairs = len(of_models[0]), len(of_models[0]) * sizes.sum()
        of_new = _agreement(of_models, sizes) / n_new
        variance = (of_new + (1 + 1 / n_new) * _share_of_known(self.held_out_)) / 12
        excess = np.average(shares, weights=sizes) - 0.5 - 0.5 / n_pairs
        return float(norm.sf(excess / np.sqrt(variance)))

    def _of_models(self, X) -> list[np.ndarray]:
        """Uncertainty of the rows to the model of every fold."""
        check_is_fitted(self)
        with self._named_after_default(self.estimators_[0]):
            of_models = [self._uncertainty(model, X) for model in self.estimators_]
        # Monitors of earlier versions do not have them.
        _warn_of_rows_beyond(X, getattr(self, "one_way_columns_", ()))
        return of_models

    def _named_after_default(self, inner) -> AbstractContextManager[None]:
        """Errors are the monitor's own where nobody has given the estimator inside."""
        return named_after(self, inner) if self.estimator is None else nullcontext()

    def _estimator(self, y):
        if self.estimator is not None:
            return self.estimator
        of_classes = np.asarray(y).dtype.kind in "OUSb"
        kind = AnchoredEnsembleClassifier if of_classes else AnchoredEnsembleRegressor
        return kind(random_state=self.random_state)

    def _uncertainty(self, model, X):
        kind = default_kind(model) if self.kind is None else self.kind
        uncertainty: Any = predict_uncertainty(model, X, kind)
        if np.ndim(uncertainty) != 1:
            raise ValueError(
                "drift is told by one kind of uncertainty, of one target; got values "
                f"of shape {np.shape(uncertainty)}. Fit a monitor to each target."
            )
        return uncertainty


def _threshold(of_rows: np.ndarray, rate: float) -> float:
    """What another row exceeds with this probability, with a warning of too few rows.

    Of n + 1 such rows each is as likely the largest: rank (n + 1) (1 - rate).
    """
    n_rows = len(of_rows)
    # In floating point 1 / 0.05 - 1 is a little more than 19.
    if rate * (n_rows + 1) < 1 - 1e-9:
        warn(
            f"false_alarm_rate={rate:g} needs at least {1 / rate - 1:.0f} rows that "
            f"are held out; got {n_rows}: the threshold is the most uncertain one, "
            f"beyond which {1 / (n_rows + 1):.2g} of undrifted rows are. Give more "
            "rows, or expect as many false alarms.",
        )
    return float(np.quantile(of_rows, 1 - rate, method="weibull"))


def _one_way_columns(X) -> np.ndarray:
    """Columns that only rise or only fall from row to row, as a time does.

    Returns
    -------
    columns : ndarray of shape (n_one_way, 3)
        Position, first value and last value of each.
    """
    shape = np.shape(X)
    if sparse.issparse(X) or len(shape) != 2:
        return np.empty((0, 3))
    found = []
    for j in range(shape[1]):
        values = _numbers(X, j)
        steps = np.diff(values)
        one_way = (steps >= 0).all() or (steps <= 0).all()
        if one_way and np.count_nonzero(steps) >= _FEWEST_STEPS:
            found.append((j, values[0], values[-1]))
    return np.array(found).reshape(-1, 3)


def _numbers(X, j: int) -> np.ndarray:
    """Values of a column of numbers or times that are not missing; of others none."""
    column = safe_indexing(X if hasattr(X, "shape") else np.asarray(X), j, axis=1)
    # What pandas makes of times with a zone are objects.
    dtype = _TIMES.get(getattr(column.dtype, "kind", ""))
    try:
        values = np.asarray(column, dtype=dtype)
    except (TypeError, ValueError):
        return np.empty(0)
    if values.dtype.kind not in "iufMm":
        return np.empty(0)
    # Neither NaN nor NaT is equal to itself.
    return values[values == values].astype(np.float64)


def _warn_of_one_way(X, columns: np.ndarray) -> None:
    """Warn about columns that only move forward, before the models are fitted."""
    if len(columns):
        warn(
            "these columns only rise or only fall from row to row, as a time or a row "
            f"number does: {_named(X, columns)}. New rows lie beyond their range and "
            "look drifted for that reason alone. Remove them from X, or replace them "
            "by features that recur (hour, weekday, month). If the rows are merely "
            "sorted, shuffle them."
        )


def _warn_of_rows_beyond(X, columns) -> None:
    """Warn where all rows lie beyond the range of a column that only moves forward."""
    beyond = []
    for one in columns:
        j, first, last = one
        values = _numbers(X, int(j))
        if len(values) and ((values - last) * np.sign(last - first) > 0).all():
            beyond.append(one)
    if beyond:
        warn(
            "all rows lie beyond the training range of columns that only rise or only "
            f"fall from row to row: {_named(X, beyond)}. They look drifted for that "
            "reason alone. Fit the monitor without these columns, or with features "
            "that recur in their place (hour, weekday, month)."
        )


def _named(X, columns) -> str:
    names = getattr(X, "columns", None)
    places = [int(j) for j, _, _ in columns]
    which = [repr(names[j]) if names is not None else str(j) for j in places]
    return ", ".join(which)


def _mean_share_below(known, new) -> float:
    """P(known < new), ties half: Mann and Whitney's statistic, as a share."""
    known = np.sort(known)
    below, up_to = (np.searchsorted(known, new, side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(known)))


def _share_of_known(held_out) -> float:
    """Variance of the mean rank of the held-out rows, as a share of a rank's.

    Two rows that are close make each other less uncertain, as each is trained on where
    the other is held out. What is due to pairs of rows is thus alike in both, and has
    twice the variance of independent ones; without folds that swap there is none.
    """
    # Rows that several folds hold out count as often, and are no more rows by it.
    times = np.unique(np.concatenate(held_out), return_counts=True)[1]
    share = np.square(times).sum() / np.square(times.sum())
    return float(share if len(held_out) == 1 else 2 * share)


def _agreement(of_models, weights) -> float:
    """Kendall's W: the variance of the models' mean ranks, as a share of a rank's.

    Of [Kendall & Babington Smith 1939, "The problem of m rankings", Annals of
    Mathematical Statistics 10], for some more rows than there are.
    """
    n_rows = len(of_models[0])
    ranks = np.average(rankdata(of_models, axis=1), axis=0, weights=weights)
    total = 12 * ranks.var() / (n_rows**2 - 1) * n_rows if n_rows > 1 else 1.0
    return float((total + _ROWS_AGREED_ON) / (n_rows + _ROWS_AGREED_ON))
