"""The progress of long fits in terminals, notebooks and logs."""

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
    if isinstance(value, str) and value == "auto":
        return None
    try:
        return _validation.verbosity(value)
    except TypeError as error:
        message = str(error).replace("must be True", "must be 'auto', True")
        raise TypeError(message) from None


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
    """

    _is_shown: ClassVar[bool] = False

    def __init__(self, name: str, verbose: int | None) -> None:
        self._name, self._prints = name, bool(verbose)
        self._rewrites = verbose is None and _is_watched(sys.stderr)
        self._start = self._last = time.perf_counter()
        self._text = ""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._rewrites and not FitProgress._is_shown:
            # A fit within this one, such as of a fold, has no line.
            FitProgress._is_shown = True
            self._begin(self._rewrite)
        elif self._prints:
            self._begin(self._break_silence)
        return self

    def _begin(self, work) -> None:
        self._thread = threading.Thread(target=work, args=(sys.stderr,), daemon=True)
        self._thread.start()

    def __exit__(self, *_) -> None:
        if self._thread is None:
            return
        self._end.set()
        self._thread.join()
        if self._rewrites:
            FitProgress._is_shown = False

    def __call__(self, text: str) -> None:
        """Report a step."""
        if self._prints:
            self._print(text)
        self._text = text

    def _print(self, text: str) -> None:
        self._last = time.perf_counter()
        print(f"[{self._name}] {self._last - self._start:5.1f} s: {text}", flush=True)

    def _break_silence(self, _: TextIO) -> None:
        while not self._end.wait(_UPDATE):
            if time.perf_counter() - self._last >= _SILENCE:
                self._print("in progress")

    def _rewrite(self, stream: TextIO) -> None:
        wait, width = _PATIENCE, 0
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
    return in_notebook or bool(getattr(stream, "isatty", bool)())
