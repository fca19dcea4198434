"""Small tables, and networks that are fitted in milliseconds."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from skbayesnn.estimators._streaming import Difference
from tests.helpers.bad_input import KINDS, target
from tests.helpers.seed import SEED

ROWS, INPUTS, TARGETS, NEW = 41, 4, 3, 11


@pytest.fixture(scope="session")
def data():
    """X (41, 4), y (41,), Y (41, 3), labels (41,) of 3 classes, X_new (11, 4)."""
    random = np.random.default_rng([SEED, 1])
    X = random.standard_normal((ROWS, INPUTS))
    slopes = random.standard_normal((INPUTS, TARGETS))
    noise = 0.3 * random.standard_normal((ROWS, TARGETS))
    Y = (np.tanh(X) @ slopes + noise) * [2.0, 0.5, 30.0] + [5.0, -1.0, 100.0]
    # Every label occurs, with any seed.
    codes = np.argsort(np.argsort(X[:, 0] + 0.3 * noise[:, 0])) * 3 // ROWS
    return SimpleNamespace(
        X=X,
        y=Y[:, 0].copy(),
        Y=Y,
        codes=codes,
        labels=np.array(["low", "mid", "top"])[codes],
        X_new=random.standard_normal((NEW, INPUTS)),
        y_new=5.0 + 2.0 * random.standard_normal(NEW),
        Y_new=random.standard_normal((NEW, TARGETS)) * [2.0, 0.5, 30.0],
    )


@pytest.fixture(scope="session")
def small():
    """Parameters of a network that is quick to fit.

    In float64, since most comparisons are up to rounding; `test_precision.py` tests
    float32, the default.
    """
    return {
        "hidden_layer_sizes": (8, 6),
        "max_iter": 20,
        "n_draws": 13,
        "dropout": 0.1,
        "length_scale": 0.1,
        "device": "cpu",
        "dtype": "float64",
        "random_state": SEED,
    }


def pytest_collection_modifyitems(items):
    """Let expected failures of scikit-learn's checks pass without an error.

    Their check data are pure noise, and the weights of a regressor can go to zero. Then
    weighted and repeated rows agree, even in stochastic training.
    """
    for item in items:
        if getattr(item, "originalname", "") == "test_scikit_learn_contract":
            for mark in item.iter_markers("xfail"):
                mark.kwargs["strict"] = False


@pytest.fixture
def assert_refused(small):
    """A check that fit raises an error and leaves the estimator unchanged."""

    def check(kind, X, y, error, message, sample_weight=None, **parameters):
        model = kind(**small | parameters)
        before = copy.deepcopy(vars(model))
        with pytest.raises(error, match=message):
            model.fit(X, y, sample_weight=sample_weight)
        assert vars(model).keys() == before.keys()

    return check


@pytest.fixture(scope="module")
def fitted(data, small):
    return {kind: kind(**small).fit(data.X, target(kind, data)) for kind in KINDS}


@pytest.fixture
def taken(monkeypatch):
    """Every update by ``partial_fit`` is taken, even if it is worse."""
    monkeypatch.setattr(Difference, "is_clear", False)
