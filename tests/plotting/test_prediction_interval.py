"""Tests of PredictionIntervalDisplay."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn.compose import TransformedTargetRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.preprocessing import PowerTransformer

from skbayesnn import ConformalRegressor, predict_interval
from skbayesnn.plotting import PredictionIntervalDisplay


def test_attributes(regressor, data):
    display = PredictionIntervalDisplay.from_estimator(
        regressor, data.X_new, data.y_new, coverage=(0.3, 0.95, 0.8)
    )
    np.testing.assert_array_equal(display.prediction, regressor.predict(data.X_new))
    for i, coverage in enumerate((0.3, 0.95, 0.8)):
        expected = predict_interval(regressor, data.X_new, coverage)
        np.testing.assert_allclose(display.interval[:, i], expected, rtol=1e-12)
    np.testing.assert_array_equal(display.y, data.y_new)
    assert display.x is None


def test_targets_outside_are_marked(regressor, data):
    display = PredictionIntervalDisplay.from_estimator(
        regressor, data.X_new, data.y_new, coverage=(0.6, 0.2)
    )
    lower, upper = display.interval[:, 0].T
    outside = (data.y_new < lower) | (data.y_new > upper)
    assert sorted(display.outside_.get_ydata()) == sorted(data.y_new[outside])
    assert sorted(display.inside_.get_ydata()) == sorted(data.y_new[~outside])
    assert display.outside_.get_label() == (
        f"outside of 60 %: {outside.sum()} of {len(outside)}"
    )


def test_rows_without_a_target_are_not_counted(regressor, data):
    y = np.where(np.arange(len(data.y_new)) < 3, np.nan, data.y_new)
    display = PredictionIntervalDisplay.from_estimator(regressor, data.X_new, y)
    n_outside = len(display.outside_.get_ydata())
    assert len(display.inside_.get_ydata()) + n_outside == len(y) - 3
    assert display.outside_.get_label().endswith(f": {n_outside} of {len(y) - 3}")


def test_sorted_by_prediction(regressor, data):
    display = PredictionIntervalDisplay.from_estimator(regressor, data.X_new)
    x, y = display.line_.get_data()
    np.testing.assert_array_equal(x, np.arange(len(data.X_new)))
    np.testing.assert_array_equal(y, np.sort(display.prediction))
    assert display.inside_ is None and display.outside_ is None


@pytest.mark.parametrize("feature", ["c", 2])
def test_over_a_feature(regressor, along, feature):
    """If only the feature varies, rows are joined in its order."""
    display = PredictionIntervalDisplay.from_estimator(
        regressor, along, feature=feature
    )
    assert display.joined
    np.testing.assert_array_equal(display.x, along["c"])
    x, y = display.line_.get_data()
    np.testing.assert_array_equal(x, np.sort(along["c"]))
    np.testing.assert_array_equal(y, display.prediction[::-1])
    assert display.ax_.get_xlabel() == "c"


def test_bars_where_other_features_vary(regressor, data):
    display = PredictionIntervalDisplay.from_estimator(
        regressor, data.X_new, data.y_new, feature="a", coverage=0.8
    )
    assert not display.joined
    assert display.line_.get_linestyle() == "None"
    [bars] = display.bands_
    order = np.argsort(data.X_new["a"])
    for row, ends in zip(order, bars.get_segments(), strict=True):
        np.testing.assert_allclose(ends[:, 0], data.X_new["a"][row])
        np.testing.assert_allclose(ends[:, 1], display.interval[row, 0])


@pytest.mark.parametrize(
    "as_type", [np.asarray, csr_array, lambda X: X.values.tolist()]
)
def test_feature_of_other_tables(regressor, data, along, as_type):
    display = PredictionIntervalDisplay.from_estimator(
        regressor[-1], as_type(data.X_new), feature=1
    )
    np.testing.assert_allclose(display.x, data.X_new["b"])
    assert display.ax_.get_xlabel() == "feature 1"
    assert not display.joined
    display = PredictionIntervalDisplay.from_estimator(
        regressor[-1], as_type(along), feature=2
    )
    assert display.joined


def test_polars(regressor, data):
    X = pl.from_pandas(data.X_new)
    display = PredictionIntervalDisplay.from_estimator(regressor, X, feature="d")
    np.testing.assert_array_equal(display.x, data.X_new["d"])


def test_from_predictions(regressor, data, along):
    for X, feature, arguments in (
        (data.X_new, None, {}),
        (along, "c", {"x": along["c"], "x_name": "c"}),
    ):
        expected = PredictionIntervalDisplay.from_estimator(
            regressor, X, coverage=(0.5, 0.9), feature=feature
        )
        actual = PredictionIntervalDisplay.from_predictions(
            None,
            regressor.predict(X),
            predict_interval(regressor, X, [0.5, 0.9]),
            **arguments,
        )
        for name in ("prediction", "interval", "coverage", "x"):
            np.testing.assert_array_equal(
                getattr(expected, name), getattr(actual, name)
            )
        assert expected.joined == actual.joined and expected.x_name == actual.x_name


def test_single_coverage(regressor, data):
    """A float instead of a list, and intervals without an axis of coverages."""
    interval = predict_interval(regressor, data.X_new, 0.7)
    display = PredictionIntervalDisplay.from_predictions(
        data.y_new, regressor.predict(data.X_new), interval, coverage=0.7
    )
    np.testing.assert_array_equal(display.interval, interval[:, None])
    again = PredictionIntervalDisplay.from_estimator(
        regressor, data.X_new, data.y_new, coverage=0.7
    )
    np.testing.assert_allclose(again.interval, display.interval, rtol=1e-12)


def test_highest_density(regressor, data):
    display = PredictionIntervalDisplay.from_estimator(
        regressor, data.X_new, coverage=[0.5], kind="highest_density"
    )
    expected = predict_interval(regressor, data.X_new, [0.5], kind="highest_density")
    np.testing.assert_array_equal(display.interval, expected)


def test_target_transform(regressor, data):
    model = TransformedTargetRegressor(regressor, transformer=PowerTransformer())
    model.fit(data.X, data.y)
    display = PredictionIntervalDisplay.from_estimator(model, data.X_new)
    expected = predict_interval(model, data.X_new, [0.5, 0.9])
    np.testing.assert_array_equal(display.interval, expected)


def test_conformal(regressor, data):
    model = ConformalRegressor(regressor, method="cv+", cv=3).fit(data.X, data.y)
    display = PredictionIntervalDisplay.from_estimator(model, data.X_new, data.y_new)
    np.testing.assert_array_equal(
        display.interval[:, 1], predict_interval(model, data.X_new, 0.9)
    )


def test_infinite_bounds():
    """As in a conformal interval from too few rows."""
    interval = np.array([[[-1.0, 1.0], [-np.inf, np.inf]]] * 3)
    display = PredictionIntervalDisplay.from_predictions([0, 5, 6], [0, 1, 2], interval)
    display.figure_.canvas.draw()
    assert np.isfinite(display.ax_.get_ylim()).all()
    assert len(display.outside_.get_xdata()) == 0


def test_one_row_is_a_bar(regressor, data):
    """A single row has an interval and a prediction, but no line."""
    display = PredictionIntervalDisplay.from_estimator(
        regressor, data.X_new[:1], data.y_new[:1]
    )
    for level, band in enumerate(display.bands_):
        [segment] = band.get_segments()
        np.testing.assert_allclose(segment[:, 1], display.interval[0, level])
        assert band.get_linewidth() > 0
    assert display.line_.get_marker() == "_"
    np.testing.assert_allclose(display.line_.get_ydata(), display.prediction)
    display.figure_.canvas.draw()
    assert [tick for tick in display.ax_.get_xticks() if abs(tick) < 0.05] == [0]


def test_target_in_a_column(regressor, data):
    """Of shape (n_samples, 1), as in MultiOutputRegressor."""
    model = MultiOutputRegressor(regressor).fit(data.X, data.y[:, None])
    display = PredictionIntervalDisplay.from_estimator(
        model, data.X_new, data.y_new[:, None]
    )
    assert display.interval.shape == (len(data.X_new), 2, 2)
    assert display.y.shape == display.prediction.shape == (len(data.X_new),)


@pytest.mark.parametrize("feature", ["z", 7])
def test_unknown_feature(regressor, data, feature):
    with pytest.raises(ValueError, match="must be a column of X"):
        PredictionIntervalDisplay.from_estimator(regressor, data.X_new, feature=feature)
    with pytest.raises(ValueError, match="must be a column of X"):
        PredictionIntervalDisplay.from_estimator(
            regressor, data.X_new.to_numpy(), feature=feature
        )


def test_feature_of_text(regressor, data):
    X = data.X_new.assign(a=[f"some words of row {i}" for i in range(len(data.X_new))])
    X = pd.concat([X, X.assign(a=X["a"] + " again")], ignore_index=True)
    with pytest.raises(ValueError, match="which is free text"):
        PredictionIntervalDisplay.from_estimator(regressor, X, feature="a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1.0, 2.0]}, "must have the 3 rows"),
        ({"interval": np.zeros((3, 1, 2))}, "for each row and coverage"),
        ({"x": [1.0, 2.0]}, "one number or date per row"),
        ({"prediction": np.zeros((3, 5))}, "one of the 5 targets"),
        ({"prediction": np.zeros((3, 5, 2))}, "must have 1 axes"),
    ],
)
def test_shapes(change, message):
    arguments = {
        "y": np.zeros(3),
        "prediction": np.zeros(3),
        "interval": np.zeros((3, 2, 2)),
    }
    with pytest.raises(ValueError, match=message):
        PredictionIntervalDisplay.from_predictions(**arguments | change)


def test_classifier_is_refused(classifier, data):
    with pytest.raises(TypeError, match="needs a regressor"):
        PredictionIntervalDisplay.from_estimator(classifier, data.X_new)


def test_many_rows_are_pixels():
    """Thousands of points do not make a large vector graphic."""
    n = 3000
    y = np.linspace(-2, 2, n)
    display = PredictionIntervalDisplay.from_predictions(
        y, 0 * y, np.tile([-1.0, 1.0], (n, 1)), coverage=0.9
    )
    assert display.inside_.get_rasterized() and display.outside_.get_rasterized()
    assert display.inside_.get_markersize() < 2


@pytest.mark.parametrize("with_targets", [True, False])
def test_few_infinite_intervals_exceed_the_limits(with_targets):
    """Otherwise they would compress all others; the axis label gives their number."""
    center = np.linspace(-1, 1, 97)
    reach = np.ones(97)
    reach[[5, 60]] = 1e5
    interval = center[:, None] + reach[:, None] * [-1, 1]
    y = center if with_targets else None
    display = PredictionIntervalDisplay.from_predictions(
        y, center, interval, coverage=0.9
    )
    low, high = display.ax_.get_ylim()
    assert -10 < low < -1.9 and 1.9 < high < 10
    assert display.ax_.get_ylabel() == "y (2 of 97 rows reach beyond)"


def test_moderate_outliers_are_within_the_limits():
    center = np.linspace(-1, 1, 97)
    interval = center[:, None] + np.linspace(1, 4, 97)[:, None] * [-1, 1]
    display = PredictionIntervalDisplay.from_predictions(
        center, center, interval, coverage=0.9
    )
    low, high = display.ax_.get_ylim()
    assert low < interval.min() and interval.max() < high
    assert display.ax_.get_ylabel() == "y"


@pytest.mark.parametrize("n_rows", [30, 97])
@pytest.mark.parametrize("kind", ["target", "interval", "row"])
def test_one_distant_row_exceeds_the_limits(n_rows, kind):
    """Targets, intervals and predictions are treated alike."""
    center = np.linspace(-1, 1, n_rows)
    y, reach, prediction = center.copy(), np.ones(n_rows), center.copy()
    if kind == "target":
        y[7] = 1e4
    elif kind == "interval":
        reach[7] = 1e4
    else:
        prediction[7] = -1e4
    display = PredictionIntervalDisplay.from_predictions(
        y, prediction, prediction[:, None] + reach[:, None] * [-1, 1], coverage=0.9
    )
    low, high = display.ax_.get_ylim()
    assert -4 < low < -1.9 and 1.9 < high < 4
    assert display.ax_.get_ylabel() == f"y (1 of {n_rows} rows reach beyond)"


def test_name_of_y(regressor, two_targets, data):
    """The axis and the legend have the name of y, short and without formulas."""
    Y = pd.DataFrame(np.column_stack([data.y_new, -data.y_new]), columns=["u", "v"])
    for model, y, target, expected in (
        (regressor, data.y_new, None, "y"),
        (regressor, pd.Series(data.y_new), None, "y"),
        (regressor, pd.Series(data.y_new, name="in $"), None, r"in \$"),
        (regressor, pl.Series("load", data.y_new), None, "load"),
        (regressor, pd.Series(data.y_new, name="a" * 90), None, "a\u2026a"),
        (regressor, pd.Series(data.y_new, name="_id"), None, " _id"),
        (two_targets, Y, 1, "v"),
    ):
        display = PredictionIntervalDisplay.from_estimator(
            model, data.X_new, y, target=target
        )
        label = display.ax_.get_ylabel()
        assert label == expected or (len(label) < 40 and expected in label)
        assert label[:9] == display.inside_.get_label()[:9]


@pytest.mark.parametrize("seed", range(3))
def test_log_axis_of_skewed_positive_targets(seed):
    """All rows are shown, and half of the rows take more than a fifth of the axis."""
    mean = np.exp(12 + np.linspace(-1, 1.5, 80))
    random = np.random.default_rng([seed, 3])
    y = mean * np.exp(0.1 * random.standard_normal(80))
    y[40] = 2e6
    bounds = mean[:, None] + 1e5 * np.array([-1, 1])  # some are negative

    def limits(y, mean, bounds, **kwargs):
        ax = PredictionIntervalDisplay.from_predictions(
            y, mean, bounds, coverage=0.9, **kwargs
        ).ax_
        return ax.get_yscale(), *ax.get_ylim(), ax.get_ylabel()

    scale, low, high, label = limits(y, mean, bounds)
    n_beyond = ((bounds < low) | (bounds > 10 * y.max())).any(axis=1).sum()
    assert n_beyond > 0 and scale == "log"
    assert label == f"y (log scale, {n_beyond} of 80 rows reach beyond)"
    assert limits(y, mean, mean[:, None] * [0.9, 1.1])[-1] == "y (log scale)"
    assert 0 < low < min(y.min(), mean.min()) and y.max() < high
    shares = (np.log(np.quantile(y, [0, 0.5])) - np.log(low)) / np.log(high / low)
    assert np.diff(shares) > 0.15
    # Not if a value is not positive, if y is not skewed, and along a feature.
    for arguments in (
        (np.where(y == y.min(), 0, y), mean, bounds),
        (1e7 + y, 1e7 + mean, 1e7 + bounds),
        (np.linspace(1, 2, 80), np.linspace(1, 2, 80), bounds),
    ):
        assert limits(*arguments)[0] == "linear"
    assert limits(y, mean, bounds, x=np.arange(80))[0] == "linear"
    # A value that is far from all others is left out, as on other axes.
    y[40] = 1e15
    scale, _, high, label = limits(y, mean, bounds)
    assert scale == "linear" and high < 1e8 and "1 of 80" in label
