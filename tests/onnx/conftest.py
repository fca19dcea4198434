"""A small table, and networks that are fitted in milliseconds."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.seed import SEED


@pytest.fixture(scope="module")
def data():
    """X (41, 4) with unlike scales, y (41,), Y (41, 2), labels (41,), X_new (11, 4)."""
    random = np.random.default_rng([SEED, 5])
    scale, shift = np.array([1.0, 30.0, 0.1, 2.0]), np.array([0.0, 100.0, 1.0, -5.0])
    X = random.standard_normal((52, 4))
    noise = random.standard_normal((52, 2))
    Y = np.tanh(X) @ random.standard_normal((4, 2)) + 0.3 * noise
    X = (X * scale + shift).astype(np.float32)
    labels = np.argsort(np.argsort(Y[:41, 0])) * 3 // 41
    return SimpleNamespace(
        X=X[:41],
        y=10 + 3 * Y[:41, 0],
        Y=Y[:41] * [3.0, 200.0] + [10.0, 0.0],
        labels=labels,
        X_new=X[41:],
    )


@pytest.fixture
def small(seed):
    """Parameters of a network that is quick to fit."""
    return {
        "hidden_layer_sizes": (6, 5),
        "max_iter": 4,
        "n_draws": 7,
        "random_state": seed,
    }
