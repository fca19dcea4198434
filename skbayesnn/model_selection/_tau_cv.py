"""Estimators that select tau by cross-validation, as ``RidgeCV`` is to ``Ridge``.

All values of tau in all folds are trained as members of batched programs. Then the
estimator is fitted to all rows with the best value.
"""

import warnings
from numbers import Integral
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context, get_config
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import indexable

from skbayesnn import _validation
from skbayesnn._runtime import atomic_update, one_call
from skbayesnn._sklearn_compat import (
    available_if,
    num_samples,
    safe_indexing,
    with_callbacks,
)
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators import _fit, _job
from skbayesnn.estimators._base import BayesianNetwork, set_fitted, warn_if_doubtful
from skbayesnn.estimators._job import likelihood_class
from skbayesnn.estimators._training_data import TrainingData, prepare
from skbayesnn.estimators.bayes_by_backprop import BBBClassifier, BBBRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators.variational_dropout import (
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)
from skbayesnn.model_selection._search import BatchedGridSearchCV
from skbayesnn.scoring import log_density_scorer

# ---- selection of tau

# Ends of a path of which only the length is given. Precisions of noise, in units of
# y's own: from a model that explains nothing to noise of 3 % of y's standard deviation.
# Inverse temperatures: two decades to either side of the plain likelihood.
NOISE_ENDS, TEMPERED_ENDS = (1.0, 1e3), (1e-2, 1e2)


