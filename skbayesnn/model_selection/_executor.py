"""Candidates -> jobs in all folds -> outcomes, through joblib.

What stands before the network in a pipeline is fitted once per fold and setting of its
own parameters; the networks of all candidates are then trained on what came out.
"""

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

import joblib
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from skbayesnn._inference.threads import torch_threads
from skbayesnn._sklearn_compat import check_method_params, safe_split
from skbayesnn._warnings import warn
from skbayesnn.estimators._base import Prepared, prepare
from skbayesnn.estimators._program import task_of
from skbayesnn.model_selection import _worker
from skbayesnn.model_selection._grouping import Job, Room, groups_of, network_of
from skbayesnn.model_selection._worker import Judge, Outcome, without_frames

# Members that a worker gets before the next candidates are looked at, and what a row
# of one takes: its number and its weight.
MEMBERS_AT_ONCE, BYTES_PER_ROW = 4096, 16


@dataclass(frozen=True)
class Hands:
    """Who does the work: the parameters of a search that say how, not what.

    Parameters
    ----------
    budget : int
        Bytes that the members in training may take.
    n_jobs : int or None
        Programs side by side, or threads of one at a time: see ``in_turn``.
    pre_dispatch : int or str
        Programs that are handed to joblib at once.
    devices : sequence of str, or None
        One program at a time on each.
    """

    budget: int
    n_jobs: int | None
    pre_dispatch: int | str
    devices: Sequence[str] | None

    @property
    def in_turn(self) -> bool:
        """Whether programs are trained one after the other, by all threads together.

        So it is unless joblib has other processes, or there are several devices. Python
        lets one thread of a process go on at a time, and small networks keep it busy:
        side by side two programs take nearly as long as in turn.
        """
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
        options["pre_dispatch"] = self.pre_dispatch
        try:
            return Parallel(return_as="generator", **options)
        except ValueError:  # a backend that hands all results over in the end
            return Parallel(**options)


