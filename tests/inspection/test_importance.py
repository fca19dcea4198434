"""Permutation importance of an uncertainty: why is this row uncertain?"""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.inspection import permutation_importance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import AnchoredEnsembleRegressor, MCDropoutClassifier
from skbayesnn.inspection import uncertainty_importance
from skbayesnn.inspection._importance import Importances, short_names

ROWS, COLUMNS, FAR = 80, 3, 13


@pytest.fixture
def rows(seed):
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, size=(ROWS, COLUMNS))
    far = random.uniform(-1, 1, size=(FAR, COLUMNS))
    far[:, 1] += 4.0
    return X, X[:, 0] + np.sin(2 * X[:, 1]), far


@pytest.fixture
def model(rows, seed):
    ensemble = AnchoredEnsembleRegressor(max_iter=60, device="cpu", random_state=seed)
    return ensemble.fit(*rows[:2])


def test_drifted_column_is_the_most_important(model, rows, seed):
    X, _, far = rows
    actual = uncertainty_importance(model, far, background=X, random_state=seed)
    assert actual.importances_mean.argmax() == 1
    assert (actual.per_row.argmax(1) == 1).mean() > 0.8
    assert actual.importances.shape == (COLUMNS, 5)
    assert actual.per_row.shape == (FAR, COLUMNS)
    np.testing.assert_array_equal(
        actual.uncertainty, model.predict_uncertainty(far, "epistemic")
    )
    np.testing.assert_allclose(
        actual.importances_mean, actual.per_row.mean(0), rtol=1e-12
    )
    np.testing.assert_allclose(actual.importances_std, actual.importances.std(1))


def test_names_and_a_table(model, rows, seed):
    X, _, far = rows
    arguments = {"background": X, "n_repeats": 1, "random_state": seed}
    actual = uncertainty_importance(model, far, **arguments)
    assert actual.feature_names == ["column 0", "column 1", "column 2"]
    names = ["price", "footfall of the sensor at the entrance in the north", "store"]
    actual = uncertainty_importance(model, far, feature_names=names, **arguments)
    assert actual.feature_names == names
    lines = repr(actual).split("\n")
    # The column far from the training rows comes first; its name is shortened.
    assert lines[0].split() == ["column", "importance", "std"]
    assert lines[1].startswith("footfall of the") and "north" in lines[1]
    assert f"{actual.importances_mean[1]:.3g}" in lines[1]
    assert f"{actual.uncertainty.mean():.3g}" in lines[4]
    assert max(map(len, lines)) < 60 and len(lines) == 5
    with pytest.raises(ValueError, match="one name for each of the 3 columns"):
        uncertainty_importance(model, far, feature_names=names[:2], **arguments)


def test_a_table_of_many_columns():
    """Only the columns with the largest absolute importances, in order."""
    mean = np.array([0.5, -7.0, 3.0] + [0.1] * 30)
    actual = Importances(
        importances_mean=mean,
        importances_std=mean / 10,
        uncertainty=np.ones(2),
        feature_names=[f"x{i}" for i in range(33)],
    )
    lines = repr(actual).split("\n")
    assert [line.split()[0] for line in lines[1:4]] == ["x2", "x0", "x3"]
    assert lines[20].split() == ["x1", "-7", "-0.7"]
    assert lines[21:] == [
        "13 more columns are nearer to zero",
        "mean uncertainty of the rows: 1",
    ]


def test_short_names_differ():
    names = [f"{'a' * 30}{i}{'b' * 30}" for i in range(3)] + ["c"]
    short = short_names(names, 11)
    assert len(set(short)) == 4 and short[-1] == "c"
    assert short_names(names[:1], 11) == ["aaaaa\u2026bbbbb"]
    assert short_names(["twice", "twice"], 3) == ["t\u2026e"] * 2


