"""Batched searches give the results of scikit-learn's searches."""

import pickle
import re
import warnings
from inspect import signature

import joblib
import numpy as np
import pytest
import sklearn
from scipy import sparse
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skbayesnn
from skbayesnn import (
    BBBClassifier,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
    crps,
    scoring,
)
from skbayesnn._batch.outcomes import Outcome
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
    _progress,
)
from tests.helpers.comparison import (
    PLAIN,
    ROUNDING_32,
    SMALL,
    assert_close,
    assert_same_members,
    assert_same_results,
    assert_same_state,
    classifier,
    fit_both,
    fitted_state,
    quiet,
    regressor,
)

GRID = {"tau": [0.5, 2.0], "dropout": [0.05, 0.2]}
STOPPING = {
    "early_stopping": True,
    "validation_fraction": 0.3,
    "n_iter_no_change": 2,
    "tol": 0.05,
    "max_iter": 15,
}
# Three folds of 47 rows are of two sizes.
REGRESSORS = {
    "bernoulli": (regressor(), GRID | {"length_scale": [0.1, "auto", [0.1, 0.3]]}),
    "gaussian noise": (regressor(noise="gaussian"), GRID),
    "dropconnect": (regressor(noise="dropconnect"), GRID),
    "additive noise": (regressor(noise="additive"), GRID),
    "learned dropout": (
        regressor(dropout="auto"),
        {"tau": ["auto", 1.0], "length_scale": [0.1, "auto"]},
    ),
    "learned and given": (
        regressor(),
        {"tau": ["auto", 0.3, 2.0], "dropout": ["auto", 0.0, 0.1, [0.0, 0.1]]},
    ),
    "random_state": (
        regressor(n_estimators=2),
        {"random_state": [3, 4, 5], "tau": [0.5, 2.0]},
    ),
    # Without dropout the bias of a linear network has a gradient of rounding errors,
    # which Adam would scale to steps of the usual size.
    "programs": (
        regressor(dropout=0.2),
        {
            "hidden_layer_sizes": [(), 3, (4, 3)],
            "batch_size": [10, "auto"],
            "tau": [0.5, 2.0],
        },
    ),
    "precision": (
        regressor(),
        {"dtype": ["float32", "float64"], "tau": [0.5, 2.0]},
    ),
    "no program": (
        regressor(),
        {"standardize": [True, False], "n_draws": [3, 5], "n_estimators": [1, 2]},
    ),
    "heteroscedastic": (regressor(likelihood="heteroscedastic"), GRID),
    "early stopping": (
        regressor(**STOPPING, n_estimators=2),
        {"random_state": [3, 4, 5], "learning_rate_init": [0.01, 0.05]},
    ),
    "with and without": (
        regressor(**STOPPING),
        {"early_stopping": [False, True], "tau": [0.5, 2.0]},
    ),
    "mean field": (BBBRegressor(**SMALL), {"tau": ["auto", 1.0], "dropout": [0, 0.1]}),
    "scale mixture": (
        BBBRegressor(**SMALL, prior="scale_mixture", kl="sampled"),
        {"s1": [1.0, 2.0], "s2": [0.05, 0.1], "pi": [0.3, 0.6]},
    ),
    "variational dropout": (
        VariationalDropoutRegressor(**SMALL),
        {"dropout": [0.1, 0.3], "noise": ["correlated", "independent"]},
    ),
}
CLASSIFIERS = {
    "bernoulli": (classifier(), {"tau": [0.5, 2.0], "dropout": [0.1, 0.3]}),
    "class weights": (
        classifier(n_estimators=2),
        {
            "class_weight": [None, "balanced", {"low": 2.0, "mid": 1.0, "top": 0.5}],
            "length_scale": [0.1, 1.0],
        },
    ),
    "precision": (
        classifier(),
        {"dtype": ["float64", "float32"], "dropout": [0.1, 0.3]},
    ),
    "early stopping": (
        classifier(**STOPPING),
        {"random_state": [3, 4, 5], "dropout": [0.1, 0.3]},
    ),
    "scale mixture": (
        BBBClassifier(**SMALL, prior="scale_mixture", kl="sampled"),
        {"s1": [1.0, 2.0], "s2": [0.05, 0.1]},
    ),
    "variational dropout": (
        VariationalDropoutClassifier(**SMALL),
        {"tau": [0.5, 2.0], "random_state": [3, 4]},
    ),
}

