"""Random numbers as a function of seed and position, independent of other members.

Two sources implement the :class:`skbayesnn._families.RandomSource` protocol:

- :class:`skbayesnn._engine.training_random.TrainingRandom`: random numbers per row,
  generated on the training device. They are a function of (seed, epoch, step, layer).
  Members with the same seed share them (common random numbers) and the batch order.
- :class:`DrawRandom`: random numbers of whole networks for the posterior draws,
  generated on the CPU by a counter-based generator. Draw t of a fitted network is the
  same on every device, for any chunk size, and whatever the other members are.

Bernoulli variables are made from 16 random bits each: the probability of 1 is rounded
to a multiple of 2^-16, and is at least 2^-16.
"""

from collections.abc import Callable

import numpy as np
import torch

# Purposes of a seed: the second word of the generator's key. DRAW + 1 + t is used for
# normal and uniform numbers of draw t, so no purpose may follow DRAW.
INIT, EPOCH, DRAW = 0, 1, 2
ANCHOR, ROWS = 1 << 63, (1 << 63) + 1

STEPS_OF_16_BITS = 1 << 16


def philox(
    seed: int, purpose: int, place: int = 0, offset: int = 0
) -> np.random.Philox:
    """Counter-based generator, keyed by seed and purpose [Salmon et al. 2011].

    ``place`` selects one of 2^64 streams of the same key. ``offset`` skips this many
    blocks of four 64-bit words.
    """
    key = np.array([seed, purpose], dtype=np.uint64)
    return np.random.Philox(key=key, counter=[offset, 0, 0, place])


def initial_normal(seeds: np.ndarray, layer: int, *shape: int) -> np.ndarray:
    """Standard normal numbers for initial weights, (members, *shape), float64."""
    return _normal(seeds, INIT, layer, shape)


def anchor_normal(seeds: np.ndarray, layer: int, *shape: int) -> np.ndarray:
    """Standard normal numbers for a draw from the prior, (members, *shape), float64."""
    return _normal(seeds, ANCHOR, layer, shape)


def _normal(seeds, purpose, layer, shape) -> np.ndarray:
    return np.stack(
        [
            np.random.Generator(philox(int(s), purpose, layer)).standard_normal(shape)
            for s in seeds
        ]
    )


def dropped_values(probability: torch.Tensor) -> torch.Tensor:
    """Number of 16-bit values that give zero, such that P(1) = probability, int64."""
    dropped = ((1 - probability.double()) * STEPS_OF_16_BITS).round()
    return dropped.clamp(max=STEPS_OF_16_BITS - 1).to(torch.int64)


def threshold_of(probability: torch.Tensor) -> torch.Tensor:
    """int16 t with P(bits >= t) = probability, for bits uniform on int16."""
    return (dropped_values(probability) - STEPS_OF_16_BITS // 2).to(torch.int16)


class DrawRandom:
    """Random numbers of whole networks for the posterior draws ``draws``.

    The n-th call uses stream n of every member's key. So families must request numbers
    in the order of the layers.

    Parameters
    ----------
    seeds : ndarray of shape (members,), int
    draws : range
        Indices of the draws, from 0.
    device, dtype
        Device and type of the numbers.
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
    def shared_by_rows(self) -> "DrawRandom":
        """The source of numbers that are not per row: this one."""
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
        scalar_shape = (1,) * len(shape)
        values = torch.as_tensor(bits).to(self.device) >= threshold.view(-1, 1)
        return values.to(self.dtype).view(len(self.draws), -1, *(shape or scalar_shape))

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (draws, members, *shape)."""
        return self._of_generators(np.random.Generator.standard_normal, shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (draws, members, *shape)."""
        values = self._of_generators(np.random.Generator.random, shape)
        # In float32, values just below 1 are rounded up to 1.
        return values.clamp_(max=1 - torch.finfo(self.dtype).eps / 2)

    def _of_generators(self, sample: Callable, shape: tuple[int, ...]):
        """Numbers of one request, with a generator for every draw and member."""
        request = self._next_request()
        values = np.empty((len(self.draws), len(self.seeds), *shape))
        for i, draw in enumerate(self.draws):
            for j, seed in enumerate(self.seeds):
                stream = philox(seed, DRAW + 1 + draw, request)
                values[i, j] = sample(np.random.Generator(stream), shape)
        return torch.as_tensor(values).to(self.device, self.dtype)

    def _next_request(self) -> int:
        self._requests += 1
        return self._requests - 1
