"""Candidates x folds -> groups of networks that share one program -> trained members.

What stands before the network in a pipeline is fitted once per fold and setting of its
own parameters; the networks of all candidates are then trained on what came out.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, pairwise, product

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


@dataclass
class Member:
    """One candidate in one fold.

    Parameters
    ----------
    candidate, fold : int
    estimator : estimator
        With the candidate's parameters; all but the network is fitted.
    prepared : Prepared, or None
        What the network is to be fitted to.
    task : Task, or None
    error : Exception, or None
        Why it cannot be trained.
    seconds : float
        Its share of the time of its program.
    """

    candidate: int
    fold: int
    estimator: BaseEstimator
    prepared: Prepared | None = None
    task: Task | None = None
    error: Exception | None = None
    seconds: float = 0.0

    @property
    def network(self) -> BayesianNetwork:
        """The last step."""
        return network_of(self.estimator)


def network_of(estimator) -> BayesianNetwork:
    """The network itself, or the one that is the last step of a pipeline.

    Raises
    ------
    TypeError
        For anything else.
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
        # The first member of every fold and setting of the steps before the network.
        self._first: dict[tuple[str, int], Member] = {}

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
        for start in range(0, len(candidates), step):
            yield list(candidates[start : start + step])

    def train(self, candidates: Sequence[dict]) -> list[list[Member]]:
        """The trained members of every candidate, in the order of the folds."""
        members = [
            self._member(i, candidate, fold)
            for (i, candidate), fold in product(
                enumerate(candidates), range(self.n_folds)
            )
        ]
        groups = list(groups_of(members, self.budget // self._n_workers))
        places = cycle(self.devices or [None])
        trained = joblib.Parallel(n_jobs=self.n_jobs, prefer="threads")(
            joblib.delayed(train_group)(group, device)
            for group, device in zip(groups, places, strict=False)
        )
        for group, outcomes in zip(groups, trained, strict=True):
            for member, (network, error, seconds) in zip(group, outcomes, strict=True):
                vars(member.network).update(vars(network))
                member.error, member.seconds = error, seconds
                member.prepared = member.task = None
        return [
            members[start : start + self.n_folds]
            for start in range(0, len(members), self.n_folds)
        ]

    def _member(self, i: int, candidate: dict, fold: int) -> Member:
        """A candidate in a fold, all but its network fitted."""
        member = Member(i, fold, clone(self.estimator))
        try:
            member.estimator.set_params(**clone(candidate, safe=False))
            key = _before_network(candidate, self._path), fold
            if key not in self._first:
                self._first[key] = first = Member(i, fold, clone(member.estimator))
                self._prepare(first)
            first = self._first[key]
            if first.error is not None:
                raise first.error
            _take_over(member, first)
            member.task = member.prepared.task_of(member.network)
        except Exception as error:
            member.error = error
        return member

    def _prepare(self, member: Member) -> None:
        """Fit what stands before the network, and check what arrives there."""
        train = self.splits[member.fold][0]
        try:
            params = _check_method_params(self.X, self.fit_params, indices=train)
            rows = _safe_split(member.estimator, self.X, self.y, train)
            member.prepared = _prepared(member.estimator, *rows, params)
        except Exception as error:
            member.error = error


def groups_of(members: Sequence[Member], budget: int) -> Iterator[list[Member]]:
    """Members that can share a program, at most ``budget`` bytes at a time."""
    alike: dict[tuple, list[Member]] = {}
    for member in sorted(members, key=lambda member: member.fold):
        if member.task is not None:
            alike.setdefault(_signature(member), []).append(member)
    for group in alike.values():
        n_pieces = -(-len(group) // members_per_program(group[0], budget))
        for piece in np.array_split(np.arange(len(group)), n_pieces):
            yield [group[i] for i in piece]


def members_per_program(member: Member, budget: int) -> int:
    """As many as the budget holds; on a CPU no more than suit its cache."""
    assert member.task is not None
    size = max(1, budget // bytes_of(member))
    if parameters.device_for_fit(member.network.device).type != "cpu":
        return size
    widest = member.task.plan.batch_size * max(member.task.plan.network.sizes)
    in_cache = CACHE_BYTES // (_item_size(member) * widest)
    return min(size, max(FEWEST_MEMBERS, in_cache))


def bytes_of(member: Member) -> int:
    """Memory that one member takes in training, an upper estimate.

    Parameters are there about twenty times: values, gradient and its parts, two
    moments of Adam, the best epoch's, start values, and temporaries. Activations of a
    batch are there with their noise, mask and gradient.
    """
    assert member.task is not None
    plan, n_networks = member.task.plan, member.task.share.n_members
    sizes = plan.network.sizes
    weights = sum((a + 1) * b for a, b in pairwise(sizes))
    units = plan.batch_size * sum(sizes)
    rows = 16 * len(member.task.share.rows)
    return n_networks * (_item_size(member) * (20 * weights + 6 * units) + rows)


def train_group(members: Sequence[Member], device=None) -> list[tuple]:
    """Train the members of one program: network, error and seconds of each.

    Out of memory, the two halves are trained one after the other.
    """
    start = time.perf_counter()
    networks = [member.network for member in members]
    try:
        fitted = fitting.train_together(
            networks,
            [member.task for member in members],
            [member.prepared.table for member in members],
            device,
        )
    except Exception as error:
        if len(members) > 1 and _out_of_memory(error):
            half = len(members) // 2
            _warn_of_halving(len(members))
            return [
                outcome
                for part in (members[:half], members[half:])
                for outcome in train_group(part, device)
            ]
        return [(network, error, 0.0) for network in networks]
    outcomes = []
    for member, network, one in zip(members, networks, fitted, strict=True):
        error = None
        try:
            if one.trained.failed.all():
                raise fitting.all_failed(one.task.plan, one.trained)
            network._finish(member.prepared, one)
        except Exception as caught:
            error = caught
        outcomes.append((network, error))
    seconds = (time.perf_counter() - start) / len(members)
    return [(*outcome, seconds) for outcome in outcomes]


def _out_of_memory(error: Exception) -> bool:
    """Whether there was too little memory, on the CPU or on a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "not enough memory" in str(error)


def _warn_of_halving(n_members: int) -> None:
    """Once per size: Python shows a warning of one text and place only once."""
    warnings.warn(
        f"out of memory with {n_members} members in one program; going on with half as "
        "many. Lower `memory_budget` to start with fewer.",
        UserWarning,
        stacklevel=2,
    )


def _item_size(member: Member) -> int:
    """Bytes of a number in training."""
    assert member.prepared is not None
    return 4 if member.prepared.table.X.dtype == np.float32 else 8


def _signature(member: Member) -> tuple:
    """What the members of one program have in common."""
    assert member.task is not None and member.prepared is not None
    X = member.prepared.table.X
    return (
        member.task.plan,
        len(member.task.share.rows),
        len(member.task.share.validation),
        str(member.network.device),
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


def _prepared(estimator, X, y, fit_params) -> Prepared:
    """Fit what stands before the network, and check what arrives there."""
    network = network_of(estimator)
    arrived: list[Prepared] = []

    def receive(X, y=None, **params):
        arrived.append(network._prepared(X, y, **params))
        return network

    # An attribute of the instance goes before the method of its class.
    network.fit = receive  # type: ignore[method-assign]
    try:
        estimator.fit(X, y, **fit_params)
    finally:
        del network.fit
    return arrived[0]


def _take_over(member: Member, first: Member) -> None:
    """The fitted steps and checked rows of another candidate of the same fold."""
    member.prepared = first.prepared
    ours, theirs = member.estimator, first.estimator
    while isinstance(ours, Pipeline):
        ours.steps[:-1] = theirs.steps[:-1]
        ours, theirs = ours.steps[-1][1], theirs.steps[-1][1]
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(theirs, name):
            setattr(ours, name, getattr(theirs, name))
