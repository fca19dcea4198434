"""Tests of RiskCoverageDisplay."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, root_mean_squared_error

from skbayesnn import Abstainer, predict_uncertainty
from skbayesnn.metrics import risk_coverage_curve
from skbayesnn.plotting import RiskCoverageDisplay


def test_classifier(classifier, data):
    kinds = ["entropy", "mutual_information"]
    display = RiskCoverageDisplay.from_estimator(
        classifier, data.X_new, data.labels_new, kind=kinds, sample_weight=data.weights
    )
    prediction = classifier.predict(data.X_new)
    uncertainty = predict_uncertainty(classifier, data.X_new, kinds)
    assert list(display.risk) == list(display.lines_) == kinds
    for kind in kinds:
        expected = risk_coverage_curve(
            prediction != data.labels_new, uncertainty[kind], data.weights
        )
        actual = display.coverage[kind], display.risk[kind], display.threshold[kind]
        for value, reference in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(value, reference)
        np.testing.assert_array_equal(
            display.lines_[kind].get_xydata(), np.stack(expected[:2], axis=1)
        )
    accuracy = accuracy_score(data.labels_new, prediction, sample_weight=data.weights)
    assert display.overall_risk == pytest.approx(1 - accuracy)
    np.testing.assert_array_equal(display.random_.get_ydata(), display.overall_risk)


def test_regressor(regressor, data):
    display = RiskCoverageDisplay.from_estimator(regressor, data.X_new, data.y_new)
    prediction = regressor.predict(data.X_new)
    error = np.square(data.y_new - prediction)
    coverage, risk, _ = risk_coverage_curve(
        error, predict_uncertainty(regressor, data.X_new)
    )
    np.testing.assert_array_equal(display.coverage["total"], coverage)
    np.testing.assert_allclose(display.risk["total"], np.sqrt(risk))
    assert display.overall_risk == pytest.approx(
        root_mean_squared_error(data.y_new, prediction)
    )
    assert display.risk["total"][-1] == pytest.approx(display.overall_risk)


def test_oracle_is_below(classifier, data):
    """At the coverages of every curve."""
    display = RiskCoverageDisplay.from_estimator(
        classifier, data.X_new, data.labels_new, kind="all"
    )
    # Among n accepted of N rows the oracle has max(0, n - right) wrong ones.
    right = 1 - display.overall_risk
    for kind, coverage in display.coverage.items():
        oracle = np.maximum(0, coverage - right) / coverage
        # Sums of 17 rows have rounding errors.
        assert (display.risk[kind] >= oracle - 1e-12).all()
    np.testing.assert_allclose(
        display.oracle_risk,
        np.maximum(0, display.oracle_coverage - right) / display.oracle_coverage,
        atol=1e-12,
    )


def test_from_predictions(regressor, data):
    """One array has a name in place of its kind."""
    display = RiskCoverageDisplay.from_estimator(regressor, data.X_new, data.y_new)
    single = RiskCoverageDisplay.from_predictions(
        data.y_new,
        regressor.predict(data.X_new),
        predict_uncertainty(regressor, data.X_new),
        metric="rmse",
        name="again",
    )
    assert single.lines_["uncertainty"].get_label() == "again, uncertainty"
    np.testing.assert_array_equal(single.risk["uncertainty"], display.risk["total"])


def test_constant_uncertainty_is_a_point():
    """Its curve is a visible point, at all rows."""
    display = RiskCoverageDisplay.from_predictions(
        ["a", "b", "b"], ["a", "a", "b"], [0.2, 0.2, 0.2], metric="error_rate"
    )
    line = display.lines_["uncertainty"]
    np.testing.assert_allclose(line.get_xydata(), [[1, 1 / 3]])
    assert line.get_marker() == "o"


def test_abstainer(classifier, regressor, data):
    """The curve contains all rows, including refused ones."""
    abstainer = Abstainer(classifier, threshold=-1.0).fit(data.X, data.labels)
    inner = RiskCoverageDisplay.from_estimator(
        abstainer.estimator_, data.X_new, data.labels_new
    )
    outer = RiskCoverageDisplay.from_estimator(abstainer, data.X_new, data.labels_new)
    np.testing.assert_array_equal(inner.risk["entropy"], outer.risk["entropy"])
    abstainer = Abstainer(regressor, threshold=-1.0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="`estimator_`"):
        RiskCoverageDisplay.from_estimator(abstainer, data.X_new, data.y_new)


def test_errors():
    with pytest.raises(ValueError, match="`metric` must be"):
        RiskCoverageDisplay.from_predictions([0], [0], [0.1], metric="accuracy")


def test_one_huge_error_exceeds_the_limits(seed):
    """Other errors stay visible; the labels give the share beyond the limits."""
    random = np.random.default_rng(seed)
    error = np.append(random.uniform(1, 2, 99), 1e5)
    uncertainty = np.append(random.uniform(size=99), 7.0)
    display = RiskCoverageDisplay.from_predictions(
        error, np.zeros(100), uncertainty, metric="rmse"
    )
    overall = np.sqrt(np.square(error).mean())
    assert display.overall_risk == pytest.approx(overall)
    assert 1 < display.ax_.get_ylim()[1] < 5
    assert "(the largest, 10,000, is beyond)" in display.ax_.get_ylabel()
    assert display.random_.get_label() == "random: 10,000"
