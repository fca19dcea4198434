"""Global settings, warnings, threads, and atomic updates of attributes and files.

A fit does not change the settings of NumPy, torch and warnings. Warnings point at the
user's line. Fitted attributes are replaced in one assignment: while one thread refits
an estimator, other threads can predict with it or pickle it, and use either the old fit
or the new one.
"""

import glob
import os
import secrets
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import joblib
import numpy as np
import sklearn
import torch

P = ParamSpec("P")
R = TypeVar("R")

# ---- warnings that point at the user's line

# Folders of the code between the user's line and a warning.
_FOLDERS = tuple(
    f"{Path(file).parent.as_posix()}/"
    for file in (__file__, joblib.__file__, sklearn.__file__)
)


def warn(code: str, message: str, category: type[Warning] = UserWarning) -> None:
    """``warnings.warn`` at the innermost line outside of this package.

    The number of frames in between depends on the version of scikit-learn, so a fixed
    ``stacklevel`` would be wrong.

    code : section of ``docs/troubleshooting.md``, at the end of the message
    """
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_between(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{message} [{code}]", category, stacklevel=level)


# Subjects of the warnings within the outermost call; None outside of a call.
_warned: ContextVar[set[str] | None] = ContextVar("_warned", default=None)


def warn_once_per_call(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function within which ``warn_once`` warns once per subject.

    Nested calls of decorated functions belong to the outermost call.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if _warned.get() is not None:
            return function(*args, **kwargs)
        token = _warned.set(set())
        try:
            return function(*args, **kwargs)
        finally:
            _warned.reset(token)

    return wrapper


def warn_once(code: str, subject: str, message: str) -> None:
    """``warn``, unless the present call has already warned about the subject.

    One call may fit or use many networks, each of which would warn.
    """
    warned = _warned.get()
    if warned is None or subject not in warned:
        silence_warning(subject)
        warn(code, message)


# Of each estimator, the subjects of which ``warn_of_rows`` has warned since its fit;
# one set for an estimator and its snapshots.
_reported: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def warn_of_rows(estimator, code: str, subject: str, message: str) -> None:
    """Warn about rows to be predicted, once per fitted estimator and subject.

    A service would fill its log otherwise. With a filter "always" or "error", every
    call warns.
    """
    if subject in (_warned.get() or ()):
        return
    if _filter_action(message) not in ("always", "all", "error", "ignore"):
        reported = _reported.setdefault(estimator, set())
        if subject in reported:
            return
        reported.add(subject)
    warn_once(code, subject, message)


def _filter_action(message: str) -> str:
    """What the filters do with a warning; filters for a module or line are ignored."""
    for action, text, category, module, line in warnings.filters:
        is_general = module is None and not line and issubclass(UserWarning, category)
        if is_general and (text is None or text.match(message)):
            return action
    return "default"


def silence_warning(*subjects: str) -> None:
    """Silence ``warn_once`` about the subjects for the rest of the present call."""
    warned = _warned.get()
    if warned is not None:
        warned.update(subjects)


@contextmanager
def silenced(subject: str) -> Iterator[None]:
    """Silence ``warn_once`` about the subject within a block."""
    warned = _warned.get()
    is_new = warned is not None and subject not in warned
    silence_warning(subject)
    try:
        yield
    finally:
        if is_new and warned is not None:
            warned.discard(subject)


def _is_between(filename: str) -> bool:
    return Path(filename).as_posix().startswith(_FOLDERS)


# ---- settings of NumPy, torch and warnings


# Device types for which torch has autocast.
_DEVICES = ("cpu", "cuda", "mps")


def default_settings(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run with the default settings of NumPy and torch.

    With NumPy's default error state, a probability that underflows is zero and not an
    error. Autocast of torch is disabled, since its half precision would change
    predictions. New tensors are on the CPU unless a device is given. Warnings about the
    same subject are given once.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            autocast_devices = [d for d in _DEVICES if torch.is_autocast_enabled(d)]
            # A torch mode slows down every call, so it is entered only if necessary.
            if not autocast_devices and torch.empty(0).device.type == "cpu":
                return function(*args, **kwargs)
            with ExitStack() as stack:
                stack.enter_context(torch.device("cpu"))
                for device in autocast_devices:
                    stack.enter_context(torch.autocast(device, enabled=False))
                return function(*args, **kwargs)

    return warn_once_per_call(wrapper)


def imported(name: str) -> ModuleType:
    """Import a module without changing the caller's warning filters."""
    with warnings.catch_warnings():
        return import_module(name)


def required(name: str, user: str, command: str) -> ModuleType:
    """Import a module of another package, or raise with the command that installs it.

    user : what needs the package, with the verb
    """
    try:
        return imported(name)
    except ImportError as error:
        package = name.partition(".")[0]
        message = f"{user} {package}, which is not installed: {command}"
        raise ImportError(message) from error


# ---- threads

# Seconds between two looks for Ctrl-C.
_PATIENCE = 0.5


def wait_for(futures: Sequence[Future[R]]) -> list[R]:
    """Wait for futures; return their results, or raise the first exception.

    Ctrl-C ends the wait within half a second. A wait without a limit does not see a
    signal that arrives just before it, or in another thread.
    """
    waiting = set(futures)
    while waiting:
        _, waiting = wait(waiting, _PATIENCE, FIRST_EXCEPTION)
        for future in futures:
            if future.done() and (error := future.exception()) is not None:
                raise error
    return [future.result() for future in futures]


def on_threads(
    calls: Sequence[Callable[[], R]],
    n_threads: int,
    stop: threading.Event | None = None,
) -> list[R]:
    """Results of calls on at most ``n_threads`` threads, in the order of the calls.

    The threads have the settings of NumPy and of warnings of the calling one. After an
    exception, calls that have not started are left out. A single thread is the calling
    one.

    stop : set after an exception, for calls that have started
    """
    n_threads = min(n_threads, len(calls))
    if n_threads <= 1:
        return [call() for call in calls]
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            futures = [pool.submit(copy_context().run, call) for call in calls]
            return wait_for(futures)
        except BaseException:
            if stop is not None:
                stop.set()
            pool.shutdown(cancel_futures=True)
            raise


# ---- atomic updates of fitted attributes


def snapshot(estimator):
    """A shallow copy of the estimator with its present attributes."""
    copy = object.__new__(type(estimator))
    vars(copy).update(vars(estimator))
    _reported[copy] = _reported.setdefault(estimator, set())
    return copy


def on_snapshot(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method on a snapshot of the fitted attributes, with default settings.

    Fits in other threads and the caller's settings of NumPy and torch have no effect.
    """

    @default_settings
    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        estimator, *rest = args
        return method(snapshot(estimator), *rest, **kwargs)  # type: ignore[arg-type]

    return run


@contextmanager
def atomic_update(estimator) -> Iterator[Any]:
    """Yield a copy to be fitted; on exit, apply its changes to the estimator.

    After an error the estimator is unchanged.
    """
    copy = snapshot(estimator)
    old = dict(vars(copy))
    yield copy
    new = vars(copy)
    changed = {n: v for n, v in new.items() if n not in old or old[n] is not v}
    _replace(estimator, old.keys() - new.keys(), changed)


def replace_fitted(estimator, fitted: Mapping[str, Any]) -> None:
    """Replace all fitted attributes of an earlier fit."""
    earlier = {name for name in vars(estimator) if name.endswith("_")}
    _replace(estimator, earlier, fitted)


def _replace(estimator, removed, changed: Mapping[str, Any]) -> None:
    _reported.pop(estimator, None)
    kept = {n: v for n, v in vars(estimator).items() if n not in removed}
    estimator.__dict__ = kept | dict(changed)


# ---- atomic updates of files

# Seconds after which a part of a file is from a process that was killed.
_ABANDONED = 3600


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a new path; on exit, the file written there replaces the one at ``path``.

    After an error the file is unchanged. Parts of processes that were killed are
    removed.
    """
    path = path.resolve()  # Replace the target of a link, not the link.
    parts = f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.part"
    for part in path.parent.glob(parts):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED:
                part.unlink()
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def store_parameters(estimator, arguments: dict) -> None:
    """Store a constructor's ``locals()`` as attributes.

    Constructors list all parameters, as ``get_params``, editors and type checkers
    require, and only store them.
    """
    vars(estimator).update((n, v) for n, v in arguments.items() if n != "self")
