"""What earlier versions have stored is loaded, and predicts what it predicted then.

Every file of the folder data/ is a dict of arrays and of an estimator that was fitted
by a release: ``version``, ``X``, ``y``, ``estimator``, and what it said of X: ``mean``,
``std`` and ``interval``. A release that changes the format of a fitted
estimator leaves them as they are.
"""

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

FILES = sorted((Path(__file__).parent / "data").glob("*.pickle"))
# Sums in another order, as another processor or number of threads has them.
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


def test_there_are_files():
    assert FILES


def test_predicts_as_then(stored):
    assert_as_stored(stored["estimator"], stored)


def test_stored_again(stored):
    again = pickle.loads(pickle.dumps(stored["estimator"]))
    assert_as_stored(again, stored)


def test_fitted_again(stored):
    """Its parameters are those of an estimator of today."""
    model = stored["estimator"]
    new = clone(model).fit(stored["X"], stored["y"])
    assert new.get_params() == model.get_params()
    assert new.predict(stored["X"]).shape == stored["mean"].shape
    assert_as_stored(model, stored)


def test_parameter_of_a_later_version_has_its_default(stored):
    """The precision was that of X once: float64 here, and predictions keep it."""
    model = stored["estimator"]
    arrays = model.parameters_.values()
    assert {values.dtype for values in arrays} == {stored["X"].dtype}
    assert stored["X"].dtype == np.float64
    assert model.dtype == model.get_params()["dtype"] == type(model)().dtype
    for dtype in ("float32", "float64"):  # it waits for the next fit
        assert_as_stored(model.set_params(dtype=dtype), stored)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_goes_on(stored, dtype):
    """From where it was, not from the start."""
    model = stored["estimator"].set_params(dtype=dtype)
    n_epochs = model.n_epochs_seen_
    mean = model.partial_fit(stored["X"], stored["y"]).predict(stored["X"])
    assert model.n_epochs_seen_ == n_epochs + 1
    # Weights move by a step's length.
    assert (np.abs(mean - stored["mean"]) < stored["std"]).all()
    assert model.parameters_["layers/0/mean"].dtype == dtype
