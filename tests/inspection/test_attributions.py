"""Shapley values of predictions and of their uncertainty."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    AnchoredEnsembleRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    predict_distribution,
)
from skbayesnn.inspection import Attributions, attributions
from skbayesnn.inspection._attributions import MAX_CELLS, reasons, short_names
from tests.helpers.frames import mixed_frame, new_frame
from tests.helpers.linear_gaussian import LinearGaussian

ROWS, COLUMNS, NEW = 43, 4, 7
SMALL = {"hidden_layer_sizes": (8,), "max_iter": 10, "n_draws": 5, "device": "cpu"}


class Function(ClassifierMixin, BaseEstimator):
    """A probability that is a function of X; it need not be below one."""

    classes_ = np.array(["no", "yes"])

    def __init__(self, function):
        self.function = function

    def predict_proba(self, X):
        values = self.function(np.asarray(X, dtype=float))
        return np.stack([1 - values, values], axis=1)


def of_function(function, X, background, **options):
    options = {"of": ("probability", "yes")} | options
    return attributions(Function(function), X, background=background, **options)


@pytest.fixture
def rows(seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(ROWS, COLUMNS)), random.normal(size=(NEW, COLUMNS)) + 1


# ---- exact values


@pytest.mark.parametrize("n_permutations", [ROWS, 2 * ROWS])
def test_linear_models_are_exact(rows, n_permutations, seed):
    """w_j (x_j - mean of the background), if all background rows are used equally."""
    X, new = rows
    model = LinearGaussian().fit(X, X @ [1.0, -2.0, 0.5, 0.0] + X[:, 0] ** 2)
    result = attributions(
        model, new, background=X, n_permutations=n_permutations, random_state=seed
    )
    slopes = (model.predict(np.eye(COLUMNS)) - model.predict(np.zeros((1, COLUMNS)))).T
    expected = slopes * (new - X.mean(0))
    np.testing.assert_allclose(result.values, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.base_values, model.predict(X).mean(), rtol=1e-12)


def product(X):
    return X[:, 0] ** 3 + np.exp(X[:, 3]) + X[:, 1] * X[:, 2]


def test_products_of_two_columns_are_exact(rows, seed):
    """An order and its reverse share the effect of a pair equally."""
    X, new = rows
    result = of_function(product, new, X, n_permutations=ROWS, random_state=seed)
    a, b = X[:, 1], X[:, 2]
    shares = [
        # Half of the change if the other column is old, and half if it is new.
        ((x - a) * b).mean() / 2 + ((x - a) * other).mean() / 2
        for x, other in new[:, 1:3]
    ]
    others = [
        ((o - b) * a).mean() / 2 + ((o - b) * x).mean() / 2 for x, o in new[:, 1:3]
    ]
    expected = np.stack(
        [
            new[:, 0] ** 3 - (X[:, 0] ** 3).mean(),
            shares,
            others,
            np.exp(new[:, 3]) - np.exp(X[:, 3]).mean(),
        ],
        axis=1,
    )
    np.testing.assert_allclose(result.values, expected, rtol=1e-9, atol=1e-12)


def wavy(X):
    return np.sin(X[:, 0] * X[:, 1] * X[:, 2] + X[:, 3]) + np.abs(X[:, 0] - X[:, 3])


def exact(function, x, background):
    """Sums over all subsets of columns."""

    def value(subset):
        mixed = background.copy()
        mixed[:, subset] = x[subset]
        return function(mixed).mean()

    values = np.zeros(COLUMNS)
    for j in range(COLUMNS):
        others = [k for k in range(COLUMNS) if k != j]
        for size in range(COLUMNS):
            for subset in map(list, combinations(others, size)):
                gain = value([*subset, j]) - value(subset)
                values[j] += gain / (COLUMNS * comb(COLUMNS - 1, size))
    return values


@pytest.mark.parametrize("n_permutations", [20, 400])
def test_errors_of_other_functions(rows, n_permutations, seed):
    """Within six standard errors, also if a part of the background is used."""
    X, new = rows
    result = of_function(wavy, new, X, n_permutations=n_permutations, random_state=seed)
    expected = np.stack([exact(wavy, x, X) for x in new])
    error = np.abs(result.values - expected) / result.standard_errors
    assert error.max() < 6
    assert result.standard_errors.max() < 5 / np.sqrt(n_permutations)


@pytest.mark.parametrize("n_permutations", [3, 8, ROWS, ROWS + 5])
def test_sums_are_exact(rows, n_permutations):
    """Differences from the mean of the whole background, to rounding."""
    X, new = rows
    result = of_function(wavy, new, X, n_permutations=n_permutations)
    assert result.values.shape == result.standard_errors.shape == (NEW, COLUMNS)
    np.testing.assert_allclose(result.base_values, wavy(X).mean(), rtol=1e-12)
    total = wavy(new) - wavy(X).mean()
    np.testing.assert_allclose(result.values.sum(1), total, rtol=1e-11, atol=1e-12)


def test_constant_rows_of_the_background(rows):
    """Few rows may have one value, although the mean of all is another one."""
    X, new = rows
    X = np.zeros((500, COLUMNS))
    X[0] = 7.0
    result = of_function(wavy, new, X, n_permutations=4)
    total = wavy(new) - wavy(X).mean()
    np.testing.assert_allclose(result.values.sum(1), total, rtol=1e-11, atol=1e-12)
    constant = of_function(lambda X: np.full(len(X), 0.2), new, X)
    for values in (constant.values, constant.standard_errors):
        np.testing.assert_allclose(values, 0, atol=1e-12)


def test_one_column(rows):
    X, new = rows
    result = of_function(lambda X: X[:, 0] ** 2, new[:, :1], X[:, :1])
    expected = new[:, :1] ** 2 - (X[:, 0] ** 2).mean()
    np.testing.assert_allclose(result.values, expected, rtol=1e-12)


# ---- what is explained


def test_a_row_alone_equals_the_row_in_a_batch(rows, seed, monkeypatch):
    """Also if the rows are predicted in parts."""
    X, new = rows
    model = MCDropoutRegressor(**SMALL, dtype="float64", random_state=seed)
    model.fit(X, X[:, 0])
    arguments = {"background": X, "of": "std", "n_permutations": 9}
    together = attributions(model, new, **arguments)
    monkeypatch.setattr("skbayesnn.inspection._attributions.MAX_CELLS", 90)
    for i in range(NEW):
        alone = attributions(model, new[i : i + 1], **arguments)
        np.testing.assert_allclose(alone.values[0], together.values[i], atol=1e-12)
    in_parts = attributions(model, new, **arguments)
    np.testing.assert_allclose(in_parts.values, together.values, atol=1e-12)
    assert MAX_CELLS > 90


@pytest.mark.parametrize(
    "of", ["mean", "std", "total", "epistemic", "aleatoric", ("quantile", 0.8)]
)
def test_values_of_regressions(rows, of, seed):
    X, new = rows
    scaled = make_pipeline(
        StandardScaler(), MCDropoutRegressor(**SMALL, random_state=seed)
    ).fit(X, np.stack([X[:, 0], -X[:, 1]], axis=1))
    result = attributions(scaled, new, background=X, of=of, n_permutations=3, target=1)
    distribution = predict_distribution(scaled, new)
    expected = {
        "mean": distribution.mean,
        "std": distribution.std,
        "total": distribution.std,
        "epistemic": distribution.epistemic,
        "aleatoric": distribution.aleatoric,
        ("quantile", 0.8): lambda: distribution.ppf(0.8),
    }[of]()[:, 1]
    total = result.base_values + result.values.sum(1)
    # With few draws the epistemic part may be zero.
    np.testing.assert_allclose(total, expected, rtol=1e-6, atol=1e-12)
    assert result.of == ("quantile 0.8" if isinstance(of, tuple) else of)


@pytest.mark.parametrize(
    "of", ["entropy", "mutual_information", "expected_entropy", ("probability", "b")]
)
def test_values_of_classifications(rows, of, seed):
    X, new = rows
    labels = np.array(["a", "b", "c"])[np.arange(ROWS) % 3]
    model = MCDropoutClassifier(**SMALL, random_state=seed).fit(X, labels)
    result = attributions(model, new, background=X, of=of, n_permutations=3)
    expected = (
        model.predict_proba(new)[:, 1]
        if isinstance(of, tuple)
        else model.predict_uncertainty(new, of)
    )
    total = result.base_values + result.values.sum(1)
    # Entropies may be zero.
    np.testing.assert_allclose(total, expected, rtol=1e-6, atol=1e-12)


def test_probabilities_of_other_classifiers(rows):
    X, new = rows
    model = LogisticRegression().fit(X, X[:, 2] > 0)
    result = attributions(model, new, background=X, of=("probability", True))
    assert (np.abs(result.values).mean(0).argmax()) == 2


def test_unusual_column_is_the_reason(rows, seed):
    X, new = rows
    new = new.copy()
    new[:, 1] += 6.0
    model = AnchoredEnsembleRegressor(max_iter=60, device="cpu", random_state=seed)
    model.fit(X, X[:, 0] + np.sin(X[:, 1]))
    result = attributions(model, new, background=X, of="epistemic")
    assert result.values.mean(0).argmax() == 1
    assert (result.values.argmax(1) == 1).mean() > 0.8


def test_reasons_are_certain_and_large():
    """Contributions within two errors, or below half a percent, are no reasons."""
    values = np.array([[1.0, 3.0, -2.0, 0.01, 1.3]])
    errors = np.array([[0.6, 0.1, 0.1, 0.001, 0.6]])
    result = Attributions(values, np.zeros(1), errors, values, list("abcde"), "std")
    texts = [["a", "b = 7", "c", "d", "e"]]
    assert reasons(result, texts) == [["b = 7 (+3)", "e (+1.3)"]]
    both = ["b = 7 (+3)", "c (\u22122)", "e (+1.3)"]
    assert reasons(result, texts, both_signs=True) == [both]


# ---- frames


@pytest.mark.parametrize("n_new", [1, 9])
def test_frames_of_all_kinds(n_new, seed):
    """Missing values, levels that the background lacks, and other types of a column."""
    random = np.random.default_rng(seed)
    frame, new = mixed_frame(ROWS, random), new_frame(10, random)[-n_new:]
    pandas = pytest.importorskip("pandas")
    new["grade"] = pandas.Categorical(["top"] * n_new, ["low", "mid", "high", "top"])
    before = new.copy()
    model = MCDropoutRegressor(**SMALL, dtype="float64", random_state=seed)
    model.fit(frame, np.nan_to_num(frame["size"].astype(float)))
    result = attributions(model, new, background=frame, n_permutations=5)
    assert result.feature_names == list(frame.columns)
    total = result.base_values + result.values.sum(1)
    np.testing.assert_allclose(total, model.predict(new), rtol=1e-9, atol=1e-12)
    # A constant column has no effect.
    constant = result.feature_names.index("constant")
    np.testing.assert_allclose(result.values[:, constant], 0, atol=1e-12)
    pandas.testing.assert_frame_equal(new, before)


def test_frames_equal_arrays(rows, seed):
    pandas = pytest.importorskip("pandas")
    X, new = rows
    frame, new_rows = (pandas.DataFrame(v, columns=list("abcd")) for v in rows)
    network = MCDropoutRegressor(**SMALL, dtype="float64", random_state=seed)
    plain = make_pipeline(StandardScaler(), network).fit(X, X[:, 0])
    expected = attributions(plain, new, background=X)
    named = make_pipeline(StandardScaler().set_output(transform="pandas"), network)
    named.fit(frame, X[:, 0])
    actual = attributions(named, new_rows, background=frame)
    np.testing.assert_allclose(actual.values, expected.values, atol=1e-12)


@pytest.mark.parametrize("kind", [int, bool])
def test_integer_rows_get_fractions(rows, kind):
    """The values of the background, as in floating point."""
    X, new = rows
    whole = new.round().astype(kind)
    actual, expected = (of_function(wavy, r, X) for r in (whole, whole.astype(float)))
    np.testing.assert_allclose(actual.values, expected.values)


# ---- result


def test_table(rows):
    X, new = rows
    names = ["price", "footfall of the sensor at the entrance in the north", "x", "y"]
    result = of_function(lambda X: 5 * X[:, 1], new, X, feature_names=names)
    lines = repr(result).split("\n")
    assert lines[0].split() == ["column", "mean", "size", "error"]
    assert lines[1].startswith("footfall of the") and "north" in lines[1]
    assert f"{result.values[:, 1].mean():.3g}" in lines[1]
    assert lines[-1].startswith("probability yes: ") and f"in {NEW} rows" in lines[-1]
    assert max(map(len, lines)) < 75 and len(lines) == 6
    with pytest.raises(ValueError, match="one name for each of the 4 columns"):
        of_function(wavy, new, X, feature_names=names[:2])
    wide = np.arange(33.0)[None]
    many = Attributions(wide, np.zeros(1), wide, wide, [f"x{i}" for i in range(33)], "")
    assert "13 more columns are nearer to zero" in repr(many)


def test_short_names_differ():
    names = [f"{'a' * 30}{i}{'b' * 30}" for i in range(3)] + ["c"]
    short = short_names(names, 11)
    assert len(set(short)) == 4 and short[-1] == "c"
    assert short_names(names[:1], 11) == ["aaaaa\u2026bbbbb"]
    assert short_names(["twice", "twice"], 3) == ["t\u2026e"] * 2


def test_to_shap(rows):
    shap = pytest.importorskip("shap")
    X, new = rows
    result = of_function(wavy, new, X)
    explanation = result.to_shap()
    assert isinstance(explanation, shap.Explanation)
    np.testing.assert_array_equal(explanation.values, result.values)
    np.testing.assert_array_equal(explanation.base_values, result.base_values)
    np.testing.assert_array_equal(explanation.data, new)


# ---- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_permutations": 2}, "n_permutations"),
        ({"of": "all"}, r"`of` must be among \['mean', .*'epistemic'.*got 'all'"),
        ({"of": "entropy"}, "`of` must be among"),
        ({"of": ["mean"]}, "`of` must be among"),
        ({"of": ("quantile", 80)}, r"in \(0, 1\)"),
        ({"of": "quantile"}, "`of` must be among"),
        ({"of": ("probability", 1)}, r"among the classes \[\] of the model; got 1"),
        ({"background": np.zeros((5, 2))}, "the same columns"),
        ({"background": np.zeros(3)}, "rows and columns"),
        ({"background": None}, "rows and columns"),
        ({"background": np.zeros((0, 4))}, "at least one row; got none"),
        ({"background": sparse.eye_array(4)}, "must be dense"),
        ({"background": [[0.0] * 4, [1.0]]}, "rows of `background` must have the same"),
        ({"target": 1}, "`target` must be from 0 to 0"),
    ],
)
def test_bad_input(rows, change, message):
    X, new = rows
    model = LinearGaussian().fit(X, X[:, 0])
    with pytest.raises((TypeError, ValueError), match=message):
        attributions(model, new, **{"background": X} | change)


def test_background_of_another_type(rows):
    pandas = pytest.importorskip("pandas")
    X, new = rows
    frame = pandas.DataFrame(X, columns=list("abcd"))
    with pytest.raises(TypeError, match=r"of one kind.*; got ndarray and DataFrame"):
        of_function(wavy, new, frame)
    with pytest.raises(TypeError, match=r"of one kind.*; got DataFrame and ndarray"):
        of_function(wavy, frame, X)
    with pytest.raises(ValueError, match=r"same order; got .* and .*'c', 'b', 'a'"):
        of_function(wavy, frame, frame[list("dcba")])
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    with pytest.raises(TypeError, match=r"same types of columns.*'a'"):
        of_function(wavy, table, table.with_columns(polars.col("a").cast(polars.Int64)))
