"""Fixtures for all tests: seeds, devices, and a check of the global settings."""

import random

import numpy as np
import pytest
import sklearn
import torch

# Some packages draw from Python's generator at their import.
import skbayesnn.estimators  # noqa: F401
from skbayesnn._engine import cuda_graph
from tests.helpers.seed import SEED


def pytest_report_header():
    """Show the command that repeats this run."""
    return [
        f"seed: {SEED} (again: SKBAYESNN_SEED={SEED} make test)",
        f"scikit-learn {sklearn.__version__}, NumPy {np.__version__}, "
        f"torch {torch.__version__}",
    ]


def pytest_runtest_setup(item):
    """Skip tests that need a GPU if there is no GPU."""
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")


@pytest.fixture(params=[SEED], ids=lambda seed: f"seed{seed}")
def seed(request):
    """Seed of a test's random data; the tests hold for any (set SKBAYESNN_SEED)."""
    return request.param


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    """Each possible device; tests on a missing device are skipped."""
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def capture_short_trainings(request, monkeypatch):
    """On a GPU: capture graphs of short trainings, which does not pay outside tests."""
    if request.node.get_closest_marker("cuda"):
        monkeypatch.setattr(cuda_graph, "_MIN_STEPS", 0)


def _global_state():
    """State that no call may change: torch's settings and the global generators."""
    state = {
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_default_device()": torch.get_default_device(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.are_deterministic_algorithms_enabled()": (
            torch.are_deterministic_algorithms_enabled()
        ),
        "torch's generator": torch.get_rng_state().numpy().tobytes(),
        "NumPy's generator": repr(np.random.get_state(legacy=False)["state"]["pos"])
        + np.random.get_state(legacy=False)["state"]["key"].tobytes().hex(),
        "Python's generator": random.getstate(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["CUDA's generator"] = torch.cuda.get_rng_state().numpy().tobytes()
    return state


@pytest.fixture(autouse=True)
def global_state_is_untouched(request):
    """Check after every test that global settings and generators are unchanged.

    scikit-learn's checks draw from NumPy's generator; ``test_promises.py`` tests that
    the estimators do not.
    """
    before, state = _global_state(), np.random.get_state()
    yield
    if {"estimator", "check"} <= set(request.fixturenames):
        np.random.set_state(state)
    after = _global_state()
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"the test left changed: {', '.join(changed)}"
