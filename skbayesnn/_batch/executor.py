"""Train jobs, several networks per program, and score each of them.

Jobs whose networks can share a program are grouped, within a budget of memory. Each
group is one call for joblib: a worker trains its program and scores the networks.
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

# ---- group jobs by what one program can hold

# A program's widest activations on a CPU, measured: with fewer members the calls cost
# more than the numbers, with more the numbers come from far; but a program has some
# members in any case.
WIDEST_BYTES, FEWEST_MEMBERS = 8 << 20, 16


def groups_of(fits: Sequence[FoldFit], budget: int) -> Iterator[list[FoldFit]]:
    """Jobs that can share a program, at most ``budget`` bytes at a time.

    Those of one fold stand together, so that a program has few tables.
    """
    # By first appearance: the order of the members changes the last bits of results.
    tables: dict[int, int] = {}
    for fit in fits:
        tables.setdefault(id(fit.job.table), len(tables))
    alike: dict[tuple, list[FoldFit]] = {}
    for fit in sorted(fits, key=lambda fit: tables[id(fit.job.table)]):
        alike.setdefault(_shared(fit), []).append(fit)
    for group in alike.values():
        n_pieces = -(-len(group) // jobs_per_program(group, budget))
        for piece in np.array_split(np.arange(len(group)), n_pieces):
            yield [group[i] for i in piece]


def _shared(fit: FoldFit) -> tuple:
    """What the jobs of one program have in common."""
    X, shares = fit.job.table.X, fit.job.shares
    return (
        fit.job.config,
        # Unequal rows and epochs could share one, too, but members in step are faster.
        fit.job.members.n_epochs.max(),
        frozenset((len(share.rows), len(share.validation)) for share in shares),
        str(fit.network.device),
        X.dtype,
        type(X),
    )


def jobs_per_program(group: Sequence[FoldFit], budget: int) -> int:
    """As many as the budget holds; on a CPU no more than are fast."""
    fit = max(group, key=lambda fit: fit.job.n_members)
    n_members, config = fit.job.n_members, fit.job.config
    size = max(1, budget // (n_members * bytes_per_member(group)))
    if _validation.device_for_fit(fit.network.device).type != "cpu":
        return size
    widest = config.batch_rows(_most_rows(group)) * config.network.widest * n_members
    members = WIDEST_BYTES // (_bytes_per_number(fit) * widest)
    return min(size, max(FEWEST_MEMBERS, members))


def bytes_of(group: Sequence[FoldFit]) -> int:
    """Memory that a program takes in training, an upper estimate."""
    n_members = sum(fit.job.n_members for fit in group)
    return n_members * bytes_per_member(group)


def bytes_per_member(group: Sequence[FoldFit]) -> int:
    """Memory that a member of a program takes in training, an upper estimate.

    Parameters are there about thirty times: values, gradient and its parts, two
    moments of Adam, the best epoch's, start values, temporaries, and the results.
    Activations of a batch are there with their noise, mask and gradient. The number
    and the weight of a row are there for as many as the largest share has.
    """
    config, n_rows = group[0].job.config, _most_rows(group)
    units = config.batch_rows(n_rows) * config.network.n_units
    numbers = 30 * config.network.n_weights + 6 * units
    return _bytes_per_number(group[0]) * numbers + 16 * n_rows


def _most_rows(group: Sequence[FoldFit]) -> int:
    return max(len(share.rows) for fit in group for share in fit.job.shares)


def _bytes_per_number(fit: FoldFit) -> int:
    """In training."""
    return fit.job.config.dtype.itemsize


class MemoryLimit:
    """The size of what did not fit into memory: nothing as large is tried again."""

    def __init__(self) -> None:
        self._too_large = float("inf")

    def allows(self, group: Sequence[FoldFit]) -> bool:
        """Whether a program may fit: nothing as large has failed."""
        nothing_failed = self._too_large == float("inf")
        return nothing_failed or len(group) == 1 or bytes_of(group) < self._too_large

    def lower(self, group: Sequence[FoldFit]) -> None:
        """Note that a program did not fit."""
        self._too_large = bytes_of(group)


# ---- train and score one program


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
    group: Sequence[FoldFit],
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
        return {fit.key: Outcome(without_frames(error)) for fit in group}
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
    """Train a program, of which only the estimators are left."""
    start = time.perf_counter()
    trained = _fit.train_together(
        [fit.network for fit in group], [fit.job for fit in group], device
    )
    seconds = (time.perf_counter() - start) / len(group)
    outcomes = {}
    for fit, job in zip(group, trained, strict=True):
        if device is not None:
            fit.network.device = device
        outcomes[fit.key] = _trained(fit, job, seconds)
    return outcomes


def _trained(fit: FoldFit, job: TrainingJob, seconds: float) -> Outcome:
    """Make a job's network fitted, or say why it cannot be."""
    try:
        if job.trained.failed.all():
            raise _fit.all_failed(job.config, job.trained)
        set_fitted(fit.network, job)
    except Exception as error:
        return Outcome(without_frames(error), seconds=seconds)
    n_epochs = fit.network.n_iter_
    return Outcome(seconds=seconds, n_epochs=n_epochs, estimator=fit.estimator)


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


