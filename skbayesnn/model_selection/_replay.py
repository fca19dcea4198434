"""scikit-learn's search over candidates whose scores are known.

Its loop fits and scores estimators as ever, but ``fit`` only says whether a member
could be trained, and the scorer what it said of it: table, ranking, warnings, errors
and the refit are scikit-learn's.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial

from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from skbayesnn._sklearn_compat import MultimetricScorer
from skbayesnn.estimators._progress import tell_afterwards
from skbayesnn.model_selection._worker import Outcome


def replayed(search, candidates, outcomes: Iterable[Outcome], splits, routed, scorers):
    """A copy of a search whose own ``fit`` uses the outcomes.

    Parameters
    ----------
    search : GridSearchCV or RandomizedSearchCV
    candidates : sequence of dict
    outcomes : iterable of Outcome
        Of each candidate in each fold, in scikit-learn's order; asked for one by one.
    splits : list of (train, test)
    routed : Bunch
        The routed parameters of ``fit``.
    scorers : tuple
        What the search's ``_get_scorers`` has returned.
    """
    scorer, refit_metric = scorers
    taken: list[Outcome] = []
    replay = copy(search)
    for name in learned(search):
        delattr(replay, name)

    def format_results(_, n_splits, out, more_results=None):
        for result, outcome in zip(out, taken, strict=True):
            result["fit_time"] = outcome.seconds
            result["score_time"] = outcome.score_seconds
        return type(replay)._format_results(
            replay, candidates, n_splits, out, more_results
        )

    vars(replay).update(
        estimator=_LookedUp(search.estimator, _noted(outcomes, taken)),
        # Each candidate as a grid of one point; its order of names is the grid's.
        param_grid=[{name: [v] for name, v in c.items()} for c in candidates],
        cv=splits,
        # Attributes of the instance go before the methods of its class.
        _get_routed_params_for_fit=lambda params: routed,
        _get_scorers=lambda: (_recalling(scorer), refit_metric),
        _format_results=format_results,
    )
    return replay


def learned(search) -> dict:
    """What a search has learned in ``fit``."""
    return {
        name: value
        for name, value in vars(search).items()
        if name.endswith("_") and not name.startswith("_")
    }


def _noted(outcomes: Iterable[Outcome], taken: list[Outcome]) -> Iterator[Outcome]:
    for outcome in outcomes:
        taken.append(outcome)
        yield outcome


class _LookedUp(BaseEstimator):
    """Hands out estimators that take over an outcome each, in their order.

    Whatever is asked for after the last of them (the refit) is trained as it is.
    """

    def __init__(self, estimator, outcomes: Iterator[Outcome]):
        self.estimator = estimator
        self.outcomes = outcomes

    def __sklearn_clone__(self):
        return self

    def set_params(self, **params):
        outcome = next(self.outcomes, None)
        if outcome is None:
            return clone(self.estimator).set_params(**params)
        result = copy(self.estimator)
        if has_callbacks(result):
            result = clone(result).set_params(**params)
        # An attribute of the instance goes before the method of its class.
        result.fit = partial(_take_over, result, outcome)
        result._recalled = iter(outcome.scores)
        return result

    def fit(self, X, y=None):
        """For scikit-learn's checks; the estimators handed out are fitted."""
        raise NotImplementedError

    def __sklearn_tags__(self):
        return get_tags(self.estimator)


def _take_over(estimator, outcome: Outcome, *_, **__):
    """``fit`` of an estimator that was trained as a member."""
    if outcome.error is not None:
        raise outcome.error.with_traceback(None)
    if has_callbacks(estimator):
        tell_afterwards(estimator, outcome.n_epochs)
    return estimator


def has_callbacks(estimator) -> bool:
    """Whether scikit-learn's callbacks are set on it or on its last step."""
    if hasattr(estimator, "_skl_callbacks"):
        return True
    return isinstance(estimator, Pipeline) and has_callbacks(estimator.steps[-1][1])


class _Recalling:
    """A scorer that says again what it said."""

    _of: Callable

    def __repr__(self):
        return repr(self._of)

    def __call__(self, estimator, *_, **__):
        score = next(estimator._recalled)
        if isinstance(score, Exception):
            raise score.with_traceback(None)
        # scikit-learn puts numbers in the place of errors.
        return dict(score) if isinstance(score, dict) else score


class _RecallingMany(_Recalling, MultimetricScorer):
    """The same of several metrics."""


def _recalling(scorer) -> _Recalling:
    result = _Recalling()
    if isinstance(scorer, MultimetricScorer):
        result = _RecallingMany(scorers=scorer._scorers, raise_exc=scorer._raise_exc)
    result._of = scorer
    return result
