"""Threads and memory that training and prediction may use."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# ---- threads of torch while several fits run

# torch has one number for the process, which a thread takes over at its first use of
# it, and from then on one for each thread. To set one sets both.
_lock = threading.Lock()
_in_use: list[int] = []
_before = 0
_of_thread = threading.local()


@contextmanager
def torch_threads(n: int | None) -> Iterator[None]:
    """So many threads; None leaves them as they are.

    Afterwards the calling thread has its own number again, and when the last of
    several users is done, the process has the one from before the first of them.
    """
    if n is None:
        yield
        return
    own = _enter(n)
    torch.set_num_threads(n)
    try:
        yield
    finally:
        _leave(n, own)


def _enter(n: int) -> int:
    """The number that the calling thread gets back.

    A thread that began while others were computing has taken over one of theirs.
    """
    global _before
    with _lock:
        own = torch.get_num_threads()
        nested = getattr(_of_thread, "depth", 0)
        _of_thread.depth = nested + 1
        if not _in_use:
            _before = own
        taken_over = not nested and own in _in_use
        _in_use.append(n)
        return _before if taken_over else own


def _leave(n: int, own: int) -> None:
    with _lock:
        _of_thread.depth -= 1
        _in_use.remove(n)
        torch.set_num_threads(own if _in_use else _before)


def _n_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Slots:
    """As many predictions at once as there are cores.

    More of them wait longer for Python's lock than they compute. Whoever has a slot
    must not wait for another one's.
    """

    def __init__(self):
        self.renew()
        if hasattr(os, "register_at_fork"):  # A child has none of the threads.
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self._free = threading.BoundedSemaphore(_n_cores())

    @contextmanager
    def one(self) -> Iterator[None]:
        """Until there is one, others are waited for."""
        free = self._free
        with free:
            yield


slots = _Slots()


# ---- memory of tensors and of training steps

# Just below 32 MiB, the largest block that teaches glibc to keep what is freed.
_LARGEST_KEPT_BLOCK = (32 << 20) - (1 << 16)


def keep_freed_memory() -> None:
    """Let the memory of one step be there for the next.

    glibc hands freed blocks of 128 KiB and more back to the system, and every step
    would pay for new pages, up to as much as for its arithmetic. Freeing one large
    block (it is never written to) raises that limit to its size, see
    ``M_MMAP_THRESHOLD`` in mallopt(3).
    """
    torch.empty(_LARGEST_KEPT_BLOCK, dtype=torch.uint8)


def tensor_of(values) -> torch.Tensor:
    """A tensor that shares the memory of an array, if it may be written to.

    Of what is read-only, as arrays are that joblib hands to its workers or that are
    mapped from a file, it is a copy: torch has no tensors that cannot be written to.
    """
    values = np.asarray(values)
    return torch.as_tensor(values if values.flags.writeable else values.copy())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was too little memory, on the CPU or on a GPU."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    words = "not enough memory", "can't allocate memory"
    return isinstance(error, RuntimeError) and any(w in str(error) for w in words)
