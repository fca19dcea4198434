"""Streams of random numbers, one of every seed, side by side.

Two kinds, with the same methods:

- :class:`Generators`: torch's, one after the other: the fastest on a CPU.
- :class:`SplitMix`: of all seeds at once, since a GPU would spend more time on being
  told of the next generator than on its numbers. Normal and uniform ones are made of
  words, so that those of several steps are there at once.

Either way a seed's numbers do not depend on the other seeds, and its words are one
sequence, however many are asked for at once.
"""

import math
from typing import Protocol

import numpy as np
import torch

# Weyl's constant and the multipliers of the finaliser [Steele, Lea & Flood 2014].
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Streams(Protocol):
    """Random numbers of several seeds, (seeds, n) at a time."""

    def prepare(self, seeds: np.ndarray) -> None:
        """Of the sequences to come, (sequences, seeds) uint32."""

    def start(self, sequence: int) -> None:
        """One of those prepared, from its beginning."""

    def words(self, n: int) -> torch.Tensor:
        """64 random bits each, int64."""

    def permutations(self, n: int) -> torch.Tensor:
        """Random orders of range(n), int64."""


class Generators:
    """torch's generators on the CPU."""

    def __init__(self, n_seeds: int):
        self._generators = [torch.Generator() for _ in range(n_seeds)]

    def prepare(self, seeds: np.ndarray) -> None:
        """See ``Streams``, as all without a line of their own."""
        self._seeds = seeds.tolist()

    def start(self, sequence: int) -> None:
        seeds = self._seeds[sequence]
        for generator, seed in zip(self._generators, seeds, strict=True):
            generator.manual_seed(seed)

    def words(self, n: int) -> torch.Tensor:
        words = torch.empty((len(self._generators), n), dtype=torch.int64)
        for row, generator in zip(words, self._generators, strict=True):
            row.random_(-(2**63), None, generator=generator)
        return words

    def permutations(self, n: int) -> torch.Tensor:
        return torch.stack(
            [torch.randperm(n, generator=generator) for generator in self._generators]
        )

    def normal(self, n: int, dtype: torch.dtype) -> torch.Tensor:
        """Standard normal numbers."""
        values = torch.empty((len(self._generators), n), dtype=dtype)
        for row, generator in zip(values, self._generators, strict=True):
            row.normal_(generator=generator)
        return values

    def uniform(self, n: int, dtype: torch.dtype) -> torch.Tensor:
        """Numbers in [0, 1)."""
        values = torch.empty((len(self._generators), n), dtype=dtype)
        for row, generator in zip(values, self._generators, strict=True):
            row.uniform_(generator=generator)
        return values


class SplitMix:
    """SplitMix64 [Steele, Lea & Flood 2014, Fast splittable pseudorandom number
    generators]: word i is a hash of the seed and i.

    Integers of torch are signed: products are those modulo 2^64 all the same, and what
    a shift has filled with the sign is cut off.
    """

    def __init__(self, device: torch.device):
        self._device = device

    def prepare(self, seeds: np.ndarray) -> None:
        # Neighbours among the seeds start far from each other.
        starts = _mixed(torch.as_tensor(seeds.astype(np.int64)))
        self._prepared = starts.to(self._device).unsqueeze(2)

    def start(self, sequence: int) -> None:
        self._starts, self._done = self._prepared[sequence], 0

    def words(self, n: int) -> torch.Tensor:
        place = torch.arange(self._done + 1, self._done + n + 1, device=self._device)
        self._done += n
        return _mixed(self._starts + place.mul_(_signed(_GOLDEN)))

    def permutations(self, n: int) -> torch.Tensor:
        return self.words(n).argsort(dim=1, stable=True)


def uniform_of(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Numbers in [0, 1), one of each word, with all bits that the type has."""
    n_bits = 1 - int(math.log2(torch.finfo(dtype).eps))
    return _shifted(words, 64 - n_bits).to(dtype).mul_(2.0**-n_bits)


def normal_of(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Standard normal numbers, two of each pair of words [Box & Muller 1958].

    words : (..., n), n even
    """
    radius, angle = uniform_of(words, dtype).unflatten(-1, (-1, 2)).unbind(-1)
    radius = radius.neg().log1p_().mul_(-2).sqrt_()
    angle = angle * (2 * math.pi)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1).flatten(-2)


def _signed(word: int) -> int:
    """The int64 with the same bits."""
    return word - (1 << 64) if word >> 63 else word


def _shifted(words: torch.Tensor, n_bits: int) -> torch.Tensor:
    """To the right, zeros from the left; a tensor of its own."""
    return (words >> n_bits).bitwise_and_((1 << (64 - n_bits)) - 1)


def _mixed(words: torch.Tensor) -> torch.Tensor:
    """The finaliser, a bijection; in place."""
    words.bitwise_xor_(_shifted(words, 30)).mul_(_signed(_FIRST))
    words.bitwise_xor_(_shifted(words, 27)).mul_(_signed(_SECOND))
    return words.bitwise_xor_(_shifted(words, 31))
