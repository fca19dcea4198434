"""Batched searches give the results of scikit-learn's searches."""

import pickle
import re
from inspect import signature

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import skbayesnn
from skbayesnn import (
    BBBClassifier,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
    crps,
)
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
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
from tests.helpers.searches import GRID, STOPPING

# The estimation of settings on held-out rows takes most of the time: a few cases do it.
FIXED = {"tau": 1.0, "length_scale": 1.0}
# Three folds of 47 rows are of two sizes.
REGRESSORS = {
    "bernoulli": (
        regressor(),
        [GRID, {"tau": [0.5], "length_scale": [0.1, "auto", [0.1, 0.3]]}],
    ),
    "gaussian noise": (regressor(noise="gaussian"), GRID),
    "dropconnect": (regressor(noise="dropconnect"), GRID),
    "additive noise": (regressor(noise="additive"), GRID),
    "learned dropout": (
        regressor(dropout="auto"),
        {"tau": ["auto", 1.0], "length_scale": [0.1, "auto"]},
    ),
    "learned and given": (
        regressor(),
        {"tau": ["auto", 0.3], "dropout": ["auto", 0.0, 0.1, [0.0, 0.1]]},
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
        regressor(tau=1.0),
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
        BBBRegressor(**SMALL, **FIXED, prior="scale_mixture", kl="sampled"),
        {"s1": [1.0, 2.0], "s2": [0.05, 0.1], "pi": [0.3, 0.6]},
    ),
    "variational dropout": (
        VariationalDropoutRegressor(**SMALL, **FIXED),
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
        classifier(length_scale=1.0),
        {"dtype": ["float64", "float32"], "dropout": [0.1, 0.3]},
    ),
    "early stopping": (
        classifier(**STOPPING, length_scale=1.0),
        {"random_state": [3, 4, 5], "dropout": [0.1, 0.3]},
    ),
    "scale mixture": (
        BBBClassifier(**SMALL, length_scale=1.0, prior="scale_mixture", kl="sampled"),
        {"s1": [1.0, 2.0], "s2": [0.05, 0.1]},
    ),
    "variational dropout": (
        VariationalDropoutClassifier(**SMALL, length_scale=1.0),
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


# ---- as an estimator


def test_predictive_functions_take_a_search(data):
    """And its best estimator is an ordinary one."""
    plain, batched = fit_both(regressor(), GRID, data.X, data.y)
    best = batched.best_estimator_
    assert type(best) is MCDropoutRegressor
    assert vars(best).keys() == vars(plain.best_estimator_).keys()
    assert best.get_params() == plain.best_estimator_.get_params()
    refitted = clone(best).fit(data.X, data.y)
    assert_close(refitted.predict(data.X_new), best.predict(data.X_new))
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
    plain, batched = fit_both(classifier(), GRID, data.X, data.labels)
    np.testing.assert_array_equal(batched.predict(X), plain.predict(X))
    np.testing.assert_array_equal(batched.classes_, plain.classes_)
    assert_close(plain.predict_proba(X), batched.predict_proba(X))
    for kind in ("entropy", "mutual_information"):
        values = [skbayesnn.predict_uncertainty(s, X, kind) for s in (plain, batched)]
        assert_close(*values)
    assert sklearn.base.is_classifier(batched)


@pytest.mark.parametrize("search_class", PLAIN)
def test_predict_passes_parameters(data, search_class):
    """Also through a pipeline; scikit-learn's searches accept none."""
    pipeline = make_pipeline(StandardScaler(), regressor())
    for estimator, path in ((regressor(), ""), (pipeline, "mcdropoutregressor__")):
        options = {"n_iter": 2} if search_class is BatchedRandomizedSearchCV else {}
        search = search_class(estimator, {path + "tau": [0.5, 2.0]}, cv=2, **options)
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


def test_input_tags_equal_the_tags_of_the_estimator():
    """Missing values, text and categories are accepted."""
    accepted = get_tags(regressor()).input_tags
    assert accepted.allow_nan and accepted.string and accepted.categorical
    search = BatchedGridSearchCV(regressor(), GRID)
    assert get_tags(search).input_tags == accepted


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


@pytest.mark.parametrize(
    "search_class", [BatchedGridSearchCV, BatchedRandomizedSearchCV]
)
def test_parameters_equal_scikit_learn(search_class):
    search = search_class(regressor(), GRID, memory_budget=3.0, verbose=2)
    copied = clone(search)
    assert repr(copied.get_params()) == repr(search.get_params())
    copied.set_params(estimator__tau=7.0, memory_budget=None, cv=4)
    assert copied.estimator.tau == 7.0 and search.estimator.tau == "auto"
    expected = PLAIN[search_class](regressor(), GRID).get_params()
    actual = search_class(regressor(), GRID).get_params()
    assert actual.keys() - expected.keys() == {"memory_budget", "time_limit"}
    assert actual["verbose"] == "auto" and expected["verbose"] == 0
    for name in expected.keys() - {"estimator", "verbose"}:
        assert repr(actual[name]) == repr(expected[name]), name
    names = [list(signature(k).parameters) for k in (PLAIN[search_class], search_class)]
    assert names[1] == [*names[0], "memory_budget", "time_limit"]


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
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = make_pipeline(StandardScaler(), search_class(regressor(), GRID, cv=2))
        results.append(
            cross_validate(search, data.X, data.y, cv=3, return_estimator=True)
        )
        outer = TransformedTargetRegressor(
            search_class(regressor(), GRID, cv=2), transformer=StandardScaler()
        )
        grid = {"regressor__estimator__max_iter": [2, 3]}
        outer = GridSearchCV(outer, grid, cv=2).fit(data.X, data.y)
        transformed.append(outer.predict(data.X_new))
    assert_close(*transformed)
    plain, batched = results
    assert_close(plain["test_score"], batched["test_score"])
    for expected, actual in zip(plain["estimator"], batched["estimator"], strict=True):
        assert_same_results(expected[-1], actual[-1])


def printed_progress(search, data, capsys) -> list[str]:
    """Lines of the search itself, without their times."""
    with quiet():
        search.fit(data.X, data.y)
    lines = capsys.readouterr().out.splitlines()
    own = [line for line in lines if line.startswith("[Batched")]
    return [line.partition(" s: ")[2] for line in own]


def test_printed_progress(data, capsys):
    """A line for every program, with the best score when it is known."""
    grid = {"hidden_layer_sizes": [3, 4, 5], "tau": [-1.0, 0.5, 2.0]}
    search = BatchedGridSearchCV(
        regressor(), grid, cv=KFold(3), verbose=1, scoring="r2"
    )
    lines = printed_progress(search, data, capsys)
    counts = [int(re.match(r"(\d+) of 27 members trained", line)[1]) for line in lines]
    assert counts == sorted(counts) and len(set(counts)) > 3
    assert lines[-1].endswith(f"trained, best score {search.best_score_:.4g}")
    # A candidate that failed is not the best.
    assert not any("nan" in line for line in lines)
    assert "best score" in lines[-2] and "left" in lines[-2]


def test_printed_progress_of_several_metrics(data, capsys):
    metrics = ["r2", "neg_max_error"]
    search = BatchedGridSearchCV(
        regressor(), GRID, cv=3, verbose=1, scoring=metrics, refit=False
    )
    last = printed_progress(search, data, capsys)[-1]
    for name in metrics:
        score = search.cv_results_[f"mean_test_{name}"].max()
        assert f"{name} {score:.4g}" in last
    silent = BatchedGridSearchCV(regressor(), {"tau": [0.5]}, cv=3)
    assert printed_progress(silent, data, capsys) == []


@pytest.mark.parametrize("verbose", [0, 1, 2, 3, 10])
def test_verbose_output_equals_scikit_learn(data, capsys, verbose):
    """Except for times, and for the lines with the progress."""
    outputs = []
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(regressor(), {"tau": [0.5, 2.0]}, cv=2, verbose=verbose)
        search.fit(data.X, data.y)
        out, err = capsys.readouterr()
        out = re.sub(r"\[Batched.*\n", "", out)
        outputs.append(re.sub(r"\.+|total time=.*", "", out))
        assert err == ""
    assert outputs[0] == outputs[1]
