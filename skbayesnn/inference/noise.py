"""Random numbers as a function of (seed, place), never of what runs beside.

Two sources, both of the :class:`skbayesnn.families.Noise` protocol:

- :class:`TrainingNoise`: noise per row, made on the training device. A function of
  (seed, epoch, step, layer). Members with the same seed share it (common random
  numbers), and share the order of the batches too.
- :class:`DrawNoise`: the weights' noise of the posterior draws, made on the CPU by a
  counter-based generator, so that draw t of a fitted network is the same on every
  device, alone or among others, whichever chunk it is asked for in.

Bernoulli variables are made from 16 random bits each: probabilities of one are rounded
to multiples of 2^-16, and are never less than one of these.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

# Purposes of a seed: the second word of the generator's key.
INIT, EPOCH, DRAW = 0, 1, 2

_STEPS_OF_16_BITS = 1 << 16
# Epochs whose generators' seeds are made at once.
_EPOCHS_AT_ONCE = 64
# Words (8 bytes, four variables) that are drawn at once for several steps: the numbers
# made of them stay in a core's cache.
_WORDS_AT_ONCE = 1 << 16


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
    return np.stack(
        [
            np.random.Generator(philox(int(s), INIT, layer)).standard_normal(shape)
            for s in seeds
        ]
    )


def _threshold(probability: torch.Tensor) -> torch.Tensor:
    """int16 t with P(bits >= t) = probability, bits uniform over all of int16."""
    dropped = ((1 - probability.double()) * _STEPS_OF_16_BITS).round()
    lowest = -_STEPS_OF_16_BITS // 2
    return (dropped + lowest).clamp(max=-lowest - 1).to(torch.int16)


class TrainingNoise:
    """Noise per row for one training step after the other.

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
        self._numbers = [torch.Generator(device) for _ in self._seeds]
        lead = len(distinct) if self._of_member is None else len(seeds)
        self._words = _Words(len(distinct), lead, device)
        self._epoch_words: tuple[int, np.ndarray] | None = None
        # By request: masks of the steps drawn, or numbers to be compared in each.
        self._masks: dict[int, torch.Tensor] = {}
        self._uniform: dict[int, torch.Tensor] = {}
        self._thresholds: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}

    def start_epoch(self, epoch: int, n_steps: int = 1) -> None:
        """Every epoch is a stream of its own: training can be resumed at any.

        The requests that follow are those of its first step.
        """
        seeds_of_words, seeds_of_numbers = self._generator_seeds(epoch)
        for generator, seed in zip(self._numbers, seeds_of_numbers, strict=True):
            generator.manual_seed(seed)
        self._words.start_epoch(seeds_of_words)
        self._steps_left, self._steps_made, self._step = n_steps, 0, 0
        self._start_step()

    def next_step(self) -> None:
        """The requests that follow are those of the epoch's next step."""
        self._steps_left -= 1
        self._step += 1
        self._start_step()

    def permutations(self, n: int) -> torch.Tensor:
        """A random order of range(n) per member, (members or 1, n), int64."""
        orders = [
            torch.randperm(n, generator=generator, device=self.device)
            for generator in self._numbers
        ]
        return self._spread(torch.stack(orders))

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (members or 1, *shape)."""
        request = self._request
        self._request += 1
        masks = self._masks.get(request)
        if masks is not None:
            return masks[self._step]
        threshold = self._cached_threshold(probability, len(shape))
        if request not in self._uniform:
            numbers = self._integers(request, shape)
            if numbers.shape[1] >= len(threshold):
                self._masks[request] = numbers.ge_(threshold)
                return numbers[self._step]
            self._uniform[request] = numbers
        numbers = self._uniform[request][self._step]
        keep = numbers.new_empty(len(threshold), *shape)
        return torch.ge(numbers, threshold, out=keep)

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (members or 1, *shape)."""
        return self._filled(torch.Tensor.normal_, shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (members or 1, *shape)."""
        return self._filled(torch.Tensor.uniform_, shape)

    def _start_step(self) -> None:
        """Masks of several steps are made at once where they are small."""
        self._request = 0
        if self._step == self._steps_made:
            self._masks.clear()
            self._uniform.clear()
            self._step = 0
            self._steps_made = self._words.draw(self._steps_left)

    def _generator_seeds(self, epoch: int) -> tuple[list[int], list[int]]:
        """Of the words, and of the other numbers, of every seed."""
        block, place = divmod(epoch, _EPOCHS_AT_ONCE)
        if self._epoch_words is None or self._epoch_words[0] != block:
            words = [
                philox(seed, EPOCH, block).random_raw(_EPOCHS_AT_ONCE)
                for seed in self._seeds
            ]
            self._epoch_words = block, np.stack(words).view(np.uint32)
        halves = self._epoch_words[1][:, 2 * place : 2 * place + 2].T
        return halves[0].tolist(), halves[1].tolist()

    def _integers(self, request: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Of 16 bits, for the steps drawn, (steps, members or 1, *shape).

        As floats: to compare these, into floats, is one pass over memory.
        """
        words = self._words.of_request(request, -(-math.prod(shape) // 4))
        bits = words.view(torch.int16)[..., : math.prod(shape)]
        numbers = self._spread(bits).transpose(0, 1).to(self.dtype)
        return numbers.contiguous().unflatten(2, shape)

    def _filled(self, fill: Callable, shape: tuple[int, ...]) -> torch.Tensor:
        """Memory of its own, filled by every seed's generator."""
        values = torch.empty(
            (len(self._seeds), *shape), dtype=self.dtype, device=self.device
        )
        for row, generator in zip(values, self._numbers, strict=True):
            fill(row, generator=generator)
        return self._spread(values)

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
            threshold = _threshold(probability).to(self.dtype)
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
    On a GPU, where they would not be, every request is drawn by itself.
    """

    def __init__(self, n_seeds: int, lead: int, device: torch.device):
        self._device = device
        self._at_once = _WORDS_AT_ONCE // lead
        self._generators = [torch.Generator(device) for _ in range(n_seeds)]
        # Of the requests of a step: known after the first one, on a CPU.
        self._ends = [0]
        self._recording = self._known = False

    def start_epoch(self, seeds: list[int]) -> None:
        """A new sequence, of one seed for each generator."""
        for generator, seed in zip(self._generators, seeds, strict=True):
            generator.manual_seed(seed)

    def draw(self, n_steps: int) -> int:
        """Draw for the next steps, so many at most; returns for how many.

        None are left after an epoch; what is asked for then belongs to no step.
        """
        per_step = self._ends[-1]
        self._known = n_steps > 0 and per_step > 0
        self._recording = n_steps > 0 and per_step == 0 and self._device.type == "cpu"
        if not self._known:
            return 1
        n_steps = min(n_steps, max(1, self._at_once // per_step))
        self._stock = self._random(n_steps * per_step).unflatten(1, (n_steps, per_step))
        return n_steps

    def of_request(self, request: int, n: int) -> torch.Tensor:
        """Words of a request of the drawn steps, (seeds, steps, n), int64."""
        if self._known:
            start, end = self._ends[request : request + 2]
            return self._stock[..., start:end]
        if self._recording:
            self._ends.append(self._ends[-1] + n)
        return self._random(n).unsqueeze(1)

    def _random(self, n: int) -> torch.Tensor:
        """(seeds, n), from every seed's generator."""
        shape = len(self._generators), n
        words = torch.empty(shape, dtype=torch.int64, device=self._device)
        for row, generator in zip(words, self._generators, strict=True):
            row.random_(-(2**63), None, generator=generator)
        return words


class DrawNoise:
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
        threshold = _threshold(probability).to(self.device)
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
