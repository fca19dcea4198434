"""Columns as shares of bins: against loops, integers and scikit-learn's trees."""

import warnings
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from skbayesnn import MCDropoutRegressor, predict_interval
from skbayesnn.preprocessing import PiecewiseLinearEncoder
from tests.helpers.checks import Checks
from tests.helpers.comparison import (
    ROUNDING_32,
    SMALL,
    assert_same_results,
    fit_both,
    regressor,
)

ROWS, NEW, INPUTS = 61, 17, 3
CONFIGURATIONS = [
    {},
    {"strategy": "tree"},
    {"n_bins": 3, "keep_columns": True},
    {"n_values": 4},
    {"sparse_output": True},
    {"strategy": "tree", "keep_columns": True, "sparse_output": True},
]


@pytest.fixture
def random(seed):
    return np.random.default_rng([seed, 29])


@pytest.fixture
def data(random):
    """X (61, 3), y (61,), and 17 new rows, some of them outside of the range."""
    X = random.standard_normal((ROWS, INPUTS)) * [1.0, 1e-9, 1e6] + [0.0, 5.0, -3e6]
    y = np.sign(X[:, 0]) + random.standard_normal(ROWS)
    return X, y, X[:NEW] + 2 * X.std(0) * random.standard_normal((NEW, INPUTS))


def compute_edges(column, n_bins):
    """Quantiles with equal numbers of rows, without rounding of levels."""
    rows = sorted(column.tolist())
    counts = Counter(rows)
    if len(counts) <= n_bins + 1:
        return sorted(counts)
    edges = set()
    while any(n * n_bins >= len(rows) for n in counts.values()):
        heavy = {v for v, n in counts.items() if n * n_bins >= len(rows)}
        edges |= heavy
        rows = [v for v in rows if v not in heavy]
        n_bins -= len(heavy)
        counts = Counter(rows)
    heavy = sorted(edges)
    edges |= {rows[0], rows[-1]}
    for t in range(1, n_bins):
        number, between = divmod(t * len(rows), n_bins)
        before = rows[number] if between else rows[number - 1]
        if not any(before < value < rows[number] for value in heavy):
            edges.add(before / 2 + rows[number] / 2)
    return sorted(edges)


def encoded(X, bin_edges, keep):
    """The encoding, value by value."""
    rows = []
    for row in X.tolist():
        features = []
        for value, edges in zip(row, bin_edges, strict=True):
            features += [value] * keep
            for low, high in pairwise(edges):
                if value <= low:
                    features.append(0.0)
                elif value >= high:
                    features.append(1.0)
                else:
                    features.append((value - low) / (high - low))
        rows.append(features)
    return np.array(rows)


def assert_splits(encoder, tree, X, y, weights):
    """The inner edges are where a tree of each column splits."""
    edges_of_all = encoder.fit(X, y, sample_weight=weights).bin_edges_
    for column, edges in zip(X.T, edges_of_all, strict=True):
        nodes = tree.fit(column[:, np.newaxis], y, sample_weight=weights).tree_
        expected = np.sort(nodes.threshold[nodes.feature >= 0])
        # The tree rounds the column to float32.
        np.testing.assert_allclose(edges[1:-1], expected, rtol=1e-6)
        assert edges[0] == column.min() and edges[-1] == column.max()


# ---- the encoding


@pytest.mark.parametrize("n_bins", [2, 5, 16, 59, 60, 100])
@pytest.mark.parametrize("keep", [False, True])
def test_encoding_equals_a_loop(data, n_bins, keep):
    X, _, new = data
    X[:, 0] = X[:, 0].round(1)
    X[::3, 1], X[1::6, 1] = 5.0, 5.0 + 1e-9
    encoder = PiecewiseLinearEncoder(n_bins, keep_columns=keep).fit(X)
    for edges, column in zip(encoder.bin_edges_, X.T, strict=True):
        np.testing.assert_array_equal(edges, compute_edges(column, n_bins))
    assert encoder.n_bins_.tolist() == [len(e) - 1 for e in encoder.bin_edges_]
    for rows in (X, new):
        expected = encoded(rows, encoder.bin_edges_, keep)
        np.testing.assert_array_equal(encoder.transform(rows), expected)


