"""Waits for threads end with Ctrl-C and with the first exception."""

import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

from skbayesnn._runtime import on_threads


def test_results_are_in_order_with_the_settings_of_the_caller():
    def call(seconds):
        time.sleep(seconds)
        return seconds, np.geterr()["over"]

    with np.errstate(over="raise"):
        results = on_threads([partial(call, s) for s in (0.05, 0.0, 0.01)], 2)
    assert results == [(0.05, "raise"), (0.0, "raise"), (0.01, "raise")]


def interrupted():
    """Ctrl-C in this thread, which Python reports to the main thread."""
    signal.raise_signal(signal.SIGINT)
    time.sleep(60)


def failing():
    raise ArithmeticError


@pytest.mark.parametrize(
    ("call", "error"), [(interrupted, KeyboardInterrupt), (failing, ArithmeticError)]
)
def test_the_other_calls_end(call, error, monkeypatch):
    stop, called = threading.Event(), []
    monkeypatch.setattr(time, "sleep", lambda seconds: stop.wait(seconds))
    calls = [partial(stop.wait, 60), call, partial(called.append, 1)]
    start = time.perf_counter()
    with pytest.raises(error):
        on_threads(calls, 2, stop)
    assert time.perf_counter() - start < 30
    assert stop.is_set()
    assert call is failing or not called
