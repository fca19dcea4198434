"""Bayesian stacking of classifiers."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.validation import (
    check_labels,
    check_target_given,
    refuse_one_class,
)
from skbayesnn._runtime import on_snapshot
from skbayesnn._sklearn_compat import ClassifierMixin
from skbayesnn._stacking.base import BayesianStacking
from skbayesnn._stacking.summary import of_classes, warn_if_no_class_is_told
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._validation import weights_of_classes


class BayesianStackingClassifier(ClassifierMixin, BayesianStacking):
    """A weighted mixture of Bayesian neural networks that chooses itself.

    As :class:`BayesianStackingRegressor`: a pool of candidates is trained out of fold,
    their weights make the held-out labels the likeliest [1]_, and those with weight are
    fitted to all rows.

    Parameters
    ----------
    estimators : "auto" or list of tuple, default="auto"
        The pool. ``"auto"``: networks of two hidden layers, of several length scales
        and dropout rates, on the columns as they are and with
        :class:`~skbayesnn.preprocessing.PiecewiseLinearEncoder` in front; and
        logistic regressions. A sparse X of at most 256 columns is dense for them, if
        it has at most 2^25 entries then. See Notes for few rows and many columns. Or
        (name, estimator) or (name, estimator, grid of its parameters), with estimators
        of this package, also as the last step of a ``Pipeline``.
    cv : int, cross-validation generator or iterable, default=None
        Folds, stratified. None is five with fewer than 700 rows, and one held-out
        fifth from there on. Numbers mean shuffled folds. Rows in time order need
        ``TimeSeriesSplit``: with shuffled folds ``summary_`` says nothing about the
        future.
    n_refits : int, default=2
        Networks of each candidate with weight, from different starts, fitted to all
        rows; its own ``n_estimators`` where that is more.
    max_iter : "auto" or int, default="auto"
        Epochs of the default candidates.
    class_weight : dict, "balanced" or None, default=None
        Of the labels, as in scikit-learn; multiplies the weights of the rows.
    n_jobs : int, default=None
        Programs that are trained side by side, each in a process of joblib's; None is
        one, in this process, -1 all processors. Dask and Ray by
        ``joblib.parallel_config``, as for
        :class:`~skbayesnn.model_selection.BatchedGridSearchCV`.
    memory_budget : float, default=None
        Mebibytes that the networks in training may take; None is scikit-learn's
        ``working_memory``.
    device : str or torch.device, default="auto"
        Of the default candidates.
    verbose : bool or int, default=False
        From 1 (True) on, print what is done, how long that may still take, and
        ``summary_``.
    random_state : int, RandomState instance or None, default=None
        Determines folds and candidates.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    weights_ : DataFrame
        ``"weight"`` and mean out-of-fold ``"log_density"`` (nats) of every candidate,
        the heaviest first; without pandas a dict of
        dicts, ``weights_["weight"][name]`` in both.
    estimators_ : list of estimator
        The candidates with weight, fitted to all rows. As the trees of a forest, they
        take X as an array: ``X.to_numpy()`` for a frame.
    n_draws_ : ndarray of int
        Of each of these in the mixture, 200 in all.
    spread_factor_ : ndarray of shape (1,)
        Temperature of the draws' probabilities, p^(1 / T) normalised: that under which
        the held-out labels are the likeliest, with a prior that holds it near one.
    oof_prediction_ : ndarray of shape (n_samples, n_classes)
        Probabilities that the mixture gives each row without having seen it. NaN for
        rows that were never held out.
    oof_log_density_ : ndarray of shape (n_samples,)
        Log probability of the label there, nats.
    summary_ : Summary
        Of these, in one line (weights and factor have seen these rows, networks have
        not): ``print(model.summary_)``. Its log density is the mean of
        ``oof_log_density_``, in nats per row: compare it with ``weights_`` and with
        other models of the same labels. The shares p of the classes have the sum of
        p log(p).
    n_iter_ : int
        Epochs of the longest fit to all rows.
    fitted_to_sparse_ : bool or None
        Whether X was a sparse matrix; None of estimators that were given.
    n_features_in_, feature_names_in_
        The latter where X has names and the pool is the default.

    Notes
    -----
    With fewer than 700 rows, or more than one column per five rows, the logistic
    regressions have ridge and lasso penalties, four strengths of each; of more than two
    classes, each is fitted against the others. Their posterior is normal, given
    Polya-Gamma variables at their expectations [2]_. They need 10 to 1,000 rows and at
    most 2^22 entries of X; beyond, logistic regressions are trained like the networks.
    With at least as many columns as rows, there are no networks on encoded columns.

    Candidates are left out before weighting if their predictions are constant (unless
    no other candidate is likelier), or if they equal another one.

    References
    ----------
    .. [1] Yao, Vehtari, Simpson & Gelman (2018), "Using stacking to average Bayesian
       predictive distributions", Bayesian Analysis 13(3).
    .. [2] Polson, Scott & Windle (2013), "Bayesian inference for logistic models using
       Polya-Gamma latent variables", JASA 108(504).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayesnn import BayesianStackingClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianStackingClassifier(max_iter=5, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    """

    classes_: Array
    _of_classes = True

    def __init__(
        self,
        estimators="auto",
        *,
        cv=None,
        n_refits=2,
        max_iter="auto",
        class_weight=None,
        n_jobs=None,
        memory_budget=None,
        device="auto",
        verbose=False,
        random_state=None,
    ) -> None:
        self.estimators = estimators
        self.cv = cv
        self.n_refits = n_refits
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @on_snapshot
    def predict(self, X: MatrixLike) -> Array:
        """The class of the largest mean probability.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]

    @on_snapshot
    def predict_proba(self, X: MatrixLike) -> Array:
        """Mean over the draws of the class probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        probability : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return np.concatenate([one.mean() for _, one in self._blocks(X)])

    @on_snapshot
    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _checked_targets(self, y):
        check_target_given(self, y)
        y = check_labels(y)
        self._check_weighted(y)
        return y

    def _check_weighted(self, y):
        refuse_one_class(self, np.unique(y))

    def _class_weights(self, y):
        if self.class_weight is None:
            return None
        return weights_of_classes(self.class_weight, y)

    def _summary(self, mixture, oof):
        log_density = mixture.log_density(oof.y)
        warn_if_no_class_is_told(log_density, oof.y, oof.weights, oof.X)
        return of_classes(mixture, oof.y, oof.weights)

    def _out_of_fold(self, oof, mixture):
        # Not each is among those that the folds have seen.
        classes = np.unique(oof.table.y)
        mixture = mixture.among(classes)
        return {
            "classes_": classes,
            "oof_prediction_": oof.by_row(mixture.mean()),
            "oof_log_density_": oof.by_row(mixture.log_density(oof.y)),
        }