class TauPathCV(BayesianNetwork):
    """Base of the estimators that find their tau.

    A class names the plain one, ``_plain``, and has its parameters but ``tau`` and
    ``warm_start``. Constructors list them in full: that is where ``get_params``,
    editors and type checkers look.
    """

    _plain: type[BayesianNetwork]
    likelihood: str
    taus: Any
    cv: Any
    scoring: Any
    n_jobs: int | None
    taus_: Array
    scores_: Array
    best_score_: float
    verbose: bool | int
    random_state: Any

    @with_callbacks
    @one_call
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose tau by cross-validation, and fit the posterior to all rows with it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Numbers. Predictions of float32 are float32, unless that cannot resolve y
            (its mean is more than 800 standard deviations from zero); all others are
            float64.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets, or labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the likelihood, and in the default score. To another
            ``scoring`` they are given as scikit-learn's searches give them.
        X_val, y_val : array-like, default=None
            Rows outside of all folds that decide when to stop, with
            ``early_stopping=True``; by default ``validation_fraction`` of the training
            rows of each fit.
        groups : array-like of shape (n_samples,), default=None
            Groups of the rows, given to the splitter.

        Returns
        -------
        self : object
            The fitted estimator. After an error or an interruption it is as it was
            before.
        """
        with atomic_update(self) as new:
            prepared = prepare(new, X, y, sample_weight, X_val, y_val)
            taus = self._path(prepared)
            network = self._network().set_params(tau=taus[0])
            by_class = getattr(self, "class_weight", None)
            if isinstance(by_class, dict):
                # scikit-learn refuses one that names labels which a fold has not.
                of_all = dict.fromkeys(prepared.of_y["classes_"].tolist(), 1.0)
                network.set_params(class_weight=of_all | by_class)
            # What is wrong is told here once, and not for every member.
            task = _job.task_of(network, prepared)
            # tau goes with the width: folds have that of all rows.
            widths = network._hidden_layer_sizes(task.total_weight)
            network.set_params(hidden_layer_sizes=widths)
            if task.needs_selection:
                # tau does what a shorter training would, and what choosing the scale
                # would: weight_decay_ goes with l^2 / tau.
                network.set_params(
                    max_iter=int(task.members.n_epochs[0]),
                    length_scale=task.length_scale.tolist(),
                )
            _validation.device_for_fit(network.device)
            given = {"sample_weight": sample_weight, "X_val": X_val, "y_val": y_val}
            splits = self._splits(X, y, groups, prepared.rows)
            if self.scoring is None and prepared.classes is not None:
                _check_labels(splits, prepared.table, prepared.classes)
            search = self._searched(
                network,
                taus,
                splits,
                X,
                y,
                {name: value for name, value in given.items() if value is not None},
            )
            task = _job.task_of(
                network.set_params(tau=taus[search.best_index_]), prepared
            )
            [fitted] = _fit.train_together([self], [task])
            set_fitted(new, prepared, fitted)
            warn_if_doubtful(new, prepared, fitted)
            new.taus_ = np.array(taus)
            new.scores_ = _scores_of(search)
            new.best_score_ = float(search.best_score_)
        return self

    @available_if(lambda self: False)
    def partial_fit(self, *args: Any, **params: Any) -> NoReturn:
        """There is none: of rows that come as a stream, none can be held out."""
        raise NotImplementedError

    def _path(self, prepared: TrainingData) -> list:
        """The candidates: numbers, or lists of one per target."""
        if isinstance(self.taus, Integral):
            n = _validation.check_number("taus", self.taus, kind=Integral, low=1)
            of_classes = "classes_" in prepared.of_y
            kind = likelihood_class(self.likelihood, of_classes=of_classes)
            if kind.tempered:
                return np.geomspace(*TEMPERED_ENDS, n).tolist()
            return _spaced(n, prepared, kind.robust).tolist()
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

    def _network(self) -> BayesianNetwork:
        """The plain estimator, tau apart, whose copies have the same randomness."""
        shared = self._plain().get_params().keys() & self.get_params().keys()
        network = self._plain(**{name: getattr(self, name) for name in shared})
        if not isinstance(self.random_state, Integral):
            source = _validation.random_source(self.random_state)
            network.set_params(random_state=source.randint(2**31 - 1))
        return network

    def _splits(self, X, y, groups, rows) -> list[tuple]:
        """Folds of the rows of positive weight ``rows``; given ones as they are."""
        cv = check_cv(self.cv, y, classifier=is_classifier(self))
        parts = indexable(X, y, groups)
        given = self.cv is not None and not isinstance(self.cv, Integral)
        given = given and not hasattr(self.cv, "split")
        if given or len(rows) == num_samples(X):
            return list(cv.split(*parts))
        there = [None if part is None else safe_indexing(part, rows) for part in parts]
        return [(rows[train], rows[test]) for train, test in cv.split(*there)]

    def _searched(self, network, taus, splits, X, y, given) -> BatchedGridSearchCV:
        """The search over tau, fitted."""
        scoring = self.scoring
        if not (scoring is None or isinstance(scoring, str) or callable(scoring)):
            raise TypeError(
                f"`scoring` must be None, a name or a callable; got {scoring!r}. For "
                "several scores there is BatchedGridSearchCV."
            )
        shown = _validation.verbosity(self.verbose) > 0
        # In all versions of scikit-learn it is routing that brings weights to a scorer.
        routed = scoring is None or get_config()["enable_metadata_routing"]
        with config_context(enable_metadata_routing=routed), warnings.catch_warnings():
            # Those of the folds; the last fit has its own.
            warnings.simplefilter("ignore", ConvergenceWarning)
            if routed:
                network.set_fit_request(sample_weight=True, X_val=True, y_val=True)
            if scoring is None:
                scoring = log_density_scorer.set_score_request(sample_weight=True)
            search = BatchedGridSearchCV(
                network,
                {"tau": taus},
                scoring=scoring,
                n_jobs=self.n_jobs,
                refit=False,
                cv=splits,
                verbose=int(shown),
            ).fit(X, y, **given)
        # An interrupted search keeps what it has; an estimator is fitted or is not.
        if len(search.cv_results_["params"]) < len(taus):
            raise KeyboardInterrupt
        if search.multimetric_:
            raise ValueError(
                f"`scoring` must give one number; got several from {scoring!r}. For "
                "several scores there is BatchedGridSearchCV."
            )
        if not np.isfinite(search.best_score_):
            means = search.cv_results_["mean_test_score"].tolist()
            raise ValueError(
                "some tau must have a finite score in all folds; got the means "
                f"{means}. The default score is minus infinity where a test row has a "
                "label that no training row has: give fewer folds, or another "
                "`scoring`."
            )
        return search


def _check_labels(splits, table, classes) -> None:
    """Refuse folds whose test rows have labels that none of their training rows has."""
    rows = np.arange(table.n_rows)
    for number, (train, test) in enumerate(splits):
        trained, asked = (
            np.unique(table.y[part[table.sample_weight[part] > 0]])
            for part in (rows[train], rows[test])
        )
        new = np.setdiff1d(asked, trained)
        if len(new):
            raise ValueError(
                "the test rows of a fold must have labels that its training rows have, "
                "or the default score is minus infinity; got "
                f"{classes[new].tolist()} in the test rows of fold {number} alone. "
                "Give fewer folds, a `cv` that stratifies or shuffles them, or another "
                "`scoring`."
            )


def _scores_of(search) -> np.ndarray:
    """Scores of the test rows, (candidates, folds)."""
    results, n = search.cv_results_, search.n_splits_
    return np.stack([results[f"split{i}_test_score"] for i in range(n)], axis=1)


def _spaced(n: int, prepared: TrainingData, robust: bool) -> np.ndarray:
    """n precisions with equal ratios, (n,), or (n, targets) where y has several."""
    table, rows = prepared.table, prepared.rows
    weights = table.sample_weight[rows]
    which = {"inputs": True, "targets": True, "robust": robust}
    scaling = prepared.scaling(rows, weights, **which)
    path = np.geomspace(*NOISE_ENDS, n)[:, None] * scaling.signal_precision()
    return path[:, 0] if path.shape[1] == 1 else path


# ---- the estimators


class MCDropoutRegressorCV(TauPathCV, MCDropoutRegressor):
    """Monte Carlo dropout whose noise precision is chosen by cross-validation.

    :class:`MCDropoutRegressor` with ``taus`` for ``tau``, and without ``warm_start``:
    all taus in all folds are trained as members of a few batched programs, and then
    the estimator itself on all rows with the best one. ``tau="auto"`` learns the noise
    of the training rows; here it is chosen by the density of rows held out, as in [1]_.

    Parameters
    ----------
    taus : int or array-like of shape (n_taus,) or (n_taus, n_targets), default=10
        What is tried: precisions in y's own units, 1 / noise variance, for all targets
        or one per target. An int is that many with equal ratios from 1 / var(y), where
        all of y is noise, to 1000 / var(y), for each target by itself; of counts, whose
        tau is an inverse temperature, from 0.01 to 100.
    cv : int, splitter or iterable of (train, test), default=None
        The folds, as in scikit-learn; None are 5.
    scoring : str or callable, default=None
        One score, larger is better. None is the mean log density of the test rows
        (``skbayesnn.scoring.log_density_scorer``): a proper score, which looks at the
        noise as well as at the mean.
    n_jobs : int, default=None
        As in :class:`BatchedGridSearchCV`.
    hidden_layer_sizes, activation, network, dropout, noise, length_scale, likelihood, \
