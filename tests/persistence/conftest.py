"""Small tables for the tests of saving and loading."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.seed import SEED


@pytest.fixture(scope="session")
def data():
    """X (41, 4), y (41,), labels (41,) of 3 kinds, X_new (11, 4)."""
    random = np.random.default_rng([SEED, 21])
    X = random.standard_normal((41, 4))
    y = X[:, 0] + 0.3 * random.standard_normal(41)
    codes = np.argsort(np.argsort(y)) * 3 // 41
    return SimpleNamespace(
        X=X,
        y=y,
        labels=np.array(["low", "mid", "top"])[codes],
        X_new=random.standard_normal((11, 4)),
    )
