"""Tests of TrainingCurveDisplay."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skbayesnn import BBBRegressor, CalibratedUncertaintyRegressor, MCDropoutRegressor
from skbayesnn.plotting import TrainingCurveDisplay


@pytest.fixture(scope="module")
def stopped(data, small):
    """3 networks with validation rows, which stop at different epochs."""
    options = small | {"max_iter": 60}
    return MCDropoutRegressor(
        n_estimators=3,
        early_stopping=True,
        n_iter_no_change=2,
        learning_rate_init=0.05,
        **options,
    ).fit(data.X, data.y)


def test_attributes(stopped):
    display = TrainingCurveDisplay.from_estimator(stopped)
    history = stopped.history_
    for name in ("negative_log_likelihood", "kl", "validation_score"):
        np.testing.assert_array_equal(getattr(display, name), history[name])
    lines = display.negative_log_likelihood_
    assert len(lines) == len(display.kl_) == len(display.validation_) == 4
    mean, *networks = lines
    epochs = np.arange(1, stopped.n_iter_ + 1)
    np.testing.assert_array_equal(mean.get_xdata(), epochs)
    np.testing.assert_array_equal(
        mean.get_ydata(), np.nanmean(history["negative_log_likelihood"], axis=1)
    )
    for i, line in enumerate(networks):
        np.testing.assert_array_equal(
            line.get_ydata(), history["negative_log_likelihood"][:, i]
        )
    np.testing.assert_array_equal(
        display.validation_[0].get_ydata(), -np.nanmean(history["validation_score"], 1)
    )


def test_without_validation(data):
    model = BBBRegressor(
        (3,), max_iter=100, length_scale=1, device="cpu", random_state=0
    )
    display = TrainingCurveDisplay.from_estimator(model.fit(data.X, data.y))
    assert display.validation_score is None and display.validation_ is None
    assert len(display.negative_log_likelihood_) == len(display.kl_) == 1
    np.testing.assert_array_equal(
        display.kl_[0].get_ydata(), model.history_["kl"][:, 0]
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: GridSearchCV(model, {"mcdropoutregressor__tau": [1.0]}, cv=2),
        lambda model: TransformedTargetRegressor(
            model, func=np.log, inverse_func=np.exp
        ),
        lambda model: CalibratedUncertaintyRegressor(model, cv=2),
        lambda model: make_pipeline("passthrough", model),
        FrozenEstimator,
    ],
    ids=["search", "target", "calibrated", "pipeline", "frozen"],
)
def test_network_inside_meta_estimators(regressor, data, wrap):
    """The display uses the fitted network inside."""
    model = wrap(regressor).fit(data.X, data.y)
    display = TrainingCurveDisplay.from_estimator(model)
    assert display.kl.shape == (20, 2)
    if isinstance(model, FrozenEstimator):
        np.testing.assert_array_equal(display.kl, regressor[-1].history_["kl"])


def test_panels(stopped, ax):
    """On two axes it draws; a single axes is divided once."""
    _, pair = plt.subplots(1, 2)
    display = TrainingCurveDisplay.from_estimator(stopped, ax=pair)
    assert list(display.axes_) == list(pair)
    assert len(pair[0].get_lines()) == 8 and len(pair[1].get_lines()) == 4
    divided = TrainingCurveDisplay.from_estimator(stopped, ax=ax, name="first")
    assert divided.figure_ is ax.figure
    with pytest.raises(ValueError, match="Give the `axes_`"):
        divided.plot(ax=ax)
    divided.plot(ax=divided.axes_, name="second")
    labels = divided.ax_.get_legend_handles_labels()[1]
    assert labels == [
        "first, training",
        "first, validation",
        "second, training",
        "second, validation",
    ]
    with pytest.raises(ValueError, match="one Axes, or two"):
        divided.plot(ax=[ax, ax, ax])


def test_errors(data, regressor):
    with pytest.raises(NotFittedError):
        TrainingCurveDisplay.from_estimator(MCDropoutRegressor())
    with pytest.raises(TypeError, match="got Ridge, which contains none"):
        TrainingCurveDisplay.from_estimator(Ridge().fit(data.X, data.y))
    bagging = BaggingRegressor(regressor[-1], n_estimators=2, random_state=0).fit(
        data.X, data.y
    )
    with pytest.raises(TypeError, match="BaggingRegressor with 2"):
        TrainingCurveDisplay.from_estimator(bagging)
    display = TrainingCurveDisplay.from_estimator(bagging.estimators_[1])
    assert display.kl.shape == (20, 2)
