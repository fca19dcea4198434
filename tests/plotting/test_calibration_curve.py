"""Tests of CalibrationCurveDisplay."""

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.calibration import CalibratedClassifierCV

from skbayesnn import predict_interval, predictive_cdf
from skbayesnn.metrics import expected_calibration_error, interval_coverage
from skbayesnn.plotting import CalibrationCurveDisplay


def test_coverage(regressor, data):
    """The observed value at c is the share of targets in the central c interval."""
    display = CalibrationCurveDisplay.from_estimator(
        regressor, data.X_new, data.y_new, sample_weight=data.weights
    )
    for i in (10, 50, 93):
        coverage = display.nominal[i]
        assert coverage == pytest.approx(i / 100)
        interval = predict_interval(regressor, data.X_new, coverage)
        assert display.observed[i] == pytest.approx(
            interval_coverage(data.y_new, interval, data.weights)
        )
    assert display.observed[0] == 0 and display.observed[-1] == pytest.approx(1)
    np.testing.assert_array_equal(display.line_.get_xdata(), display.nominal)
    np.testing.assert_array_equal(display.line_.get_ydata(), display.observed)
    assert display.line_.get_label() == "Pipeline"


def test_curve_of_given_levels():
    """|2 F - 1| of 0, 0.5 and 1: steps at these values, both bounds included."""
    display = CalibrationCurveDisplay.from_predictions(cdf=[0.5, 0.25, 1.0, 0.75])
    np.testing.assert_array_equal(
        display.observed[[0, 49, 50, 99, 100]] * 4, [1, 1, 3, 3, 4]
    )


def test_band():
    """Quantiles of the binomial distribution with at least the nominal mass."""
    display = CalibrationCurveDisplay.from_predictions(
        cdf=np.linspace(0, 1, 30), band=0.8
    )
    np.testing.assert_allclose(
        [display.lower[40], display.upper[40]], binom.ppf([0.1, 0.9], 30, 0.4) / 30
    )
    below = binom.cdf(np.round(display.lower * 30) - 1, 30, display.nominal)
    upto = binom.cdf(np.round(display.upper * 30), 30, display.nominal)
    # The distribution function has rounding errors.
    assert (upto - below > 0.8 - 1e-9).all()
    assert (display.lower <= display.nominal).all()
    assert (display.nominal <= display.upper).all()


def test_weights_count_rows(regressor, data):
    """Equal weights have no effect; rows of weight zero do not count."""
    cdf = predictive_cdf(regressor, data.X_new, data.y_new)
    make = CalibrationCurveDisplay.from_predictions
    without, equal = make(cdf=cdf), make(cdf=cdf, sample_weight=np.full(len(cdf), 0.3))
    present = np.arange(len(cdf)) % 3 > 0
    some = make(cdf=cdf[present])
    zero = make(cdf=np.where(present, cdf, np.nan), sample_weight=present * 2.0)
    for expected, actual in ((without, equal), (some, zero)):
        assert expected.n_rows == actual.n_rows
        for name in ("observed", "lower", "upper"):
            np.testing.assert_allclose(getattr(expected, name), getattr(actual, name))


def test_effective_rows():
    """(1 + 1 + 4)^2 / (1 + 1 + 16) = 2."""
    display = CalibrationCurveDisplay.from_predictions(
        cdf=[0.2, 0.5, 0.9], sample_weight=[1, 1, 4]
    )
    assert display.n_rows == 2


