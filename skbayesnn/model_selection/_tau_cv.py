"""Select tau by cross-validation, as ``RidgeCV`` selects ``alpha``.

Networks with all values of tau are trained in all folds as members of batched programs.
Then the network is fitted to all rows with the best value.
"""

from __future__ import annotations

import time
import warnings
from copy import copy
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context, get_config
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import indexable

from skbayesnn import _validation
from skbayesnn._data.validation import refuse_column_name
from skbayesnn._runtime import replace_fitted, warn_once_per_call
from skbayesnn._sklearn_compat import (
    BaseSearchCV,
    copy_callbacks,
    metrics_of,
    num_samples,
    routing_enabled,
    safe_indexing,
    scorers_of_search,
)
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators import _job
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._defaults import hidden_layer_sizes
from skbayesnn.estimators._job import likelihood_class
from skbayesnn.estimators._progress import check_verbose
from skbayesnn.estimators._training_data import TrainingData, training_data
from skbayesnn.model_selection._search import BatchedGridSearchCV, BestEstimatorMixin
from skbayesnn.scoring import log_density_scorer

# Bounds of precisions if `taus` is an int, in units of 1 / var(y): from a model that
# explains nothing to a noise with 3 % of the standard deviation of y.
NOISE_BOUNDS = (1.0, 1e3)
# Bounds of inverse temperatures if `taus` is an int: two decades on either side of 1.
TEMPERED_BOUNDS = (1e-2, 1e2)


