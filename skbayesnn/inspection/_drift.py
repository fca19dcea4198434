"""Have rows drifted away from those that a model was fitted to?"""

import numpy as np
from scipy.stats import norm, rankdata
from sklearn.base import BaseEstimator, OutlierMixin, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn._fitted_state import become, prediction
from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn._sklearn_compat import safe_split
from skbayesnn._warnings import warn
from skbayesnn.estimators._validation import check_number
from skbayesnn.estimators.anchored_ensemble import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
)
from skbayesnn.inspection._importance import default_kind
from skbayesnn.model_selection._cross_fit import cross_fitted

# So many new rows, on whose ranks all models agree, are added to those whose agreement
# is measured: of a few rows it is not known, and too little would be a false alarm.
_ROWS_AGREED_ON = 10


class DriftMonitor(OutlierMixin, BaseEstimator):
    """Tells rows of which a model knows less than of rows like those it was fitted to.

    How uncertain such rows may be is learned out of fold, by models that have not seen
    them: a share ``false_alarm_rate`` of them would be told. New rows are judged by the
    same models, of which no more is known than there. Drift is seen as far as it
    matters to predictions and leads away from the rows: noise that grows, or a
    relation that changes in the midst of them, needs labels.

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

    See Also
    --------
    uncertainty_importance : Which column it is.

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
    """

    def __init__(
        self,
        estimator=None,
        *,
        kind=None,
        false_alarm_rate=0.01,
        cv=5,
        random_state=None,
    ):
        self.estimator = estimator
        self.kind = kind
        self.false_alarm_rate = false_alarm_rate
        self.cv = cv
        self.random_state = random_state

    def fit(self, X, y):
        """Fit a model without each of the folds.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows that have not drifted.
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : object
        """
        rate = check_number(
            "false_alarm_rate", self.false_alarm_rate, low=0, high=1, open_low=True
        )
        X, y = indexable(X, y)
        estimator = self._estimator(y)
        splits = list(
            check_cv(self.cv, y, classifier=is_classifier(estimator)).split(X, y)
        )
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
            "held_out_": [np.arange(len(y))[test] for _, test in splits],
            "offset_": -_threshold(of_rows, rate),
        }
        become(self, fitted)
        return self

    def fit_predict(self, X, y):
        """``fit(X, y).predict(X)``; parameters and shapes as there."""
        return self.fit(X, y).predict(X)

    @prediction
    def score_samples(self, X):
        """Minus the models' mean uncertainty: the lower, the further a row has drifted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        score : ndarray of shape (n_samples,)
        """
        return -np.mean(self._of_models(X), axis=0)

    @prediction
    def decision_function(self, X):
        """``score_samples(X) - offset_``: negative for rows that are told.

        Parameters and shapes as in ``score_samples``.
        """
        return self.score_samples(X) - self.offset_

    @prediction
    def predict(self, X):
        """-1 for rows that have drifted, 1 for the others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        is_inlier : ndarray of shape (n_samples,), int
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    @prediction
    def p_value(self, X):
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
        return [self._uncertainty(model, X) for model in self.estimators_]

    def _estimator(self, y):
        if self.estimator is not None:
            return self.estimator
        of_classes = np.asarray(y).dtype.kind in "OUSb"
        kind = AnchoredEnsembleClassifier if of_classes else AnchoredEnsembleRegressor
        return kind(random_state=self.random_state)

    def _uncertainty(self, model, X):
        kind = default_kind(model) if self.kind is None else self.kind
        uncertainty = predict_uncertainty(model, X, kind)
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
    times = np.bincount(np.concatenate(held_out))
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
