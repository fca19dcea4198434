"""Jobs -> groups whose networks are trained as the members of one program."""

from collections.abc import Iterator, Sequence

import numpy as np

from skbayesnn.estimators import _validation
from skbayesnn.model_selection._jobs import Job

# A program's widest activations on a CPU, measured: with fewer members the calls cost
# more than the numbers, with more the numbers come from far; but a program has some
# members in any case.
WIDEST_BYTES, FEWEST_MEMBERS = 8 << 20, 16


def groups_of(jobs: Sequence[Job], budget: int) -> Iterator[list[Job]]:
    """Jobs that can share a program, at most ``budget`` bytes at a time.

    Those of one fold stand together, so that a program has few tables.
    """
    alike: dict[tuple, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: id(job.prepared.table)):
        alike.setdefault(_shared(job), []).append(job)
    for group in alike.values():
        n_pieces = -(-len(group) // jobs_per_program(group, budget))
        for piece in np.array_split(np.arange(len(group)), n_pieces):
            yield [group[i] for i in piece]


def _shared(job: Job) -> tuple:
    """What the jobs of one program have in common."""
    X, shares = job.prepared.table.X, job.task.shares
    return (
        job.task.plan,
        # Unequal rows and epochs could share one, too, but members in step are faster.
        job.task.members.n_epochs.max(),
        frozenset((len(share.rows), len(share.validation)) for share in shares),
        str(job.network.device),
        X.dtype,
        type(X),
    )


def jobs_per_program(group: Sequence[Job], budget: int) -> int:
    """As many as the budget holds; on a CPU no more than are fast."""
    job = max(group, key=lambda job: job.task.n_members)
    n_members, plan = job.task.n_members, job.task.plan
    size = max(1, budget // (n_members * bytes_per_member(group)))
    if _validation.device_for_fit(job.network.device).type != "cpu":
        return size
    widest = plan.batch_rows(_most_rows(group)) * plan.network.widest * n_members
    members = WIDEST_BYTES // (_bytes_per_number(job) * widest)
    return min(size, max(FEWEST_MEMBERS, members))


def bytes_of(group: Sequence[Job]) -> int:
    """Memory that a program takes in training, an upper estimate."""
    n_members = sum(job.task.n_members for job in group)
    return n_members * bytes_per_member(group)


def bytes_per_member(group: Sequence[Job]) -> int:
    """Memory that a member of a program takes in training, an upper estimate.

    Parameters are there about thirty times: values, gradient and its parts, two
    moments of Adam, the best epoch's, start values, temporaries, and the results.
    Activations of a batch are there with their noise, mask and gradient. The number
    and the weight of a row are there for as many as the largest share has.
    """
    plan, n_rows = group[0].task.plan, _most_rows(group)
    units = plan.batch_rows(n_rows) * plan.network.n_units
    numbers = 30 * plan.network.n_weights + 6 * units
    return _bytes_per_number(group[0]) * numbers + 16 * n_rows


def _most_rows(group: Sequence[Job]) -> int:
    return max(len(share.rows) for job in group for share in job.task.shares)


def _bytes_per_number(job: Job) -> int:
    """In training."""
    return job.task.plan.dtype.itemsize


class MemoryLimit:
    """The size of what did not fit into memory: nothing as large is tried again."""

    def __init__(self) -> None:
        self._too_large = float("inf")

    def allows(self, group: Sequence[Job]) -> bool:
        """Whether a program may fit: nothing as large has failed."""
        nothing_failed = self._too_large == float("inf")
        return nothing_failed or len(group) == 1 or bytes_of(group) < self._too_large

    def lower(self, group: Sequence[Job]) -> None:
        """Note that a program did not fit."""
        self._too_large = bytes_of(group)
