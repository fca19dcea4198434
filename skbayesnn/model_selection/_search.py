"""Grid and randomised search that train their networks together.

Candidates are trained and scored in all folds as members of batched programs. Then
scikit-learn's own search runs over the stored scores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid, ParameterSampler, check_cv
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn._batch.executor import Executor, FoldScorer, Resources
from skbayesnn._batch.jobs import FoldFitBuilder, network_of
from skbayesnn._batch.outcomes import Fingerprint, Outcome, ProgramResult, ResultStore
from skbayesnn._data.scaling import TRAINING_CODES
from skbayesnn._data.table_encoder import EXPECTED_IN_FOLDS
from skbayesnn._data.validation import refuse_column_name
from skbayesnn._predictive.mixin import PredictiveMixin, RegressionPredictiveMixin
from skbayesnn._runtime import (
    replace_fitted,
    silence_warning,
    silenced,
    store_parameters,
    warn,
    warn_once_per_call,
)
from skbayesnn._sklearn_compat import (
    BaseSearchCV,
    GridSearchCV,
    RandomizedSearchCV,
    available_if,
    check_method_params,
    fit_context,
    metrics_of,
    routed_fit_params,
    scorers_of_search,
    with_option,
)
from skbayesnn._typing import MatrixLike
from skbayesnn.estimators._progress import (
    FitProgress,
    RemainingSteps,
    check_verbose,
)
from skbayesnn.model_selection._sklearn_results import (
    SearchInputs,
    fitted_attributes,
    mean_scores,
    replay,
)

_DOC = """{first_line}

    Use it in place of scikit-learn's ``{base}`` for networks of this package. It has
    the same parameters, methods and ``cv_results_``, and with an integer
    ``random_state`` the same scores up to rounding. All candidates and folds are
    trained as members of a few batched programs, which is faster than one fit after
    another. Candidates share a program if they differ only in ``tau``, ``dropout``,
    ``length_scale``, scales of the prior or ``random_state``. Candidates that differ in
    other parameters are trained in different programs.

    Parameters
    ----------
    estimator : estimator
        A network of this package, alone or as the last step of a ``Pipeline``. The
        steps before it are fitted once per fold, and again only if a candidate changes
        their parameters, or how the network reads its rows: ``categorical_features``,
        ``class_weight``, ``likelihood``, ``early_stopping`` or the shape of the rows.
    {parameters}
    scoring, refit, cv, error_score, return_train_score
        As in scikit-learn.
    n_jobs : int, default=None
        Leave the default unless torch should use fewer threads. Programs are trained
        one after another, each with ``n_jobs`` threads; None is torch's own setting.
        With ``joblib.parallel_config(backend="loky")``, ``"dask"`` or ``"ray"`` it is
        the number of processes, each of which trains one program at a time.
    verbose : "auto", bool or int, default="auto"
        "auto": in a terminal or notebook, a fit that lasts longer than five seconds
        shows one line with its progress, which is removed at the end. 0 is silent.
        1 or more prints the number of trained members, the time left and the best mean
        score, and scikit-learn's messages, whose times are not training times.
    pre_dispatch : int or str, default="2*n_jobs"
        Number of programs that joblib dispatches to its processes at a time.
    memory_budget : float, default=None
        Leave the default unless memory runs out. Mebibytes for the members in training;
        None is scikit-learn's ``working_memory``. If a program runs out of memory, it
        is split in halves, and later programs are smaller than it.
    time_limit : float, default=None
        Seconds that ``fit`` may take; None is no limit. ``cv_results_`` contains the
        candidates that are finished in time, at least one, and the best of them is
        refitted. Candidates are then trained one after another, which takes longer for
        each. The next ``fit`` to the same data trains only what is missing.

    Attributes
    ----------
    cv_results_, best_estimator_, best_score_, best_params_, best_index_, scorer_,
    n_splits_, refit_time_, multimetric_, classes_, n_features_in_, feature_names_in_
        As in scikit-learn. ``mean_fit_time`` is a member's share of the training time
        of its program.

    Notes
    -----
    A member is scored right after training and then released, so memory does not grow
    with the number of candidates. Scorers are called in the order of the programs.

    After Ctrl-C, ``cv_results_`` contains the finished candidates, nothing is refitted,
    and ``fit`` warns. The next ``fit`` with the same data and the same ``scoring`` does
    not train the finished candidates again. The same is true after an exception.

    Callbacks (scikit-learn >= 1.9) of the search are called after the training.
    """


def _of_best(method: Callable) -> Any:
    """The method of the best estimator, available if that estimator has it."""
    name = method.__name__

    def has_method(search) -> bool:
        if not search.refit:
            return False
        return hasattr(getattr(search, "best_estimator_", search.estimator), name)

    @available_if(has_method)
    @wraps(method)
    def call(self, X, *args, **params):
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(X, *args, **params)

    return call


class BestEstimatorMixin:
    """Predictive methods of a search, which call its best estimator."""

    best_estimator_: Annotated[stored.Fitted, stored.OPTIONAL]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        # scikit-learn's searches copy only the tags of sparse and pairwise X.
        inner = get_tags(self.estimator)  # type: ignore[attr-defined]
        tags.input_tags = inner.input_tags
        return tags

    predict = _of_best(RegressionPredictiveMixin.predict)
    predict_distribution = _of_best(PredictiveMixin.predict_distribution)
    predict_uncertainty = _of_best(PredictiveMixin.predict_uncertainty)
    predict_interval = _of_best(RegressionPredictiveMixin.predict_interval)
    predict_quantile = _of_best(RegressionPredictiveMixin.predict_quantile)
    predictive_cdf = _of_best(RegressionPredictiveMixin.predictive_cdf)
    log_predictive_density = _of_best(PredictiveMixin.log_predictive_density)
    crps = _of_best(RegressionPredictiveMixin.crps)
    sample_f = _of_best(PredictiveMixin.sample_f)
    sample_y = _of_best(PredictiveMixin.sample_y)


class _OutOfTime(KeyboardInterrupt):
    """The time limit ends a search."""


class _BatchedSearch(BestEstimatorMixin, BaseSearchCV):
    """The ``fit`` of both searches."""

    memory_budget: float | None
    time_limit: float | None
    estimator: stored.Estimator
    cv_results_: dict[
        str, Annotated[list | Annotated[np.ndarray, stored.ANY], "candidates"]
    ]
    multimetric_: bool
    n_splits_: stored.PositiveCount
    best_index_: Annotated[int, stored.Index("candidates"), stored.OPTIONAL]
    best_params_: Annotated[dict[str, Any], stored.OPTIONAL]
    best_score_: Annotated[float, stored.ANY, stored.OPTIONAL]
    refit_time_: Annotated[float, stored.ANY, stored.OPTIONAL]
    # Outcomes of an interrupted or failed fit, for the next one.
    _unfinished: ResultStore | None = None

    @abstractmethod
    def _candidates(self):
        """The candidates, as dicts of parameters."""

    @fit_context(prefer_skip_nested_validation=False)
    @warn_once_per_call
    def fit(self, X: MatrixLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Train and score all candidates in all folds, and refit the best one.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets, or labels.
        **params : dict
            As in scikit-learn's search: ``groups`` for the splitter, and metadata for
            the estimator's ``fit`` and the scorers. With metadata routing the network
            gets the groups too, and does not split them where it holds out rows.

        Returns
        -------
        self : object
            The fitted search.
        """
        silence_warning(*EXPECTED_IN_FOLDS)
        name, verbose = type(self).__name__, check_verbose(self.verbose)
        with FitProgress(name, verbose, self.time_limit) as log:
            return self._logged_fit(X, y, params, log)

    def _logged_fit(self, X, y, params: dict, log) -> Self:
        inputs = self._inputs(X, y, params)
        executor = Executor(self._scorer(inputs), self._resources())
        store = self._new_store(inputs).resumed(self._unfinished)
        self._unfinished = None
        candidates = list(self._candidates())
        names = store.add(candidates)
        outcomes = self._outcomes(inputs, executor, store, names, candidates, log)
        try:
            fitted = replay(self, inputs, candidates, outcomes)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if not interrupted:
                store.forget_failures()
            self._unfinished = store
            folds = range(len(inputs.splits))
            complete = store.complete(names, folds) if interrupted else []
            n_complete = len(complete)
            if n_complete in (0, len(candidates)):
                raise
            refit = {} if isinstance(error, _OutOfTime) else {"refit": False}
            if refit:
                warn(
                    "SKB108",
                    f"the search was interrupted; `cv_results_` contains {n_complete} "
                    f"of {len(candidates)} candidates, and nothing was refitted. Call "
                    "`fit` with the same data to continue.",
                    ConvergenceWarning,
                )
            done = [store.outcomes([names[i] for i in complete], folds)]
            candidates = [candidates[i] for i in complete]
            fitted = replay(self, inputs, candidates, done, **refit)
        replace_fitted(
            self, fitted_attributes(fitted) | {"scorer_": metrics_of(inputs.scorer)}
        )
        return self

    def _inputs(self, X, y, params: dict) -> SearchInputs:
        """Check and split the arguments of ``fit``."""
        network_of(self.estimator)
        refuse_column_name(type(self).__name__, y)
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
        log: FitProgress,
    ) -> Iterator[list[Outcome]]:
        """Outcomes of the candidates in all folds, several candidates at a time.

        Members without an outcome in the store are trained when the iterator reaches
        them.

        Raises
        ------
        KeyboardInterrupt
            The store contains the outcomes computed so far.
        _OutOfTime
            The limit does not suffice for another candidate and the refit.
        """
        folds = range(len(inputs.splits))
        builder = FoldFitBuilder(
            self.estimator,
            inputs.routed.estimator.fit,
            inputs.X,
            inputs.y,
            inputs.splits,
        )
        by_name = dict(zip(names, candidates, strict=True))
        n_at_once = executor.candidates_at_once(len(folds), builder.max_train_rows)
        if log.has_limit:
            n_at_once = 1
        # The refit warns, by the number of all rows.
        in_folds = silenced(TRAINING_CODES) if self.refit else nullcontext()
        steps = RemainingSteps(len(by_name) * len(folds))
        best: dict[str, float] = {}

        def keep(result: ProgramResult) -> None:
            store.update(result)
            for name in {name for name, _ in result.outcomes}:
                known = store.known([name], folds)
                if len(known) == len(folds):
                    for metric, score in mean_scores(known.values()).items():
                        if score > best.get(metric, -np.inf):
                            best[metric] = score
            scores = [f", best {metric} {score:.4g}" for metric, score in best.items()]
            log(f"{steps.text(len(store), 'members trained')}{''.join(scores)}")

        with in_folds:
            longest = 0.0
            for piece in builder.pieces(candidates, n_at_once):
                some, before = names[piece], log.left
                # A candidate takes about as long as the longest, the refit less.
                if longest and before < 2 * longest and store.missing(some, folds):
                    raise _OutOfTime
                for result in executor.resume(store.unscored(some, folds)):
                    keep(result)
                missing = store.missing(some, folds)
                fold_fits, failed = builder.fold_fits(by_name, missing)
                keep(ProgramResult(failed))
                programs = executor.run(fold_fits)
                del fold_fits  # Release each of them when its program is done.
                for result in programs:
                    keep(result)
                longest = max(longest, before - log.left)
                yield store.outcomes(some, folds)

    def _new_store(self, inputs: SearchInputs) -> ResultStore:
        """An empty store for the outcomes under the conditions of this fit."""
        X, y, splits, routed = inputs.X, inputs.y, inputs.splits, inputs.routed
        params = routed.estimator.fit, routed.scorer.score
        fingerprint = Fingerprint.from_values(self.estimator, X, y, splits, *params)
        conditions = fingerprint, self.scoring, self.return_train_score
        return ResultStore(*conditions)

    def _resources(self) -> Resources:
        """Check the parameters for memory and workers."""
        return Resources.from_budget(
            self.memory_budget,
            self.n_jobs,
            pre_dispatch=self.pre_dispatch,
        )


@with_option("verbose", "auto")
class BatchedGridSearchCV(_BatchedSearch, GridSearchCV):
    __doc__ = _DOC.format(
        first_line="Grid search that trains all candidates and folds together.",
        base="GridSearchCV",
        parameters="param_grid : dict or list of dict\n        As in scikit-learn.",
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
        verbose="auto",
        pre_dispatch="2*n_jobs",
        error_score=np.nan,
        return_train_score=False,
        memory_budget=None,
        time_limit=None,
    ) -> None:
        store_parameters(self, locals())

    def _candidates(self):
        return ParameterGrid(self.param_grid)


@with_option("verbose", "auto")
class BatchedRandomizedSearchCV(_BatchedSearch, RandomizedSearchCV):
    __doc__ = _DOC.format(
        first_line="Randomised search that trains all candidates and folds together.",
        base="RandomizedSearchCV",
        parameters=(
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
        verbose="auto",
        pre_dispatch="2*n_jobs",
        random_state=None,
        error_score=np.nan,
        return_train_score=False,
        memory_budget=None,
        time_limit=None,
    ) -> None:
        store_parameters(self, locals())

    def _candidates(self):
        return ParameterSampler(
            self.param_distributions, self.n_iter, random_state=self.random_state
        )
