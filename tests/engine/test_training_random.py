"""Random words of the training and the numbers that are computed from them."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm, uniform

from skbayesnn._engine.training_random import (
    EPOCHS_PER_BLOCK,
    SplitMix,
    epoch_seeds,
    to_normal,
    to_uniform,
)

CPU = torch.device("cpu")


def _streams(seeds, device=CPU):
    """The second of two sequences, at its start."""
    streams, seeds = SplitMix(device), np.asarray(seeds, dtype=np.uint64)
    streams.prepare(np.stack([seeds + np.uint64(1_000), seeds]))
    streams.start(1)
    return streams


def _numbers(streams, name, n, *dtype):
    """Numbers by name of their distribution."""
    if name == "permutations":
        return streams.permutations(n)
    transform = {"normal": to_normal, "uniform": to_uniform}[name]
    return transform(streams.words(n + n % 2), *dtype)[:, :n]


def _split_mix(start, n):
    """The algorithm as it is printed, in Python's integers."""
    found, state, cut = [], start, (1 << 64) - 1
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) & cut
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & cut
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & cut
        found.append(z ^ (z >> 31))
    return found


def test_split_mix_is_the_published_algorithm(seed, device):
    """As in Java's SplittableRandom(1234567), and bit by bit on every device."""
    assert _split_mix(1234567, 3) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    streams = _streams([seed, seed + 1], device)
    starts = streams._states.cpu().numpy().view(np.uint64).ravel()
    words = torch.cat([streams.words(5), streams.words(2)], dim=1).cpu().numpy()
    expected = [_split_mix(int(start), 7) for start in starts]
    np.testing.assert_array_equal(words.view(np.uint64), expected)


def test_words_are_one_sequence(seed):
    """The sizes of the requests and the other seeds do not matter."""
    at_once = _streams([seed, seed + 7]).words(20)
    streams = _streams([seed, seed + 7])
    in_turn = torch.cat([streams.words(n) for n in (3, 16, 1)], dim=1)
    assert torch.equal(in_turn, at_once)
    assert torch.equal(_streams([seed + 7]).words(20)[0], at_once[1])
    assert not torch.equal(at_once[0], at_once[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["normal", "uniform"])
def test_distribution(name, dtype, seed):
    """Neighbouring seeds, several requests: Kolmogorov-Smirnov test."""
    streams = _streams(seed + np.arange(50))
    values = torch.cat([_numbers(streams, name, 401, dtype) for _ in range(3)], dim=1)
    assert values.dtype == dtype
    law = norm if name == "normal" else uniform
    distance = kstest(values.flatten().double(), law.cdf).statistic
    # Beyond this once in 10^8 times (Massart's bound), at any seed.
    assert distance < np.sqrt(np.log(2e8) / (2 * values.numel()))
    correlation = np.corrcoef(values.double().numpy())
    np.fill_diagonal(correlation, 0)
    # Seven standard errors: 1,225 pairs.
    assert np.abs(correlation).max() < 7 / np.sqrt(values.shape[1])


def test_every_bit_is_fair(seed):
    """All 64 bits of a word; masks use its four parts of 16 bits."""
    words = _streams([seed, seed + 1]).words(20_000).numpy()
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1)
    # Seven standard errors.
    assert np.abs(bits.mean(0) - 0.5).max() < 7 / (2 * np.sqrt(len(bits)))


def test_permutations_are_fair(seed):
    """Every number is equally frequent at every position."""
    orders = _streams(seed + np.arange(2_000)).permutations(5)
    assert torch.equal(orders.sort(1).values, torch.arange(5).expand(2_000, -1))
    counts = np.stack([np.bincount(place, minlength=5) for place in orders.T.numpy()])
    assert np.abs(counts - 400).max() < 7 * np.sqrt(2_000 * 0.2 * 0.8)


def test_epochs_have_distinct_seeds(seed):
    """64 bits for the words and for the orders of each epoch and network."""
    blocks = [epoch_seeds([seed, seed + 1, seed + 5], block) for block in (0, 1)]
    assert blocks[0].shape == (EPOCHS_PER_BLOCK, 2, 3)
    assert blocks[0].dtype == np.uint64
    n = 2 * EPOCHS_PER_BLOCK * 2 * 3
    assert len(np.unique(blocks)) == n
    np.testing.assert_array_equal(epoch_seeds([seed + 1], 1)[..., 0], blocks[1][..., 1])
