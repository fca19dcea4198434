"""Noise per row, for one training step after the other."""

import math
from collections.abc import Callable

import numpy as np
import torch

from skbayesnn._inference.noise import EPOCH, philox, threshold_of
from skbayesnn._inference.streams import (
    Generators,
    SplitMix,
    Streams,
    normal_of,
    uniform_of,
)

# Epochs whose generators' seeds are made at once.
_EPOCHS_AT_ONCE = 64
# Words (8 bytes, four variables) that are drawn at once for several steps: the numbers
# made of them stay in a core's cache, or a GPU has something to do.
_WORDS_AT_ONCE = 1 << 16
_WORDS_AT_ONCE_ON_A_GPU = 1 << 21


def _suits_generators(device: torch.device) -> bool:
    """Where it costs next to nothing to go from one generator to the next."""
    return device.type == "cpu"


class TrainingNoise:
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
    def of_weights(self) -> "TrainingNoise":
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
