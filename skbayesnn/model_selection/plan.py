"""Candidates x folds -> groups of networks that share one program -> trained members.

What stands before the network in a pipeline is fitted once per fold and setting of its
own parameters; the networks of all candidates are then trained on what came out.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, pairwise
from typing import NamedTuple

import joblib
import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params

from skbayesnn.estimators import fitting, parameters
from skbayesnn.estimators.base import BayesianNetwork, Prepared
from skbayesnn.estimators.fitting import Task

# Members that a worker gets before the next candidates are looked at.
MEMBERS_AT_ONCE = 256
# A program's widest activations on a CPU: measured, a little above what a core's
# second cache holds; but a program has some members in any case.
CACHE_BYTES, FEWEST_MEMBERS = 3 << 19, 16


@dataclass(frozen=True)
class Job:
    """A network to be trained: checked rows, and its part of a program."""

    network: BayesianNetwork
    prepared: Prepared
    task: Task

    @property
    def item_size(self) -> int:
        """Bytes of a number in training."""
        return 4 if self.prepared.table.X.dtype == np.float32 else 8


@dataclass
class Member:
    """One candidate in one fold.

    Parameters
    ----------
    estimator : estimator
        With the candidate's parameters; the steps before the network are fitted, and
        in the end the network too.
    job : Job, or None
        What is still to be done.
    error : Exception, or None
        Why it cannot be trained.
    seconds : float
        Its share of the time of its program.
    """

    estimator: BaseEstimator
    job: Job | None = None
    error: Exception | None = None
    seconds: float = 0.0


def network_of(estimator) -> BayesianNetwork:
    """The network itself, or the one that is the last step of a pipeline.

    Raises
    ------
    TypeError
        For anything else, and for networks that search for their tau.
    """
    inner = estimator
    while isinstance(inner, Pipeline):
        inner = inner.steps[-1][1]
    if not isinstance(inner, BayesianNetwork):
        raise TypeError(
            "a batched search needs an estimator of skbayesnn, alone or as the last "
            f"step of a Pipeline; got {type(inner).__name__}. For other estimators "
            "there is sklearn.model_selection.GridSearchCV."
        )
    if not hasattr(inner, "tau"):
        raise TypeError(
            "a batched search trains networks of a given tau; got "
            f"{type(inner).__name__}, which searches for its own. Search over the "
            "estimator without CV, and put `tau` into the grid."
        )
    return inner


class Workshop:
    """Trains candidates in all folds.

    Parameters
    ----------
    estimator : estimator
        A network, or a pipeline that ends in one.
    splits : sequence of (train, test)
        Row numbers of every fold.
    data : tuple of X, y and the parameters of ``fit``
    budget : int
        Bytes that the members in training may take.
    n_jobs : int or None
        Programs side by side.
    devices : sequence of str, or None
        Where the programs go in turn.
    """

    def __init__(self, estimator, splits, data, *, budget, n_jobs, devices):
        self.estimator, self.splits = estimator, splits
        self.X, self.y, self.fit_params = data
        self.budget, self.n_jobs, self.devices = budget, n_jobs, devices
        self.n_folds = len(splits)
        self._path = _path_of_network(estimator)
        self._n_workers = max(joblib.effective_n_jobs(n_jobs), len(devices or ()))
        try:
            self._parallel = joblib.Parallel(
                n_jobs=len(devices) if devices else n_jobs,
                prefer="threads",
                return_as="generator",
            )
        except ValueError:
            self._parallel = joblib.Parallel(n_jobs=n_jobs, prefer="threads")
        # What arrives at the network, per setting of the steps before it, early
        # stopping (which takes rows of its own) and fold.
        self._arrived: dict[tuple[str, bool, int], _Arrived] = {}

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that a trained member depends on, its candidate apart."""
        return joblib.hash(
            (self.estimator, self.splits, self.X, self.y, self.fit_params)
        )

    def pieces(self, candidates: Sequence[dict]) -> Iterator[list[dict]]:
        """Some candidates at a time, so many that all workers have enough to do."""
        members = MEMBERS_AT_ONCE * self._n_workers
        step = max(1, -(-members // self.n_folds))
        for start in range(0, max(len(candidates), 1), step):
            yield list(candidates[start : start + step])

    def member(self, candidate: dict, fold: int) -> Member:
        """A candidate in a fold, all but its network fitted."""
        member = Member(clone(self.estimator))
        member.estimator.set_params(**clone(candidate, safe=False))
        try:
            early = bool(network_of(member.estimator).early_stopping)
            key = _before_network(candidate, self._path), early, fold
            if key not in self._arrived:
                self._arrived[key] = self._arrive(clone(member.estimator), fold)
            prepared = self._arrived[key].hand_over(member.estimator)
            network = network_of(member.estimator)
            member.job = Job(network, prepared, prepared.task_of(network))
        except Exception as error:
            member.error = error
        return member

    def train(self, members: Sequence[Member]) -> None:
        """Train members in place; what is finished stays so after an interruption."""
        waiting = {id(m.job): m for m in members if m.job is not None}
        jobs = list({id(m.job): m.job for m in members if m.job is not None}.values())
        groups = list(groups_of(jobs, self.budget // self._n_workers))
        places = cycle(self.devices or [None])
        trained = self._parallel(
            joblib.delayed(train_group)(group, next(places)) for group in groups
        )
        for group, outcomes in zip(groups, trained, strict=True):
            for job, (network, error, seconds) in zip(group, outcomes, strict=True):
                member = waiting[id(job)]
                job.network.__dict__.update(network.__dict__)
                member.error, member.seconds, member.job = error, seconds, None

    def _arrive(self, estimator, fold: int) -> "_Arrived":
        """Fit what stands before the network, and check what arrives there."""
        train = self.splits[fold][0]
        try:
            params = _check_method_params(self.X, self.fit_params, indices=train)
            X, y = _safe_split(estimator, self.X, self.y, train)
            return _Arrived(estimator, _received(estimator, X, y, params))
        except Exception as error:
            return _Arrived(estimator, error)


class _Arrived(NamedTuple):
    """What the steps before a network, fitted to a fold, have made of its rows."""

    estimator: BaseEstimator
    outcome: Prepared | Exception

    def hand_over(self, estimator) -> Prepared:
        """The rows, and the fitted steps to another candidate's estimator."""
        if isinstance(self.outcome, Exception):
            raise self.outcome.with_traceback(None)
        ours, theirs = estimator, self.estimator
        while isinstance(ours, Pipeline):
            ours.steps = [*theirs.steps[:-1], ours.steps[-1]]
            ours, theirs = ours.steps[-1][1], theirs.steps[-1][1]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(theirs, name):
                setattr(ours, name, getattr(theirs, name))
        return self.outcome


def groups_of(jobs: Sequence[Job], budget: int) -> Iterator[list[Job]]:
    """Jobs that can share a program, at most ``budget`` bytes at a time.

    Those of one fold stand together, so that a program has few tables.
    """
    alike: dict[tuple, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: id(job.prepared.table)):
        alike.setdefault(_signature(job), []).append(job)
    for group in alike.values():
        n_pieces = -(-len(group) // jobs_per_program(group[0], budget))
        for piece in np.array_split(np.arange(len(group)), n_pieces):
            yield [group[i] for i in piece]


def jobs_per_program(job: Job, budget: int) -> int:
    """As many as the budget holds; on a CPU no more than suit its cache."""
    size = max(1, budget // bytes_of(job))
    if parameters.device_for_fit(job.network.device).type != "cpu":
        return size
    plan = job.task.plan
    widest = plan.batch_size * max(plan.network.sizes) * job.task.share.n_members
    in_cache = CACHE_BYTES // (job.item_size * widest)
    return min(size, max(FEWEST_MEMBERS, in_cache))


def bytes_of(job: Job) -> int:
    """Memory that a job takes in training, an upper estimate.

    Parameters are there about twenty times: values, gradient and its parts, two
    moments of Adam, the best epoch's, start values, and temporaries. Activations of a
    batch are there with their noise, mask and gradient.
    """
    plan, share = job.task.plan, job.task.share
    sizes = plan.network.sizes
    weights = sum((a + 1) * b for a, b in pairwise(sizes))
    units = plan.batch_size * sum(sizes)
    numbers = job.item_size * (20 * weights + 6 * units)
    return share.n_members * (numbers + 16 * len(share.rows))


def train_group(jobs: Sequence[Job], device: str | None = None) -> list[tuple]:
    """Train the jobs of one program: fitted network, error and seconds of each.

    Out of memory, the two halves are trained one after the other.
    """
    start = time.perf_counter()
    too_large = False
    try:
        fitted = fitting.train_together(
            [job.network for job in jobs],
            [job.task for job in jobs],
            [job.prepared.table for job in jobs],
            device,
        )
    except Exception as error:
        too_large = len(jobs) > 1 and _out_of_memory(error)
        if not too_large:
            return [(job.network, error, 0.0) for job in jobs]
    # Not inside of the handler: there the traceback holds what did not fit.
    if too_large:
        _warn_of_halving(len(jobs))
        half = len(jobs) // 2
        return [
            outcome
            for part in (jobs[:half], jobs[half:])
            for outcome in train_group(part, device)
        ]
    seconds = (time.perf_counter() - start) / len(jobs)
    errors = [_finished(job, one) for job, one in zip(jobs, fitted, strict=True)]
    return [
        (job.network, error, seconds) for job, error in zip(jobs, errors, strict=True)
    ]


def _finished(job: Job, fitted: fitting.Fitted) -> Exception | None:
    """Make a job's network fitted, or say why it cannot be."""
    try:
        if fitted.trained.failed.all():
            raise fitting.all_failed(job.task.plan, fitted.trained)
        job.network._finish(job.prepared, fitted)
    except Exception as error:
        return error
    return None


def _out_of_memory(error: Exception) -> bool:
    """Whether there was too little memory, on the CPU or on a GPU."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error) for words in ("not enough memory", "can't allocate memory")
    )


def _warn_of_halving(n_members: int) -> None:
    """Once per size: Python shows a warning of one text and place only once."""
    warnings.warn(
        f"out of memory with {n_members} members in one program; going on with half as "
        "many. Lower `memory_budget` to start with fewer.",
        UserWarning,
        stacklevel=2,
    )


def _signature(job: Job) -> tuple:
    """What the jobs of one program have in common."""
    X = job.prepared.table.X
    share = job.task.share
    return (
        job.task.plan,
        len(share.rows),
        len(share.validation),
        str(job.network.device),
        X.dtype,
        type(X),
    )


def _path_of_network(estimator) -> str:
    """The name of the network's parameters, up to the last part: "a__b__"."""
    path = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        path += f"{name}__"
    return path


def _before_network(candidate: dict, path: str) -> str:
    """Hash of the parameters that are not the network's own."""
    if not path:
        return ""
    others = {name: v for name, v in candidate.items() if not name.startswith(path)}
    return joblib.hash(others)


def _received(estimator, X, y, fit_params) -> Prepared:
    """What the network of an estimator gets when that is fitted."""
    network = network_of(estimator)
    received: list[Prepared] = []

    def receive(X, y=None, **params):
        received.append(network._prepared(X, y, **params))
        return network

    # An attribute of the instance goes before the method of its class.
    network.fit = receive
    try:
        estimator.fit(X, y, **fit_params)
    finally:
        del network.fit
    return received[0]
