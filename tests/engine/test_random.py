"""Random numbers are a function of (seed, place), not of the other members."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm, uniform

from skbayesnn._engine import random, training_random
from skbayesnn._engine.random import DrawRandom, anchor_normal, initial_normal, philox
from skbayesnn._engine.training_random import TrainingRandom

ROWS, UNITS = 5, 3
CPU = torch.device("cpu")
F64 = torch.float64


def _p(value, n=1):
    return torch.full((n,), value, dtype=F64)


def _training(seeds, epoch=0, device=CPU, dtype=F64):
    source = TrainingRandom(np.asarray(seeds), device, dtype)
    source.start_epoch(epoch)
    return source


def _requests(source, n_members):
    """Requests of a step: the order of the rows, then layer by layer."""
    keep = torch.linspace(0.3, 0.9, n_members, dtype=F64).to(source.device)
    other = torch.linspace(0.8, 0.4, n_members, dtype=F64).to(source.device)
    return [
        source.permutations(11).expand(n_members, -1),
        source.bernoulli(keep, ROWS, UNITS).expand(n_members, -1, -1),
        source.normal(ROWS, UNITS).expand(n_members, -1, -1),
        source.bernoulli(other, ROWS, UNITS + 1).expand(n_members, -1, -1),
        source.uniform(ROWS, UNITS).expand(n_members, -1, -1),
        source.bernoulli(keep, ROWS, UNITS).expand(n_members, -1, -1),
    ]


def _one(source, i, n_members):
    """The same requests of a member alone, with its own probabilities."""
    keep = torch.linspace(0.3, 0.9, n_members, dtype=F64)[i : i + 1].to(source.device)
    other = torch.linspace(0.8, 0.4, n_members, dtype=F64)[i : i + 1].to(source.device)
    return [
        source.permutations(11),
        source.bernoulli(keep, ROWS, UNITS),
        source.normal(ROWS, UNITS),
        source.bernoulli(other, ROWS, UNITS + 1),
        source.uniform(ROWS, UNITS),
        source.bernoulli(keep, ROWS, UNITS),
    ]


@pytest.mark.parametrize("pattern", [[0, 1, 2, 3], [3, 0, 3, 1], [2, 2, 2, 2]], ids=str)
def test_member_alone_has_the_noise_it_has_among_others(seed, pattern, device):
    seeds = seed + np.array(pattern)
    together = _requests(_training(seeds, device=device), len(seeds))
    for i in range(len(seeds)):
        alone = _one(_training(seeds[i : i + 1], device=device), i, len(seeds))
        for of_all, of_one in zip(together, alone, strict=True):
            assert torch.equal(of_all[i], of_one[0])


def test_members_of_one_seed_share_their_noise(seed):
    """Common random numbers, at different probabilities too: masks are nested."""
    source = _training([seed + 1, seed, seed + 1])
    order = source.permutations(11)
    assert torch.equal(order[0], order[2])
    mask = source.bernoulli(torch.tensor([0.2, 0.5, 0.7], dtype=F64), 50, UNITS)
    assert (mask[0] <= mask[2]).all()
    normal = source.normal(ROWS, UNITS)
    assert torch.equal(normal[0], normal[2])
    assert not torch.equal(normal[0], normal[1])
    number = source.uniform(ROWS, UNITS)
    assert torch.equal(number[0], number[2])
    assert not torch.equal(number[0], number[1])


def test_a_seed_of_all_members_is_generated_once(seed):
    source = _training([seed, seed, seed])
    assert source.permutations(11).shape == (1, 11)
    assert source.bernoulli(_p(0.5, 3), ROWS, UNITS).shape == (1, ROWS, UNITS)
    assert source.normal(ROWS, UNITS).shape == (1, ROWS, UNITS)
    assert source.uniform(ROWS, UNITS).shape == (1, ROWS, UNITS)


def test_no_two_purposes_of_a_seed_share_their_numbers(seed):
    """Start values, anchors, source of the rows, and draws of the weights."""
    n, seeds = 7, np.array([seed])
    rows = np.random.Generator(philox(seed, random.ROWS)).standard_normal(n)
    parts = [rows, *(make(seeds, 0, n)[0] for make in (initial_normal, anchor_normal))]
    parts += [*DrawRandom(seeds, range(20), CPU, F64).normal(n)[:, 0].numpy()]
    numbers = np.stack(parts)
    assert len(np.unique(numbers)) == numbers.size


def test_different_seeds_epochs_and_layers_are_uncorrelated(seed):
    n = 40_000
    source = _training([seed, seed + 1])
    streams = [*source.normal(n, 1), *source.normal(n, 1)]
    streams += [*_training([seed], epoch=1).normal(n, 1)]
    streams += [torch.as_tensor(initial_normal(np.array([seed]), 0, n, 1))[0]]
    draws = DrawRandom(np.array([seed, seed + 1]), range(2), CPU, F64)
    streams += [*draws.normal(n, 1).flatten(0, 1), *draws.normal(n, 1).flatten(0, 1)]
    masks = DrawRandom(np.array([seed, seed + 1]), range(2), CPU, F64)
    for _layer in range(2):
        mask = masks.bernoulli(_p(0.5, 2), n, 1)
        streams += [*(2 * mask.flatten(0, 1) - 1)]
    mask = source.bernoulli(_p(0.5, 2), n, 1)
    streams += [*(2 * mask - 1)]
    streams += [*source.uniform(n, 1), *source.uniform(n, 1)]
    streams += [*draws.uniform(n, 1).flatten(0, 1), *draws.uniform(n, 1).flatten(0, 1)]
    correlation = np.corrcoef(torch.stack(streams).squeeze(-1).numpy())
    np.fill_diagonal(correlation, 0)
    # Six standard errors, 1 / sqrt(n) each.
    assert np.abs(correlation).max() < 6 / np.sqrt(n)


@pytest.mark.parametrize("p", [1.0, 0.99, 0.5, 0.3, 0.05, 2.0**-16])
@pytest.mark.parametrize("source", ["training", "draws"])
def test_bernoulli_frequency(seed, p, source, device):
    rows, units = 500, 403
    if source == "training":
        source = _training([seed], device=device, dtype=torch.float32)
        mask = source.bernoulli(_p(p).to(device), rows, units)
    else:
        source = DrawRandom(np.array([seed]), range(rows), device, torch.float32)
        mask = source.bernoulli(_p(p).to(device), units)
    assert mask.dtype == torch.float32
    assert ((mask == 0) | (mask == 1)).all()
    if p == 1:
        assert mask.all()
    # Six standard errors; the rounding of p to multiples of 2^-16 is far smaller.
    error = np.sqrt(p * (1 - p) / mask.numel())
    assert abs(mask.double().mean().item() - p) <= 6 * error


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_distribution(seed, kind, dtype, device):
    """Standard normal, and uniform in [0, 1): Kolmogorov and Smirnov's distance.

    `test_training_random.py` tests the numbers of the training.
    """
    draws, units = 100, 403
    source = _training([seed], device=device, dtype=dtype)
    assert getattr(source, kind)(draws, units).shape == (1, draws, units)
    source = DrawRandom(np.array([seed]), range(draws), device, dtype)
    values = getattr(source, kind)(units)
    assert values.shape == (draws, 1, units)
    assert values.dtype == dtype
    assert values.device.type == device.type
    if kind == "uniform":
        assert ((values >= 0) & (values < 1)).all()
    distribution = norm if kind == "normal" else uniform
    distance = kstest(values.flatten().double().cpu(), distribution.cdf).statistic
    # Exceeded once in 10^8 times (Massart's bound), for any seed.
    assert distance < np.sqrt(np.log(2e8) / (2 * values.numel()))


def test_values_of_requests_share_no_memory(seed):
    """A family may change its values in place without an effect on later requests."""
    source, changed = _training([seed, seed + 1]), _training([seed, seed + 1])
    for _ in range(2):
        for kind in ("normal", "uniform"):
            expected, actual = (
                getattr(n, kind)(ROWS, UNITS) for n in (source, changed)
            )
            assert torch.equal(expected, actual)
            actual.fill_(float("nan"))
        expected, actual = (n.bernoulli(_p(0.5, 2), 3) for n in (source, changed))
        assert torch.equal(expected, actual)
        actual.fill_(float("nan"))


def test_resumed_at_an_epoch_is_run_through(seed):
    seeds = seed + np.array([4, 0, 4])
    through = _training(seeds)
    for epoch in range(3):
        through.start_epoch(epoch)
        expected = _requests(through, len(seeds))
    resumed = _requests(_training(seeds, epoch=2), len(seeds))
    assert all(torch.equal(a, b) for a, b in zip(expected, resumed, strict=True))
    earlier = _requests(_training(seeds, epoch=1), len(seeds))
    assert not any(torch.equal(a, b) for a, b in zip(earlier, resumed, strict=True))


def _epochs(seeds, keep, monkeypatch, words_at_once, *, first=0, kinds=("mask",)):
    """What every request of the steps of some epochs gives, and one after each."""
    for name in ("_WORDS_AT_ONCE", "_WORDS_AT_ONCE_ON_A_GPU"):
        monkeypatch.setattr(training_random, name, words_at_once)
    source = TrainingRandom(np.asarray(seeds), CPU, F64)
    actual = []

    def request(*shape):
        for kind in kinds:
            given = (keep, *shape) if kind == "mask" else shape
            values = getattr(source, "bernoulli" if kind == "mask" else kind)(*given)
            actual.append(values.expand(len(seeds), *values.shape[1:]).clone())

    for epoch in range(first, 3):
        source.start_epoch(epoch, 4)
        actual.append(source.permutations(7).expand(len(seeds), -1).clone())
        for _ in range(4):
            for units in (UNITS, UNITS + 1):
                request(ROWS, units)
            source.next_step()
        request(ROWS)
    return actual


@pytest.mark.parametrize("pattern", [[0, 1, 2], [1, 0, 1], [2, 2, 2]], ids=str)
@pytest.mark.parametrize("same", [True, False], ids=["one p", "p of their own"])
def test_steps_drawn_at_once_are_those_drawn_one_by_one(
    seed, monkeypatch, pattern, same
):
    """However many are drawn at once: none, two of four steps, or all of them."""
    seeds = seed + np.array(pattern)
    keep = _p(0.6, 3) if same else torch.tensor([0.3, 0.6, 0.8], dtype=F64)
    kinds = ("mask", "normal", "uniform")
    # A mask of 15 or 20 variables takes 4 or 5 words; a normal or uniform number takes
    # one, and the number of words is even.
    words_of_a_step = 4 + 5 + 2 * (16 + 20)
    one_by_one = _epochs(seeds, keep, monkeypatch, 1, kinds=kinds)
    for steps in (2, 100):
        lead = 1 if pattern == [2, 2, 2] else 3
        words = steps * words_of_a_step * lead
        at_once = _epochs(seeds, keep, monkeypatch, words, kinds=kinds)
        assert all(torch.equal(a, b) for a, b in zip(one_by_one, at_once, strict=True))
    assert len({tuple(values.flatten().tolist()) for values in one_by_one}) > 20


def test_steps_drawn_at_once_can_be_resumed(seed, monkeypatch):
    keep, kinds = _p(0.5, 2), ("mask", "normal", "uniform")
    through = _epochs([seed, seed + 1], keep, monkeypatch, 1000, kinds=kinds)
    resumed = _epochs([seed, seed + 1], keep, monkeypatch, 1000, first=2, kinds=kinds)
    for expected, actual in zip(through[-len(resumed) :], resumed, strict=True):
        assert torch.equal(expected, actual)


def _layers(source, n_members):
    """Requests of a network; the sizes do not fill blocks of random words."""
    p = torch.linspace(0.3, 0.9, n_members, dtype=F64)
    return [
        source.bernoulli(p, 17),
        source.normal(2, 3),
        source.uniform(5),
        source.bernoulli(p, 3, 2),
    ]


@pytest.mark.parametrize(("first", "last"), [(0, 4), (3, 9), (8, 9)])
def test_range_of_draws_is_the_slice_of_a_longer_one(seed, first, last):
    seeds = seed + np.array([4, 0])
    long = _layers(DrawRandom(seeds, range(9), CPU, F64), 2)
    short = _layers(DrawRandom(seeds, range(first, last), CPU, F64), 2)
    for of_all, of_some in zip(long, short, strict=True):
        assert torch.equal(of_all[first:last], of_some)


def test_draws_of_a_member_do_not_depend_on_the_others(seed):
    seeds = seed + np.array([4, 0, 4, 1])
    together = _layers(DrawRandom(seeds, range(7), CPU, F64), 4)
    p = torch.linspace(0.3, 0.9, 4, dtype=F64)
    for i in range(4):
        source = DrawRandom(seeds[i : i + 1], range(7), CPU, F64)
        one = p[i : i + 1]
        alone = [source.bernoulli(one, 17), source.normal(2, 3), source.uniform(5)]
        alone += [source.bernoulli(one, 3, 2)]
        for of_all, of_one in zip(together, alone, strict=True):
            assert torch.equal(of_all[:, i : i + 1], of_one)


def test_draws_are_the_same_on_every_device(seed, device):
    seeds = seed + np.array([4, 0])
    here = DrawRandom(seeds, range(7), CPU, torch.float32)
    there = DrawRandom(seeds, range(7), device, torch.float32)
    p = torch.tensor([0.3, 0.9])
    assert torch.equal(here.bernoulli(p, 17), there.bernoulli(p.to(device), 17).cpu())
    assert torch.equal(here.normal(17), there.normal(17).cpu())
    assert torch.equal(here.uniform(17), there.uniform(17).cpu())


def test_initial_values_depend_on_the_seed_only(seed):
    seeds = seed + np.array([4, 0, 4])
    values = initial_normal(seeds, 1, 3, 2)
    assert values.shape == (3, 3, 2)
    np.testing.assert_array_equal(values[0], values[2])
    np.testing.assert_array_equal(values[1:2], initial_normal(seeds[1:2], 1, 3, 2))
    assert (values != initial_normal(seeds, 0, 3, 2)).all()
