"""Train fold fits, several networks per program, and score each of them.

Fold fits whose networks can share a program are grouped within a memory budget. Each
group is one joblib task: a worker trains the program and scores its networks.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import joblib
import numpy as np
import sklearn
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from skbayesnn import _validation
from skbayesnn._batch.jobs import FoldFit
from skbayesnn._batch.outcomes import (
    Key,
    Outcome,
    ProgramResult,
    TrainedFit,
    without_frames,
)
from skbayesnn._engine.processes import ProcessError, present_processes
from skbayesnn._engine.resources import is_out_of_memory, torch_threads
from skbayesnn._runtime import warn
from skbayesnn._sklearn_compat import check_method_params, safe_split
from skbayesnn.estimators import _fit
from skbayesnn.estimators._base import set_fitted
from skbayesnn.estimators._job import TrainedJob
from skbayesnn.estimators._workers import results_of, workers

# Memory of a member per row, for the index and the weight of the row.
BYTES_PER_ROW = 16

# ---- group fold fits into programs


def group_into_programs(
    fold_fits: Sequence[FoldFit], budget: int
) -> Iterator[list[FoldFit]]:
    """Split fold fits into groups that share a program of at most ``budget`` bytes.

    Fits to one fold are adjacent, so that a program needs few tables.
    """
    # In order of appearance: the order of the members changes the last bits of results.
    tables: dict[int, int] = {}
    for fold_fit in fold_fits:
        tables.setdefault(id(fold_fit.job.table), len(tables))
    by_program_key: dict[tuple, list[FoldFit]] = {}
    for fold_fit in sorted(fold_fits, key=lambda fit: tables[id(fit.job.table)]):
        by_program_key.setdefault(_program_key(fold_fit), []).append(fold_fit)
    for group in by_program_key.values():
        n_members = max(fold_fit.job.n_members for fold_fit in group)
        n_at_once = max(1, budget // (n_members * bytes_per_member(group)))
        n_pieces = -(-len(group) // n_at_once)
        for piece in np.array_split(np.arange(len(group)), n_pieces):
            yield [group[i] for i in piece]


def _program_key(fold_fit: FoldFit) -> tuple:
    """Properties that all fold fits of one program must have in common."""
    job = fold_fit.job
    X = job.table.X
    return (
        job.config,
        # Members may differ in rows and epochs, but equal ones are faster.
        job.members.n_epochs.max(),
        frozenset((len(s.rows), len(s.held_out_rows)) for s in job.row_subsets),
        str(fold_fit.network.device),
        X.dtype,
        type(X),
    )


def estimate_bytes(group: Sequence[FoldFit]) -> int:
    """Estimate an upper bound of the memory of a program in training."""
    n_members = sum(fold_fit.job.n_members for fold_fit in group)
    return n_members * bytes_per_member(group)


def bytes_per_member(group: Sequence[FoldFit]) -> int:
    """Upper estimate of the memory of one member of a program in training.

    It counts about thirty copies of the parameters: values, gradient and its parts, two
    moments of Adam, values of the best epoch, initial values, temporaries and results.
    It adds the activations of a batch with their random numbers, mask and gradient, and
    the index and weight of every row of the largest subset.
    """
    config = group[0].job.config
    n_rows = max(len(s.rows) for fold_fit in group for s in fold_fit.job.row_subsets)
    units = config.batch_rows(n_rows) * config.network.n_units
    n_values = 30 * config.network.n_weights + 6 * units
    return config.dtype.itemsize * n_values + BYTES_PER_ROW * n_rows


# ---- train and score one program


# Computes the outcome of a trained fit, which is then released. Its arguments are the
# name of the candidate and the index of the fold, the fit, and a dict that all fits of
# a program share.
ResultBuilder = Callable[[Key, TrainedFit, dict], Outcome]


@dataclass(frozen=True)
class FoldScorer:
    """Scores estimators on the rows of their folds.

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

    def __call__(self, key: Key, fit: TrainedFit, cache: dict) -> Outcome:
        """Score a trained fit; the cache contains the scorer's arguments by fold."""
        estimator, (_, fold) = fit.estimator, key
        # Only the steps of a pipeline before the network may need pairs of rows.
        pairwise = isinstance(estimator, Pipeline) and get_tags(estimator)
        rows_key = fold, pairwise and pairwise.input_tags.pairwise
        if rows_key not in cache:
            cache[rows_key] = list(self._rows(estimator, fold))
        scores: list[Any] = []
        seconds = []
        for rows, params in cache[rows_key]:
            start = time.perf_counter()
            try:
                scores.append(self.scorer(estimator, *rows, **params))
            except ProcessError:
                raise
            except Exception as error:
                scores.append(without_frames(error))
            seconds.append(time.perf_counter() - start)
        return Outcome(
            results=scores,
            seconds=fit.seconds,
            score_seconds=seconds[0],
        )

    def _rows(self, estimator, fold: int):
        """Arguments of the scorer: for the test rows, then for the training rows."""
        train, test = self.splits[fold]
        for rows in (test, train) if self.train_scores else (test,):
            X, y = safe_split(estimator, self.X, self.y, rows, train)
            params = check_method_params(self.X, self.params, indices=rows)
            yield (X,) if y is None else (X, y), params


