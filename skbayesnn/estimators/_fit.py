"""Train one or more estimators in one program, and report progress.

``train_together`` is the only way from estimators to the engine; ``fit`` calls it with
a single estimator. With ``verbose >= 1`` a tqdm bar shows the epochs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from skbayesnn import _validation
from skbayesnn._engine.config import Hook, TrainingConfig
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.processes import present_processes
from skbayesnn._engine.training import Trained, Training, train
from skbayesnn._runtime import default_settings, required, snapshot
from skbayesnn.estimators import _selection
from skbayesnn.estimators._continuation import (
    Checkpoint,
    Continuable,
    possible_starts,
    rows_of,
)
from skbayesnn.estimators._job import TrainedJob, TrainingJob, joined
from skbayesnn.estimators._training_data import training_data
from skbayesnn.estimators._workers import (
    n_cluster_workers,
    train_on_cluster,
    train_on_devices,
)

# ---- progress


@contextmanager
def epochs_reported(
    estimators,
    n_epochs: int,
    shown: bool,
    rows_of_epoch: int | None = None,
) -> Iterator:
    """Context with a function to call after epochs, with the number of epochs done.

    shown : whether to show a tqdm bar
    rows_of_epoch : the bar counts rows if they are given

    Raises
    ------
    ImportError
        If ``shown`` is true and tqdm is not installed.
    """
    bar, scale = None, rows_of_epoch or 1
    if shown:
        unit: dict = {"unit": "epoch"}
        if rows_of_epoch is not None:
            unit = {"unit": " rows", "unit_scale": True}
        bar = tqdm_bar(total=n_epochs * scale, desc=_title(estimators), **unit)

    def report(epoch: int) -> None:
        if bar is not None:
            bar.update(epoch * scale - bar.n)

    try:
        yield report
    finally:
        if bar is not None:
            bar.close()


def _title(estimators) -> str:
    name = type(estimators[0]).__name__
    return name if len(estimators) == 1 else f"{name} x {len(estimators)}"


def tqdm_bar(**options):
    """Create a tqdm progress bar.

    Raises
    ------
    ImportError
        If tqdm is not installed.
    """
    command = "pip install tqdm, or set verbose=0"
    module = required("tqdm.auto", "verbose >= 1 shows progress with", command)
    return module.tqdm(**options)


# ---- training


@default_settings
def train_together(
    estimators: Sequence,
    jobs: Sequence[TrainingJob],
    hooks: Sequence[Hook] = (),
) -> list[TrainedJob]:
    """Train the jobs of estimators in one program, on the device of the first one.

    hooks : called after every epoch of the training on all rows

    Raises
    ------
    ValueError
        If the jobs have different configurations.
    FloatingPointError
        If the losses of all networks became infinite or NaN.
    """
    config = jobs[0].config
    for estimator, job in zip(estimators, jobs, strict=True):
        if job.config != config:
            raise ValueError(
                "estimators of one program may only differ in tau, dropout, "
                "length_scale, prior scales, random_state and rows; got "
                f"{estimators[0]!r} with "
                f"{config} and {estimator!r} with {job.config}."
            )
    devices = jobs[0].devices(estimators[0].device)
    jobs = _selection.select_settings(jobs, devices)
    trained_jobs: dict[int, TrainedJob] = {}
    # Held-out rows may have selected different likelihoods.
    while len(trained_jobs) < len(jobs):
        config = next(job.config for i, job in enumerate(jobs) if i not in trained_jobs)
        same = [i for i, job in enumerate(jobs) if job.config == config]
        program_jobs = [jobs[i] for i in same]
        training = joined(program_jobs, devices[0], hooks=hooks)
        trained = run([estimators[i] for i in same], training, devices=devices)
        start = 0
        for i, job in zip(same, program_jobs, strict=True):
            part = trained
            if len(same) > 1:
                part = trained.select(np.arange(start, start + job.n_members))
            trained_jobs[i], start = job.with_trained(part), start + job.n_members
    return [trained_jobs[i] for i in range(len(jobs))]


def fit_to_table(
    estimator, new, table: tuple, checkpoint: Checkpoint | None
) -> TrainedJob:
    """Fit an estimator to a table in memory.

    new : copy that gets the fitted attributes that depend on the columns
    table : X, y and further arguments of ``training_data``
    """
    for possible in possible_starts(estimator):
        columns = snapshot(new)
        data = training_data(columns, *table, reset=not possible.is_warm)
        start = possible.of_rows(rows_of(data), is_kept=checkpoint is not None)
        if start is not None:
            break
    assert start is not None, "the last possible start fits any rows"
    vars(new).clear()
    vars(new).update(vars(columns))
    job, fitted = start.job(data)
    devices = job.devices(estimator.device)
    dtype = job.config.computed_in(devices[0])
    if fitted is not None:
        job = _with_noise_of(fitted, job)
    elif start.unfinished is None:
        [job] = _selection.select_settings([job], devices)

    def trained_job(trained: Trained) -> TrainedJob:
        if fitted is not None and job.estimates_variance:
            posterior = trained.posterior.copy_predictive_params(fitted)
            trained = replace(trained, posterior=posterior)
        return replace(job.with_trained(trained), n_epochs_before=start.n_epochs_before)

    in_legs = None
    if checkpoint is not None:
        continuable = Continuable(start, columns, job, trained_job)
        in_legs = partial(checkpoint.train_in_legs, continuable)
    training = job.training(
        devices[0],
        fitted,
        first_epoch=start.n_epochs_before,
        before=start.before(devices[0], dtype),
    )
    return trained_job(run([estimator], training, devices=devices, in_legs=in_legs))


def _with_noise_of(fitted: Posterior, job: TrainingJob) -> TrainingJob:
    """A warm start, which holds out no rows, keeps the noise of the fit before.

    After a stream there is no estimate to keep.
    """
    names = set(job.config.likelihood.predictive_params)
    is_kept = job.perturbs_y and names & fitted.likelihood_params.keys()
    return job.with_fixed_likelihood() if is_kept else job


def run(
    estimators,
    training: Training,
    devices: Sequence[torch.device] = (),
    rows_of_epoch: int | None = None,
    in_legs: Callable | None = None,
) -> Trained:
    """Train and report progress; raise if all networks fail.

    devices : the members are spread over them, if there are several
    rows_of_epoch : rows of an epoch, if progress is reported in rows
    in_legs : ``train_in_legs`` of a checkpoint
    """
    config, hooks, before = training.config, training.hooks, training.before
    shown = _validation.verbosity(estimators[0].verbose) > 0
    processes = present_processes()
    shown = shown and (processes is None or processes.rank == 0)
    keeps_interrupted = config.keep_interrupted
    if in_legs is not None:
        config = replace(config, keep_interrupted=True)
    training = replace(training, config=config, compute_bound=True)
    n_epochs, n_members = int(training.members.n_epochs.max()), training.n_members
    is_local = bool(hooks) or training.perturbation is not None
    on_cpu = training.rows.mean_weight.device.type == "cpu"
    # The workers of a cluster may not have the device of the rows.
    n_workers = min(n_cluster_workers(), n_members)
    n_workers = n_workers if on_cpu and not is_local else 1
    with epochs_reported(estimators, n_epochs, shown, rows_of_epoch) as report:

        def leg(before: Trained | None, until: int | None) -> Trained:
            part = replace(training, before=before, until=until)
            if n_workers > 1:
                trained = train_on_cluster(n_workers, part)
            elif len(devices) > 1 and n_members > 1 and not is_local:
                trained = train_on_devices(devices[:n_members], part)
            else:
                return train(replace(part, hooks=[_Reported(report), *hooks]))
            report(n_epochs if until is None else min(until, n_epochs))
            return trained

        if in_legs is None:
            trained = leg(before, None).after(before)
        else:
            trained = in_legs(leg, before)
    if trained.interrupted and not keeps_interrupted:
        raise trained.lost or KeyboardInterrupt
    if trained.failed.all():
        raise all_failed(config, trained)
    return trained


class _Reported(Hook):
    """Hook that passes the number of epochs done to a function."""

    every_epoch = False

    def __init__(self, report):
        self._report = report

    def epoch_end(self, n_done, posterior):
        """Report progress after each epoch."""
        self._report(n_done)


def all_failed(config: TrainingConfig, trained: Trained) -> FloatingPointError:
    """Error for a training in which all networks failed."""
    return FloatingPointError(
        "the loss of every network became infinite or NaN, first in epoch "
        f"{trained.failed.min()}. Lower learning_rate_init "
        f"({config.learning_rate:g} here), scale the data (standardize=True), or train "
        "in double precision (dtype='float64'). If it was the first epoch, also check "
        "X for values that are infinite or very large, length_scale, tau and the sum "
        "of the sample weights."
    )
