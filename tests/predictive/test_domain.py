"""Target transforms whose inverse is undefined somewhere, or not monotone."""

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer, PowerTransformer

from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.mixture import Domain, MixturePredictive


def _skewed(seed, sign=1.0):
    """A power transform whose inverse is bounded on one side."""
    y = sign * np.random.default_rng([seed, 1]).exponential(size=200) ** 2
    return PowerTransformer().fit(y[:, None])


def _mixture(seed, transform, centre=0.0, std=1.0):
    """Five rows of three draws with much mass beyond the bound of the domain."""
    random = np.random.default_rng([seed, 2])
    mean = centre + 0.3 * random.normal(size=(3, 5, 1))
    components = Gaussians(mean, np.full(mean.shape, std**2))
    return MixturePredictive(components, squeeze_targets=True, transform=transform)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bound_of_a_power_transform(seed, sign):
    """(1 + lambda z)^(1 / lambda) has the bound -1 / lambda, before standardisation."""
    power = _skewed(seed, sign)
    [exponent] = power.lambdas_ if sign > 0 else 2 - power.lambdas_
    assert exponent < 0
    bound = sign * -1 / exponent
    bound = (bound - power._scaler.mean_) / power._scaler.scale_
    domain = Domain.of(power, 1)
    side = int(sign > 0)
    # The formula has rounding errors.
    np.testing.assert_allclose(domain.bounds[side], bound, rtol=1e-9)
    assert domain.limits[side] == sign * np.inf
    assert np.isinf(domain.bounds[1 - side])


def test_finite_limit():
    """For the square, y is zero where no z has that root."""
    root = FunctionTransformer(np.square, np.sqrt, check_inverse=False)
    domain = Domain.of(root, 2)
    np.testing.assert_allclose(domain.bounds[0], 0, atol=1e-300)
    np.testing.assert_allclose(domain.limits[0], 0, atol=1e-150)
    values = np.array([[-3.0, 4.0], [9.0, -1e-30]])
    np.testing.assert_allclose(
        domain.inverse(root, values), [[0, 2], [3, 0]], atol=1e-150
    )


def test_unbounded_domain():
    log_transform = FunctionTransformer(np.log, np.exp)
    domain = Domain.of(log_transform, 3)
    assert np.isinf(domain.bounds).all()
    values = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(domain.inverse(log_transform, values), np.exp(values))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_values_beyond_the_bound_are_not_nan(seed, sign):
    power = _skewed(seed, sign)
    whole = _mixture(seed, power, centre=sign)
    [lower, upper] = whole.interval([0.99], "equal_tailed")[:, 0].T
    assert (lower < upper).all()
    far, near = (upper, lower) if sign > 0 else (lower, upper)
    assert (far == sign * np.inf).all() and np.isfinite(near).all()
    assert np.isfinite(whole.quantile(0.5)).all()
    stds = whole.uncertainty(("total", "epistemic", "aleatoric"))
    assert all((std == np.inf).all() for std in stds.values())
    random = np.random.default_rng(seed)
    assert not np.isnan(whole.sample(np.arange(3), random)).any()
    y = whole.quantile(0.4)
    np.testing.assert_allclose(whole.cdf(y), 0.4, rtol=1e-6)
    # Each row alone gives the same values.
    alone = MixturePredictive(
        Gaussians(whole.components.mean[:, 3:4], whole.components.variance[:, 3:4]),
        squeeze_targets=True,
        transform=power,
    )
    assert alone.quantile(0.8) == whole.quantile(0.8)[3]
    assert alone.crps(y[3:4]) == whole.crps(y)[3] == np.inf
    narrow = _mixture(seed, power, centre=-sign, std=0.3)
    assert np.isfinite(narrow.crps(narrow.quantile(0.3))).all()


@pytest.mark.parametrize("centre", [0.0, 2.5])
def test_transform_that_is_not_monotone_is_refused(seed, centre):
    """1 / z about zero; far from zero it only falls."""
    turning = FunctionTransformer(np.reciprocal, np.reciprocal, check_inverse=False)
    whole = _mixture(seed, turning, centre)
    # A level far out lies beyond zero: the lower bound would be above the upper one.
    for coverage in (0.5, 0.999):
        with pytest.raises(ValueError, match=r"monotone.*reciprocal.*sample_y"):
            whole.interval([coverage if centre == 0 else 0.999], "equal_tailed")
    if centre:
        lower, upper = whole.interval([0.5], "equal_tailed")[:, 0].T
        assert (lower < upper).all()
    assert np.isfinite(whole.sample(np.arange(3), np.random.default_rng(seed))).all()
