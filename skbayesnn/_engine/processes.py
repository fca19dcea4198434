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
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn

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
# Seconds in which the processes that are left answer after a failure.
_GRACE = 5.0
# Seconds between two looks whether another process was interrupted.
_LOOK = 2.0
# Time-out of the exchange after separate work, which may take any time. A process that
# ends is noticed at once.
_ANY_TIME = timedelta(days=365)
_HINT = (
    "All processes must call the same fits, in the same order. With warm_start=True, "
    "the estimator keeps the last finished epochs: save it, and continue in a new run."
)
# Rows of a batch are split at multiples of this number. A random word has four masks,
# and normal numbers are drawn in pairs.
_ROWS_PER_BLOCK = 4
# Rows of a batch times weights from which the rows are split. In a smaller step the sum
# of the gradients, some 0.4 ms, takes longer than what it saves.
MIN_PRODUCTS = 1 << 25


class ProcessError(Exception):
    """Base of the errors of :class:`Processes`.

    They concern the whole script, so that searches and stacks do not catch them.

    Attributes
    ----------
    code : str
        Section of ``docs/troubleshooting.md``, at the end of the message.
    """

    code: str

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"


class LostProcessError(ProcessError, ConnectionError):
    """Another process has ended, or the connection to it."""

    code = "SKB602"


class LateProcessError(ProcessError, TimeoutError):
    """Another process does not answer in time."""

    code = "SKB603"


