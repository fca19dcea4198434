"""Grid and randomised search over networks that are trained side by side.

scikit-learn's own search runs over an estimator that looks its trained network up, so
candidates, scoring, ranking and refitting are scikit-learn's. Before a few candidates
are scored, their networks of all folds are trained as members of batched programs.
"""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

import joblib
import numpy as np
import sklearn
from sklearn.base import BaseEstimator, _fit_context, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
    check_cv,
)
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import _check_method_params

from skbayesnn.estimators.progress import members_reported
from skbayesnn.model_selection.plan import Member, Workshop, network_of

_PASSED_ON = ("scoring", "refit", "verbose", "error_score", "return_train_score")

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
        Programs trained side by side, through joblib: with
        ``joblib.parallel_config(backend=...)`` on a cluster.
    verbose : int, default=0
        From 1 on: the number of members done, and the best mean score so far.
    memory_budget : float, default=None
        Mebibytes that the members in training may take; None is scikit-learn's
        ``working_memory``. Out of memory all the same, a program is halved.
    devices : sequence of str, default=None
        Devices that the programs go to in turn, ``["cuda:0", "cuda:1"]``; None is the
        estimator's own ``device``.

    Attributes
    ----------
    cv_results_, best_estimator_, best_score_, best_params_, best_index_, scorer_,
    n_splits_, refit_time_, multimetric_, classes_, n_features_in_, feature_names_in_
        As in scikit-learn. ``mean_fit_time`` is a member's share of its program's time.

    Notes
    -----
    Ctrl-C keeps what is done: ``cv_results_`` then holds the candidates that were
    finished, with a warning and without a refit. ``fit`` on the same data goes on
    from there.
    """


class _Batched(BaseSearchCV):
    """The ``fit`` of both searches."""

    memory_budget: float | None
    devices: Sequence[str] | None

    @abstractmethod
    def _candidates(self):
        """The settings to be tried, as dicts."""

    @_fit_context(prefer_skip_nested_validation=False)
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
        X, y = indexable(X, y)
        routed = self._get_routed_params_for_fit(_check_method_params(X, params))
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(X, y, **routed.splitter.split))
        workshop = Workshop(
            self.estimator,
            splits,
            (X, y, routed.estimator.fit),
            budget=self._budget(),
            n_jobs=self.n_jobs,
            devices=self.devices,
        )
        done = self._done_before(workshop)
        options = {name: getattr(self, name) for name in _PASSED_ON}
        if self.scoring is None:
            options["scoring"] = check_scoring(self.estimator)
        replay = _Replay(
            self.estimator,
            list(self._candidates()),
            workshop,
            done,
            routed,
            cv=splits,
            **options,
        )
        try:
            # Members are handed out in order; the workshop has its own backend.
            with joblib.parallel_config(backend="sequential"):
                replay.fit(X, y, **params)
        except KeyboardInterrupt:
            self._unfinished = workshop.fingerprint, done
            raise
        if replay.interrupted:
            n_done = len(replay.cv_results_["params"])
            self._unfinished = workshop.fingerprint, done
            warnings.warn(
                f"the search was interrupted; `cv_results_` has {n_done} of "
                f"{len(replay.candidates)} candidates, and nothing was refitted. "
                "`fit` on the same data goes on from there.",
                ConvergenceWarning,
                stacklevel=2,
            )
        for name in [n for n in vars(self) if n.endswith("_") and n[0] != "_"]:
            delattr(self, name)
        for name, value in vars(replay).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(self, name, value)
        return self

    def _done_before(self, workshop) -> dict[str, list[Member]]:
        """What an interrupted fit to the same data has trained, by candidate."""
        if not hasattr(self, "_unfinished"):
            return {}
        fingerprint, done = self._unfinished
        del self._unfinished
        return done if fingerprint == workshop.fingerprint else {}

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


class _Replay(BaseSearchCV):
    """scikit-learn's search over given candidates, trained some at a time.

    Parameters
    ----------
    estimator, scoring, refit, cv, verbose, error_score, return_train_score
        As in scikit-learn.
    candidates : list of dict
    workshop : Workshop
        Trains them.
    done : dict of str to list of Member
        Members by hash of their candidate, trained or waiting; it grows.
    """

    def __init__(
        self,
        estimator,
        candidates,
        workshop,
        done,
        routed,
        *,
        scoring=None,
        refit=True,
        cv=None,
        verbose=0,
        error_score=np.nan,
        return_train_score=False,
    ):
        self._trained: list[Member] = []
        super().__init__(
            _LookedUp(estimator, self._trained),
            scoring=scoring,
            refit=refit,
            cv=cv,
            verbose=max(verbose - 1, 0),
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.candidates = candidates
        self.routed = routed
        self.interrupted = False
        self.workshop, self.done, self._bar = workshop, done, verbose > 0

    def _get_routed_params_for_fit(self, params):
        return self.routed

    def _run_search(self, evaluate_candidates):
        n_folds = self.workshop.n_folds
        seconds: list[list[float]] = []
        with members_reported(len(self.candidates) * n_folds, self._bar) as report:
            for some in self.workshop.pieces(self.candidates):
                try:
                    members = self._members_of(some)
                except KeyboardInterrupt:
                    some, members = self._finished_of(some)
                    if not some:
                        if not seconds:
                            raise
                        self.interrupted, self.refit = True, False
                        break
                    self.interrupted, self.refit = True, False
                self._trained.extend(m for of_one in members for m in of_one)
                results = evaluate_candidates(some)
                seconds += [[m.seconds for m in of_one] for of_one in members]
                results["mean_fit_time"] = np.mean(seconds, axis=1)
                results["std_fit_time"] = np.std(seconds, axis=1)
                report(len(seconds) * n_folds, _best_so_far(results))
                if self.interrupted:
                    break

    def _finished_of(self, candidates):
        """Candidates whose members are all trained, and those."""
        found = [(c, self.done.get(joblib.hash(c))) for c in candidates]
        found = [(c, m) for c, m in found if m and all(x.job is None for x in m)]
        return [c for c, _ in found], [m for _, m in found]

    def _members_of(self, candidates) -> list[list[Member]]:
        """Trained members of every candidate, those trained before included."""
        names = [joblib.hash(candidate) for candidate in candidates]
        for name, candidate in zip(names, candidates, strict=True):
            if name not in self.done:
                self.done[name] = [
                    self.workshop.member(candidate, fold)
                    for fold in range(self.workshop.n_folds)
                ]
        members = [self.done[name] for name in names]
        self.workshop.train([member for of_one in members for member in of_one])
        return members


def _best_so_far(results) -> str:
    """The largest mean test score, of every metric."""
    best = {
        name.removeprefix("mean_test_"): np.nanmax(values, initial=-np.inf)
        for name, values in results.items()
        if name.startswith("mean_test_")
    }
    return ", ".join(f"{name} {value:.4g}" for name, value in best.items())


class _LookedUp(BaseEstimator):
    """Hands out estimators whose ``fit`` takes over what was trained before.

    They are asked for in the order of ``members``; whatever is asked for after the
    last of them (the refit) is trained as it is.
    """

    def __init__(self, estimator, members: Sequence[Member]):
        self.estimator = estimator
        self.members = members
        self._n_taken = 0

    def __sklearn_clone__(self):
        return self

    def set_params(self, **params):
        if self._n_taken == len(self.members):
            return clone(self.estimator).set_params(**params)
        member = self.members[self._n_taken]
        self._n_taken += 1
        result = clone(member.estimator)
        # An attribute of the instance goes before the method of its class.
        result.fit = partial(_take_over, result, member)
        return result

    def fit(self, X, y=None):
        """For scikit-learn's checks; the estimators handed out are fitted."""
        raise NotImplementedError

    def score(self, X, y=None):
        """For scikit-learn's checks; the estimators handed out are scored."""
        raise NotImplementedError

    def get_metadata_routing(self):
        """Of the estimator that is searched over."""
        return self.estimator.get_metadata_routing()

    def __sklearn_tags__(self):
        return get_tags(self.estimator)


def _take_over(estimator, member: Member, *_, **__):
    """``fit`` of an estimator that was trained as a member."""
    del estimator.fit
    if member.error is not None:
        raise member.error.with_traceback(None)
    vars(estimator).update(vars(member.estimator))
    return estimator
