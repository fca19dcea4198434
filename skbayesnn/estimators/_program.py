"""Estimators + one table -> one batched program -> each estimator's trained networks.

``train_together`` is the engine's door: a single ``fit`` is the case of one estimator.
What the members of one program must share is collected in a :class:`Plan`; tau,
dropout, prior scales, seed and rows may differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from skbayesnn._data.design import Design, Scaling, Share
from skbayesnn._data.validate import Table, stacked
from skbayesnn._inference.hooks import Hook
from skbayesnn._inference.plan import Members, Plan
from skbayesnn._inference.posterior import Posterior
from skbayesnn._inference.training import Trained, start, train
from skbayesnn._networks import MLP
from skbayesnn.estimators import _validation
from skbayesnn.estimators._progress import epochs_reported
from skbayesnn.estimators._variational_spec import VariationalSpec


@dataclass(frozen=True)
class Task:
    """One estimator's part of a program.

    Parameters
    ----------
    plan : Plan
    members : Members
        The estimator's networks.
    table : Table
    share : Share
        The rows of it that they see.
    dropout, length_scale : ndarray of shape (layers,)
    tau : ndarray of shape (targets,), or None
        Given precision in y's units; None where it is learned.
    """

    plan: Plan
    members: Members
    table: Table
    share: Share
    dropout: np.ndarray
    length_scale: np.ndarray
    tau: np.ndarray | None

    def for_streaming(self, horizon: int) -> "Task":
        """One epoch at a constant learning rate, within a warm-up of ``horizon``."""
        plan = replace(
            self.plan,
            cosine=False,
            horizon=horizon,
            keep_interrupted=False,
        )
        once = np.ones_like(self.members.n_epochs)
        return replace(self, plan=plan, members=replace(self.members, n_epochs=once))

    def going_on(self, scaling: Scaling, seeds: np.ndarray) -> "Task":
        """The same in the scaling and with the networks of an earlier fit."""
        members = replace(
            self.members,
            seeds=seeds,
            tau=_network_tau(self.tau, scaling, len(seeds)),
        )
        return replace(
            self, members=members, share=replace(self.share, scaling=scaling)
        )

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
        task.share.shifted(start) for task, start in zip(tasks, starts, strict=True)
    ]
    place = _validation.device_for_fit(device or estimators[0].device)
    dtype = precision(table, place)
    members = Members.concatenate([task.members for task in tasks])
    design = Design(table, shares, place, dtype)
    posterior = start(plan, members, place, dtype)
    trained = run(estimators, plan, members, design, posterior)
    ends = np.cumsum([len(task.members.seeds) for task in tasks])
    return [
        Fitted(task, trained.select(np.arange(end - len(task.members.seeds), end)))
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
        hooks = [_Reported(report)]
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
        f"({plan.learning_rate:g} here), or scale the data (standardize=True)."
    )


def precision(table: Table, device: torch.device) -> torch.dtype:
    """Compute in X's precision, as scikit-learn does; Apple GPUs have float32 only."""
    if device.type == "mps" or table.X.dtype == np.float32:
        return torch.float32
    return torch.float64


