"""Train the networks of a program in parts: on several devices, or on a cluster.

Networks do not interact, so each has the result that it has in one program.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from skbayesnn._engine.config import Hook
from skbayesnn._engine.training import Trained, Training, train
from skbayesnn.estimators._workers import Workers


def _parts(n_parts: int, training: Training) -> list[Training]:
    """Split the members of a training."""
    members = np.array_split(np.arange(training.n_members), n_parts)
    return [training.select(part) for part in members]


def train_on_cluster(n_workers: int, training: Training) -> Trained:
    """Train parts of the members on the workers of joblib's active backend."""
    calls = ((train, part) for part in _parts(n_workers, training))
    trained = list(Workers.of_backend().results(calls))
    return replace(Trained.concatenate(trained), n_processes=n_workers)


def train_on_devices(devices: Sequence[torch.device], training: Training) -> Trained:
    """Train parts of the members on several devices, at the same time.

    devices : at most as many as members
    returns : trained networks on the first device

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, unless all parts keep their finished epochs.
    """
    dtype, stop = training.posterior.dtype, threading.Event()
    # Parts begin together: after an interruption all of them have a result, or none.
    submitted = threading.Event()

    def train_part(device: torch.device, part: Training) -> Trained:
        submitted.wait()
        if stop.is_set():
            raise KeyboardInterrupt
        before = part.before
        if before is not None:
            before = replace(before, posterior=before.posterior.to(device, dtype))
        rows: Any = part.rows
        part = replace(
            part,
            rows=rows.to(device),
            posterior=part.posterior.to(device, dtype),
            before=before,
            hooks=[_Stopped(stop)],
        )
        trained = train(part)
        return replace(trained, posterior=trained.posterior.to(devices[0], dtype))

    parts = list(zip(devices, _parts(len(devices), training), strict=True))
    futures: list[Future[Trained]] = []
    with ThreadPoolExecutor(len(devices)) as pool:
        try:
            for device, part in parts:
                # With a copy of the context, which warnings depend on.
                run = copy_context().run
                futures.append(pool.submit(run, train_part, device, part))
            submitted.set()
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt:
            stop.set()
            done = set()
        finally:
            submitted.set()
        failed = [future for future in done if future.exception() is not None]
        if failed:
            stop.set()
            failed[0].result()  # raises
        results = [future.result() for future in futures]
    if stop.is_set() and not (
        training.config.keep_interrupted and len(results) == len(parts)
    ):
        raise KeyboardInterrupt
    trained = Trained.concatenate(results)
    return replace(trained, interrupted=trained.interrupted or stop.is_set())


class _Stopped(Hook):
    """Hook that ends the training of a thread when an event is set."""

    every_epoch = False

    def __init__(self, event: threading.Event):
        self._event = event

    def epoch_end(self, n_done, posterior):
        """Raise KeyboardInterrupt if the event is set."""
        if self._event.is_set():
            raise KeyboardInterrupt
