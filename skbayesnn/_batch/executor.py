"""Train jobs, several networks per program, and score each of them.

Jobs whose networks can share a program are grouped within a memory budget. Each group
is one joblib task: a worker trains the program and scores its networks.
"""

import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import joblib
import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed

from skbayesnn import _validation
from skbayesnn._batch.jobs import FoldFit
from skbayesnn._batch.outcomes import Key, Outcome, without_frames
from skbayesnn._engine.resources import is_out_of_memory, torch_threads
from skbayesnn._runtime import warn
from skbayesnn._sklearn_compat import check_method_params, safe_split
from skbayesnn.estimators import _fit
from skbayesnn.estimators._base import set_fitted
from skbayesnn.estimators._job import TrainingJob

# ---- group jobs into programs

# Size of a program's widest activations on a CPU, measured. With fewer members the
# overhead of the calls dominates; with more the activations do not fit into the cache.
# A program has at least FEWEST_MEMBERS members, whatever their size.
WIDEST_BYTES, FEWEST_MEMBERS = 8 << 20, 16


def groups_of(jobs: Sequence[FoldFit], budget: int) -> Iterator[list[FoldFit]]:
    """Groups of jobs that share a program, each of at most ``budget`` bytes.

    Jobs of one fold are adjacent, so that a program needs few tables.
    """
    # In order of appearance: the order of the members changes the last bits of results.
    tables: dict[int, int] = {}
    for job in jobs:
        tables.setdefault(id(job.job.table), len(tables))
    alike: dict[tuple, list[FoldFit]] = {}
    for job in sorted(jobs, key=lambda job: tables[id(job.job.table)]):
        alike.setdefault(_shared(job), []).append(job)
    for group in alike.values():
        n_pieces = -(-len(group) // jobs_per_program(group, budget))
        for piece in np.array_split(np.arange(len(group)), n_pieces):
            yield [group[i] for i in piece]


def _shared(job: FoldFit) -> tuple:
    """Properties that all jobs of one program must have in common."""
    X, shares = job.job.table.X, job.job.shares
    return (
        job.job.config,
        # Members may differ in rows and epochs, but equal ones are faster.
        job.job.members.n_epochs.max(),
        frozenset((len(share.rows), len(share.validation)) for share in shares),
        str(job.network.device),
        X.dtype,
        type(X),
    )


def jobs_per_program(group: Sequence[FoldFit], budget: int) -> int:
    """Number of jobs that fit into the budget; on a CPU also limited for speed."""
    job = max(group, key=lambda job: job.job.n_members)
    n_members, config = job.job.n_members, job.job.config
    size = max(1, budget // (n_members * bytes_per_member(group)))
    if _validation.device_for_fit(job.network.device).type != "cpu":
        return size
    widest = config.batch_rows(_most_rows(group)) * config.network.widest * n_members
    members = WIDEST_BYTES // (_itemsize(job) * widest)
    return min(size, max(FEWEST_MEMBERS, members))


def bytes_of(group: Sequence[FoldFit]) -> int:
    """Upper estimate of the memory of a program in training."""
    n_members = sum(job.job.n_members for job in group)
    return n_members * bytes_per_member(group)


def bytes_per_member(group: Sequence[FoldFit]) -> int:
    """Upper estimate of the memory of one member of a program in training.

    It counts about thirty copies of the parameters: values, gradient and its parts, two
    moments of Adam, values of the best epoch, initial values, temporaries and results.
    It adds the activations of a batch with their random numbers, mask and gradient, and
    the index and weight of every row of the largest share.
    """
    config, n_rows = group[0].job.config, _most_rows(group)
    units = config.batch_rows(n_rows) * config.network.n_units
    n_values = 30 * config.network.n_weights + 6 * units
    return _itemsize(group[0]) * n_values + 16 * n_rows


def _most_rows(group: Sequence[FoldFit]) -> int:
    return max(len(share.rows) for job in group for share in job.job.shares)


def _itemsize(job: FoldFit) -> int:
    """Bytes of a float in training."""
    return job.job.config.dtype.itemsize


class MemoryLimit:
    """Size of the last program that ran out of memory; none as large is retried."""

    def __init__(self) -> None:
        self._too_large = float("inf")

    def allows(self, group: Sequence[FoldFit]) -> bool:
        """Whether the program is a single job, or smaller than the last that failed."""
        nothing_failed = self._too_large == float("inf")
        return nothing_failed or len(group) == 1 or bytes_of(group) < self._too_large

    def lower(self, group: Sequence[FoldFit]) -> None:
        """Record that a program did not fit into memory."""
        self._too_large = bytes_of(group)


# ---- train and score one program


class Scorer(Protocol):
    """Scores trained estimators, which are then released."""

    def score_all(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Fill ``scores`` of all trained outcomes, and set ``estimator`` to None.

        On an interruption, return and leave the other outcomes unscored.
        """


@dataclass(frozen=True)
class FoldScorer:
    """Scores trained estimators on the rows of their folds.

    Parameters
    ----------
    scorer : callable
    X, y : the rows of all folds
    splits : sequence of (train, test)
    params : mapping
        Further arguments of the scorer; those with an entry per row are indexed.
    train_scores : bool
        Whether to score the training rows too.
    """

    scorer: Callable
    X: Any
    y: Any
    splits: Sequence[tuple]
    params: Mapping
    train_scores: bool

    def score_all(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Score all trained outcomes; on an interruption, leave the rest unscored."""
        rows_by_fold: dict = {}
        try:
            for (_, fold), outcome in outcomes.items():
                if outcome.estimator is not None:
                    self._score(outcome, fold, rows_by_fold)
        except KeyboardInterrupt:
            return

    def _score(self, outcome: Outcome, fold: int, rows_by_fold: dict) -> None:
        """Score a trained estimator, then release it.

        rows_by_fold : cache of the scorer's arguments
        """
        estimator = outcome.estimator
        # Only the steps of a pipeline before the network may need pairs of rows.
        pairwise = isinstance(estimator, Pipeline) and get_tags(estimator)
        key = fold, pairwise and pairwise.input_tags.pairwise
        if key not in rows_by_fold:
            rows_by_fold[key] = list(self._rows(estimator, fold))
        scores = []
        for rows, params in rows_by_fold[key]:
            start = time.perf_counter()
            try:
                scores.append(self.scorer(estimator, *rows, **params))
            except Exception as error:
                scores.append(without_frames(error))
            if len(scores) == 1:
                outcome.score_seconds = time.perf_counter() - start
        outcome.scores, outcome.estimator = scores, None

    def _rows(self, estimator, fold: int):
        """Arguments of the scorer: for the test rows, then for the training rows."""
        train, test = self.splits[fold]
        for rows in (test, train) if self.train_scores else (test,):
            X, y = safe_split(estimator, self.X, self.y, rows, train)
            params = check_method_params(self.X, self.params, indices=rows)
            yield (X,) if y is None else (X, y), params


def train_group(
    group: Sequence[FoldFit],
    scorer: Scorer,
    limit: MemoryLimit,
    device: str | None = None,
) -> dict[Key, Outcome]:
    """Train and score the jobs of one program.

    Jobs that ran out of memory are missing from the result. After an interruption of
    the scoring, outcomes that are not scored contain their trained estimator.
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


def _trained_together(
    group: Sequence[FoldFit], device: str | None
) -> dict[Key, Outcome]:
    """Train the jobs in one program; their outcomes contain the trained estimators."""
    start = time.perf_counter()
    trained = _fit.train_together(
        [job.network for job in group], [job.job for job in group], device
    )
    seconds = (time.perf_counter() - start) / len(group)
    outcomes = {}
    for job, task in zip(group, trained, strict=True):
        if device is not None:
            job.network.device = device
        outcomes[job.key] = _trained(job, task, seconds)
    return outcomes


def _trained(job: FoldFit, task: TrainingJob, seconds: float) -> Outcome:
    """Set the fitted attributes of a job's network; the outcome keeps any exception."""
    try:
        if task.trained.failed.all():
            raise _fit.all_failed(task.config, task.trained)
        set_fitted(job.network, task)
    except Exception as error:
        return Outcome(without_frames(error), seconds=seconds)
    n_epochs = job.network.n_iter_
    return Outcome(seconds=seconds, n_epochs=n_epochs, estimator=job.estimator)


def _is_out_of_memory(result) -> bool:
    """Whether memory ran out, on the CPU or on a GPU.

    result : exception or score; with several metrics, a dict in which the score of a
        failed metric is the text of its traceback
    """
    if isinstance(result, dict):
        return any(map(_is_out_of_memory, result.values()))
    if isinstance(result, str):
        words = "not enough memory", "can't allocate memory", "MemoryError"
        return any(word in result for word in (*words, "OutOfMemoryError"))
    return isinstance(result, BaseException) and is_out_of_memory(result)


# ---- run all jobs through joblib

# Members per worker that are prepared at a time, and bytes of a member per row: the
# row's index and weight.
MEMBERS_AT_ONCE, BYTES_PER_ROW = 4096, 16


@dataclass(frozen=True)
class Resources:
    """Memory, workers and devices for the programs. They do not affect results.

    Parameters
    ----------
    memory : int
        Bytes for the members in training.
    n_jobs : int or None
        Number of parallel programs; if ``in_turn``, number of threads of each program.
    pre_dispatch : int or str
        Number of programs that joblib dispatches at once.
    devices : sequence of str, or None
        Each device trains one program at a time.
    backend : str, or None
        Backend of joblib to use if none is active.
    """

    memory: int
    n_jobs: int | None
    pre_dispatch: int | str
    devices: Sequence[str] | None
    backend: str | None = None

    @property
    def in_turn(self) -> bool:
        """Whether programs are trained sequentially, each with all threads.

        True unless joblib uses other processes, or several devices are given. Small
        networks spend most of their time in Python, which runs one thread of a process
        at a time: two programs in parallel threads take nearly as long as in sequence.
        """
        if self.backend is not None:
            return False
        backend, _ = joblib.parallel.get_active_backend(prefer="threads")
        return not self.devices and getattr(backend, "supports_sharedmem", False)

    @property
    def n_workers(self) -> int:
        """Number of programs that train at the same time."""
        if self.in_turn:
            return 1
        return len(self.devices or ()) or joblib.effective_n_jobs(self.n_jobs)

    @property
    def n_threads(self) -> int | None:
        """Threads of torch for a program in this process; None: torch's own setting."""
        n_jobs = joblib.effective_n_jobs(self.n_jobs)
        return n_jobs if self.in_turn and (self.n_jobs or n_jobs > 1) else None

    def parallel(self) -> Parallel:
        """A joblib executor that returns each result as soon as it is computed."""
        options = {"n_jobs": 1 if self.in_turn else self.n_jobs, "prefer": "threads"}
        if self.devices:  # Devices belong to this process.
            options = {"n_jobs": len(self.devices), "require": "sharedmem"}
        elif self.backend is not None:
            options["backend"] = self.backend
        options["pre_dispatch"] = self.pre_dispatch
        try:
            return Parallel(return_as="generator", **options)
        except ValueError:  # The backend cannot return results one at a time.
            return Parallel(**options)


class Executor:
    """Trains and scores jobs.

    Parameters
    ----------
    scorer : Scorer
    resources : Resources
    """

    def __init__(self, scorer: Scorer, resources: Resources):
        self._scorer = scorer
        self._n_workers = resources.n_workers
        self._memory = resources.memory // self._n_workers
        self._parallel, self._n_threads = resources.parallel(), resources.n_threads
        self._devices = _idle(resources.devices)
        self._limit = MemoryLimit()

    def candidates_at_once(self, n_folds: int, n_rows: int) -> int:
        """Number of candidates to prepare at a time.

        All workers have enough to do, and the row indices of the members fit into
        memory.
        """
        members = min(MEMBERS_AT_ONCE, self._memory // (BYTES_PER_ROW * n_rows))
        return max(1, members * self._n_workers // n_folds)

    def score(self, outcomes: Mapping[Key, Outcome]) -> Mapping[Key, Outcome]:
        """Score outcomes that an interruption left trained but unscored.

        Raises
        ------
        KeyboardInterrupt
            If the scoring is interrupted again; the scores computed so far are kept.
        """
        self._scorer.score_all(outcomes)
        _raise_if_interrupted(outcomes.values())
        return outcomes

    def run(self, jobs: Sequence[FoldFit]) -> Iterator[dict[Key, Outcome]]:
        """Train and score jobs; yield the outcomes of each program when it is done.

        A program that does not fit into memory is halved.

        Raises
        ------
        KeyboardInterrupt
            After the outcomes computed so far are yielded.
        """
        waiting = deque(groups_of(jobs, self._memory))
        del jobs  # Release each job when its program is done.
        while waiting:
            sent: deque[list[FoldFit]] = deque()
            with torch_threads(self._n_threads):
                for outcomes in self._parallel(self._calls(waiting, sent)):
                    group = sent.popleft()
                    yield outcomes
                    _raise_if_interrupted(outcomes.values())
                    left = [job for job in group if job.key not in outcomes]
                    if left and self._limit.allows(group):
                        self._limit.lower(group)
                        _warn_of_halving(len(group))
                    waiting.extend(_halves(left))

    def _calls(self, waiting: deque, sent: deque):
        """Calls for joblib; groups that are known not to fit are halved first."""
        while waiting:
            group = waiting.popleft()
            if self._limit.allows(group):
                sent.append(group)
                arguments = group, self._scorer, self._limit
                if self._devices is None:
                    yield delayed(train_group)(*arguments)
                else:
                    yield delayed(_train_on_one_of)(self._devices, *arguments)
            else:
                waiting.extendleft(reversed(_halves(group)))


def _raise_if_interrupted(outcomes: Iterable[Outcome]) -> None:
    """Raise if an outcome is trained but unscored: its program was interrupted."""
    if not all(outcome.estimator is None for outcome in outcomes):
        raise KeyboardInterrupt


def _idle(devices: Sequence[str] | None) -> queue.SimpleQueue | None:
    """Queue of the devices that do not train a program."""
    if not devices:
        return None
    idle: queue.SimpleQueue[str] = queue.SimpleQueue()
    for device in devices:
        idle.put(device)
    return idle


def _train_on_one_of(idle: queue.SimpleQueue, group, scorer, limit):
    """Run ``train_group`` on the next idle device."""
    device = idle.get()
    try:
        return train_group(group, scorer, limit, device)
    finally:
        idle.put(device)


def _halves(group: list) -> list[list]:
    """The non-empty halves of a group."""
    middle = len(group) // 2
    return [half for half in (group[:middle], group[middle:]) if half]


def _warn_of_halving(n_members: int) -> None:
    warn(
        f"out of memory with {n_members} members in one program; retrying with half as "
        "many. Lower `memory_budget` to start with fewer.",
    )
