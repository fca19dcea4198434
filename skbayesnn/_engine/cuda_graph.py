"""Training steps on a GPU, captured once as a CUDA graph and then replayed.

A step of a small network consists of some thirty kernels of a few microseconds each.
Launching them from Python takes ten times as long; a graph launches all at once. The
random numbers of a step are generated before the graph runs.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from skbayesnn._engine.config import MemberParams, TrainingConfig
from skbayesnn._engine.objective import Batch
from skbayesnn._engine.step import Step, StepNumbers
from skbayesnn._engine.training_random import PaddedRandom, TrainingRandom
from skbayesnn._families import RandomSource

# ---- random numbers that are generated before a step requests them

Request = tuple[Callable[..., torch.Tensor], tuple]


class _Requests:
    """What is asked of a noise: passed on, noted, or answered from before."""

    def __init__(self, noise: RandomSource, replayed: "RecordedRandom"):
        self._noise, self._replayed = noise, replayed

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """See ``RandomSource``, as all that follow."""
        return self._replayed.answer(self._noise.bernoulli, probability, *shape)

    def normal(self, *shape: int) -> torch.Tensor:
        return self._replayed.answer(self._noise.normal, *shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        return self._replayed.answer(self._noise.uniform, *shape)

    @property
    def of_weights(self) -> "_Requests":
        return _Requests(self._noise.of_weights, self._replayed)


class RecordedRandom(_Requests):
    """The noise of steps that ask for the same, each in the same order.

    What one step has asked for can be made for another one beforehand, and always into
    the same memory: there a captured step looks for it.

    Parameters
    ----------
    noise : TrainingRandom or PaddedRandom
        Where the numbers come from.
    """

    def __init__(self, noise: TrainingRandom | PaddedRandom):
        super().__init__(noise, self)
        self._noise: TrainingRandom | PaddedRandom = noise
        self._requests: list[Request] = []
        self._values: list[torch.Tensor] = []
        self._recording = False
        self._answers: Iterator[torch.Tensor] | None = None

    def start_epoch(self, epoch: int, n_steps: int = 1) -> None:
        self._noise.start_epoch(epoch, n_steps)

    def next_step(self) -> None:
        self._noise.next_step()

    def order(self, n_rows, n_batches: int) -> torch.Tensor:
        return self._noise.order(n_rows, n_batches)

    @contextmanager
    def recorded(self):
        """What a step asks for is noted, in place of what has been."""
        self._requests, self._recording = [], True
        try:
            yield
        finally:
            self._recording = False

    def prepare(self) -> None:
        """Make what was noted for the step that comes."""
        values = [request(*asked) for request, asked in self._requests]
        if not self._values:
            self._values = [torch.empty_like(value) for value in values]
        for there, value in zip(self._values, values, strict=True):
            there.copy_(value)

    @contextmanager
    def replayed(self):
        """What a step asks for is what has been prepared."""
        self._answers = iter(self._values)
        try:
            yield
        finally:
            self._answers = None

    def answer(self, request: Callable[..., torch.Tensor], *asked) -> torch.Tensor:
        """Of one request."""
        if self._answers is not None:
            return next(self._answers)
        if self._recording:
            self._requests.append((request, asked))
        return request(*asked)


# ---- captured steps

# Steps before the capture, in which libraries and caches are made ready; what the last
# of them asks of the noise is what all steps ask for.
_WARM_UP = 3
# A capture takes as long as some steps do.
_FEWEST_STEPS = 50


def step_class(
    plan: TrainingConfig, members: MemberParams, device: torch.device
) -> type[Step]:
    """The fastest step: captured where the steps are many and all alike.

    Other gradients than the pathwise one ask for second derivatives or many draws.
    """
    n_steps = int(members.n_epochs.max()) * plan.n_batches
    if device.type != "cuda" or plan.gradient != "pathwise" or n_steps < _FEWEST_STEPS:
        return Step
    return CudaGraphStep


class CudaGraphStep(Step):
    """:class:`Step` as a CUDA graph.

    What differs from step to step is copied to where the graph looks for it: the batch,
    the schedule's numbers, and the noise, which is made outside.
    """

    noise: RecordedRandom
    # What the graph sees of every step.
    _batch: Batch
    _step_numbers: StepNumbers

    def __init__(self, *args):
        super().__init__(*args)
        self._graph = Graph(self.parameters.values.device)

    def _noise_of(self, *args):
        return RecordedRandom(super()._noise_of(*args))

    def _move(self, batch: Batch, numbers: StepNumbers) -> torch.Tensor:
        if self._n_done == 0:
            self._batch, self._step_numbers = _own(batch), _own(numbers)
        inputs = (*self._batch, *self._step_numbers)
        for there, value in zip(inputs, (*batch, *numbers), strict=True):
            if there is not None and value is not None:
                there.copy_(value)
        if self._n_done < _WARM_UP:
            return self._graph.warm_up(self._recorded)
        self.noise.prepare()
        if self._n_done == _WARM_UP:
            self._graph.capture(self._replayed)
        return self._graph.replay()

    def _recorded(self) -> torch.Tensor:
        with self.noise.recorded():
            return super()._move(self._batch, self._step_numbers)

    def _replayed(self) -> torch.Tensor:
        with self.noise.replayed():
            return super()._move(self._batch, self._step_numbers)


def _own(values):
    """Named tensors, or None, in memory of their own."""
    return type(values)(*(None if value is None else value.clone() for value in values))


class Graph:
    """What a function without arguments launches on a GPU, on a stream of its own.

    Other threads may use other GPUs meanwhile.
    """

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device)
        self._graph = torch.cuda.CUDAGraph()

    def warm_up(self, function: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Call the function, as it is."""
        before = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            value = function()
        before.wait_stream(self._stream)
        return value

    def capture(self, function: Callable[[], torch.Tensor]) -> None:
        """Note what it launches, which is not done yet."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._value = function()
            except BaseException:
                # The end of a capture that went wrong is an error of its own.
                with contextlib.suppress(RuntimeError):
                    self._graph.capture_end()
                raise
            self._graph.capture_end()

    def replay(self) -> torch.Tensor:
        """Do it; returns a copy of the function's value."""
        self._graph.replay()
        return self._value.clone()
