"""The progress of long fits in terminals, notebooks and logs."""

import math
import multiprocessing
import shutil
import sys
import threading
import time
from typing import Any, ClassVar, Self, TextIO

from skbayesnn import _validation

# Seconds after which a fit appears in a terminal, and between two updates of its line.
_PATIENCE, _UPDATE = 5.0, 1.0
# Most seconds without a line of a fit that prints its progress.
_SILENCE = 30.0


def check_verbose(value: Any) -> int | None:
    """Check `verbose` of a stack or search; None for "auto".

    Raises
    ------
    TypeError, ValueError
    """
    is_auto = isinstance(value, str) and value == "auto"
    return None if is_auto else _validation.verbosity(value, "'auto', ")


class FitProgress:
    """The progress of a fit, as a context.

    Parameters
    ----------
    name : str
        Class of the estimator.
    verbose : int or None
        From 1 on, each step is printed as a line, and a line every half minute between
        two steps. None: in a terminal or notebook, one line on standard error that is
        rewritten every second, after five seconds; it is removed at the end. Other
        streams, such as logs, stay clean; so does the output of workers. 0 is silent.
    time_limit : float or None
        Seconds that the fit may take.

    Attributes
    ----------
    is_cut : bool
        Whether the limit has left something out.
    """

    _is_shown: ClassVar[bool] = False

    def __init__(
        self, name: str, verbose: int | None, time_limit: float | None = None
    ) -> None:
        if time_limit is not None:
            _validation.check_number("time_limit", time_limit, low=0, open_low=True)
        self.has_limit, self.is_cut = time_limit is not None, False
        self._seconds = math.inf if time_limit is None else time_limit
        self._name, self._prints = name, bool(verbose)
        self._stream = sys.stderr
        self._rewrites = verbose is None and _is_watched(self._stream)
        self._start = self._last = time.perf_counter()
        self._text = ""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        # A fit within this one, such as of a fold, has no line.
        self._rewrites = self._rewrites and not FitProgress._is_shown
        if self._rewrites or self._prints:
            FitProgress._is_shown |= self._rewrites
            work = self._rewrite if self._rewrites else self._break_silence
            self._thread = threading.Thread(target=work, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            FitProgress._is_shown &= not self._rewrites

    @property
    def left(self) -> float:
        """Seconds of the limit that are left; infinite without a limit."""
        return self._seconds - (time.perf_counter() - self._start)

    def __call__(self, text: str) -> None:
        """Report a step."""
        if self._prints:
            self._print(text)
        self._text = text

    def _print(self, text: str) -> None:
        self._last = time.perf_counter()
        print(f"[{self._name}] {self._last - self._start:5.1f} s: {text}", flush=True)

    def _break_silence(self) -> None:
        while not self._end.wait(_UPDATE):
            if time.perf_counter() - self._last >= _SILENCE:
                self._print("in progress")

    def _rewrite(self) -> None:
        stream, wait, width = self._stream, _PATIENCE, 0
        while not self._end.wait(wait):
            wait = _UPDATE
            seconds = time.perf_counter() - self._start
            line = f"{self._name}: {seconds:.0f} s{', ' * bool(self._text)}{self._text}"
            line = line.splitlines()[0][: shutil.get_terminal_size().columns - 1]
            stream.write("\r" + line.ljust(width))
            stream.flush()
            width = len(line)
        if width:
            stream.write("\r" + " " * width + "\r")
            stream.flush()


def _is_watched(stream: TextIO) -> bool:
    """Whether a person reads the stream while this process runs."""
    if multiprocessing.current_process().name != "MainProcess":
        return False
    in_notebook = type(stream).__module__.startswith("ipykernel")
    return in_notebook or (hasattr(stream, "isatty") and stream.isatty())


class RemainingSteps:
    """The steps of a fit that are done, and the time that the others take.

    It is estimated from the mean time of the steps after the first report.

    Parameters
    ----------
    n_total : int
    """

    def __init__(self, n_total: int) -> None:
        self._n_total, self._first = n_total, 0
        self._start = 0.0

    def text(self, n_done: int, label: str) -> str:
        """Such as "3 of 8 networks trained, about 42 s left"."""
        now = time.perf_counter()
        if not self._first:
            self._first, self._start = n_done, now
        mean = (now - self._start) / max(n_done - self._first, 1)
        remaining = time_left(mean * (self._n_total - n_done))
        return f"{n_done} of {self._n_total} {label}{remaining}"


def time_left(seconds: float) -> str:
    """Format an estimate of the remaining time; empty without an estimate.

    Examples
    --------
    >>> time_left(41.7), time_left(250.0), time_left(9000.0), time_left(0.0)
    (', about 42 s left', ', about 4 min left', ', about 2.5 h left', '')
    """
    if seconds <= 0:
        return ""
    if seconds < 99.5:
        about = f"{max(seconds, 1):.0f} s"
    elif seconds < 99.5 * 60:
        about = f"{seconds / 60:.0f} min"
    else:
        about = f"{seconds / 3600:.1f} h"
    return f", about {about} left"
