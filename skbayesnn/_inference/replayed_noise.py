"""Noise that is made before a step asks for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from skbayesnn._families import Noise
from skbayesnn._inference.training_noise import TrainingNoise
from skbayesnn._inference.unequal_noise import UnequalNoise

Request = tuple[Callable[..., torch.Tensor], tuple]


class _Requests:
    """What is asked of a noise: passed on, noted, or answered from before."""

    def __init__(self, noise: Noise, replayed: "ReplayedNoise"):
        self._noise, self._replayed = noise, replayed

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """See ``Noise``, as all that follow."""
        return self._replayed.answer(self._noise.bernoulli, probability, *shape)

    def normal(self, *shape: int) -> torch.Tensor:
        return self._replayed.answer(self._noise.normal, *shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        return self._replayed.answer(self._noise.uniform, *shape)

    @property
    def of_weights(self) -> "_Requests":
        return _Requests(self._noise.of_weights, self._replayed)


class ReplayedNoise(_Requests):
    """The noise of steps that ask for the same, each in the same order.

    What one step has asked for can be made for another one beforehand, and always into
    the same memory: there a captured step looks for it.

    Parameters
    ----------
    noise : TrainingNoise or UnequalNoise
        Where the numbers come from.
    """

    def __init__(self, noise: TrainingNoise | UnequalNoise):
        super().__init__(noise, self)
        self._noise: TrainingNoise | UnequalNoise = noise
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
