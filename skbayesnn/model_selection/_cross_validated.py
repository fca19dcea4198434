"""The estimators that choose tau by cross-validation, as RidgeCV is to Ridge."""

from skbayesnn.estimators.bayes_by_backprop import BBBClassifier, BBBRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators.variational_dropout import (
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)
from skbayesnn.model_selection._tau_path import TauPathCV


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