class TauCV(BestEstimatorMixin, BaseSearchCV):
    """Select the precision tau of a network by cross-validation.

    Use it if ``tau="auto"`` is not good enough, or to compare precisions as in [1]_.
    ``tau="auto"`` estimates the observation noise once; ``TauCV`` scores each value on
    held-out rows. It trains one network per tau and fold, all together in a few
    programs, and then one network on all rows. For classifiers tau is the inverse
    temperature of p(y | f)^tau: 1 is Bayes' rule, larger values give a narrower
    posterior [2]_, and tau / l^2 acts as ``C`` of
    :class:`~sklearn.linear_model.LogisticRegressionCV`.

    Parameters
    ----------
    estimator : estimator
        A single network of this package, such as :class:`MCDropoutRegressor`,
        :class:`AnchoredEnsembleClassifier` or :class:`VariationalGPRegressor`. Its own
        ``tau`` is ignored. Put ``TauCV`` last in a ``Pipeline``, not around it; use
        :class:`BatchedGridSearchCV` to search other parameters too.
    taus : int or array-like of shape (n_taus,) or (n_taus, n_targets), default=10
        Leave the default unless the best value is the first or the last. An array
        contains the values to try: precisions 1 / noise variance, with y in its own
        units, one for all targets or one per target. An int is the number of values,
        spaced geometrically from 1 / var(y) to 1000 / var(y) per target; for
        classifiers and counts from 0.01 to 100.
    cv : int, splitter or iterable of (train, test), default=None
        Folds, as in scikit-learn: None is 5, stratified for classifiers.
    scoring : str or callable, default=None
        Leave the default unless you need another score than the predictive density. It
        must be a single score, larger is better. None is the mean log density of the
        test rows (``skbayesnn.scoring.log_density_scorer``), a proper score; the method
        ``score`` then returns the network's score (R^2 or accuracy).
    n_jobs : int, default=None
        As in :class:`BatchedGridSearchCV`.
    verbose : "auto", bool or int, default="auto"
        As in :class:`BatchedGridSearchCV`, for the search; there are no messages of
        scikit-learn.

    Attributes
    ----------
    best_estimator_ : estimator
        The network with the best tau, fitted to all rows. ``TauCV`` delegates
        ``predict``, ``predict_proba``, ``predict_uncertainty``, ``predict_interval``
        and so on to it.
    tau_ : float or ndarray of shape (n_targets,)
        The best tau: 1 / noise variance, with y in its own units.
    taus_ : ndarray of shape (n_taus,) or (n_taus, n_targets)
        The values tried.
    scores_ : ndarray of shape (n_taus, n_folds)
        Scores of the test rows.
    best_score_ : float
        Mean score of the best tau over the folds.
    cv_results_, best_params_, best_index_, scorer_, n_splits_, refit_time_, \
multimetric_, classes_, n_features_in_, feature_names_in_
        As in scikit-learn's searches.

    See Also
    --------
    BatchedGridSearchCV : A search over any parameters.
    skbayesnn.plotting.TauPathDisplay : Plot the scores over tau.

    Notes
    -----
    If the best tau is the first or last of ``taus_``, try a wider range. All fits of
    one search use the same ``random_state``: one seed is drawn from None or an
    instance. The search does not select the number of epochs or the length scale on
    held-out rows; it fixes them at their default values, because they have the same
    effect as tau.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "Dropout as a Bayesian approximation:
       representing model uncertainty in deep learning", arXiv:1506.02142.
    .. [2] Wenzel et al. (2020), "How good is the Bayes posterior in deep neural
       networks really?", arXiv:2002.02405.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import MCDropoutRegressor
    >>> from skbayesnn.model_selection import TauCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> network = MCDropoutRegressor(max_iter=20, random_state=0)
    >>> model = TauCV(network, taus=4, cv=3).fit(X, y)
    >>> model.scores_.shape
    (4, 3)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    taus: Any
    tau_: Any
    taus_: Array
    scores_: Array

    # BaseSearchCV reads these; they are not parameters here.
    refit = True
    pre_dispatch = "2*n_jobs"
    error_score = np.nan
    return_train_score = False

    def __init__(
        self,
        estimator,
        taus=10,
        *,
        cv=None,
        scoring=None,
        n_jobs=None,
        verbose="auto",
    ) -> None:
        self.estimator = estimator
        self.taus = taus
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.verbose = verbose

    @warn_once_per_call
    def fit(  # type: ignore[override]
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Select tau by cross-validation, then fit the network to all rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets, or labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the likelihood and in the default score. Any other
            ``scoring`` gets them as in scikit-learn's searches. Rows with weight zero
            are in no fold.
        X_val, y_val : array-like, default=None
            Validation set for early stopping; it is in no fold. By default each fit
            uses ``validation_fraction`` of its training rows.
        groups : array-like of shape (n_samples,), default=None
            Groups of the rows, for the splitter and for the rows that early stopping
            holds out.

        Returns
        -------
        self : object
            The fitted estimator. An error or an interruption leaves it unchanged.
        """
        network = self._network()
        refuse_column_name(type(self).__name__, y)
        data = training_data(network, X, y, sample_weight, X_val, y_val, groups)
        taus = self._taus_to_try(network, data)
        network.set_params(**_fixed_settings(network, data, taus[0]))
        _validation.device_for_fit(network.device)
        fit_params: dict[str, Any] = {
            "sample_weight": sample_weight,
            "X_val": X_val,
            "y_val": y_val,
            "groups": groups,
        }
        fit_params = {n: value for n, value in fit_params.items() if value is not None}
        splits = self._splits(X, y, groups, data.rows)
        if self.scoring is None and data.classes is not None:
            _check_labels(splits, data.table, data.classes)
        search = self._fit_search(network, taus, splits, X, y, fit_params)
        start = time.perf_counter()
        network.set_params(tau=taus[search.best_index_]).fit(X, y, **fit_params)
        fitted = {
            name: getattr(search, name)
            for name in (
                "best_index_",
                "best_params_",
                "cv_results_",
                "multimetric_",
                "n_splits_",
            )
        }
        fitted |= {
            "best_estimator_": network,
            "best_score_": float(search.best_score_),
            "refit_time_": time.perf_counter() - start,
            "tau_": network.tau_,
            "taus_": np.array(taus),
            "scores_": _test_scores(search),
            "scorer_": metrics_of(scorers_of_search(self)[0]),
        }
        if hasattr(network, "feature_names_in_"):
            fitted["feature_names_in_"] = network.feature_names_in_
        replace_fitted(self, fitted)
        return self

    def _network(self) -> BayesianNetwork:
        """A clone of the estimator with an integer seed, which all fits share."""
        if not isinstance(self.estimator, BayesianNetwork):
            raise TypeError(
                "`estimator` must be a single network of this package; got "
                f"{type(self.estimator).__name__}. Put TauCV last in a Pipeline, or "
                "search tau with BatchedGridSearchCV."
            )
        network = clone(self.estimator)
        if not isinstance(network.random_state, Integral):
            source = _validation.random_source(network.random_state)
            network.set_params(random_state=source.randint(2**31 - 1))
        return network

    def _taus_to_try(self, network: BayesianNetwork, data: TrainingData) -> list:
        """The values of tau to try: floats, or lists with one float per target."""
        if isinstance(self.taus, Integral):
            n = _validation.check_number("taus", self.taus, kind=Integral, low=1)
            is_classification = "classes_" in data.target_attributes
            likelihood_type = likelihood_class(
                network.likelihood, is_classification=is_classification
            )
            if likelihood_type.tempered:
                return np.geomspace(*TEMPERED_BOUNDS, n).tolist()
            return _precision_grid(n, data, likelihood_type.robust).tolist()
        values = np.asarray(self.taus, dtype=object)
        if values.ndim not in (1, 2) or values.size == 0:
            raise TypeError(
                "`taus` must be the number of values to try, or an array of them of "
                "shape (n_taus,) or, one per target, (n_taus, n_targets); got "
                f"{self.taus!r}."
            )
        for value in values.flat:
            _validation.check_number("taus", value, low=0, open_low=True)
        return values.astype(float).tolist()

    def _splits(self, X, y, groups, rows) -> list[tuple]:
        """Folds of ``rows``, the rows with positive weight.

        An iterable of folds in ``cv`` is returned unchanged.
        """
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        parts = indexable(X, y, groups)
        is_given = self.cv is not None and not isinstance(self.cv, Integral)
        is_given = is_given and not hasattr(self.cv, "split")
        if is_given or len(rows) == num_samples(X):
            return list(cv.split(*parts))
        used = [None if part is None else safe_indexing(part, rows) for part in parts]
        return [(rows[train], rows[test]) for train, test in cv.split(*used)]

    def _fit_search(
        self, network, taus, splits, X, y, fit_params
    ) -> BatchedGridSearchCV:
        """Fit the search over tau."""
        scoring = self.scoring
        if not (scoring is None or isinstance(scoring, str) or callable(scoring)):
            raise TypeError(
                f"`scoring` must be None, a name or a callable; got {scoring!r}. For "
                "several scores use BatchedGridSearchCV."
            )
        # In some versions of scikit-learn weights reach a scorer only by routing.
        routed = scoring is None or get_config()["enable_metadata_routing"]
        with config_context(enable_metadata_routing=routed), warnings.catch_warnings():
            # Ignore the warnings of the folds; the final fit raises its own.
            warnings.simplefilter("ignore", ConvergenceWarning)
            if routed:
                # Set the request on a clone, so that the best estimator has none.
                network = clone(network).set_fit_request(
                    sample_weight=True, X_val=True, y_val=True, groups=True
                )
            if scoring is None:
                scoring = log_density_scorer.set_score_request(sample_weight=True)
            verbose = check_verbose(self.verbose)
            search = SearchOverTau(
                network,
                {"tau": taus},
                scoring=scoring,
                n_jobs=self.n_jobs,
                refit=False,
                cv=splits,
                verbose="auto" if verbose is None else min(verbose, 1),
            )
            copy_callbacks(self, search)
            search.fit(X, y, **fit_params)
        # An interrupted search returns partial results; TauCV needs all of them.
        if len(search.cv_results_["params"]) < len(taus):
            raise KeyboardInterrupt
        if search.multimetric_:
            raise ValueError(
                f"`scoring` must return one number; got several from {scoring!r}. For "
                "several scores use BatchedGridSearchCV."
            )
        if not np.isfinite(search.best_score_):
            means = search.cv_results_["mean_test_score"].tolist()
            raise ValueError(
                "at least one tau must have finite scores in all folds; got the mean "
                f"scores {means}. The default score is minus infinity if a test row "
                "has a label that no training row has: give fewer folds, or another "
                "`scoring`."
            )
        return search


