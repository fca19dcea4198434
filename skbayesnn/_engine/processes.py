"""Processes that train a model together, started by torchrun or a similar launcher.

Every process runs the same script on the same data. Programs with at least as many
members as processes are split by members, which needs no communication during the
training. Other programs are trained by every process, and all get the result of the
first.

Only the main thread of a script takes part. Workers of joblib and fits in other threads
train alone.
"""

import atexit
import multiprocessing
import os
import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed as dist

# Environment variable: "alone" makes every process train for itself.
PROCESSES_VARIABLE = "SKBAYESNN_PROCESSES"
# Environment variable: seconds for which a process waits for the others.
TIMEOUT_VARIABLE = "SKBAYESNN_TIMEOUT"
_TIMEOUT = 600.0
# Variables that torchrun sets.
_VARIABLES = "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"
_ANY_TIME = timedelta(days=365)
_HINT = (
    "All processes must call the same fits, in the same order, or train alone, with "
    f"{PROCESSES_VARIABLE}=alone. With `checkpoint`, the last finished epochs are in "
    "its file, and the script can continue."
)


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
    rank, count : int
        Number of this process, from 0, and number of all.
    seconds : float
        Time-out of every exchange.

    Raises
    ------
    LostProcessError, LateProcessError
        By every exchange: if a process has ended, or does not answer in time.
    """

    def __init__(self, rank: int, count: int, seconds: float):
        self.rank, self.count, self._seconds = rank, count, seconds
        # The group of torch from which this one was made.
        self.world = dist.group.WORLD
        # All processes are here, with the time-out of that group.
        _attempt("start", seconds, dist.barrier)
        # Its time-out is for the exchange after separate work, which may take any time.
        # A process that ends is noticed at once.
        self._group = _attempt(
            "start", seconds, dist.new_group, backend="gloo", timeout=_ANY_TIME
        )

    # ---- the part of this process

    def part_of(self, n: int) -> np.ndarray:
        """The own part of ``range(n)``; the parts differ by at most one in size."""
        return np.array_split(np.arange(n), self.count)[self.rank]

    # ---- exchange

    def gather(self, value, after_separate_work: bool = False) -> list:
        """The values of all processes, in their order.

        after_separate_work : whether other processes may be here much later
        """
        values: list[Any] = [None] * self.count
        if not after_separate_work:
            self._wait()
        self._attempt(dist.all_gather_object, values, value, group=self._group)
        return values

    def of_first(self, value):
        """The value of the first process; the value of the others is ignored."""
        values = [value]
        self._wait()
        self._attempt(dist.broadcast_object_list, values, group=self._group)
        return values[0]

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
                    "table, and fit gives it a part of the networks. To fit different "
                    "models in different processes, set the environment variable "
                    f"{PROCESSES_VARIABLE}=alone."
                )

    def _wait(self) -> None:
        """Wait for the other processes, up to the time-out."""
        timeout = timedelta(seconds=self._seconds)
        # In process 0, the error has the ranks of processes that do not answer.
        self._attempt(dist.monitored_barrier, self._group, timeout, wait_all_ranks=True)

    def _attempt(self, function, *arguments, **options) -> None:
        """Call a function of torch.distributed; raise if a process is lost."""
        try:
            _attempt("answer", self._seconds, function, *arguments, **options)
        except ProcessError:
            _forget(self)
            raise


def _attempt(verb: str, seconds: float, function, *arguments, **options):
    """Call a function of torch.distributed; raise if a process is lost or late.

    verb : what another process has not done
    seconds : time-out
    """
    start = time.monotonic()
    try:
        return function(*arguments, **options)
    except RuntimeError as error:
        if time.monotonic() - start < 0.9 * seconds:
            raise LostProcessError(
                f"another process of this script was lost during a fit. {_HINT} "
                f"({error})"
            ) from error
        raise LateProcessError(
            f"another process of this script did not {verb} within {seconds:g} s, the "
            f"value of the environment variable {TIMEOUT_VARIABLE}. {_HINT} ({error})"
        ) from error


# ---- the processes of this script

_present: Processes | None = None
# A forked copy of this process is a worker, which has no part in its group.
_pid = os.getpid()


def present_processes() -> Processes | None:
    """The processes that train together, or None if this one trains alone.

    The first call connects to the other processes, and must be made by all.
    """
    global _present
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
    _present = Processes(dist.get_rank(), dist.get_world_size(), _seconds())
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
    timeout = timedelta(seconds=seconds)
    _attempt("start", seconds, dist.init_process_group, "gloo", timeout=timeout)
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
