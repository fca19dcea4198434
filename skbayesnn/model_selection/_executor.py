"""Jobs -> outcomes, through joblib: programs of the jobs that can share one."""

import queue
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import joblib
from sklearn.utils.parallel import Parallel, delayed

from skbayesnn._inference.threads import torch_threads
from skbayesnn._warnings import warn
from skbayesnn.model_selection import _worker
from skbayesnn.model_selection._grouping import MemoryLimit, groups_of
from skbayesnn.model_selection._jobs import Job
from skbayesnn.model_selection._result_store import Key, Outcome
from skbayesnn.model_selection._worker import Scorer

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

    def run(self, jobs: Sequence[Job]) -> Iterator[dict[Key, Outcome]]:
        """Train and score; each program's outcomes as soon as it is through.

        A program that does not fit into memory is halved.

        Raises
        ------
        KeyboardInterrupt
            After all that was done until then.
        """
        waiting = deque(groups_of(jobs, self._memory))
        del jobs  # What is through is not kept until the last is.
        while waiting:
            sent: deque[list[Job]] = deque()
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
        """Calls for joblib, of groups that may fit by what is known by then."""
        while waiting:
            group = waiting.popleft()
            if self._limit.allows(group):
                sent.append(group)
                arguments = group, self._scorer, self._limit
                if self._devices is None:
                    yield delayed(_worker.train_group)(*arguments)
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
        return _worker.train_group(group, scorer, limit, device)
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
