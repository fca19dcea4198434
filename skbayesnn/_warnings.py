"""Warnings that point at the user's line."""

import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import ParamSpec, TypeVar

import joblib
import sklearn

P = ParamSpec("P")
R = TypeVar("R")

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