def test_range_of_the_training_rows(data):
    """From 0 at the smallest value to 1 at the largest, and linear outside."""
    X, _, _ = data
    encoder = PiecewiseLinearEncoder().fit(X)
    for value, rows in [(0, X.min(0)), (1, X.max(0))]:
        assert (encoder.transform([rows]) == value).all()
    assert (encoder.transform(np.full((1, INPUTS), -1e300)) == 0).all()
    assert (encoder.transform(np.full((1, INPUTS), 1e300)) == 1).all()


def test_bins_have_equal_shares(random):
    column = random.standard_normal((96, 1))
    [edges] = PiecewiseLinearEncoder(8).fit(column).bin_edges_
    assert np.histogram(column, edges)[0].tolist() == [12] * 8


def test_mirrored_columns_have_mirrored_edges(data):
    X, _, _ = data
    plain, mirrored = (PiecewiseLinearEncoder(6).fit(rows) for rows in (X, -X))
    for edges, mirrored_edges in zip(
        plain.bin_edges_, mirrored.bin_edges_, strict=True
    ):
        np.testing.assert_array_equal(edges, -mirrored_edges[::-1])


@pytest.mark.parametrize("strategy", ["quantile", "tree"])
def test_columns_of_few_values(random, strategy):
    """Constant, two values, four in equal shares, mostly one value."""
    y = np.arange(20.0)
    X = np.zeros((20, 4))
    X[:, 0] = 7.5
    X[:, 1] = np.where(y < 3, -1, 3)
    X[:, 2] = 2 * (y // 5)
    X[:4, 3] = [1, 2, 3, 4]
    order = random.permutation(20)
    encoder = PiecewiseLinearEncoder(3, strategy=strategy).fit(X[order], y[order])
    constant, binary, four, rare = (edges.tolist() for edges in encoder.bin_edges_)
    assert constant == [7.5] and binary == [-1, 3]
    if strategy == "quantile":
        assert four == [0, 2, 4, 6] and rare == [0, 1, 2.5, 4]
    else:
        # y rises: the first split is in the middle, the next one halves a part.
        assert four in ([0, 1, 3, 6], [0, 3, 5, 6])
    names = encoder.get_feature_names_out(list("abcd")).tolist()
    assert names[:2] == ["b_bin0", "c_bin0"]
    encoding = encoder.transform([[9.0, 1.0, 0.0, 0.0]])
    assert encoding.shape == (1, len(names)) and encoding[0, 0] == 0.5


def test_bins_divide_the_nonzero_values(random):
    """Nine rows in ten are zero: the bins divide the tenth."""
    n, n_bins = 3000, 7
    column = np.where(np.arange(n) % 10 == 0, 1 + random.random(n), 0.0)[:, np.newaxis]
    encoder = PiecewiseLinearEncoder(n_bins).fit(column)
    [edges] = encoder.bin_edges_
    assert edges[0] == 0.0 and len(edges) == n_bins + 1
    counts = np.histogram(column[column > 0], edges[1:])[0]
    assert set(counts) == {n // 10 // (n_bins - 1)}


def test_bins_next_to_a_frequent_value_are_not_empty(random):
    """Zero separates equal numbers of rows below and above, none of them close."""
    sides = [-1 - random.random(200), np.zeros(1000), 1 + random.random(200)]
    column = np.concatenate(sides)[:, np.newaxis]
    [edges] = PiecewiseLinearEncoder(5).fit(column).bin_edges_
    assert len(edges) == 5 and edges[2] == 0
    assert np.histogram(column[column != 0], edges)[0].tolist() == [100] * 4


def test_two_values_give_one_column(random):
    """A bin would repeat the column."""
    X = np.stack([np.arange(ROWS) % 2, random.standard_normal(ROWS)], axis=1)
    encoder = PiecewiseLinearEncoder(4, keep_columns=True).fit(X)
    assert encoder.n_bins_.tolist() == [0, 4]
    assert encoder.bin_edges_[0].tolist() == [0.0]
    np.testing.assert_array_equal(encoder.transform(X)[:, :2], X)
    np.testing.assert_array_equal(encoder.inverse_transform(encoder.transform(X)), X)
    assert PiecewiseLinearEncoder(4).fit(X).n_bins_.tolist() == [1, 4]
    encoder.set_params(strategy="tree").fit(X, np.ones(ROWS))
    assert encoder.n_bins_.tolist() == [0, 0]


def test_few_values_are_edges():
    """Rare values too, which no quantile would contain."""
    X = np.array([0.0] * 20 + [1.0, 2.0, 3.0])[:, np.newaxis]
    for n_bins, expected in [(2, [0, 1, 3]), (3, [0, 1, 2, 3]), (4, [0, 1, 2, 3])]:
        [edges] = PiecewiseLinearEncoder(n_bins).fit(X).bin_edges_
        assert edges.tolist() == expected


@pytest.mark.parametrize("sparse_output", [False, True])
def test_only_constant_columns(sparse_output):
    X = np.tile([3.0, -1.0], (5, 1))
    encoder = PiecewiseLinearEncoder(sparse_output=sparse_output).fit(X)
    encoding = encoder.transform(X)
    assert encoding.shape == (5, 0) and encoder.n_bins_.tolist() == [0, 0]
    assert encoder.get_feature_names_out().shape == (0,)
    np.testing.assert_array_equal(encoder.inverse_transform(encoding), X)
    encoder.set_params(keep_columns=True).fit(X)
    encoding = encoder.transform(X)
    encoding = encoding.toarray() if sparse_output else encoding
    np.testing.assert_array_equal(encoding, X)


@pytest.mark.parametrize("strategy", ["quantile", "tree"])
def test_float32(data, strategy):
    """The result is float32; the edges are float64 and distinct."""
    X, y, new = data
    X, new = X.astype(np.float32), new.astype(np.float32)
    X[:, 1] = 1 + np.arange(ROWS) * np.float32(2**-23)  # adjacent floats
    encoder = PiecewiseLinearEncoder(strategy=strategy).fit(X, y)
    encoding = encoder.transform(new)
    assert encoding.dtype == np.float32
    assert all(edges.dtype == np.float64 for edges in encoder.bin_edges_)
    expected = encoder.transform(new.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(encoding, expected)
    assert np.isfinite(expected).all() and encoder.n_bins_[1] > 1


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_sparse_output_equals_dense_output(data, configuration):
    X, y, new = data
    encoder = PiecewiseLinearEncoder(**configuration | {"sparse_output": True})
    compressed = encoder.fit_transform(X.astype(np.float32), y)
    assert isinstance(compressed, sparse.csr_array)
    assert compressed.dtype == np.float32
    compressed = encoder.transform(new)
    dense = encoder.set_params(sparse_output=False).transform(new)
    np.testing.assert_array_equal(compressed.toarray(), dense)
    assert compressed.nnz == np.count_nonzero(dense)
    np.testing.assert_allclose(
        encoder.inverse_transform(compressed), encoder.inverse_transform(dense)
    )


@pytest.mark.parametrize("strategy", ["quantile", "tree"])
def test_inverse(data, strategy):
    X, y, new = data
    X[:, 2] = 4.0
    encoder = PiecewiseLinearEncoder(strategy=strategy).fit(X, y)
    # Rounding of the largest value, of a sum of 16 widths.
    for rows in (X, np.clip(new, X.min(0), X.max(0))):
        actual = encoder.inverse_transform(encoder.transform(rows))
        error = np.abs(actual - rows) / np.abs(X).max(0)
        assert error.max() < 1e-14
    # Kept columns are restored exactly, also outside the range.
    encoder.set_params(keep_columns=True)
    actual = encoder.inverse_transform(encoder.transform(new))
    np.testing.assert_array_equal(actual, new)
    with pytest.raises(ValueError, match=r"must have the \d+ features .* got 2"):
        encoder.inverse_transform(new[:, :2])


# ---- weights


@pytest.mark.parametrize("strategy", ["quantile", "tree"])
def test_integer_weights_equal_repeated_rows(data, random, strategy):
    """Integers exactly, in any unit; rows of weight 0 do not count."""
    X, y, _ = data
    X[:, 0] = X[:, 0].round(1)
    weights = random.integers(0, 4, ROWS)
    weights[X[:, 2].argmax()] = 0
    encoder = PiecewiseLinearEncoder(7, strategy=strategy)
    # The standard deviation of the second target depends on the weights.
    Y = np.column_stack([y, y**2 * weights**3])
    repeated = [np.repeat(rows, weights, axis=0) for rows in (X, Y)]
    expected = clone(encoder).fit(*repeated).bin_edges_
    for unit in (1, 0.1, 3e-7):
        actual = clone(encoder).fit(X, Y, sample_weight=unit * weights).bin_edges_
        for edges, expected_edges in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(edges, expected_edges)
    assert encoder.fit(X, Y).bin_edges_[2][-1] > expected[2][-1]


def test_quantiles_of_unequal_weights():
    encoder = PiecewiseLinearEncoder(2)
    X = np.array([[1.0], [2.0], [3.0], [4.0]])
    for weights, middle in [([5, 1, 1, 1], 2), ([1, 3, 2, 2], 2.5), ([1, 1, 1, 5], 3)]:
        [edges] = encoder.fit(X, sample_weight=weights).bin_edges_
        assert edges.tolist() == sorted({1, middle, 4})


def test_weights_that_are_negligible():
    X = np.arange(6.0)[:, np.newaxis]
    for weights in ([1, 1, 1, 1, 1e-13, 1e-13], [1e-13, 1, 1, 1e-13, 1, 1]):
        [edges] = PiecewiseLinearEncoder(4).fit(X, None, weights).bin_edges_
        assert 2 <= len(edges) <= 5 and edges[0] == 0 and edges[-1] == 5


def test_sums_of_weights_are_rounded():
    """A level reached at a value counts as reached despite rounding of the sum."""
    column = np.arange(24.0)
    with Checks() as check:
        for n_bins, unit in product([2, 3, 4, 6, 8, 12], [0.1, 0.7, 1 / 3, 1e-12]):
            encoder = PiecewiseLinearEncoder(n_bins)
            weights = np.full(24, unit)
            [edges] = encoder.fit(column[:, np.newaxis], None, weights).bin_edges_
            with check(f"{n_bins} bins, weights of {unit}"):
                assert edges.tolist() == compute_edges(column, n_bins)


def test_wrong_weights(data):
    X, _, _ = data
    for weights in (np.zeros(ROWS), -np.ones(ROWS), np.ones(NEW)):
        with pytest.raises(ValueError, match=r"weight"):
            PiecewiseLinearEncoder().fit(X, sample_weight=weights)


# ---- supervised


@pytest.fixture
def separated(random):
    """X (61, 3) whose values differ in float32 too; weights without equal sums."""
    X = random.permuted(np.tile(np.arange(ROWS), (INPUTS, 1)), axis=1).T + 1
    weights = random.uniform(0.5, 2, ROWS)
    return X + random.uniform(0, 0.5, X.shape), weights


def test_edges_are_the_splits_of_a_regression(data, separated):
    X, weights = separated
    encoder = PiecewiseLinearEncoder(6, strategy="tree")
    tree = DecisionTreeRegressor(max_leaf_nodes=6, random_state=0)
    assert_splits(encoder, tree, X, data[1], weights)


@pytest.mark.parametrize("names", [["no", "yes"], ["low", "mid", "top"], [4, 7, 8, 9]])
def test_edges_are_the_splits_of_a_classification(random, separated, names):
    """Gini impurity is the variance of the classes' indicators."""
    X, weights = separated
    y = np.array(names)[random.integers(0, len(names), ROWS)]
    encoder = PiecewiseLinearEncoder(5, strategy="tree")
    tree = DecisionTreeClassifier(max_leaf_nodes=5, random_state=0)
    assert_splits(encoder, tree, X, y, weights)


def test_units_do_not_matter(data):
    """Of X, of y, and of one target relative to another."""
    X, y, _ = data
    Y = np.column_stack([y, y**2])
    encoder = PiecewiseLinearEncoder(6, strategy="tree")
    expected = encoder.fit(X, Y).bin_edges_
    # Powers of two cause no rounding.
    factors = 2.0 ** np.array([-70, 3, 90])
    actual = encoder.fit(X * factors, Y * [2.0**-60, 2.0**40]).bin_edges_
    for edges, expected_edges, factor in zip(actual, expected, factors, strict=True):
        np.testing.assert_array_equal(edges, expected_edges * factor)
    # Squares of these overflow or underflow.
    for unit in (2.0**900, 2.0**-900):
        for edges, expected_edges in zip(
            encoder.fit(X, Y * unit).bin_edges_, expected, strict=True
        ):
            np.testing.assert_array_equal(edges, expected_edges)


def test_uninformative_column(data):
    X, y, _ = data
    encoder = PiecewiseLinearEncoder(strategy="tree").fit(X, np.full_like(y, 0.1))
    assert encoder.n_bins_.tolist() == [1] * INPUTS


def test_target_type_selects_the_criterion(random):
    """The variance of 0, 1 and 10 depends on the tens; impurity sees equal classes."""
    x, y = np.arange(30.0)[:, np.newaxis], np.repeat([0, 1, 10], [14, 8, 8])

    def edges(y, **options):
        encoder = PiecewiseLinearEncoder(2, strategy="tree", **options)
        return encoder.fit(x, y).bin_edges_[0][1:-1].tolist()

    assert edges(y, target_type="classes") == edges(y) == edges(y * 1.0) == [13.5]
    assert edges(y.astype(str)) == edges(y > 0) == [13.5]
    assert edges(y, target_type="continuous") == edges(y + 0.5) == [21.5]
    # Too many values for classes: prices, for example.
    counts = np.arange(40) ** 2
    x = np.arange(40.0)[:, np.newaxis]
    assert edges(counts) == edges(counts, target_type="continuous")


def test_settings_of_scikit_learn_do_not_change_the_trees(data):
    """Neither the global output format nor routed metadata change an edge."""
    pytest.importorskip("pandas")
    X, y, _ = data
    encoder = PiecewiseLinearEncoder(strategy="tree")
    expected = clone(encoder).fit(X, y).bin_edges_
    with sklearn.config_context(
        transform_output="pandas", enable_metadata_routing=True
    ):
        actual = encoder.fit(X, y).bin_edges_
    for edges, expected_edges in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(edges, expected_edges)


# ---- as a transformer


def test_names_and_frames(data):
    pandas = pytest.importorskip("pandas")
    X, _, new = data
    X[:, 1] = X[:, 1] > 5
    names = ["age", "sex", "income"]
    frame = pandas.DataFrame(X, columns=names)
    frame_new = pandas.DataFrame(new, columns=names, index=range(50, 50 + NEW))
    encoder = PiecewiseLinearEncoder(2).set_output(transform="pandas").fit(frame)
    expected = ["age_bin0", "age_bin1", "sex_bin0", "income_bin0", "income_bin1"]
    assert encoder.feature_names_in_.tolist() == names
    assert encoder.get_feature_names_out().tolist() == expected
    encoding = encoder.transform(frame_new)
    assert encoding.columns.tolist() == expected
    assert encoding.index.equals(frame_new.index)
    array = PiecewiseLinearEncoder(2).fit(X).transform(new)
    np.testing.assert_array_equal(encoding, array)
    encoder.set_params(keep_columns=True)
    kept = ["age", "age_bin0", "age_bin1", "sex", "sex_bin0", "income"]
    assert encoder.transform(frame_new).columns.tolist()[:6] == kept
    np.testing.assert_array_equal(
        encoder.inverse_transform(encoder.transform(frame_new)), new
    )
    with pytest.raises(ValueError, match="input_features is not equal"):
        encoder.get_feature_names_out(["age", "sex", "wage"])
    plain = PiecewiseLinearEncoder(2).fit(X).get_feature_names_out()
    assert plain.tolist()[:3] == ["x0_bin0", "x0_bin1", "x1_bin0"]
    assert plain.dtype == object


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_before_a_network(data, configuration):
    X, y, new = data
    encoder = PiecewiseLinearEncoder(**configuration)
    model = make_pipeline(encoder, MCDropoutRegressor(**SMALL)).fit(X, y)
    assert model.predict(new).shape == (NEW,)
    assert np.isfinite(predict_interval(model, new)).all()


def test_in_a_search(data):
    X, y, _ = data
    model = Pipeline([("encoder", PiecewiseLinearEncoder()), ("net", regressor())])
    grid = {
        "encoder__n_bins": [2, 5],
        "encoder__strategy": ["quantile", "tree"],
        "net__tau": [0.5, 2.0],
    }
    # In any precision of the networks.
    assert_same_results(*fit_both(model, grid, X, y), tolerance=ROUNDING_32)


WRONG = [
    ({"n_bins": 1}, ValueError, r"`n_bins` must be finite and >= 2; got 1\."),
    ({"n_bins": 4.0}, TypeError, r"`n_bins` must be an integer; got 4\.0\."),
    ({"n_bins": True}, TypeError, r"`n_bins` must be an integer; got True\."),
    ({"n_values": -1}, ValueError, r"`n_values` must be finite and >= 0; got -1\."),
    ({"n_values": None}, TypeError, r"`n_values` must be an integer; got None\."),
    (
        {"strategy": "uniform"},
        ValueError,
        r"`strategy` must be one of 'quantile', 'tree'; got 'uniform'\.",
    ),
    ({"strategy": None}, ValueError, r"`strategy` must be one of .* got None\."),
    (
        {"target_type": "binary"},
        ValueError,
        r"`target_type` must be one of .*'classes'; got 'binary'\.",
    ),
    ({"keep_columns": 1}, TypeError, r"`keep_columns` must be True or False"),
    ({"sparse_output": "no"}, TypeError, r"`sparse_output` must be True or False"),
]


def test_wrong_parameters(data):
    with Checks() as check:
        for parameters, error, message in WRONG:
            with check(parameters), pytest.raises(error, match=message):
                PiecewiseLinearEncoder(**parameters).fit(data[0], data[1])


def test_relative_weights_do_not_warn(data):
    """The encoder has no prior that the weights are relative to."""
    X, _, _ = data
    weights = np.linspace(1, 2, ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for unit in (1e-3, 1e5):
            PiecewiseLinearEncoder().fit(X, sample_weight=unit * weights)


def test_unsupported_columns_are_named(data):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"size": [1.0, 2.0, 3.0], "city": ["a", "b", "a"]})
    encoder = PiecewiseLinearEncoder()
    with pytest.raises(ValueError, match="'city'"):
        encoder.fit(frame)
    encoder.fit(frame.assign(city=[1, 2, 3]))
    with pytest.raises(ValueError, match="'city'"):
        encoder.transform(frame)


def test_wrong_rows(data):
    X, y, _ = data
    encoder = PiecewiseLinearEncoder().fit(X)
    for value, word in [(np.nan, "NaN"), (np.inf, "infinity")]:
        wrong = X.copy()
        wrong[3, 1] = value
        for call in (encoder.fit, encoder.transform):
            with pytest.raises(ValueError, match=f"Input X contains {word}"):
                call(wrong)
    for call in (encoder.fit, encoder.transform):
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            call(sparse.csr_array(X))
    with pytest.raises(ValueError, match="expecting 3 features"):
        encoder.transform(X[:, :2])
    encoder = PiecewiseLinearEncoder(strategy="tree")
    with pytest.raises(ValueError, match="requires y to be passed"):
        encoder.fit(X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        encoder.fit(X, y[:-1])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        encoder.fit(X, np.where(y > y.min(), y, np.nan))
    encoder.set_params(target_type="classes")
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        encoder.fit(X, y)


# ---- scikit-learn's checks of the contract


@parametrize_with_checks([PiecewiseLinearEncoder(**c) for c in CONFIGURATIONS])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
