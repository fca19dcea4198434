"""One estimator without each of the folds, as one program where that can be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sklearn
from sklearn.utils.parallel import Parallel, delayed

from skbayesnn._meta.held_out import fitted_to, refuse_fitted
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


def cross_fitted(
    estimator,
    X,
    y,
    splits: Sequence[tuple],
    fit_params: Mapping | None = None,
    n_jobs: int | None = None,
) -> list:
    """Copies of an estimator, each fitted to the training rows of a fold.

    Networks are members of one program, and equal to rounding to those of a ``fit`` by
    themselves; whatever else there is, is fitted by its own ``fit``.

    splits : sequence of (train, test)
    fit_params : of ``fit``; those with an entry per row are cut
    n_jobs : fits side by side, or threads of programs

    Raises
    ------
    ValueError
        For predictors that are fitted already, as in ``FrozenEstimator``.
    """
    refuse_fitted(estimator)
    fit_params = fit_params or {}
    try:
        network_of(estimator)
    except TypeError:
        return Parallel(n_jobs=n_jobs)(
            delayed(fitted_to)(estimator, X, y, train, fit_params)
            for train, _ in splits
        )
    jobs, failed = JobBuilder(estimator, fit_params, X, y, splits).jobs(
        {"": {}}, {"": range(len(splits))}
    )
    memory = int(sklearn.get_config()["working_memory"] * 2**20)
    outcomes = dict(failed)
    resources = Resources(memory, n_jobs, "2*n_jobs", None)
    for of_program in Executor(Keeper(), resources).run(jobs):
        outcomes |= of_program
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    return [outcomes["", fold].scores[0] for fold in range(len(splits))]