class SearchOverTau(BatchedGridSearchCV):
    """Grid search whose networks get the groups, with or without metadata routing."""

    def _title(self):
        return "TauCV"

    def _inputs(self, X, y, params):
        inputs = super()._inputs(X, y, params)
        if "groups" in params and not routing_enabled():
            inputs.routed.estimator.fit["groups"] = params["groups"]
        return inputs


def _fixed_settings(network: BayesianNetwork, data: TrainingData, tau) -> dict:
    """Parameters that the fits of all folds share with the fit to all rows.

    They include the first ``tau``, with which all parameters are checked once here,
    rather than for every member.
    """
    settings: dict[str, Any] = {"tau": tau}
    by_class = getattr(network, "class_weight", None)
    if isinstance(by_class, dict):
        # scikit-learn raises if a label with a weight is missing from a fold.
        every_class = dict.fromkeys(data.target_attributes["classes_"].tolist(), 1.0)
        settings["class_weight"] = every_class | by_class
    network = copy(network).set_params(**settings)
    job = _job.training_job(network, data)
    if "hidden_layer_sizes" in network.get_params(deep=False):
        # The best tau depends on the width: use the final fit's width in the folds.
        settings["hidden_layer_sizes"] = hidden_layer_sizes(network, job.total_weight)
    if job.needs_selection:
        # tau has the same effect as the number of epochs and the length scale:
        # weight_decay_ is proportional to l^2 / tau.
        settings["max_iter"] = int(job.members.n_epochs[0])
        settings["length_scale"] = job.length_scale.tolist()
    return settings


def _check_labels(splits, table, classes) -> None:
    """Raise if a test row of a fold has a label that no training row of it has."""
    rows = np.arange(table.n_rows)
    for fold, (train, test) in enumerate(splits):
        in_training, in_test = (
            np.unique(table.y[part[table.sample_weight[part] > 0]])
            for part in (rows[train], rows[test])
        )
        new = np.setdiff1d(in_test, in_training)
        if len(new):
            raise ValueError(
                "the training rows of a fold must have all labels of its test rows, or "
                "the default score is minus infinity; got "
                f"{classes[new].tolist()} only in the test rows of fold {fold}. "
                "Give fewer folds, a `cv` that stratifies or shuffles, or another "
                "`scoring`."
            )


def _test_scores(search) -> np.ndarray:
    """Scores of the test rows, (candidates, folds)."""
    results, n = search.cv_results_, search.n_splits_
    return np.stack([results[f"split{i}_test_score"] for i in range(n)], axis=1)


def _precision_grid(n: int, data: TrainingData, robust: bool) -> np.ndarray:
    """n geometrically spaced precisions: (n,), or (n, targets) for several targets."""
    table, rows = data.table, data.rows
    weights = table.sample_weight[rows]
    scaled = {"inputs": True, "targets": True, "robust": robust}
    scaling = data.scaling(rows, weights, **scaled)
    path = np.geomspace(*NOISE_BOUNDS, n)[:, None] * scaling.signal_precision()
    return path[:, 0] if path.shape[1] == 1 else path
