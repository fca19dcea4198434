"""The batched searches give what scikit-learn's give."""

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
    # Without dropout a linear network's bias has a gradient of zero but for rounding,
    # which Adam would enlarge to steps of the usual size.
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


def test_members_stop_by_themselves(data):
    """They do stop early, and not all at once."""
    estimator = regressor(**STOPPING)
    grid = {"random_state": range(8)}
    found = assert_same_members(estimator, grid, data.X, data.y)
    assert len({state["n_iter_"] for state in found}) > 1


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
    """A member is trained in its own `dtype`, and its neighbours do not matter."""
    grid = {"dtype": ["float32", "float64"], "tau": [0.5, 2.0]}
    for X in (data.X, data.X.astype(np.float32)):
        found = {}

        def keep(estimator, X, y, found=found):
            member = estimator.dtype, estimator.tau, joblib.hash((X, y))
            found[member] = fitted_state(estimator)
            return 0.0

        for one in (grid, *({**grid, "dtype": [dtype]} for dtype in grid["dtype"])):
            before = dict(found)
            search = BatchedGridSearchCV(
                regressor(), one, cv=3, scoring=keep, refit=False
            )
            search.fit(X, data.y)
            assert len(found) == 2 * 2 * 3
            for member, state in before.items():  # bit by bit
                assert_same_state(state, found[member], tolerance=0)
        for (dtype, *_), state in found.items():
            arrays = {n: v for n, v in state["parameters_"].items() if n != "keep"}
            assert {values.dtype.name for values in arrays.values()} == {dtype}


def test_best_precision_is_refitted(data):
    """`refit` and the best parameters know it as any other."""
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


def test_randomised(data):
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


def test_generators_are_cloned_as_in_scikit_learn(data):
    """A RandomState instance gives every member the same numbers."""
    estimator = regressor(random_state=np.random.RandomState(SMALL["random_state"]))
    assert_same_results(*fit_both(estimator, GRID, data.X, data.y))


def test_without_a_seed_members_differ(data):
    found = []
    grid = {"tau": [1.0, 1.5]}

    def keep(estimator, X, y):
        found.append(estimator.seeds_[0])
        return 0.0

    search = BatchedGridSearchCV(
        regressor(random_state=None), grid, cv=3, scoring=keep, refit=False
    )
    search.fit(data.X, data.y)
    assert len(set(found)) == 6


# ---- rows


@pytest.mark.parametrize(
    "form", ["csr_array", "csc_matrix", "float32", "list", "pandas", "polars"]
)
def test_forms_of_X(data, form):
    if form in ("csr_array", "csc_matrix"):
        X = getattr(sparse, form)(np.where(np.abs(data.X) > 0.3, data.X, 0))
    elif form in ("pandas", "polars"):
        X = pytest.importorskip(form).DataFrame(
            dict(zip("abcd", data.X.T, strict=True))
        )
    else:
        X = data.X.tolist() if form == "list" else data.X.astype(form)
    single = form == "float32"
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
    """Says that there are three folds."""

    def split(self, X, y=None, groups=None):
        yield from list(super().split(X, y, groups))[:2]


def pandas_y(data):
    pandas = pytest.importorskip("pandas")
    return {"y": pandas.Series(data.y, index=range(100, 147))}


def pandas_Y(data):
    pandas = pytest.importorskip("pandas")
    return {"y": pandas.DataFrame(data.Y, columns=["u", "v"])}