# ---- members and scores


@pytest.mark.parametrize("case", REGRESSORS)
def test_members_of_regressors(data, case):
    estimator, grid = REGRESSORS[case]
    assert_same_members(estimator, grid, data.X, data.y)


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_members_of_classifiers(data, case):
    estimator, grid = CLASSIFIERS[case]
    assert_same_members(estimator, grid, data.X, data.labels)


def test_members_of_several_targets(data):
    grid = {
        "tau": ["auto", 0.1, [1.0, 0.01]],
        "likelihood": ["gaussian", "heteroscedastic"],
    }
    assert_same_members(regressor(), grid, data.X, data.Y)


def test_members_stop_separately(data):
    """Some members stop earlier than others."""
    estimator = regressor(**STOPPING)
    grid = {"random_state": range(8)}
    states = assert_same_members(estimator, grid, data.X, data.y)
    assert len({state["n_iter_"] for state in states}) > 1


def test_results_of_a_regression(data):
    plain, batched = fit_both(
        regressor(), GRID, data.X, data.y, return_train_score=True
    )
    assert_same_results(plain, batched)
    assert (batched.cv_results_["mean_fit_time"] > 0).all()
    assert batched.refit_time_ > 0
    assert_same_state(
        fitted_state(plain.best_estimator_), fitted_state(batched.best_estimator_)
    )
    assert_close(plain.score(data.X, data.y), batched.score(data.X, data.y))


def test_results_of_a_classification(data):
    plain, batched = fit_both(
        *CLASSIFIERS["bernoulli"],
        data.X,
        data.labels,
        scoring=["neg_log_loss", "accuracy", "roc_auc_ovr"],
        refit="neg_log_loss",
        return_train_score=True,
    )
    assert_same_results(plain, batched)
    assert_close(
        plain.predict_proba(data.X_new),
        batched.predict_proba(data.X_new),
    )


def test_precisions_are_not_mixed(data):
    """A member's training does not depend on members of another `dtype`."""
    grid = {"dtype": ["float32", "float64"], "tau": [0.5, 2.0]}
    for X in (data.X, data.X.astype(np.float32)):
        states = {}

        def keep(estimator, X, y, states=states):
            member = estimator.dtype, estimator.tau, joblib.hash((X, y))
            states[member] = fitted_state(estimator)
            return 0.0

        for subgrid in (grid, *({**grid, "dtype": [dtype]} for dtype in grid["dtype"])):
            before = dict(states)
            search = BatchedGridSearchCV(
                regressor(), subgrid, cv=3, scoring=keep, refit=False
            )
            search.fit(X, data.y)
            assert len(states) == 2 * 2 * 3
            for member, state in before.items():  # bit by bit
                assert_same_state(state, states[member], tolerance=0)
        for (dtype, *_), state in states.items():
            arrays = {n: v for n, v in state["parameters_"].items() if n != "keep"}
            assert {values.dtype.name for values in arrays.values()} == {dtype}


def test_best_precision_is_refitted(data):
    """The dtype is a parameter like any other for `refit` and the best parameters."""
    grid = {"dtype": ["float32", "float64"]}

    def prefer(estimator, X, y):
        return float(estimator.dtype == "float32")

    plain, batched = fit_both(regressor(), grid, data.X, data.y, scoring=prefer)
    assert_same_results(plain, batched)
    assert batched.best_params_ == {"dtype": "float32"}
    best = batched.best_estimator_
    assert best.parameters_["layers/0/mean"].dtype == np.float32
    assert best.predict(data.X_new).dtype == np.float64
    np.testing.assert_allclose(
        batched.predict(data.X_new),
        plain.predict(data.X_new),
        rtol=ROUNDING_32,
        atol=ROUNDING_32,
    )


def test_several_grids(data):
    """Candidates that lack a parameter are masked."""
    grids = [{"tau": [0.5, 2.0]}, {"hidden_layer_sizes": [3], "noise": ["gaussian"]}]
    assert_same_results(*fit_both(regressor(), grids, data.X, data.y))


