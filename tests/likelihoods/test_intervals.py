"""The likelihoods of intervals; their general requirements are in test_contract.py."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from skbayesnn._distributions.map_factor import log_mean_exp
from skbayesnn._distributions.recorded import TargetSpace, recorded
from skbayesnn._likelihoods import Gaussian, Heteroscedastic
from skbayesnn._likelihoods.intervals import (
    FAR,
    Intervals,
    UnequalIntervals,
    joined_intervals,
)

DRAWS, MEMBERS, ROWS, TARGETS = 5, 3, 7, 2
INF = np.inf
KINDS = [
    (kind, has_point)
    for kind in (Intervals, UnequalIntervals)
    for has_point in (False, True)
]
parametrize_kinds = pytest.mark.parametrize(
    "kind", KINDS, ids=[f"{k.name}{', point' * p}" for k, p in KINDS]
)


class Problem:
    """A likelihood, its parameters and outputs, and a row of every kind.

    Row 0 is exact, 1 and 2 have one bound, 3 and 4 are at the point mass (4 may also be
    a latent value below a bound), 5 has two bounds, and 6 is far from the mean.
    """

    def __init__(self, kind, seed):
        likelihood_class, has_point = kind
        random = np.random.default_rng(seed)
        self.likelihood = likelihood_class(TARGETS, True, has_point=has_point)
        tau = torch.as_tensor(random.uniform(0.5, 3, (MEMBERS, TARGETS)))
        ranges = np.tile(self.likelihood.statistics(np.array([[0, 0], [4, 5.0]]), 1), 3)
        statistics = torch.as_tensor(ranges.reshape(MEMBERS, -1))
        self.params = self.likelihood.init(tau, statistics)
        self.likelihood.schedule(self.params, 1.0)
        shape = DRAWS, MEMBERS, ROWS, self.likelihood.n_outputs
        self.outputs = torch.as_tensor(random.normal(size=shape))
        self.low = random.normal(size=(ROWS, TARGETS))
        self.high = self.low + random.uniform(0.1, 1, size=(ROWS, TARGETS))
        self.high[0] = self.low[0]
        self.low[1], self.high[2] = -INF, INF
        self.is_point = np.zeros((ROWS, TARGETS), bool)
        if has_point:
            self.is_point[3:5] = True
            self.high[3] = self.low[3]
            self.low[4] = -INF
        self.low[6] += 40
        self.high[6] += 40
        self.y = torch.as_tensor(joined_intervals(self.low, self.high, self.is_point))
        self.y = self.y[None]

    def scipy(self):
        """Log density of every row and target, (draws, members, rows, targets)."""
        mean, variance, probability = (
            np.asarray(v) for v in self.likelihood.components(self.params, self.outputs)
        )
        std = np.sqrt(variance)
        below, above = (self.low - mean) / std, (self.high - mean) / std
        start = np.where(below > 0, -above, below)  # in the lower tail
        end = np.where(below > 0, -below, above)
        start, end = stats.norm.logcdf(start), stats.norm.logcdf(end)
        with np.errstate(divide="ignore"):
            inside = end + np.log1p(-np.exp(start - end))
            exact = stats.norm.logpdf(below) - np.log(std)
            rest = np.where(self.low < self.high, inside, exact)
            # Only the point mass itself, without latent values.
            rest = np.where(self.is_point & (self.low == self.high), -INF, rest)
            rest = np.log1p(-probability) + rest
            with_point = np.logaddexp(np.log(probability), rest)
        return np.where(self.is_point, with_point, rest)


@pytest.fixture
def problem(kind, seed):
    return Problem(kind, seed)


@parametrize_kinds
def test_density_equals_scipy(problem):
    density = problem.likelihood.log_density(problem.params, problem.outputs, problem.y)
    np.testing.assert_allclose(density, problem.scipy().sum(-1), rtol=1e-9, atol=1e-9)


@parametrize_kinds
def test_all_kinds_of_rows_have_the_total_probability_one(problem):
    """P(z <= a) + P(a < z <= b) + P(b < z), and the point mass."""
    ends = [-FAR, -0.7, 0.4, FAR]
    total = 0.0
    flags = np.zeros((ROWS, TARGETS))
    for low, high in itertools.pairwise(ends):
        y = joined_intervals(flags + low, flags + high, flags)
        total = total + _probability(problem, y)
    if problem.likelihood.has_point:
        point = _probability(problem, joined_intervals(flags, flags, flags + 1))
        _, _, expected = problem.likelihood.components(problem.params, problem.outputs)
        np.testing.assert_allclose(point, expected[..., :1].numpy()[..., 0])
        total = total + point
    np.testing.assert_allclose(total, 1, rtol=1e-9)


def _probability(problem, y):
    """exp(-nll) of the first target; the second contains every z."""
    y = torch.as_tensor(y)[None].clone()
    everything = torch.tensor([-FAR, FAR, 0.0], dtype=torch.float64)
    y[..., 1::TARGETS] = everything
    density = problem.likelihood.log_density(problem.params, problem.outputs, y)
    if problem.likelihood.has_point:
        _, _, p = problem.likelihood.components(problem.params, problem.outputs)
        density = density - torch.log1p(-p[..., 1])
    return density.exp().numpy()


@pytest.mark.parametrize(
    ("kind", "plain"), [(Intervals, Gaussian), (UnequalIntervals, Heteroscedastic)]
)
def test_exact_rows_have_the_density_of_the_plain_likelihood(kind, plain, seed):
    problem = Problem((kind, False), seed)
    y = torch.as_tensor(problem.low.clip(-3, 3))[None]
    both = torch.cat([y, y, torch.zeros_like(y)], dim=-1)
    likelihood = plain(TARGETS, True)
    arguments = problem.params, problem.outputs
    for function in ("nll", "log_density"):
        torch.testing.assert_close(
            getattr(problem.likelihood, function)(*arguments, both),
            getattr(likelihood, function)(*arguments, y),
        )
    for value, expected in zip(
        problem.likelihood.components(*arguments)[:2],
        likelihood.components(*arguments),
        strict=True,
    ):
        torch.testing.assert_close(value, expected)


@parametrize_kinds
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_far_rows_have_finite_gradients(kind, dtype, seed):
    """40, 1e3 and 1e6 standard deviations away, narrow, and in single precision."""
    problem = Problem(kind, seed)
    params = {name: value.to(dtype) for name, value in problem.params.items()}
    outputs = problem.outputs[0].to(dtype)
    for shift, width in ((40, 0.1), (-40, 1e-6), (1e3, 1.0), (-1e3, INF), (1e6, 1e-9)):
        low = np.full((ROWS, TARGETS), float(shift))
        y = joined_intervals(low, low + width, np.zeros_like(low))
        y = torch.as_tensor(y).to(dtype)[None]
        nll, pullback = problem.likelihood.nll_vjp(params, outputs, y)
        gradients, learned = pullback(torch.ones_like(nll))
        for values in (nll, gradients, *learned.values()):
            assert values.isfinite().all(), (shift, width)


@parametrize_kinds
def test_narrow_intervals_have_the_density_times_the_width(problem):
    width = 1e-6
    zeros = np.zeros((ROWS, TARGETS))
    low = problem.low.clip(-2, 2)
    arguments = problem.params, problem.outputs
    exact, narrow = (
        problem.likelihood.log_density(
            *arguments, torch.as_tensor(joined_intervals(low, high, zeros))[None]
        )
        for high in (low, low + width)
    )
    np.testing.assert_allclose(
        narrow, exact + TARGETS * np.log(width), rtol=0, atol=1e-4
    )


@parametrize_kinds
def test_noise_on_held_out_rows(problem):
    """The log densities of the rows, at the noise that is most probable there."""
    likelihood, params = problem.likelihood, problem.params
    draws = likelihood.held_out_draws(params, problem.outputs, problem.y).numpy()
    assert draws.shape == (MEMBERS, ROWS, 6, DRAWS, TARGETS)
    weights = np.ones(ROWS)
    density, values = likelihood.fit_predictive_params(draws[1], weights)
    assert density.shape == (ROWS, TARGETS)
    shaped = {
        name: torch.as_tensor(np.tile(v, (MEMBERS, 1))) for name, v in values.items()
    }
    new = Problem.__new__(Problem)
    vars(new).update(vars(problem))
    new.params = likelihood.with_predictive_params(params, shaped)
    expected = log_mean_exp(new.scipy()[:, 1])
    # A density far below the others is clipped, because it counts as an outlier.
    usual = np.arange(ROWS) != 6
    np.testing.assert_allclose(density[usual], expected[usual], rtol=1e-6, atol=1e-6)
    assert likelihood.in_training(new.params).keys() == params.keys()


def test_noise_of_censored_rows_is_estimated_without_bias(seed):
    """Half of the rows are only known to be above 0; naive residuals are half."""
    random = np.random.default_rng(seed)
    n, std = 20_000, 1.7
    z = std * random.normal(size=(n, 1))
    likelihood = Intervals(1, False)
    params = likelihood.init(torch.ones(1, 1, dtype=torch.float64))
    outputs = torch.zeros(2, 1, n, 1, dtype=torch.float64)
    y = joined_intervals(z.clip(max=0), np.where(z > 0, INF, z), 0 * z)
    draws = likelihood.held_out_draws(params, outputs, torch.as_tensor(y)[None])
    _, values = likelihood.fit_predictive_params(draws[0].numpy(), np.ones(n))
    # The relative error of a standard deviation of n / 2 rows is 1 / sqrt(n) = 0.7 %.
    assert np.exp(0.5 * values["log_variance"]) == pytest.approx(std, rel=0.05)


def test_density_of_a_predicted_floor(seed):
    """The distribution of y, recorded with a floor, has the density of the rows."""
    problem = Problem((Intervals, True), seed)
    parts = problem.likelihood.components(problem.params, problem.outputs)
    latents = problem.likelihood.components_class(
        *(part.flatten(0, 1).numpy() for part in parts)
    )
    spaces = [TargetSpace.bounded("identity", 0.0, INF, point=0.0)] * TARGETS
    y = np.where(problem.low.clip(-2, 2) > 0.5, problem.low.clip(-2, 2), 0.0)
    at_floor = y == 0
    rows = joined_intervals(np.where(at_floor, -INF, y), y, at_floor)
    density = problem.likelihood.log_density(
        problem.params, problem.outputs, torch.as_tensor(rows)[None]
    )
    np.testing.assert_allclose(
        recorded(latents, spaces).log_density(y),
        density.flatten(0, 1),
        rtol=1e-9,
        atol=1e-9,
    )
