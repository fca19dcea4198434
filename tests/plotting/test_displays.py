"""Common properties of all displays."""

import ast
import inspect
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import skbayesnn.plotting
from skbayesnn import (
    interval_target,
    predict_interval,
    predict_uncertainty,
    predictive_cdf,
    sample_f,
)
from skbayesnn.decision import absolute
from skbayesnn.inspection import attributions
from skbayesnn.plotting import (
    AttributionDisplay,
    CalibrationCurveDisplay,
    ClassProbabilityDisplay,
    DecisionDisplay,
    PredictionIntervalDisplay,
    RiskCoverageDisplay,
    RootogramDisplay,
    SurvivalCurveDisplay,
    TrainingCurveDisplay,
    UncertaintyDecompositionDisplay,
)


@pytest.fixture
def made(regressor, classifier, data):
    """A function that makes every display from its class."""

    def make(kind, **kwargs):
        X, y, labels = data.X_new, data.y_new, data.labels_new
        arguments = {
            CalibrationCurveDisplay: (classifier, X, labels),
            ClassProbabilityDisplay: (classifier, X),
            DecisionDisplay: (regressor, X, absolute, y),
            PredictionIntervalDisplay: (regressor, X, y),
            RiskCoverageDisplay: (regressor, X, y),
            RootogramDisplay: (regressor, X, np.round(np.abs(y))),
            SurvivalCurveDisplay: (regressor, X[:3]),
            TrainingCurveDisplay: (regressor,),
            UncertaintyDecompositionDisplay: (classifier, X),
            AttributionDisplay: (regressor, X),
        }[kind]
        if kind is AttributionDisplay:
            kwargs["background"] = data.X
        return kind.from_estimator(*arguments, **kwargs)

    return make


DISPLAYS = [getattr(skbayesnn.plotting, name) for name in skbayesnn.plotting.__all__]
every_display = pytest.mark.parametrize(
    "kind", DISPLAYS, ids=lambda kind: kind.__name__
)


@every_display
def test_new_figure_each_time(kind, made):
    display = made(kind)
    first = display.figure_
    assert display.ax_ in first.axes
    assert display.plot() is display
    assert display.figure_ is not first
    assert plt.get_fignums() == [1, 2]


@every_display
def test_drawn_on_given_axes(kind, made, ax):
    display = made(kind, ax=ax)
    assert display.figure_ is ax.figure
    assert plt.get_fignums() == [ax.figure.number]
    if kind is not TrainingCurveDisplay:
        assert display.ax_ is ax
        n_lines = len(ax.get_lines())
        assert display.plot(ax=ax) is display
        assert len(ax.get_lines()) > n_lines
    ax.figure.canvas.draw()


@every_display
def test_attributes_are_the_arguments(kind, made):
    """A display can be made again from its attributes, as in scikit-learn."""
    display = made(kind)
    arguments = {name: v for name, v in vars(display).items() if not name.endswith("_")}
    again = kind(**arguments)
    assert vars(again) == arguments
    again.plot()


@every_display
@pytest.mark.parametrize("name", ["from_estimator", "from_predictions"])
def test_without_matplotlib(kind, name, monkeypatch):
    """The error comes before any computation."""
    make = getattr(kind, name, None)
    if make is None:
        assert kind in (
            DecisionDisplay,
            RootogramDisplay,
            SurvivalCurveDisplay,
            TrainingCurveDisplay,
            AttributionDisplay,
        )
        return
    parameters = inspect.signature(make).parameters.values()
    needed = {p.name: None for p in parameters if p.default is p.empty}
    needed.pop("kwargs")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "skbayesnn\[plot\]"'):
        make(**needed)


def test_matplotlib_is_imported_when_used():
    folder = Path(skbayesnn.plotting.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in getattr(node, "names", [])]
            names.append(getattr(node, "module", None) or "")
            assert not any(name.startswith("matplotlib") for name in names), path.name


def test_curves_on_the_same_axes_have_different_colors(classifier, data, ax):
    lines = [
        CalibrationCurveDisplay.from_estimator(
            classifier, data.X_new, data.labels_new, ax=ax
        ).line_
        for _ in range(3)
    ]
    assert len({line.get_color() for line in lines}) == 3


def test_colors_of_the_user(regressor, ax):
    """Short and long names of a style are equivalent."""
    display = TrainingCurveDisplay.from_estimator(regressor, ax=ax, c="red", lw=0.5)
    assert display.kl_[0].get_color() == "red"
    assert display.kl_[0].get_linewidth() == 0.5


def test_later_drawings_move_the_limits(regressor, data):
    display = PredictionIntervalDisplay.from_estimator(regressor, data.X_new)
    display.ax_.plot([0], [1000.0], "o")
    assert display.ax_.get_ylim()[1] > 1000


def test_limits_of_the_user(regressor, data, ax):
    ax.set_ylim(-5, 77)
    PredictionIntervalDisplay.from_estimator(regressor, data.X_new, ax=ax)
    assert ax.get_ylim() == (-5, 77)


@pytest.mark.parametrize("n_names", [1, 4])
def test_legend_is_above_the_data(n_names, ax):
    from skbayesnn.plotting._axes import legend_on_top

    for i in range(n_names):
        ax.plot([0, 1], [3, 40 + i], label=f"a curve with a long name, {i}")
    legend_on_top(ax)
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    _, top = ax.transData.transform((0, 40 + n_names - 1))
    assert box.y0 > top
    assert box.x1 < ax.get_window_extent().x1


