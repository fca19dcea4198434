"""Tests of UncertaintyImportanceDisplay."""

from itertools import pairwise

import numpy as np
import pytest

from skbayesnn.inspection import uncertainty_importance
from skbayesnn.plotting import UncertaintyImportanceDisplay


def test_bars_are_the_importances(regressor, data):
    arguments = {"background": data.X, "n_repeats": 3, "random_state": 0}
    display = UncertaintyImportanceDisplay.from_estimator(
        regressor, data.X_new, **arguments
    )
    expected = uncertainty_importance(regressor, data.X_new, **arguments)
    np.testing.assert_array_equal(display.importances, expected.importances)
    widths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(widths, np.sort(expected.importances_mean))
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    top = expected.importances_mean.argmax()
    assert names[-1] == "abcd"[top]


def test_names(regressor, data):
    columns = [f"sensor {i}" for i in range(data.X.shape[1])]
    result = uncertainty_importance(regressor, data.X_new)
    plain = UncertaintyImportanceDisplay.from_importances(result)
    assert plain.names == ["a", "b", "c", "d"]
    plain = UncertaintyImportanceDisplay.from_estimator(
        regressor, data.X_new, feature_names=columns, n_repeats=1
    )
    assert plain.names == columns
    named = UncertaintyImportanceDisplay.from_importances(result, names=columns)
    assert named.names == columns
    with pytest.raises(ValueError, match="`names` must be of the"):
        UncertaintyImportanceDisplay.from_importances(result, names=columns[1:])


@pytest.mark.parametrize(
    ("kind", "text"),
    [(None, "mutual information"), ("entropy", "entropy")],
)
def test_kind_of_a_classifier_in_the_label(classifier, data, kind, text):
    """And tick labels of small values do not overlap."""
    display = UncertaintyImportanceDisplay.from_estimator(
        classifier, data.X_new, kind=kind, n_repeats=1
    )
    assert (
        display.ax_.get_xlabel()
        == f"decrease of mean {text}\nif the column is replaced"
    )
    display.importances = 4e-4 * (np.arange(4.0)[:, None] - 2)
    display.names = ["area of the flat in square metres" for _ in range(4)]
    axes = display.plot().ax_
    axes.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_many_columns_are_cut(regressor, data):
    class Result:
        importances = np.arange(30.0)[:, None] * [1, 1]

    display = UncertaintyImportanceDisplay.from_importances(Result)
    assert len(display.bars_) == 20
    assert display.ax_.get_ylabel() == "20 of 30 columns"
    assert min(bar.get_width() for bar in display.bars_) == 10


def test_long_names_are_shortened_and_inside_the_figure():
    """Different names stay different; the axes shrink to make room."""

    class Result:
        importances = np.arange(3.0)[:, None] * [1, 1]

    names = [f"mean of the last seven days, sensor {i}, hall {'x' * 20}" for i in "abc"]
    display = UncertaintyImportanceDisplay.from_importances(Result, names=names)
    display.figure_.canvas.draw()
    labels = display.ax_.get_yticklabels()
    texts = [label.get_text() for label in labels]
    assert len(set(texts)) == 3 and max(map(len, texts)) < max(map(len, names))
    assert all(label.get_window_extent().x0 >= 0 for label in labels)