@pytest.mark.parametrize("weighted", [False, True])
def test_reliability(classifier, data, weighted):
    """The calibration error uses the same bins."""
    weights = data.weights if weighted else None
    display = CalibrationCurveDisplay.from_estimator(
        classifier, data.X_new, data.labels_new, n_bins=4, sample_weight=weights
    )
    probability = classifier.predict_proba(data.X_new)
    right = classifier.predict(data.X_new) == data.labels_new
    # Equal mass: every bin contains a quarter of it, up to a row.
    assert len(display.nominal) == 4
    assert (np.diff(display.nominal) > 0).all()
    if not weighted:
        assert set(display.n_rows) <= {4, 5}
        share = display.n_rows / len(right)
        assert share @ display.observed == pytest.approx(right.mean())
        assert share @ display.nominal == pytest.approx(probability.max(1).mean())
        assert share @ abs(display.observed - display.nominal) == pytest.approx(
            expected_calibration_error(
                data.labels_new, probability, classifier.classes_, n_bins=4
            )
        )
    expected = binom.ppf(0.975, display.n_rows, display.nominal) / display.n_rows
    np.testing.assert_allclose(display.upper, expected)


def test_equal_confidences_share_a_bin():
    """In any order of the rows."""
    probability = np.array([[0.9, 0.1]] * 5 + [[0.3, 0.7]] * 6)
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0])
    for order in (np.arange(11), np.arange(11)[::-1]):
        display = CalibrationCurveDisplay.from_predictions(
            y[order], probability[order], n_bins=10
        )
        np.testing.assert_allclose(display.nominal, [0.7, 0.9])
        np.testing.assert_allclose(display.observed, [4 / 6, 4 / 5])
        np.testing.assert_array_equal(display.n_rows, [6, 5])


@pytest.mark.parametrize(
    ("n_rows", "n_bins"), [(1, 1), (9, 1), (19, 1), (23, 2), (80, 8), (500, 10)]
)
def test_bins_have_ten_rows_by_default(n_rows, n_bins):
    """If there are several bins; a single bin has a bar instead of a band."""
    top = np.linspace(0.5, 0.9, n_rows + 1)[1:]
    labels, probability = np.zeros(n_rows), np.stack([top, 1 - top], axis=1)
    make = CalibrationCurveDisplay.from_predictions
    display = make(labels, probability, classes=[0, 1])
    assert len(display.nominal) == n_bins
    assert display.band_.get_paths()[0].get_extents().height > 0
    # The number of rows is the effective one: 500 of one weight and a heavy row.
    weights = np.ones(n_rows)
    weights[0] = 1e6
    heavy = make(labels, probability, classes=[0, 1], sample_weight=weights)
    assert len(heavy.nominal) == 1


def test_any_classifier(classifier, data):
    model = CalibratedClassifierCV(classifier, cv=3).fit(data.X, data.labels)
    display = CalibrationCurveDisplay.from_estimator(
        model, data.X_new, data.labels_new, name="calibrated"
    )
    assert display.line_.get_label() == "calibrated"
    assert display.kind == "reliability"


def test_one_band_for_the_same_rows(regressor, data, ax):
    """Curves of the same rows share a band; those of other rows have another one."""
    make = CalibrationCurveDisplay.from_estimator
    first = make(regressor, data.X_new, data.y_new, ax=ax)
    second = make(regressor, data.X_new, data.y_new, ax=ax)
    third = make(regressor, data.X, data.y, ax=ax)
    assert first.band_ is not None and third.band_ is not None
    assert second.band_ is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "either `cdf`"),
        ({"y": [0, 1]}, TypeError, "probability missing"),
        ({"cdf": [0.5], "y": [0], "probability": [[1.0]]}, TypeError, "either `cdf`"),
        ({"cdf": [0.5, 1.5]}, ValueError, r"must be in \[0, 1\]"),
        ({"cdf": [0.5, np.nan]}, ValueError, "must not contain NaN"),
        ({"cdf": [0.5], "band": 1.0}, ValueError, "`band` must be in"),
        ({"cdf": [0.5], "n_bins": 0}, ValueError, "`n_bins` must be"),
        ({"cdf": [0.5], "sample_weight": [-1.0]}, ValueError, "Negative values"),
        (
            {"y": [0, 1], "probability": [[0.2, 0.3, 0.5]] * 2},
            ValueError,
            "Give `classes`",
        ),
    ],
)
def test_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        CalibrationCurveDisplay.from_predictions(**arguments)
