"""Random numbers of the training, per row and step.

A *word* is 64 random bits: a hash of the seed and of the word's place
(:class:`SplitMix`). All other numbers are computed from words, so they are the same on
every device up to rounding, and the numbers of several steps can be generated together.
The numbers of a seed do not depend on the other seeds.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from skbayesnn._engine.random import EPOCH, philox, threshold_of

# ---- streams of random numbers, one per seed

# Weyl's constant; multipliers and shifts of the finaliser [Steele, Lea & Flood 2014].
GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIER_1, MULTIPLIER_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
SHIFT_1, SHIFT_2, SHIFT_3 = 30, 27, 31


class SplitMix:
    """SplitMix64 [Steele, Lea & Flood 2014, Fast splittable pseudorandom number
    generators], one sequence per seed: word i is a hash of the seed and i.

    torch has signed integers only. Products modulo 2^64 are the same; the sign bits
    that a right shift fills in are masked.
    """

    def __init__(self, device: torch.device):
        self._device = device

    def prepare(self, seeds: np.ndarray) -> None:
        """Set the seeds of the next sequences, (sequences, seeds) uint64."""
        # Hashed, so that neighbouring seeds have distant states.
        states = _finalise(torch.tensor(seeds.view(np.int64)))
        self._prepared = states.to(self._device).unsqueeze(2)

    def start(self, sequence: int) -> None:
        """Start one of the prepared sequences."""
        self._states, self._done = self._prepared[sequence], 0

    def words(self, n: int) -> torch.Tensor:
        """Return the next ``n`` words of every seed, (seeds, n) int64."""
        positions = torch.arange(
            self._done + 1, self._done + n + 1, device=self._device
        )
        self._done += n
        return _finalise(self._states + positions.mul_(_as_int64(GOLDEN)))

    def permutations(self, n: int) -> torch.Tensor:
        """Return a random permutation of range(n) per seed, (seeds, n) int64.

        It sorts the upper halves of ``n`` words.
        """
        return _shift_right(self.words(n), 32).argsort(dim=1, stable=True)


def uniform_bits(dtype: torch.dtype) -> int:
    """Bits of a word that become a uniform number: as many as the type has digits."""
    return 1 - int(math.log2(torch.finfo(dtype).eps))


def to_uniform(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Uniform numbers in [0, 1), one per word, at the full precision of the type."""
    n_bits = uniform_bits(dtype)
    return _shift_right(words, 64 - n_bits).to(dtype).mul_(2.0**-n_bits)


