"""A captured step changes the members as a plain step does."""

import contextlib
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from skbayesnn._engine import cuda_graph
from skbayesnn._engine.cuda_graph import RecordedRandom
from skbayesnn._engine.step import Step
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import MeanField
from tests.helpers.engine import KINDS, config_and_members, parametrize_cases

# Three steps per epoch.
EPOCHS = [5, 3, 5, 4]
SEEDS = np.array([4, 0, 4, 1])
CPU = torch.device("cpu")


class NothingIsRead(TorchDispatchMode):
    """Raises if a value is read, such as by `.item()`: a graph cannot wait for it."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("a captured step must not read the value of a tensor")
        return function(*args, **(kwargs or {}))


class ReplayedFunction:
    """Replaces a CUDA graph: calls the function, which may not read values."""

    def __init__(self, device):
        pass

    def warm_up(self, function):
        return function()

    def capture(self, function):
        self._function = function

    def replay(self):
        with NothingIsRead():
            return self._function()


def _plain_and_captured(engine, monkeypatch, config, members, rows):
    """Parameters and losses after plain steps and after captured steps."""
    results = []
    for kind in (Step, cuda_graph.CudaGraphStep):
        monkeypatch.setattr(
            "skbayesnn._engine.training.step_class", lambda *_, kind=kind: kind
        )
        trained = engine.train(config, members, rows)
        parameters = engine.parameters(trained.posterior)
        results.append(parameters | {"nll": trained.nll, "kl": trained.kl})
    return results


@parametrize_cases
def test_captured_step_equals_plain_step(engine, case, seed, monkeypatch):
    """Bit by bit, with weights, KL warm-up, and members with fewer epochs."""
    monkeypatch.setattr(cuda_graph, "Graph", ReplayedFunction)
    config, members = config_and_members(case, seed, kl_warm_up=0.5, n_epochs=EPOCHS)
    rows = engine.rows(config, len(members.seeds), seed, shared=False, weighted=True)
    step, replayed = _plain_and_captured(engine, monkeypatch, config, members, rows)
    for name, value in step.items():
        np.testing.assert_array_equal(replayed[name], value, err_msg=name)


def test_a_step_that_reads_a_value_is_refused():
    graph = ReplayedFunction(CPU)
    graph.capture(lambda: torch.ones(1).sum().item())
    with pytest.raises(AssertionError, match="must not read"):
        graph.replay()


def test_failed_capture_raises_the_original_error(monkeypatch):
    """The out-of-memory error, which searches handle, not that of `capture_end`."""

    class Broken:
        def capture_begin(self, **options):
            pass

        def capture_end(self):
            raise RuntimeError("the capture was invalidated")

    cuda = cuda_graph.torch.cuda
    monkeypatch.setattr(cuda, "CUDAGraph", Broken)
    monkeypatch.setattr(cuda, "Stream", lambda device: MagicMock())
    monkeypatch.setattr(cuda, "current_stream", lambda device: MagicMock())
    monkeypatch.setattr(cuda, "stream", lambda stream: contextlib.nullcontext())

    def step():
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        cuda_graph.Graph(torch.device("cuda")).capture(step)


@pytest.mark.cuda
@parametrize_cases
def test_captured_step_equals_plain_step_on_a_gpu(engine, case, seed, monkeypatch):
    config, members = config_and_members(case, seed, kl_warm_up=0.5, n_epochs=EPOCHS)
    rows = engine.rows(
        config, len(members.seeds), seed, shared=False, weighted=True, device="cuda"
    )
    step, replayed = _plain_and_captured(engine, monkeypatch, config, members, rows)
    for name, value in step.items():
        # Products may be taken in another order: float64 rounding, grown by the steps.
        np.testing.assert_allclose(replayed[name], value, rtol=1e-8, atol=1e-8)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_captured_likelihoods_on_a_gpu(engine, kind, seed, monkeypatch):
    """Including likelihoods with gradients by autograd, and several draws at a time."""
    config = engine.config(kind, family=MeanField(), n_training_draws=2)
    members = engine.members(config, SEEDS + seed, 0.8, 1.0, 2.0, 20)
    rows = engine.rows(config, len(SEEDS), seed, device="cuda")
    step, replayed = _plain_and_captured(engine, monkeypatch, config, members, rows)
    for name, value in step.items():
        np.testing.assert_allclose(replayed[name], value, rtol=1e-8, atol=1e-8)


def test_replayed_random_numbers_equal_the_numbers_of_the_step(seed):
    """They reuse the memory of the first step, even if a family overwrote it."""
    plain, recorded = (
        TrainingRandom(SEEDS + seed, CPU, torch.float64) for _ in range(2)
    )
    replayed = RecordedRandom(recorded)
    keep = torch.linspace(0.4, 0.7, len(SEEDS), dtype=torch.float64)

    def requests(source):
        return [
            source.bernoulli(keep, 4, 3),
            source.shared_by_rows.normal(5, 3),
            source.uniform(4, 2),
            source.bernoulli(keep, 4, 6),
        ]

    memory = set()
    for epoch in range(2):
        for source in (plain, replayed):
            source.start_epoch(epoch, 3)
        for step in range(3):
            expected = requests(plain)
            if (epoch, step) == (0, 0):
                with replayed.recorded():
                    actual = requests(replayed)
            else:
                replayed.prepare()
                with replayed.replayed():
                    actual = requests(replayed)
                memory.add(tuple(value.data_ptr() for value in actual))
            for value, reference in zip(actual, expected, strict=True):
                assert torch.equal(value, reference)
                value.fill_(np.nan)
            plain.next_step()
            replayed.next_step()
        # Draws between two steps belong to neither step.
        assert torch.equal(plain.normal(3), replayed.normal(3))
    assert len(memory) == 1


@pytest.mark.parametrize(
    ("device", "n_epochs", "expected"),
    [
        ("cuda", 30, cuda_graph.CudaGraphStep),
        ("cuda", 10, Step),
        ("cpu", 30, Step),
        ("mps", 30, Step),
    ],
)
def test_step_class(engine, device, n_epochs, expected):
    """Capture only on devices with graphs, and if the number of steps pays for it."""
    config = engine.config(n_batches=3)
    members = engine.members(config, SEEDS, 0.8, 1.0, 2.0, n_epochs)
    assert cuda_graph.step_class(config, members, torch.device(device)) is expected
