"""Random numbers as a function of (seed, place), never of what runs beside.

Two sources, both of the :class:`skbayesnn._families.RandomSource` protocol:

- :class:`skbayesnn._engine.training_random.TrainingRandom`: noise per row, made on the
  training device. A function of (seed, epoch, step, layer). Members with the same seed
  share it (common random numbers), and share the order of the batches too.
- :class:`DrawRandom`: the weights' noise of the posterior draws, made on the CPU by a
  counter-based generator, so that draw t of a fitted network is the same on every
  device, alone or among others, whichever chunk it is asked for in.

Bernoulli variables are made from 16 random bits each: probabilities of one are rounded
to multiples of 2^-16, and are never less than one of these.
"""

from collections.abc import Callable

import numpy as np
import torch

# Purposes of a seed: the second word of the generator's key. DRAW + 1 + t is that of
# numbers of draw t that are not made of bits, so that no other may follow it.
INIT, EPOCH, DRAW = 0, 1, 2
ANCHOR, ROWS = 1 << 63, (1 << 63) + 1

_STEPS_OF_16_BITS = 1 << 16


def philox(
    seed: int, purpose: int, place: int = 0, offset: int = 0
) -> np.random.Philox:
    """Counter-based generator, keyed by seed and purpose [Salmon et al. 2011].

    ``place`` separates 2^64 streams of the same key; ``offset`` starts a stream
    after that many blocks of four 64-bit words.
    """
    key = np.array([seed, purpose], dtype=np.uint64)
    return np.random.Philox(key=key, counter=[offset, 0, 0, place])


def initial_normal(seeds: np.ndarray, layer: int, *shape: int) -> np.ndarray:
    """Standard normal start values, (members, *shape), float64."""
    return _normal(seeds, INIT, layer, shape)


def anchor_normal(seeds: np.ndarray, layer: int, *shape: int) -> np.ndarray:
    """Standard normal numbers of a draw from the prior, (members, *shape), float64."""
    return _normal(seeds, ANCHOR, layer, shape)


def _normal(seeds, purpose, layer, shape) -> np.ndarray:
    return np.stack(
        [
            np.random.Generator(philox(int(s), purpose, layer)).standard_normal(shape)
            for s in seeds
        ]
    )


def threshold_of(probability: torch.Tensor) -> torch.Tensor:
    """int16 t with P(bits >= t) = probability, bits uniform over all of int16."""
    dropped = ((1 - probability.double()) * _STEPS_OF_16_BITS).round()
    lowest = -_STEPS_OF_16_BITS // 2
    return (dropped + lowest).clamp(max=-lowest - 1).to(torch.int16)


class DrawRandom:
    """Noise of whole networks for the posterior draws ``draws``.

    A family asks layer by layer, in the order of the layers; the n-th request is
    stream n of every member's key.

    Parameters
    ----------
    seeds : ndarray of shape (members,), int
    draws : range
        Which draws, in a world where they are numbered from 0 without end.
    device, dtype : of the noise
    """

    def __init__(
        self,
        seeds: np.ndarray,
        draws: range,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.seeds = [int(s) for s in seeds]
        self.draws = draws
        self.device, self.dtype = device, dtype
        self._requests = 0

    @property
    def of_weights(self) -> "DrawRandom":
        """Itself: all of it is."""
        return self

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (draws, members, *shape)."""
        size = int(np.prod(shape))
        blocks = -(-size // 16)  # of four 64-bit words: 16 variables of 16 bits each
        layer = self._next_request()
        bits = np.stack(
            [
                philox(seed, DRAW, layer, blocks * self.draws.start)
                .random_raw(4 * blocks * len(self.draws))
                .view(np.int16)
                .reshape(len(self.draws), 16 * blocks)[:, :size]
                for seed in self.seeds
            ],
            axis=1,
        )
        threshold = threshold_of(probability).to(self.device)
        ones = (1,) * len(shape)
        keep = torch.as_tensor(bits).to(self.device) >= threshold.view(-1, 1)
        return keep.to(self.dtype).view(len(self.draws), -1, *(shape or ones))

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (draws, members, *shape)."""
        return self._of_generators(np.random.Generator.standard_normal, shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (draws, members, *shape)."""
        values = self._of_generators(np.random.Generator.random, shape)
        # In float32 the last few below one are rounded up to it.
        return values.clamp_(max=1 - torch.finfo(self.dtype).eps / 2)

    def _of_generators(self, numbers: Callable, shape: tuple[int, ...]):
        """A generator for every draw, member and request."""
        request = self._next_request()
        values = np.empty((len(self.draws), len(self.seeds), *shape))
        for i, draw in enumerate(self.draws):
            for j, seed in enumerate(self.seeds):
                stream = philox(seed, DRAW + 1 + draw, request)
                values[i, j] = numbers(np.random.Generator(stream), shape)
        return torch.as_tensor(values).to(self.device, self.dtype)

    def _next_request(self) -> int:
        self._requests += 1
        return self._requests - 1