def to_normal(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Standard normal numbers, two per pair of words [Box & Muller 1958].

    words : (..., n), n even
    """
    radius, angle = to_uniform(words, dtype).unflatten(-1, (-1, 2)).unbind(-1)
    radius = radius.neg().log1p_().mul_(-2).sqrt_()
    angle = angle * (2 * math.pi)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1).flatten(-2)


def hashed_uniform(seed: int, sequence: int, positions: np.ndarray) -> np.ndarray:
    """Uniform numbers in [0, 1), (positions,): functions of seed and position."""
    state = _finalise(_finalise(torch.tensor([seed])) + sequence)
    words = torch.as_tensor(positions, dtype=torch.int64) * _as_int64(GOLDEN)
    return to_uniform(_finalise(state + words), torch.float64).numpy()


def _as_int64(word: int) -> int:
    """The int64 with the same bits."""
    return word - (1 << 64) if word >> 63 else word


def _shift_right(words: torch.Tensor, n_bits: int) -> torch.Tensor:
    """Logical right shift, into a new tensor."""
    return (words >> n_bits).bitwise_and_((1 << (64 - n_bits)) - 1)


def _finalise(words: torch.Tensor) -> torch.Tensor:
    """Finaliser of SplitMix64, a bijection; in place."""
    words.bitwise_xor_(_shift_right(words, SHIFT_1)).mul_(_as_int64(MULTIPLIER_1))
    words.bitwise_xor_(_shift_right(words, SHIFT_2)).mul_(_as_int64(MULTIPLIER_2))
    return words.bitwise_xor_(_shift_right(words, SHIFT_3))


# ---- random numbers of training steps

# Epochs whose generator seeds are generated at once.
EPOCHS_PER_BLOCK = 64
# Words (8 bytes, four 16-bit variables) that are generated at once for several steps.
# The CPU value keeps them in a core's cache; the GPU value keeps the GPU busy.
_WORDS_AT_ONCE = 1 << 16
_WORDS_AT_ONCE_ON_A_GPU = 1 << 21


def epoch_seeds(seeds: Sequence[int], block: int) -> np.ndarray:
    """Seeds of the sequences of a block of epochs, (epochs, 2, seeds) uint64.

    The first seeds the words, the second the order of the rows.
    """
    n = 2 * EPOCHS_PER_BLOCK
    words = [philox(int(seed), EPOCH, block).random_raw(n) for seed in seeds]
    return np.ascontiguousarray(np.stack(words, axis=1).reshape(-1, 2, len(seeds)))


class TrainingRandom:
    """Random numbers per row, one training step after the other.

    Each epoch of a seed is a separate sequence with its 64-bit seeds.

    Parameters
    ----------
    seeds : ndarray of shape (members,), int
    device, dtype
        Device and type of the numbers.
    """

    def __init__(self, seeds: np.ndarray, device: torch.device, dtype: torch.dtype):
        distinct, seed_index = np.unique(seeds, return_inverse=True)
        self.device, self.dtype = device, dtype
        self._seeds = [int(s) for s in distinct]
        self._seed_index: torch.Tensor | None = None
        if 1 < len(distinct) and not np.array_equal(seed_index, np.arange(len(seeds))):
            self._seed_index = torch.as_tensor(seed_index, device=device)
        n_streams = len(distinct) if self._seed_index is None else len(seeds)
        on_cpu = device.type == "cpu"
        at_once = _WORDS_AT_ONCE if on_cpu else _WORDS_AT_ONCE_ON_A_GPU
        self._orders = SplitMix(device)
        self._words = _WordStock(SplitMix(device), at_once // n_streams)
        self._epochs_prepared: int | None = None
        # By request, for the generated steps: the values, or integers that bernoulli
        # compares with thresholds that differ between members.
        self._values: dict[int, torch.Tensor] = {}
        self._shared_integers: dict[int, torch.Tensor] = {}
        self._thresholds: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}

    def start_epoch(self, epoch: int, n_steps: int = 1) -> None:
        """Start the stream of an epoch, and its first step.

        Each epoch is a separate stream, so training can be resumed at any epoch.
        """
        block, position = divmod(epoch, EPOCHS_PER_BLOCK)
        if block != self._epochs_prepared:
            self._prepare(block)
        self._orders.start(position)
        self._words.streams.start(position)
        self._steps_left, self._n_drawn, self._step = n_steps, 0, 0
        self._start_step()

    def next_step(self) -> None:
        """Start the next step of the epoch."""
        self._steps_left -= 1
        self._step += 1
        self._start_step()

    def permutations(self, n: int) -> torch.Tensor:
        """A random permutation of range(n) per member, (members or 1, n), int64."""
        return self._spread(self._orders.permutations(n))

    def order(self, n_rows: np.ndarray, n_batches: int) -> torch.Tensor:
        """Row indices of the batches of an epoch, (members or 1, rows).

        The batches have equal sizes: the last is filled up from the start of the order.

        n_rows : (members,), all equal
        """
        n = int(n_rows[0])
        if n_batches == 1:
            return torch.arange(n, device=self.device).unsqueeze(0)
        order = self.permutations(n)
        missing = -n % n_batches
        return torch.cat([order, order[:, :missing]], dim=1)

    @property
    def shared_by_rows(self) -> "TrainingRandom":
        """The source of numbers that are not per row: this one."""
        return self

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (members or 1, *shape).

        Random integers below a threshold give zeros. The integers of several steps are
        compared at once, in place. If members with different probabilities share them,
        they are kept and compared step by step.
        """
        request = self._request
        self._request += 1
        masks = self._values.get(request)
        if masks is not None:
            return masks[self._step]
        threshold = self._cached_threshold(probability, len(shape))
        if request not in self._shared_integers:
            integers = self._integers_16_bit(request, shape)
            if integers.shape[1] >= len(threshold):
                self._values[request] = integers.ge_(threshold)
                return integers[self._step]
            self._shared_integers[request] = integers
        integers = self._shared_integers[request][self._step]
        values = integers.new_empty(len(threshold), *shape)
        return torch.ge(integers, threshold, out=values)

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (members or 1, *shape)."""
        return self._from_words(to_normal, shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (members or 1, *shape)."""
        return self._from_words(to_uniform, shape)

    def _start_step(self) -> None:
        """Start a step; generate words for the next steps if none are left."""
        self._request = 0
        if self._step == self._n_drawn:
            self._values.clear()
            self._shared_integers.clear()
            self._step = 0
            self._n_drawn = self._words.draw(self._steps_left)

    def _prepare(self, block: int) -> None:
        """Seed the sequences of a block of epochs: of the words, and of the orders."""
        seeds = epoch_seeds(self._seeds, block)
        self._words.streams.prepare(seeds[:, 0])
        self._orders.prepare(seeds[:, 1])
        self._epochs_prepared = block

    def _from_words(self, transform: Callable, shape: tuple[int, ...]) -> torch.Tensor:
        """Numbers computed from words by ``transform``, (members or 1, *shape)."""
        request, n = self._request, math.prod(shape)
        self._request += 1
        if request not in self._values:
            words = self._words.for_request(request, n + n % 2)
            values = self._spread(transform(words, self.dtype)[..., :n]).transpose(0, 1)
            self._values[request] = values.contiguous().unflatten(2, shape)
        return self._values[request][self._step]

    def _integers_16_bit(self, request: int, shape: tuple[int, ...]) -> torch.Tensor:
        """16-bit integers for the generated steps, (steps, members or 1, *shape).

        They are floats, so that comparing them in place takes one pass over memory.
        """
        words = self._words.for_request(request, -(-math.prod(shape) // 4))
        bits = words.view(torch.int16)[..., : math.prod(shape)]
        integers = self._spread(bits).transpose(0, 1).to(self.dtype)
        return integers.contiguous().unflatten(2, shape)

    def _spread(self, values: torch.Tensor) -> torch.Tensor:
        """Expand from distinct seeds to members; a single seed stays one row."""
        if self._seed_index is None:
            return values
        return values.index_select(0, self._seed_index)

    def _cached_threshold(self, probability: torch.Tensor, n_axes: int) -> torch.Tensor:
        """Threshold of a probability, (members or 1, 1, ...); 1 if all members agree.

        The cache also keeps the probability tensor, so that its id is not reused.
        """
        key = id(probability), n_axes
        if key not in self._thresholds:
            threshold = threshold_of(probability).to(self.dtype)
            if bool((threshold == threshold[0]).all()):
                threshold = threshold[:1]
            threshold = threshold.view(-1, *(1,) * n_axes)
            self._thresholds[key] = (probability, threshold)
        return self._thresholds[key][1]


class _WordStock:
    """Words of every seed for the requests of several steps.

    A seed's words of an epoch are one sequence. Every step makes the same requests, so
    the positions of their words are known after the first step. The words of several
    steps can then be generated at once, which is faster for small networks. They are
    the same words as without this.

    Parameters
    ----------
    streams : SplitMix
    at_once : int
        Maximal number of words per seed in memory.
    """

    def __init__(self, streams: SplitMix, at_once: int):
        self.streams, self._at_once = streams, at_once
        # End positions of the requests of a step; complete after the first step.
        self._ends = [0]
        self._recording = self._ends_are_known = False

    def draw(self, n_steps: int) -> int:
        """Generate words for up to ``n_steps`` steps; return for how many.

        After the last step of an epoch, ``n_steps`` is 0 and nothing is generated.
        """
        per_step = self._ends[-1]
        self._ends_are_known = n_steps > 0 and per_step > 0
        self._recording = n_steps > 0 and per_step == 0
        if not self._ends_are_known:
            return 1
        n_steps = min(n_steps, max(1, self._at_once // per_step))
        words = self.streams.words(n_steps * per_step)
        self._stock = words.unflatten(1, (n_steps, per_step))
        return n_steps

    def for_request(self, request: int, n: int) -> torch.Tensor:
        """Words of a request for the generated steps, (seeds, steps, n), int64."""
        if self._ends_are_known:
            start, end = self._ends[request : request + 2]
            return self._stock[..., start:end]
        if self._recording:
            self._ends.append(self._ends[-1] + n)
        return self.streams.words(n).unsqueeze(1)
