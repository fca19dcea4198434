"""Calls on workers of joblib, and trainings in parts: on a cluster, or on devices.

A cluster (Dask, Ray) gets each large array once per round, not once per call. If a
worker of Dask or Ray is lost, the calls without a result are a new round. Networks do
not interact, so each has the result that it has in one program.
"""

import io
import pickle
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from itertools import chain
from typing import Any

import joblib
import numpy as np
import torch
from sklearn.utils.parallel import Parallel, delayed

from skbayesnn._engine.config import Hook
from skbayesnn._engine.training import Trained, Training, train
from skbayesnn._runtime import imported, wait_for, warn

try:
    from cloudpickle import CloudPickler  # type: ignore[import-untyped]
except ImportError:  # joblib before 1.6 contains it
    from joblib.externals.cloudpickle import CloudPickler

# Backends of joblib on this computer. Of these, loky shares large arrays.
_LOCAL = (
    joblib._parallel_backends.SequentialBackend,
    joblib._parallel_backends.ThreadingBackend,
    joblib._parallel_backends.MultiprocessingBackend,
    joblib._parallel_backends.LokyBackend,
)
# Arrays of at least this many bytes are sent separately.
_LARGE = 1 << 16
# Workers that may be lost without a result in between.
_MAX_LOSSES = 3
# Names of exceptions for lost workers: of Dask, of futures, and of Ray.
_LOST = {
    "KilledWorker",
    "CancelledError",
    "NodeDiedError",
    "ObjectLostError",
    "RayActorError",
    "WorkerCrashedError",
}


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


class Workers:
    """Runs calls on the workers of an executor of joblib.

    Parameters
    ----------
    parallel : Parallel
        It yields the results in order, or lists them.
    """

    def __init__(self, parallel: Parallel):
        self._parallel, self._backend = parallel, parallel._backend

    @classmethod
    def of_backend(cls, **options) -> "Workers":
        """Workers of joblib's active backend, which return each result when computed.

        options : of ``Parallel``
        """
        try:
            return cls(Parallel(return_as="generator", **options))
        except ValueError:  # The backend cannot return results one at a time.
            return cls(Parallel(**options))

    def results(self, calls: Iterable[tuple]) -> Iterator[Any]:
        """Results of calls, in their order.

        calls : tuples of a function and its arguments

        Raises
        ------
        Exception
            The first exception of a call.
        """
        sender, calls = _Sender(self._backend), iter(calls)
        sent: deque[tuple] = deque()

        def outgoing(again: list[tuple]):
            for call in chain(again, calls):
                sent.append(call)
                yield delayed(_answer)(*sender.packed(call))

        n_losses, failure = 0, None
        while failure is None:
            again = list(sent)
            sent.clear()
            try:
                for result, failure in self._parallel(outgoing(again)):
                    if failure is not None:
                        break
                    sent.popleft()
                    n_losses = 0
                    yield result
                else:
                    return
            except Exception as error:  # of joblib: calls return their exceptions
                n_losses += 1
                if type(error).__name__ == "TerminatedWorkerError":
                    raise RuntimeError(
                        "a process of `n_jobs` was killed, most likely because the "
                        "memory was full. Lower `n_jobs`, and call again."
                    ) from error
                if not (sent and self._is_lost_worker(error)) or n_losses > _MAX_LOSSES:
                    raise
                reason = str(error).partition("\n")[0]
                warn(
                    "SKB504",
                    f"a worker was lost ({type(error).__name__}: {reason}); its tasks "
                    "run again on the others.",
                )
                sender = _Sender(self._backend)
        raise failure

    def _is_lost_worker(self, error: Exception) -> bool:
        """Whether an error of joblib means that a worker of a cluster has ended."""
        names = {kind.__name__ for kind in type(error).__mro__}
        return _is_cluster(self._backend) and bool(names & _LOST)


def _answer(content, *arrays) -> tuple[Any, Exception | None]:
    """Run a call on a worker; return its result, or its exception.

    content : the call, or its pickle without ``arrays``
    """
    if isinstance(content, bytes):
        content = _Unpickler(io.BytesIO(content), arrays).load()
    function, *arguments = content
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error


class _Sender:
    """Packs calls for workers.

    Parameters
    ----------
    backend : ParallelBackendBase
        Backend of joblib; a cluster gets large arrays once.
    """

    def __init__(self, backend):
        self._is_remote = _is_cluster(backend)
        self._is_ray = type(backend).__module__.startswith("ray.")
        # By id, with the object itself, so that its id is not reused.
        self._arrays: dict[int, tuple[Any, Any]] = {}

    def packed(self, call: tuple) -> tuple:
        """Arguments of ``_answer``."""
        if not self._is_remote:
            return (call,)
        file = io.BytesIO()
        pickler = _Pickler(file, self)
        pickler.dump(call)
        return file.getvalue(), *pickler.arrays

    def shared(self, value) -> Any:
        """What stands for an array: the same object in all calls.

        joblib's backend for Dask scatters the arguments of a call once per object.
        """
        if id(value) not in self._arrays:
            array = value.numpy() if isinstance(value, torch.Tensor) else value
            # Ray shares what is put into its store.
            array = imported("ray").put(array) if self._is_ray else array
            self._arrays[id(value)] = value, array
        return self._arrays[id(value)][1]


class _Pickler(CloudPickler):
    """Pickler that leaves out large arrays and tensors."""

    def __init__(self, file, sender: _Sender):
        super().__init__(file)
        self.arrays: list[Any] = []
        self._sender, self._index = sender, dict[int, int]()

    def persistent_id(self, value):
        """Position of an array, and its kind; None for values to be pickled."""
        is_tensor = type(value) is torch.Tensor
        if is_tensor:
            if value.device.type != "cpu" or value.requires_grad:
                return None
        elif type(value) is not np.ndarray or value.dtype.hasobject:
            return None
        if value.nbytes < _LARGE:
            return None
        if id(value) not in self._index:
            self._index[id(value)] = len(self.arrays)
            self.arrays.append(self._sender.shared(value))
        return self._index[id(value)], is_tensor


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, arrays):
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, key):
        """The array that ``_Pickler.persistent_id`` left out."""
        index, is_tensor = key
        array = self._arrays[index]
        if not isinstance(array, np.ndarray):
            array = imported("ray").get(array)
        if not array.flags.writeable:  # Loops are compiled for arrays that can be.
            array = array.copy()
        return torch.from_numpy(array) if is_tensor else array


# ---- trainings in parts


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
