"""Tests of ClassProbabilityDisplay."""

import numpy as np
import pytest

from skbayesnn import sample_f
from skbayesnn.plotting import ClassProbabilityDisplay


def test_attributes(classifier, data):
    display = ClassProbabilityDisplay.from_estimator(
        classifier, data.X_new, n_draws=7, random_state=3, classes=["top", "low"]
    )
    expected = sample_f(classifier, data.X_new, 7, random_state=3)
    np.testing.assert_array_equal(display.probability, expected)
    np.testing.assert_array_equal(display.labels, ["low", "mid", "top"])
    np.testing.assert_array_equal(display.classes, ["top", "low"])
    for column, points, line in zip(
        (2, 0), display.points_, display.lines_, strict=True
    ):
        np.testing.assert_allclose(line.get_ydata(), expected[:, column].mean(-1))
        np.testing.assert_array_equal(points.get_ydata(), expected[:, column].ravel())
    assert [line.get_label() for line in display.lines_] == ["top", "low"]
    # Rows without an order are not joined.
    assert {line.get_linestyle() for line in display.lines_} == {"None"}
    assert "(2 of 3 classes)" in display.ax_.get_ylabel()


def test_over_a_position(classifier, along):
    """Rows in the order of x; their draws are closer to x than to the neighbours."""
    x = 10 * along["c"]
    display = ClassProbabilityDisplay.from_estimator(
        classifier, along, x=x, x_name="angle", n_draws=5
    )
    line, points = display.lines_[0], display.points_[0]
    np.testing.assert_array_equal(line.get_xdata(), np.sort(x))
    places = points.get_xdata().reshape(-1, 5)
    np.testing.assert_allclose(places.mean(1), np.sort(x), atol=1e-12)
    assert (places[1:, 0] > places[:-1, -1]).all()
    assert {line.get_linestyle() for line in display.lines_} == {"-"}
    assert "classes" not in display.ax_.get_ylabel()
    assert display.ax_.get_xlabel() == "angle"


@pytest.mark.parametrize("kind", ["number", "date"])
def test_rows_without_a_position_are_counted(kind, seed):
    """They are not shown, and the draws of the others are."""
    probability = np.random.default_rng(seed).dirichlet(np.ones(3), size=(6, 5))
    probability = probability.transpose(0, 2, 1)
    x = np.array([3.0, np.nan, 1.0, 2.0, np.nan, 7.0])
    if kind == "date":
        x = np.where(np.isnan(x), 0, x).astype("datetime64[D]")
        x[[1, 4]] = "NaT"
    display = ClassProbabilityDisplay.from_predictions(probability, list("abc"), x=x)
    shown, draws = [2, 3, 0, 5], display.points_[1]
    places = draws.get_xdata().reshape(-1, 5)
    np.testing.assert_allclose(places.mean(1), [1, 2, 3, 7], atol=1e-12)
    assert (np.ptp(places, axis=1) > 0.4).all()
    np.testing.assert_array_equal(draws.get_ydata(), probability[shown, 1].ravel())
    label = display.ax_.get_xlabel()
    assert label == "x (2 of 6 rows have no value, not shown)"


def test_an_infinite_position_keeps_the_draws(seed):
    """The space between rows is a space between finite positions."""
    probability = np.random.default_rng(seed).dirichlet(np.ones(3), size=(4, 5))
    probability = probability.transpose(0, 2, 1)
    x = [2.0, -np.inf, 1.0, np.inf]
    display = ClassProbabilityDisplay.from_predictions(probability, list("abc"), x=x)
    places = display.points_[0].get_xdata().reshape(-1, 5)
    np.testing.assert_allclose(places[1:3].mean(1), [1.0, 2.0], rtol=1e-12)
    x = [2.0, np.inf, np.inf, np.inf]
    display = ClassProbabilityDisplay.from_predictions(probability, list("abc"), x=x)
    places = display.points_[0].get_xdata().reshape(-1, 5)
    np.testing.assert_allclose(places[0].mean(), 2.0, rtol=1e-12)


def test_default_classes():
    """The likeliest class of each row; at most the 5 of largest mean probability."""
    mean = np.full((8, 9), 0.01)
    mean[np.arange(8), [3, 3, 8, 1, 0, 5, 6, 6]] = [
        0.9,
        0.9,
        0.6,
        0.7,
        0.8,
        0.5,
        0.9,
        0.9,
    ]
    mean[0, 7] = 0.8  # never the likeliest
    labels = np.array(list("ABCDEFGHI"))
    display = ClassProbabilityDisplay.from_predictions(mean[..., None], labels)
    assert display.classes.tolist() == ["A", "B", "D", "G", "I"]
    display = ClassProbabilityDisplay.from_predictions(mean[:3, :, None], labels)
    assert display.classes.tolist() == ["D", "I"]
    few = ClassProbabilityDisplay.from_predictions(mean[:, :5, None], labels[:5])
    assert few.classes.tolist() == list("ABCDE")


def test_many_rows_are_sorted(seed):
    """By their likeliest class among those shown, then by its probability."""
    random = np.random.default_rng(seed)
    probability = random.dirichlet(np.ones(3), size=(40, 7)).transpose(0, 2, 1)
    labels = np.array(["low", "mid", "top"])
    display = ClassProbabilityDisplay.from_predictions(
        probability, labels, classes=["top", "low"]
    )
    mean = probability.mean(-1)
    drawn = np.stack([line.get_ydata() for line in display.lines_], axis=1)
    rank = np.array([1, 2, 0])[mean.argmax(1)]
    order = sorted(range(40), key=lambda i: (rank[i], mean[i].max()))
    np.testing.assert_array_equal(drawn, mean[order][:, [2, 0]])
    display = ClassProbabilityDisplay.from_predictions(
        probability, labels, x=np.arange(40)
    )
    np.testing.assert_array_equal(display.lines_[1].get_ydata(), mean[:, 1])


def test_limits_of_the_probability_axis():
    mean = np.eye(10)[np.arange(20) % 10]
    display = ClassProbabilityDisplay.from_predictions(mean[..., None], np.arange(10))
    assert len(display.lines_) == 5
    assert display.ax_.get_ylim()[1] < 1.25


def test_one_row(classifier, data):
    display = ClassProbabilityDisplay.from_estimator(classifier, data.X_new[:1])
    places = display.points_[0].get_xdata()
    assert len(places) == 100 and abs(places).max() < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": ["mid", "none"]}, "must be among"),
        ({"x": [1.0, 2.0]}, "one number or date per row"),
    ],
)
def test_errors(classifier, data, arguments, message):
    with pytest.raises(ValueError, match=message):
        ClassProbabilityDisplay.from_estimator(classifier, data.X_new, **arguments)


def test_shape():
    with pytest.raises(ValueError, match="n_samples, n_classes, n_draws"):
        ClassProbabilityDisplay.from_predictions(np.ones((3, 2)), ["a", "b"])
