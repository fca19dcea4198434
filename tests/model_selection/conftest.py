"""Small tables, and a record of the trained programs."""

from types import SimpleNamespace

import numpy as np
import pytest

from skbayesnn._batch import executor
from tests.helpers.comparison import SEED

ROWS, NEW, INPUTS, TARGETS = 47, 11, 4, 2


@pytest.fixture(scope="session")
def data():
    """X (47, 4), y (47,), Y (47, 2), labels of 3 classes, weights; and 11 new rows."""
    random = np.random.default_rng([SEED, 17])
    X = random.standard_normal((ROWS + NEW, INPUTS))
    Y = np.tanh(X) @ random.standard_normal((INPUTS, TARGETS))
    Y += 0.3 * random.standard_normal(Y.shape)
    Y = Y * [1.0, 20.0] + [3.0, -40.0]
    # Classes have nearly equal numbers of rows, and follow the first column.
    labels = np.array(["top", "low", "mid"])[
        np.argsort(np.argsort(X[:, 0])) * 3 // len(X)
    ]
    return SimpleNamespace(
        X=X[:ROWS],
        y=Y[:ROWS, 0].copy(),
        Y=Y[:ROWS],
        labels=labels[:ROWS],
        weights=random.uniform(0.2, 2.0, ROWS),
        groups=np.arange(ROWS) % 7,
        X_new=X[ROWS:],
        y_new=Y[ROWS:, 0].copy(),
        labels_new=labels[ROWS:],
    )


@pytest.fixture
def programs(monkeypatch):
    """Number of members of every trained program."""
    train_group, records = executor.train_group, []

    def train(group, scorer):
        records.append(len(group))
        return train_group(group, scorer)

    monkeypatch.setattr(executor, "train_group", train)
    return records