likelihood_options, n_estimators, n_draws, n_training_draws, standardize, batch_size, \
learning_rate, learning_rate_init, max_iter, early_stopping, validation_fraction, \
n_iter_no_change, tol, device, dtype
        As in :class:`MCDropoutRegressor`.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the training, whatever X's own; ``"float64"`` takes up to twice as
        long. The scaling is done in X's precision before, and predictions have it.
    verbose : bool or int, default=False
        From 1 (True) on, show progress bars with the time left (needs tqdm): of the
        search, and of the last fit.
    random_state : int, RandomState instance or None, default=None
        As in :class:`MCDropoutRegressor`, the same for all fits: an instance, or
        None, gives one seed. The splits are those of ``cv``.

    Attributes
    ----------
    taus_ : ndarray of shape (n_taus,) or (n_taus, n_targets)
        What was tried.
    scores_ : ndarray of shape (n_taus, n_folds)
        Scores of the test rows.
    best_score_ : float
        The best mean over the folds.
    tau_ : float or ndarray of shape (n_targets,)
        The tau of that score, y's units.
    noise_std_, dropout_, weight_decay_, tau_training_, weight_decay_training_, elbo_, \
elbo_std_error_, history_, loss_curve_, n_iter_, n_features_in_, feature_names_in_, \
parameters_, network_, seeds_, optimizer_, x_mean_, x_scale_, y_mean_, y_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    BatchedGridSearchCV : Over other parameters too, with all options of a search.
    skbayesnn.plotting.TauPathDisplay : A picture of the path.

    Notes
    -----
    A best tau at an end of ``taus_`` asks for a longer path. Warnings about convergence
    are those of the last fit. There is no ``partial_fit``: rows that come one after
    another are for an ``MCDropoutRegressor(tau=model.tau_)``.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "Dropout as a Bayesian approximation:
       representing model uncertainty in deep learning", arXiv:1506.02142.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn.model_selection import MCDropoutRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MCDropoutRegressorCV(taus=4, cv=3, max_iter=20, random_state=0)
    >>> model.fit(X, y).scores_.shape
    (4, 3)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    _plain = MCDropoutRegressor

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        activation="relu",
        *,
        network=None,
        taus=10,
        cv=None,
        scoring=None,
        dropout=0.01,
        noise="bernoulli",
        length_scale="auto",
        likelihood="gaussian",
        likelihood_options=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        n_jobs=None,
        device="auto",
        dtype="float32",
        verbose=False,
        random_state=None,
    ) -> None:
        self._store(locals())


