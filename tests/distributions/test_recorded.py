"""What is recorded of latent values: moments, probabilities, quantiles and samples.

Expected values come from y = ``from_latent(z)`` on a fine grid of z. float64; all axes
have different sizes.
"""

from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.mixtures import GaussianMixtures, JoinedDraws
from skbayesnn._distributions.recorded import (
    Latents,
    Recorded,
    TargetSpace,
    is_space,
    recorded,
)
from skbayesnn._likelihoods.student_t import StudentTs
from tests.helpers.checks import Checks

DRAWS, ROWS, TARGETS, KINDS = 3, 4, 2, 5
INF = np.inf
# Pairs of spaces of the two targets. The edges of a scale are within its bounds.
SPACES = {
    "plain, and a floor": (
        TargetSpace(),
        TargetSpace.bounded("identity", -0.3, INF),
    ),
    "a cap, and both": (
        TargetSpace.bounded("identity", -INF, 0.7),
        TargetSpace.bounded("identity", -0.3, 0.5),
    ),
    "log, with an edge": (
        TargetSpace.bounded("log", 0.0, INF),
        TargetSpace("log", 0.0, INF, 0.4, INF),
    ),
    "log from -1, with a cap": (
        TargetSpace.bounded("log", -1.0, INF),
        TargetSpace("log", 0.0, 2.5, 0.4, 2.2),
    ),
    "logit, with edges": (
        TargetSpace.bounded("logit", 0.0, 2.0),
        TargetSpace("logit", -1.0, 2.0, -0.8, 1.9),
    ),
    "zeros of positive y, none": (
        TargetSpace.bounded("log", 0.0, INF, point=0.0),
        TargetSpace("log", 0.0, INF, 0.3, INF),
    ),
    "more at a floor, at a cap": (
        TargetSpace.bounded("identity", 0.0, INF, point=0.0),
        TargetSpace.bounded("identity", -INF, 0.7, point=0.7),
    ),
    "knots, with a cap": (
        TargetSpace.bounded(
            "log", 0.0, INF, top=3.0, knots=((-1.0, 0.0, 1.0), (-0.8, 0.3, 0.9))
        ),
        TargetSpace(
            "log",
            -1.0,
            2.5,
            -0.9,
            2.2,
            knots=((-3.0, -1.0, 0.3, 0.9, 2.0), (-2.0, -1.0, 0.0, 0.6, 1.1)),
        ),
    ),
    "a point within": (
        TargetSpace(point=0.2),
        TargetSpace.bounded("logit", 0.0, 1.0, point=0.5),
    ),
}
parametrize_spaces = pytest.mark.parametrize("spaces", SPACES.values(), ids=SPACES)


def latents(random, kind="normal"):
    """Latent distributions of y between about -2 and 4."""
    shape = DRAWS, ROWS, TARGETS
    mean, variance = random.normal(0.2, 0.7, shape), random.uniform(0.2, 0.6, shape)
    if kind == "normal":
        return Gaussians(mean, variance)
    if kind == "t":
        return StudentTs(mean, np.sqrt(variance), np.full(shape, 12.0))
    weight = random.dirichlet(np.ones(KINDS), size=shape)
    return GaussianMixtures(
        weight,
        mean[..., None] + random.normal(0, 0.3, (*shape, KINDS)),
        np.sqrt(random.uniform(0.2, 0.6, (*shape, KINDS))),
    )


def distributions(spaces, seed, kind="normal"):
    """The distributions of y, with a point mass where a space has one."""
    random = np.random.default_rng(seed)
    probability = random.uniform(0.1, 0.5, (DRAWS, ROWS, TARGETS))
    has_point = [space.point is not None for space in spaces]
    return Recorded(
        latents(random, kind),
        spaces,
        probability * has_point if any(has_point) else None,
    )


# Number of nodes of z, within 8 standard deviations of the mean.
N_NODES = 20_001


def grid_of_z(components, n=N_NODES):
    """Nodes of z and their probabilities, (nodes, draws, rows, targets)."""
    latent = components.latent
    u = np.linspace(-8, 8, n)
    z = latent.mean + np.multiply.outer(u, np.sqrt(latent.variance))
    # Every node is a row.
    flat = np.moveaxis(z, 0, 2).reshape(DRAWS, ROWS * n, TARGETS)
    density = [
        np.exp(
            latent.draws([d])
            .rows(np.repeat(np.arange(ROWS), n))
            .log_density_per_target(flat[d])[0]
        )
        for d in range(DRAWS)
    ]
    density = np.moveaxis(np.reshape(density, (DRAWS, ROWS, n, TARGETS)), 2, 0)
    return z, density * np.gradient(z, axis=0)


