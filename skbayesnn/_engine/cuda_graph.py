"""Training steps on a GPU, captured once as a CUDA graph and then replayed.

A step of a small network consists of some thirty kernels of a few microseconds each.
Launching them from Python takes ten times as long; a graph launches all at once. The
random numbers of a step are generated before the graph runs.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from skbayesnn._engine.config import Batch, MemberParams, TrainingConfig
from skbayesnn._engine.step import Step, StepValues
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import RandomSource

# ---- random numbers that are generated before a step requests them

Request = tuple[Callable[..., torch.Tensor], tuple]


class _Requests:
    """Pass the requests for random numbers to a :class:`RecordedRandom`.

    The methods are documented in ``RandomSource``.
    """

    def __init__(self, source: RandomSource, recorder: "RecordedRandom"):
        self._source, self._recorder = source, recorder

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        return self._recorder.answer(self._source.bernoulli, probability, *shape)

    def normal(self, *shape: int) -> torch.Tensor:
        return self._recorder.answer(self._source.normal, *shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        return self._recorder.answer(self._source.uniform, *shape)

    @property
    def shared_by_rows(self) -> "_Requests":
        return _Requests(self._source.shared_by_rows, self._recorder)


class RecordedRandom(_Requests):
    """Random numbers for steps that all make the same requests in the same order.

    The requests of one step are recorded. Their values for another step can then be
    generated in advance, always into the same memory, where a captured step reads them.

    Parameters
    ----------
    source : TrainingRandom
        Generates the numbers.
    """

    def __init__(self, source: TrainingRandom):
        super().__init__(source, self)
        self._source: TrainingRandom = source
        self._requests: list[Request] = []
        self._values: list[torch.Tensor] = []
        self._recording = False
        self._replay_values: Iterator[torch.Tensor] | None = None

    def start_epoch(self, epoch: int, n_steps: int = 1) -> None:
        self._source.start_epoch(epoch, n_steps)

    def next_step(self) -> None:
        self._source.next_step()

    def order(self, n_rows, n_batches: int) -> torch.Tensor:
        return self._source.order(n_rows, n_batches)

    @contextmanager
    def recorded(self):
        """Within this context, record the requests of a step."""
        self._requests, self._recording = [], True
        try:
            yield
        finally:
            self._recording = False

    def prepare(self) -> None:
        """Generate the recorded requests for the next step."""
        values = [request(*arguments) for request, arguments in self._requests]
        if not self._values:
            self._values = [torch.empty_like(value) for value in values]
        for buffer, value in zip(self._values, values, strict=True):
            buffer.copy_(value)

    @contextmanager
    def replayed(self):
        """Within this context, return the prepared values."""
        self._replay_values = iter(self._values)
        try:
            yield
        finally:
            self._replay_values = None

    def answer(self, request: Callable[..., torch.Tensor], *arguments) -> torch.Tensor:
        """Return the numbers of one request."""
        if self._replay_values is not None:
            return next(self._replay_values)
        if self._recording:
            self._requests.append((request, arguments))
        return request(*arguments)


# ---- captured steps

# Steps before the capture, which initialise libraries and caches. The random-number
# requests of the last warm-up step are repeated in every later step.
_WARM_UP = 3
# With fewer steps, the capture costs more than it gains.
_MIN_STEPS = 50


def step_class(
    config: TrainingConfig, members: MemberParams, device: torch.device
) -> type[Step]:
    """The fastest class of steps: captured, on a GPU, if there are many steps."""
    n_steps = int(members.n_epochs.max()) * config.n_batches
    if device.type != "cuda" or n_steps < _MIN_STEPS:
        return Step
    return CudaGraphStep


class CudaGraphStep(Step):
    """:class:`Step` as a CUDA graph.

    Everything that differs between steps is copied to the memory that the graph reads:
    the batch, the values of the schedule, and the random numbers.
    """

    random: RecordedRandom
    # Memory that the graph reads.
    _graph_batch: Batch
    _graph_values: StepValues

    def __init__(self, *args):
        super().__init__(*args)
        self._graph = Graph(self.parameters.values.device)

    def _random_source(self, members):
        return RecordedRandom(super()._random_source(members))

    def _update(self, batch: Batch, step_values: StepValues) -> torch.Tensor:
        if self._n_done == 0:
            self._graph_batch, self._graph_values = _clone(batch), _clone(step_values)
        inputs = (*self._graph_batch, *self._graph_values)
        for buffer, value in zip(inputs, (*batch, *step_values), strict=True):
            if buffer is not None and value is not None:
                buffer.copy_(value)
        if self._n_done < _WARM_UP:
            return self._graph.warm_up(self._recorded)
        self.random.prepare()
        if self._n_done == _WARM_UP:
            self._graph.capture(self._replayed)
        return self._graph.replay()

    def _recorded(self) -> torch.Tensor:
        with self.random.recorded():
            return super()._update(self._graph_batch, self._graph_values)

    def _replayed(self) -> torch.Tensor:
        with self.random.replayed():
            return super()._update(self._graph_batch, self._graph_values)


def _clone(values):
    """Copy a named tuple of tensors or None."""
    return type(values)(*(None if value is None else value.clone() for value in values))


class Graph:
    """CUDA graph of a function without arguments, on its own stream.

    Other threads may use other GPUs during the capture.
    """

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device)
        self._graph = torch.cuda.CUDAGraph()

    def warm_up(self, function: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Call the function without capturing it."""
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            value = function()
        current.wait_stream(self._stream)
        return value

    def capture(self, function: Callable[[], torch.Tensor]) -> None:
        """Capture the kernels of the function without running them."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._value = function()
            except BaseException:
                # Ending a failed capture raises an error, too.
                with contextlib.suppress(RuntimeError):
                    self._graph.capture_end()
                raise
            self._graph.capture_end()

    def replay(self) -> torch.Tensor:
        """Run the graph; return a copy of the function's value."""
        self._graph.replay()
        return self._value.clone()