class DifferentProcessError(ProcessError, ValueError):
    """Another process has different data or parameters."""

    code = "SKB604"


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
    LostProcessError, LateProcessError
        By every exchange: if a process has ended, or does not answer in time.
    """

    def __init__(self, store, rank: int, count: int, seconds: float):
        self.rank, self.count, self._seconds = rank, count, seconds
        self._store = store
        # The group of torch from which this one was made.
        self.world = dist.group.WORLD
        # Whether an interruption has ended the present training, in all processes.
        self.has_stopped = False
        self._interrupted, self._n_trainings, self._next_look = False, 0, 0.0
        self._patient_group = None
        timeout = timedelta(seconds=seconds)
        self._group, self._patient_group = (
            self._attempt(dist.new_group, backend="gloo", timeout=t)
            for t in (timeout, _ANY_TIME)
        )

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

    def gather(self, value, after_separate_work: bool = False) -> list:
        """The values of all processes, in their order.

        after_separate_work : whether other processes may be here much later
        """
        values: list[Any] = [None] * self.count
        group = self._patient_group if after_separate_work else self._group
        self._exchange(dist.all_gather_object, values, value, group=group)
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

    def check_same(self, name: str, text: str, values: np.ndarray) -> None:
        """Raise if another process has a different text or, up to rounding, values.

        Raises
        ------
        DifferentProcessError
            If they differ.
        """
        of_all = self.gather((text, values))
        first_text, first = of_all[0]
        for rank, (other_text, other) in enumerate(of_all):
            same = other_text == first_text and np.shape(other) == np.shape(first)
            if not same or not np.allclose(
                other, first, rtol=1e-3, atol=1e-6, equal_nan=True
            ):
                raise DifferentProcessError(
                    f"all processes must have the same {name}; process {rank} "
                    "has different ones from process 0. Every process loads the whole "
                    "table, and fit gives it a part of each batch. To fit different "
                    "models in different processes, set the environment variable "
                    f"{PROCESSES_VARIABLE}=alone."
                )

    def _exchange(self, function, *arguments, **options) -> None:
        self._attempt(function, *arguments, **{"group": self._group} | options)

    def _attempt(self, function, *arguments, **options):
        """Call a function of torch.distributed; raise if a process is lost."""
        start = time.monotonic()
        try:
            return function(*arguments, **options)
        except RuntimeError as error:
            _forget(self)
            raise self._failure(error, time.monotonic() - start) from error

    # ---- interruption

    @contextmanager
    def together_interrupted(self) -> Iterator[None]:
        """Context in which Ctrl-C and SIGTERM end the training of all processes.

        They only set ``wants_to_stop``: an exception in one process would leave the
        others waiting. At the end, the script's handler gets the signal that has not
        stopped the training, and SIGTERM in any case.
        """
        self._interrupted = self.has_stopped = False
        self._n_trainings += 1
        received = []

        def note(number, _) -> None:
            self._interrupted = True
            received.append(number)

        signals = signal.SIGINT, signal.SIGTERM
        earlier = [signal.signal(number, note) for number in signals]
        try:
            yield
        finally:
            for number, handler in zip(signals, earlier, strict=True):
                # None: a handler that Python has not set.
                signal.signal(number, handler or signal.SIG_DFL)
            for number in dict.fromkeys(received):
                if number == signal.SIGTERM or not self.has_stopped:
                    signal.raise_signal(number)

    @property
    def wants_to_stop(self) -> bool:
        """Whether this process was interrupted, or another one that has noted it."""
        now = time.monotonic()
        if not self._interrupted and now >= self._next_look:
            self._next_look = now + _LOOK
            with suppress(RuntimeError):  # The store has ended.
                self._interrupted = self._store.check([self._interruption])
        return self._interrupted

    @property
    def _interruption(self) -> str:
        """Key of the store that is set if the present training is interrupted."""
        return f"interrupted/{self._n_trainings}"

    def stop_training(self) -> NoReturn:
        """Raise KeyboardInterrupt, which ends the training in all processes."""
        self.has_stopped = True
        with suppress(RuntimeError):
            self._store.set(self._interruption, "yes")
        raise KeyboardInterrupt

    # ---- lost processes

    def close(self) -> None:
        """After an error in this process alone: end the waiting of the others."""
        _forget(self)
        with suppress(RuntimeError, ValueError):
            for group in (self._group, self._patient_group):
                dist.destroy_process_group(group)
        # The last references: the connections are closed.
        self._group = self._patient_group = None

    def _failure(self, error: Exception, seconds: float) -> OSError:
        """The error for an exchange that failed after some seconds.

        In process 0, torch gives the ranks of processes that do not answer.
        """
        grace = timedelta(seconds=min(_GRACE, self._seconds))
        try:
            dist.monitored_barrier(self._patient_group, grace, wait_all_ranks=True)
        except (RuntimeError, ValueError) as missing:
            error = missing
        if seconds < 0.9 * self._seconds:
            return LostProcessError(
                f"another process of this script was lost during a fit. {_HINT} "
                f"({error})"
            )
        return LateProcessError(
            f"another process of this script did not answer within {self._seconds:g} "
            f"s, the value of the environment variable {TIMEOUT_VARIABLE}. {_HINT} "
            f"({error})"
        )


# ---- the processes of this script

_present: Processes | None = None
_n_starts = 0
# A forked copy of this process is a worker, which has no part in its group.
_pid = os.getpid()


def present_processes() -> Processes | None:
    """The processes that train together, or None if this one trains alone.

    The first call connects to the other processes, and must be made by all.
    """
    global _present, _n_starts
    if threading.current_thread() is not threading.main_thread():
        return None
    if os.getpid() != _pid:
        return None
    if os.environ.get(PROCESSES_VARIABLE) == "alone" or not dist.is_available():
        return None
    world = dist.group.WORLD if dist.is_initialized() else None
    if _present is not None and _present.world is world:
        return _present
    if world is None:
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
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if has_nccl else "gloo"
    rank, count = os.environ["RANK"], os.environ["WORLD_SIZE"]
    start = time.monotonic()
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    except RuntimeError as error:
        error_type: type[ProcessError] = LostProcessError
        within = ""
        if time.monotonic() - start >= 0.9 * seconds:
            error_type = LateProcessError
            within = (
                f" within {seconds:g} s, the value of the environment variable "
                f"{TIMEOUT_VARIABLE}"
            )
        raise error_type(
            f"process {rank} could not connect to the other {int(count) - 1} "
            f"processes{within}. All processes must call fit. To train without them, "
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