def make_task(estimator, prepared) -> Task:
    """Checked parameters and rows of one estimator."""
    table, rows, validation = prepared.table, prepared.rows, prepared.validation
    classes = prepared.of_y.get("classes_")
    random_state = _validation.random_source(estimator.random_state)
    n_members = _validation.check_number(
        "n_estimators", estimator.n_estimators, kind=_validation.Integral, low=1
    )
    _validation.check_number(
        "n_draws", estimator.n_draws, kind=_validation.Integral, low=1
    )
    seeds = random_state.randint(0, 2**31 - 1, size=n_members)
    early_stopping = _validation.check_bool("early_stopping", estimator.early_stopping)
    rows, validation = _split(
        estimator, table, rows, validation, early_stopping, classes, random_state
    )
    weights = estimator._row_weights(table, rows, classes)
    if not weights.all():
        rows, weights = rows[weights > 0], weights[weights > 0]

    standardize = _validation.check_bool("standardize", estimator.standardize)
    scaling = prepared.scaling(
        rows, weights, inputs=standardize, targets=standardize and classes is None
    )
    n_targets = len(scaling.y_mean)
    tau = _validation.precisions(estimator.tau, n_targets)
    likelihood = estimator._likelihood(
        n_targets if classes is None else len(classes), learned=tau is None
    )
    hidden = _validation.hidden_sizes(estimator.hidden_layer_sizes)
    sizes = (table.X.shape[1], *hidden, likelihood.n_outputs)
    method = estimator._method(len(sizes) - 1)
    network = MLP(
        sizes=sizes,
        activation=_validation.activation_name(estimator.activation),
        families=method.families,
    )
    length_scale = _validation.length_scales(estimator.length_scale, network.fan_ins)
    plan = _plan(estimator, method, network, likelihood, len(rows), len(validation) > 0)
    n_epochs = _validation.epochs(estimator.max_iter, len(rows), plan.n_batches)
    members = Members(
        seeds=seeds,
        keep=np.repeat(1 - method.dropout[:, None], n_members, axis=1),
        prior=_prior_fields(method, length_scale, n_members),
        tau=_network_tau(tau, scaling, n_members),
        n_epochs=np.full(n_members, n_epochs),
    )
    return Task(
        plan=plan,
        members=members,
        table=table,
        share=Share(n_members, rows, weights, validation, scaling),
        dropout=method.dropout,
        length_scale=length_scale,
        tau=tau,
    )


def _network_tau(tau, scaling: Scaling, n_members: int) -> np.ndarray:
    """tau in the network's scale, (members, targets); learned ones start at y's own."""
    if tau is None:
        tau = 1 / scaling.y_scale**2
    return np.repeat((tau * scaling.y_scale**2)[None], n_members, axis=0)


def _prior_fields(method: VariationalSpec, length_scale, n_members: int):
    """The fields of the prior of every layer, (members,) each."""
    return [
        {
            name: np.full(n_members, value)
            for name, value in {"length_scale": scale, **method.prior_fields}.items()
        }
        for scale in length_scale
    ]


def _plan(estimator, method, network, likelihood, n_rows, stops_early) -> Plan:
    batch_size = _validation.batch_rows(estimator.batch_size, n_rows)
    schedule = _validation.check_option(
        "learning_rate", estimator.learning_rate, ["cosine", "constant"]
    )
    patience = _validation.check_number(
        "n_iter_no_change",
        estimator.n_iter_no_change,
        kind=_validation.Integral,
        low=1,
    )
    return Plan(
        network=network,
        likelihood=likelihood,
        n_batches=-(-n_rows // batch_size),
        learning_rate=_validation.check_number(
            "learning_rate_init", estimator.learning_rate_init, low=0, open_low=True
        ),
        cosine=schedule == "cosine",
        patience=patience if stops_early else None,
        tol=_validation.check_number("tol", estimator.tol, low=0),
        keep_interrupted=_validation.check_bool("warm_start", estimator.warm_start),
        prior=method.prior,
        kl_weighting=method.kl_weighting,
        kl_warm_up=method.kl_warm_up,
        score_function=method.score_function,
    )


def _split(estimator, table, rows, validation, early_stopping, classes, random_state):
    """Training rows and validation rows; the latter may be empty."""
    fraction = _validation.check_number(
        "validation_fraction",
        estimator.validation_fraction,
        low=0,
        high=1,
        open_low=True,
    )
    if not early_stopping:
        return rows, np.empty(0, dtype=int)
    if validation is not None:
        return rows, validation[table.sample_weight[validation] > 0]
    stratify = None if classes is None else table.y[rows]
    try:
        return train_test_split(
            rows, test_size=fraction, random_state=random_state, stratify=stratify
        )
    except ValueError as error:
        raise ValueError(
            f"early_stopping holds out validation_fraction={fraction:g} of the rows; "
            f"got {len(rows)} rows, too few to split. Set early_stopping=False, or "
            f"give `X_val` and `y_val`. ({error})"
        ) from error