class MCDropoutClassifierCV(TauPathCV, MCDropoutClassifier):
    """Monte Carlo dropout classifier whose tau is chosen by cross-validation.

    :class:`MCDropoutClassifier` with ``taus`` for ``tau``, the inverse temperature of
    p(y | f)^tau, and without ``warm_start``. It weighs the labels against the prior,
    weight_decay_ = p l^2 / (2 N tau): tau / l^2 is what ``C`` is to
    :class:`~sklearn.linear_model.LogisticRegressionCV`. 1 is Bayes' rule; above it the
    posterior is narrower, as the cold posteriors of [1]_. ``length_scale="auto"`` is 1,
    however few the rows are: tau does what choosing l would.

    Parameters
    ----------
    taus : int or array-like of shape (n_taus,), default=9
        What is tried: inverse temperatures of the likelihood. An int is that many with
        equal ratios from 0.01 to 100; of an odd number the middle one is 1.
    cv : int, splitter or iterable of (train, test), default=None
        The folds, stratified, as in scikit-learn; None are 5.
    scoring : str or callable, default=None
        One score, larger is better. None is the mean log probability of the test
        rows' labels (``skbayesnn.scoring.log_density_scorer``), a proper score.
    n_jobs : int, default=None
        As in :class:`BatchedGridSearchCV`.
    hidden_layer_sizes, activation, network, dropout, noise, length_scale, likelihood, \
class_weight, n_estimators, n_draws, n_training_draws, standardize, batch_size, \
learning_rate, learning_rate_init, max_iter, early_stopping, validation_fraction, \
n_iter_no_change, tol, device, dtype
        As in :class:`MCDropoutClassifier`.
    verbose, random_state
        As in :class:`MCDropoutRegressorCV`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    taus_ : ndarray of shape (n_taus,)
        What was tried.
    scores_, best_score_
        As in :class:`MCDropoutRegressorCV`.
    tau_ : float
        The tau of the best score.
    dropout_, weight_decay_, tau_training_, weight_decay_training_, elbo_, \
elbo_std_error_, history_, loss_curve_, n_iter_, n_features_in_, feature_names_in_, \
parameters_, network_, seeds_, optimizer_, x_mean_, x_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    MCDropoutRegressorCV : The same for numbers.

    References
    ----------
    .. [1] Wenzel et al. (2020), "How good is the Bayes posterior in deep neural
       networks really?", arXiv:2002.02405.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skbayesnn.model_selection import MCDropoutClassifierCV
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MCDropoutClassifierCV(taus=5, cv=3, max_iter=20, random_state=0)
    >>> model.fit(X, y).taus_
    array([1.e-02, 1.e-01, 1.e+00, 1.e+01, 1.e+02])
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    _plain = MCDropoutClassifier

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        activation="relu",
        *,
        network=None,
        taus=9,
        cv=None,
        scoring=None,
        dropout=0.1,
        noise="bernoulli",
        length_scale="auto",
        likelihood="categorical",
        class_weight=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping="auto",
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        n_jobs=None,
        device="auto",
        dtype="float32",
        verbose=False,
        random_state=None,
    ) -> None:
        self._store(locals())


class BBBRegressorCV(TauPathCV, BBBRegressor):
    """Bayes by Backprop whose noise precision is chosen by cross-validation.

    :class:`BBBRegressor` with ``taus`` for ``tau`` and without
    ``warm_start``, as :class:`MCDropoutRegressorCV` is to :class:`MCDropoutRegressor`.

    Parameters
    ----------
    taus, cv, scoring, n_jobs, verbose, random_state
        As in :class:`MCDropoutRegressorCV`.
    hidden_layer_sizes, activation, network, dropout, prior, pi, s1, s2, kl, \
