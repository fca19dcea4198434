"""Files of earlier versions are loaded and predict what they predicted then.

Next to every file in the folder data/ is an archive of arrays: X, and the mean, std and
interval that the model predicted. A release that changes the format adds a file.
"""

from pathlib import Path

import numpy as np
import pytest

import skbayesnn

FILES = sorted((Path(__file__).parent / "data").glob("*.skbayesnn"))
# Sums in another order, as on another processor or with other threads.
ROUNDING = {"rtol": 1e-9, "atol": 1e-12}


def test_old_files_exist():
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_predictions_are_unchanged(path):
    model = skbayesnn.load(path)
    assert getattr(model, "estimator_", model).table_ is None
    with np.load(path.with_suffix(".npz")) as then:
        mean, std = model.predict(then["X"], return_std=True)
        np.testing.assert_allclose(mean, then["mean"], **ROUNDING)
        np.testing.assert_allclose(std, then["std"], **ROUNDING)
        interval = model.predict_interval(then["X"])
        np.testing.assert_allclose(interval, then["interval"], **ROUNDING)
