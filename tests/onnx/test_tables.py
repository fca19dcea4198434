"""Models of frames: each column is an input, and the graph encodes it."""

import json
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    to_onnx,
)
from skbayesnn._onnx.graph import Graph
from skbayesnn._onnx.tables import (
    add_inputs,
    description,
    encoded_table,
    input_columns,
)
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.preprocessing import PiecewiseLinearEncoder, TableEncoder
from tests.helpers.frames import mixed_frame, new_frame
from tests.helpers.onnx_running import (
    assert_close,
    assert_close_classes,
    expected_classification,
    expected_regression,
    outputs,
)

pytest.importorskip("onnxruntime")
pandas = pytest.importorskip("pandas")
types = pytest.importorskip("skl2onnx.common.data_types")

pytestmark = [
    # Of a constant column, of new missing values, and of later dates.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def frame():
    return mixed_frame(53, np.random.default_rng(7))


@pytest.fixture(scope="module")
def y(frame):
    """A target that depends on numbers, categories and dates."""
    size = frame["size"].fillna(0.0).to_numpy()
    colour = (frame["colour"] == "red").to_numpy()
    month = frame["start"].dt.month.fillna(3.0).to_numpy()
    return 20.0 + size + 2 * colour + 0.3 * month


@pytest.fixture
def later(seed):
    """Rows with levels that `fit` has not seen, and more missing values."""
    return new_frame(12, np.random.default_rng([seed, 8]))


def as_inputs(frame, graph):
    """Inputs of a graph, by the kinds in its metadata."""
    [about] = [p.value for p in graph.metadata_props if p.key == "columns"]
    return {
        name: _as_input(frame[name], column["kind"], column.get("time_zone"))
        for name, column in json.loads(about).items()
    }


def _as_input(column, kind, time_zone):
    if kind in ("category", "ordered"):
        values = column.astype(object).where(column.notna(), "").astype(str)
        return values.to_numpy(dtype=object)[:, None]
    if kind == "date":
        if time_zone is not None:
            column = column.dt.tz_convert(time_zone).dt.tz_localize(None)
        return column.to_numpy("datetime64[us]").astype(np.int64)[:, None]
    if kind == "duration":
        column = column / pandas.Timedelta(seconds=1)
    return column.astype(float).to_numpy()[:, None]


REGRESSORS = {
    "network": lambda network: network,
    "search": lambda network: BatchedGridSearchCV(network, {"tau": [1.0, 2.0]}, cv=2),
    "scaled": lambda network: CalibratedUncertaintyRegressor(network, cv=2),
    "stack": lambda network: BayesianStackingRegressor(
        max_iter=2, cv=2, random_state=0
    ),
    "stack of a pool": lambda network: BayesianStackingRegressor(
        [("one", network), ("two", network)], cv=2, random_state=0
    ),
    "encoder": lambda network: make_pipeline(
        "passthrough", TableEncoder(target_type="continuous"), network
    ),
    "encoder and scaler": lambda network: make_pipeline(
        TableEncoder(target_type="continuous"), StandardScaler(), network
    ),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name, frame, y, later, small):
    model = REGRESSORS[name](MCDropoutRegressor(**small)).fit(frame, y)
    graph = to_onnx(model)
    for rows in (frame, later, later[:1]):
        expected = expected_regression(model, rows)
        assert_close(outputs(graph, as_inputs(rows, graph)), expected, y)


def test_stack_with_a_candidate_on_the_frame(seed, small):
    """Other candidates get encoded columns; each averages over unknown values."""
    random = np.random.default_rng([seed, 10])
    shops = random.integers(30, size=90)
    X = pandas.DataFrame({"a": random.standard_normal(90), "shop": shops.astype(str)})
    X["flag"] = random.random(90) < 0.5
    y = X["a"].to_numpy() + random.standard_normal(30)[shops]
    piped = make_pipeline(TableEncoder(), MCDropoutRegressor(**small))
    pool = [("network", "fast"), ("piped", piped)]
    model = BayesianStackingRegressor(pool, cv=2, max_iter=2, random_state=0)
    model.fit(X, y)
    # Whatever the weights are, both kinds of candidates are in the graph.
    candidates = [model.estimators_[0], clone(piped).fit(X, y)]
    if model.on_frame_[0]:
        candidates[0] = MCDropoutRegressor(**small).fit(model.table_.transform(X), y)
    model.estimators_, model.on_frame_ = candidates, [False, True]
    model.n_draws_ = np.array([33, 5])
    X.loc[:3, "a"], X.loc[2:5, "shop"] = np.nan, "new"
    graph = to_onnx(model)
    expected = expected_regression(model, X)
    assert_close(outputs(graph, as_inputs(X, graph)), expected, y)


@pytest.mark.parametrize("stacks", [False, True])
def test_classifiers(stacks, frame, y, later, small):
    labels = np.array(["a", "b", "c"])[np.argsort(np.argsort(y)) * 3 // len(y)]
    model = MCDropoutClassifier(categorical_features=["grade"], **small)
    if stacks:
        model = BayesianStackingClassifier(max_iter=2, cv=2, random_state=0)
    model.fit(frame, labels)
    graph = to_onnx(model)
    actual = outputs(graph, as_inputs(later, graph))
    assert_close_classes(actual, expected_classification(model, later))


def test_every_feature_of_the_encoder(frame, y, later):
    """The graph computes in double precision: equal up to the rounding of sums.

    Sines of an angle of some 1e5 have an absolute error of 1e5 roundings, 2e-11.
    """
    encoder = TableEncoder(target_type="continuous").fit(frame, y)
    graph, columns = Graph(), input_columns([encoder])
    features = encoded_table(encoder, add_inputs(graph, columns))
    graph.output("features", features, np.float64, ["n_samples", None])
    model = graph.model(columns=json.dumps(description(columns)))
    for rows in (frame, later, later[:1]):
        [actual] = outputs(model, as_inputs(rows, model)).values()
        np.testing.assert_allclose(
            actual, encoder.transform(rows), rtol=1e-12, atol=1e-9
        )


def test_values_are_cast_once(data):
    """A number, a position of an ordered level, and a date, without missing values."""
    start = np.datetime64("2020-01-01", "us") + np.arange(41).astype("timedelta64[D]")
    grades = pandas.Categorical(data.labels.astype(str), ordered=True)
    X = pandas.DataFrame({"size": data.y, "grade": grades, "start": start})
    for name in X:
        encoder, graph = TableEncoder().fit(X[[name]]), Graph()
        x = encoded_table(encoder, add_inputs(graph, input_columns([encoder])))
        graph.output("features", x, np.float64, ["n_samples", None])
        nodes = [node.op_type for node in graph.model().graph.node]
        assert nodes.count("Cast") == 1


def test_inputs_and_their_description(frame, y, small):
    graph = to_onnx(MCDropoutRegressor(**small).fit(frame, y), q=())
    kinds = {"double": 11, "string": 8, "int64": 7}
    given = {i.name: i.type.tensor_type.elem_type for i in graph.graph.input}
    expected = {
        "size": "double",
        "flag": "double",
        "colour": "string",
        "shop": "string",
        "grade": "string",
        "start": "int64",
        "length": "double",
        "end": "int64",
    }
    assert given == {name: kinds[kind] for name, kind in expected.items()}
    about = {p.key: json.loads(p.value) for p in graph.metadata_props}["columns"]
    date = {"kind": "date", "unit": "microseconds since 1970, local time"}
    assert about["start"] == date | {"time_zone": None}
    assert about["end"] == date | {"time_zone": "Asia/Kolkata"}
    assert about["grade"] == {"kind": "ordered"}


def test_array_of_numbers_with_missing_values(data, small):
    """One input X, as for arrays without missing values."""
    X = data.X.astype(np.float64)
    X[::4, 1], X[:, 2], X[::7, 3] = np.nan, 1.0, np.nan
    model = MCDropoutRegressor(**small).fit(X, data.y)
    X_new = np.where(np.arange(44).reshape(11, 4) % 5 == 0, np.nan, data.X_new)
    X_new[:, 0] = data.X_new[:, 0]  # no missing values in `fit`
    graph = to_onnx(model)
    assert [given.name for given in graph.graph.input] == ["X"]
    expected = expected_regression(model, X_new.astype(np.float32))
    assert_close(outputs(graph, X_new), expected, data.y)
    X[:, 3] += 1e9
    model.fit(X, data.y)
    in_pipeline = make_pipeline(TableEncoder(), StandardScaler(), clone(model))
    for exported in (model, in_pipeline.fit(X, data.y)):
        with pytest.warns(UserWarning, match=r"rounds columns \[3\]"):
            to_onnx(exported)
    double = [("X", types.DoubleTensorType([None, 4]))]
    X_new = X_new.astype(np.float64)
    X_new[:, 3] += 1e9
    graph = to_onnx(model, initial_types=double)
    expected = expected_regression(model, X_new)
    assert_close(outputs(graph, {"X": X_new}), expected, data.y)


def test_array_of_objects(data, small):
    """Inputs are named like features."""
    X = np.empty((41, 2), dtype=object)
    X[:, 0], X[:, 1] = data.X[:, 0], np.where(data.labels, "some", "none")
    model = MCDropoutRegressor(**small).fit(X, data.y)
    inputs = {"x0": data.X[:, :1].astype(np.float64), "x1": X[:, 1:]}
    assert_close(outputs(to_onnx(model), inputs), expected_regression(model, X), data.y)


def test_types_of_the_user(data, small):
    """Such as numbers in single precision."""
    X = pandas.DataFrame({"a": data.X[:, 0], "kind": data.labels.astype(str)})
    model = MCDropoutRegressor(**small).fit(X, data.y)
    single = [
        ("a", types.FloatTensorType([None, 1])),
        ("kind", types.StringTensorType([None, 1])),
    ]
    inputs = {"a": data.X[:, :1], "kind": X[["kind"]].to_numpy(dtype=object)}
    graph = to_onnx(model, initial_types=single)
    assert_close(outputs(graph, inputs), expected_regression(model, X), data.y)
    with pytest.raises(TypeError, match="must have an input 'kind', of column 'kind'"):
        to_onnx(model, initial_types=[("X", types.DoubleTensorType([None, 2]))])


def test_numbers_of_rows_of_levels_and_pairs(seed):
    """A level that `fit` has not seen, and missing values, have their own numbers."""
    random = np.random.default_rng([seed, 9])
    codes = random.integers(0, [15, 13], (110, 2))
    X = pandas.DataFrame(codes.astype(str), columns=["shop", "day"])
    X.loc[:5, "day"] = None
    table = TableEncoder(target_type="continuous").fit(X, codes.sum(1))
    assert [c.column for c in table.columns_][2:] == ["shop", "day", ("shop", "day")]
    X_new = pandas.DataFrame(
        {"shop": ["3", "3", "x", "4"], "day": ["2", None, "2", "x"]}
    )
    graph = Graph()
    inputs = add_inputs(graph, input_columns([table]))
    graph.output("features", encoded_table(table, inputs), np.float64, [None, 5])
    model = graph.model()
    fed = {name: _as_input(X_new[name], "category", None) for name in X_new}
    [actual] = outputs(model, fed).values()
    expected = table.transform(X_new)
    np.testing.assert_allclose(actual[:, 2:], expected[:, 2:], rtol=1e-12)


def test_columns_named_like_nodes(data, small):
    X = pandas.DataFrame({f"Cast_{i}": data.X[:, 0] * i for i in range(1, 40)})
    X.loc[::3, "Cast_1"] = np.nan
    model = MCDropoutRegressor(**small).fit(X, data.y)
    inputs = {name: X[[name]].to_numpy(np.float64) for name in X}
    assert_close(outputs(to_onnx(model), inputs), expected_regression(model, X), data.y)


def test_columns_that_cannot_be_inputs_are_named(data, small):
    levels = np.where(data.labels > 0, "some", "")
    model = MCDropoutRegressor(**small)
    model.fit(pandas.DataFrame({"kind": levels, "a": data.y}), data.y)
    with pytest.raises(TypeError, match=r"empty string .* level of column 'kind'"):
        to_onnx(model)
    model.fit(pandas.DataFrame({"std": levels + "!", "a": data.y}), data.y)
    with pytest.raises(TypeError, match="an output 'std', and no column"):
        to_onnx(model)
    # Outputs of the other task, and outputs that are left out, are free names.
    X = pandas.DataFrame({"label": levels + "!", "quantiles": data.y})
    graph = to_onnx(model.fit(X, data.y), q=())
    assert [given.name for given in graph.graph.input] == ["label", "quantiles"]
    X = pandas.DataFrame({"code": data.labels, "kind": levels + "!"})
    encoders = [TableEncoder(chosen).fit(X) for chosen in (["code"], None)]
    with pytest.raises(TypeError, match=r"one kind .* for column 'code'"):
        input_columns(encoders)


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [TableEncoder("from_dtype", "continuous"), StandardScaler()],
        [TableEncoder("from_dtype", "continuous"), PiecewiseLinearEncoder(n_bins=4)],
        [
            TableEncoder("from_dtype", "continuous"),
            StandardScaler(),
            PolynomialFeatures(2, include_bias=False),
        ],
    ],
    ids=["network", "scaler", "bins", "powers"],
)
def test_no_warning_of_rounded_columns(steps, frame, y, later, small):
    """Numbers are double, and dates are integers; so are the inputs of scalers.

    A column near 1.7e9 with a standard deviation of about 30: neighbouring values of
    single precision differ by 128. Outputs are equal up to its rounding of y.
    """
    X, X_new = (rows.assign(size=1.7e9 + 30 * rows["size"]) for rows in (frame, later))
    if not steps:  # `predict` of the network alone averages over unknown values
        X_new = X[:12]
    model = make_pipeline(*steps, MCDropoutRegressor(**small)).fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".* rounds columns")
        graph = to_onnx(model)
    expected = expected_regression(model, X_new)
    assert_close(outputs(graph, as_inputs(X_new, graph)), expected, y)