class Workshop:
    """Trains and scores candidates in all folds.

    Parameters
    ----------
    estimator : estimator
        A network, or a pipeline that ends in one.
    fit_params : dict
        Of the estimator's ``fit``.
    judge : Judge
        Scores, and has the rows.
    hands : Hands
    """

    def __init__(self, estimator, fit_params, judge: Judge, hands: Hands):
        self.estimator, self.fit_params, self.judge = estimator, fit_params, judge
        self.n_folds = len(judge.splits)
        self._n_workers = hands.n_workers
        self._budget = hands.budget // self._n_workers
        self._parallel, self._n_threads = hands.parallel(), hands.n_threads
        self._devices = _free(hands.devices)
        self._room = Room()
        self._path = _path_of_network(estimator)
        # What arrives at the network: per setting of the steps before it, and for
        # each fold with and without early stopping, which takes rows of its own.
        self._arrived: dict[str, dict[tuple[int, bool], _Arrived]] = {}

    @property
    def fingerprint(self) -> str:
        """Hash of all that an outcome depends on, candidate and scorer apart."""
        judge = self.judge
        return hash_of(
            self.estimator,
            self.fit_params,
            judge.X,
            judge.y,
            judge.splits,
            judge.params,
        )

    def pieces(self, candidates: Sequence[dict]) -> Iterator[list[dict]]:
        """Some candidates at a time, so many that all workers have enough to do.

        The numbers of their rows fit into the budget. What only earlier pieces needed
        is let go.
        """
        rows = max((len(train) for train, _ in self.judge.splits), default=1)
        members = min(MEMBERS_AT_ONCE, self._budget // (BYTES_PER_ROW * rows))
        step = max(1, members * self._n_workers // self.n_folds)
        last = {self._before(c): i for i, c in enumerate(candidates)}
        for start in range(0, len(candidates), step):
            yield list(candidates[start : start + step])
            for before in list(self._arrived):
                if last.get(before, -1) < start + step:
                    del self._arrived[before]
                    continue
                for arrived in self._arrived[before].values():
                    arrived.forget_scalings()

    def jobs(self, candidate: dict, folds: Sequence[int]) -> list[Job | Outcome]:
        """A candidate in some folds: what is to be done, or why it cannot be."""
        if not folds:
            return []
        prototype = clone(self.estimator).set_params(**clone(candidate, safe=False))
        _take_callbacks(prototype)
        arrived = self._arrived.setdefault(self._before(candidate), {})
        return [self._job(prototype, arrived, fold) for fold in folds]

    def _job(self, prototype, arrived: dict, fold: int) -> Job | Outcome:
        try:
            key = fold, bool(network_of(prototype).early_stopping)
            if key not in arrived:
                arrived[key] = self._arrive(clone(prototype), fold)
            estimator = _with_own_network(prototype)
            prepared = arrived[key].hand_over(estimator)
            task = task_of(network_of(estimator), prepared)
            # An interruption is the search's, also with `warm_start`.
            task = replace(task, plan=replace(task.plan, keep_interrupted=False))
            return Job(estimator, fold, prepared, task)
        except Exception as error:
            return Outcome(without_frames(error))

    def _arrive(self, estimator, fold: int) -> "_Arrived":
        """Fit what stands before the network, and check what arrives there."""
        train, judge = self.judge.splits[fold][0], self.judge
        try:
            params = check_method_params(judge.X, self.fit_params, indices=train)
            X, y = safe_split(estimator, judge.X, judge.y, train)
            return _Arrived(estimator, _received(estimator, X, y, params))
        except Exception as error:
            return _Arrived(estimator, without_frames(error))

    def train(self, jobs: Sequence[Job]) -> Iterator[tuple[list[Job], list[Outcome]]]:
        """Train and score; each program as soon as it is through.

        A program that does not fit into memory comes back as its two halves.
        """
        waiting = deque(groups_of(jobs, self._budget))
        del jobs  # What is through is not kept until the last is.
        while waiting:
            sent: deque[list[Job]] = deque()
            with torch_threads(self._n_threads):
                for outcomes in self._parallel(self._calls(waiting, sent)):
                    group = sent.popleft()
                    if outcomes is not None:
                        yield group, outcomes
                        continue
                    if self._room.holds(group):
                        self._room.shrink(group)
                        _warn_of_halving(len(group))
                    waiting.extend(_halves(group))

    def _calls(self, waiting: deque, sent: deque):
        """Calls for joblib, of groups that may fit by what is known by then."""
        while waiting:
            group = waiting.popleft()
            if self._room.holds(group):
                sent.append(group)
                arguments = group, self.judge, self._room
                if self._devices is None:
                    yield delayed(_worker.train_group)(*arguments)
                else:
                    yield delayed(_train_on_one_of)(self._devices, *arguments)
            else:
                waiting.extendleft(reversed(_halves(group)))

    def _before(self, candidate: dict) -> str:
        """Hash of the parameters that are not the network's own."""
        if not self._path:
            return ""
        others = {n: v for n, v in candidate.items() if not n.startswith(self._path)}
        return hash_of(*others.keys(), *others.values())


class _Arrived:
    """What the steps before a network, fitted to a fold, have made of its rows."""

    def __init__(self, estimator, outcome: Prepared | Exception):
        self._estimator, self._outcome = estimator, outcome

    def hand_over(self, estimator) -> Prepared:
        """The rows, and the fitted steps to another candidate's estimator."""
        if isinstance(self._outcome, Exception):
            raise self._outcome.with_traceback(None)
        ours, theirs = estimator, self._estimator
        while isinstance(ours, Pipeline):
            ours.steps = [*theirs.steps[:-1], ours.steps[-1]]
            ours, theirs = ours.steps[-1][1], theirs.steps[-1][1]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(theirs, name):
                setattr(ours, name, getattr(theirs, name))
        return self._outcome

    def forget_scalings(self) -> None:
        """Drop the table's memory of scalings, one for each candidate's own rows."""
        if isinstance(self._outcome, Prepared):
            self._outcome.forget_scalings()


def _free(devices: Sequence[str] | None) -> queue.SimpleQueue | None:
    """Devices that have nothing to do."""
    if not devices:
        return None
    free: queue.SimpleQueue[str] = queue.SimpleQueue()
    for device in devices:
        free.put(device)
    return free


def _train_on_one_of(free: queue.SimpleQueue, jobs, judge, room):
    """``train_group`` on a device that has nothing to do."""
    device = free.get()
    try:
        return _worker.train_group(jobs, judge, room, device)
    finally:
        free.put(device)


def _halves(group: list) -> list[list]:
    middle = len(group) // 2
    return [group[:middle], group[middle:]]


def _warn_of_halving(n_members: int) -> None:
    warn(
        f"out of memory with {n_members} members in one program; going on with half as "
        "many. Lower `memory_budget` to start with fewer.",
    )


def hash_of(*things) -> str:
    """Hash of objects; what cannot be pickled is equal only to itself.

    Such a hash holds as long as the object is there.
    """
    return "".join(map(_hash_of_one, things))


def _hash_of_one(thing) -> str:
    try:
        return joblib.hash(thing)
    except Exception:
        return f"id{id(thing)}"


def _path_of_network(estimator) -> str:
    """The name of the network's parameters, up to the last part: "a__b__"."""
    path = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        path += f"{name}__"
    return path


def _take_callbacks(estimator: BaseEstimator) -> None:
    """They are told when all is done; see ``replay``."""
    if isinstance(estimator, BaseEstimator):
        vars(estimator).pop("_skl_callbacks", None)
    if isinstance(estimator, Pipeline):
        _take_callbacks(estimator.steps[-1][1])


def _with_own_network(estimator):
    """A copy that shares with the estimator what no fit changes."""
    estimator = copy(estimator)
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        estimator.steps = [*estimator.steps[:-1], (name, _with_own_network(last))]
    else:
        # A generator has a state.
        estimator.random_state = clone(estimator.random_state, safe=False)
    return estimator


def _received(estimator, X, y, fit_params) -> Prepared:
    """What the network of an estimator gets when that is fitted."""
    network = network_of(estimator)
    received: list[Prepared] = []

    def receive(X, y=None, **params):
        received.append(prepare(network, X, y, **params))
        return network

    # An attribute of the instance goes before the method of its class.
    network.fit = receive
    try:
        estimator.fit(X, y, **fit_params)
    finally:
        del network.fit
    return received[0]