def y_of_z(components, z):
    """What is recorded, in the shape of z."""
    columns = [s.from_latent(z[..., j]) for j, s in enumerate(components.spaces)]
    return np.stack(columns, axis=-1)


def points_of(components):
    """Value and probability of the point masses."""
    values = [0.0 if s.point is None else s.point for s in components.spaces]
    probability = components.probability
    return np.array(values), 0.0 if probability is None else probability


def values_of_y(spaces, random, n_rows=ROWS):
    """Values within and outside of the bounds, at them and at the point."""
    columns = []
    for space in spaces:
        values = random.uniform(-1.5, 3, size=n_rows)
        special = [v for v in (space.point, space.low, space.high) if v is not None]
        special = [v for v in special if np.isfinite(v)][:n_rows]
        values[: len(special)] = special
        columns.append(random.permutation(values))
    return np.stack(columns, axis=1)


# ---- moments


@pytest.mark.parametrize("kind", ["normal", "mixture"])
@parametrize_spaces
def test_moments_equal_sums_over_a_grid(spaces, kind, seed):
    components = distributions(spaces, seed, kind)
    z, mass = grid_of_z(components)
    y = y_of_z(components, z)
    point, probability = points_of(components)
    first, second = (
        (1 - probability) * (mass * y**power).sum(0) + probability * point**power
        for power in (1, 2)
    )
    # The grid has an error of half a node's mass at a jump from an edge to a bound.
    np.testing.assert_allclose(components.mean, first, rtol=1e-3, atol=1e-3)
    variance = second - first**2
    np.testing.assert_allclose(components.variance, variance, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["t", "mixture"])
def test_moments_by_nodes(kind, seed):
    """Nodes of the distributions of z; a kink in y costs some of their accuracy."""
    spaces = TargetSpace.bounded("identity", -0.3, 0.5), TargetSpace(point=0.2)
    components = distributions(spaces, seed, kind)
    y, weight = components.nodes(64)
    weight = np.broadcast_to(weight, y.shape)
    np.testing.assert_allclose(weight.sum(0), 1, rtol=1e-9)
    np.testing.assert_allclose((weight * y).sum(0), components.mean, atol=0.02)


# ---- probabilities


@parametrize_spaces
def test_density_and_point_masses_sum_to_the_cdf(spaces, seed):
    """Up to every y, and in total to 1."""
    components = distributions(spaces, seed)
    z, _ = grid_of_z(components, 4001)
    y = y_of_z(components, z)
    with Checks() as check:
        for target, space in enumerate(spaces):
            for draw, row in ((0, 1), (2, 3)):
                with check(f"target {target}, draw {draw}, row {row}"):
                    _assert_cdf(
                        components.draws([draw]).rows([row]).targets([target]),
                        space,
                        np.unique(y[:, draw, row, target]),
                    )


def _assert_cdf(one, space, y):
    is_atom = np.isin(y, [space.low, space.high, space.point])
    smooth, zeros = y[~is_atom], np.zeros(len(y), int)
    at = np.array([v for v in (space.low, space.high, space.point) if v is not None])
    at = np.unique(at[np.isfinite(at)])
    density = one.rows(zeros[: len(smooth)]).log_density_per_target(smooth[:, None])
    density = np.exp(density)[0, :, 0]
    steps = 0.5 * (density[1:] + density[:-1]) * np.diff(smooth)
    below = np.concatenate([[0.0], np.cumsum(steps)])
    mass = one.rows(zeros[: len(at)]).log_density_per_target(at[:, None])
    mass = np.exp(mass)[0, :, 0]
    atoms_below = (mass * (at <= smooth[:, None])).sum(1)
    cdf = one.rows(zeros[: len(smooth)]).cdf(smooth[:, None])[0, :, 0]
    # A node of 4001 has up to 2e-3 of the probability; two ends of the grid lack it.
    np.testing.assert_allclose(cdf, below + atoms_below, rtol=0, atol=4e-3)
    assert below[-1] + mass.sum() == pytest.approx(1, abs=4e-3)
    np.testing.assert_allclose(one.cdf(np.full((1, 1), -50.0)), 0, atol=1e-12)
    np.testing.assert_allclose(one.cdf(np.full((1, 1), 5000.0)), 1, rtol=1e-3)


