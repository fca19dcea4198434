"""Fits in threads restore torch's number of threads; fits work in inference mode."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from skbayesnn._engine import resources
from skbayesnn._engine.resources import torch_threads
from skbayesnn._families import MeanField


def _in_a_new_thread():
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


@pytest.fixture(params=[2, 3])
def n_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_concurrent_fits_restore_the_number_of_threads(engine, seed, n_threads):
    """Four at a time; some threads start while another fit has set the number."""
    config = engine.config()
    members = engine.members(config, [seed], 0.8, 1.0, 3.0, n_epochs=20)
    rows = engine.rows(config, 1, seed)

    barrier = threading.Barrier(4)

    def fit(i):
        engine.train(config, members, rows)
        if i < 4:  # Every thread runs a fit.
            barrier.wait()
        return torch.get_num_threads()

    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(fit, range(12)))

            def after(_):
                barrier.wait()
                return torch.get_num_threads()

            assert set(pool.map(after, range(4))) == {n_threads}
        assert _in_a_new_thread() == torch.get_num_threads() == n_threads


def test_uses_can_overlap_and_be_nested(n_threads):
    with torch_threads(5):
        assert torch.get_num_threads() == 5
        with torch_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 5
        with torch_threads(None):
            assert torch.get_num_threads() == 5
    assert _in_a_new_thread() == torch.get_num_threads() == n_threads


def test_a_thread_that_has_copied_a_number_which_is_no_longer_in_use(n_threads):
    def fit():
        with torch_threads(1):
            pass
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        with torch_threads(1):
            assert pool.submit(torch.get_num_threads).result() == 1
        assert pool.submit(fit).result() == n_threads
    assert _in_a_new_thread() == n_threads


@pytest.mark.parametrize(
    "family", ["bernoulli", MeanField(shared_draw=True), "concrete"], ids=repr
)
def test_training_in_a_callers_inference_mode(engine, seed, family):
    """Bit for bit the result without it."""
    config = engine.config(family=family)
    members = engine.members(config, [seed, seed + 1], 0.8, 1.0, 3.0)
    rows = engine.rows(config, 2, seed)
    expected = engine.parameters(engine.train(config, members, rows).posterior)
    with torch.inference_mode():
        trained = engine.train(config, members, engine.rows(config, 2, seed))
    for name, values in engine.parameters(trained.posterior).items():
        np.testing.assert_array_equal(values, expected[name])


def test_no_more_predictions_at_once_than_cores(monkeypatch):
    """The others wait for their turn."""
    monkeypatch.setattr(resources, "_n_cores", lambda: 2)
    slots, at_once, most = resources._PredictionSlots(), [], []

    def predict(_):
        with slots.acquire():
            at_once.append(None)
            most.append(len(at_once))
            time.sleep(0.001)
            at_once.pop()

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(predict, range(40)))
    assert len(most) == 40 and max(most) <= 2
