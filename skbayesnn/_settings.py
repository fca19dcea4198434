"""What a caller has set of NumPy, torch and warnings, and what is used here."""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import ParamSpec, TypeVar

import numpy as np
import torch

from skbayesnn._warnings import one_call

P = ParamSpec("P")
R = TypeVar("R")

# torch computes on these, and may lower the precision of each by itself.
_DEVICES = ("cpu", "cuda", "mps")


def undisturbed(function: Callable[P, R]) -> Callable[P, R]:
    """A function that does not see what its caller has set.

    NumPy answers to errors as it does by itself: a probability that underflows is zero,
    and no error. torch has no autocast, in half of whose precision predictions would be
    others, and puts new tensors on the CPU unless they are meant for a device. What all
    its networks would warn about is said once.
    """

    @wraps(function)
    def with_own_settings(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            lowered = [d for d in _DEVICES if torch.is_autocast_enabled(d)]
            # A mode of torch costs at every call: only where it is needed.
            if not lowered and torch.empty(0).device.type == "cpu":
                return function(*args, **kwargs)
            with ExitStack() as stack:
                stack.enter_context(torch.device("cpu"))
                for device in lowered:
                    stack.enter_context(torch.autocast(device, enabled=False))
                return function(*args, **kwargs)

    return one_call(with_own_settings)


def imported(name: str) -> ModuleType:
    """A module, whose import leaves the caller's warning filters as they are."""
    with warnings.catch_warnings():
        return import_module(name)
