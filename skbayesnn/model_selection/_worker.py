"""What a worker does: train the networks of one program, and score each of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from skbayesnn._inference.memory import is_out_of_memory
from skbayesnn._sklearn_compat import check_method_params, safe_split
from skbayesnn.estimators import _program
from skbayesnn.estimators._base import adopt
from skbayesnn.model_selection._grouping import MemoryLimit
from skbayesnn.model_selection._jobs import Job
from skbayesnn.model_selection._result_store import Key, Outcome, without_frames


class Scorer(Protocol):
    """Takes from trained estimators what is wanted of them, and lets them go."""

    def score_all(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Fill ``scores`` of all that is trained; an interruption leaves the rest."""


@dataclass(frozen=True)
class FoldScorer:
    """Scores trained estimators on the rows of their folds.

    Parameters
    ----------
    scorer : callable
    X, y : the rows of all folds
    splits : sequence of (train, test)
    params : mapping
        Further arguments of the scorer; those with an entry per row are cut.
    train_scores : bool
        Whether the training rows are scored, too.
    """

    scorer: Callable
    X: Any
    y: Any
    splits: Sequence[tuple]
    params: Mapping
    train_scores: bool

    def score_all(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Score all that is trained; an interruption leaves the rest as it is."""
        known: dict = {}
        try:
            for (_, fold), outcome in outcomes.items():
                if outcome.estimator is not None:
                    self._score(outcome, fold, known)
        except KeyboardInterrupt:
            return

    def _score(self, outcome: Outcome, fold: int, known: dict) -> None:
        """Score a trained estimator, which is then let go.

        known : the rows of folds that were asked for before
        """
        estimator = outcome.estimator
        # Only the steps before a network may look at pairs of rows.
        pairwise = isinstance(estimator, Pipeline) and get_tags(estimator)
        key = fold, pairwise and pairwise.input_tags.pairwise
        if key not in known:
            known[key] = list(self._rows(estimator, fold))
        scores = []
        for rows, params in known[key]:
            start = time.perf_counter()
            try:
                scores.append(self.scorer(estimator, *rows, **params))
            except Exception as error:
                scores.append(without_frames(error))
            if len(scores) == 1:
                outcome.score_seconds = time.perf_counter() - start
        outcome.scores, outcome.estimator = scores, None

    def _rows(self, estimator, fold: int):
        """Test rows, and training rows if asked for, as the scorer's arguments."""
        train, test = self.splits[fold]
        for rows in (test, train) if self.train_scores else (test,):
            X, y = safe_split(estimator, self.X, self.y, rows, train)
            params = check_method_params(self.X, self.params, indices=rows)
            yield (X,) if y is None else (X, y), params


def train_group(
    group: Sequence[Job],
    scorer: Scorer,
    limit: MemoryLimit,
    device: str | None = None,
) -> dict[Key, Outcome]:
    """Train and score the jobs of one program; without those that lacked memory.

    An interruption while scoring leaves the rest with their trained estimators.
    """
    if not limit.allows(group):
        return {}
    try:
        outcomes = _trained_together(group, device)
    except Exception as error:
        if len(group) > 1 and _is_out_of_memory(error):
            return {}
        return {job.key: Outcome(without_frames(error)) for job in group}
    scorer.score_all(outcomes)
    if len(group) == 1:
        return outcomes
    return {
        key: outcome
        for key, outcome in outcomes.items()
        if not any(map(_is_out_of_memory, [outcome.error, *outcome.scores]))
    }


def _trained_together(group: Sequence[Job], device: str | None) -> dict[Key, Outcome]:
    """Train a program, of which only the estimators are left."""
    start = time.perf_counter()
    fitted = _program.train_together(
        [job.network for job in group], [job.task for job in group], device
    )
    seconds = (time.perf_counter() - start) / len(group)
    outcomes = {}
    for job, one in zip(group, fitted, strict=True):
        if device is not None:
            job.network.device = device
        outcomes[job.key] = _trained(job, one, seconds)
    return outcomes


def _trained(job: Job, fitted: _program.Fitted, seconds: float) -> Outcome:
    """Make a job's network fitted, or say why it cannot be."""
    try:
        if fitted.trained.failed.all():
            raise _program.all_failed(job.task.plan, fitted.trained)
        adopt(job.network, job.prepared, fitted)
    except Exception as error:
        return Outcome(without_frames(error), seconds=seconds)
    n_epochs = job.network.n_iter_
    return Outcome(seconds=seconds, n_epochs=n_epochs, estimator=job.estimator)


def _is_out_of_memory(result) -> bool:
    """Whether there was too little memory, on the CPU or on a GPU.

    result : an exception, or a score; of several metrics, those that failed are the
        text of the traceback
    """
    if isinstance(result, dict):
        return any(map(_is_out_of_memory, result.values()))
    if isinstance(result, str):
        words = "not enough memory", "can't allocate memory", "MemoryError"
        return any(word in result for word in (*words, "OutOfMemoryError"))
    return isinstance(result, BaseException) and is_out_of_memory(result)
