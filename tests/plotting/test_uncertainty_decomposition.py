"""Tests of UncertaintyDecompositionDisplay."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D

from skbayesnn import CalibratedUncertaintyRegressor, predict_uncertainty
from skbayesnn.plotting import UncertaintyDecompositionDisplay

OF_CLASSES = {
    "aleatoric": "expected_entropy",
    "epistemic": "mutual_information",
    "total": "entropy",
}


def test_regressor(regressor, data):
    display = UncertaintyDecompositionDisplay.from_estimator(regressor, data.X_new)
    expected = predict_uncertainty(regressor, data.X_new, "all")
    for name in ("aleatoric", "epistemic", "total"):
        np.testing.assert_array_equal(getattr(display, name), expected[name])
        line = getattr(display, f"{name}_")
        order = np.argsort(display.total)
        np.testing.assert_array_equal(line.get_ydata(), expected[name][order])
        # In the order of the total, only the total is a curve.
        assert line.get_linestyle() == ("-" if name == "total" else "None")
    assert display.measure == "std"


def test_classifier(classifier, data):
    """The areas of the two parts are stacked up to the entropy."""
    display = UncertaintyDecompositionDisplay.from_estimator(classifier, data.X_new)
    expected = predict_uncertainty(classifier, data.X_new, "all")
    for name, kind in OF_CLASSES.items():
        np.testing.assert_array_equal(getattr(display, name), expected[kind])
    assert display.measure == "entropy"
    assert isinstance(display.total_, Line2D)
    aleatoric, epistemic = (
        part.get_datalim(display.ax_.transData)
        for part in (display.aleatoric_, display.epistemic_)
    )
    assert aleatoric.y0 == 0
    assert aleatoric.y1 == pytest.approx(display.aleatoric.max())
    assert epistemic.y0 == pytest.approx(display.aleatoric.min())
    assert epistemic.y1 == pytest.approx(display.total.max())


def test_over_a_feature(classifier, along):
    display = UncertaintyDecompositionDisplay.from_estimator(
        classifier, along, feature="c"
    )
    x, y = display.total_.get_data()
    np.testing.assert_array_equal(x, np.sort(along["c"]))
    np.testing.assert_array_equal(y, display.total[::-1])
    assert display.ax_.get_xlabel() == "c"
    assert isinstance(display.aleatoric_, PolyCollection)


@pytest.mark.parametrize("model", ["regressor", "classifier"])
def test_points_where_other_features_vary(model, data, request):
    display = UncertaintyDecompositionDisplay.from_estimator(
        request.getfixturevalue(model), data.X_new, feature="d"
    )
    order = np.argsort(data.X_new["d"])
    for name in ("aleatoric", "epistemic", "total"):
        line = getattr(display, f"{name}_")
        assert line.get_linestyle() == "None"
        np.testing.assert_array_equal(line.get_ydata(), getattr(display, name)[order])


@pytest.mark.parametrize(
    ("measure", "total"), [("std", [5.0, 13.0, 2.0]), ("entropy", [7.0, 17.0, 2.0])]
)
def test_from_predictions(measure, total):
    """The total is the sum of the parts unless it is given."""
    display = UncertaintyDecompositionDisplay.from_predictions(
        [3.0, 5.0, 0.0], [4.0, 12.0, 2.0], measure=measure
    )
    np.testing.assert_allclose(display.total, total)
    display = UncertaintyDecompositionDisplay.from_predictions(
        [3.0, 5.0, 0.0], [4.0, 12.0, 2.0], [6.0, 14.0, 3.0], measure=measure
    )
    np.testing.assert_array_equal(display.total, [6.0, 14.0, 3.0])


def test_recalibrated(regressor, data):
    model = CalibratedUncertaintyRegressor(regressor, cv=2).fit(data.X, data.y)
    display = UncertaintyDecompositionDisplay.from_estimator(model, data.X_new)
    expected = predict_uncertainty(model, data.X_new, "epistemic")
    np.testing.assert_array_equal(display.epistemic, expected)


def test_errors():
    make = UncertaintyDecompositionDisplay.from_predictions
    with pytest.raises(ValueError, match="`measure` must be"):
        make([1.0], [1.0], measure="variance")
    with pytest.raises(ValueError, match="must have the same rows"):
        make([1.0], [1.0], [1.0, 2.0], measure="std")


@pytest.mark.parametrize("n_rows", [30, 200])
def test_one_huge_row_exceeds_the_limits(n_rows):
    total = np.append(np.linspace(1, 2, n_rows - 1), 1e4)
    display = UncertaintyDecompositionDisplay.from_predictions(
        0.6 * total, 0.8 * total, total, measure="std"
    )
    assert display.ax_.get_ylim()[1] < 5
    label = display.ax_.yaxis.label
    assert f"(1 of {n_rows} rows reach beyond)" in label.get_text()
    display.figure_.canvas.draw()
    # The label is not longer than the axes are high.
    assert label.get_window_extent().height < display.ax_.bbox.height
