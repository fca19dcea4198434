"""Scorers, refits and failures of batched searches."""

import warnings

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import (
    GridSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    scoring,
)
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from tests.helpers.comparison import (
    PLAIN,
    assert_same_results,
    classifier,
    fit_both,
    regressor,
)
from tests.helpers.searches import GRID


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
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(regressor(), bad, cv=3, error_score="raise")
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
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(regressor(), grid, cv=2)
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
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(regressor(), grids, cv=3, error_score=error_score)
        with pytest.raises(ValueError, match="Invalid parameter 'tua'"):
            search.fit(data.X, data.y)


@pytest.mark.parametrize(
    ("search_class", "options"),
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
def test_invalid_options_raise_the_same_errors(data, search_class, options):
    errors = []
    for each_class in (PLAIN[search_class], search_class):
        search = each_class(regressor(), GRID)
        with pytest.raises((TypeError, ValueError)) as caught:
            search.set_params(**options).fit(data.X, data.y)
        # InvalidParameterError names the class.
        errors.append((caught.type, str(caught.value).replace("Batched", "")))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    "search_class", [BatchedGridSearchCV, BatchedRandomizedSearchCV]
)
def test_other_estimators_are_refused(data, search_class):
    inside = TransformedTargetRegressor(regressor(), transformer=StandardScaler())
    for estimator in (Ridge(), inside, make_pipeline(StandardScaler(), Ridge())):
        name = "Transformed" if estimator is inside else "Ridge"
        with pytest.raises(
            TypeError, match=rf"got {name}.*model_selection.GridSearchCV"
        ):
            search_class(estimator, {}).fit(data.X, data.y)


@pytest.mark.parametrize("budget", [0, -1.0, np.nan])
def test_memory_budget_must_be_positive(data, budget):
    search = BatchedGridSearchCV(regressor(), GRID, memory_budget=budget)
    with pytest.raises(ValueError, match=r"`memory_budget` must be .* > 0; got"):
        search.fit(data.X, data.y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores:UserWarning")
def test_candidate_with_an_unknown_device_fails_alone(data):
    grid = {"device": ["cpu", "bogus"]}
    scores = [
        search_class(regressor(), grid, cv=3)
        .fit(data.X, data.y)
        .cv_results_["mean_test_score"]
        for search_class in (GridSearchCV, BatchedGridSearchCV)
    ]
    np.testing.assert_array_equal(np.isnan(scores), [[False, True]] * 2)


def test_fold_without_training_rows_raises(data):
    """As in scikit-learn, the error contains the reason."""
    folds = [(np.arange(0), np.arange(47))]
    search = BatchedGridSearchCV(regressor(), GRID, cv=folds)
    with pytest.raises(ValueError, match=r"fits failed[\s\S]*0 sample\(s\)"):
        search.fit(data.X, data.y)