@pytest.mark.parametrize("kind", ["normal", "mixture", "t"])
@parametrize_spaces
def test_log_probability_is_the_difference_of_cdfs(spaces, kind, seed):
    random = np.random.default_rng([seed, 1])
    components = distributions(spaces, seed, kind)
    y = values_of_y(spaces, random)
    below = y - random.uniform(0.1, 0.5, size=y.shape)
    for low, high in ((below, y), (y, y + 0.3), (np.full_like(y, -INF), y)):
        expected = components.cdf(high) - components.cdf(low)
        actual = np.exp(components.log_probability(low, high))
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@parametrize_spaces
def test_nothing_is_outside_of_the_bounds(spaces, seed):
    components = distributions(spaces, seed)
    low, high = components.support()
    shape = ROWS, TARGETS
    below = np.broadcast_to(np.where(np.isfinite(low), low - 1e-9, -INF), shape)
    np.testing.assert_array_equal(components.cdf(below), 0)
    top = np.broadcast_to(np.where(np.isfinite(high), high, INF), shape)
    np.testing.assert_array_equal(components.cdf(top), 1)
    for level in (1e-9, 0.4, 1 - 1e-9):
        levels = np.full(shape, level)
        for y in (components.quantile(levels), components.mixture_quantile(levels)):
            assert ((low <= y) & (y <= high)).all()
    outside = components.log_density_per_target(np.where(np.isneginf(below), 0, below))
    assert (outside[..., np.isfinite(low)] == -INF).all()


def test_values_between_an_edge_and_its_bound_count_as_the_bound(seed):
    """They would be recorded there, so that their log density is finite."""
    spaces = SPACES["logit, with edges"][1], SPACES["zeros of positive y, none"][1]
    components = distributions(spaces, seed)
    at_bound, between, outside = (
        components.log_density_per_target(np.tile(y, (ROWS, 1)))
        for y in ([-1.0, 0.0], [-0.9, 0.2], [-1.1, -0.1])
    )
    np.testing.assert_array_equal(between, at_bound)
    assert np.isfinite(between).all()
    assert (outside == -INF).all()


def test_probability_in_the_far_tail(seed):
    """Ten standard deviations away, where differences of cdfs are 0."""
    space = TargetSpace.bounded("log", 0.0, INF)
    components = distributions((space, space), seed)
    latent = components.latent
    z = (latent.mean + 10 * np.sqrt(latent.variance)).max(0)
    actual = components.log_probability(np.exp(z), np.exp(z + 0.1))
    np.testing.assert_allclose(actual, latent.log_probability(z, z + 0.1), rtol=1e-6)
    assert np.isfinite(actual).all()


def test_stored_fields_of_a_space():
    """A file may have any value."""
    for space in [space for pair in SPACES.values() for space in pair]:
        assert is_space(asdict(space))
    logit = asdict(TargetSpace.bounded("logit", 0.0, 1.0, point=0.0))
    for field, value in [
        ("scale", "sqrt"),
        ("low", 2.0),
        ("low", -INF),
        ("high", INF),
        ("high", np.nan),
        ("low_edge", -1.0),
        ("high_edge", "1"),
        ("point", np.nan),
        ("knots", ((0.0, 1.0), (0.0, 1.0))),
        ("scale", "sqrt"),
        ("other", 1.0),
    ]:
        assert not is_space(logit | {field: value}), (field, value)
    log = asdict(TargetSpace.bounded("log", 0.0, INF, top=3.0))
    for knots, is_valid in [
        (((0.0, 1.0, 2.0), (0.0, 1.0, 2.0)), True),
        (((0.0, 1.2, 2.0), (0.0, 1.0, 2.0)), False),
        (((0.0, 1.0), (1.0, 0.0)), False),
        (((0.0, INF), (0.0, 1.0)), False),
        (((0.0, 1.0), (0.0,)), False),
        (((0.0,), (0.0,)), False),
        ((0.0, 1.0), False),
        ("01", False),
    ]:
        assert is_space(log | {"knots": knots}) == is_valid, knots


# ---- quantiles and samples


