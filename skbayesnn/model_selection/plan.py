"""Candidates x folds -> groups of networks that share one program.

What stands before the network in a pipeline is fitted once per fold and setting of its
own parameters; the networks of all candidates are then trained on what came out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params

from skbayesnn.estimators.base import BayesianNetwork, Prepared
from skbayesnn.estimators.fitting import Task


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
    """

    candidate: int
    fold: int
    estimator: BaseEstimator
    prepared: Prepared | None = None
    task: Task | None = None
    error: Exception | None = None

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


def members_of(
    estimator,
    candidates: Sequence[dict],
    splits: Sequence[tuple[np.ndarray, np.ndarray]],
    X,
    y,
    fit_params: dict,
) -> list[Member]:
    """Every candidate in every fold, folds running faster, as searches go."""
    path = _path_of_network(estimator)
    keys = [_before_network(candidate, path) for candidate in candidates]
    fitted: dict[tuple[str, int], Member] = {}
    members = []
    for (i, candidate), (k, (train, _)) in product(
        enumerate(candidates), enumerate(splits)
    ):
        member = Member(i, k, clone(estimator))
        try:
            member.estimator.set_params(**clone(candidate, safe=False))
            first = fitted.get((keys[i], k))
            if first is None:
                first = fitted[keys[i], k] = member
                params = _check_method_params(X, fit_params, indices=train)
                rows = _safe_split(member.estimator, X, y, train)
                member.prepared = _prepared(member.estimator, *rows, params)
            elif first.prepared is None:
                raise first.error or RuntimeError("not prepared")
            else:
                _take_over(member, first)
            member.task = member.prepared.task_of(member.network)
        except Exception as error:
            member.error = error
        members.append(member)
    return members


def groups_of(members: Sequence[Member], budget: int) -> Iterator[list[Member]]:
    """Members that can share a program, at most ``budget`` bytes at a time."""
    alike: dict[tuple, list[Member]] = {}
    for member in sorted(members, key=lambda member: member.fold):
        if member.task is not None:
            alike.setdefault(_signature(member), []).append(member)
    for group in alike.values():
        size = max(1, budget // bytes_of(group[0]))
        # Pieces of about equal size: the slowest is no smaller than need be.
        n_pieces = -(-len(group) // size)
        for piece in np.array_split(np.arange(len(group)), n_pieces):
            yield [group[i] for i in piece]


def bytes_of(member: Member) -> int:
    """Memory that one member takes in training, an upper estimate.

    Parameters are there about ten times: values, gradient, two moments of Adam, the
    best epoch's, and temporaries. Activations of a batch are there with their noise,
    mask and gradient.
    """
    assert member.task is not None and member.prepared is not None
    plan, n_networks = member.task.plan, member.task.share.n_members
    sizes = plan.network.sizes
    weights = sum((a + 1) * b for a, b in pairwise(sizes))
    units = plan.batch_size * sum(sizes)
    item = 4 if member.prepared.table.X.dtype == np.float32 else 8
    rows = 16 * len(member.task.share.rows)
    return n_networks * (item * (10 * 2 * weights + 6 * units) + rows)


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
