"""Steps before the network, converted by skl2onnx; and meta-estimators around it."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from skbayesnn import (
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    to_onnx,
)
from skbayesnn.preprocessing import PiecewiseLinearEncoder
from tests.helpers.onnx_running import (
    assert_close,
    assert_same_classification,
    assert_same_regression,
    expected_regression,
    outputs,
)

pytest.importorskip("onnxruntime")
types = pytest.importorskip("skl2onnx.common.data_types")

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
)

# Seconds since 1970 within some minutes: neighbouring float32 values differ by 128.
FAR = np.array([1.7e9, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [StandardScaler()],
        ["passthrough", StandardScaler()],
    ],
    ids=str,
)
def test_columns_that_single_precision_rounds(steps, data, small):
    """In single precision there is a warning, but not in double precision."""
    X = data.X * [60 / data.X[:, 0].std(), 1, 1, 1] + FAR
    model = make_pipeline(*clone(steps, safe=False), MCDropoutRegressor(**small)).fit(
        X, data.y
    )
    for exported in (model, FrozenEstimator(model)):
        with pytest.warns(UserWarning, match=r"rounds columns \[0\].*DoubleTensorType"):
            to_onnx(exported)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the graph takes float32")
        double = [("X", types.DoubleTensorType([None, 4]))]
        graph = to_onnx(model, initial_types=double)
        to_onnx(make_pipeline(*steps, MCDropoutRegressor(**small)).fit(data.X, data.y))
    # After skl2onnx's scaler rows are single; a distance of seconds would not be.
    assert_close(outputs(graph, {"X": X}), expected_regression(model, X), data.y, 1e-4)


STEPS = {
    "none": [],
    "passthrough": ["passthrough"],
    "scaler": [StandardScaler()],
    "three": [
        SimpleImputer(),
        MinMaxScaler(),
        PolynomialFeatures(2, include_bias=False),
    ],
    "encoder": [PiecewiseLinearEncoder(n_bins=5)],
    "encoder behind": [StandardScaler(), PiecewiseLinearEncoder(keep_columns=True)],
    "encoder of some": [
        ColumnTransformer(
            [("bins", PiecewiseLinearEncoder(), [0, 2]), ("as is", "passthrough", [3])]
        )
    ],
}


@pytest.mark.parametrize("name", STEPS)
def test_pipelines(name, data, small):
    model = make_pipeline(*STEPS[name], MCDropoutRegressor(**small))
    assert_same_regression(model.fit(data.X, data.Y), data.X_new, data.Y)
    model = make_pipeline(*STEPS[name], MCDropoutClassifier(**small))
    assert_same_classification(model.fit(data.X, data.labels), data.X_new)


class SearchOfAnotherLibrary(BaseEstimator):
    """A search, recognised by its attributes."""

    def fit(self, X, y):
        """Required of every estimator."""


def test_samplers_are_skipped_and_other_searches_opened(data, small):
    """A sampler changes training rows only; a search has a best estimator."""
    pipeline = pytest.importorskip("imblearn.pipeline")
    sampling = pytest.importorskip("imblearn.under_sampling")
    model = pipeline.make_pipeline(
        StandardScaler(),
        sampling.RandomUnderSampler(random_state=0),
        MCDropoutClassifier(**small),
    )
    model.fit(data.X, data.labels)
    assert_same_classification(model, data.X_new)
    search = SearchOfAnotherLibrary()
    search.best_estimator_ = model
    outputs_ = {output.name for output in to_onnx(model).graph.output}
    assert {output.name for output in to_onnx(search).graph.output} == outputs_


def test_encoder_beyond_its_edges_and_of_a_constant_column(data, small):
    X = data.X.copy()
    X[:, 1] = 3
    encoder = PiecewiseLinearEncoder(n_bins=3, keep_columns=True)
    model = make_pipeline(encoder, MCDropoutRegressor(**small))
    with pytest.warns(UserWarning, match="constant"):
        model.fit(X, data.y)
    beyond = np.array([1, 0, 1, 1])
    far = np.stack([X.min(0) - beyond, X.max(0) + beyond])
    assert_same_regression(model, far, data.y)


def test_encoder_of_codes(data, small):
    """Repeated values, and other values."""
    X = data.X.copy()
    X[:, 1] = np.resize([0, 0, 0, 0, 0.1, 7.3, 7.4, 99.7], len(X))
    encoder = PiecewiseLinearEncoder(n_bins=3, keep_columns=True, n_values=4)
    model = make_pipeline(encoder, MCDropoutRegressor(**small)).fit(X, data.y)
    assert len(encoder.values_[1]) == 4
    X_new = data.X_new.copy()
    X_new[:, 1] = np.resize([7.4, 0.1, 7.39, 0, 100], len(X_new))
    assert_same_regression(model, X_new, data.y)


def test_nested_meta_estimators(data, small):
    """Searches, frozen steps and corrections, in any order."""
    network = MCDropoutRegressor(**small)
    pipeline = make_pipeline(StandardScaler(), network)
    frozen = FrozenEstimator(StandardScaler().fit(data.X))
    grid = {"mcdropoutregressor__tau": [0.1, 1.0]}
    for model in (
        GridSearchCV(pipeline, grid, cv=2),
        make_pipeline(frozen, network),
        CalibratedUncertaintyRegressor(pipeline, cv=2),
        make_pipeline(StandardScaler(), CalibratedUncertaintyRegressor(network, cv=2)),
    ):
        assert_same_regression(model.fit(data.X, data.y), data.X_new, data.y)
    assert_same_regression(FrozenEstimator(model), data.X_new, data.y)


def test_the_default_pool(data, seed):
    stack = BayesianStackingRegressor(max_iter=3, cv=2, random_state=seed)
    assert_same_regression(stack.fit(data.X, data.y), data.X_new, data.y)


def test_columns_of_several_types(data, small):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(data.X[:, :2], columns=["size", "weight"])
    X["kind"] = np.array(["red", "green", "blue"])[data.labels]
    steps = ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["size", "weight"]),
            ("kinds", OneHotEncoder(sparse_output=False), ["kind"]),
        ]
    )
    model = make_pipeline(steps, MCDropoutRegressor(**small)).fit(X, data.y)
    numbers, strings = (
        kind([None, 1]) for kind in (types.FloatTensorType, types.StringTensorType)
    )
    initial = [("size", numbers), ("weight", numbers), ("kind", strings)]
    inputs = {name: X[[name]].to_numpy() for name in X}
    actual = outputs(to_onnx(model, initial_types=initial), inputs)
    assert_close(actual, expected_regression(model, X), data.y)
    with pytest.raises(TypeError, match="one input"):
        to_onnx(model[-1], initial_types=initial)


def test_refusals(data, small):
    model = BaggingRegressor(MCDropoutRegressor(**small), 2, random_state=0)
    model.fit(data.X, data.y)
    with pytest.raises(TypeError, match="got BaggingRegressor"):
        to_onnx(model)
