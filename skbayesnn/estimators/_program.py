"""What estimators ask for -> one batched program -> each one's trained networks.

``train_together`` is the engine's door: a single ``fit`` is the case of one estimator.
What the members of one program must share is collected in a :class:`Plan`; tau,
dropout, prior scales, seed and rows may differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from skbayesnn._data.design import Design, Scaling, Share
from skbayesnn._data.validate import Table, stacked
from skbayesnn._inference.hooks import Hook
from skbayesnn._inference.plan import Members, Plan
from skbayesnn._inference.posterior import Posterior
from skbayesnn._inference.training import Trained, start, train
from skbayesnn._settings import undisturbed
from skbayesnn.estimators import _validation
from skbayesnn.estimators._prepared import Prepared
from skbayesnn.estimators._progress import epochs_reported
from skbayesnn.estimators._specification import Specification, specify
from skbayesnn.estimators._variational_spec import VariationalSpec

# Of tau in the network's scale: beyond them nothing is left of one part of the loss.
_LEAST_TAU, _MOST_TAU = 1e-30, 1e30


@dataclass(frozen=True)
class Task:
    """One estimator's part of a program.

    Parameters
    ----------
    plan : Plan
    members : Members
        The estimator's networks.
    table : Table
    shares : tuple of Share
        The rows of it that they see, in the order of the members: all the same ones, or
        some their own (each may leave a fold out), in one scaling.
    dropout, length_scale : ndarray of shape (layers,)
    tau : ndarray of shape (targets,), or None
        Given precision in y's units; None where it is learned.
    """

    plan: Plan
    members: Members
    table: Table
    shares: tuple[Share, ...]
    dropout: np.ndarray
    length_scale: np.ndarray
    tau: np.ndarray | None

    @property
    def n_members(self) -> int:
        """Networks of the estimator."""
        return len(self.members.seeds)

    @property
    def scaling(self) -> Scaling:
        """Between y's units and the networks' scale."""
        return self.shares[0].scaling

    @property
    def total_weight(self) -> float:
        """N, the sum of the weights of the rows that a network sees, on average."""
        sums = [float(share.weights.sum()) for share in self.shares]
        counts = np.array([share.n_members for share in self.shares])
        return float(np.dot(sums, counts / self.n_members))

    def for_streaming(self, horizon: int, n_epochs: int) -> "Task":
        """Epochs at a constant learning rate, within a warm-up of ``horizon``."""
        plan = replace(
            self.plan,
            cosine=False,
            horizon=horizon,
            keep_interrupted=False,
        )
        of_members = np.full_like(self.members.n_epochs, n_epochs)
        members = replace(self.members, n_epochs=of_members)
        return replace(self, plan=plan, members=members)

    def of_length_scale(self, length_scale: np.ndarray) -> "Task":
        """The same under a prior of other scales, (layers,)."""
        prior = [
            fields | {"length_scale": np.full(self.n_members, scale)}
            for fields, scale in zip(self.members.prior, length_scale, strict=True)
        ]
        members = replace(self.members, prior=prior)
        return replace(self, members=members, length_scale=length_scale)

    def going_on(self, scaling: Scaling, seeds: np.ndarray) -> "Task":
        """The same in the scaling and with the networks of an earlier fit."""
        members = replace(
            self.members,
            seeds=seeds,
            tau=_network_tau(self.tau, scaling, len(seeds)),
        )
        shares = tuple(replace(share, scaling=scaling) for share in self.shares)
        return replace(self, members=members, shares=shares)

    def under_prior(self, prior: list[dict[str, np.ndarray]]) -> "Task":
        """The same with an earlier posterior as the prior, its fields per layer.

        Without warm-up of the KL: what is known already would be forgotten.
        """
        return replace(
            self,
            plan=replace(self.plan, prior="previous", kl_warm_up=0.0),
            members=replace(self.members, prior=prior),
        )


@dataclass(frozen=True)
class Fitted:
    """One estimator's trained networks, before they become plain arrays."""

    task: Task
    trained: Trained


@undisturbed
def train_together(
    estimators: Sequence,
    tasks: Sequence[Task],
    device: str | None = None,
) -> list[Fitted]:
    """Train estimators whose tasks are made.

    On the first one's ``device`` unless another is named.

    Raises
    ------
    ValueError
        Estimators that cannot share a program.
    FloatingPointError
        All networks' losses became infinite or NaN.
    """
    plan = tasks[0].plan
    for estimator, task in zip(estimators, tasks, strict=True):
        if task.plan != plan:
            raise ValueError(
                "estimators of one program may differ in tau, dropout, length_scale, "
                f"prior scales, random_state and rows only; got {estimators[0]!r} with "
                f"{plan} and {estimator!r} with {task.plan}."
            )
    table, starts = stacked([task.table for task in tasks])
    shares = [
        share.shifted(start)
        for task, start in zip(tasks, starts, strict=True)
        for share in task.shares
    ]
    place = _validation.device_for_fit(device or estimators[0].device)
    dtype = computed_in(plan, place)
    members = Members.concatenate([task.members for task in tasks])
    design = Design(table, shares, place, dtype)
    posterior = start(plan, members, place, dtype)
    trained = run(estimators, plan, members, design, posterior)
    if len(tasks) == 1:
        return [Fitted(tasks[0], trained)]
    ends = np.cumsum([task.n_members for task in tasks])
    return [
        Fitted(task, trained.select(np.arange(end - task.n_members, end)))
        for task, end in zip(tasks, ends, strict=True)
    ]


