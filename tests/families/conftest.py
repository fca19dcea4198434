"""Random sources with exact expectations, and with very many draws.

Both follow the protocol :class:`skbayesnn._families.RandomSource`, so a family cannot
distinguish them from the package's sources.
"""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import norm


class GivenRandom:
    """Returns given numbers, the same for all members.

    numbers : (n,) for lead (1,), or (draws, n) for lead (draws, 1)
    """

    def __init__(self, numbers):
        self._numbers = torch.as_tensor(numbers, dtype=torch.float64)
        self._used = 0

    @property
    def shared_by_rows(self):
        return self

    def normal(self, *shape):
        size = int(np.prod(shape))
        taken = self._numbers[..., self._used : self._used + size]
        self._used += size
        return taken.reshape(*self._numbers.shape[:-1], 1, *shape)

    uniform = normal

    def bernoulli(self, probability, *shape):
        return self.normal(*shape)

    @property
    def all_used(self):
        return self._used == self._numbers.shape[-1]


class SampledRandom:
    """Independent numbers for many draws, lead (draws, members), from one stream.

    Probabilities are not rounded as in the package's sources.
    """

    def __init__(self, random, *lead):
        self._random, self._lead = random, lead

    @property
    def shared_by_rows(self):
        return self

    def normal(self, *shape):
        return torch.as_tensor(self._random.standard_normal((*self._lead, *shape)))

    def uniform(self, *shape):
        return torch.as_tensor(self._random.random((*self._lead, *shape)))

    def bernoulli(self, probability, *shape):
        ones = (1,) * len(shape)
        return (self.uniform(*shape) < probability.view(-1, *ones)).double()


class Exact:
    """Expectations over random numbers of a family, as sums of finitely many terms."""

    source = GivenRandom

    @staticmethod
    def masks(keep, n):
        """All 2^n outcomes of n Bernoulli(keep) variables, and their probabilities.

        returns : a source of lead (2^n, 1), and an array (2^n, members)
        """
        z = np.array(list(product((0, 1), repeat=n)))
        keep = np.asarray(keep)[:, None]
        return GivenRandom(z), np.where(z[:, None], keep, 1 - keep).prod(-1)

    @staticmethod
    def nodes(n):
        """The 2^n points of Gauss and Hermite's rule, -1 and 1 for each of n normals.

        The mean over them is the expectation of every polynomial of degree up to three
        in each of the n variables, such as means, variances and normal log densities.
        """
        return GivenRandom(np.array(list(product((-1.0, 1.0), repeat=n))))

    @staticmethod
    def normal_moments(function, n):
        """Mean and covariance of an affine function of n standard normal numbers.

        function : source -> tensor (members, ...)
        returns : arrays (members, size) and (members, size, size)
        """

        def at(numbers):
            source = GivenRandom(numbers)
            values = function(source).flatten(1).numpy()
            assert source.all_used
            return values

        mean = at(np.zeros(n))
        slopes = np.stack([at(unit) - mean for unit in np.eye(n)], -1)
        somewhere = np.linspace(-1.0, 2.0, n)
        expected = mean + slopes @ somewhere
        np.testing.assert_allclose(at(somewhere), expected, rtol=1e-10, atol=1e-10)
        return mean, slopes @ slopes.transpose(0, 2, 1)

    @staticmethod
    def minus_log_prior(length_scale, weight, bias):
        """log p(0) - log p(W, b) under N(0, 1 / l^2), (..., members), by scipy."""
        std = 1 / np.asarray(length_scale)
        total = 0
        for values, axes in ((weight, (-2, -1)), (bias, (-1,))):
            density = norm(0, std.reshape(-1, *(1 for _ in axes)))
            total = total + (density.logpdf(0) - density.logpdf(values)).sum(axes)
        return total


class Sampling:
    """Expectations over a million draws, with their standard errors."""

    def __init__(self, seed):
        self._random = np.random.default_rng([seed, 8])

    def check(self, function, expected, slack=0.0, n_draws=1_000_000, chunk=20_000):
        """Compare the mean of a function of random numbers with its expectation.

        function : source -> (draws, members), a value for each draw
        expected : (members,)
        slack : error of `expected`
        n_draws : sum over all members

        Six standard errors: one false alarm in 10^8 comparisons. They must be smaller
        than a hundredth of `expected`, or the comparison would not detect errors.
        """
        expected = np.asarray(expected)
        members = len(expected)
        total, squares, n = np.zeros(members), np.zeros(members), 0
        while n * members < n_draws:
            values = np.asarray(function(SampledRandom(self._random, chunk, members)))
            assert values.shape == (chunk, members)
            # Deviations from `expected`: squares lose no digits.
            deviations = values - expected
            total += deviations.sum(0)
            squares += (deviations**2).sum(0)
            n += chunk
        mean = total / n
        error = np.sqrt((squares / n - mean**2) / n)
        assert (np.abs(mean) <= 6 * error + slack).all()
        assert (error < 0.01 * np.abs(expected)).all()


@pytest.fixture
def exact():
    return Exact


@pytest.fixture
def sampling(seed):
    return Sampling(seed)
