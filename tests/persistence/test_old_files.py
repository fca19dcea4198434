"""What earlier versions have saved is loaded, and predicts what it predicted then.

Next to every file of the folder data/ is an archive of arrays: X, and the mean, std and
interval that the model said of them. A release that changes the format adds a file.
"""

from pathlib import Path

import numpy as np
import pytest

import skbayesnn

FILES = sorted((Path(__file__).parent / "data").glob("*.skbayesnn"))
# Sums in another order, as another processor or number of threads has them.
ROUNDING = {"rtol": 1e-9, "atol": 1e-12}


def test_there_are_files():
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_predicts_as_then(path):
    model = skbayesnn.load(path)
    with np.load(path.with_suffix(".npz")) as then:
        mean, std = model.predict(then["X"], return_std=True)
        np.testing.assert_allclose(mean, then["mean"], **ROUNDING)
        np.testing.assert_allclose(std, then["std"], **ROUNDING)
        interval = model.predict_interval(then["X"])
        np.testing.assert_allclose(interval, then["interval"], **ROUNDING)