def test_randomized_search(data):
    candidates = {"tau": loguniform(0.1, 10), "hidden_layer_sizes": [3, 4]}
    for n_iter in (1, 6):
        assert_same_results(
            *fit_both(
                regressor(),
                candidates,
                data.X,
                data.y,
                kind=BatchedRandomizedSearchCV,
                n_iter=n_iter,
                random_state=SMALL["random_state"],
            )
        )


def test_random_state_instances_are_cloned(data):
    """A RandomState instance gives every member the same random numbers."""
    estimator = regressor(random_state=np.random.RandomState(SMALL["random_state"]))
    assert_same_results(*fit_both(estimator, GRID, data.X, data.y))


def test_without_a_seed_members_differ(data):
    seeds = []
    grid = {"tau": [1.0, 1.5]}

    def keep(estimator, X, y):
        seeds.append(estimator.seeds_[0])
        return 0.0

    search = BatchedGridSearchCV(
        regressor(random_state=None), grid, cv=3, scoring=keep, refit=False
    )
    search.fit(data.X, data.y)
    assert len(set(seeds)) == 6


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
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(
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
    with sklearn.config_context(enable_metadata_routing=routing):
        plain, batched = fit_both(
            regressor(),
            GRID,
            data.X,
            data.y,
            fit={"groups": data.groups},
            cv=GroupKFold(3),
        )
    assert_same_results(plain, batched)


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
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(estimator, grid, **case)
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
            # A batched search checks the convergence of the last fit only.
            outcomes.append(
                (search, {w.category for w in caught} - {ConvergenceWarning})
            )
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
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(regressor(), {"tau": [0.5, 2.0]}, cv=3, scoring=score)
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


# ---- scorers, refit, errors


def test_scorers_of_the_package(data):
    kinds = {
        "density": scoring.log_density_scorer,
        "crps": scoring.neg_crps_scorer,
        "pinball": scoring.neg_pinball_scorer,
        "coverage": scoring.interval_coverage_scorer.with_options(coverage=0.5),
        "width": scoring.neg_interval_width_scorer,
        "aurc": scoring.neg_aurc_scorer,
        "outside": scoring.ood_auroc_scorer(data.X_new + 5),
        "error": make_scorer(mean_absolute_error, greater_is_better=False),
    }
    plain, batched = fit_both(
        regressor(), GRID, data.X, data.y, scoring=kinds, refit="density"
    )
    assert_same_results(plain, batched)
    assert set(batched.scorer_) == set(plain.scorer_)
    kinds = {"density": scoring.log_density_scorer, "brier": scoring.neg_brier_scorer}
    assert_same_results(
        *fit_both(classifier(), GRID, data.X, data.labels, scoring=kinds, refit="brier")
    )


def test_callable_that_returns_several_scores(data):
    def scores(estimator, X, y):
        error = np.abs(estimator.predict(X) - y)
        return {"mean": -error.mean(), "max": -error.max()}

    assert_same_results(
        *fit_both(regressor(), GRID, data.X, data.y, scoring=scores, refit="max")
    )


@pytest.mark.parametrize("metrics", [None, ["r2", "neg_mean_absolute_error"]])
def test_callable_refit(data, metrics):
    plain, batched = fit_both(
        regressor(),
        GRID,
        data.X,
        data.y,
        scoring=metrics,
        refit=lambda results: len(results["params"]) - 2,
    )
    assert_same_results(plain, batched)
    assert batched.best_index_ == 2 and not hasattr(batched, "best_score_")


@pytest.mark.parametrize("metrics", [None, ["r2", "neg_mean_absolute_error"]])
def test_without_refit(data, metrics):
    plain, batched = fit_both(
        regressor(), GRID, data.X, data.y, scoring=metrics, refit=False
    )
    assert_same_results(plain, batched)
    assert not hasattr(batched, "predict")


@pytest.mark.parametrize("error_score", [np.nan, -1e6])
@pytest.mark.parametrize(
    "bad",
    [{"tau": [1.0, -1.0]}, {"learning_rate_init": [1e200]}, {"dropout": [0.1, "b"]}],
    ids=lambda bad: next(iter(bad)),
)
def test_failing_candidates(data, bad, error_score):
    plain, batched = fit_both(
        regressor(),
        [{"tau": [0.5, 2.0]}, bad],
        data.X,
        data.y,
        error_score=error_score,
        return_train_score=True,
    )
    assert_same_results(plain, batched)


def test_failing_scores(data):
    def fail_sometimes(estimator, X, y):
        if estimator.tau == 2.0:
            raise ValueError("no score")
        return 1.0

    assert_same_results(
        *fit_both(regressor(), GRID, data.X, data.y, scoring=fail_sometimes)
    )


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"tau": [1.0, -1.0]}, ValueError),
        ({"learning_rate_init": [0.01, 1e200]}, FloatingPointError),
        ({"tau": [1.0, True]}, TypeError),
    ],
)
def test_failures_are_raised_if_error_score_is_raise(data, bad, error):
    messages = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(regressor(), bad, cv=3, error_score="raise")
        with pytest.raises(error) as caught:
            search.fit(data.X, data.y)
        assert not hasattr(search, "cv_results_")
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("bad", [{"tau": [-1.0]}, {"learning_rate_init": [1e200]}])
def test_raises_if_all_candidates_fail(data, bad):
    grid = bad | {"dropout": [0.1, 0.2]}
    with pytest.raises(ValueError, match=r"All the 6 fits failed[\s\S]*(tau|loss)"):
        BatchedGridSearchCV(regressor(), grid, cv=3).fit(data.X, data.y)


