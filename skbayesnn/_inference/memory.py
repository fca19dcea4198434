"""Memory: that of arrays which become tensors, and of the steps of a training."""

import numpy as np
import torch

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
