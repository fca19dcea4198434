"""Units: data are scaled for the network, and predictions are scaled back."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import norm

import skbayesnn
from skbayesnn._data.scaling import Scaling
from skbayesnn._distributions.components import Gaussians

ROWS, INPUTS, TARGETS, DRAWS = 41, 3, 2, 5
PACKAGE = Path(skbayesnn.__file__).parent
# Arithmetic with the scale or the mean of y; attributes are stored under their names.
ARITHMETIC = re.compile(
    r"[-+*/] *(\w+\.)?y_(scale|mean)_?\b|\by_(scale|mean)_?\b *[-+*/[]"
)


@pytest.fixture
def data(seed):
    """X, y and weights with different units."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, INPUTS)) * [1.0, 1e3, 1e-4] + [0, 5, -2]
    y = random.normal(size=(ROWS, TARGETS)) * [1e-3, 70.0] + [3, -900]
    return X, y, random.uniform(0.1, 3, size=ROWS)


@pytest.fixture
def scaling(data):
    return Scaling.of(*data, inputs=True, targets=True)


def test_arithmetic_with_the_scale_of_y_stands_in_one_file():
    actual = [
        f"{path.relative_to(PACKAGE)}:{i}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "scaling.py"
        for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ARITHMETIC.search(line)
    ]
    assert not actual


def test_the_pattern_finds_arithmetic():
    for line in ("y * self.y_scale_", "values / s.y_scale", "x - y_mean", "y_scale**2"):
        assert ARITHMETIC.search(line)
    for line in ('"y_scale_": scaling.y_scale,', "x_scale_, y_mean_, y_scale_"):
        assert not ARITHMETIC.search(line)


def test_weighted_moments_are_zero_and_one(data, scaling):
    X, y, weights = data
    for values in (scaling.x_to_network(X), scaling.y_to_network(y)):
        mean = np.average(values, axis=0, weights=weights)
        variance = np.average(np.square(values - mean), axis=0, weights=weights)
        np.testing.assert_allclose(mean, 0, atol=1e-9)
        np.testing.assert_allclose(variance, 1, rtol=1e-9)


def test_sparse_inputs_have_the_same_units(data):
    X, y, weights = data
    scaling = Scaling.of(sparse.csr_array(X), y, weights, inputs=True, targets=True)
    dense = Scaling.of(X, y, weights, inputs=True, targets=True)
    np.testing.assert_allclose(scaling.x_scale, dense.x_scale, rtol=1e-9)
    np.testing.assert_allclose(scaling.x_mean, dense.x_mean, rtol=1e-9)


def test_robust_scale_does_not_depend_on_the_size_of_outliers(data):
    """On a robust scale, which equals the plain one without outliers."""
    X, y, weights = data

    def scaling_of(y, robust):
        return Scaling.of(X, y, weights, inputs=True, targets=True, robust=robust)

    np.testing.assert_array_equal(
        scaling_of(y, True).y_scale, scaling_of(y, False).y_scale
    )
    far, farther = y.copy(), y.copy()
    far[0], farther[0] = 1e6, 1e12
    np.testing.assert_array_equal(
        scaling_of(far, True).y_scale, scaling_of(farther, True).y_scale
    )
    np.testing.assert_array_equal(
        scaling_of(far, True).y_mean, scaling_of(farther, True).y_mean
    )
    # A weight of 3 in a sum of 60 is a share of 0.05, less than 11 stds off.
    assert (scaling_of(far, True).y_scale < 3 * scaling_of(y, False).y_scale).all()


@pytest.mark.parametrize("axis", [1, -1])
def test_scaling_of_y_is_inverted(data, scaling, axis):
    y = data[1]
    several = np.stack([y, 2 * y, 3 * y], axis=-1 if axis == 1 else 0)
    scaled = [scaling.y_to_network(k * y) for k in (1, 2, 3)]
    scaled = np.stack(scaled, axis=-1 if axis == 1 else 0)
    restored = scaling.y_from_network(scaled, axis)
    np.testing.assert_allclose(restored, several, rtol=1e-12)


def test_densities_and_precisions_change_units_with_y(data, scaling, seed):
    """A normal density of y, computed on either scale."""
    y = data[1]
    std = np.random.default_rng([seed, 1]).uniform(0.2, 2, size=TARGETS)
    inside = norm(0.3, std).logpdf(scaling.y_to_network(y)).sum(-1)
    mean = scaling.y_from_network(np.full((1, TARGETS), 0.3))[0]
    outside = norm(mean, scaling.std_from_network(std)).logpdf(y).sum(-1)
    np.testing.assert_allclose(inside + scaling.log_density_shift(), outside)
    tau = scaling.tau_from_network(np.square(std))
    np.testing.assert_allclose(tau, scaling.std_from_network(std) ** -2.0)
    np.testing.assert_allclose(scaling.tau_to_network(tau), std**-2.0)
    ones = scaling.tau_to_network(scaling.signal_precision())
    np.testing.assert_allclose(ones, np.ones(TARGETS))


def test_components_change_units_with_y(data, scaling, seed):
    y, random = data[1], np.random.default_rng([seed, 2])
    inside = Gaussians(
        random.normal(size=(DRAWS, ROWS, TARGETS)),
        random.uniform(0.1, 2, size=(DRAWS, ROWS, TARGETS)),
    )
    outside = scaling.components_from_network(inside)
    np.testing.assert_allclose(
        outside.log_density(y),
        inside.log_density(scaling.y_to_network(y)) + scaling.log_density_shift(),
    )


def test_affine_maps_convert_between_scales(data, scaling):
    X, y, weights = data
    second = Scaling.of(X[:20], y[:20], weights[:20], inputs=True, targets=True)
    finest = Scaling.finest([scaling, second])
    np.testing.assert_array_equal(
        finest.y_scale, np.minimum(scaling.y_scale, second.y_scale)
    )
    for to_network, values, affine in (
        (Scaling.x_to_network, X, finest.x_affine_to(second)),
        (Scaling.y_to_network, y, finest.y_affine_to(second)),
    ):
        shift, factor = affine
        np.testing.assert_allclose(
            (to_network(finest, values) - shift) * factor,
            to_network(second, values),
            rtol=1e-9,
            atol=1e-9,
        )


def test_class_codes_are_not_scaled(data):
    X, _, weights = data
    scaling = Scaling.of(X, np.arange(ROWS) % 4, weights, inputs=True, targets=False)
    assert scaling.n_targets == 1 and scaling.log_density_shift() == 0
    none = Scaling.none(INPUTS, TARGETS)
    np.testing.assert_array_equal(none.x_to_network(X), X)


def test_large_close_values_are_no_constants():
    """Such as numbers of orders; rounding errors of a constant are one."""
    steps = np.arange(1000.0) * 4
    rounded = np.where(steps % 8, 0.1 + 0.2, 0.3)
    X = np.column_stack([2.0**53 + steps, rounded, np.full(1000, 1e17)])
    weights = (steps > 40).astype(float)
    scaling = Scaling.of(X, X[:, :1], weights, inputs=True, targets=True)
    network = scaling.x_to_network(X)
    expected = Scaling.of(steps[:, None], X, weights, inputs=True, targets=False)
    np.testing.assert_allclose(
        network[:, 0], expected.x_to_network(steps[:, None])[:, 0], atol=1e-12
    )
    assert scaling.x_scale[1:].tolist() == [1, 1]
    assert np.abs(network[:, 1:]).max() < 1e-9
    np.testing.assert_array_equal(scaling.y_scale, scaling.x_scale[:1])