# ---- run all jobs through joblib

# Members that a worker gets before the next candidates are looked at, and what a row
# of one takes: its number and its weight.
MEMBERS_AT_ONCE, BYTES_PER_ROW = 4096, 16


@dataclass(frozen=True)
class Resources:
    """What programs run on: the parameters of a search that say how, not what.

    Parameters
    ----------
    memory : int
        Bytes that the members in training may take.
    n_jobs : int or None
        Programs side by side, or threads of one at a time: see ``in_turn``.
    pre_dispatch : int or str
        Programs that are handed to joblib at once.
    devices : sequence of str, or None
        One program at a time on each.
    backend : str, or None
        Of joblib, where none is active.
    """

    memory: int
    n_jobs: int | None
    pre_dispatch: int | str
    devices: Sequence[str] | None
    backend: str | None = None

    @property
    def in_turn(self) -> bool:
        """Whether programs are trained one after the other, by all threads together.

        So it is unless joblib has other processes, or there are several devices. Python
        lets one thread of a process go on at a time, and small networks keep it busy:
        side by side two programs take nearly as long as in turn.
        """
        if self.backend is not None:
            return False
        backend, _ = joblib.parallel.get_active_backend(prefer="threads")
        return not self.devices and getattr(backend, "supports_sharedmem", False)

    @property
    def n_workers(self) -> int:
        """Programs that can be in training at the same time."""
        if self.in_turn:
            return 1
        return len(self.devices or ()) or joblib.effective_n_jobs(self.n_jobs)

    @property
    def n_threads(self) -> int | None:
        """Threads of torch for a program in this process; None leaves them."""
        n_jobs = joblib.effective_n_jobs(self.n_jobs)
        return n_jobs if self.in_turn and (self.n_jobs or n_jobs > 1) else None

    def parallel(self) -> Parallel:
        """Calls functions, and hands each result over as soon as it is there."""
        options = {"n_jobs": 1 if self.in_turn else self.n_jobs, "prefer": "threads"}
        if self.devices:  # They are those of this process.
            options = {"n_jobs": len(self.devices), "require": "sharedmem"}
        elif self.backend is not None:
            options["backend"] = self.backend
        options["pre_dispatch"] = self.pre_dispatch
        try:
            return Parallel(return_as="generator", **options)
        except ValueError:  # a backend that hands all results over in the end
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
        """So many that all workers have enough to do.

        The numbers of their rows fit into the memory.
        """
        members = min(MEMBERS_AT_ONCE, self._memory // (BYTES_PER_ROW * n_rows))
        return max(1, members * self._n_workers // n_folds)

    def score(self, known: Mapping[Key, Outcome]) -> Mapping[Key, Outcome]:
        """Score what an interruption has left trained but not scored.

        Raises
        ------
        KeyboardInterrupt
            After all that was done until then.
        """
        self._scorer.score_all(known)
        _raise_if_interrupted(known.values())
        return known

    def run(self, fits: Sequence[FoldFit]) -> Iterator[dict[Key, Outcome]]:
        """Train and score; each program's outcomes as soon as it is through.

        A program that does not fit into memory is halved.

        Raises
        ------
        KeyboardInterrupt
            After all that was done until then.
        """
        waiting = deque(groups_of(fits, self._memory))
        del fits  # What is through is not kept until the last is.
        while waiting:
            sent: deque[list[FoldFit]] = deque()
            with torch_threads(self._n_threads):
                for outcomes in self._parallel(self._calls(waiting, sent)):
                    group = sent.popleft()
                    yield outcomes
                    _raise_if_interrupted(outcomes.values())
                    left = [fit for fit in group if fit.key not in outcomes]
                    if left and self._limit.allows(group):
                        self._limit.lower(group)
                        _warn_of_halving(len(group))
                    waiting.extend(_halves(left))

    def _calls(self, waiting: deque, sent: deque):
        """Calls for joblib, of groups that may fit by what is known by then."""
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
    """A program that was interrupted has estimators left that are not scored."""
    if not all(outcome.estimator is None for outcome in outcomes):
        raise KeyboardInterrupt


def _idle(devices: Sequence[str] | None) -> queue.SimpleQueue | None:
    """Devices that have nothing to do."""
    if not devices:
        return None
    idle: queue.SimpleQueue[str] = queue.SimpleQueue()
    for device in devices:
        idle.put(device)
    return idle


def _train_on_one_of(idle: queue.SimpleQueue, group, scorer, limit):
    """``train_group`` on a device that has nothing to do."""
    device = idle.get()
    try:
        return train_group(group, scorer, limit, device)
    finally:
        idle.put(device)


def _halves(group: list) -> list[list]:
    """Two groups, or one job; nothing of no jobs."""
    middle = len(group) // 2
    return [half for half in (group[:middle], group[middle:]) if half]


def _warn_of_halving(n_members: int) -> None:
    warn(
        f"out of memory with {n_members} members in one program; going on with half as "
        "many. Lower `memory_budget` to start with fewer.",
    )
