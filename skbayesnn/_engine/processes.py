"""Processes that train a model together, started by torchrun or a similar launcher.

Every process runs the same script on the same data. Programs with at least as many
members as processes are split by members, which needs no communication during the
training. In other programs each process computes the gradient of a part of the rows of
every batch, and the gradients are summed in every step. The random numbers of a row do
not depend on the process, so the result is the one of a single process, up to rounding.

Only the main thread of a script takes part. Workers of joblib and fits in other threads
train alone.
"""

import atexit
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

# Environment variable: "alone" makes every process train for itself.
PROCESSES_VARIABLE = "SKBAYESNN_PROCESSES"
# Environment variable: seconds for which a process waits for the others.
TIMEOUT_VARIABLE = "SKBAYESNN_TIMEOUT"
_TIMEOUT = 600.0
# Variables that torchrun sets.
_VARIABLES = "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"
# Seconds in which the processes that are left report after a failure.
_GRACE = 5.0
# Seconds between two signs of life of a process that works for itself.
_BEAT = 2.0
_HINT = (
    "All processes must call the same fits, in the same order. With warm_start=True, "
    "the estimator keeps the last finished epochs."
)
# Rows of a batch are split at multiples of this number. A random word has four masks,
# and normal numbers are drawn in pairs.
_ROWS_PER_BLOCK = 4
# Rows of a batch times weights from which the rows are split. In a smaller step the sum
# of the gradients, some 0.4 ms, takes longer than what it saves.
MIN_PRODUCTS = 1 << 23


