"""Which networks are trained as the members of one program, and how many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from skbayesnn.estimators import _validation
from skbayesnn.estimators._base import BayesianNetwork, Prepared
from skbayesnn.estimators._program import Task

# A program's widest activations on a CPU, measured: with fewer members the calls cost
# more than the numbers, with more the numbers come from far; but a program has some
# members in any case.
WIDEST_BYTES, FEWEST_MEMBERS = 8 << 20, 16


@dataclass(frozen=True)
class Job:
    """A candidate in a fold whose network is to be trained.

    Parameters
    ----------
    estimator : estimator
        With the candidate's parameters; the steps before the network are fitted.
    fold : int
    prepared : Prepared
        The rows that arrive at the network, checked.
    task : Task
        The network's part of a program.
    """

    estimator: BaseEstimator
    fold: int
    prepared: Prepared
    task: Task

    @property
    def network(self) -> BayesianNetwork:
        """The network itself."""
        return network_of(self.estimator)

    @property
    def item_size(self) -> int:
        """Bytes of a number in training."""
        return 4 if self.prepared.table.X.dtype == np.float32 else 8


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


def groups_of(jobs: Sequence[Job], budget: int) -> Iterator[list[Job]]:
    """Jobs that can share a program, at most ``budget`` bytes at a time.

    Those of one fold stand together, so that a program has few tables.
    """
    alike: dict[tuple, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: id(job.prepared.table)):
        alike.setdefault(_signature(job), []).append(job)
    for group in alike.values():
        n_pieces = -(-len(group) // jobs_per_program(group, budget))
        for piece in np.array_split(np.arange(len(group)), n_pieces):
            yield [group[i] for i in piece]


def jobs_per_program(group: Sequence[Job], budget: int) -> int:
    """As many as the budget holds; on a CPU no more than are fast."""
    job = max(group, key=lambda job: job.task.share.n_members)
    size = max(1, budget // bytes_of(job))
    if _validation.device_for_fit(job.network.device).type != "cpu":
        return size
    plan = job.task.plan
    batch_rows = plan.batch_rows(len(job.task.share.rows))
    widest = batch_rows * plan.network.widest * job.task.share.n_members
    members = WIDEST_BYTES // (job.item_size * widest)
    return min(size, max(FEWEST_MEMBERS, members))


def bytes_of(job: Job) -> int:
    """Memory that a job takes in training, an upper estimate.

    Parameters are there about thirty times: values, gradient and its parts, two
    moments of Adam, the best epoch's, start values, temporaries, and the results.
    Activations of a batch are there with their noise, mask and gradient.
    """
    plan, share = job.task.plan, job.task.share
    units = plan.batch_rows(len(share.rows)) * plan.network.n_units
    numbers = job.item_size * (30 * plan.network.n_weights + 6 * units)
    return share.n_members * (numbers + 16 * len(share.rows))


class Room:
    """What has fitted into memory so far: what did not is not tried again."""

    def __init__(self) -> None:
        self._too_large = float("inf")

    def holds(self, group: Sequence[Job]) -> bool:
        """Whether a program may fit: nothing as large has failed."""
        return len(group) == 1 or _bytes_of_all(group) < self._too_large

    def shrink(self, group: Sequence[Job]) -> None:
        """Note that a program did not fit."""
        self._too_large = _bytes_of_all(group)


def _bytes_of_all(group: Sequence[Job]) -> int:
    return sum(bytes_of(job) for job in group)


def _signature(job: Job) -> tuple:
    """What the jobs of one program have in common."""
    X = job.prepared.table.X
    share = job.task.share
    return (
        job.task.plan,
        tuple(job.task.members.n_epochs),
        len(share.rows),
        len(share.validation),
        str(job.network.device),
        X.dtype,
        type(X),
    )