kl_weighting, kl_warm_up, gradient, length_scale, likelihood, likelihood_options, \
n_estimators, n_draws, n_training_draws, standardize, batch_size, learning_rate, \
learning_rate_init, max_iter, early_stopping, validation_fraction, n_iter_no_change, \
tol, device, dtype
        As in :class:`BBBRegressor`.

    Attributes
    ----------
    taus_, scores_, best_score_, tau_
        As in :class:`MCDropoutRegressorCV`.
    noise_std_, weight_decay_, tau_training_, weight_decay_training_, prior_, \
pruning_, dropout_, elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, \
n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, \
x_scale_, y_mean_, y_scale_
        As in :class:`BBBRegressor`.

    See Also
    --------
    BatchedGridSearchCV : Over other parameters too, with all options of a search.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn.model_selection import BBBRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BBBRegressorCV(taus=4, cv=3, max_iter=40, random_state=0)
    >>> model.fit(X, y).scores_.shape
    (4, 3)
    >>> model.predict_interval(X[:3], coverage=0.9).shape
    (3, 2)
    """

    _plain = BBBRegressor

    def __init__(
        self,
        hidden_layer_sizes="auto",
        activation="relu",
        *,
        network=None,
        taus=10,
        cv=None,
        scoring=None,
        dropout=0.0,
        prior="gaussian",
        pi=0.5,
        s1=1.0,
        s2=0.1,
        kl="closed",
        kl_weighting="uniform",
        kl_warm_up=0.5,
        gradient="local",
        length_scale="auto",
        likelihood="gaussian",
        likelihood_options=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        n_jobs=None,
        device="auto",
        dtype="float32",
        verbose=False,
        random_state=None,
    ) -> None:
        self._store(locals())


class BBBClassifierCV(TauPathCV, BBBClassifier):
    """Bayes by Backprop classifier whose tau is chosen by cross-validation.

    :class:`BBBClassifier` with ``taus`` for ``tau`` and without
    ``warm_start``, as :class:`MCDropoutClassifierCV` is to
    :class:`MCDropoutClassifier`.

    Parameters
    ----------
    taus, cv, scoring, n_jobs, verbose, random_state
        As in :class:`MCDropoutClassifierCV`.
    hidden_layer_sizes, activation, network, dropout, prior, pi, s1, s2, kl, \
kl_weighting, kl_warm_up, gradient, length_scale, likelihood, class_weight, \
n_estimators, n_draws, n_training_draws, standardize, batch_size, learning_rate, \
learning_rate_init, max_iter, early_stopping, validation_fraction, n_iter_no_change, \
tol, device, dtype
        As in :class:`BBBClassifier`.

    Attributes
    ----------
    taus_, scores_, best_score_, tau_
        As in :class:`MCDropoutClassifierCV`.
    classes_, weight_decay_, tau_training_, weight_decay_training_, prior_, pruning_, \
dropout_, elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, n_features_in_, \
feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, x_scale_
        As in :class:`BBBClassifier`.

    See Also
    --------
    BBBRegressorCV : The same for numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skbayesnn.model_selection import BBBClassifierCV
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BBBClassifierCV(taus=3, cv=3, max_iter=40, random_state=0)
    >>> model.fit(X, y).taus_
    array([1.e-02, 1.e+00, 1.e+02])
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    _plain = BBBClassifier

    def __init__(
        self,
        hidden_layer_sizes=(50,),
        activation="relu",
        *,
        network=None,
        taus=9,
        cv=None,
        scoring=None,
        dropout=0.0,
        prior="gaussian",
        pi=0.5,
        s1=1.0,
        s2=0.1,
        kl="closed",
        kl_weighting="uniform",
        kl_warm_up=0.5,
        gradient="local",
        length_scale="auto",
        likelihood="categorical",
        class_weight=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        n_jobs=None,
        device="auto",
        dtype="float32",
        verbose=False,
        random_state=None,
    ) -> None:
        self._store(locals())