def run(
    estimators,
    plan: Plan,
    members: Members,
    design: Design,
    posterior: Posterior,
    optimizer_state=None,
    first_epoch: int = 0,
) -> Trained:
    """Train, with progress shown; all members failing is an error."""
    verbose = _validation.check_bool("verbose", estimators[0].verbose)
    with epochs_reported(estimators, int(members.n_epochs.max()), verbose) as report:
        hooks = [*(make() for make in plan.hooks), _Reported(report)]
        trained = train(
            plan, members, design, posterior, optimizer_state, first_epoch, hooks
        )
    if trained.failed.all():
        raise all_failed(plan, trained)
    return trained


class _Reported(Hook):
    """Passes the number of epochs done to a function."""

    def __init__(self, report):
        self._report = report

    def epoch_end(self, n_done, posterior):
        """After each epoch."""
        self._report(n_done)


def all_failed(plan: Plan, trained: Trained) -> FloatingPointError:
    """Why there is nothing to predict with."""
    return FloatingPointError(
        "the loss of every network became infinite or NaN, first in epoch "
        f"{trained.failed.min()}. Lower learning_rate_init "
        f"({plan.learning_rate:g} here), scale the data (standardize=True), or train "
        "in double precision (dtype='float64'). In the first epoch it may also be a "
        "prior out of proportion: length_scale, tau, and the sum of the weights."
    )


def computed_in(plan: Plan, device: torch.device) -> torch.dtype:
    """The plan's precision; Apple GPUs have float32 only."""
    return torch.float32 if device.type == "mps" else plan.dtype


def task_of(
    estimator, prepared: Prepared, hidden: Sequence[int] | int | None = None
) -> Task:
    """An estimator's part of a program that trains on these rows.

    hidden : as in :func:`specify`
    """
    return make_task(prepared, specify(estimator, prepared, hidden))


def make_task(prepared: Prepared, asked: Specification) -> Task:
    """What is asked for, in the network's scale."""
    table, weights = prepared.table, asked.weights
    scaling = prepared.scaling(
        asked.rows,
        weights,
        inputs=asked.standardize,
        targets=asked.standardize and asked.likelihood.standardizes_y,
        robust=asked.likelihood.robust,
        alike=asked.network.alike_inputs,
    )
    n_members = len(asked.seeds)
    y = table.y[asked.rows]
    if not asked.likelihood.of_classes:
        y = scaling.y_to_network(y)
    statistics = asked.likelihood.statistics(y, weights)
    members = Members(
        seeds=asked.seeds,
        keep=np.repeat(1 - asked.variational.dropout[:, None], n_members, axis=1),
        prior=_prior_fields(asked.variational, asked.length_scale, n_members),
        tau=_network_tau(asked.tau, scaling, n_members),
        statistics=np.repeat(statistics[None], n_members, axis=0),
        n_epochs=np.full(n_members, asked.n_epochs),
    )
    return Task(
        plan=_plan(asked),
        members=members,
        table=table,
        shares=(Share(n_members, asked.rows, weights, asked.validation, scaling),),
        dropout=asked.variational.dropout,
        length_scale=asked.length_scale,
        tau=asked.tau,
    )


def _network_tau(tau, scaling: Scaling, n_members: int) -> np.ndarray:
    """tau in the network's scale, (members, targets); learned ones start at y's own."""
    if tau is None:
        tau = scaling.signal_precision()
    in_network = scaling.tau_to_network(tau)
    beyond = (in_network < _LEAST_TAU) | (in_network > _MOST_TAU)
    if beyond.any():
        unit = scaling.signal_precision()[beyond][0]
        raise ValueError(
            f"`tau`, 1 / variance of the noise, must be between {_LEAST_TAU:g} and "
            f"{_MOST_TAU:g} times 1 / variance of y, {unit:.3g} here; got "
            f"{np.broadcast_to(tau, beyond.shape)[beyond][0]:g}. Write it k / y.var()."
        )
    return np.repeat(in_network[None], n_members, axis=0)


def _prior_fields(variational: VariationalSpec, length_scale, n_members: int):
    """The fields of the prior of every layer, (members,) each."""
    fields = {"length_scale": length_scale, **variational.prior_fields}
    of_layers = {name: np.resize(v, len(length_scale)) for name, v in fields.items()}
    return [
        {name: np.full(n_members, values[i]) for name, values in of_layers.items()}
        for i in range(len(length_scale))
    ]


def _plan(asked: Specification) -> Plan:
    """What the members of its program have in common."""
    return Plan(
        network=asked.network,
        likelihood=asked.likelihood,
        n_batches=asked.n_batches,
        learning_rate=asked.learning_rate,
        cosine=asked.cosine,
        patience=asked.patience,
        tol=asked.tol,
        keep_interrupted=asked.keep_interrupted,
        prior=asked.variational.prior,
        kl_weighting=asked.variational.kl_weighting,
        kl_warm_up=asked.variational.kl_warm_up,
        gradient=asked.variational.gradient,
        n_training_draws=asked.variational.n_training_draws,
        perturbed=asked.variational.perturbed,
        dtype=asked.dtype,
        hooks=asked.variational.hooks,
    )
