"""Stack of Bayesian classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np

from skbayesnn._data.validation import (
    check_labels,
    check_target_given,
    refuse_one_class,
)
from skbayesnn._predictive.mixin import ClassificationPredictiveMixin
from skbayesnn._sklearn_compat import ClassifierMixin
from skbayesnn._stacking.base import BayesianStacking, StackParameters
from skbayesnn._stacking.summary import (
    summarise_classification,
    warn_if_no_better_than_shares,
)
from skbayesnn._stored import Labels
from skbayesnn._validation import compute_class_weights
from skbayesnn.estimators._parameters import parameters


@parameters
class _Parameters(StackParameters):
    """Also those of one stack."""

    class_weight: Any = None


class BayesianStackingClassifier(
    _Parameters, ClassificationPredictiveMixin, ClassifierMixin, BayesianStacking
):
    """Weighted mixture of networks, logistic regressions, forests and boosted trees.

    Use it when accuracy and calibrated probabilities matter more than training time:
    it needs no tuning. As :class:`BayesianStackingRegressor`, it trains a pool of
    candidates by cross-validation, estimates the weights that maximise the log
    probability of the held-out labels [1]_, and refits the candidates with positive
    weight to all rows. With the default pool a fit takes seconds to minutes, many
    times as long as a fit of one network.

    Parameters
    ----------
    estimators : {"fast", "auto", "best"} or list of tuple, default="auto"
        The pool of candidates. Leave the default unless time matters. ``"fast"`` is for
        first results. ``"best"`` takes up to five times as long as ``"auto"``.

        ``"auto"`` contains networks and logistic regressions. The networks have two
        hidden layers and several length scales and dropout rates. Some get the original
        columns, the others columns that are encoded by
        :class:`~skbayesnn.preprocessing.PiecewiseLinearEncoder`. A sparse X with at
        most 256 columns and 2^25 entries is made dense. With at least 200 rows, and
        fewer columns than rows, the pool also has extremely randomised trees and bagged
        trees, whose trees are draws, and gradient boosting, as a single draw. See Notes
        for few rows and many columns.

        ``"fast"`` contains three of these networks, trained for at most 2,500 steps and
        fitted to all rows from one start, the logistic regressions, and forests of 30
        instead of 100 trees. It takes a
        third to four fifths of the time, and on three sets its log loss is 2 to 23 %
        higher. ``"best"`` also contains networks that are twice as wide, and has twice
        as many starts, and five folds with fewer than 3,000 rows.

        A list contains (name, estimator) or (name, estimator, grid of its parameters).
        :func:`~skbayesnn.default_pool` is the list of the candidates of a size, to
        which you can append others: networks of this package, and classifiers of
        scikit-learn and other libraries that have ``predict_proba``. See Notes for
        classifiers of other libraries.
    categorical_features : "from_dtype", array-like of str, int or bool, or None, \