def test_importances_of_ordinary_rows_are_negative(seed):
    """Correlated columns make ordinary rows familiar; permuted rows are unusual."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(150, 1)) + 0.1 * random.normal(size=(150, 2))
    model = AnchoredEnsembleRegressor(max_iter=60, device="cpu", random_state=seed)
    model.fit(X, X.sum(1))
    actual = uncertainty_importance(model, X, random_state=seed)
    assert (actual.importances_mean < 0).all()


class _Squares(BaseEstimator):
    """An estimator whose uncertainty is a weighted sum of squares."""

    def fit(self, X, y=None):
        return self

    def predict_uncertainty(self, X, kind):
        return np.square(X) @ [0.0, 1.0, 5.0]


def test_importance_is_an_expectation_over_the_background(rows, seed, monkeypatch):
    """For a sum over columns: w_j (x_ij^2 - mean of the background's squares)."""
    X, _, far = rows
    monkeypatch.setattr(
        "skbayesnn.inspection._importance.predict_uncertainty",
        lambda model, X, kind: model.predict_uncertainty(X, kind),
    )
    actual = uncertainty_importance(
        _Squares(), far, background=X, kind="any", n_repeats=2000, random_state=seed
    )
    expected = (np.square(far) - np.square(X).mean(0)) * [0.0, 1.0, 5.0]
    error = np.square(X).std(0) * [0.0, 1.0, 5.0] / np.sqrt(2000)
    assert (abs(actual.per_row - expected) <= 6 * error + 1e-9).all()


@pytest.mark.parametrize("kind", [int, bool])
def test_integer_rows_get_fractions(rows, seed, kind, monkeypatch):
    """The values of the background, as in floating point."""
    X, _, far = rows
    monkeypatch.setattr(
        "skbayesnn.inspection._importance.predict_uncertainty",
        lambda model, X, kind: model.predict_uncertainty(X, kind),
    )
    whole = far.round().astype(kind)
    actual, expected = (
        uncertainty_importance(
            _Squares(), far, background=X, kind="any", random_state=seed
        )
        for far in (whole, whole.astype(float))
    )
    np.testing.assert_allclose(actual.per_row, expected.per_row)


def test_pooled_importance_has_the_mean_of_scikit_learn(model, rows, seed):
    """Its permutations of X are draws from X without replacement."""
    X, y, _ = rows
    reference = permutation_importance(
        model,
        X,
        y,
        scoring=lambda m, X, y: m.predict_uncertainty(X, "epistemic").mean(),
        n_repeats=30,
        random_state=seed,
    )
    actual = uncertainty_importance(model, X, n_repeats=30, random_state=seed)
    error = np.hypot(actual.importances_std, reference.importances_std) / np.sqrt(30)
    difference = abs(actual.importances_mean - reference.importances_mean)
    assert (difference < 6 * error).all()


def test_frames_pipelines_and_classes(rows, seed):
    pandas = pytest.importorskip("pandas")
    X, y, far = rows
    names = ["a", "b", "c"]
    frame, far_frame = (pandas.DataFrame(values, columns=names) for values in (X, far))
    network = MCDropoutClassifier(max_iter=20, device="cpu", random_state=seed)
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), network)
    model.fit(frame, y > 0)
    actual = uncertainty_importance(
        model, far_frame, background=frame, random_state=seed
    )
    plain = make_pipeline(StandardScaler(), network).fit(X, y > 0)
    same = uncertainty_importance(plain, far, background=X, random_state=seed)
    np.testing.assert_allclose(actual.per_row, same.per_row)
    pandas.testing.assert_frame_equal(far_frame, pandas.DataFrame(far, columns=names))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_repeats": 0}, "n_repeats"),
        ({"kind": "all"}, "one kind of uncertainty"),
        ({"kind": "entropy"}, "kind"),
        ({"background": np.zeros((4, 2))}, "the same columns"),
        ({"background": np.zeros(3)}, "rows and columns"),
        ({"background": np.zeros((0, 3))}, "at least one row; got none"),
        ({"background": sparse.eye_array(3)}, "must be dense"),
        ({"background": [[0.0] * 3, [1.0]]}, "rows of `background` must have the same"),
    ],
)
def test_bad_input(model, rows, change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        uncertainty_importance(model, rows[2], **change)


def test_single_row_without_background(model, rows):
    with pytest.raises(ValueError, match=r"`background` must be given .*; got 1 rows"):
        uncertainty_importance(model, rows[2][:1])


def test_background_of_another_type(model, rows):
    pandas = pytest.importorskip("pandas")
    X, _, far = rows
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    with pytest.raises(TypeError, match=r"of one kind.*; got ndarray and DataFrame"):
        uncertainty_importance(model, far, background=frame)
    with pytest.raises(TypeError, match=r"of one kind.*; got DataFrame and ndarray"):
        uncertainty_importance(model, frame, background=X)
    with pytest.raises(ValueError, match=r"same order; got .* and .*'c', 'b', 'a'"):
        uncertainty_importance(model, frame, background=frame[["c", "b", "a"]])
