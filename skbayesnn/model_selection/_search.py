"""Grid and randomised search over networks that are trained side by side.

Candidates in all folds are planned, trained and scored as members of batched programs;
scikit-learn's own search then runs over what they were scored.
"""

from abc import abstractmethod
from collections.abc import Sequence

import joblib
import numpy as np
import sklearn
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
    check_cv,
)
from sklearn.utils import indexable

from skbayesnn._sklearn_compat import BaseSearchCV, check_method_params, fit_context
from skbayesnn._warnings import warn
from skbayesnn.estimators._progress import members_reported
from skbayesnn.model_selection._executor import Hands, Workshop
from skbayesnn.model_selection._grouping import network_of
from skbayesnn.model_selection._replay import learned, replayed
from skbayesnn.model_selection._result_store import Ledger
from skbayesnn.model_selection._worker import Judge

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
        From 1 on a bar: the number of members done, and the best mean score so far.
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
    same ``scoring``, goes on from there.

    Callbacks (scikit-learn 1.9 on) of the search and of the network are told what they
    are told in scikit-learn's search, but of a member's epochs when these are over.
    What stands before the network in a pipeline is fitted for many members; of its
    fits they are not told.
    """


class _Batched(BaseSearchCV):
    """The ``fit`` of both searches."""

    memory_budget: float | None
    devices: Sequence[str] | None
    # Of an interrupted fit: what its outcomes hold for, and they. The estimator is kept
    # so that its hash is its alone.
    _unfinished: tuple[tuple, Ledger, BaseEstimator] | None = None

    # Over the candidates that `_candidates` has given, as a grid of single points.
    _run_search = GridSearchCV._run_search

    @abstractmethod
    def _candidates(self):
        """The settings to be tried, as dicts."""

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, **params):
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
        network_of(self.estimator)
        scorers = self._get_scorers()
        X, y = indexable(X, y)
        routed = self._get_routed_params_for_fit(check_method_params(X, params))
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(X, y, **routed.splitter.split))
        expected = cv.get_n_splits(X, y, **routed.splitter.split)
        if len(splits) != expected:
            raise ValueError(
                "cv.split and cv.get_n_splits return inconsistent results. Expected "
                f"{expected} splits, got {len(splits)}"
            )
        candidates = list(self._candidates())
        workshop = Workshop(
            self.estimator,
            routed.estimator.fit,
            Judge(
                scorers[0], X, y, splits, routed.scorer.score, self.return_train_score
            ),
            Hands(self._budget(), self.n_jobs, self.pre_dispatch, self.devices),
        )
        ledger = self._ledger_of_before(workshop)

        def learn(candidates, report, **options):
            outcomes = ledger.outcomes(workshop, candidates, report)
            replay = replayed(self, candidates, outcomes, splits, routed, scorers)
            vars(replay).update(options)
            # Outcomes are handed out in order; the workshop has its own backend.
            with joblib.parallel_config(backend="sequential"):
                BaseSearchCV.fit(replay, X, y, **params)
            return replay

        n_members = len(candidates) * len(splits)
        try:
            with members_reported(n_members, self.verbose > 0) as report:
                replay = learn(candidates, report)
        except KeyboardInterrupt:
            self._unfinished = self._conditions(workshop), ledger, self.estimator
            whole = ledger.whole(candidates)
            if len(whole) in (0, len(candidates)):
                raise
            warn(
                f"the search was interrupted; `cv_results_` has {len(whole)} of "
                f"{len(candidates)} candidates, and nothing was refitted. `fit` on the "
                "same data goes on from there.",
                ConvergenceWarning,
            )
            replay = learn(whole, lambda *_: None, refit=False)
        for name in learned(self):
            delattr(self, name)
        for name, value in learned(replay).items():
            setattr(self, name, value)
        # Several scorers are in a dict already.
        self.scorer_ = getattr(scorers[0], "_scorers", scorers[0])
        return self

    def _ledger_of_before(self, workshop) -> Ledger:
        """What an interrupted fit to the same data has found out."""
        before, self._unfinished = self._unfinished, None
        if before is not None and before[0] == self._conditions(workshop):
            return before[1]
        return Ledger()

    def _conditions(self, workshop) -> tuple:
        """What must be the same for outcomes to hold."""
        return workshop.fingerprint, self.scoring, self.return_train_score

    def _budget(self) -> int:
        """Bytes for the members in training."""
        megabytes = self.memory_budget
        if megabytes is None:
            megabytes = sklearn.get_config()["working_memory"]
        elif not megabytes > 0:
            raise ValueError(f"`memory_budget` must be positive; got {megabytes!r}.")
        return int(megabytes * 2**20)


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
    ):
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
    ):
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
