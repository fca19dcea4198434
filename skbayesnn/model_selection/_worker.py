"""What a worker does: train the networks of one program, and score each of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from skbayesnn._sklearn_compat import check_method_params, safe_split
from skbayesnn.estimators import _program
from skbayesnn.estimators._base import adopt
from skbayesnn.model_selection._grouping import Job, Room


@dataclass
class Outcome:
    """What became of one candidate in one fold.

    Parameters
    ----------
    error : Exception, or None
        Why it could not be trained.
    scores : list
        What the scorer said, or the exception that it raised: of the test rows, then
        of the training rows if these are asked for.
    seconds, score_seconds : float
        Its share of its program's time, and the time to score the test rows.
    n_epochs : int
    estimator : estimator, or None
        Trained, as long as it has not been scored.
    """

    error: Exception | None = None
    scores: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    score_seconds: float = 0.0
    n_epochs: int = 0
    estimator: BaseEstimator | None = None


@dataclass(frozen=True)
class Judge:
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

    def score(self, outcome: Outcome, fold: int, known: dict) -> None:
        """Score a trained estimator, which is then let go.

        known : the rows of folds that were asked for before
        """
        estimator = outcome.estimator
        key = fold, get_tags(estimator).input_tags.pairwise
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
    jobs: Sequence[Job], judge: Judge, room: Room, device: str | None = None
) -> list[Outcome] | None:
    """Train and score the jobs of one program; None where the memory does not suffice.

    An interruption while scoring leaves the rest with their trained estimators.
    """
    if not room.holds(jobs):
        return None
    start = time.perf_counter()
    try:
        fitted = _program.train_together(
            [job.network for job in jobs],
            [job.task for job in jobs],
            device,
        )
    except Exception as error:
        if len(jobs) > 1 and _out_of_memory(error):
            return None
        return [Outcome(without_frames(error)) for _ in jobs]
    seconds = (time.perf_counter() - start) / len(jobs)
    outcomes = []
    for job, one in zip(jobs, fitted, strict=True):
        if device is not None:
            job.network.device = device
        outcomes.append(_trained(job, one, seconds))
    score_all(outcomes, [job.fold for job in jobs], judge)
    return outcomes


def score_all(outcomes: Sequence[Outcome], folds: Sequence[int], judge: Judge) -> None:
    """Score all that is trained; an interruption leaves the rest as it is."""
    known: dict = {}
    try:
        for outcome, fold in zip(outcomes, folds, strict=True):
            if outcome.estimator is not None:
                judge.score(outcome, fold, known)
    except KeyboardInterrupt:
        return


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


def without_frames(error: Exception) -> Exception:
    """Without the tables and networks that the frames of a traceback hold."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _out_of_memory(error: Exception) -> bool:
    """Whether there was too little memory, on the CPU or on a GPU."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error) for words in ("not enough memory", "can't allocate memory")
    )