def build_results(
    trained: Mapping[Key, TrainedFit], builder: ResultBuilder
) -> ProgramResult:
    """Compute the outcomes of trained fits, until an interruption."""
    outcomes: dict[Key, Outcome] = {}
    cache: dict = {}
    try:
        for key, fit in trained.items():
            outcomes[key] = builder(key, fit, cache)
    except KeyboardInterrupt:
        unscored = {key: fit for key, fit in trained.items() if key not in outcomes}
        return ProgramResult(outcomes, unscored)
    return ProgramResult(outcomes)


def train_group(group: Sequence[FoldFit], builder: ResultBuilder) -> ProgramResult:
    """Train the fold fits of one program and build their results.

    Fold fits that ran out of memory are missing from the result.
    """
    try:
        trained, outcomes = _trained_together(group)
    except ProcessError:
        raise
    except Exception as error:
        if len(group) > 1 and _is_out_of_memory(error):
            return ProgramResult()
        failed = Outcome(without_frames(error))
        return ProgramResult({fold_fit.key: failed for fold_fit in group})
    result = build_results(trained, builder)
    outcomes |= result.outcomes
    if len(group) > 1:
        too_large = {
            key
            for key, outcome in outcomes.items()
            if any(map(_is_out_of_memory, [outcome.error, *outcome.results]))
        }
        processes = present_processes()
        if processes is not None:  # All of them train the same programs next.
            too_large = set().union(*processes.gather(too_large))
        outcomes = {key: outcomes[key] for key in outcomes if key not in too_large}
    return ProgramResult(outcomes, result.unscored)


def _trained_together(
    group: Sequence[FoldFit],
) -> tuple[dict[Key, TrainedFit], dict[Key, Outcome]]:
    """Train fold fits in one program; return those that succeeded and that failed."""
    start = time.perf_counter()
    networks = [fold_fit.network for fold_fit in group]
    jobs = _fit.train_together(networks, [fold_fit.job for fold_fit in group])
    seconds = (time.perf_counter() - start) / len(group)
    trained, failed = {}, {}
    for fold_fit, job in zip(group, jobs, strict=True):
        try:
            trained[fold_fit.key] = _trained_fit(fold_fit, job, seconds)
        except Exception as error:
            failed[fold_fit.key] = Outcome(without_frames(error), seconds=seconds)
    return trained, failed


def _trained_fit(
    fold_fit: FoldFit, trained_job: TrainedJob, seconds: float
) -> TrainedFit:
    """Set the network's fitted attributes, or raise if the training failed."""
    if trained_job.trained.failed.all():
        raise _fit.all_failed(trained_job.job.config, trained_job.trained)
    set_fitted(fold_fit.network, trained_job)
    return TrainedFit(fold_fit.estimator, seconds)


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


# ---- run all programs through joblib

# Members per worker that are prepared at a time.
MEMBERS_AT_ONCE = 4096


