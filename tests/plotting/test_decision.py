"""Tests of DecisionDisplay."""

import numpy as np
import pytest

from skbayesnn import MCDropoutClassifier
from skbayesnn.decision import best_action, newsvendor, realised_cost, threshold
from skbayesnn.plotting import DecisionDisplay
from tests.helpers.linear_gaussian import LinearGaussian


def test_actions(regressor, data):
    """Expected and occurred costs of the same order in all rows."""
    cost, actions = newsvendor(3.0, 1.0), [9.0, 0.0, 5.0]
    display = DecisionDisplay.from_estimator(
        regressor, data.X_new, cost, data.y_new, actions=actions
    )
    np.testing.assert_array_equal(display.x, [0, 5, 9])
    for i, action in enumerate(display.x):
        [one] = {
            best_action((regressor, data.X_new), cost, actions=[action])
            .expected_cost.mean()
            .round(9)
        }
        assert display.cost["action"][i] == pytest.approx(one)
        order = np.full(len(data.y_new), action)
        expected = realised_cost(order, data.y_new, cost).mean()
        assert display.realised["action"][i] == pytest.approx(expected)
    best = best_action((regressor, data.X_new), cost, actions=actions)
    assert display.best_cost == pytest.approx(best.expected_cost.mean())
    assert (display.lower["action"] <= display.upper["action"]).all()
    np.testing.assert_array_equal(
        display.lines_["action"].get_ydata(), display.cost["action"]
    )


def test_thresholds(classifier, data):
    """Each class against its best alternative, as if decided row by row."""
    classes = classifier.classes_
    n = len(classes)
    cost = (1.0 + np.arange(n)[:, None]) * (1 - np.eye(n))
    display = DecisionDisplay.from_estimator(
        classifier, data.X_new, cost, data.labels_new
    )
    p = classifier.predict_proba(data.X_new).astype(float)
    expected = p @ cost
    shown = [classes[1]] if n == 2 else list(classes)
    assert list(display.cost) == shown
    for label in shown:
        k = list(classes).index(label)
        others = expected.copy()
        others[:, k] = np.inf
        for i in (0, 30, 100):
            taken = p[:, k] >= display.x[i]
            action = np.where(taken, k, others.argmin(1))
            mean = expected[np.arange(len(p)), action].mean()
            # Probabilities are in float32.
            assert display.cost[label][i] == pytest.approx(mean, rel=1e-4)
            occurred = realised_cost(
                classes[action], data.labels_new, cost, classes=classes
            )
            assert display.realised[label][i] == pytest.approx(occurred.mean())


def test_break_even_of_two_classes(data):
    """The share of the costs, for all rows."""
    labels = data.labels == data.labels[0]
    network = MCDropoutClassifier((5,), max_iter=3, random_state=0)
    network.fit(data.X, labels)
    display = DecisionDisplay.from_estimator(network, data.X_new, threshold(1.0, 4.0))
    assert display.break_even == {True: pytest.approx(0.2)}
    [x, _] = display.break_even_[True].get_xdata()
    assert x == pytest.approx(0.2)
    with pytest.raises(ValueError, match="two actions"):
        DecisionDisplay.from_estimator(network, data.X_new, [[1.0], [2.0]])


def test_large_costs_that_occurred_do_not_set_the_axis(regressor, data):
    y = data.y_new.copy()
    y[0] = 1e9
    display = DecisionDisplay.from_estimator(
        regressor, data.X_new, newsvendor(1.0, 1.0), y
    )
    assert display.ax_.get_ylim()[1] < 1e6
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert any(text.startswith("occurred, ") for text in texts)


def test_a_row_with_most_of_the_cost_is_named(classifier, data):
    amount = np.ones(len(data.X_new))
    cost = [[0, 1, 1], [amount, 0, 1], [1, 1, 0]]
    display = DecisionDisplay.from_estimator(classifier, data.X_new, cost)
    assert display.ax_.get_title() == ""
    amount[4] = 1e7
    display = DecisionDisplay.from_estimator(classifier, data.X_new, cost)
    assert display.largest_share == pytest.approx(1, abs=1e-4)
    assert display.ax_.get_title() == "one row has 100% of what is at stake"


@pytest.mark.parametrize("cost", [newsvendor(3.0, 1.0), lambda a, y: (y - a) ** 4])
def test_few_large_actions_do_not_set_the_axis(cost):
    """The range of y in one of 100 rows is a thousand times the others'."""
    X = np.linspace(0, 1, 100)[:, None]
    model = LinearGaussian().fit(X, X[:, 0] + 0.1 * np.sin(99 * X[:, 0]))
    X[7] = 1e3
    display = DecisionDisplay.from_estimator(model, X, cost)
    assert display.x.max() < 3
    assert np.isfinite(display.cost["action"]).all()
