"""Tables that the tests of stacks share."""

import numpy as np
import pytest

from tests.helpers.stacks import COLUMNS, ROWS


@pytest.fixture
def table(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, COLUMNS))
    return X, X[:, 0] + np.abs(X[:, 1]) + 0.3 * random.normal(size=ROWS)


@pytest.fixture
def labelled(table):
    X, y = table
    return X, np.array(["low", "middle", "high"])[np.digitize(y, [0.0, 1.0])]