@dataclass(frozen=True)
class Resources:
    """Memory and workers for the programs. They do not affect results.

    Parameters
    ----------
    memory : int
        Bytes for the members in training.
    n_jobs : int or None
        Number of parallel programs; if ``sequential``, number of threads of each
        program.
    pre_dispatch : int or str
        Number of programs that joblib dispatches at once.
    backend : str, or None
        Backend of joblib to use if none is active.
    """

    memory: int
    n_jobs: int | None
    pre_dispatch: int | str = "2*n_jobs"
    backend: str | None = None

    @classmethod
    def from_budget(
        cls, megabytes: float | None, n_jobs: int | None, **options
    ) -> Self:
        """Resources with a memory budget in MiB, by default ``working_memory``.

        Raises
        ------
        TypeError, ValueError
            If the ``memory_budget`` is not a positive number.
        """
        if megabytes is None:
            megabytes = sklearn.get_config()["working_memory"]
        _validation.check_number("memory_budget", megabytes, low=0, open_low=True)
        return cls(int(megabytes * 2**20), n_jobs, **options)

    @property
    def sequential(self) -> bool:
        """Whether programs are trained sequentially, each with all threads.

        True unless joblib uses other processes. Small networks spend most of their time
        in Python, which runs one thread of a process at a time: two programs in
        parallel threads take nearly as long as in sequence.
        """
        if self.backend is not None:
            return False
        backend, _ = joblib.parallel.get_active_backend(prefer="threads")
        return getattr(backend, "supports_sharedmem", False)

    @property
    def n_workers(self) -> int:
        """Number of programs that train at the same time."""
        if self.sequential:
            return 1
        return joblib.effective_n_jobs(self.n_jobs)

    @property
    def n_threads(self) -> int | None:
        """Threads of torch for a program in this process; None: torch's own setting."""
        n_jobs = joblib.effective_n_jobs(self.n_jobs)
        return n_jobs if self.sequential and (self.n_jobs or n_jobs > 1) else None

    def workers(self) -> Any:
        """Workers of joblib's backend."""
        options = {"n_jobs": 1 if self.sequential else self.n_jobs, "prefer": "threads"}
        if self.backend is not None:
            options["backend"] = self.backend
        return workers(pre_dispatch=self.pre_dispatch, **options)


class Executor:
    """Trains fold fits and builds their results.

    Parameters
    ----------
    builder : ResultBuilder
    resources : Resources
    """

    def __init__(self, builder: ResultBuilder, resources: Resources):
        self._builder = builder
        self._n_workers = resources.n_workers
        self._memory = resources.memory // self._n_workers
        self._workers, self._n_threads = resources.workers(), resources.n_threads
        # Bytes of the smallest program that did not fit into memory.
        self._too_large = float("inf")

    def candidates_at_once(self, n_folds: int, n_rows: int) -> int:
        """Number of candidates to prepare at a time.

        All workers have enough to do, and the row indices of the members fit into
        memory.
        """
        members = min(MEMBERS_AT_ONCE, self._memory // (BYTES_PER_ROW * n_rows))
        return max(1, members * self._n_workers // n_folds)

    def resume(self, unscored: Mapping[Key, TrainedFit]) -> Iterator[ProgramResult]:
        """Score the fits that an interruption left unscored, if there are any.

        Raises
        ------
        KeyboardInterrupt
            If the scoring is interrupted again, after its result is yielded.
        """
        if unscored:
            result = build_results(unscored, self._builder)
            yield result
            _raise_if_interrupted(result)

    def run(self, fold_fits: Sequence[FoldFit]) -> Iterator[ProgramResult]:
        """Train and score fold fits; yield the result of each program when done.

        A program that does not fit into memory is halved.

        Raises
        ------
        KeyboardInterrupt
            After the results computed so far are yielded.
        """
        waiting = deque(group_into_programs(fold_fits, self._memory))
        del fold_fits  # Release each of them when its program is done.
        while waiting:
            sent: deque[list[FoldFit]] = deque()
            with torch_threads(self._n_threads):
                for result in results_of(self._workers, self._calls(waiting, sent)):
                    group = sent.popleft()
                    yield result
                    _raise_if_interrupted(result)
                    remaining = [fit for fit in group if fit.key not in result.outcomes]
                    if remaining and not self._is_too_large(group):
                        self._too_large = estimate_bytes(group)
                        warn(
                            "SKB501",
                            f"out of memory with {len(group)} members in one program, "
                            "which is split in halves. Lower `memory_budget`, so that "
                            "programs have fewer members.",
                        )
                    waiting.extend(_halves(remaining))

    def _calls(self, waiting: deque, sent: deque):
        """Calls for workers; groups that are known not to fit are halved first."""
        while waiting:
            group = waiting.popleft()
            if self._is_too_large(group):
                waiting.extendleft(reversed(_halves(group)))
                continue
            sent.append(group)
            yield train_group, group, self._builder

    def _is_too_large(self, group: Sequence[FoldFit]) -> bool:
        return len(group) > 1 and estimate_bytes(group) >= self._too_large


def _raise_if_interrupted(result: ProgramResult) -> None:
    if result.unscored:
        raise KeyboardInterrupt


def _halves(group: list) -> list[list]:
    """The non-empty halves of a group."""
    middle = len(group) // 2
    return [half for half in (group[:middle], group[middle:]) if half]