class Processes:
    """The processes of a script, and the exchange between them.

    Every method that exchanges values must be called by all processes, in the same
    order.

    Parameters
    ----------
    store : torch.distributed.Store
        Shared by the processes.
    rank, count : int
        Number of this process, from 0, and number of all.
    seconds : float
        Time-out of every exchange.

    Raises
    ------
    ConnectionError, TimeoutError
        By every exchange: if a process has ended, or does not answer in time.
    """

    def __init__(self, store, rank: int, count: int, seconds: float):
        self.rank, self.count, self._seconds = rank, count, seconds
        self._store = store
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=seconds))
        self._interrupted, self._n_waits = False, 0
        self._names = self.gather(f"{socket.gethostname()}, pid {os.getpid()}")

    # ---- the part of this process

    def part_of(self, n: int) -> np.ndarray:
        """The own part of ``range(n)``; the parts differ by at most one in size."""
        return np.array_split(np.arange(n), self.count)[self.rank]

    def rows_of(self, n_rows: int) -> tuple[int, int]:
        """First row of the own part of a batch, and the row after the last."""
        n_blocks = -(-n_rows // _ROWS_PER_BLOCK)
        bounds = [
            min(n_blocks * rank // self.count * _ROWS_PER_BLOCK, n_rows)
            for rank in (self.rank, self.rank + 1)
        ]
        return bounds[0], bounds[1]

    def can_split(self, n_rows: int, n_weights: int) -> bool:
        """Whether a batch is large enough for its rows to be split.

        n_rows, n_weights : rows of a batch, and weights of a network
        """
        large = n_rows * n_weights >= MIN_PRODUCTS
        return large and n_rows >= _ROWS_PER_BLOCK * self.count

    # ---- exchange

    def sum(self, values: torch.Tensor) -> None:
        """Replace values by their sum over all processes."""
        if values.device.type == "cpu":
            self._exchange(dist.all_reduce, values)
        elif "nccl" in dist.get_backend():
            self._exchange(dist.all_reduce, values, group=None)
        else:
            on_cpu = values.cpu()
            self._exchange(dist.all_reduce, on_cpu)
            values.copy_(on_cpu)

    def gather(self, value) -> list:
        """The values of all processes, in their order."""
        values: list[Any] = [None] * self.count
        self._exchange(dist.all_gather_object, values, value)
        return values

    def of_first(self, value):
        """The value of the first process; the value of the others is ignored."""
        values = [value]
        self._exchange(dist.broadcast_object_list, values)
        return values[0]

    def copy_first(self, *tensors: torch.Tensor) -> None:
        """Overwrite tensors by the tensors of the first process."""
        on_cpu = [tensor.cpu() for tensor in tensors] if self.rank == 0 else None
        for tensor, values in zip(tensors, self.of_first(on_cpu), strict=True):
            tensor.copy_(values)

    def check_same(self, name: str, values: np.ndarray) -> None:
        """Raise if another process has other values, up to rounding.

        Raises
        ------
        ValueError
            If the values differ.
        """
        of_all = self.gather(values)
        for rank, other in enumerate(of_all):
            if np.shape(other) != np.shape(of_all[0]) or not np.allclose(
                other, of_all[0], rtol=1e-3, atol=1e-6, equal_nan=True
            ):
                raise ValueError(
                    f"all processes must have the same {name}; process {rank} "
                    f"({self._names[rank]}) has others than process 0. Every process "
                    "loads the whole table, and fit gives it a part of each batch. To "
                    "fit different models in different processes, set the environment "
                    f"variable {PROCESSES_VARIABLE}=alone."
                )

    def _exchange(self, function, *arguments, **options) -> None:
        start = time.monotonic()
        try:
            function(*arguments, **{"group": self._group} | options)
        except RuntimeError as error:
            _forget(self)
            raise self._lost(error, time.monotonic() - start) from error

    # ---- separate work

    @contextmanager
    def separate_work(self) -> Iterator[None]:
        """Context of work without exchanges; it ends when all processes are done.

        The work may take any time, and longer in one process than in another: while it
        lasts, a thread shows that the process is alive.
        """
        stop = threading.Event()
        beats = threading.Thread(target=self._beat, args=(stop,), daemon=True)
        beats.start()
        try:
            yield
            self._wait_for_all()
        finally:
            stop.set()
            beats.join()

    def _beat(self, stop: threading.Event) -> None:
        """Count in the store until ``stop`` is set."""
        n = 0
        with suppress(RuntimeError):  # The store has ended.
            while not stop.wait(min(_BEAT, self._seconds / 4)):
                n += 1
                self._store.set(f"beat/{self.rank}", str(n))

    def _wait_for_all(self) -> None:
        """Wait until all processes are here.

        Raises
        ------
        TimeoutError
            If one of the others is neither here nor alive.
        """
        self._n_waits += 1
        self._store.set(f"done/{self._n_waits}/{self.rank}", "yes")
        start = time.monotonic()
        seen = {rank: (b"", start) for rank in range(self.count) if rank != self.rank}
        while seen:
            for rank, (last, since) in list(seen.items()):
                if self._store.check([f"done/{self._n_waits}/{rank}"]):
                    del seen[rank]
                    continue
                key = f"beat/{rank}"
                beat = self._store.get(key) if self._store.check([key]) else b""
                if beat != last:
                    seen[rank] = beat, time.monotonic()
                elif time.monotonic() - since > self._seconds:
                    _forget(self)
                    raise self._late([rank], "no sign of life")
            time.sleep(0.01)

    # ---- interruption

    @contextmanager
    def together_interrupted(self) -> Iterator[None]:
        """Context in which Ctrl-C and SIGTERM end the training of all processes.

        They only set ``wants_to_stop``: an exception in one process would leave the
        others waiting.
        """
        self._interrupted = False

        def note(*_) -> None:
            self._interrupted = True

        signals = signal.SIGINT, signal.SIGTERM
        earlier = [signal.signal(number, note) for number in signals]
        try:
            yield
        finally:
            for number, handler in zip(signals, earlier, strict=True):
                signal.signal(number, handler)

    @property
    def wants_to_stop(self) -> bool:
        """Whether this process was interrupted."""
        return self._interrupted

    # ---- lost processes

    def _lost(self, error: RuntimeError, seconds: float) -> OSError:
        """The error for an exchange that failed; it names the lost processes."""
        missing = self._missing()
        if not missing:
            return ConnectionError(
                f"the connection between the {self.count} processes of this script was "
                f"lost. {_HINT} ({error})"
            )
        if seconds >= 0.9 * self._seconds:
            return self._late(missing, error)
        return ConnectionError(
            f"{self._named(missing)} was lost during a fit. {_HINT} ({error})"
        )

    def _late(self, ranks: list[int], reason) -> TimeoutError:
        """The error for processes that do not answer."""
        return TimeoutError(
            f"{self._named(ranks)} did not answer within {self._seconds:g} s, the "
            f"value of the environment variable {TIMEOUT_VARIABLE}. {_HINT} ({reason})"
        )

    def _named(self, ranks: list[int]) -> str:
        return ", ".join(f"process {rank} ({self._names[rank]})" for rank in ranks)

    def _missing(self) -> list[int]:
        """The processes that do not report after a failure."""
        missing = [rank for rank in range(self.count) if rank != self.rank]
        try:
            self._store.set(f"left/{self.rank}", "yes")
            end = time.monotonic() + min(_GRACE, self._seconds)
            while missing and time.monotonic() < end:
                missing = [r for r in missing if not self._store.check([f"left/{r}"])]
                time.sleep(0.05)
        except RuntimeError:  # The first process has ended, and the store with it.
            return [0] if self.rank else missing
        return missing


# ---- the processes of this script

_present: Processes | None = None
_n_starts = 0


def present_processes() -> Processes | None:
    """The processes that train together, or None if this one trains alone.

    The first call connects to the other processes, and must be made by all.
    """
    global _present, _n_starts
    if threading.current_thread() is not threading.main_thread():
        return None
    if os.environ.get(PROCESSES_VARIABLE) == "alone" or not dist.is_available():
        return None
    if _present is not None and dist.is_initialized():
        return _present
    if not dist.is_initialized():
        if multiprocessing.parent_process() is not None:  # a worker of joblib
            return None
        if not all(os.environ.get(name) for name in _VARIABLES):
            return None
        if int(os.environ["WORLD_SIZE"]) == 1:
            return None
        _connect(_seconds())
    if dist.get_world_size() == 1:
        return None
    _n_starts += 1
    store = dist.PrefixStore(
        f"skbayesnn/{_n_starts}", dist.distributed_c10d._get_default_store()
    )
    _present = Processes(store, dist.get_rank(), dist.get_world_size(), _seconds())
    return _present


def leave_processes() -> None:
    """Forget the other processes, and close the connections."""
    global _present
    _present = None
    if dist.is_initialized():
        dist.destroy_process_group()


def _forget(processes: Processes) -> None:
    """After a failure, the next fit has to connect again."""
    global _present
    if _present is processes:
        _present = None


def _connect(seconds: float) -> None:
    """Start torch's process group from the environment."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    rank, count = os.environ["RANK"], os.environ["WORLD_SIZE"]
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    except RuntimeError as error:
        raise TimeoutError(
            f"process {rank} could not connect to the other {int(count) - 1} processes "
            f"within {seconds:g} s, the value of the environment variable "
            f"{TIMEOUT_VARIABLE}. All processes must call fit. To train without them, "
            f"set {PROCESSES_VARIABLE}=alone. ({error})"
        ) from error
    # Threads of torch abort a process that ends without this.
    atexit.register(leave_processes)


def _seconds() -> float:
    """The time-out.

    Raises
    ------
    ValueError
        If the environment variable is not a positive number.
    """
    value = os.environ.get(TIMEOUT_VARIABLE) or _TIMEOUT
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(
            f"the environment variable {TIMEOUT_VARIABLE} must be a positive number of "
            f"seconds; got {value!r}."
        )
    return seconds