@pytest.mark.parametrize("reason", ["parameter", "loss", "rows"])
def test_warning_of_failures_does_not_grow_with_the_members(data, reason):
    bad = {"parameter": {"tau": [-1.0]}, "loss": {"learning_rate_init": [1e200]}}
    grid = [{"tau": [0.5]}, bad.get(reason, {}) | {"dropout": [0.1, 0.2, 0.3, 0.4]}]
    labels = np.where(np.arange(47) < 30, "low", data.labels)
    folds = [np.arange(30), np.arange(30, 47)], [np.arange(17, 47), np.arange(17)]
    lengths = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(regressor(), grid, cv=2)
        if reason == "rows":
            search.set_params(estimator=classifier(), cv=folds)
        with pytest.warns(FitFailedWarning) as caught, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "One or more of the test scores")
            search.fit(data.X, labels if reason == "rows" else data.y)
        (warning,) = (w for w in caught if issubclass(w.category, FitFailedWarning))
        lengths.append(len(str(warning.message)))
    # One traceback may be a few lines longer than the other.
    assert lengths[1] < 3 * lengths[0]


@pytest.mark.parametrize("error_score", [np.nan, "raise"])
def test_unknown_parameter_is_refused(data, error_score):
    """It does not count as a candidate that fails."""
    grids = [{"tau": [0.5]}, {"tua": [0.5]}]
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(regressor(), grids, cv=3, error_score=error_score)
        with pytest.raises(ValueError, match="Invalid parameter 'tua'"):
            search.fit(data.X, data.y)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (BatchedGridSearchCV, {"cv": 1}),
        (BatchedGridSearchCV, {"error_score": "no"}),
        (BatchedGridSearchCV, {"refit": 7.0}),
        (BatchedGridSearchCV, {"scoring": ["r2", "max_error"]}),
        (BatchedGridSearchCV, {"scoring": ["r2"], "refit": "max_error"}),
        (BatchedGridSearchCV, {"param_grid": []}),
        (BatchedGridSearchCV, {"param_grid": {"tau": 1.0}}),
        (BatchedRandomizedSearchCV, {"n_iter": 0}),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else "",
)
def test_invalid_options_raise_the_same_errors(data, kind, options):
    errors = []
    for kind_ in (PLAIN[kind], kind):
        search = kind_(regressor(), GRID)
        with pytest.raises((TypeError, ValueError)) as caught:
            search.set_params(**options).fit(data.X, data.y)
        # InvalidParameterError names the class.
        errors.append((caught.type, str(caught.value).replace("Batched", "")))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("kind", [BatchedGridSearchCV, BatchedRandomizedSearchCV])
