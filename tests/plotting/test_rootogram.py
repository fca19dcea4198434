"""Tests of RootogramDisplay."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from skbayesnn import MCDropoutRegressor, predict_distribution
from skbayesnn.plotting import RootogramDisplay


def test_frequencies(data):
    """Sums of the probabilities of counts over the rows; bars hang from their roots."""
    X, y = data.X_new, np.arange(len(data.X_new)) % 5
    model = MCDropoutRegressor(likelihood="poisson", max_iter=5, random_state=0)
    model.fit(X, y)
    display = RootogramDisplay.from_estimator(model, X, y, band=0.8)
    np.testing.assert_array_equal(display.observed, np.bincount(y))
    distribution = model.predict_distribution(X)
    expected = np.array([distribution.pmf(k).sum() for k in range(5)])
    np.testing.assert_allclose(display.expected, expected)
    band = binom.ppf([[0.1], [0.9]], len(y), expected / len(y))
    np.testing.assert_array_equal(display.interval.T, band)
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
    assert display.observed.sum() == len(X) - 1 and len(display.edges) < 30
    assert f"1 of {len(X)} rows are beyond" in display.ax_.get_xlabel()


@pytest.mark.parametrize("wrong", [-1.0, 0.5, np.inf])
def test_counts_are_required(regressor, data, wrong):
    y = np.full(len(data.X_new), wrong)
    with pytest.raises(ValueError, match=r"`y` must contain counts.*got"):
        RootogramDisplay.from_estimator(regressor, data.X_new, y)
