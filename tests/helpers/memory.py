"""How much memory a computation takes, the same on every machine."""

import tracemalloc

import torch
from torch.overrides import TorchFunctionMode


class Largest(TorchFunctionMode):
    """Bytes of the largest tensor that a function of torch returns."""

    tensor = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor):
                actual = value.untyped_storage().nbytes()
                self.tensor = max(self.tensor, actual)
        return result


def memory_of(function):
    """Bytes of the largest tensor, and of all arrays at their peak."""
    tracemalloc.start()
    try:
        with Largest() as largest:
            function()
        _, array_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return largest.tensor, array_bytes
