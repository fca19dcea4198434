"""Networks that are fitted in milliseconds, and a check of matplotlib's state."""

import warnings
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from tests.helpers.seed import SEED

ROWS, NEW = 43, 17
SMALL = {
    "hidden_layer_sizes": (8,),
    "max_iter": 20,
    "n_draws": 13,
    "dropout": 0.1,
    "length_scale": 0.1,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}


@pytest.fixture(autouse=True)
def matplotlib_is_untouched():
    """Settings of matplotlib do not change, and all figures are closed."""
    before = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == before


@pytest.fixture(scope="session")
def small():
    """Parameters of a network that is quick to fit."""
    return SMALL


@pytest.fixture(scope="session")
def data():
    """X (43, 4) with names, y (43,), Y (43, 2), labels (43,) of 3 kinds; and 17 new."""
    random = np.random.default_rng([SEED, 7])
    X = pd.DataFrame(random.standard_normal((ROWS + NEW, 4)), columns=list("abcd"))
    noise = random.standard_normal(ROWS + NEW)
    y = 20 + 3 * np.tanh(X["a"]).to_numpy() + noise
    # Every label occurs among old and new rows, for every seed.
    labels = np.array(["low", "mid", "top"])[np.arange(ROWS + NEW) % 3]
    X["b"] += (np.arange(ROWS + NEW) % 3) - 1.0
    return SimpleNamespace(
        X=X[:ROWS],
        y=y[:ROWS],
        Y=np.stack([y, -y], axis=1)[:ROWS],
        labels=labels[:ROWS],
        X_new=X[ROWS:].reset_index(drop=True),
        y_new=y[ROWS:],
        labels_new=labels[ROWS:],
        weights=random.uniform(0.5, 2, NEW),
    )


def _fitted(model, *rows):
    with warnings.catch_warnings():
        # With so few epochs the networks explain little.
        warnings.simplefilter("ignore")
        return model.fit(*rows)


@pytest.fixture(scope="session")
def regressor(data):
    """A pipeline that ends with an ensemble of 2 networks."""
    network = MCDropoutRegressor(n_estimators=2, **SMALL)
    return _fitted(make_pipeline(StandardScaler(), network), data.X, data.y)


@pytest.fixture(scope="session")
def two_targets(data):
    """A network for 2 targets."""
    return _fitted(MCDropoutRegressor(**SMALL), data.X, data.Y)


@pytest.fixture(scope="session")
def classifier(data):
    """A pipeline that ends with a network for 3 labels."""
    network = MCDropoutClassifier(**SMALL)
    return _fitted(make_pipeline(StandardScaler(), network), data.X, data.labels)


@pytest.fixture(scope="session")
def along(data):
    """11 rows of X that differ in "c" only."""
    X = pd.concat([data.X.iloc[:1]] * 11, ignore_index=True)
    X["c"] = np.linspace(-2, 2, 11)[::-1]
    return X


@pytest.fixture
def ax():
    """Axes of a new figure."""
    return plt.subplots()[1]