LEVELS = [1e-3, 0.05, 0.3, 0.5, 0.77, 0.999]


@parametrize_spaces
def test_quantile_is_the_smallest_y_that_reaches_the_level(spaces, seed):
    components = distributions(spaces, seed)
    with Checks() as check:
        for level in LEVELS:
            with check(level):
                levels = np.full((ROWS, TARGETS), level)
                y = components.mixture_quantile(levels)
                _assert_reaches(components.mixture_cdf, y, level)
                for d, y in enumerate(components.quantile(levels)):
                    draw = components.draws([d])
                    _assert_reaches(draw.mixture_cdf, y, level)
                    alone = draw.mixture_quantile(levels)
                    np.testing.assert_allclose(alone, y, rtol=1e-6, atol=1e-8)


def _assert_reaches(cdf, y, level):
    """The cdf is at least the level at y, but not below y; y is rounded to 1e-9."""
    assert (cdf(y + 1e-9) >= level - 1e-7).all()
    assert (cdf(y - 1e-7) <= level + 1e-5).all()


@parametrize_spaces
def test_fast_quantiles_nearly_reach_their_levels(spaces, seed):
    """A draw has 334 quantiles, the largest weight is 1.5 / 334: F is off by one."""
    components = distributions(spaces, seed)
    levels = np.array([0.003, 0.2, 0.5, 0.8, 0.997])
    error = 1.5 / 334 + 1e-9
    for level, y in zip(levels, components.fast_quantiles(levels), strict=True):
        # Values between two quantiles are interpolated; the next ones are near.
        slack = 1e-6 * (1 + abs(y))
        assert (components.mixture_cdf(y + slack) >= level - error).all()
        assert (components.mixture_cdf(y - slack) <= level + error).all()


@parametrize_spaces
def test_samples_have_the_mean_and_the_point_masses(spaces, seed):
    times = 20_000
    components = distributions(spaces, seed)
    samples = components.repeated(times).sample(np.random.default_rng([seed, 2]))
    samples = samples.reshape(DRAWS, times, ROWS, TARGETS)
    error = np.sqrt(components.variance / times)
    # Of 24 means; a log-normal mean is skewed.
    assert (np.abs(samples.mean(1) - components.mean) < 6 * error).all()
    y = values_of_y(spaces, np.random.default_rng([seed, 3]))
    share = components.cdf(y)
    error = np.sqrt(share * (1 - share) / times)
    difference = np.abs((samples <= y).mean(1) - share)
    assert (difference <= 6 * error + 5 / times).all()


@parametrize_spaces
def test_crps_equals_its_integral(spaces, seed):
    """Integral of (F(t) - 1[y <= t])^2; the score uses 1,000 quantiles."""
    components = distributions(spaces, seed)
    y = values_of_y(spaces, np.random.default_rng([seed, 4]))
    low, high = components.support()
    y = np.clip(y, low, high)
    t = np.linspace(-8, 40, 20_001)
    expected = np.zeros_like(y)
    for target in range(TARGETS):
        one = components.targets([target])
        for row in range(ROWS):
            repeated = one.rows(np.full(len(t), row))
            excess = repeated.mixture_cdf(t[:, None])[:, 0] - (y[row, target] <= t)
            expected[row, target] = np.square(excess).sum() * (t[1] - t[0])
    # Half a step of the grid at each of two jumps.
    np.testing.assert_allclose(components.mixture_crps(y), expected, atol=4e-3)


# ---- draws, rows and targets


def _agree(actual, expected, y):
    np.testing.assert_array_equal(actual.mean, expected.mean)
    np.testing.assert_array_equal(actual.variance, expected.variance)
    np.testing.assert_array_equal(actual.cdf(y), expected.cdf(y))


@parametrize_spaces
def test_parts_are_selected_and_concatenated(spaces, seed):
    whole = distributions(spaces, seed)
    y = values_of_y(spaces, np.random.default_rng([seed, 5]))
    for axis, select, n in (
        (0, whole.draws, DRAWS),
        (1, whole.rows, ROWS),
        (2, whole.targets, TARGETS),
    ):
        parts = [select(slice(0, 1)), select(slice(1, n))]
        _agree(Recorded.concatenated(parts, axis=axis), whole, y)
        part_y = {0: y, 1: y[1:], 2: y[:, 1:]}[axis]
        expected = whole.cdf(y)[(slice(None),) * axis + (slice(1, None),)]
        np.testing.assert_array_equal(parts[1].cdf(part_y), expected)
    _agree(
        Recorded.collected([whole.draws([d]) for d in range(DRAWS)], DRAWS), whole, y
    )
    order = whole.draws([2, 0]).rows([3, 1, 1])
    np.testing.assert_array_equal(order.mean, whole.mean[[2, 0]][:, [3, 1, 1]])
    assert whole.targets([1]).spaces == spaces[1:]