def test_other_estimators_are_refused(data, kind):
    inside = TransformedTargetRegressor(regressor(), transformer=StandardScaler())
    for estimator in (Ridge(), inside, make_pipeline(StandardScaler(), Ridge())):
        name = "Transformed" if estimator is inside else "Ridge"
        with pytest.raises(
            TypeError, match=rf"got {name}.*model_selection.GridSearchCV"
        ):
            kind(estimator, {}).fit(data.X, data.y)


@pytest.mark.parametrize("budget", [0, -1.0, np.nan])
def test_memory_budget_must_be_positive(data, budget):
    search = BatchedGridSearchCV(regressor(), GRID, memory_budget=budget)
    with pytest.raises(ValueError, match=r"`memory_budget` must be .* > 0; got"):
        search.fit(data.X, data.y)


# ---- as an estimator


def test_predictive_functions_take_a_search(data):
    plain, batched = fit_both(regressor(), GRID, data.X, data.y)
    X, y = data.X_new, data.y_new
    assert_close(plain.predict(X), batched.predict(X))
    for function, arguments in {
        skbayesnn.predict_uncertainty: (),
        skbayesnn.predict_interval: (0.8,),
        skbayesnn.predict_quantile: ([0.1, 0.6],),
        skbayesnn.predictive_cdf: (y,),
        skbayesnn.log_predictive_density: (y,),
        skbayesnn.sample_f: (3,),
        skbayesnn.sample_y: (3,),
        crps: (y,),
    }.items():
        assert_close(function(plain, X, *arguments), function(batched, X, *arguments))
    assert batched.n_features_in_ == 4
    assert sklearn.base.is_regressor(batched) and not hasattr(batched, "predict_proba")


@pytest.mark.parametrize("kind", PLAIN)
def test_predict_passes_parameters(data, kind):
    """Also through a pipeline; scikit-learn's searches accept none."""
    pipeline = make_pipeline(StandardScaler(), regressor())
    for estimator, path in ((regressor(), ""), (pipeline, "mcdropoutregressor__")):
        options = {"n_iter": 2} if kind is BatchedRandomizedSearchCV else {}
        search = kind(estimator, {path + "tau": [0.5, 2.0]}, cv=2, **options)
        search.fit(data.X, data.Y)
        best = search.best_estimator_
        for params in ({"return_std": True}, {"return_cov": True}):
            actual = search.predict(data.X_new, **params)
            expected = best.predict(data.X_new, **params)
            for value, desired in zip(actual, expected, strict=True):
                np.testing.assert_array_equal(value, desired)
    with pytest.raises(TypeError, match="return_std"):
        search = BatchedGridSearchCV(classifier(), {"tau": [1.0]}, cv=2)
        search.fit(data.X, data.labels).predict(data.X_new, return_std=True)


def test_predictive_functions_take_a_search_of_classifiers(data):
    plain, batched = fit_both(classifier(), GRID, data.X, data.labels)
    X = data.X_new
    np.testing.assert_array_equal(batched.predict(X), plain.predict(X))
    np.testing.assert_array_equal(batched.classes_, plain.classes_)
    assert_close(plain.predict_proba(X), batched.predict_proba(X))
    for kind in ("entropy", "mutual_information"):
        assert_close(
            *(
                skbayesnn.predict_uncertainty(search, X, kind)
                for search in (plain, batched)
            )
        )
    assert sklearn.base.is_classifier(batched)


def test_best_estimator_is_an_ordinary_estimator(data):
    plain, batched = fit_both(regressor(), GRID, data.X, data.y)
    best = batched.best_estimator_
    assert type(best) is MCDropoutRegressor
    assert vars(best).keys() == vars(plain.best_estimator_).keys()
    assert best.get_params() == plain.best_estimator_.get_params()
    refitted = clone(best).fit(data.X, data.y)
    assert_close(refitted.predict(data.X_new), best.predict(data.X_new))
    restored = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(
        restored.predict(data.X_new), best.predict(data.X_new)
    )


