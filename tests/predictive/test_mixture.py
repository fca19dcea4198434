"""Recalibrated mixtures, in closed form and by numerical integration; float64.

``tests/meta`` tests mixtures through meta-estimators.
"""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm
from sklearn.preprocessing import FunctionTransformer

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.mixtures import GaussianMixtures
from skbayesnn._likelihoods.student_t import StudentTs
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._predictive.recalibration import QuantileMap

DRAWS, ROWS, TARGETS = 6, 5, 2
IDENTITY = QuantileMap(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
TRANSFORMS = {
    "none": None,
    "rising": FunctionTransformer(np.log, np.exp),
    "falling": FunctionTransformer(np.negative, np.negative),
    "falling and bent": FunctionTransformer(
        lambda y: -np.log(y), lambda target: np.exp(-target)
    ),
}


def _bent(power):
    """A map with 8 pieces near ``level ** power``."""
    level = np.linspace(0, 1, 9)
    return QuantileMap(level, level**power)


MAPS = (_bent(0.6), _bent(1.8))


@pytest.fixture(params=[1, 2], ids=["one target", "two targets"])
def plain(request, seed):
    return _mixture(seed, request.param)


def _gaussians(mean, variance, **about):
    """The predictive of Gaussian components."""
    return MixturePredictive(Gaussians(mean, variance), **about)


def _mixture(seed, targets, transform=None):
    random = np.random.default_rng([seed, targets])
    mean = 0.5 * random.normal(size=(DRAWS, ROWS, targets))
    variance = random.uniform(0.1, 0.5, size=mean.shape)
    return _gaussians(mean, variance, squeeze_targets=targets == 1, transform=transform)


def _mapped(mixture):
    return mixture.mapped(MAPS[: mixture.components.mean.shape[-1]])


def _y(mixture, seed):
    """A value for every row and target, near the median."""
    shape = mixture.components.mean.shape[1:]
    y = np.random.default_rng([seed, 9]).normal(size=shape)
    return y[:, 0] if mixture.squeeze_targets else y


def _row(mixture, row, times=1):
    """The mixture of one row, repeated n times."""
    rows = [row] * times
    return _gaussians(
        mixture.components.mean[:, rows],
        mixture.components.variance[:, rows],
        squeeze_targets=mixture.squeeze_targets,
        transform=mixture.transform,
        maps=mixture.maps,
    )


# ---- one factor


def test_scaling_spreads_draws_and_noise_about_the_mean(plain):
    factor = np.array([3.0, 0.2])[: plain.components.mean.shape[-1]]
    scaled = plain.scaled(factor)
    np.testing.assert_allclose(
        scaled.components.mean.mean(0), plain.components.mean.mean(0), rtol=1e-12
    )
    before, after = plain.uncertainty(plain.kinds), scaled.uncertainty(plain.kinds)
    per_target = factor[0] if plain.squeeze_targets else factor
    for kind in plain.kinds:
        np.testing.assert_allclose(after[kind], per_target * before[kind], rtol=1e-12)


def test_scaling_is_a_change_of_variables(plain, seed):
    """y' = m + s (y - m)."""
    factor = np.array([3.0, 0.2])[: plain.components.mean.shape[-1]]
    scaled, y = plain.scaled(factor), _y(plain, seed)
    centre = plain.components.mean.mean(0)
    moved = centre + factor * (y.reshape(centre.shape) - centre)
    moved = moved[:, 0] if plain.squeeze_targets else moved
    np.testing.assert_allclose(scaled.cdf(moved), plain.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(
        scaled.log_density(moved), plain.log_density(y) - np.log(factor).sum()
    )
    if plain.squeeze_targets:
        np.testing.assert_allclose(
            scaled.crps(moved), factor * plain.crps(y), rtol=1e-12
        )


def test_scaling_by_one_changes_nothing(plain, seed):
    same, y = plain.scaled(np.ones(plain.components.mean.shape[-1])), _y(plain, seed)
    np.testing.assert_allclose(same.log_density(y), plain.log_density(y), rtol=1e-12)
    np.testing.assert_allclose(same.quantile(0.9), plain.quantile(0.9), rtol=1e-9)


def test_bound_limits_the_shift_of_every_draw(plain):
    """Means move as without it, but at most by a number of standard deviations."""
    for factor in (0.2, 3.0):
        factor = np.full(plain.components.mean.shape[-1], factor)
        free, bounded = plain.scaled(factor), plain.scaled(factor, 0.5)
        before, after = plain.components, bounded.components
        np.testing.assert_allclose(after.variance, free.components.variance)
        most = 0.5 * np.sqrt(after.variance)
        moved, wanted = after.mean - before.mean, free.components.mean - before.mean
        within = np.abs(wanted) < most
        assert within.any() and not within.all()
        np.testing.assert_allclose(moved[within], wanted[within], atol=1e-12)
        np.testing.assert_allclose(np.abs(moved[~within]), most[~within])
        assert (moved * wanted > 0).all()
        far = plain.scaled(factor, 1e6)
        np.testing.assert_allclose(far.components.mean, free.components.mean)


@pytest.mark.parametrize("kind", ["normal", "Student's t", "two peaks"])
def test_bounded_mixture_is_a_distribution(kind, seed):
    """Density, distribution function, quantiles and moments, by sums over a grid."""
    random = np.random.default_rng(seed)
    y = np.linspace(-30, 30, 3_001)
    mean, scale = random.normal(size=DRAWS), random.uniform(0.3, 0.6, size=DRAWS)
    # One row, at every point of the grid.
    mean, scale = (np.tile(v[:, None, None], (1, len(y), 1)) for v in (mean, scale))
    components = {
        "normal": Gaussians(mean, np.square(scale)),
        "Student's t": StudentTs(mean, scale, np.full_like(mean, 30.0)),
        "two peaks": GaussianMixtures(
            np.full((*mean.shape, 2), 0.5),
            np.stack([mean - 0.2, mean + 0.3], -1),
            np.stack([scale, 2 * scale], -1),
        ),
    }[kind]
    plain = MixturePredictive(components, squeeze_targets=True)
    for factor in (0.4, 2.0):
        scaled = plain.scaled(np.array([factor]), 1.0)
        np.testing.assert_allclose(
            scaled.components.variance, factor**2 * components.variance, rtol=1e-9
        )
        share = np.exp(scaled.log_density(y)) * (y[1] - y[0])
        np.testing.assert_allclose(share.sum(), 1, rtol=1e-6)
        np.testing.assert_allclose(share @ y, scaled.mean()[0], atol=1e-6)
        variance = share @ np.square(y - scaled.mean())
        total = scaled.uncertainty(["total"])["total"]
        np.testing.assert_allclose(variance, np.square(total[0]), rtol=1e-5)
        # Half of a step's mass lies above its midpoint, up to the square of the step.
        below = np.cumsum(share) - share / 2
        np.testing.assert_allclose(scaled.cdf(y), below, atol=1e-3)
        np.testing.assert_allclose(scaled.cdf(scaled.quantile(0.05)), 0.05, rtol=1e-6)
        [log_density] = plain.densities_of_factor(y, 1.0)
        actual = log_density(np.log(factor))
        np.testing.assert_allclose(actual, scaled.log_density(y), rtol=1e-8)


def test_scaling_with_a_transform_is_in_its_units(seed):
    """For a log target the factor is a power of y divided by its median."""
    plain = _mixture(seed, 1, TRANSFORMS["rising"])
    inner = _mixture(seed, 1).scaled(np.array([2.0]))
    scaled = plain.scaled(np.array([2.0]))
    np.testing.assert_allclose(scaled.quantile(0.8), np.exp(inner.quantile(0.8)))


# ---- a map


def test_identity_map_changes_nothing(plain, seed):
    same, y = (
        plain.mapped([IDENTITY] * plain.components.mean.shape[-1]),
        _y(plain, seed),
    )
    np.testing.assert_allclose(same.cdf(y), plain.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(
        same.log_density(y),
        plain.log_density(y),
        atol=1e-6,  # two roots, each to 1e-8 of the std
    )
    np.testing.assert_allclose(
        same.interval([0.5, 0.9], "equal_tailed"),
        plain.interval([0.5, 0.9], "equal_tailed"),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        same.uncertainty(["total"])["total"],
        plain.uncertainty(["total"])["total"],
        rtol=0.02,  # 32 nodes; the mixture can have several modes
    )
    np.testing.assert_allclose(
        same.crps(y),
        plain.crps(y),
        rtol=1e-3,  # 200 levels
    )


def test_map_is_applied_to_the_distribution_function(plain, seed):
    y = _y(plain, seed)
    before = plain.cdf(y).reshape(ROWS, -1)
    expected = [
        quantile_map(level) for quantile_map, level in zip(MAPS, before.T, strict=False)
    ]
    actual = _mapped(plain).cdf(y).reshape(ROWS, -1)
    np.testing.assert_allclose(actual, np.transpose(expected), rtol=1e-12)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("level", [0.01, 0.3, 0.5, 0.97])
def test_quantile_is_the_inverse_of_the_distribution_function(seed, transform, level):
    for targets in (1, 2):
        mixture = _mapped(_mixture(seed, targets, TRANSFORMS[transform]))
        np.testing.assert_allclose(mixture.cdf(mixture.quantile(level)), level)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_intervals_have_their_coverage(seed, transform):
    for targets in (1, 2):
        mixture = _mapped(_mixture(seed, targets, TRANSFORMS[transform]))
        bounds = mixture.interval([0.5, 0.9], "equal_tailed")
        for i, coverage in enumerate((0.5, 0.9)):
            below, above = (mixture.cdf(bounds[..., i, side]) for side in (0, 1))
            np.testing.assert_allclose(below, (1 - coverage) / 2)
            np.testing.assert_allclose(above, (1 + coverage) / 2)


@pytest.mark.parametrize("transform", ["none", "rising", "falling and bent"])
def test_density_integrates_to_the_distribution_function(seed, transform):
    whole = _mapped(_mixture(seed, 1, TRANSFORMS[transform]))
    for row in range(2):
        mixture = _row(whole, row)
        falling = transform.startswith("falling")
        shares = 1 - MAPS[0].share[::-1] if falling else MAPS[0].share
        shares = np.clip(shares, 1e-10, 1 - 1e-10)
        bounds = [mixture.quantile(share).item() for share in shares]
        for (low, below), (high, above) in itertools.pairwise(
            zip(bounds, shares, strict=True)
        ):
            mass, _ = quad(
                lambda y, mixture=mixture: np.exp(
                    mixture.log_density(np.array([y]))
                ).item(),
                low,
                high,
            )
            # The slope of a transform is a central difference, good to 1e-7.
            assert mass == pytest.approx(above - below, rel=1e-5, abs=1e-8)


def test_density_is_the_slope_of_the_distribution_function(seed):
    """At the middle of the map's pieces; the slope jumps between pieces."""
    mixture, step = _mapped(_mixture(seed, 1)), 1e-5
    for low, high in zip(MAPS[0].share[:-1], MAPS[0].share[1:], strict=True):
        y = mixture.quantile((low + high) / 2)
        slope = (mixture.cdf(y + step) - mixture.cdf(y - step)) / (2 * step)
        # Errors of the central difference: 1e-10 of the curvature, 1e-16 / step.
        np.testing.assert_allclose(np.exp(mixture.log_density(y)), slope, rtol=1e-6)


def test_joint_density_has_the_recalibrated_margins(seed):
    plain = _mixture(seed, 2)
    joint = _mapped(plain)
    margin = _gaussians(
        plain.components.mean[..., :1],
        plain.components.variance[..., :1],
        squeeze_targets=True,
    )
    margin = margin.mapped(MAPS[:1])
    first = _y(margin, seed)
    for row in range(2):
        mixture = _row(joint, row)
        shares = np.clip(MAPS[1].share, 1e-9, 1 - 1e-9)
        bounds = [mixture.quantile(share)[0, 1] for share in shares]

        def density(second, mixture=mixture, row=row):
            y = np.array([[first[row], second]])
            return np.exp(mixture.log_density(y)).item()

        mass = sum(
            quad(density, low, high, epsabs=1e-8, epsrel=1e-6)[0]
            for low, high in itertools.pairwise(bounds)
        )
        expected = np.exp(_row(margin, row).log_density(first[[row]])).item()
        assert mass == pytest.approx(expected, rel=1e-5)


def test_independent_targets_stay_independent(seed):
    """One draw has no epistemic correlation, so the joint density is the product."""
    plain = _mixture(seed, 2)
    y = _y(plain, seed)
    mixture = _gaussians(
        plain.components.mean[:1], plain.components.variance[:1], squeeze_targets=False
    )
    parts = [
        _gaussians(
            mixture.components.mean[..., [j]],
            mixture.components.variance[..., [j]],
            squeeze_targets=True,
        )
        .mapped([MAPS[j]])
        .log_density(y[:, j])
        for j in range(2)
    ]
    np.testing.assert_allclose(
        mixture.mapped(MAPS).log_density(y), sum(parts), atol=1e-6
    )


@pytest.mark.parametrize("transform", ["none", "rising", "falling and bent"])
def test_std_and_mean_by_integration(seed, transform):
    mixture = _mapped(_mixture(seed, 1, TRANSFORMS[transform]))
    actual = mixture.uncertainty(mixture.kinds)
    # The integral over levels in normal scores, so that it includes the tails.
    score = np.linspace(-7, 7, 4001)
    weights = norm.pdf(score) / norm.pdf(score).sum()
    expected = np.empty(ROWS)
    for row in range(ROWS):
        nodes = _row(mixture, row, len(score)).quantile(ndtr(score)[:, None])
        expected[row] = np.sqrt(weights @ np.square(nodes - weights @ nodes))
    # 32 Gauss-Hermite nodes for a function with 7 kinks.
    np.testing.assert_allclose(actual["total"], expected, rtol=0.02)
    np.testing.assert_allclose(
        np.hypot(actual["epistemic"], actual["aleatoric"]), actual["total"], rtol=1e-12
    )
    # The ratio of the parts does not change.
    before = _mixture(seed, 1, TRANSFORMS[transform]).uncertainty(mixture.kinds)
    np.testing.assert_allclose(
        actual["epistemic"] / actual["total"], before["epistemic"] / before["total"]
    )


@pytest.mark.parametrize("transform", ["none", "rising", "falling and bent"])
def test_crps_by_integration(seed, transform):
    """The integral of (F(z) - 1[z >= y])^2."""
    mixture = _mapped(_mixture(seed, 1, TRANSFORMS[transform]))
    y = mixture.quantile(0.5) * np.array([1.0, 1.1, 1.5, 0.7, 0.5])
    actual = mixture.crps(y)
    ends = mixture.quantile(1e-7), mixture.quantile(1 - 1e-7)
    for row in range(ROWS):
        z = np.linspace(min(ends[0][row], y[row]), max(ends[1][row], y[row]), 20_001)
        share = _row(mixture, row, len(z)).cdf(z)
        expected = np.trapezoid(np.square(share - (z >= y[row])), z)
        std = mixture.uncertainty(["total"])["total"][row]
        # 200 steps instead of a smooth function: an error of at most half a step.
        assert actual[row] == pytest.approx(expected, abs=0.005 * std)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_map_with_a_transform(seed, transform):
    """The map applies to the network's target; if y falls, levels are 1 - level."""
    inner = _mapped(_mixture(seed, 1))
    mixture = _mapped(_mixture(seed, 1, TRANSFORMS[transform]))
    target = inner.quantile(0.35)
    forward = TRANSFORMS[transform]
    y = target if forward is None else forward.inverse_transform(target)
    falls = transform.startswith("falling")
    np.testing.assert_allclose(mixture.cdf(y), 0.65 if falls else 0.35, rtol=1e-9)
    np.testing.assert_allclose(mixture.quantile(0.65 if falls else 0.35), y)
    bent = transform in ("rising", "falling and bent")
    expected = inner.log_density(target) - (np.log(y) if bent else 0)
    np.testing.assert_allclose(mixture.log_density(y), expected, atol=1e-6)


def test_values_outside_of_the_domain_of_a_transform(seed):
    mixture = _mapped(_mixture(seed, 1, TRANSFORMS["rising"]))
    y = np.full(ROWS, -0.1)
    np.testing.assert_array_equal(mixture.cdf(y), 0)
    np.testing.assert_array_equal(mixture.log_density(y), -np.inf)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_samples_are_of_the_recalibrated_mixture(seed, transform):
    n = 500
    random = np.random.default_rng([seed, 5])
    for targets in (1, 2):
        mixture = _mapped(_mixture(seed, targets, TRANSFORMS[transform]))
        samples = mixture.sample(random.integers(DRAWS, size=n), random)
        assert samples.shape == (*mixture.quantile(0.5).shape, n)
        for level in (0.1, 0.5, 0.8):
            below = (samples < mixture.quantile(level)[..., None]).mean(-1)
            # Six binomial standard errors.
            error = 6 * np.sqrt(level * (1 - level) / n)
            np.testing.assert_allclose(below, level, atol=error)


def test_far_from_all_draws(seed):
    """Fifty standard deviations away levels are 0 or 1, to rounding."""
    for targets in (1, 2):
        plain = _mixture(seed, targets)
        for sign in (-50, 50):
            y = np.full((ROWS, targets), float(sign))
            density = _mapped(plain).log_density(y)
            assert np.isfinite(density).all() and (density < -500).all()
            np.testing.assert_array_equal(_mapped(plain).cdf(y), sign > 0)


def test_single_precision_is_computed_in_double(seed):
    plain = _mixture(seed, 2)
    mean, variance = (
        x.astype(np.float32) for x in (plain.components.mean, plain.components.variance)
    )
    single = _mapped(_gaussians(mean, variance, squeeze_targets=False))
    double = _mapped(
        _gaussians(mean.astype(float), variance.astype(float), squeeze_targets=False)
    )
    y = _y(plain, seed)
    np.testing.assert_array_equal(single.cdf(y), double.cdf(y))
    np.testing.assert_array_equal(single.quantile(0.3), double.quantile(0.3))


# ---- combinations


def test_joined_targets_keep_their_maps(seed):
    plain = _mixture(seed, 2)
    parts = [
        _gaussians(
            plain.components.mean[..., [j]],
            plain.components.variance[..., [j]],
            squeeze_targets=True,
        )
        for j in range(2)
    ]
    y = _y(plain, seed)
    for is_mapped in ([True, True], [True, False], [False, True]):
        mapped = [
            part.mapped([quantile_map]) if used else part
            for part, quantile_map, used in zip(parts, MAPS, is_mapped, strict=True)
        ]
        joint = MixturePredictive.join_targets(mapped)
        expected = [part.cdf(y[:, j]) for j, part in enumerate(mapped)]
        np.testing.assert_allclose(joint.cdf(y), np.transpose(expected), rtol=1e-12)


def test_mapped_mixture_cannot_be_changed(plain):
    mapped = _mapped(plain)
    with pytest.raises(TypeError, match=r"cannot be recalibrated again. Put one"):
        _mapped(mapped)
    with pytest.raises(TypeError, match=r"cannot be recalibrated again. Put one"):
        mapped.scaled(np.ones(plain.components.mean.shape[-1]))
    with pytest.raises(TypeError, match=r"noise-free functions: take sample_y"):
        mapped.sample_f(np.arange(2))
    assert (
        _mapped(plain.scaled(np.full(plain.components.mean.shape[-1], 2.0))).maps
        is not None
    )


# ---- CRPS with a transform

UNIT = TRANSFORMS["rising"]


def _log_normal_crps(y, mean, variance):
    """CRPS of the equal-weight mixture of exp(N(mean, variance)), (rows, targets).

    E|Y - y| - E|Y - Y'| / 2, with E exp(Z) = exp(mean + variance / 2) on either side of
    a value [Baran & Lerch 2015, appendix].

    y : (rows, targets), positive; mean, variance : (draws, rows, targets)
    """

    def distance(mean, variance, other_mean, other_variance):
        """E |exp(A) - exp(B)| for A and B with these means and variances."""
        std = np.sqrt(variance + other_variance)
        above = np.exp(mean + variance / 2) * (
            2 * ndtr((mean - other_mean + variance) / std) - 1
        )
        below = np.exp(other_mean + other_variance / 2) * (
            2 * ndtr((other_mean - mean + other_variance) / std) - 1
        )
        return above + below

    to_y = distance(mean, variance, np.log(y), 0.0).mean(0)
    pairs = distance(mean, variance, mean[:, None], variance[:, None])
    return to_y - 0.5 * pairs.mean((0, 1))


@pytest.mark.parametrize("noise", [2.0, 0.3, 0.1, 0.02, 1e-3])
def test_crps_of_log_normals(noise, seed):
    """Closed form for one draw, for overlapping draws, and for distant draws."""
    random = np.random.default_rng(seed)
    mean = random.normal(size=(1, ROWS, TARGETS)) + 0.5 * random.normal(
        size=(37, ROWS, TARGETS)
    )
    variance = np.square(noise * random.uniform(0.5, 1.5, size=mean.shape))
    # Likely values, and some far out.
    z = np.array([0.0, 1.0, -2.0, 5.0, -5.0])[:, None] * np.hypot(noise, 0.5)
    y = np.exp(mean.mean(0) + z)
    falling = TRANSFORMS["falling and bent"]
    for draws in (slice(None), slice(1)):
        expected = _log_normal_crps(y, mean[draws], variance[draws]).mean(-1)
        for sign, transform in ((1, UNIT), (-1, falling)):
            mixture = _gaussians(
                sign * mean[draws],
                variance[draws],
                squeeze_targets=False,
                transform=transform,
            )
            np.testing.assert_allclose(mixture.crps(y), expected, rtol=2e-4)


def test_crps_of_values_outside_of_the_range_of_the_transform(seed):
    """Their distance from the smallest possible value is added."""
    mixture = _mixture(seed, 1, UNIT)
    mean, variance = mixture.components.mean, mixture.components.variance
    at_zero = _log_normal_crps(np.full((ROWS, 1), 1e-300), mean, variance)[:, 0]
    y = np.array([0.0, -1.0, -2.5, 0.0, -10.0])
    np.testing.assert_allclose(mixture.crps(y), at_zero - y, rtol=1e-6)


def test_crps_of_other_components_by_integration(seed):
    """Heavy tails with a compressing transform, and three peaks with an exponential."""
    random = np.random.default_rng(seed)
    location = random.normal(size=(4, ROWS, 1))
    ones = np.ones_like(location)
    compressed = FunctionTransformer(np.sinh, np.arcsinh)
    share = random.dirichlet(np.ones(3), size=(4, ROWS, 1))
    peaks = GaussianMixtures(share, random.normal(size=share.shape), 0.3 + 0 * share)
    for components, transform in (
        (StudentTs(location, ones, 3.0 * ones), compressed),
        (peaks, UNIT),
    ):
        mixture = MixturePredictive(components, True, transform=transform)
        y = mixture.quantile(0.5) * np.array([1.0, 1.1, 1.5, 0.7, 0.5])
        actual = mixture.crps(y)
        for row in range(ROWS):
            row_mixture = MixturePredictive(
                components._mapped(lambda v, row=row: v[:, [row]]),
                True,
                transform=transform,
            )

            def squared(z, row_mixture=row_mixture, y=y[row]):
                return np.square(row_mixture.cdf(np.array([z])).item() - (z >= y))

            bounds = (
                row_mixture.quantile(1e-10).item(),
                row_mixture.quantile(1 - 1e-10).item(),
            )
            parts = [
                bounds[0],
                *np.sort([y[row], 0.0, row_mixture.quantile(0.9).item()]),
                bounds[1],
            ]
            expected = sum(
                quad(squared, a, b, limit=200, epsabs=1e-7)[0]
                for a, b in itertools.pairwise(np.sort(parts))
            )
            assert actual[row] == pytest.approx(expected, rel=2e-4)


def test_crps_of_a_transform_that_is_not_monotone(seed):
    """By quantiles of the draws, which do not require a monotone transform."""
    mixture = _mixture(seed, 1, FunctionTransformer(np.sqrt, np.square))
    y = np.array([0.1, 0.4, 0.0, 2.0, 1.0])
    random = np.random.default_rng([seed, 7])
    draws = random.integers(DRAWS, size=(2, 40_000))
    first, second = (mixture.sample(index, random) for index in draws)
    terms = np.abs(first - y[:, None]) - 0.5 * np.abs(first - second)
    error = terms.std(1) / 200
    assert (np.abs(mixture.crps(y) - terms.mean(1)) < 6 * error + 0.02).all()
