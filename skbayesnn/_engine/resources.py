"""Threads and memory that training and prediction may use."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# ---- threads of torch while several fits run

# torch has one number of threads per process, which a Python thread copies at its first
# use of torch, and then one per Python thread. Setting it sets both.
_lock = threading.Lock()
_numbers_in_use: list[int] = []
_process_number = 0
_last_number = 0  # Of the last user, who may have left.
_thread_local = threading.local()


@contextmanager
def torch_threads(n: int | None) -> Iterator[None]:
    """Use ``n`` threads of torch; None changes nothing.

    On exit the calling thread's number is restored. When the last of several users
    exits, the number of the process before the first of them is restored.
    """
    if n is None:
        yield
        return
    previous = _enter(n)
    torch.set_num_threads(n)
    try:
        yield
    finally:
        _leave(n, previous)


def _enter(n: int) -> int:
    """Return the number of threads to restore in the calling thread.

    A thread that started while others were computing has copied one of their numbers.
    Torch copies it outside of the lock, so the others may have left since.
    """
    global _process_number, _last_number
    with _lock:
        previous = torch.get_num_threads()
        is_new = not hasattr(_thread_local, "depth")
        nested = getattr(_thread_local, "depth", 0)
        _thread_local.depth = nested + 1
        in_use = [*_numbers_in_use, _last_number] if is_new else _numbers_in_use
        is_copied = not nested and previous in in_use
        if not (_numbers_in_use or is_copied):
            _process_number = previous
        _numbers_in_use.append(n)
        _last_number = n
        return _process_number if is_copied else previous


def _leave(n: int, previous: int) -> None:
    with _lock:
        _thread_local.depth -= 1
        _numbers_in_use.remove(n)
        torch.set_num_threads(previous if _numbers_in_use else _process_number)


def _n_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _PredictionSlots:
    """Limit concurrent predictions to one per core.

    With more of them, threads wait longer for Python's lock than they compute. A thread
    that holds a slot must not wait for a thread that needs one.
    """

    def __init__(self):
        self._renew()

    def _renew(self) -> None:
        self._free, self._pid = threading.BoundedSemaphore(_n_cores()), os.getpid()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait for a free slot and hold it."""
        if self._pid != os.getpid():  # A forked child has none of the threads.
            self._renew()
        free = self._free
        with free:
            yield


prediction_slots = _PredictionSlots()


# ---- memory of tensors and of training steps

# Just below 32 MiB, the largest block that raises glibc's limit.
_MAX_KEPT_BLOCK = (32 << 20) - (1 << 16)


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next step.

    glibc returns freed blocks of 128 KiB and more to the system. Every step would then
    pay for new pages, which can take as long as its arithmetic. Freeing one large block
    (it is never written to) raises that limit to its size; see ``M_MMAP_THRESHOLD`` in
    mallopt(3).
    """
    torch.empty(_MAX_KEPT_BLOCK, dtype=torch.uint8)


def as_tensor(values) -> torch.Tensor:
    """Convert to a tensor, which shares the memory of a writeable array.

    Read-only arrays are copied, since torch has no read-only tensors. Arrays that
    joblib passes to its workers or that are mapped from a file are read-only.
    """
    values = np.asarray(values)
    return torch.as_tensor(values if values.flags.writeable else values.copy())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error is a lack of memory, on the CPU or on a GPU."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    messages = "not enough memory", "can't allocate memory"
    return isinstance(error, RuntimeError) and any(w in str(error) for w in messages)