def test_estimator_and_candidates_are_not_changed(data):
    network = regressor()
    pipeline = make_pipeline(StandardScaler(), network)
    candidates = [regressor(tau=0.5), regressor(tau=2.0)]
    search = BatchedGridSearchCV(pipeline, {"mcdropoutregressor": candidates}, cv=3)
    before = {name: repr(v) for name, v in search.get_params().items()}
    search.fit(data.X, data.y)
    assert search.estimator is pipeline and pipeline[-1] is network
    assert {name: repr(v) for name, v in search.get_params().items()} == before
    for estimator in (pipeline[0], network, *candidates):
        assert vars(estimator).keys() == clone(estimator).__dict__.keys()


@pytest.mark.parametrize("kind", [BatchedGridSearchCV, BatchedRandomizedSearchCV])
def test_parameters_equal_scikit_learn(kind):
    search = kind(regressor(), GRID, memory_budget=3.0, devices=["cpu"], verbose=2)
    copied = clone(search)
    assert repr(copied.get_params()) == repr(search.get_params())
    copied.set_params(estimator__tau=7.0, memory_budget=None, cv=4)
    assert copied.estimator.tau == 7.0 and search.estimator.tau == "auto"
    expected = PLAIN[kind](regressor(), GRID).get_params()
    actual = kind(regressor(), GRID).get_params()
    assert actual.keys() - expected.keys() == {"memory_budget", "devices"}
    for name in expected.keys() - {"estimator"}:
        assert repr(actual[name]) == repr(expected[name]), name
    names = [list(signature(k).parameters) for k in (PLAIN[kind], kind)]
    assert names[1] == [*names[0], "memory_budget", "devices"]


@pytest.mark.parametrize("metric", [None, "r2", ["r2", "neg_max_error"]])
def test_fitted_search_is_pickled(data, metric):
    """The file is small: of all networks only the best is kept."""
    grid = {"tau": np.geomspace(0.1, 10, 9)}
    refit = "r2" if isinstance(metric, list) else True
    plain, batched = fit_both(
        regressor(), grid, data.X, data.y, scoring=metric, refit=refit, cv=2
    )
    stored = pickle.dumps(batched)
    assert len(stored) < 1.5 * len(pickle.dumps(plain))
    restored = pickle.loads(stored)
    np.testing.assert_array_equal(
        restored.predict(data.X_new), batched.predict(data.X_new)
    )
    assert restored.score(data.X, data.y) == batched.score(data.X, data.y)
    assert repr(restored.scorer_) == repr(plain.scorer_)
    assert_same_results(plain, restored)


def test_search_can_be_fitted_again(data):
    search = BatchedGridSearchCV(regressor(), GRID, cv=3).fit(data.X, data.y)
    search.set_params(param_grid={"tau": [1.0]}, cv=2).fit(data.X[:29], data.y[:29])
    plain = GridSearchCV(regressor(), {"tau": [1.0]}, cv=2)
    assert_same_results(plain.fit(data.X[:29], data.y[:29]), search)


def test_search_inside_other_estimators(data):
    """In cross-validation, in a pipeline, and inside another search."""
    results = []
    transformed = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = make_pipeline(StandardScaler(), kind(regressor(), GRID, cv=2))
        results.append(
            cross_validate(search, data.X, data.y, cv=3, return_estimator=True)
        )
        outer = TransformedTargetRegressor(
            kind(regressor(), GRID, cv=2), transformer=StandardScaler()
        )
        grid = {"regressor__estimator__max_iter": [2, 3]}
        outer = GridSearchCV(outer, grid, cv=2).fit(data.X, data.y)
        transformed.append(outer.predict(data.X_new))
    assert_close(*transformed)
    plain, batched = results
    assert_close(plain["test_score"], batched["test_score"])
    for expected, actual in zip(plain["estimator"], batched["estimator"], strict=True):
        assert_same_results(expected[-1], actual[-1])


def test_raises_if_not_fitted(data):
    with pytest.raises(NotFittedError):
        BatchedGridSearchCV(regressor(), GRID).predict(data.X)


