"""Waits for threads end with Ctrl-C and the first exception; fits leave none behind."""

import gc
import os
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor

from skbayesnn import BayesianStackingRegressor, ConformalRegressor, MCDropoutRegressor
from skbayesnn._engine.resources import torch_threads
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


def left_behind():
    """Open files, threads, and objects of this process."""
    gc.collect()
    n_files, n_threads = (
        len(os.listdir(f"/proc/self/{folder}")) for folder in ("fd", "task")
    )
    return n_files, n_threads, len(gc.get_objects())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux")
def test_fits_leave_nothing_behind(seed):
    X = np.random.default_rng(seed).normal(size=(60, 3))
    network = MCDropoutRegressor((4,), max_iter=2, n_draws=5, random_state=seed)
    pool = [("network", network), ("forest", ExtraTreesRegressor(5, random_state=seed))]
    model = BayesianStackingRegressor(pool, cv=2, n_refits=1, random_state=seed)
    model = ConformalRegressor(model, random_state=seed)
    seen = []
    with torch_threads(2):
        for _ in range(6):
            clone(model).fit(X, X[:, 0]).predict_interval(X)
            seen.append(left_behind())
    # The first fits import modules and fill caches.
    first, last = seen[2], seen[-1]
    assert all(now <= then for now, then in zip(last[:2], first[:2], strict=True))
    # Each fitted model consists of hundreds of objects.
    assert last[2] < first[2] + 100
