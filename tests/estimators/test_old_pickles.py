"""Pickles of earlier versions are loaded, and predict the same.

Every file of the folder data/ is a dict with an estimator that a release has fitted:
``version``, ``X``, ``y``, ``estimator``, and its predictions of X: ``mean``, ``std``
and ``interval``. A release that changes the format of a fitted estimator does not
change the files.
"""

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

FILES = sorted((Path(__file__).parent / "data").glob("*.pickle"))
# Rounding of sums in another order, on another processor or number of threads.
ROUNDING = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def stored(request):
    return pickle.loads(request.param.read_bytes())


def assert_as_stored(model, stored):
    mean, std = model.predict(stored["X"], return_std=True)
    interval = model.predict_interval(stored["X"])
    np.testing.assert_allclose(mean, stored["mean"], **ROUNDING)
    np.testing.assert_allclose(std, stored["std"], **ROUNDING)
    np.testing.assert_allclose(interval, stored["interval"], **ROUNDING)


def test_files_exist():
    assert FILES


def test_loaded_model_predicts_the_same(stored):
    assert_as_stored(stored["estimator"], stored)


def test_loaded_model_is_pickled_again(stored):
    restored = pickle.loads(pickle.dumps(stored["estimator"]))
    assert_as_stored(restored, stored)


def test_loaded_model_is_fitted_again(stored):
    """Its parameters equal the parameters of a new estimator."""
    model = stored["estimator"]
    new = clone(model).fit(stored["X"], stored["y"])
    assert new.get_params() == model.get_params()
    assert new.predict(stored["X"]).shape == stored["mean"].shape
    assert_as_stored(model, stored)


def test_missing_parameter_has_its_default(stored):
    """Earlier versions trained in the dtype of X, float64, which predictions keep."""
    model = stored["estimator"]
    arrays = model.parameters_.values()
    assert {values.dtype for values in arrays} == {stored["X"].dtype}
    assert stored["X"].dtype == np.float64
    assert model.dtype == model.get_params()["dtype"] == type(model)().dtype
    for dtype in ("float32", "float64"):  # affects the next fit only
        assert_as_stored(model.set_params(dtype=dtype), stored)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_of_a_loaded_model_continues(stored, dtype):
    """From its weights, not from new ones."""
    model = stored["estimator"].set_params(dtype=dtype)
    n_epochs = model.n_epochs_seen_
    mean = model.partial_fit(stored["X"], stored["y"]).predict(stored["X"])
    assert model.n_epochs_seen_ == n_epochs + 1
    # The weights change by a single step.
    assert (np.abs(mean - stored["mean"]) < stored["std"]).all()
    assert model.parameters_["layers/0/mean"].dtype == dtype