@pytest.mark.parametrize("target", [0, 1])
def test_selected_target_equals_its_separate_display(two_targets, data, target):
    """The arrays of that target, drawn alone."""
    X, Y = data.X_new, data.Y[: len(data.X_new)]
    which = {"target": target}
    interval = predict_interval(two_targets, X, [0.5, 0.9])[:, target]
    cdf = predictive_cdf(two_targets, X, Y)[:, target]
    parts = predict_uncertainty(two_targets, X, "all")
    parts = {kind: values[:, target] for kind, values in parts.items()}
    y, prediction = Y[:, target], two_targets.predict(X)[:, target]
    arguments = {"background": data.X, "of": "epistemic", **which}
    result = attributions(two_targets, X, **arguments)
    pairs = [
        (
            PredictionIntervalDisplay.from_estimator(two_targets, X, Y, **which),
            PredictionIntervalDisplay.from_predictions(y, prediction, interval),
        ),
        (
            CalibrationCurveDisplay.from_estimator(two_targets, X, Y, **which),
            CalibrationCurveDisplay.from_predictions(
                cdf=cdf, name=type(two_targets).__name__
            ),
        ),
        (
            UncertaintyDecompositionDisplay.from_estimator(two_targets, X, **which),
            UncertaintyDecompositionDisplay.from_predictions(
                *(parts[kind] for kind in ("aleatoric", "epistemic", "total")),
                measure="std",
            ),
        ),
        (
            RiskCoverageDisplay.from_estimator(two_targets, X, Y, kind="all", **which),
            RiskCoverageDisplay.from_predictions(y, prediction, parts, metric="rmse"),
        ),
        (
            AttributionDisplay.from_estimator(two_targets, X, **arguments),
            AttributionDisplay.from_attributions(result),
        ),
    ]
    total = result.base_values + result.values.sum(1)
    np.testing.assert_allclose(total, parts["epistemic"], rtol=1e-12)
    for actual, separate in pairs:
        for name, expected in vars(separate).items():
            if not name.endswith("_"):
                np.testing.assert_equal(getattr(actual, name), expected)
    # y may contain the selected target only.
    display = PredictionIntervalDisplay.from_estimator(two_targets, X, y, **which)
    np.testing.assert_array_equal(display.y, y)
    with pytest.raises(ValueError, match=r"`target` must be from 0 to 1.* got 2"):
        PredictionIntervalDisplay.from_estimator(two_targets, X, target=2)


@pytest.mark.parametrize(
    "kind",
    [
        CalibrationCurveDisplay,
        PredictionIntervalDisplay,
        RiskCoverageDisplay,
        UncertaintyDecompositionDisplay,
    ],
)
def test_one_of_several_targets_is_named(kind, two_targets, data):
    X, Y = data.X_new, data.Y[: len(data.X_new)]
    takes_y = "y" in inspect.signature(kind.from_estimator).parameters
    with pytest.raises(ValueError, match="index of one of the 2 targets"):
        kind.from_estimator(two_targets, X, *((Y,) if takes_y else ()))


@pytest.mark.parametrize(
    "kind", [PredictionIntervalDisplay, RiskCoverageDisplay, RootogramDisplay]
)
def test_exact_values_are_required(kind, regressor, data):
    y = interval_target(data.y_new - 1, data.y_new)
    with pytest.raises(ValueError, match="`y` must hold exact values; got intervals"):
        kind.from_estimator(regressor, data.X_new, y)


def test_displays_of_classes_from_predictions(classifier, data):
    X, labels = data.X_new, data.labels_new
    parts = predict_uncertainty(classifier, X, "all")
    for actual, separate in (
        (
            CalibrationCurveDisplay.from_estimator(classifier, X, labels),
            CalibrationCurveDisplay.from_predictions(
                labels, classifier.predict_proba(X), name="Pipeline"
            ),
        ),
        (
            ClassProbabilityDisplay.from_estimator(classifier, X, n_draws=4),
            ClassProbabilityDisplay.from_predictions(
                sample_f(classifier, X, 4, random_state=0), classifier.classes_
            ),
        ),
        (
            UncertaintyDecompositionDisplay.from_estimator(classifier, X),
            UncertaintyDecompositionDisplay.from_predictions(
                *(parts["expected_entropy"], parts["mutual_information"]),
                parts["entropy"],
                measure="entropy",
            ),
        ),
    ):
        for name, expected in vars(separate).items():
            if not name.endswith("_"):
                np.testing.assert_equal(getattr(actual, name), expected)


def test_one_row_has_a_mark(regressor, classifier, data):
    """A line through one point would be invisible."""
    X, y, labels = data.X_new[:1], data.y_new[:1], data.labels_new[:1]
    displays = [
        CalibrationCurveDisplay.from_estimator(classifier, X, labels),
        ClassProbabilityDisplay.from_estimator(classifier, X),
        PredictionIntervalDisplay.from_estimator(regressor, X, y),
        RiskCoverageDisplay.from_estimator(regressor, X, y),
        UncertaintyDecompositionDisplay.from_estimator(regressor, X),
        UncertaintyDecompositionDisplay.from_estimator(classifier, X),
    ]
    for display in displays:
        display.figure_.canvas.draw()
        marks = [line.get_marker() for line in display.ax_.get_lines()]
        assert set(marks) - {"None", ""}, type(display).__name__


def test_rows_in_any_order(regressor, data):
    """A picture of shuffled rows is the same."""
    order = np.arange(len(data.X_new))[::-1]
    expected = PredictionIntervalDisplay.from_estimator(
        regressor, data.X_new, data.y_new
    )
    actual = PredictionIntervalDisplay.from_estimator(
        regressor, data.X_new.iloc[order], data.y_new[order]
    )
    np.testing.assert_allclose(expected.line_.get_xydata(), actual.line_.get_xydata())
    np.testing.assert_allclose(
        expected.inside_.get_xydata(), actual.inside_.get_xydata()
    )