@pytest.fixture
def progress_bars(monkeypatch):
    """Total and states of every progress bar: members done, and the best score."""
    shown = []

    class Bar:
        def __init__(self, total, unit, smoothing):
            self.n, self.best = 0, ""
            self.states = []
            shown.append((total, self.states))

        def set_postfix_str(self, text, refresh):
            self.best = text

        def update(self, n):
            self.n += n
            self.states.append((self.n, self.best))

        def close(self):
            self.states.append("closed")

    monkeypatch.setattr(_progress, "tqdm_bar", Bar)
    return shown


def test_progress_bar(data, progress_bars):
    """It is updated with every program, and shows the best score when it is known."""
    grid = {"hidden_layer_sizes": [3, 4, 5], "tau": [-1.0, 0.5, 2.0]}
    search = BatchedGridSearchCV(
        regressor(), grid, cv=KFold(3), verbose=1, scoring="r2"
    )
    with quiet():
        search.fit(data.X, data.y)
    [(total, states)] = progress_bars
    assert total == 3 * 3 * 3 and states.pop() == "closed"
    assert len({n for n, _ in states}) > 3
    assert [n for n, _ in states] == sorted(n for n, _ in states)
    assert states[-1] == (total, f"best score {search.best_score_:.4g}")
    # A candidate that failed is not the best.
    assert not any("nan" in best for _, best in states)
    assert states[0][1] == "" and "best score" in states[-4][1]


def test_progress_bar_with_several_metrics(data, progress_bars):
    metrics = ["r2", "neg_max_error"]
    search = BatchedGridSearchCV(
        regressor(), GRID, cv=3, verbose=1, scoring=metrics, refit=False
    )
    search.fit(data.X, data.y)
    [(_, states)] = progress_bars
    best = {name: search.cv_results_[f"mean_test_{name}"].max() for name in metrics}
    for name, score in best.items():
        assert f"{name} {score:.4g}" in states[-2][1]
    BatchedGridSearchCV(regressor(), {"tau": [0.5]}, cv=3).fit(data.X, data.y)
    assert len(progress_bars) == 1


def test_time_left_of_a_search(monkeypatch):
    """From the mean speed since the start: members of a program end together."""
    tqdm = pytest.importorskip("tqdm.std")
    now = 100.0
    monkeypatch.setattr(tqdm, "time", lambda: now)
    with _progress.SearchProgress(n_members=10, n_folds=5) as progress:
        for seconds, n_done, left in [(6, 2, "00:06<00:24"), (2, 4, "00:08<00:12")]:
            now += seconds
            folds = range(n_done - 2, n_done)
            progress.add({("one", fold): Outcome(results=[1.0]) for fold in folds})
            assert f"{n_done}/10 [{left}" in str(progress._bar)


@pytest.mark.parametrize("verbose", [0, 1, 2, 3, 10])
def test_verbose_output_equals_scikit_learn(data, capsys, verbose):
    """Except for times."""
    pytest.importorskip("tqdm")
    outputs = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(regressor(), {"tau": [0.5, 2.0]}, cv=2, verbose=verbose)
        search.fit(data.X, data.y)
        out, err = capsys.readouterr()
        outputs.append(re.sub(r"\.+|total time=.*", "", out))
    assert outputs[0] == outputs[1]
    assert bool(err) == (verbose > 0)


# ---- scikit-learn's callbacks (scikit-learn >= 1.9)


class Recorder:
    """Records the events of a callback with the ids of the tasks."""

    requires_fit_predict = False

    def __init__(self):
        self.events = []

    def _add(self, hook, estimator, context):
        tasks = []
        while context is not None:
            name = context.estimator_name.replace("Batched", "")
            tasks.insert(0, (name, context.task_name, context.task_id))
            context = context.parent
        name = type(estimator).__name__.replace("Batched", "")
        self.events.append((hook, name, tuple(tasks)))

    def setup(self, estimator, context):
        self._add("setup", estimator, context)

    def teardown(self, estimator, context):
        self._add("teardown", estimator, context)

    def on_fit_task_begin(self, estimator, context, **_):
        self._add("begin", estimator, context)

    def on_fit_task_end(self, estimator, context, **_):
        self._add("end", estimator, context)


class PropagatedRecorder(Recorder):
    """Also records events of the estimators inside."""

    max_propagation_depth = None


