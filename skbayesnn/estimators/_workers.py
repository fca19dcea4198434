"""Calls on workers of joblib, and trainings in parts: on a cluster, or on devices.

Networks do not interact, so each has the result that it has in one program.
"""

import pickle
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import torch
from sklearn.utils.parallel import Parallel, delayed

from skbayesnn._engine.config import Hook
from skbayesnn._engine.training import Trained, Training, train
from skbayesnn._runtime import wait_for

try:
    import cloudpickle  # type: ignore[import-untyped]
except ImportError:  # joblib before 1.6 contains it
    from joblib.externals import cloudpickle

# Backends of joblib on this computer.
_LOCAL = (
    joblib._parallel_backends.SequentialBackend,
    joblib._parallel_backends.ThreadingBackend,
    joblib._parallel_backends.MultiprocessingBackend,
    joblib._parallel_backends.LokyBackend,
)


def n_cluster_workers() -> int:
    """Workers of joblib's active backend; 0 if it is no cluster, or in its tasks."""
    backend, _ = joblib.parallel.get_active_backend()
    if not _is_cluster(backend) or backend.nesting_level:
        return 0
    # In its tasks, the backend of Dask looks as outside.
    dask = sys.modules.get("distributed.worker")
    if dask is not None and hasattr(dask.thread_state, "execution_state"):
        return 0
    return joblib.effective_n_jobs()


def _is_cluster(backend) -> bool:
    return type(backend) not in _LOCAL


def workers(**options) -> Parallel:
    """Workers of joblib's active backend; a result is returned when it is computed.

    options : of ``joblib.Parallel``
    """
    try:
        return Parallel(return_as="generator", **options)
    except ValueError:  # The backend cannot return results one at a time.
        return Parallel(**options)


def results_of(parallel: Parallel, calls: Iterable[tuple]) -> Iterator[Any]:
    """Results of calls on workers, in their order.

    calls : tuples of a function and its arguments

    Raises
    ------
    Exception
        The exception of the first call that fails.
    """
    # Arrays that a cluster makes of bytes are writeable, as compiled loops require.
    pack = cloudpickle.dumps if _is_cluster(parallel._backend) else tuple
    answers = parallel(delayed(_answer)(pack(call)) for call in calls)
    try:
        for result, failure in answers:
            if failure is not None:
                raise failure
            yield result
    except Exception as error:
        if type(error).__name__ != "TerminatedWorkerError":
            raise
        raise RuntimeError(
            "a process of `n_jobs` was killed, most likely because the memory was "
            "full. Lower `n_jobs`, and call again."
        ) from error


def _answer(content) -> tuple[Any, Exception | None]:
    """Run a call on a worker; return its result, or its exception."""
    function, *arguments = (
        pickle.loads(content) if isinstance(content, bytes) else content
    )
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error


# ---- trainings in parts


def _parts(n_parts: int, training: Training) -> list[Training]:
    """Split the members of a training."""
    members = np.array_split(np.arange(training.n_members), n_parts)
    return [training.select(part) for part in members]


def train_on_cluster(n_workers: int, training: Training) -> Trained:
    """Train parts of the members on the workers of joblib's active backend."""
    calls = ((train, part) for part in _parts(n_workers, training))
    trained = list(results_of(workers(), calls))
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
        trained = train(replace(part.to(device, dtype), hooks=[_Stopped(stop)]))
        return replace(trained, posterior=trained.posterior.to(devices[0], dtype))

    parts = _parts(len(devices), training)
    futures: list[Future[Trained]] = []
    with ThreadPoolExecutor(len(devices)) as pool:
        try:
            for device, part in zip(devices, parts, strict=True):
                # With a copy of the context, which warnings depend on.
                run = copy_context().run
                futures.append(pool.submit(run, train_part, device, part))
            submitted.set()
            return Trained.concatenate(wait_for(futures))
        except KeyboardInterrupt:
            if not (training.config.keep_interrupted and len(futures) == len(parts)):
                raise
        finally:
            stop.set()
            submitted.set()
        trained = Trained.concatenate(wait_for(futures))
    return replace(trained, interrupted=True)


class _Stopped(Hook):
    """Hook that ends the training of a thread when an event is set."""

    every_epoch = False

    def __init__(self, event: threading.Event):
        self._event = event

    def epoch_end(self, n_done, posterior):
        """Raise KeyboardInterrupt if the event is set."""
        if self._event.is_set():
            raise KeyboardInterrupt
