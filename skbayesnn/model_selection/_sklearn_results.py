"""Turn outcomes into the results of a scikit-learn search.

scikit-learn's own loop runs over stand-ins: ``fit`` raises the stored exception of a
member, if any, and the scorer returns its stored score. So ``cv_results_``, ranking,
warnings, errors and the refit are scikit-learn's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Bunch, get_tags

from skbayesnn._batch.outcomes import Outcome
from skbayesnn._sklearn_compat import (
    BaseSearchCV,
    MultimetricScorer,
    SearchOverStored,
    copy_callbacks,
    with_metrics_of,
)
from skbayesnn.estimators._progress import check_verbose


@dataclass(frozen=True)
class SearchInputs:
    """The checked arguments of a search's ``fit``.

    Parameters
    ----------
    X, y, params
        The arguments.
    routed : Bunch
        The part of ``params`` for the estimator, the splitter and the scorers.
    splits : list of (train, test)
    scorer : callable
    refit_metric : str
    """

    X: Any
    y: Any
    params: dict
    routed: Bunch
    splits: list[tuple]
    scorer: Any
    refit_metric: Any


def replay(
    search,
    inputs: SearchInputs,
    candidates: list[dict],
    outcomes: Iterable[list[Outcome]],
    **parameters,
):
    """A copy of a search, fitted by scikit-learn's own ``fit`` to stored outcomes.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
    inputs : SearchInputs
    candidates : list of dict
    outcomes : iterable of list of Outcome
        Outcomes of some candidates in all folds, in scikit-learn's order. It is
        consumed lazily.
    **parameters
        Parameters in which the copy differs from the search.
    """
    # Callbacks and messages show the name of the class.
    search_class = type(type(search).__name__, (_Replay, type(search)), {})
    stand_in = _OutcomeEstimator(search.estimator, chain.from_iterable(outcomes))
    # scikit-learn has no "auto".
    verbose = check_verbose(search.verbose) or 0
    parameters |= {"estimator": stand_in, "cv": inputs.splits, "verbose": verbose}
    result = search_class(**search.get_params(deep=False) | parameters)
    copy_callbacks(search, result)
    scorers = _stored_scorer(inputs.scorer), inputs.refit_metric
    result.set_known(scorers, inputs.routed, candidates)
    # The loop must consume the outcomes in their order.
    with joblib.parallel_config(backend="sequential"):
        return BaseSearchCV.fit(result, inputs.X, inputs.y, **inputs.params)


def fitted_attributes(search) -> dict:
    """The public fitted attributes of a search."""
    return {
        name: value
        for name, value in vars(search).items()
        if name.endswith("_") and not name.startswith("_")
    }


class _Replay(SearchOverStored):
    """A search whose estimator is an ``_OutcomeEstimator``."""

    estimator: Any

    def add_times(self, results):
        for result, outcome in zip(results, self.estimator.taken, strict=True):
            result["fit_time"] = outcome.seconds
            result["score_time"] = outcome.score_seconds


class _OutcomeEstimator(BaseEstimator):
    """Each ``set_params`` returns a ``StoredEstimator`` for the next outcome.

    After the last outcome (in the refit) it returns a clone of the estimator.
    """

    def __init__(self, estimator, outcomes: Iterator[Outcome]):
        self.estimator = estimator
        self.outcomes = outcomes
        self.taken: list[Outcome] = []
        self.tags = get_tags(estimator)

    def __sklearn_clone__(self):
        return self

    def set_params(self, **params):
        outcome = next(self.outcomes, None)
        if outcome is None:
            return clone(self.estimator).set_params(**params)
        self.taken.append(outcome)
        return StoredEstimator(self, outcome)

    def fit(self, X, y=None):
        """Never called: scikit-learn only checks that the method exists."""
        raise NotImplementedError

    def __sklearn_tags__(self):
        return self.tags


class StoredEstimator(BaseEstimator):
    """Stands in for an estimator that was trained as a member."""

    def __init__(self, source: _OutcomeEstimator, outcome: Outcome):
        self.source = source
        self.outcome = outcome
        self.scores = iter(outcome.results)

    def fit(self, X, y=None, **params):
        if self.outcome.error is not None:
            raise self.outcome.error.with_traceback(None)
        return self

    def __sklearn_tags__(self):
        return self.source.tags


class StoredScorer:
    """A scorer that returns the stored score of a ``StoredEstimator``."""

    original: Any

    def __repr__(self):
        return repr(self.original)

    def __call__(self, member, *_, **__):
        score = next(member.scores)
        if isinstance(score, Exception):
            raise score.with_traceback(None)
        # A copy, because scikit-learn replaces the errors in the dict by `error_score`.
        return dict(score) if isinstance(score, dict) else score


class _StoredMultimetricScorer(StoredScorer, MultimetricScorer):
    """A ``StoredScorer`` for several metrics."""


def _stored_scorer(scorer) -> StoredScorer:
    if isinstance(scorer, MultimetricScorer):
        result = with_metrics_of(_StoredMultimetricScorer, scorer)
    else:
        result = StoredScorer()
    result.original = scorer
    return result


def mean_scores(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Mean test score of each metric over the folds; NaN if one of them failed."""
    scores = [outcome.results[0] if outcome.results else None for outcome in outcomes]
    names = {name for score in scores if isinstance(score, dict) for name in score}
    if not names:
        names, scores = {"score"}, [{"score": score} for score in scores]
    return {
        name: float(np.mean([_score(of_fold, name) for of_fold in scores]))
        for name in sorted(names)
    }


def _score(of_fold, name: str) -> float:
    score = of_fold.get(name) if isinstance(of_fold, dict) else None
    return float(score) if isinstance(score, Real) else np.nan
