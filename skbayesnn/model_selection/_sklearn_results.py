"""Outcomes -> scikit-learn's results of a search.

Its loop fits and scores estimators as ever, but ``fit`` only says whether a member
could be trained, and the scorer what it said of it: table, ranking, warnings, errors
and the refit are scikit-learn's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import joblib
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, get_tags

from skbayesnn._batch.outcomes import Outcome
from skbayesnn._sklearn_compat import (
    BaseSearchCV,
    CallbackSupportMixin,
    MultimetricScorer,
    SearchOverStored,
    callback_context,
    hand_callbacks,
    has_callbacks,
    with_callbacks,
    with_metrics_of,
)
from skbayesnn.estimators._fit import epochs_reported


@dataclass(frozen=True)
class SearchInputs:
    """What ``fit`` of a search was given, checked.

    Parameters
    ----------
    X, y, params
        Its arguments.
    routed : Bunch
        Those for the estimator, the splitter and the scorers.
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
    """A copy of a search that scikit-learn's own ``fit`` has fitted to the outcomes.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
    inputs : SearchInputs
    candidates : list of dict
    outcomes : iterable of list of Outcome
        Of some candidates in all folds, in scikit-learn's order; asked for one list
        after the other.
    **parameters
        Of the copy that are not the search's.
    """
    # Callbacks and messages tell the name of the class.
    kind = type(type(search).__name__, (_Replay, type(search)), {})
    known = _KnownOutcomes(search.estimator, chain.from_iterable(outcomes))
    parameters |= {"estimator": known, "cv": inputs.splits}
    result = kind(**search.get_params(deep=False) | parameters)
    hand_callbacks(search, result)
    scorers = _recalling(inputs.scorer), inputs.refit_metric
    result.set_known(scorers, inputs.routed, candidates)
    # Outcomes are handed out in order, and are there already.
    with joblib.parallel_config(backend="sequential"):
        return BaseSearchCV.fit(result, inputs.X, inputs.y, **inputs.params)


def learned(search) -> dict:
    """What a search has learned in ``fit``."""
    return {
        name: value
        for name, value in vars(search).items()
        if name.endswith("_") and not name.startswith("_")
    }


class _Replay(SearchOverStored):
    """A search whose estimator is a ``_KnownOutcomes``."""

    estimator: Any

    def add_times(self, results):
        for result, outcome in zip(results, self.estimator.taken, strict=True):
            result["fit_time"] = outcome.seconds
            result["score_time"] = outcome.score_seconds


class _KnownOutcomes(BaseEstimator):
    """Hands out a ``StoredEstimator`` for each outcome, in their order.

    What is asked for after the last of them (the refit) is the estimator itself.
    """

    def __init__(self, estimator, outcomes: Iterator[Outcome]):
        self.estimator = estimator
        self.outcomes = outcomes
        self.taken: list[Outcome] = []
        self.tags, self.has_callbacks = get_tags(estimator), has_callbacks(estimator)

    def __sklearn_clone__(self):
        return self

    def set_params(self, **params):
        outcome = next(self.outcomes, None)
        if outcome is None:
            return clone(self.estimator).set_params(**params)
        self.taken.append(outcome)
        return StoredEstimator(self, params, outcome)

    def fit(self, X, y=None):
        """For scikit-learn's checks; the estimators handed out are fitted."""
        raise NotImplementedError

    def __sklearn_tags__(self):
        return self.tags


class StoredEstimator(CallbackSupportMixin, BaseEstimator):
    """Stands for an estimator that was trained as a member."""

    def __init__(self, known: _KnownOutcomes, params: dict, outcome: Outcome):
        self.known = known
        self.params = params
        self.outcome = outcome
        self.scores = iter(outcome.scores)
        if known.has_callbacks:
            hand_callbacks(known.estimator, self)

    def fit(self, X, y=None, **params):
        if self.outcome.error is not None:
            raise self.outcome.error.with_traceback(None)
        # Those of the search are set on the members in its loop.
        if self.known.has_callbacks or has_callbacks(self):
            told = clone(self.known.estimator).set_params(**self.params)
            hand_callbacks(self, told)
            _tell(told, self.outcome.n_epochs)
        return self

    def __sklearn_tags__(self):
        return self.known.tags


@with_callbacks
def _tell(estimator, n_epochs: int) -> None:
    """Tell the callbacks of a fit that is over.

    Of a network all epochs; of a pipeline its last step, because the steps before it
    were fitted for others, too.
    """
    if not isinstance(estimator, Pipeline):
        with epochs_reported([estimator], n_epochs, shown=False) as report:
            for epoch in range(n_epochs):
                report(epoch + 1)
        return
    fit = callback_context(estimator, n_subtasks=1)
    fit.call_on_fit_task_begin(estimator=estimator)
    last = fit.subcontext(task_name="fit-final-estimator")
    with last.propagate_callback_context(estimator[-1]):
        last.call_on_fit_task_begin(estimator=estimator)
        _tell(estimator[-1], n_epochs)
        last.call_on_fit_task_end(estimator=estimator)
    fit.call_on_fit_task_end(estimator=estimator)


class StoredScorer:
    """A scorer that says again what it said."""

    said_by: Any

    def __repr__(self):
        return repr(self.said_by)

    def __call__(self, member, *_, **__):
        score = next(member.scores)
        if isinstance(score, Exception):
            raise score.with_traceback(None)
        # scikit-learn puts numbers in the place of errors.
        return dict(score) if isinstance(score, dict) else score


class _RecallingMany(StoredScorer, MultimetricScorer):
    """The same of several metrics."""


def _recalling(scorer) -> StoredScorer:
    several = isinstance(scorer, MultimetricScorer)
    result = with_metrics_of(_RecallingMany, scorer) if several else StoredScorer()
    result.said_by = scorer
    return result