class VariationalDropoutRegressorCV(TauPathCV, VariationalDropoutRegressor):
    """Variational dropout whose noise precision is chosen by cross-validation.

    :class:`VariationalDropoutRegressor` with ``taus`` for ``tau`` and without
    ``warm_start``, as :class:`MCDropoutRegressorCV` is to :class:`MCDropoutRegressor`.

    Parameters
    ----------
    taus, cv, scoring, n_jobs, verbose, random_state
        As in :class:`MCDropoutRegressorCV`.
    hidden_layer_sizes, activation, network, dropout, noise, alpha_per, prior, \
kl_approximation, kl_warm_up, length_scale, likelihood, likelihood_options, \
n_estimators, n_draws, n_training_draws, standardize, batch_size, learning_rate, \
learning_rate_init, max_iter, early_stopping, validation_fraction, n_iter_no_change, \
tol, device, dtype
        As in :class:`VariationalDropoutRegressor`.

    Attributes
    ----------
    taus_, scores_, best_score_, tau_
        As in :class:`MCDropoutRegressorCV`.
    alpha_, sparsity_, pruning_, noise_std_, weight_decay_, tau_training_, \
weight_decay_training_, dropout_, elbo_, elbo_std_error_, history_, loss_curve_, \
n_iter_, n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, \
x_mean_, x_scale_, y_mean_, y_scale_
        As in :class:`VariationalDropoutRegressor`.

    See Also
    --------
    BatchedGridSearchCV : Over other parameters too, with all options of a search.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn.model_selection import VariationalDropoutRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VariationalDropoutRegressorCV(taus=4, cv=3, max_iter=40, random_state=0)
    >>> model.fit(X, y).scores_.shape
    (4, 3)
    >>> model.predict_interval(X[:3], coverage=0.9).shape
    (3, 2)
    """

    _plain = VariationalDropoutRegressor

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        activation="relu",
        *,
        network=None,
        taus=10,
        cv=None,
        scoring=None,
        dropout=0.1,
        noise="correlated",
        alpha_per="unit",
        prior="log_uniform",
        kl_approximation="molchanov",
        kl_warm_up="auto",
        length_scale="auto",
        likelihood="gaussian",
        likelihood_options=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        n_jobs=None,
        device="auto",
        dtype="float32",
        verbose=False,
        random_state=None,
    ) -> None:
        self._store(locals())


class VariationalDropoutClassifierCV(TauPathCV, VariationalDropoutClassifier):
    """Variational dropout classifier whose tau is chosen by cross-validation.

    :class:`VariationalDropoutClassifier` with ``taus`` for ``tau`` and without
    ``warm_start``, as :class:`MCDropoutClassifierCV` is to
    :class:`MCDropoutClassifier`.

    Parameters
    ----------
    taus, cv, scoring, n_jobs, verbose, random_state
        As in :class:`MCDropoutClassifierCV`.
    hidden_layer_sizes, activation, network, dropout, noise, alpha_per, prior, \
kl_approximation, kl_warm_up, length_scale, likelihood, class_weight, n_estimators, \
n_draws, n_training_draws, standardize, batch_size, learning_rate, learning_rate_init, \
max_iter, early_stopping, validation_fraction, n_iter_no_change, tol, device, dtype
        As in :class:`VariationalDropoutClassifier`.

    Attributes
    ----------
    taus_, scores_, best_score_, tau_
        As in :class:`MCDropoutClassifierCV`.
    classes_, alpha_, sparsity_, pruning_, weight_decay_, tau_training_, \
weight_decay_training_, dropout_, elbo_, elbo_std_error_, history_, loss_curve_, \
n_iter_, n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, \
x_mean_, x_scale_
        As in :class:`VariationalDropoutClassifier`.

    See Also
    --------
    VariationalDropoutRegressorCV : The same for numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skbayesnn.model_selection import VariationalDropoutClassifierCV
    >>> X, y = load_wine(return_X_y=True)
    >>> model = VariationalDropoutClassifierCV(taus=3, max_iter=40, random_state=0)
    >>> model.fit(X, y).taus_
    array([1.e-02, 1.e+00, 1.e+02])
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    _plain = VariationalDropoutClassifier

    def __init__(
        self,
        hidden_layer_sizes=(50,),
        activation="relu",
        *,
        network=None,
        taus=9,
        cv=None,
        scoring=None,
        dropout=0.1,
        noise="correlated",
        alpha_per="unit",
        prior="log_uniform",
        kl_approximation="molchanov",
        kl_warm_up="auto",
        length_scale="auto",
        likelihood="categorical",
        class_weight=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping="auto",
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        n_jobs=None,
        device="auto",
        dtype="float32",
        verbose=False,
        random_state=None,
    ) -> None:
        self._store(locals())
