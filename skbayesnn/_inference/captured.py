"""The step of a GPU: captured once, and launched as a whole from then on.

A step of a small network is some thirty kernels of a few microseconds each. To launch
them one after the other takes Python ten times as long; a CUDA graph launches them all.
"""

import contextlib
from collections.abc import Callable

import torch

from skbayesnn._inference.batch import Batch
from skbayesnn._inference.plan import Members, Plan
from skbayesnn._inference.replayed_noise import ReplayedNoise
from skbayesnn._inference.schedule import StepNumbers
from skbayesnn._inference.step import Step

# Steps before the capture, in which libraries and caches are made ready; what the last
# of them asks of the noise is what all steps ask for.
_WARM_UP = 3
# A capture takes as long as some steps do.
_FEWEST_STEPS = 50


def step_class(plan: Plan, members: Members, device: torch.device) -> type[Step]:
    """The fastest step: captured where the steps are many and all alike.

    Other gradients than the pathwise one ask for second derivatives or many draws.
    """
    n_steps = int(members.n_epochs.max()) * plan.n_batches
    if device.type != "cuda" or plan.gradient != "pathwise" or n_steps < _FEWEST_STEPS:
        return Step
    return CapturedStep


class CapturedStep(Step):
    """:class:`Step` as a CUDA graph.

    What differs from step to step is copied to where the graph looks for it: the batch,
    the schedule's numbers, and the noise, which is made outside.
    """

    noise: ReplayedNoise
    # What the graph sees of every step.
    _batch: Batch
    _step_numbers: StepNumbers

    def __init__(self, *args):
        super().__init__(*args)
        self._graph = Graph(self.parameters.values.device)

    def _noise_of(self, *args):
        return ReplayedNoise(super()._noise_of(*args))

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