default="from_dtype"
        Columns that contain categories. Leave the default unless integers are codes of
        categories: columns of text and of categories are found by their type. Or names
        or indices of further columns, or a mask of all columns. See
        :class:`~skbayesnn.preprocessing.TableEncoder`.
    cv : int, cross-validation generator or iterable, default=None
        Folds, stratified. Give ``TimeSeriesSplit`` if the rows are ordered in time:
        with shuffled folds ``summary_`` does not measure the error on future rows.
        None is five shuffled folds with fewer than 700 rows, and one held-out fifth, at
        most 4,000 rows, with more. An int is a number of shuffled folds.
    n_refits : "auto" or int, default="auto"
        Networks fitted to all rows, from different starts, for each candidate with
        positive weight. With more networks, predictions are more accurate and the fit
        takes longer. A candidate with a larger ``n_estimators`` keeps it.
        ``"auto"`` is 2, with ``"fast"`` 1, and with ``"best"`` 2, up to 4 for
        candidates with more than a quarter of the weight.
    max_iter : "auto" or int, default="auto"
        Number of epochs of the default candidates. ``"auto"`` depends on the number of
        rows.
    class_weight : dict, "balanced" or None, default=None
        Weights of the labels, as in scikit-learn. They multiply ``sample_weight``.
    n_jobs : int, default=None
        Number of joblib processes, each of which trains a program. None is one, in
        this process; -1 is one per processor. ``joblib.parallel_config`` selects Dask
        or Ray, as for :class:`~skbayesnn.model_selection.BatchedGridSearchCV`.
    memory_budget : float, default=None
        Memory in mebibytes for the networks that are trained at the same time. None is
        scikit-learn's ``working_memory``.
    n_selection_rows : int, default=50_000
        With more rows, the candidates are compared and weighted on a random sample of
        about this number. Rare classes have at least 20 rows in it, and the order of
        the rows is kept. Networks with positive weight are then fitted to all rows, in
        blocks. So are other models, such as forests, if the table is small by the
        working memory (256 bytes for each value of X); otherwise they stay fitted to
        the sample. Attributes by row, such as ``oof_prediction_``, are for the rows of
        the sample, ``sample_rows_``.
    time_limit : float, default=None
        Seconds that ``fit`` may take, such as in a nightly job. None is no limit.
        Candidates are trained in the order of their value for their seconds. Those that
        are finished in time are weighted and fitted to all rows, with fewer starts if
        necessary. At least one candidate is always fitted. The next ``fit`` to the same
        data, with a larger limit or none, trains only what is missing.
    device : str, torch.device or list of these, default="auto"
        Device of the default candidates.
    verbose : "auto", bool or int, default="auto"
        "auto": in a terminal or notebook, a fit that lasts longer than five seconds
        shows one line with its progress, which is removed at the end. If at least 1
        (True), print the progress, the expected time left, and ``summary_``. 0 (False)
        is silent.
    random_state : int, RandomState instance or None, default=None
        Seed of folds and candidates.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    weights_ : DataFrame
        ``"weight"`` and mean out-of-fold ``"log_density"`` (nats) of each candidate, in
        order of decreasing weight. Candidates that were dropped after a comparison on a
        part of the rows have its scores. A dict of dicts if pandas is not installed;
        ``weights_["weight"][name]`` works in both cases.
    estimators_ : list of estimator
        The candidates with positive weight, fitted to all rows. They take the encoded
        columns, ``model.table_.transform(X)``; or an array of X, if ``table_`` is None;
        or a frame, where ``on_frame_`` is true.
    n_draws_ : ndarray of int
        Number of posterior draws of each of ``estimators_`` in the mixture, 200 in
        total.
    spread_factor_ : ndarray of shape (1,)
        Temperature T of the draws' probabilities, p^(1 / T) normalised. It maximises
        the log probability of the held-out labels, under a prior that keeps it near
        one.
    oof_prediction_ : ndarray of shape (n_samples, n_classes)
        Out-of-fold class probabilities of the mixture. NaN for rows that were never
        held out.
    oof_log_density_ : ndarray of shape (n_samples,)
        Out-of-fold log probability of the label, nats.
    summary_ : Summary
        Out-of-fold log probability and accuracy: ``print(model.summary_)``. The
        networks were not fitted to these rows, but the weights and the temperature
        were. The log probability is the mean of ``oof_log_density_``, in nats per row.
        Compare it with ``weights_`` and with other models of the same labels. A model
        that predicts the shares p of the classes has the sum of p log(p).
    n_iter_ : int
        Number of epochs of the longest refit.
    on_frame_ : list of bool
        Whether each of ``estimators_`` gets a frame as it is given, and not its encoded
        columns.
    fitted_to_sparse_ : bool or None
        Whether X was a sparse matrix; None if all ``estimators`` are given and of this
        package, which validate X themselves.
    n_features_in_, feature_names_in_
        The names exist if X has names, unless all candidates are given estimators of
        this package.

    Notes
    -----
    With fewer than 700 rows, or more than one column per five rows, the logistic
    regressions have ridge and lasso penalties, four strengths of each. With more than
    two classes, each class is fitted against the others. The posterior is normal, given
    Polya-Gamma variables at their expectations [2]_. They require 10 to 1,000 rows and
    at most 2^22 entries of X; otherwise logistic regressions are trained like the
    networks. If X has at least as many columns as rows, no network has encoded columns.

    A classifier of another library is a single draw, so that its mutual information is
    zero. ``sample_weight`` is passed to its ``fit`` if it takes weights;
    otherwise only rows without weight are left out. If X is a frame, pipelines and
    estimators whose parameters name categorical columns (``cat_features``,
    ``categorical_features``, ``enable_categorical=True``) get it as it is given. Others
    get its encoded columns.
    :func:`~skbayesnn.save` stores these candidates by skops.

    A candidate is dropped before the weights are estimated if its predictions are
    constant (unless it has the largest log probability), or if it equals another
    candidate.

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

    class_weight: Any
    classes_: Labels
    _is_classification = True

    def _checked_targets(self, y, X):
        check_target_given(self, y)
        y = check_labels(y)
        self._check_weighted(y)
        return y

    def _check_weighted(self, y):
        refuse_one_class(self, np.unique(y))

    def _class_weights(self, y):
        if self.class_weight is None:
            return None
        return compute_class_weights(self.class_weight, y)

    def _summary(self, mixture, oof):
        log_density = mixture.log_density(oof.y)
        warn_if_no_better_than_shares(log_density, oof.y, oof.weights, oof.X)
        return summarise_classification(mixture, oof.y, oof.weights)

    def _out_of_fold_attributes(self, oof, mixture):
        # A class may be missing from the training rows of every fold.
        classes = np.unique(oof.data.y)
        mixture = mixture.among(classes)
        return {
            "classes_": classes,
            "oof_prediction_": oof.by_row(mixture.mean()),
            "oof_log_density_": oof.by_row(mixture.log_density(oof.y)),
        }
