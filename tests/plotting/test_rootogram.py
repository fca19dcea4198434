"""Tests of RootogramDisplay."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, poisson

from skbayesnn import predict_distribution
from skbayesnn.plotting import RootogramDisplay


def test_frequencies():
    """Sums over rows of known probabilities."""
    rate, y = np.array([0.5, 1.0, 2.0, 3.0]), np.array([0, 0, 1, 4])
    edges = np.arange(-0.5, 5)
    cdf = poisson.cdf(edges, rate[:, None])
    display = RootogramDisplay.from_predictions(y, cdf, edges, band=0.8)
    np.testing.assert_array_equal(display.observed, [2, 1, 0, 0, 1])
    expected = poisson.pmf(np.arange(5), rate[:, None]).sum(0)
    np.testing.assert_allclose(display.expected, expected)
    np.testing.assert_array_equal(display.lower, binom.ppf(0.1, 4, expected / 4))
    np.testing.assert_array_equal(display.upper, binom.ppf(0.9, 4, expected / 4))
    for bar, seen, root in zip(
        display.bars_, display.observed, np.sqrt(expected), strict=True
    ):
        ends = bar.get_y(), bar.get_y() + bar.get_height()
        assert max(ends) == pytest.approx(root)
        assert min(ends) == pytest.approx(root - np.sqrt(seen))


def test_of_an_estimator(regressor, data):
    """Continuous distributions have the probability half-way to the next counts."""
    y = pd.Series(np.round(np.abs(data.y_new)), name="claims")
    display = RootogramDisplay.from_estimator(regressor, data.X_new, y)
    distribution = predict_distribution(regressor, data.X_new)
    edges = display.edges
    cdf = np.stack([distribution.cdf(edge) for edge in edges])
    np.testing.assert_allclose(display.expected, np.diff(cdf, axis=0).sum(1))
    assert display.observed.sum() == len(y)
    assert set(y) <= set(edges[:-1] + 0.5)
    assert display.ax_.get_xlabel() == "claims"


def test_one_target(two_targets, data):
    Y = np.round(np.abs(data.Y[: len(data.X_new)]))
    display = RootogramDisplay.from_estimator(two_targets, data.X_new, Y, target=1)
    cdf = two_targets.predict_distribution(data.X_new).cdf_at(display.edges)
    np.testing.assert_allclose(display.expected, np.diff(cdf[:, 1], axis=1).sum(0))


def test_large_counts_share_bars(regressor, data):
    y = np.arange(len(data.X_new)) * 100
    display = RootogramDisplay.from_estimator(regressor, data.X_new, y)
    assert len(display.observed) <= 50
    assert display.observed.sum() == len(y)
    assert (np.diff(display.edges) == np.diff(display.edges)[0]).all()


def test_outliers_are_beyond_the_bars(regressor, data):
    X = pd.concat([data.X_new] * 7, ignore_index=True)
    y = np.arange(len(X)) % 6
    y[3] = 10**7
    display = RootogramDisplay.from_estimator(regressor, X, y)
    assert display.n_beyond == 1 and len(display.edges) < 30
    assert f"1 of {len(X)} rows are beyond" in display.ax_.get_xlabel()


@pytest.mark.parametrize("wrong", [-1.0, 0.5, np.inf])
def test_counts_are_required(regressor, data, wrong):
    y = np.full(len(data.X_new), wrong)
    with pytest.raises(ValueError, match=r"`y` must contain counts.*got"):
        RootogramDisplay.from_estimator(regressor, data.X_new, y)


def test_shape_of_the_predictions():
    with pytest.raises(ValueError, match=r"shape \(2, 3\); got \(2, 2\)"):
        RootogramDisplay.from_predictions([0, 1], np.eye(2), [-0.5, 0.5, 1.5])
