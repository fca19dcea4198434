"""Rows, weights and folds of batched searches, compared with scikit-learn."""

import re
import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skbayesnn import BBBClassifier, BBBRegressor, scoring
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
)
from skbayesnn.networks import ConvNet
from tests.helpers.comparison import (
    ROUNDING_32,
    SMALL,
    assert_close,
    assert_same_members,
    assert_same_results,
    classifier,
    fit_both,
    regressor,
)
from tests.helpers.searches import GRID, STOPPING

# ---- rows


@pytest.mark.parametrize(
    "kind", ["csr_array", "csc_matrix", "float32", "list", "pandas", "polars"]
)
def test_types_of_X(data, kind):
    if kind in ("csr_array", "csc_matrix"):
        X = getattr(sparse, kind)(np.where(np.abs(data.X) > 0.3, data.X, 0))
    elif kind in ("pandas", "polars"):
        X = pytest.importorskip(kind).DataFrame(
            dict(zip("abcd", data.X.T, strict=True))
        )
    else:
        X = data.X.tolist() if kind == "list" else data.X.astype(kind)
    single = kind == "float32"
    estimator = regressor(dtype="float32") if single else regressor()
    tolerance = {"tolerance": ROUNDING_32} if single else {}
    plain, batched = fit_both(estimator, GRID, X, data.y)
    assert_same_results(plain, batched, **tolerance)
    np.testing.assert_array_equal(
        getattr(batched, "feature_names_in_", None),
        getattr(plain, "feature_names_in_", None),
    )
    assert_same_members(estimator, {"tau": [0.5, 2.0]}, X, data.y, **tolerance)


def coded_table(data):
    """Numbers and codes of five levels, whose means do not follow the codes."""
    code = np.arange(47) * 7 % 5
    y = data.y + np.array([3.0, -2.0, 4.0, -5.0, 0.0])[code]
    return np.column_stack([data.X[:, 0], code]), y


def three_classes(data):
    return data.X, data.labels


def ordered_classes(data):
    """Labels whose declared order is not alphabetic."""
    pandas = pytest.importorskip("pandas")
    order = ["mid", "top", "low"]
    labels = pandas.Categorical(data.labels, categories=order, ordered=True)
    return data.X, pandas.Series(labels)


def images(data):
    """Rows of 2 x 2 pixels."""
    return data.X.reshape(-1, 2, 2), data.y