@parametrize_spaces
def test_joined_with_normal_draws(spaces, seed):
    """As candidates of a stack: the mixture of both."""
    ours, normal = distributions(spaces, seed), latents(np.random.default_rng(seed))
    joined = JoinedDraws.concatenated([JoinedDraws.of(part) for part in (ours, normal)])
    y = values_of_y(spaces, np.random.default_rng([seed, 6]))
    np.testing.assert_array_equal(joined.mean, np.concatenate([ours.mean, normal.mean]))
    both = (ours.mixture_cdf(y) + normal.mixture_cdf(y)) / 2
    np.testing.assert_allclose(joined.mixture_cdf(y), both, rtol=1e-9, atol=1e-9)
    for level in LEVELS:
        quantile = joined.mixture_quantile(level)
        assert (joined.mixture_cdf(quantile + 1e-6) >= level - 1e-6).all()
        assert (joined.mixture_cdf(quantile - 1e-6) <= level + 1e-4).all()
    crps = joined.mixture_crps(y)
    assert np.isfinite(crps).all()
    samples = joined.repeated(2000).sample(np.random.default_rng([seed, 7])).mean(0)
    error = np.sqrt((joined.variance.mean(0) + joined.mean.var(0)) / (4000 * DRAWS))
    assert (np.abs(samples - joined.mean.mean(0)) < 6 * error).all()


# ---- spread, and what a network returns


@parametrize_spaces
def test_spread_about_a_centre(spaces, seed):
    """The latent values spread; bounds and point masses stay."""
    components = distributions(spaces, seed)
    centre = components.latent.mean.mean(0)
    y = values_of_y(spaces, np.random.default_rng([seed, 8]))
    one = np.ones(TARGETS)
    np.testing.assert_allclose(
        components.scaled_about(centre, one).cdf(y), components.cdf(y), rtol=1e-9
    )
    spread = components.scaled_about(centre, np.array([2.0, 0.5]))
    assert spread.spaces == spaces
    ratio = spread.latent.variance / components.latent.variance
    np.testing.assert_allclose(ratio, np.broadcast_to([4, 0.25], ratio.shape))
    np.testing.assert_array_equal(spread._probability, components._probability)
    assert not components.is_location_scale
    with pytest.raises(TypeError, match="cannot be shifted"):
        components.rescaled(one, one)


def test_recorded_of_latents(seed):
    """The probability of a network is used if a target has a point mass."""
    random = np.random.default_rng(seed)
    normal, probability = latents(random), random.random((DRAWS, ROWS, TARGETS))
    found = Latents(normal.mean, normal.variance, probability)
    y = random.normal(size=(ROWS, TARGETS))
    plain = recorded(found, [TargetSpace()] * TARGETS)
    np.testing.assert_allclose(plain.cdf(y), normal.cdf(y), rtol=1e-12)
    pointed = recorded(found, [TargetSpace(point=5.0)] * TARGETS)
    np.testing.assert_allclose(pointed.cdf(y), (1 - probability) * normal.cdf(y))
    at_point = pointed.log_density_per_target(np.full_like(y, 5.0))
    assert (np.exp(at_point) >= probability * (1 - 1e-12)).all()


@pytest.mark.parametrize("width", [1e-4, 1.5e-6, 1e-9, 1e-14])
def test_log_probability_of_narrow_intervals(width):
    """Density times width: exact up to the square of the width, and to rounding."""
    low = np.array([[-6.0], [0.3], [5.0]])
    high = low + width
    mean, variance = np.zeros((1, 3, 1)), np.full((1, 3, 1), 4.0)
    actual = Gaussians(mean, variance).log_probability(low, high)[0]
    expected = stats.norm.logpdf((low + high) / 2, scale=2) + np.log(high - low)
    np.testing.assert_allclose(actual, expected, atol=1e-7, rtol=0)
