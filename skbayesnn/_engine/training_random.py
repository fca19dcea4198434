"""Random numbers of the training, per row and step.

There are two kinds of streams with the same methods:

- :class:`Generators`: torch's generators, one after the other: fastest on a CPU.
- :class:`SplitMix`: all seeds at once, for a GPU, where switching between generators
  takes longer than generating. Normal and uniform numbers are computed from words, so
  that the numbers of several steps can be generated together.

The numbers of a seed do not depend on the other seeds. Its words are one sequence,
whatever the sizes of the requests.
"""

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from skbayesnn._engine.random import EPOCH, philox, threshold_of

# ---- streams of random numbers, one per seed

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


# ---- random numbers of training steps

# Epochs whose generators' seeds are made at once.
_EPOCHS_AT_ONCE = 64
# Words (8 bytes, four variables) that are drawn at once for several steps: the numbers
# made of them stay in a core's cache, or a GPU has something to do.
_WORDS_AT_ONCE = 1 << 16
_WORDS_AT_ONCE_ON_A_GPU = 1 << 21


def _suits_generators(device: torch.device) -> bool:
    """Where it costs next to nothing to go from one generator to the next."""
    return device.type == "cpu"


class TrainingRandom:
    """Noise per row for one training step after the other.

    An epoch of a seed is a stream of its own, whose generator is seeded by 32 bits:
    torch's generator of a CPU takes no more. Of n epochs of all networks together some
    n^2 / 2^33 pairs have the same noise, of a thousand networks and epochs a hundred.

    Parameters
    ----------
    seeds : ndarray of shape (members,), int
    device, dtype : of the noise
    """

    def __init__(self, seeds: np.ndarray, device: torch.device, dtype: torch.dtype):
        distinct, of_member = np.unique(seeds, return_inverse=True)
        self.device, self.dtype = device, dtype
        self._seeds = [int(s) for s in distinct]
        self._of_member: torch.Tensor | None = None
        if 1 < len(distinct) and not np.array_equal(of_member, np.arange(len(seeds))):
            self._of_member = torch.as_tensor(of_member, device=device)
        lead = len(distinct) if self._of_member is None else len(seeds)
        # On a CPU: where numbers come from that are not made of words.
        self._generators: Generators | None = None
        if _suits_generators(device):
            self._generators = Generators(len(distinct))
            self._orders: Streams = self._generators
            self._words = _Words(Generators(len(distinct)), _WORDS_AT_ONCE // lead)
        else:
            self._orders = SplitMix(device)
            self._words = _Words(SplitMix(device), _WORDS_AT_ONCE_ON_A_GPU // lead)
        self._epochs_prepared: int | None = None
        # By request, of the steps drawn: what is asked for, or integers to be compared.
        self._made: dict[int, torch.Tensor] = {}
        self._integers_of: dict[int, torch.Tensor] = {}
        self._thresholds: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}

    def start_epoch(self, epoch: int, n_steps: int = 1) -> None:
        """Every epoch is a stream of its own: training can be resumed at any.

        The requests that follow are those of its first step.
        """
        block, place = divmod(epoch, _EPOCHS_AT_ONCE)
        if block != self._epochs_prepared:
            self._prepare(block)
        self._orders.start(place)
        self._words.streams.start(place)
        self._steps_left, self._steps_made, self._step = n_steps, 0, 0
        self._start_step()

    def next_step(self) -> None:
        """The requests that follow are those of the epoch's next step."""
        self._steps_left -= 1
        self._step += 1
        self._start_step()

    def permutations(self, n: int) -> torch.Tensor:
        """A random order of range(n) per member, (members or 1, n), int64."""
        return self._spread(self._orders.permutations(n))

    def order(self, n_rows: np.ndarray, n_batches: int) -> torch.Tensor:
        """The rows of an epoch's batches one after the other, (members or 1, rows).

        Batches are equal: the last one is filled up from the start of the order.

        n_rows : (members,), all equal
        """
        n = int(n_rows[0])
        if n_batches == 1:
            return torch.arange(n, device=self.device).unsqueeze(0)
        order = self.permutations(n)
        missing = -n % n_batches
        return torch.cat([order, order[:, :missing]], dim=1)

    @property
    def of_weights(self) -> "TrainingRandom":
        """Itself: all members have equally many rows, which need no padding."""
        return self

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (members or 1, *shape).

        Random integers below a threshold are zeros. Those of several steps are there at
        once, and compared at once, in place. Only where members of different
        probabilities share them are they kept, and compared step by step.
        """
        request = self._request
        self._request += 1
        masks = self._made.get(request)
        if masks is not None:
            return masks[self._step]
        threshold = self._cached_threshold(probability, len(shape))
        if request not in self._integers_of:
            numbers = self._integers(request, shape)
            if numbers.shape[1] >= len(threshold):
                self._made[request] = numbers.ge_(threshold)
                return numbers[self._step]
            self._integers_of[request] = numbers
        numbers = self._integers_of[request][self._step]
        keep = numbers.new_empty(len(threshold), *shape)
        return torch.ge(numbers, threshold, out=keep)

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (members or 1, *shape)."""
        if self._generators is None:
            return self._of_words(normal_of, shape)
        values = self._generators.normal(math.prod(shape), self.dtype)
        return self._spread(values.unflatten(1, shape))

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (members or 1, *shape)."""
        if self._generators is None:
            return self._of_words(uniform_of, shape)
        values = self._generators.uniform(math.prod(shape), self.dtype)
        return self._spread(values.unflatten(1, shape))

    def _start_step(self) -> None:
        """Masks of several steps are made at once where they are small."""
        self._request = 0
        if self._step == self._steps_made:
            self._made.clear()
            self._integers_of.clear()
            self._step = 0
            self._steps_made = self._words.draw(self._steps_left)

    def _prepare(self, block: int) -> None:
        """The streams of so many epochs: seeds of the words', and of the others'."""
        words = [
            philox(seed, EPOCH, block).random_raw(_EPOCHS_AT_ONCE)
            for seed in self._seeds
        ]
        seeds = np.stack(words).view(np.uint32).T
        self._words.streams.prepare(seeds[::2])
        self._orders.prepare(seeds[1::2])
        self._epochs_prepared = block

    def _of_words(self, law: Callable, shape: tuple[int, ...]) -> torch.Tensor:
        """One number per word, or two of every two, (members or 1, *shape)."""
        request, n = self._request, math.prod(shape)
        self._request += 1
        if request not in self._made:
            words = self._words.of_request(request, n + n % 2)
            values = self._spread(law(words, self.dtype)[..., :n]).transpose(0, 1)
            self._made[request] = values.contiguous().unflatten(2, shape)
        return self._made[request][self._step]

    def _integers(self, request: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Of 16 bits, for the steps drawn, (steps, members or 1, *shape).

        As floats: to compare these, into floats, is one pass over memory.
        """
        words = self._words.of_request(request, -(-math.prod(shape) // 4))
        bits = words.view(torch.int16)[..., : math.prod(shape)]
        numbers = self._spread(bits).transpose(0, 1).to(self.dtype)
        return numbers.contiguous().unflatten(2, shape)

    def _spread(self, values: torch.Tensor) -> torch.Tensor:
        """From distinct seeds to members; one shared seed stays one row."""
        if self._of_member is None:
            return values
        return values.index_select(0, self._of_member)

    def _cached_threshold(self, probability: torch.Tensor, n_axes: int) -> torch.Tensor:
        """(members or 1, 1, ...); one value where all members agree.

        The tensor is kept beside its threshold, so that its id stays its own.
        """
        key = id(probability), n_axes
        if key not in self._thresholds:
            threshold = threshold_of(probability).to(self.dtype)
            if bool((threshold == threshold[0]).all()):
                threshold = threshold[:1]
            threshold = threshold.view(-1, *(1,) * n_axes)
            self._thresholds[key] = (probability, threshold)
        return self._thresholds[key][1]


class _Words:
    """64 random bits at a time, of every seed, for the requests of the steps.

    A seed's words of an epoch are one sequence. Every step takes the same number of
    them, and each of its requests the same place among these: so the words of several
    steps can be drawn at once, by which small networks gain, and are the same ones.

    Parameters
    ----------
    streams : Streams
    at_once : int
        Words of every seed that may be there at once.
    """

    def __init__(self, streams: Streams, at_once: int):
        self.streams, self._at_once = streams, at_once
        # Of the requests of a step: known after the first one.
        self._ends = [0]
        self._recording = self._known = False

    def draw(self, n_steps: int) -> int:
        """Draw for the next steps, so many at most; returns for how many.

        None are left after an epoch; what is asked for then belongs to no step.
        """
        per_step = self._ends[-1]
        self._known = n_steps > 0 and per_step > 0
        self._recording = n_steps > 0 and per_step == 0
        if not self._known:
            return 1
        n_steps = min(n_steps, max(1, self._at_once // per_step))
        words = self.streams.words(n_steps * per_step)
        self._stock = words.unflatten(1, (n_steps, per_step))
        return n_steps

    def of_request(self, request: int, n: int) -> torch.Tensor:
        """Words of a request of the drawn steps, (seeds, steps, n), int64."""
        if self._known:
            start, end = self._ends[request : request + 2]
            return self._stock[..., start:end]
        if self._recording:
            self._ends.append(self._ends[-1] + n)
        return self.streams.words(n).unsqueeze(1)


# ---- members with different numbers of rows


def noise_of(
    seeds: np.ndarray,
    n_rows: np.ndarray,
    n_batches: int,
    device: torch.device,
    dtype: torch.dtype,
) -> "TrainingRandom | PaddedRandom":
    """Noise of members with so many rows, (members,), in so many batches."""
    if (n_rows == n_rows[0]).all():
        return TrainingRandom(seeds, device, dtype)
    return PaddedRandom(seeds, n_rows, n_batches, device, dtype)


class PaddedRandom:
    """As :class:`TrainingRandom`; each size of the members' rows has one of its own.

    A request of noise for the rows of the largest batch is one for those of its own
    batch in each, with zeros below: padding rows, whose weight is zero.

    Parameters
    ----------
    seeds, n_rows : ndarray of shape (members,), int
    n_batches : int
        Of an epoch.
    device, dtype : of the noise
    """

    def __init__(
        self,
        seeds: np.ndarray,
        n_rows: np.ndarray,
        n_batches: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        sizes, of_member = np.unique(n_rows, return_inverse=True)
        members = [np.flatnonzero(of_member == i) for i in range(len(sizes))]
        self._batch_rows = [-(-int(size) // n_batches) for size in sizes]
        self._members = [torch.as_tensor(own).to(device) for own in members]
        self._noises = [TrainingRandom(seeds[own], device, dtype) for own in members]
        # From members of one size after the other to their own order.
        place = np.argsort(np.concatenate(members))
        self._place = torch.as_tensor(place).to(device)
        self._probabilities: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self.of_weights = _OfWeights(self)

    def start_epoch(self, epoch: int, n_steps: int = 1) -> None:
        """See ``TrainingRandom``."""
        for noise in self._noises:
            noise.start_epoch(epoch, n_steps)

    def next_step(self) -> None:
        """The requests that follow are those of the epoch's next step."""
        for noise in self._noises:
            noise.next_step()

    def order(self, n_rows: np.ndarray, n_batches: int) -> torch.Tensor:
        """As ``TrainingRandom.order``, each batch with zeros below its own rows."""

        def of_group(i, noise):
            own = noise.order(n_rows[self._members[i].cpu().numpy()], n_batches)
            return self._padded(own.unflatten(1, (n_batches, -1)), i, axis=2)

        return self._together(of_group).flatten(1)

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (members, \\*shape)."""
        p = self.split(probability)
        return self._of_rows(lambda i, n, own: n.bernoulli(p[i], *own), shape)

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (members, \\*shape)."""
        return self._of_rows(lambda i, n, own: n.normal(*own), shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (members, \\*shape)."""
        return self._of_rows(lambda i, n, own: n.uniform(*own), shape)

    def of_whole(self, request: Callable) -> torch.Tensor:
        """(number, noise) -> numbers of its members; those of all, unpadded."""
        return self._together(request)

    def split(self, probability: torch.Tensor) -> list[torch.Tensor]:
        """By size of the rows; the same tensors again for the same probability."""
        key = id(probability)
        if key not in self._probabilities:
            parts = [probability[own] for own in self._members]
            self._probabilities[key] = probability, parts
        return self._probabilities[key][1]

    def _of_rows(self, request: Callable, shape: tuple[int, ...]) -> torch.Tensor:
        """shape : rows of the largest batch, or a multiple of them, in front."""
        per_row = shape[0] // max(self._batch_rows)

        def of_group(i, noise):
            own = (self._batch_rows[i] * per_row, *shape[1:])
            return self._padded(request(i, noise, own), i, axis=1)

        return self._together(of_group)

    def _padded(self, values: torch.Tensor, i: int, axis: int) -> torch.Tensor:
        """Of the i-th size: zeros below, along an axis of its batch's rows."""
        n_own = self._batch_rows[i]
        lead, tail = list(values.shape[:axis]), list(values.shape[axis + 1 :])
        missing = values.shape[axis] // n_own * (max(self._batch_rows) - n_own)
        return torch.cat([values, values.new_zeros(*lead, missing, *tail)], dim=axis)

    def _together(self, of_group: Callable) -> torch.Tensor:
        """(number, noise) -> (members or 1, ...), put in the members' order."""
        parts = [
            values.expand(len(own), *values.shape[1:])
            for own, values in zip(
                self._members,
                (of_group(i, noise) for i, noise in enumerate(self._noises)),
                strict=True,
            )
        ]
        return torch.cat(parts).index_select(0, self._place)


class _OfWeights:
    """Requests that are not per row: every size's noise has the shape asked for."""

    def __init__(self, noise: PaddedRandom):
        self._noise = noise

    @property
    def of_weights(self) -> "_OfWeights":
        """Itself."""
        return self

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (members, \\*shape)."""
        p = self._noise.split(probability)
        return self._noise.of_whole(lambda i, noise: noise.bernoulli(p[i], *shape))

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (members, \\*shape)."""
        return self._noise.of_whole(lambda _, noise: noise.normal(*shape))

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (members, \\*shape)."""
        return self._noise.of_whole(lambda _, noise: noise.uniform(*shape))
