"""Grid and randomised search over networks that are trained side by side.

First all candidates of all folds are trained, as members of a few batched programs;
then scikit-learn's own search runs over an estimator that looks its fitted network up,
so scoring, ranking and refitting are scikit-learn's.
"""

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import sklearn
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone, is_classifier
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

from skbayesnn.estimators import fitting
from skbayesnn.model_selection.plan import (
    Member,
    groups_of,
    members_of,
    network_of,
)


class _Batched:
    """The ``fit`` of both searches."""

    def fit(self, X, y=None, **params):
        """Train all candidates of all folds together, score and refit.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like
        **params : dict
            As scikit-learn's search takes them: ``groups`` for the splitter, and
            metadata for the estimator's ``fit`` and the scorers.

        Returns
        -------
        self : object
        """
        network_of(self.estimator)
        X, y = indexable(X, y)
        candidates = list(self._candidates())
        routed = self._get_routed_params_for_fit(_check_method_params(X, params))
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(X, y, **routed.splitter.split))
        members = members_of(
            self.estimator, candidates, splits, X, y, routed.estimator.fit
        )
        seconds = train_members(members, self._budget(), self.n_jobs)
        replay = _Replay(
            _LookedUp(self.estimator, members),
            candidates,
            cv=splits,
            **{name: getattr(self, name) for name in _SHARED},
        )
        replay.fit(X, y, **params)
        _set_fit_times(replay.cv_results_, seconds, len(splits))
        for name, value in vars(replay).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(self, name, value)
        return self

    def _budget(self) -> int:
        """Bytes for the networks of one program."""
        return int(sklearn.get_config()["working_memory"] * 2**20)


_SHARED = ("scoring", "refit", "verbose", "error_score", "return_train_score")


class BatchedGridSearchCV(_Batched, GridSearchCV):
    """scikit-learn's ``GridSearchCV`` with all networks trained side by side."""

    def _candidates(self):
        return ParameterGrid(self.param_grid)


class BatchedRandomizedSearchCV(_Batched, RandomizedSearchCV):
    """scikit-learn's ``RandomizedSearchCV`` with all networks trained side by side."""

    def _candidates(self):
        return ParameterSampler(
            self.param_distributions, self.n_iter, random_state=self.random_state
        )


class _Replay(BaseSearchCV):
    """scikit-learn's search over given candidates."""

    def __init__(
        self,
        estimator,
        candidates,
        *,
        scoring=None,
        refit=True,
        cv=None,
        verbose=0,
        error_score=np.nan,
        return_train_score=False,
    ):
        super().__init__(
            estimator,
            scoring=scoring,
            refit=refit,
            cv=cv,
            verbose=verbose,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.candidates = candidates

    def _run_search(self, evaluate_candidates):
        evaluate_candidates(self.candidates)


class _LookedUp(BaseEstimator):
    """Hands out estimators whose ``fit`` takes over what was trained before.

    They are asked for in the order of the members; whatever is asked for after the
    last (the refit) is trained as it is.
    """

    def __init__(self, estimator, members):
        self.estimator = estimator
        self.members = members
        self._next = iter(members)

    def __sklearn_clone__(self):
        return self

    def set_params(self, **params):
        member = next(self._next, None)
        if member is None:
            return clone(self.estimator).set_params(**params)
        result = clone(member.estimator)
        result.fit = partial(_take, result, member)
        return result

    def fit(self, X, y=None):
        raise NotImplementedError

    def score(self, X, y=None):
        raise NotImplementedError

    def get_metadata_routing(self):
        return self.estimator.get_metadata_routing()

    def __sklearn_tags__(self):
        return get_tags(self.estimator)


def _take(estimator, member: Member, *_, **__):
    """``fit`` of an estimator that was trained as a member."""
    del estimator.fit
    if member.error is not None:
        raise member.error
    vars(estimator).update(vars(member.estimator))
    return estimator


def train_members(members: Sequence[Member], budget: int, n_jobs) -> np.ndarray:
    """Train all members in place; returns the seconds that fell on each."""
    seconds = np.zeros(len(members))
    place = {id(member): i for i, member in enumerate(members)}
    groups = list(groups_of(members, budget))
    results = Parallel(n_jobs=n_jobs)(delayed(train_group)(group) for group in groups)
    for group, (trained, spent) in zip(groups, results, strict=True):
        for member, (network, error) in zip(group, trained, strict=True):
            seconds[place[id(member)]] = spent / len(group)
            member.error = error
            vars(member.network).update(vars(network))
    return seconds


def train_group(members: Sequence[Member]):
    """Fitted networks and errors of the members of one program, and its seconds."""
    start = time.perf_counter()
    networks = [member.network for member in members]
    fitted = fitting.train_together(
        networks,
        [member.task for member in members],
        [member.prepared.table for member in members],
    )
    results = []
    for member, network, one in zip(members, networks, fitted, strict=True):
        error = None
        try:
            network._finish(member.prepared, one)
        except Exception as caught:
            error = caught
        results.append((network, error))
    return results, time.perf_counter() - start


def _set_fit_times(results: dict, seconds: np.ndarray, n_splits: int) -> None:
    """Seconds of training in place of those of looking up."""
    of_folds = seconds.reshape(-1, n_splits)
    results["mean_fit_time"] = of_folds.mean(1)
    results["std_fit_time"] = of_folds.std(1)
