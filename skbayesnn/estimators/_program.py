"""What estimators ask for -> one batched program -> each one's trained networks.

``train_together`` is the engine's door: a single ``fit`` is the case of one estimator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from skbayesnn._data.design import Design
from skbayesnn._inference.hooks import Hook
from skbayesnn._inference.plan import Members, Plan
from skbayesnn._inference.posterior import Posterior
from skbayesnn._inference.training import Trained, start, train
from skbayesnn._settings import undisturbed
from skbayesnn.estimators import _held_out_choice, _validation
from skbayesnn.estimators._progress import epochs_reported
from skbayesnn.estimators._task import Task, joined


@dataclass(frozen=True)
class Fitted:
    """One estimator's trained networks, before they become plain arrays."""

    task: Task
    trained: Trained

    @classmethod
    def of(cls, task: Task, trained: Trained) -> "Fitted":
        """With the noise that rows held out have told the task."""
        if task.noise is None:
            return cls(task, trained)
        posterior = trained.posterior.with_noise(task.noise)
        return cls(task, replace(trained, posterior=posterior))


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
    place = _validation.device_for_fit(device or estimators[0].device)
    dtype = computed_in(plan, place)
    tasks = _held_out_choice.settled(tasks, place, dtype)
    members, design = joined(tasks, place, dtype)
    posterior = start(plan, members, place, dtype)
    trained = run(estimators, plan, members, design, posterior)
    if len(tasks) == 1:
        return [Fitted.of(tasks[0], trained)]
    ends = np.cumsum([task.n_members for task in tasks])
    return [
        Fitted.of(task, trained.select(np.arange(end - task.n_members, end)))
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
    shown = _validation.verbosity(estimators[0].verbose) > 0
    with epochs_reported(estimators, int(members.n_epochs.max()), shown) as report:
        hooks = [*(make() for make in plan.hooks), _Reported(report)]
        trained = train(
            plan,
            members,
            design,
            posterior,
            optimizer_state,
            first_epoch,
            hooks,
            bounded=True,
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