# What is fitted: parameters of the search, rows, and their like.
DROP_IN = {
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


# joblib cannot hash it.
HALF = lambda X: X / 2  # noqa: E731


@pytest.mark.parametrize("name", DROP_IN)
def test_same_results_or_the_same_error(data, name):
    case = {"X": data.X, "y": data.y, "fit": {}, "cv": 3} | DROP_IN[name](data)
    X, y, fit = (case.pop(part) for part in ("X", "y", "fit"))
    estimator, grid = case.pop("estimator", regressor()), case.pop("grid", GRID)
    found = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(estimator, grid, **case)
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                search.fit(X, y, **fit)
        except Exception as error:
            # A traceback in the message apart, and what versions word differently.
            message = re.split("Below are|return", str(error))[0]
            message = message.replace("Batched", "")
            found.append((type(error), message))
        else:
            # Of how networks fit their rows a batched search looks at the last only.
            found.append((search, {w.category for w in told} - {ConvergenceWarning}))
    (plain, of_plain), (batched, of_batched) = found
    if isinstance(plain, type):
        assert plain == batched
    else:
        assert_same_results(plain, batched)
    assert of_plain == of_batched


# ---- weights


@pytest.mark.parametrize("scorer", [None, "r2", scoring.log_density_scorer])
def test_weighted_rows(data, scorer):
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


def test_warnings_are_those_of_scikit_learn(data):
    """Here of a scorer without weights (from scikit-learn 1.9 on), and once."""

    def score(estimator, X, y):
        return estimator.tau

    told = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(regressor(), {"tau": [0.5, 2.0]}, cv=3, scoring=score)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(data.X, data.y, sample_weight=data.weights)
        # Of how networks fit their rows a batched search looks at the last only.
        others = (w for w in caught if w.category is not ConvergenceWarning)
        messages = (str(w.message).replace("Batched", "") for w in others)
        told.append([" ".join(message.split()) for message in messages])
    assert told[0] == told[1]


def test_rows_of_weight_zero(data):
    """They are absent, and the folds' numbers of rows differ by that."""
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


def test_weights_for_the_steps_of_a_pipeline(data):
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


def test_given_validation_rows(data):
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
def test_candidates_that_fail(data, bad, error_score):
    plain, batched = fit_both(
        regressor(),
        [{"tau": [0.5, 2.0]}, bad],
        data.X,
        data.y,
        error_score=error_score,
        return_train_score=True,
    )
    assert_same_results(plain, batched)


def test_scores_that_fail(data):
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
def test_failures_raised(data, bad, error):
    messages = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(regressor(), bad, cv=3, error_score="raise")
        with pytest.raises(error) as caught:
            search.fit(data.X, data.y)
        assert not hasattr(search, "cv_results_")
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("bad", [{"tau": [-1.0]}, {"learning_rate_init": [1e200]}])
def test_all_candidates_fail(data, bad):
    grid = bad | {"dropout": [0.1, 0.2]}
    with pytest.raises(ValueError, match=r"All the 6 fits failed[\s\S]*(tau|loss)"):
        BatchedGridSearchCV(regressor(), grid, cv=3).fit(data.X, data.y)


@pytest.mark.parametrize("reason", ["parameter", "loss", "rows"])
def test_failures_are_told_once(data, reason):
    """The warning does not grow with the number of members."""
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
        (told,) = (w for w in caught if issubclass(w.category, FitFailedWarning))
        lengths.append(len(str(told.message)))
    # One traceback may be a few lines longer than the other.
    assert lengths[1] < 3 * lengths[0]


@pytest.mark.parametrize("error_score", [np.nan, "raise"])
def test_parameter_that_does_not_exist(data, error_score):
    """A slip of the pen is no candidate that fails."""
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
def test_wrong_options(data, kind, options):
    """The same errors."""
    told = []
    for kind_ in (PLAIN[kind], kind):
        search = kind_(regressor(), GRID)
        with pytest.raises((TypeError, ValueError)) as caught:
            search.set_params(**options).fit(data.X, data.y)
        # InvalidParameterError names the class.
        told.append((caught.type, str(caught.value).replace("Batched", "")))
    assert told[0] == told[1]


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


# ---- an estimator among others


def test_predictive_passes_through(data):
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
def test_predict_hands_parameters_on(data, kind):
    """Also through a pipeline; scikit-learn's searches take none."""
    pipeline = make_pipeline(StandardScaler(), regressor())
    for estimator, path in ((regressor(), ""), (pipeline, "mcdropoutregressor__")):
        options = {"n_iter": 2} if kind is BatchedRandomizedSearchCV else {}
        search = kind(estimator, {path + "tau": [0.5, 2.0]}, cv=2, **options)
        search.fit(data.X, data.Y)
        best = search.best_estimator_
        for params in ({"return_std": True}, {"return_cov": True}):
            found = search.predict(data.X_new, **params)
            expected = best.predict(data.X_new, **params)
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(TypeError, match="return_std"):
        search = BatchedGridSearchCV(classifier(), {"tau": [1.0]}, cv=2)
        search.fit(data.X, data.labels).predict(data.X_new, return_std=True)


def test_predictive_of_a_classifier_passes_through(data):
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


def test_best_estimator_is_a_plain_one(data):
    plain, batched = fit_both(regressor(), GRID, data.X, data.y)
    best = batched.best_estimator_
    assert type(best) is MCDropoutRegressor
    assert vars(best).keys() == vars(plain.best_estimator_).keys()
    assert best.get_params() == plain.best_estimator_.get_params()
    again = clone(best).fit(data.X, data.y)
    assert_close(again.predict(data.X_new), best.predict(data.X_new))
    restored = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(
        restored.predict(data.X_new), best.predict(data.X_new)
    )


def test_estimator_and_candidates_are_left_alone(data):
    network = regressor()
    pipeline = make_pipeline(StandardScaler(), network)
    others = [regressor(tau=0.5), regressor(tau=2.0)]
    search = BatchedGridSearchCV(pipeline, {"mcdropoutregressor": others}, cv=3)
    before = {name: repr(v) for name, v in search.get_params().items()}
    search.fit(data.X, data.y)
    assert search.estimator is pipeline and pipeline[-1] is network
    assert {name: repr(v) for name, v in search.get_params().items()} == before
    for estimator in (pipeline[0], network, *others):
        assert vars(estimator).keys() == clone(estimator).__dict__.keys()


@pytest.mark.parametrize("kind", [BatchedGridSearchCV, BatchedRandomizedSearchCV])
def test_parameters_of_the_search(kind):
    search = kind(regressor(), GRID, memory_budget=3.0, devices=["cpu"], verbose=2)
    twin = clone(search)
    assert repr(twin.get_params()) == repr(search.get_params())
    twin.set_params(estimator__tau=7.0, memory_budget=None, cv=4)
    assert twin.estimator.tau == 7.0 and search.estimator.tau == "auto"
    theirs = PLAIN[kind](regressor(), GRID).get_params()
    ours = kind(regressor(), GRID).get_params()
    assert ours.keys() - theirs.keys() == {"memory_budget", "devices"}
    for name in theirs.keys() - {"estimator"}:
        assert repr(ours[name]) == repr(theirs[name]), name
    names = [list(signature(k).parameters) for k in (PLAIN[kind], kind)]
    assert names[1] == [*names[0], "memory_budget", "devices"]


@pytest.mark.parametrize("metric", [None, "r2", ["r2", "neg_max_error"]])
def test_fitted_search_is_pickled(data, metric):
    """And in little space: no trained member is kept but the best."""
    grid = {"tau": np.geomspace(0.1, 10, 9)}
    refit = "r2" if isinstance(metric, list) else True
    plain, batched = fit_both(
        regressor(), grid, data.X, data.y, scoring=metric, refit=refit, cv=2
    )
    text = pickle.dumps(batched)
    assert len(text) < 1.5 * len(pickle.dumps(plain))
    restored = pickle.loads(text)
    np.testing.assert_array_equal(
        restored.predict(data.X_new), batched.predict(data.X_new)
    )
    assert restored.score(data.X, data.y) == batched.score(data.X, data.y)
    assert repr(restored.scorer_) == repr(plain.scorer_)
    assert_same_results(plain, restored)


def test_search_can_be_fitted_again(data):
    search = BatchedGridSearchCV(regressor(), GRID, cv=3).fit(data.X, data.y)
    search.set_params(param_grid={"tau": [1.0]}, cv=2).fit(data.X[:29], data.y[:29])
    other = GridSearchCV(regressor(), {"tau": [1.0]}, cv=2)
    assert_same_results(other.fit(data.X[:29], data.y[:29]), search)


def test_search_inside_of_others(data):
    """Nested cross-validation, a search as the last step, and of a search."""
    found = []
    transformed = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = make_pipeline(StandardScaler(), kind(regressor(), GRID, cv=2))
        found.append(
            cross_validate(search, data.X, data.y, cv=3, return_estimator=True)
        )
        outer = TransformedTargetRegressor(
            kind(regressor(), GRID, cv=2), transformer=StandardScaler()
        )
        grid = {"regressor__estimator__max_iter": [2, 3]}
        outer = GridSearchCV(outer, grid, cv=2).fit(data.X, data.y)
        transformed.append(outer.predict(data.X_new))
    assert_close(*transformed)
    plain, batched = found
    assert_close(plain["test_score"], batched["test_score"])
    for theirs, ours in zip(plain["estimator"], batched["estimator"], strict=True):
        assert_same_results(theirs[-1], ours[-1])


def test_search_that_is_not_fitted(data):
    with pytest.raises(NotFittedError):
        BatchedGridSearchCV(regressor(), GRID).predict(data.X)


@pytest.fixture
def bars(monkeypatch):
    """What every bar of a search has shown: members done, and the best scores."""
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


def test_progress(data, bars):
    """It moves with every program, and tells the best score as soon as it is known."""
    grid = {"hidden_layer_sizes": [3, 4, 5], "tau": [-1.0, 0.5, 2.0]}
    search = BatchedGridSearchCV(
        regressor(), grid, cv=KFold(3), verbose=1, scoring="r2"
    )
    with quiet():
        search.fit(data.X, data.y)
    [(total, states)] = bars
    assert total == 3 * 3 * 3 and states.pop() == "closed"
    assert len({n for n, _ in states}) > 3
    assert [n for n, _ in states] == sorted(n for n, _ in states)
    assert states[-1] == (total, f"best score {search.best_score_:.4g}")
    # A candidate that failed is not the best.
    assert not any("nan" in best for _, best in states)
    assert states[0][1] == "" and "best score" in states[-4][1]


def test_progress_of_several_metrics(data, bars):
    metrics = ["r2", "neg_max_error"]
    search = BatchedGridSearchCV(
        regressor(), GRID, cv=3, verbose=1, scoring=metrics, refit=False
    )
    search.fit(data.X, data.y)
    [(_, states)] = bars
    best = {name: search.cv_results_[f"mean_test_{name}"].max() for name in metrics}
    for name, score in best.items():
        assert f"{name} {score:.4g}" in states[-2][1]
    BatchedGridSearchCV(regressor(), {"tau": [0.5]}, cv=3).fit(data.X, data.y)
    assert len(bars) == 1


def test_time_left_of_a_search(monkeypatch):
    """From the mean speed since the start: members of a program end at once."""
    tqdm = pytest.importorskip("tqdm.std")
    now = 100.0
    monkeypatch.setattr(tqdm, "time", lambda: now)
    with _progress.SearchProgress(n_members=10, n_folds=5) as progress:
        for seconds, n_done, left in [(6, 2, "00:06<00:24"), (2, 4, "00:08<00:12")]:
            now += seconds
            folds = range(n_done - 2, n_done)
            progress.add({("one", fold): Outcome(scores=[1.0]) for fold in folds})
            assert f"{n_done}/10 [{left}" in str(progress._bar)


@pytest.mark.parametrize("verbose", [0, 1, 2, 3, 10])
def test_messages_are_those_of_scikit_learn(data, capsys, verbose):
    """But for their times."""
    pytest.importorskip("tqdm")
    told = []
    for kind in (GridSearchCV, BatchedGridSearchCV):
        search = kind(regressor(), {"tau": [0.5, 2.0]}, cv=2, verbose=verbose)
        search.fit(data.X, data.y)
        out, err = capsys.readouterr()
        told.append(re.sub(r"\.+|total time=.*", "", out))
    assert told[0] == told[1]
    assert bool(err) == (verbose > 0)


# ---- scikit-learn's callbacks (scikit-learn >= 1.9)


class Recorder:
    """What a callback is told, with the numbers of the tasks."""

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


class Propagated(Recorder):
    """The same, of the estimators inside as well."""

    max_propagation_depth = None


def told_of(place, recorder, estimator, grid, X, y, kind, **options):
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
    """Setup, tasks and teardown are those of scikit-learn's search, in its order."""
    options = {} if kind is BatchedGridSearchCV else {"n_iter": 2, "random_state": 0}
    plain, batched = (
        told_of(place, Recorder(), regressor(), GRID, data.X, data.y, k, **options)
        for k in (PLAIN[kind], kind)
    )
    assert plain == batched
    assert "setup" in {hook for hook, *_ in plain}


def test_propagated_callbacks(data):
    """And they see the epochs of the networks."""
    plain, batched = (
        told_of("search", Propagated(), regressor(), GRID, data.X, data.y, kind)
        for kind in (GridSearchCV, BatchedGridSearchCV)
    )
    assert plain == batched
    assert any(tasks[-1][1] == "epoch" for _, _, tasks in plain)


@pytest.mark.parametrize("place", ["search", "estimator", "network"])
def test_callbacks_with_a_pipeline(data, place):
    """The steps before the network, fitted once per fold, are left out."""
    pipeline = make_pipeline(StandardScaler(), regressor())
    grid = {"mcdropoutregressor__tau": [0.5, 2.0]}
    plain, batched = (
        told_of(
            place,
            Propagated() if place == "search" else Recorder(),
            pipeline,
            grid,
            data.X,
            data.y,
            kind,
            refit=False,
        )
        for kind in (GridSearchCV, BatchedGridSearchCV)
    )

    def of_others(events):
        # The number of the last step's task among its siblings depends on them.
        return [
            (hook, name, [task[:2] for task in tasks])
            for hook, name, tasks in events
            if not {"fit-transform-standardscaler", "StandardScaler"}
            & {word for task in tasks for word in task[:2]}
        ]

    assert of_others(plain) == of_others(batched)
    assert len(batched) > 6


def test_callbacks_after_early_stopping(data):
    """As many epochs as there were."""
    plain, batched = (
        told_of(
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
        told_of(
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
def test_a_candidate_of_an_unknown_device_fails_alone(data):
    grid = {"device": ["cpu", "bogus"]}
    scores = [
        kind(regressor(), grid, cv=3).fit(data.X, data.y).cv_results_["mean_test_score"]
        for kind in (GridSearchCV, BatchedGridSearchCV)
    ]
    np.testing.assert_array_equal(np.isnan(scores), [[False, True]] * 2)


def test_a_fold_without_training_rows(data):
    """As of scikit-learn: it cannot be fitted, and the error says why."""
    folds = [(np.arange(0), np.arange(47))]
    search = BatchedGridSearchCV(regressor(), GRID, cv=folds)
    with pytest.raises(ValueError, match=r"fits failed[\s\S]*0 sample\(s\)"):
        search.fit(data.X, data.y)