# Parameters of the network that change the table on which it is trained.
OF_TABLE = {
    "categorical_features": (regressor(), [None, [1]], coded_table),
    "class_weight": (classifier(), [None, {"low": 0, "mid": 3}], three_classes),
    "likelihood": (classifier(), ["categorical", "ordinal"], ordered_classes),
    "network": (regressor(), [ConvNet((1, 2, 2), (3,), pool=1), None, "conv"], images),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # scores of candidates that fail
@pytest.mark.parametrize("name", OF_TABLE)
def test_parameters_that_change_the_table(data, name):
    """No candidate is trained on the table of another one, in either order."""
    estimator, values, rows = OF_TABLE[name]
    X, y = rows(data)
    for candidates in (values, values[::-1]):
        plain, batched = fit_both(
            estimator, {name: candidates}, X, y, scoring=scoring.log_density_scorer
        )
        assert_same_results(plain, batched)
        # The scores differ, unless candidates fail.
        scores = batched.cv_results_["mean_test_score"]
        assert len(set(scores)) == len(scores)


FOLDS = {
    "unequal": lambda data: KFold(4),
    "overlapping": lambda data: ShuffleSplit(3, train_size=20, random_state=0),
    "given": lambda data: [(np.arange(30), np.arange(30, 47)), (np.arange(9, 47), [0])],
    "masks": lambda data: [(data.X[:, 0] > 0, data.X[:, 0] <= 0)],
    "generator": lambda data: KFold(3).split(data.X),
}


@pytest.mark.parametrize("name", FOLDS)
def test_folds(data, name):
    both = []
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(
            regressor(),
            GRID,
            cv=FOLDS[name](data),
            scoring="neg_mean_absolute_error",
            return_train_score=True,
        )
        both.append(search.fit(data.X, data.y))
    assert_same_results(*both)


@pytest.mark.parametrize("routing", [False, True])
def test_groups(data, routing):
    """With metadata routing, for the networks too."""
    with sklearn.config_context(enable_metadata_routing=routing):
        plain, batched = fit_both(
            regressor(**STOPPING),
            GRID,
            data.X,
            data.y,
            fit={"groups": data.groups},
            cv=GroupKFold(3),
        )
    assert_same_results(plain, batched)


@pytest.mark.parametrize(
    "network",
    [
        BBBRegressor(**SMALL),
        BBBClassifier(**SMALL),
        regressor(length_scale="auto"),
        regressor(**STOPPING),
        classifier(**STOPPING),
    ],
)
def test_groups_of_the_networks(data, network):
    """Every member holds out the rows that it holds out alone."""
    y = data.labels if is_classifier(network) else data.y
    groups = np.array([f"patient {i}" for i in data.groups])
    pipeline = Pipeline([("scaler", StandardScaler()), ("network", network)])
    options = {"fit": {"network__groups": groups}, "tolerance": 1e-6}
    grid = {"network__tau": ["auto", 2.0]}
    if is_classifier(network):
        grid = {"network__tau": [0.5, 2.0], "network__dropout": [0.05, 0.2]}
    grouped = assert_same_members(pipeline, grid, data.X, y, **options)
    options["fit"] = {}
    split = assert_same_members(pipeline, grid, data.X, y, **options)
    # Networks with early stopping are trained again, on all rows.
    name = "history_" if network.early_stopping is True else "parameters_"
    assert any(
        repr(a[name]) != repr(b[name]) for a, b in zip(grouped, split, strict=True)
    )


def test_fold_that_lacks_a_class(data):
    order = np.argsort(data.labels, kind="stable")
    X, labels = data.X[order], data.labels[order]
    two_classes = fit_both(
        classifier(), GRID, X, labels, cv=KFold(3), scoring="accuracy"
    )
    assert_same_results(*two_classes)
    n_low = (labels == "low").sum()
    one_class = [np.arange(n_low), np.arange(n_low, 47)]
    folds = [one_class, (np.arange(1, 47), np.arange(1))]
    plain, batched = fit_both(classifier(), GRID, X, labels, cv=folds)
    assert_same_results(plain, batched)
    assert np.isnan(batched.cv_results_["split0_test_score"]).all()
    assert not np.isnan(batched.cv_results_["split1_test_score"]).any()


class TwoOfThree(KFold):
    """Yields two folds, although it announces three."""

    def split(self, X, y=None, groups=None):
        yield from list(super().split(X, y, groups))[:2]


def pandas_y(data):
    pandas = pytest.importorskip("pandas")
    return {"y": pandas.Series(data.y, index=range(100, 147))}


def pandas_Y(data):
    pandas = pytest.importorskip("pandas")
    return {"y": pandas.DataFrame(data.Y, columns=["u", "v"])}


# Changes of the arguments: parameters of the search, rows and targets.
CHANGES = {
    "series": pandas_y,
    "frame of targets": pandas_Y,
    "y as a list": lambda data: {"y": data.y.tolist()},
    "no y": lambda data: {"y": None},
    "missing y": lambda data: {"y": np.where(np.arange(47) == 3, np.nan, data.y)},
    "missing X": lambda data: {"X": np.where(data.X == data.X.max(), np.nan, data.X)},
    "lengths": lambda data: {"y": data.y[:40]},
    "no groups": lambda data: {"cv": GroupKFold(3)},
    "too few splits": lambda data: {"cv": TwoOfThree(3)},
    "unknown argument": lambda data: {"fit": {"rows": data.weights}},
    "no parameters": lambda data: {"grid": {}},
    "arrays": lambda data: {
        "grid": {"length_scale": [np.array([0.1, 0.2]), [0.1, 0.1], "auto"]}
    },
    "warm start": lambda data: {"estimator": regressor(warm_start=True)},
    "no metric of numbers": lambda data: {"scoring": "roc_auc"},
    "no number": lambda data: {"scoring": lambda estimator, X, y: "many"},
    "no score": lambda data: {"scoring": lambda estimator, X, y: np.nan},
    "one metric fails": lambda data: {
        "scoring": {"ratio": lambda estimator, X, y: 1 / 0, "r2": "r2"},
        "refit": "r2",
    },
    "one metric fails aloud": lambda data: {
        "scoring": {"ratio": lambda estimator, X, y: 1 / 0, "r2": "r2"},
        "refit": "r2",
        "error_score": "raise",
    },
    "best of nothing": lambda data: {"refit": lambda results: 9},
    "pre_dispatch": lambda data: {"n_jobs": 1, "pre_dispatch": "1.5*n_jobs"},
    "wrong pre_dispatch": lambda data: {"pre_dispatch": 2.5},
    "steps left out": lambda data: {
        "estimator": Pipeline([("a", None), ("b", "passthrough"), ("n", regressor())]),
        "grid": {"n__tau": [0.5, 2.0]},
    },
    "functions as parameters": lambda data: {
        "estimator": make_pipeline(FunctionTransformer(), regressor()),
        "grid": {"functiontransformer__func": [np.tanh, SQUARE, HALF]},
    },
}


def SQUARE(X):
    return X**2


# joblib cannot hash a lambda.
HALF = lambda X: X / 2  # noqa: E731


@pytest.mark.parametrize("name", CHANGES)
def test_same_results_or_same_error(data, name):
    case = {"X": data.X, "y": data.y, "fit": {}, "cv": 3} | CHANGES[name](data)
    X, y, fit = (case.pop(argument) for argument in ("X", "y", "fit"))
    estimator, grid = case.pop("estimator", regressor()), case.pop("grid", GRID)
    outcomes = []
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(estimator, grid, **case)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                search.fit(X, y, **fit)
        except Exception as error:
            # Without a traceback, and without words that differ between versions.
            message = re.split("Below are|return", str(error))[0]
            message = message.replace("Batched", "")
            outcomes.append((type(error), message))
        else:
            # A batched search checks the convergence of the last fit only, and does not
            # warn of missing values that a fold has and its training rows lack.
            kinds = {w.category for w in caught if "[SKB304]" not in str(w.message)}
            outcomes.append((search, kinds - {ConvergenceWarning}))
    (plain, plain_messages), (batched, batched_messages) = outcomes
    if isinstance(plain, type):
        assert plain == batched
    else:
        assert_same_results(plain, batched)
    assert plain_messages == batched_messages


# ---- weights


@pytest.mark.parametrize("scorer", [None, "r2", scoring.log_density_scorer])
def test_sample_weight(data, scorer):
    plain, batched = fit_both(
        regressor(),
        GRID,
        data.X,
        data.y,
        fit={"sample_weight": data.weights},
        scoring=scorer,
        return_train_score=True,
    )
    assert_same_results(plain, batched)


def test_warnings_equal_scikit_learn(data):
    """Of a scorer without weights (scikit-learn 1.9 or later), shown once."""

    def score(estimator, X, y):
        return estimator.tau

    warned = []
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(regressor(), {"tau": [0.5, 2.0]}, cv=3, scoring=score)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(data.X, data.y, sample_weight=data.weights)
        # A batched search checks the convergence of the last fit only.
        kept = (w for w in caught if w.category is not ConvergenceWarning)
        messages = (str(w.message).replace("Batched", "") for w in kept)
        warned.append([" ".join(message.split()) for message in messages])
    assert warned[0] == warned[1]


def test_rows_of_weight_zero_are_ignored(data):
    """They are ignored, which makes the folds unequal."""
    weights = data.weights * (np.arange(47) % 5 > 0) * (np.arange(47) != 2)
    for estimator, y in ((regressor(), data.y), (classifier(), data.labels)):
        assert_same_members(
            estimator.set_params(**STOPPING),
            {"tau": [0.5, 2.0], "random_state": [3, 4]},
            data.X,
            y,
            fit={"sample_weight": weights},
        )


@pytest.mark.parametrize("score", [False, True])
def test_routed_weights(data, score):
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = regressor().set_fit_request(sample_weight=True)
        estimator.set_score_request(sample_weight=score)
        weights = {"sample_weight": data.weights}
        plain, batched = fit_both(estimator, GRID, data.X, data.y, fit=weights)
        assert_same_results(plain, batched)
        plain, batched = (
            search.score(data.X_new, data.y_new, sample_weight=data.weights[:11])
            if score
            else search.score(data.X_new, data.y_new)
            for search in (plain, batched)
        )
        assert_close(plain, batched)


def test_routed_weights_of_a_scorer(data):
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = scoring.log_density_scorer.set_score_request(sample_weight="rows")
        plain, batched = fit_both(
            regressor().set_fit_request(sample_weight=False),
            GRID,
            data.X,
            data.y,
            fit={"rows": data.weights},
            scoring=scorer,
        )
    assert_same_results(plain, batched)


def test_weights_of_pipeline_steps(data):
    pipeline = make_pipeline(StandardScaler(), regressor(standardize=False))
    grid = {
        "mcdropoutregressor__tau": [0.5, 2.0],
        "standardscaler__with_mean": [True, False],
    }
    weights = {
        "standardscaler__sample_weight": data.weights[::-1],
        "mcdropoutregressor__sample_weight": data.weights,
    }
    assert_same_results(*fit_both(pipeline, grid, data.X, data.y, fit=weights))


def test_validation_rows(data):
    rows = {"X_val": data.X_new, "y_val": data.y_new}
    grid = {"early_stopping": [False, True], "random_state": [3, 4]}
    assert_same_results(
        *fit_both(regressor(**STOPPING), grid, data.X, data.y, fit=rows)
    )
