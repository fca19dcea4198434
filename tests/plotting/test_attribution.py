"""Tests of AttributionDisplay."""

import numpy as np
import pytest

from skbayesnn.inspection import Attributions, attributions
from skbayesnn.plotting import AttributionDisplay


def result_of(values, names):
    values = np.asarray(values, dtype=float)
    zero = np.zeros(len(values))
    return Attributions(values, zero, np.abs(values) / 10, values, names, of="mean")


def test_bars_are_the_mean_contributions(regressor, data):
    """The columns with the largest contributions are on top."""
    arguments = {"background": data.X, "of": "epistemic"}
    display = AttributionDisplay.from_estimator(regressor, data.X_new, **arguments)
    expected = attributions(regressor, data.X_new, **arguments)
    np.testing.assert_array_equal(display.values, expected.values)
    order = np.abs(expected.values).mean(0).argsort()
    widths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(widths, expected.values.mean(0)[order])
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names == ["abcd"[j] for j in order]
    x, y = display.points_.get_data()
    np.testing.assert_array_equal(x[y == 3], expected.values[:, order[3]])


def test_names_of_one_row_have_values(classifier, data):
    one = data.X_new[:1]
    display = AttributionDisplay.from_estimator(
        classifier, one, background=data.X, of="mutual_information"
    )
    assert display.points_ is None
    assert display.ax_.get_xlabel() == "contribution to the mutual information"
    names = {label.get_text() for label in display.ax_.get_yticklabels()}
    assert names == {f"{name} = {value:.4g}" for name, value in one.iloc[0].items()}


def test_a_row_with_large_contributions_is_beyond_the_axis(seed):
    """The others fill the axis, and the label counts the row."""
    values = np.random.default_rng(seed).normal(size=(2000, 3)) * [3, 1, 0.01]
    values[7, 0] = 5e3
    display = AttributionDisplay.from_attributions(result_of(values, list("abc")))
    low, high = display.ax_.get_xlim()
    common = np.delete(values, 7, axis=0)
    assert low < common.min() and common.max() < high < 3 * common.max()
    assert display.ax_.get_xlabel().endswith("mean of 2000 rows; 1 reaches beyond")


def test_many_columns_are_cut():
    values = np.arange(30.0) * np.array([[1], [1]])
    result = result_of(values, [f"x{j}" for j in range(30)])
    display = AttributionDisplay.from_attributions(result)
    assert len(display.bars_) == 20
    assert display.ax_.get_ylabel() == "20 of 30 columns"
    assert min(bar.get_width() for bar in display.bars_) == 10


@pytest.mark.parametrize("n_rows", [1, 3])
def test_long_names_are_shortened_and_inside_the_figure(n_rows):
    """Different names stay different; the axes shrink to make room."""
    names = [f"mean of the last seven days, sensor {i}, $ {'x' * 20}" for i in "abc"]
    values = 1e-4 * np.arange(3.0) * np.ones((n_rows, 1))
    display = AttributionDisplay.from_attributions(result_of(values, names))
    display.figure_.canvas.draw()
    labels = display.ax_.get_yticklabels()
    texts = [label.get_text() for label in labels]
    assert len(set(texts)) == 3 and max(map(len, texts)) < max(map(len, names)) + 8
    assert all(label.get_window_extent().x0 >= 0 for label in labels)
