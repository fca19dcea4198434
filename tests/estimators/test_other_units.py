"""Validation rows in the units before a scaler cause a warning; drifted rows do not."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators._training_data import _warn_of_other_units

MESSAGE = "`X_val` seems to be in other units than `X`.*transform_input=\\['X_val'\\]"
SCALERS = [
    StandardScaler(),
    MinMaxScaler(),
    RobustScaler(),
    MaxAbsScaler(),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=20),
    PCA(),
]


def is_warned_of(X, X_val):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _warn_of_other_units(X, X_val)
    return any(
        "seems to be in other units" in str(warning.message) for warning in caught
    )


def passengers(random, n=400):
    """Ages, counts, prices, a class and a sex."""
    return np.column_stack(
        [
            random.integers(1, 80, n),
            random.lognormal(3, 1, n),
            random.integers(1, 4, n),
            random.poisson(0.5, n),
            random.integers(0, 2, n),
        ]
    ).astype(float)


def tables(random):
    """Tables with values in various units, in random order."""
    return {
        "normal": random.normal(1000, 100, size=(300, 4)),
        "passengers": passengers(random),
        "wine": random.permutation(load_wine().data),
        "cancer": random.permutation(load_breast_cancer().data),
        "diabetes": random.permutation(load_diabetes().data),
        "digits": random.permutation(load_digits().data)[:400],
    }


@pytest.mark.parametrize("name", ["normal", "passengers"])
def test_validation_rows_before_a_scaler_are_detected(name, seed):
    """Not for all tables: the units of some columns are near one."""
    rows = tables(np.random.default_rng(seed))[name]
    X, X_val = np.split(rows, [len(rows) * 3 // 4])
    for dtype in (np.float64, np.float32):
        scaled = StandardScaler().fit_transform(X).astype(dtype)
        assert is_warned_of(scaled, X_val.astype(dtype))


def drifted(X_val, spread, random):
    """Rows after large drifts: all columns moved, or a few."""
    n_columns = X_val.shape[1]
    few = np.arange(n_columns) < max(n_columns // 3, 1)
    yield X_val
    yield X_val + 3 * spread
    yield X_val - random.uniform(0, 5, n_columns) * spread
    yield X_val.mean(0) + 3 * (X_val - X_val.mean(0))
    yield X_val[:1]
    yield X_val[:5]
    yield np.repeat(X_val[:1], 30, axis=0)
    # A clock moves, in less than half of the columns; or these columns are constant.
    yield np.where(few, X_val + 1000 * spread, X_val)
    yield np.where(few, 0.0, X_val)
    yield X_val[X_val[:, 0] >= np.median(X_val[:, 0])]


def test_drifted_rows_do_not_warn(seed):
    random = np.random.default_rng(seed)
    alarms = []
    for name, rows in tables(random).items():
        X, X_val = np.split(rows, [len(rows) * 3 // 4])
        for scaler in (None, *SCALERS):
            scaled, scaled_val = X, X_val
            if scaler is not None:
                scaled, scaled_val = scaler.fit_transform(X), scaler.transform(X_val)
            spread = scaled.std(0)
            for i, moved in enumerate(drifted(scaled_val, spread, random)):
                if is_warned_of(scaled, moved):
                    alarms.append((name, type(scaler).__name__, i))
    assert not alarms


@pytest.fixture
def problem(seed):
    """X (150, 4) with a mean far from zero, and y."""
    random = np.random.default_rng(seed)
    X = random.normal(1000, 100, size=(150, 4))
    return X, (3 * X[:, 0] - X[:, 1]) / 100 + 0.3 * random.normal(size=150)


@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_pipeline_needs_metadata_routing(kind, problem):
    X, y = problem
    y = y if kind is MCDropoutRegressor else (y > np.median(y)).astype(int)
    validation = {"X_val": X[100:], "y_val": y[100:]}
    network = kind((5,), early_stopping=True, max_iter=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), network)
    step = pipeline.steps[-1][0]
    with pytest.warns(UserWarning, match=MESSAGE):
        pipeline.fit(
            X[:100], y[:100], **{f"{step}__{n}": v for n, v in validation.items()}
        )
    scaler = StandardScaler().fit(X[:100])
    network.fit(
        scaler.transform(X[:100]), y[:100], None, scaler.transform(X[100:]), y[100:]
    )
    expected = network.history_["validation_score"]
    with (
        sklearn.config_context(enable_metadata_routing=True),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("error", message="`X_val`")
        network.set_fit_request(X_val=True, y_val=True)
        pipeline = Pipeline(pipeline.steps, transform_input=["X_val"])
        pipeline.fit(X[:100], y[:100], **validation)
    np.testing.assert_array_equal(pipeline[-1].history_["validation_score"], expected)


def test_wrong_number_of_validation_columns(problem):
    X, y = problem
    network = MCDropoutRegressor((5,), early_stopping=True, max_iter=3)
    pipeline = make_pipeline(PCA(2), network)
    validation = {
        "mcdropoutregressor__X_val": X[100:],
        "mcdropoutregressor__y_val": y[100:],
    }
    message = "in `X_val` and `y_val`: X has 4 features.*transform_input"
    with pytest.raises(ValueError, match=message):
        pipeline.fit(X[:100], y[:100], **validation)
    with pytest.raises(ValueError, match=r"in `X_val` and `y_val`: (?!.*Pipeline)"):
        network.fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:] * np.nan)
