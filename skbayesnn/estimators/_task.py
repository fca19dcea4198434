"""What an estimator asks for -> its part of a program, in the networks' scale.

What the members of one program must share is collected in a :class:`Plan`; tau,
dropout, prior scales, seed and rows may differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from skbayesnn._data.design import Design, Scaling, Share
from skbayesnn._data.validate import Table, stacked
from skbayesnn._inference.plan import Members, Plan
from skbayesnn.estimators._prepared import Prepared
from skbayesnn.estimators._specification import Setting, Specification, specify
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
    settings : tuple of Setting
        Among which rows that are held out may choose; of a task that has chosen, or
        may not, none.
    noise : dict of ndarray of shape (targets,), or None
        The likelihood's ``noise_of_predictions``, as rows that are held out have it.
    """

    plan: Plan
    members: Members
    table: Table
    shares: tuple[Share, ...]
    dropout: np.ndarray
    length_scale: np.ndarray
    tau: np.ndarray | None
    settings: tuple[Setting, ...] = ()
    noise: dict[str, np.ndarray] | None = None

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

    @property
    def leaves_noise(self) -> bool:
        """Whether the noise is for rows to say that are held out.

        Where residuals would be asked of the training rows, and the likelihood's noise
        is none that they tell, or rows are held out anyway, for the length scale. As of
        residuals, not with early stopping: it stays as it was learned.
        """
        plan, likelihood = self.plan, self.plan.likelihood
        told_better = not likelihood.gaussian_targets or self._leaves_length_scale
        asked = plan.noise_from == "held_out" and plan.patience is None
        asked |= plan.asks_residuals and told_better
        return bool(likelihood.noise_of_predictions) and asked

    @property
    def estimates_tau(self) -> bool:
        """Whether held-out rows estimate the tau of the training, too.

        Where the noise that members put on y depends on it.
        """
        plan = self.plan
        of_y = plan.perturbed and plan.likelihood.gaussian_targets > 0
        return bool(of_y) and self.leaves_noise

    @property
    def variance_of_y(self) -> np.ndarray:
        """Of the first network's rows, in the network's scale; 1 of constants.

        (targets,)
        """
        share = self.shares[0]
        y = self.scaling.y_to_network(self.table.y[share.rows])
        mean = np.average(y, axis=0, weights=share.weights)
        variance = np.average(np.square(y - mean), axis=0, weights=share.weights)
        return np.where(variance > 0, variance, 1.0)

    @property
    def _leaves_length_scale(self) -> bool:
        scales = [one.length_scale for one in self.settings]
        return any(not np.array_equal(scale, scales[0]) for scale in scales)

    @property
    def is_open(self) -> bool:
        """Whether rows that are held out have something to say.

        One setting is no choice, but the noise may be open.
        """
        return len(self.settings) > (0 if self.leaves_noise else 1)

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
        return replace(
            self,
            members=replace(self.members, prior=prior),
            length_scale=length_scale,
        )

    def under(
        self, setting: Setting, noise: dict[str, np.ndarray] | None = None
    ) -> "Task":
        """The same with what was chosen."""
        task = self.of_length_scale(setting.length_scale)
        n_epochs = np.full_like(task.members.n_epochs, setting.n_epochs)
        members = replace(task.members, n_epochs=n_epochs)
        task = replace(task, members=members, settings=(), noise=noise)
        if noise is None or not self.estimates_tau:
            return task
        # Noise is at most all of y.
        variance = np.minimum(np.exp(noise["log_variance"]), self.variance_of_y)
        tau = np.repeat(1 / variance[None], self.n_members, axis=0)
        return replace(task, members=replace(members, tau=tau)).holding_noise()

    def holding_noise(self) -> "Task":
        """The same with a noise of the training that stays where it starts."""
        learns = np.zeros(self.n_members, dtype=bool)
        return replace(self, members=replace(self.members, learns_noise=learns))

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
    if asked.likelihood.of_classes:
        y = table.codes[asked.rows]
    else:
        y = scaling.y_to_network(table.y[asked.rows])
    statistics = asked.likelihood.statistics(y, weights)
    members = Members(
        seeds=asked.seeds,
        keep=np.repeat(1 - asked.variational.dropout[:, None], n_members, axis=1),
        prior=_prior_fields(asked.variational, asked.length_scale, n_members),
        tau=_network_tau(asked.tau, scaling, n_members),
        statistics=np.repeat(statistics[None], n_members, axis=0),
        n_epochs=np.full(n_members, asked.n_epochs),
        learns_noise=np.ones(n_members, dtype=bool),
    )
    return Task(
        plan=_plan(asked),
        members=members,
        table=table,
        shares=(Share(n_members, asked.rows, weights, asked.validation, scaling),),
        dropout=asked.variational.dropout,
        length_scale=asked.length_scale,
        tau=asked.tau,
        settings=asked.settings,
    )


def joined(
    tasks: Sequence[Task], device: torch.device, dtype: torch.dtype
) -> tuple[Members, Design]:
    """All members of some tasks, one after the other, and their rows."""
    table, starts = stacked([task.table for task in tasks])
    shares = [
        share.shifted(start)
        for task, start in zip(tasks, starts, strict=True)
        for share in task.shares
    ]
    members = Members.concatenate([task.members for task in tasks])
    return members, Design(table, shares, device, dtype)


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
        noise_from=asked.variational.noise_from,
        dtype=asked.dtype,
        hooks=asked.variational.hooks,
    )
