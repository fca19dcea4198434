"""Grid and randomised search over networks that are trained side by side.

Candidates in all folds are planned, trained and scored as members of batched programs;
scikit-learn's own search then runs over what they were scored.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
import sklearn
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid, ParameterSampler, check_cv
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn._batch.executor import Executor, FoldScorer, Resources
from skbayesnn._batch.jobs import JobBuilder, network_of
from skbayesnn._batch.outcomes import Outcome, ResultStore, hash_of
from skbayesnn._runtime import one_call, replace_fitted, warn
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    BaseSearchCV,
    GridSearchCV,
    RandomizedSearchCV,
    available_if,
    check_method_params,
    fit_context,
    metrics_of,
    routed_fit_params,
    scorers_of_search,
)
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._validation import check_number
from skbayesnn.model_selection._progress import SearchProgress
from skbayesnn.model_selection._sklearn_results import SearchInputs, learned, replay

_DOC = """{first_line}

    A drop-in for scikit-learn's ``{base}``: the same parameters, methods and
    ``cv_results_``, and with an integer ``random_state`` the same scores to rounding.
    Candidates and folds are trained as the members of a few batched programs.
    Candidates that differ in ``tau``, ``dropout``, ``length_scale``, scales of the
    prior or ``random_state`` share a program; others make further ones.

    Parameters
    ----------
    estimator : estimator
        Of this package, alone or as the last step of a ``Pipeline``. The steps before
        are fitted once per fold, and again only where a candidate changes them.
    {own}
    scoring, refit, cv, error_score, return_train_score
        As in scikit-learn.
    n_jobs : int, default=None
        Threads of torch: programs are trained and scored one after the other, each by
        all threads; None leaves torch's number. In the processes of
        ``joblib.parallel_config(backend="loky")``, ``"dask"`` or ``"ray"``: programs
        side by side.
    verbose : int, default=0
        From 1 on a bar: the number of members done, the time left, and the best mean
        score so far.
        The times in scikit-learn's messages (from 2 on) are not those of training.
    pre_dispatch : int or str, default="2*n_jobs"
        Programs that joblib's processes get at a time.
    memory_budget : float, default=None
        Mebibytes that the members in training may take; None is scikit-learn's
        ``working_memory``. Out of memory all the same, a program is halved, and
        nothing as large is tried again.
    devices : sequence of str, default=None
        Devices of this process, ``["cuda:0", "cuda:1"]``, each with one program at a
        time, in place of ``n_jobs``; None is the estimator's own ``device``.

    Attributes
    ----------
    cv_results_, best_estimator_, best_score_, best_params_, best_index_, scorer_,
    n_splits_, refit_time_, multimetric_, classes_, n_features_in_, feature_names_in_
        As in scikit-learn. ``mean_fit_time`` is a member's share of its program's time.

    Notes
    -----
    A member is scored where it was trained, and then let go: memory does not grow with
    the number of candidates. Scorers are called in the order of the programs.

    Ctrl-C keeps what is done: ``cv_results_`` then holds the candidates that were
    finished, with a warning and without a refit. ``fit`` on the same data, with the
    same ``scoring``, goes on from there, as it does after an exception.

    Callbacks (scikit-learn 1.9 on) of the search and of the network are told what they
    are told in scikit-learn's search, but of a member's epochs when these are over.
    What stands before the network in a pipeline is fitted for many members; of its
    fits they are not told.
    """


def _best_has(name: str):
    """Whether the best estimator, or the estimator of a search, has a method."""

    def check(search) -> bool:
        estimator = getattr(search, "best_estimator_", search.estimator)
        return hasattr(estimator, name)

    return available_if(check)


class BestEstimatorMixin:
    """Predictive methods of a fitted search: those of its best estimator."""

    best_estimator_: Any

    def _call_best(self, name: str, *args: Any, **params: Any) -> Any:
        check_is_fitted(self)
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(
                f"`{name}` needs a search with refit=True; got refit=False."
            )
        return getattr(self.best_estimator_, name)(*args, **params)

    @_best_has("predict")
    def predict(self, X: MatrixLike, **params: Any) -> Any:
        """Predictions of the best estimator.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        **params : dict
            Of its ``predict``: ``return_std=True``, ``return_cov=True``, ``method``.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            As the best estimator returns it; with ``return_std`` or ``return_cov``
            also that.
        """
        return self._call_best("predict", X, **params)

    @_best_has("predict_uncertainty")
    def predict_uncertainty(self, X: MatrixLike, **params: Any) -> Any:
        """Uncertainty of the predictions, as the best estimator returns it."""
        return self._call_best("predict_uncertainty", X, **params)

    @_best_has("predict_interval")
    def predict_interval(
        self, X: MatrixLike, coverage: Any = 0.9, **params: Any
    ) -> Array:
        """Prediction intervals of the best estimator."""
        return self._call_best("predict_interval", X, coverage, **params)

    @_best_has("predict_quantile")
    def predict_quantile(self, X: MatrixLike, q: Any) -> Array:
        """Quantiles of the predictive distribution of the best estimator."""
        return self._call_best("predict_quantile", X, q)

    @_best_has("predictive_cdf")
    def predictive_cdf(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Predictive distribution function of the best estimator at y."""
        return self._call_best("predictive_cdf", X, y)

    @_best_has("log_predictive_density")
    def log_predictive_density(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Log density of y under the best estimator, per row."""
        return self._call_best("log_predictive_density", X, y)

    @_best_has("crps")
    def crps(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Continuous ranked probability score of the best estimator, per row."""
        return self._call_best("crps", X, y)

    @_best_has("sample_f")
    def sample_f(self, X: MatrixLike, n_samples: int = 1, **params: Any) -> Array:
        """Functions drawn from the posterior of the best estimator."""
        return self._call_best("sample_f", X, n_samples, **params)

    @_best_has("sample_y")
    def sample_y(self, X: MatrixLike, n_samples: int = 1, **params: Any) -> Array:
        """Targets drawn from the predictive distribution of the best estimator."""
        return self._call_best("sample_y", X, n_samples, **params)


class _Batched(BestEstimatorMixin, BaseSearchCV):
    """The ``fit`` of both searches."""

    memory_budget: float | None
    devices: Sequence[str] | None
    # Of a fit that did not come to its end: what its outcomes hold for, and they. The
    # estimator is kept so that its hash is its alone.
    _unfinished: tuple[tuple, ResultStore, BaseEstimator] | None = None

    @abstractmethod
    def _candidates(self):
        """The settings to be tried, as dicts."""

    @fit_context(prefer_skip_nested_validation=False)
    @one_call
    def fit(self, X: MatrixLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Train all candidates of all folds together, score and refit.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        **params : dict
            As scikit-learn's search takes them: ``groups`` for the splitter, and
            metadata for the estimator's ``fit`` and the scorers.

        Returns
        -------
        self : object
        """
        inputs = self._inputs(X, y, params)
        executor = Executor(self._scorer(inputs), self._resources())
        conditions = self._conditions(inputs)
        store = self._store_of_before(conditions, len(inputs.splits))
        candidates = list(self._candidates())
        names = store.add(candidates)
        outcomes = self._outcomes(inputs, executor, store, names, candidates)
        try:
            fitted = replay(self, inputs, candidates, outcomes)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if not interrupted:
                store.forget_failures()
            self._unfinished = conditions, store, self.estimator
            whole = store.whole(names) if interrupted else []
            if len(whole) in (0, len(candidates)):
                raise
            warn(
                f"the search was interrupted; `cv_results_` has {len(whole)} of "
                f"{len(candidates)} candidates, and nothing was refitted. `fit` on the "
                "same data goes on from there.",
                ConvergenceWarning,
            )
            done = [store.of(names[i] for i in whole)]
            candidates = [candidates[i] for i in whole]
            fitted = replay(self, inputs, candidates, done, refit=False)
        replace_fitted(self, learned(fitted) | {"scorer_": metrics_of(inputs.scorer)})
        return self

    def _inputs(self, X, y, params: dict) -> SearchInputs:
        """What ``fit`` was given, checked."""
        network_of(self.estimator)
        scorer, refit_metric = scorers_of_search(self)
        X, y = indexable(X, y)
        routed = routed_fit_params(self, check_method_params(X, params))
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(X, y, **routed.splitter.split))
        expected = cv.get_n_splits(X, y, **routed.splitter.split)
        if len(splits) != expected:
            raise ValueError(
                "cv.split and cv.get_n_splits return inconsistent results. Expected "
                f"{expected} splits, got {len(splits)}"
            )
        return SearchInputs(X, y, params, routed, splits, scorer, refit_metric)

    def _scorer(self, inputs: SearchInputs) -> FoldScorer:
        return FoldScorer(
            inputs.scorer,
            inputs.X,
            inputs.y,
            inputs.splits,
            inputs.routed.scorer.score,
            self.return_train_score,
        )

    def _outcomes(
        self,
        inputs: SearchInputs,
        executor: Executor,
        store: ResultStore,
        names: Sequence[str],
        candidates: Sequence[dict],
    ) -> Iterator[list[Outcome]]:
        """Of some candidates in all folds; what is missing is trained when asked for.

        Raises
        ------
        KeyboardInterrupt
            What was done until then is in the store.
        """
        n_folds = len(inputs.splits)
        builder = JobBuilder(
            self.estimator,
            inputs.routed.estimator.fit,
            inputs.X,
            inputs.y,
            inputs.splits,
        )
        by_name = dict(zip(names, candidates, strict=True))
        n_at_once = executor.candidates_at_once(n_folds, builder.most_rows)
        with self._progress(len(by_name) * n_folds, n_folds) as progress:

            def keep(outcomes):
                store.update(outcomes)
                if progress is not None:
                    progress.add(outcomes)

            for piece in builder.pieces(candidates, n_at_once):
                keep(executor.score(store.known(names[piece])))
                jobs, failed = builder.jobs(by_name, store.missing(names[piece]))
                keep(failed)
                programs = executor.run(jobs)
                del jobs  # What is through is not kept until the last is.
                for outcomes in programs:
                    keep(outcomes)
                yield store.of(names[piece])

    def _progress(self, n_members: int, n_folds: int):
        """A context with a ``SearchProgress``, or without one."""
        shown = self.verbose > 0
        return SearchProgress(n_members, n_folds) if shown else nullcontext()

    def _conditions(self, inputs: SearchInputs) -> tuple:
        """What must be the same for outcomes to hold."""
        X, y, splits, routed = inputs.X, inputs.y, inputs.splits, inputs.routed
        params = routed.estimator.fit, routed.scorer.score
        fingerprint = hash_of(self.estimator, X, y, splits, *params)
        return fingerprint, self.scoring, self.return_train_score

    def _store_of_before(self, conditions: tuple, n_folds: int) -> ResultStore:
        """What an unfinished fit to the same data has found out."""
        before, self._unfinished = self._unfinished, None
        if before is not None and before[0] == conditions:
            return before[1]
        return ResultStore(n_folds)

    def _resources(self) -> Resources:
        """The parameters that say how, checked."""
        megabytes = self.memory_budget
        if megabytes is None:
            megabytes = sklearn.get_config()["working_memory"]
        check_number("memory_budget", megabytes, low=0, open_low=True)
        return Resources(
            int(megabytes * 2**20), self.n_jobs, self.pre_dispatch, self.devices
        )


class BatchedGridSearchCV(_Batched, GridSearchCV):
    __doc__ = _DOC.format(
        first_line="Grid search whose networks are trained side by side.",
        base="GridSearchCV",
        own="param_grid : dict or list of dict\n        As in scikit-learn.",
    )

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        scoring=None,
        n_jobs=None,
        refit=True,
        cv=None,
        verbose=0,
        pre_dispatch="2*n_jobs",
        error_score=np.nan,
        return_train_score=False,
        memory_budget=None,
        devices=None,
    ) -> None:
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.memory_budget = memory_budget
        self.devices = devices

    def _candidates(self):
        return ParameterGrid(self.param_grid)


class BatchedRandomizedSearchCV(_Batched, RandomizedSearchCV):
    __doc__ = _DOC.format(
        first_line="Randomised search whose networks are trained side by side.",
        base="RandomizedSearchCV",
        own=(
            "param_distributions : dict or list of dict\n"
            "    n_iter : int, default=10\n"
            "    random_state : int, RandomState instance or None, default=None\n"
            "        As in scikit-learn."
        ),
    )

    def __init__(
        self,
        estimator,
        param_distributions,
        *,
        n_iter=10,
        scoring=None,
        n_jobs=None,
        refit=True,
        cv=None,
        verbose=0,
        pre_dispatch="2*n_jobs",
        random_state=None,
        error_score=np.nan,
        return_train_score=False,
        memory_budget=None,
        devices=None,
    ) -> None:
        super().__init__(
            estimator,
            param_distributions,
            n_iter=n_iter,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            random_state=random_state,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.memory_budget = memory_budget
        self.devices = devices

    def _candidates(self):
        return ParameterSampler(
            self.param_distributions, self.n_iter, random_state=self.random_state
        )
