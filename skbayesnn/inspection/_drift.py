"""Have rows drifted away from those that a model was fitted to?"""

import numpy as np
from scipy.stats import mannwhitneyu
from sklearn.base import BaseEstimator, OutlierMixin, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn._sklearn_compat import safe_split
from skbayesnn.estimators._validation import check_number
from skbayesnn.estimators.anchored_ensemble import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
)
from skbayesnn.inspection._importance import default_kind
from skbayesnn.model_selection._cross_fit import cross_fitted


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
        Share of undrifted rows that ``predict`` tells.
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
        Out of fold, of the rows that are in one.
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
        of_rows = np.concatenate(
            [
                self._uncertainty(model, safe_split(model, X, y, test, train)[0])
                for model, (train, test) in zip(models, splits, strict=True)
            ]
        )
        if np.ptp(of_rows) == 0:
            raise ValueError(
                "drift is told by uncertainties that differ from row to row; got "
                f"{of_rows[0]:g} for all. Give an estimator that has some: an "
                "ensemble, or one with draws."
            )
        self.estimators_, self.uncertainty_ = models, of_rows
        self.offset_ = -float(np.quantile(of_rows, 1 - rate))
        return self

    def fit_predict(self, X, y):
        """``fit(X, y).predict(X)``; parameters and shapes as there."""
        return self.fit(X, y).predict(X)

    def score_samples(self, X):
        """Minus the models' mean uncertainty: the lower, the further a row has drifted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        score : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        of_models = [self._uncertainty(model, X) for model in self.estimators_]
        return -np.mean(of_models, axis=0)

    def decision_function(self, X):
        """``score_samples(X) - offset_``: negative for rows that are told.

        Parameters and shapes as in ``score_samples``.
        """
        return self.score_samples(X) - self.offset_

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

    def p_value(self, X):
        """Whether rows, taken together, are more uncertain than those of the fit.

        Mann and Whitney's test (one-sided) of their uncertainties against those out of
        fold: small drift of many rows shows where no single row is told. The rows are
        to be independent, and not few: ten say little.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        p : float
        """
        uncertainty = -self.score_samples(X)
        test = mannwhitneyu(uncertainty, self.uncertainty_, alternative="greater")
        return float(test.pvalue)

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
