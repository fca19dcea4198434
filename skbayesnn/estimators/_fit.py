"""Train estimators together in one program.

``train_together`` is the entrance to the engine: a single ``fit`` is the case of one
estimator. Progress is reported through scikit-learn's callbacks (``set_callbacks``,
from scikit-learn 1.9), which are called after every epoch, and by a tqdm bar from
``verbose=1`` on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from skbayesnn import _validation
from skbayesnn._data.training_rows import TrainingRows
from skbayesnn._engine.config import Hook, MemberParams, TrainingConfig
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.training import Trained, start, train
from skbayesnn._runtime import default_settings
from skbayesnn._sklearn_compat import callback_context, has_callbacks
from skbayesnn.estimators import _selection
from skbayesnn.estimators._job import TrainingJob, joined

# ---- progress


@contextmanager
def epochs_reported(estimators, n_epochs: int, shown: bool) -> Iterator:
    """A function to call after each epoch with the number of epochs done.

    Raises
    ------
    ImportError
        ``shown`` without tqdm.
    """
    contexts = [
        (estimator, callback_context(estimator, n_epochs))
        for estimator in estimators
        if has_callbacks(estimator)
    ]
    for estimator, context in contexts:
        context.call_on_fit_task_begin(estimator=estimator)
    bar = (
        tqdm_bar(total=n_epochs, desc=_title(estimators), unit="epoch")
        if shown
        else None
    )

    def report(epoch: int) -> None:
        if bar is not None:
            bar.update(epoch - bar.n)
        for estimator, context in contexts:
            task = context.subcontext(task_name="epoch")
            task.call_on_fit_task_begin(estimator=estimator)
            task.call_on_fit_task_end(estimator=estimator)

    try:
        yield report
    finally:
        if bar is not None:
            bar.close()
    for estimator, context in contexts:
        context.call_on_fit_task_end(estimator=estimator)


def _title(estimators) -> str:
    name = type(estimators[0]).__name__
    return name if len(estimators) == 1 else f"{name} x {len(estimators)}"


def time_left(seconds: float) -> str:
    """An estimate of the time left, in words; empty where there is none.

    Examples
    --------
    >>> time_left(41.7), time_left(250.0), time_left(9000.0), time_left(0.0)
    (', about 42 s left', ', about 4 min left', ', about 2.5 h left', '')
    """
    if seconds <= 0:
        return ""
    if seconds < 99.5:
        about = f"{max(seconds, 1):.0f} s"
    elif seconds < 99.5 * 60:
        about = f"{seconds / 60:.0f} min"
    else:
        about = f"{seconds / 3600:.1f} h"
    return f", about {about} left"


def tqdm_bar(**options):
    """A bar of tqdm.

    Raises
    ------
    ImportError
        Without tqdm.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "verbose >= 1 shows progress with tqdm, which is not installed; "
            "install it with `pip install tqdm`, or set verbose=0."
        ) from error
    return tqdm(**options)


# ---- training


@default_settings
def train_together(
    estimators: Sequence,
    jobs: Sequence[TrainingJob],
    device: str | None = None,
) -> list[TrainingJob]:
    """Train estimators whose jobs are made; returns the jobs with trained networks.

    On the first one's ``device`` unless another is named.

    Raises
    ------
    ValueError
        Estimators that cannot share a program.
    FloatingPointError
        All networks' losses became infinite or NaN.
    """
    config = jobs[0].config
    for estimator, job in zip(estimators, jobs, strict=True):
        if job.config != config:
            raise ValueError(
                "estimators of one program may differ in tau, dropout, length_scale, "
                f"prior scales, random_state and rows only; got {estimators[0]!r} with "
                f"{config} and {estimator!r} with {job.config}."
            )
    place = _validation.device_for_fit(device or estimators[0].device)
    dtype = computed_in(config, place)
    jobs = _selection.select_settings(jobs, place, dtype)
    members, design = joined(jobs, place, dtype)
    posterior = start(config, members, place, dtype)
    trained = run(estimators, config, members, design, posterior)
    if len(jobs) == 1:
        return [jobs[0].with_trained(trained)]
    ends = np.cumsum([job.n_members for job in jobs])
    return [
        job.with_trained(trained.select(np.arange(end - job.n_members, end)))
        for job, end in zip(jobs, ends, strict=True)
    ]


def run(
    estimators,
    config: TrainingConfig,
    members: MemberParams,
    design: TrainingRows,
    posterior: Posterior,
    optimizer_state=None,
    first_epoch: int = 0,
) -> Trained:
    """Train, with progress shown; all members failing is an error."""
    shown = _validation.verbosity(estimators[0].verbose) > 0
    with epochs_reported(estimators, int(members.n_epochs.max()), shown) as report:
        hooks = [_Reported(report)]
        trained = train(
            config,
            members,
            design,
            posterior,
            optimizer_state,
            first_epoch,
            hooks,
            bounded=True,
        )
    if trained.failed.all():
        raise all_failed(config, trained)
    return trained


class _Reported(Hook):
    """Passes the number of epochs done to a function."""

    def __init__(self, report):
        self._report = report

    def epoch_end(self, n_done, posterior):
        """After each epoch."""
        self._report(n_done)


def all_failed(config: TrainingConfig, trained: Trained) -> FloatingPointError:
    """Why there is nothing to predict with."""
    return FloatingPointError(
        "the loss of every network became infinite or NaN, first in epoch "
        f"{trained.failed.min()}. Lower learning_rate_init "
        f"({config.learning_rate:g} here), scale the data (standardize=True), or train "
        "in double precision (dtype='float64'). In the first epoch it may also be a "
        "prior out of proportion: length_scale, tau, and the sum of the weights."
    )


def computed_in(config: TrainingConfig, device: torch.device) -> torch.dtype:
    """The precision of the configuration; Apple GPUs have float32 only."""
    return torch.float32 if device.type == "mps" else config.dtype
