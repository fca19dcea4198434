"""Searches over pipelines: the steps before the network are fitted once per fold."""

from collections import Counter

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skbayesnn import predict_interval
from skbayesnn.model_selection import BatchedGridSearchCV
from tests.helpers.comparison import (
    assert_close,
    assert_same_members,
    assert_same_results,
    fit_both,
    regressor,
)

TAU = {"net__tau": [0.5, 2.0]}
# Shift and row numbers of every fit of a transformer.
FITTED_TO = []


class RecordingTransformer(TransformerMixin, BaseEstimator):
    """Records the row numbers in the first column; shifts the other columns."""

    def __init__(self, shift=0.0, refuse=None):
        self.shift = shift
        self.refuse = refuse

    def fit(self, X, y=None):
        FITTED_TO.append((self.shift, frozenset(X[:, 0].astype(int))))
        if self.refuse in FITTED_TO[-1][1]:
            raise ValueError(f"row {self.refuse} is refused")
        self.mean_ = X[:, 1:].mean(0)
        return self

    def transform(self, X):
        return X[:, 1:] - self.mean_ + self.shift


@pytest.fixture
def numbered(data):
    """X with row numbers as the first column, and an empty record."""
    FITTED_TO.clear()
    return np.column_stack([np.arange(len(data.X)), data.X])


def pipeline(**steps):
    """Without the scaling in the network, which would make all scalers equal."""
    return Pipeline([*steps.items(), ("net", regressor(standardize=False))])


# ---- fits of the steps


def test_steps_are_fitted_once_per_fold_to_training_rows(data, numbered):
    """For any number of candidates."""
    grid = {
        "net__tau": [0.5, 1.0, 2.0],
        "net__hidden_layer_sizes": [3, 4],
        "net__random_state": [1, 2],
    }
    folds = list(KFold(3).split(numbered))
    search = BatchedGridSearchCV(
        pipeline(witness=RecordingTransformer()), grid, cv=folds
    )
    search.fit(numbered, data.y)
    trains = [(0.0, frozenset(train)) for train, _ in folds]
    all_rows = (0.0, frozenset(range(47)))
    assert Counter(FITTED_TO) == Counter([*trains, all_rows])
    plain = GridSearchCV(search.estimator, grid, cv=folds).fit(numbered, data.y)
    assert_same_results(plain, search)


def test_steps_are_fitted_once_per_fold_and_setting(data, numbered):
    grid = TAU | {"witness__shift": [0.0, 1.0], "net__dropout": [0.1, 0.2]}
    search = BatchedGridSearchCV(
        pipeline(witness=RecordingTransformer()), grid, cv=KFold(3), refit=False
    )
    search.fit(numbered, data.y)
    expected = [
        (shift, frozenset(train))
        for shift in (0.0, 1.0)
        for train, _ in KFold(3).split(numbered)
    ]
    assert Counter(FITTED_TO) == Counter(expected)


def test_step_that_fails_in_one_fold(data, numbered):
    """In that fold all candidates with this step have NaN scores."""
    grid = TAU | {"witness__refuse": [0, -1], "net__hidden_layer_sizes": [3, 4]}
    plain, batched = fit_both(
        pipeline(witness=RecordingTransformer()), grid, numbered, data.y
    )
    assert_same_results(plain, batched)
    refused = np.ma.getdata(batched.cv_results_["param_witness__refuse"]) == 0
    failed = [np.isnan(batched.cv_results_[f"split{i}_test_score"]) for i in range(3)]
    np.testing.assert_array_equal(failed, [[False] * 8, refused, refused])


# ---- comparison with scikit-learn


def test_earlier_step_in_the_grid(data):
    estimator = pipeline(scale=StandardScaler(), project=PCA(3))
    grid = TAU | {"project__n_components": [2, 3], "scale__with_std": [True, False]}
    plain, batched = fit_both(estimator, grid, data.X, data.y, return_train_score=True)
    assert_same_results(plain, batched)
    assert_same_members(estimator, grid, data.X, data.y, cv=2)
    assert_close(
        predict_interval(plain, data.X_new), predict_interval(batched, data.X_new)
    )
    assert_close(plain.score(data.X, data.y), batched.score(data.X, data.y))


def test_pipeline_in_a_pipeline(data):
    estimator = Pipeline(
        [("scale", StandardScaler()), ("inner", pipeline(project=PCA(3)))]
    )
    grid = {
        "inner__net__tau": [0.5, 2.0],
        "inner__project__n_components": [2, 3],
        "scale__with_std": [True, False],
    }
    plain, batched = fit_both(estimator, grid, data.X, data.y)
    assert_same_results(plain, batched)
    assert_close(
        predict_interval(plain, data.X_new), predict_interval(batched, data.X_new)
    )
    candidates = [pipeline(scale=StandardScaler()), make_pipeline(PCA(2), regressor())]
    assert_same_results(*fit_both(estimator, {"inner": candidates}, data.X, data.y))


def test_frame_with_columns_of_several_kinds(data):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(data.X, columns=list("abcd"))
    X["kind"] = np.array(["u", "v"])[np.arange(len(X)) % 2]
    X.loc[::5, "a"] = np.nan  # the transformer drops it
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(StandardScaler()), list("bcd")),
            ("kinds", OneHotEncoder(drop="first"), ["kind"]),
        ]
    )
    grid = TAU | {"columns__numbers__standardscaler__with_mean": [True, False]}
    for output in ("default", "pandas"):
        encode = OneHotEncoder(drop="first", sparse_output=output == "default")
        estimator = pipeline(columns=columns).set_output(transform=output)
        estimator.set_params(columns__kinds=encode)
        plain, batched = fit_both(estimator, grid, X, data.y)
        assert_same_results(plain, batched)
        assert list(batched.feature_names_in_) == [*"abcd", "kind"]
        actual, expected = (s.best_estimator_[-1] for s in (batched, plain))
        np.testing.assert_array_equal(
            getattr(actual, "feature_names_in_", None),
            getattr(expected, "feature_names_in_", None),
        )
