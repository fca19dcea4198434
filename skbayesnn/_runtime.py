"""Global settings, warnings, and atomic updates of fitted attributes.

A fit leaves the settings of NumPy, torch and warnings as they were. Warnings point at
the user's line. Fitted attributes are replaced in one assignment: while one thread fits
an estimator again, other threads can predict with it or pickle it, and see either the
old fit or the new one.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, ParamSpec, TypeVar

import joblib
import numpy as np
import sklearn
import torch

P = ParamSpec("P")
R = TypeVar("R")

# ---- warnings that point at the user's line

# Code between the user's line and a warning: this package, and what calls it.
_FOLDERS = tuple(
    f"{Path(file).parent.as_posix()}/"
    for file in (__file__, joblib.__file__, sklearn.__file__)
)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """``warnings.warn`` at the innermost line outside of this package.

    How many frames lie between differs between versions of scikit-learn, so that no
    fixed ``stacklevel`` is right.
    """
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_between(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# What was warned about within the outermost call; None outside of any.
_warned: ContextVar[set[str] | None] = ContextVar("_warned", default=None)


def one_call(function: Callable[P, R]) -> Callable[P, R]:
    """A function within which ``warn_once`` warns once.

    Calls of other such functions inside of it are part of it.
    """

    @wraps(function)
    def with_memory(*args: P.args, **kwargs: P.kwargs) -> R:
        if _warned.get() is not None:
            return function(*args, **kwargs)
        token = _warned.set(set())
        try:
            return function(*args, **kwargs)
        finally:
            _warned.reset(token)

    return with_memory


def warn_once(subject: str, message: str) -> None:
    """``warn``, unless the present call has warned about the subject already.

    One call may fit or open many networks, of which each would warn.
    """
    warned = _warned.get()
    if warned is None or subject not in warned:
        warn_no_more(subject)
        warn(message)


def warn_no_more(subject: str) -> None:
    """Silence ``warn_once`` about the subject for the rest of the present call."""
    warned = _warned.get()
    if warned is not None:
        warned.add(subject)


def _is_between(filename: str) -> bool:
    return Path(filename).as_posix().startswith(_FOLDERS)


# ---- settings of NumPy, torch and warnings


# torch computes on these, and may lower the precision of each by itself.
_DEVICES = ("cpu", "cuda", "mps")


def default_settings(function: Callable[P, R]) -> Callable[P, R]:
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


# ---- atomic updates of fitted attributes


def snapshot(estimator):
    """The estimator as it is now, with attributes of its own."""
    twin = object.__new__(type(estimator))
    vars(twin).update(vars(estimator))
    return twin


def on_snapshot(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method on a snapshot of the fitted attributes, with default settings.

    Fits of other threads and the caller's settings of NumPy and torch have no effect.
    """

    @default_settings
    @wraps(method)
    def of_one_fit(*args: P.args, **kwargs: P.kwargs) -> R:
        estimator, *others = args
        return method(snapshot(estimator), *others, **kwargs)  # type: ignore[arg-type]

    return of_one_fit


@contextmanager
def atomic_update(estimator) -> Iterator[Any]:
    """A copy to be fitted, whose changes the estimator gets at the end.

    After an error the estimator is as it was.
    """
    twin = snapshot(estimator)
    before = dict(vars(twin))
    yield twin
    after = vars(twin)
    changed = {n: v for n, v in after.items() if n not in before or before[n] is not v}
    _replace(estimator, before.keys() - after.keys(), changed)


def replace_fitted(estimator, fitted: Mapping[str, Any]) -> None:
    """Fitted attributes in the place of those of an earlier fit."""
    earlier = {name for name in vars(estimator) if name.endswith("_")}
    _replace(estimator, earlier, fitted)


def _replace(estimator, removed, changed: Mapping[str, Any]) -> None:
    kept = {n: v for n, v in vars(estimator).items() if n not in removed}
    estimator.__dict__ = kept | dict(changed)
