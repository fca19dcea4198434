"""One estimator without each of the folds, as one program where that can be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sklearn
from sklearn.base import clone

from skbayesnn._sklearn_compat import safe_split
from skbayesnn.model_selection._executor import Executor, Resources
from skbayesnn.model_selection._jobs import JobBuilder, network_of
from skbayesnn.model_selection._result_store import Key, Outcome


@dataclass(frozen=True)
class Keeper:
    """Keeps the trained estimators themselves."""

    def score_all(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Each outcome hands its estimator on."""
        for outcome in outcomes.values():
            if outcome.estimator is not None:
                outcome.scores, outcome.estimator = [outcome.estimator], None


def cross_fitted(estimator, X, y, splits: Sequence[tuple]) -> list:
    """Copies of an estimator, each fitted to the training rows of a fold.

    Networks are members of one program, and equal to rounding to those of a ``fit`` by
    themselves; whatever else there is, is fitted by its own ``fit``.

    splits : sequence of (train, test)
    """
    try:
        network_of(estimator)
    except TypeError:
        rows = [safe_split(estimator, X, y, train) for train, _ in splits]
        return [clone(estimator).fit(*of_fold) for of_fold in rows]
    jobs, failed = JobBuilder(estimator, {}, X, y, splits).jobs(
        {"": {}}, {"": range(len(splits))}
    )
    memory = int(sklearn.get_config()["working_memory"] * 2**20)
    outcomes = dict(failed)
    for of_program in Executor(Keeper(), Resources(memory, None, 1, None)).run(jobs):
        outcomes |= of_program
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    return [outcomes["", fold].scores[0] for fold in range(len(splits))]