def events_of(place, recorder, estimator, grid, X, y, kind, **options):
    """Events of a search whose callbacks are set on it, its estimator or network."""
    pytest.importorskip("sklearn.callback")
    search = kind(clone(estimator), grid, cv=3, **options)
    {
        "search": search,
        "estimator": search.estimator,
        "network": search.estimator[-1] if "__" in min(grid) else search.estimator,
    }[place].set_callbacks(recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y)
    return recorder.events


@pytest.mark.parametrize("place", ["search", "network"])
@pytest.mark.parametrize("kind", [BatchedGridSearchCV, BatchedRandomizedSearchCV])
def test_callbacks(data, place, kind):
    """Setup, tasks and teardown in the order of scikit-learn's search."""
    options = {} if kind is BatchedGridSearchCV else {"n_iter": 2, "random_state": 0}
    plain, batched = (
        events_of(place, Recorder(), regressor(), GRID, data.X, data.y, k, **options)
        for k in (PLAIN[kind], kind)
    )
    assert plain == batched
    assert "setup" in {hook for hook, *_ in plain}


def test_propagated_callbacks(data):
    """They get the epochs of the networks, too."""
    plain, batched = (
        events_of(
            "search", PropagatedRecorder(), regressor(), GRID, data.X, data.y, kind
        )
        for kind in (GridSearchCV, BatchedGridSearchCV)
    )
    assert plain == batched
    assert any(tasks[-1][1] == "epoch" for _, _, tasks in plain)


@pytest.mark.parametrize("place", ["search", "estimator", "network"])
def test_callbacks_with_a_pipeline(data, place):
    """Compared without the steps before the network, which are fitted once per fold."""
    pipeline = make_pipeline(StandardScaler(), regressor())
    grid = {"mcdropoutregressor__tau": [0.5, 2.0]}
    plain, batched = (
        events_of(
            place,
            PropagatedRecorder() if place == "search" else Recorder(),
            pipeline,
            grid,
            data.X,
            data.y,
            kind,
            refit=False,
        )
        for kind in (GridSearchCV, BatchedGridSearchCV)
    )

    def without_steps(events):
        # The id of the last step's task depends on the tasks of other steps.
        return [
            (hook, name, [task[:2] for task in tasks])
            for hook, name, tasks in events
            if not {"fit-transform-standardscaler", "StandardScaler"}
            & {word for task in tasks for word in task[:2]}
        ]

    assert without_steps(plain) == without_steps(batched)
    assert len(batched) > 6


def test_callbacks_after_early_stopping(data):
    """As many epochs as were trained."""
    plain, batched = (
        events_of(
            "network",
            Recorder(),
            regressor(**STOPPING),
            {"random_state": range(4)},
            data.X,
            data.y,
            kind,
        )
        for kind in (GridSearchCV, BatchedGridSearchCV)
    )
    assert plain == batched


def test_callbacks_are_torn_down_after_a_failure(data):
    recorder = Recorder()
    with pytest.raises(ValueError, match="tau"):
        events_of(
            "search",
            recorder,
            regressor(),
            {"tau": [-1.0]},
            data.X,
            data.y,
            BatchedGridSearchCV,
            error_score="raise",
        )
    hooks = [hook for hook, *_ in recorder.events]
    assert hooks.count("setup") == hooks.count("teardown") == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores:UserWarning")
def test_candidate_with_an_unknown_device_fails_alone(data):
    grid = {"device": ["cpu", "bogus"]}
    scores = [
        kind(regressor(), grid, cv=3).fit(data.X, data.y).cv_results_["mean_test_score"]
        for kind in (GridSearchCV, BatchedGridSearchCV)
    ]
    np.testing.assert_array_equal(np.isnan(scores), [[False, True]] * 2)


def test_fold_without_training_rows_raises(data):
    """As in scikit-learn, the error contains the reason."""
    folds = [(np.arange(0), np.arange(47))]
    search = BatchedGridSearchCV(regressor(), GRID, cv=folds)
    with pytest.raises(ValueError, match=r"fits failed[\s\S]*0 sample\(s\)"):
        search.fit(data.X, data.y)
