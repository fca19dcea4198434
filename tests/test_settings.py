"""Global settings of NumPy, torch and warnings change no result and are restored."""

import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from scipy import sparse

import skbayesnn
from skbayesnn import (
    BBBRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._runtime import default_settings
from skbayesnn.metrics import mixture_crps, mixture_log_density


@contextmanager
def default_device(name):
    """Set torch's default device for a while."""
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype(dtype):
    """Set torch's default dtype for a while."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS = {
    "autocast to bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", torch.float16),
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "device meta": lambda: default_device("meta"),
    "double by default": lambda: default_dtype(torch.float64),
    "half by default": lambda: default_dtype(torch.float16),
    "errors raise": lambda: np.errstate(all="raise"),
}
parametrize_settings = pytest.mark.parametrize("setting", SETTINGS)


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(7)
    X = random.normal(size=(30, 3)).astype(np.float32)
    return X, X[:, 0] + 0.3 * random.normal(size=30)


def _predictions_of_regressor(X, y, **parameters):
    """All predictions of a regressor, for rows near and far."""
    model = MCDropoutRegressor((8,), max_iter=8, n_draws=7, random_state=0)
    model.set_params(**parameters).fit(X, y)
    far = 50 * y
    return [
        *model.predict(X, return_std=True),
        model.predict_interval(X, [0.5, 1 - 1e-9]),
        model.predict_interval(X[:3], kind="highest_density"),
        model.predictive_cdf(X, far),
        model.log_predictive_density(X, far),
        skbayesnn.crps(model, X, far),
        model.sample_y(X, 3),
    ]


def _predictions_of_classifier(X, y):
    model = MCDropoutClassifier((8,), max_iter=60, n_draws=7, random_state=0)
    model.fit(50 * X, y > 0)
    return [
        model.predict_proba(5000 * X),
        model.log_predictive_density(500 * X, y > 0),
        *model.predict_uncertainty(500 * X, "all").values(),
    ]


def _predictions_of_others(X, y):
    network = BBBRegressor((5,), max_iter=4, n_draws=5, random_state=0)
    model = CalibratedUncertaintyRegressor(network, cv=2).fit(X, y)
    mean, variance = np.outer([1, 300], y), np.full((2, 30), 1e-3)
    return [
        *model.predict(X, return_std=True),
        MCDropoutRegressor((4,), max_iter=2, random_state=0)
        .fit(sparse.csr_array(X), y)
        .predict(sparse.csr_array(X)),
        mixture_crps(y, mean, variance),
        mixture_log_density(y, mean, variance),
    ]


PREDICTIONS = {
    "regressor": _predictions_of_regressor,
    "heteroscedastic": lambda X, y: _predictions_of_regressor(
        X, y, likelihood="heteroscedastic"
    ),
    "classifier": _predictions_of_classifier,
    "others": _predictions_of_others,
}


@pytest.fixture(scope="module")
def usual(rows):
    return {name: predict(*rows) for name, predict in PREDICTIONS.items()}


@parametrize_settings
@pytest.mark.parametrize("model", PREDICTIONS)
def test_global_settings_do_not_change_predictions(rows, usual, setting, model):
    with SETTINGS[setting]():
        values = PREDICTIONS[model](*rows)
    for value, expected in zip(values, usual[model], strict=True):
        np.testing.assert_array_equal(value, expected)


@parametrize_settings
def test_settings_are_restored_after_a_call(setting):
    @default_settings
    def state():
        return (
            torch.is_autocast_enabled("cpu"),
            torch.get_default_device().type,
            np.geterr()["under"],
        )

    def outside():
        return np.geterr(), torch.is_autocast_enabled("cpu"), torch.empty(0).device

    with SETTINGS[setting]():
        before = outside()
        assert state() == (False, "cpu", "ignore")
        assert outside() == before


def test_default_settings_keeps_name_signature_and_errors():
    @default_settings
    def function(a, *, b=2):
        """Return a plus b."""
        raise KeyError(a + b)

    assert function.__name__ == "function" and function.__doc__ == "Return a plus b."
    with pytest.raises(KeyError, match="5"), torch.autocast("cpu", torch.bfloat16):
        function(3)


FILTERS = """
import warnings
import numpy as np
import skbayesnn
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline

X = np.random.default_rng(0).normal(size=(40, 3))
y = X[:, 0]
network = skbayesnn.MCDropoutRegressor((4,), max_iter=2, random_state=0).fit(X, y)
pipeline = make_pipeline(VarianceThreshold(), network).fit(X, y)
calls = {
    "trusted_types": skbayesnn.trusted_types,
    "split conformal": lambda: skbayesnn.ConformalRegressor(network).fit(X, y),
    "labels": lambda: skbayesnn.ConformalClassifier(
        skbayesnn.MCDropoutClassifier((4,), max_iter=2)
    ).fit(X, y > 0),
    "dumps": lambda: skbayesnn.dumps(pipeline),
    "to_onnx": lambda: skbayesnn.to_onnx(pipeline, initial_types=None),
    "frame": lambda: network.predict_uncertainty(X, as_frame=True),
    "plot": lambda: __import__("skbayesnn.plotting").plotting,
}
for name, call in calls.items():
    warnings.simplefilter("error", ResourceWarning)
    before = list(warnings.filters)
    try:
        call()
    except ImportError:
        continue
    if warnings.filters != before:
        print(name, "changes the filters of warnings")
"""


def test_warning_filters_are_unchanged():
    """Some packages set filters for the whole process when they are imported.

    The subprocess imports all packages that are imported lazily, for the first time.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FILTERS],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
