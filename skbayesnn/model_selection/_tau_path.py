"""How an estimator chooses tau by cross-validation.

All values of tau in all folds are trained as members of batched programs; then the
estimator itself is fitted to all rows, with the best of them.
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

from skbayesnn._fitted_state import changed_at_once
from skbayesnn._sklearn_compat import (
    available_if,
    num_samples,
    safe_indexing,
    with_callbacks,
)
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._warnings import one_call
from skbayesnn.estimators import _program, _task, _validation
from skbayesnn.estimators._base import BayesianNetwork, adopt, warn_if_doubtful
from skbayesnn.estimators._prepared import Prepared, prepare
from skbayesnn.estimators._specification import likelihood_class
from skbayesnn.model_selection._search import BatchedGridSearchCV
from skbayesnn.scoring import log_density_scorer

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
        with changed_at_once(self) as new:
            prepared = prepare(new, X, y, sample_weight, X_val, y_val)
            taus = self._path(prepared)
            network = self._network().set_params(tau=taus[0])
            by_class = getattr(self, "class_weight", None)
            if isinstance(by_class, dict):
                # scikit-learn refuses one that names labels which a fold has not.
                of_all = dict.fromkeys(prepared.of_y["classes_"].tolist(), 1.0)
                network.set_params(class_weight=of_all | by_class)
            # What is wrong is told here once, and not for every member.
            task = _task.task_of(network, prepared)
            # tau goes with the width: folds have that of all rows.
            widths = network._hidden_layer_sizes(task.total_weight)
            network.set_params(hidden_layer_sizes=widths)
            if task.is_open:
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
            task = _task.task_of(
                network.set_params(tau=taus[search.best_index_]), prepared
            )
            [fitted] = _program.train_together([self], [task])
            adopt(new, prepared, fitted)
            warn_if_doubtful(new, prepared, fitted)
            new.taus_ = np.array(taus)
            new.scores_ = _scores_of(search)
            new.best_score_ = float(search.best_score_)
        return self

    @available_if(lambda self: False)
    def partial_fit(self, *args: Any, **params: Any) -> NoReturn:
        """There is none: of rows that come as a stream, none can be held out."""
        raise NotImplementedError

    def _path(self, prepared: Prepared) -> list:
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


def _spaced(n: int, prepared: Prepared, robust: bool) -> np.ndarray:
    """n precisions with equal ratios, (n,), or (n, targets) where y has several."""
    table, rows = prepared.table, prepared.rows
    weights = table.sample_weight[rows]
    which = {"inputs": True, "targets": True, "robust": robust}
    scaling = prepared.scaling(rows, weights, **which)
    path = np.geomspace(*NOISE_ENDS, n)[:, None] * scaling.signal_precision()
    return path[:, 0] if path.shape[1] == 1 else path
