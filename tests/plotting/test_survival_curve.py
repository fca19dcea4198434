"""Tests of SurvivalCurveDisplay."""

import numpy as np
import pytest

from skbayesnn import predict_distribution
from skbayesnn.plotting import SurvivalCurveDisplay


def test_curves_are_probabilities_of_exceeding(regressor, data):
    X, times = data.X_new[:3], [17.0, 19.5, 20.0, 24.0]
    display = SurvivalCurveDisplay.from_estimator(regressor, X, times=times, band=0.7)
    distribution = predict_distribution(regressor, X)
    for time, survival in zip(times, display.survival.T, strict=True):
        np.testing.assert_allclose(survival, distribution.sf(time))
    np.testing.assert_array_equal(
        display.interval, distribution.sf_interval(times, 0.7)
    )
    for line, survival in zip(display.lines_, display.survival, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.c_[times, survival])
    assert len(display.bands_) == 3
    assert len({line.get_color() for line in display.lines_}) == 3
    assert "70 % bands" in display.ax_.get_ylabel()


def test_range_of_times(regressor, data):
    """It contains nearly all of the probability."""
    display = SurvivalCurveDisplay.from_estimator(regressor, data.X_new[:4])
    assert (np.diff(display.times) > 0).all()
    assert (display.survival[:, -1] <= 0.05 + 1e-9).all()
    assert (display.survival[:, 0] >= 0.99 - 1e-9).all()


def test_names_of_rows(regressor, data):
    named = data.X_new[:2].set_axis(["Ann", "Bob"])

    def names(X):
        display = SurvivalCurveDisplay.from_estimator(regressor, X)
        return [line.get_label() for line in display.lines_]

    assert names(named) == ["row Ann", "row Bob"]
    assert names(named.to_numpy()) == ["row 0", "row 1"]


def test_one_target(two_targets, data):
    X, times = data.X_new[:2], [-21.0, -20.0, 19.0]
    display = SurvivalCurveDisplay.from_estimator(two_targets, X, times=times, target=1)
    cdf = two_targets.predict_distribution(X).cdf_at(times)
    np.testing.assert_allclose(display.survival, 1 - cdf[:, 1])


def test_few_rows_are_required(regressor, data):
    with pytest.raises(ValueError, match=r"`X` must have at most 8 rows.*got 17"):
        SurvivalCurveDisplay.from_estimator(regressor, data.X_new)
