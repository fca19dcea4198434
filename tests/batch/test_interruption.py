"""Searches that continue after Ctrl-C or an error."""

import gc
import pickle
import signal
import warnings
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skbayesnn import MCDropoutRegressor, predict_interval
from skbayesnn._batch import executor
from skbayesnn._batch.outcomes import Fingerprint
from skbayesnn._data.validation import Table
from skbayesnn.estimators import _fit
from skbayesnn.estimators._job import TrainingJob
from skbayesnn.model_selection import BatchedGridSearchCV, BatchedRandomizedSearchCV
from tests.helpers.comparison import (
    PLAIN,
    assert_close,
    assert_same_results,
    quiet,
    regressor,
)

# Three programs of six members; all folds have 30 training rows.
GRID = {"hidden_layer_sizes": [3, 4, 5], "tau": [0.5, 2.0]}
FOLDS = ShuffleSplit(3, train_size=30, random_state=0)


@pytest.fixture
def interrupt(monkeypatch):
    """A function that makes the programs after the first n raise an exception."""
    train_group = executor.train_group

    def after(n_programs, error=KeyboardInterrupt):
        trained = []

        def train(group, *arguments):
            if len(trained) == n_programs:
                raise error
            trained.append(len(group))
            return train_group(group, *arguments)

        monkeypatch.setattr(executor, "train_group", train)
        return trained

    return after


def new_search(search_class=BatchedGridSearchCV, **options):
    return search_class(regressor(), GRID, cv=FOLDS, **options)


@pytest.fixture(scope="module")
def plain(data):
    """scikit-learn's search over the same candidates; tests do not change it."""
    return GridSearchCV(regressor(), GRID, cv=FOLDS).fit(data.X, data.y)


def fit_interrupted(search, X, y):
    """Fit, and ignore the interruption or the warning of it."""
    with suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search was interrupted")
        search.fit(X, y)
    return search


@pytest.mark.parametrize("n_programs", [1, 2])
def test_finished_candidates_are_kept(data, plain, interrupt, n_programs):
    """``cv_results_`` contains a part of the candidates, with a warning."""
    interrupt(n_programs)
    search = new_search()
    with warnings.catch_warnings(record=True) as caught, suppress(KeyboardInterrupt):
        warnings.simplefilter("always")
        search.fit(data.X, data.y)
    messages = [str(w.message) for w in caught if w.category is ConvergenceWarning]
    assert len(messages) == 1
    assert f"`cv_results_` contains {2 * n_programs} of 6 candidates" in messages[0]
    whole = plain.cv_results_
    results = search.cv_results_
    assert len(results["params"]) == 2 * n_programs
    assert set(results) == set(whole)
    for i, candidate in enumerate(results["params"]):
        j = whole["params"].index(candidate)
        for fold in range(3):
            name = f"split{fold}_test_score"
            assert_close(whole[name][j], results[name][i])
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize("n_programs", [0, 1, 2])
def test_search_continues(data, plain, interrupt, n_programs):
    """No member is trained twice, and the result equals an uninterrupted search."""
    first = interrupt(n_programs)
    search = fit_interrupted(new_search(), data.X, data.y)
    second = interrupt(None)
    search.fit(data.X, data.y)
    assert first == [6] * n_programs and second == [6] * (3 - n_programs)
    assert_same_results(plain, search)
    # Kept results are used once: another fit trains everything.
    third = interrupt(None)
    search.fit(data.X, data.y)
    assert third == [6] * 3


def test_interrupted_twice(data, plain, interrupt):
    search = new_search()
    for _ in range(2):
        interrupt(1)
        fit_interrupted(search, data.X, data.y)
    last = interrupt(None)
    search.fit(data.X, data.y)
    assert last == [6]
    assert_same_results(plain, search)


@pytest.mark.parametrize(
    "change",
    ["X", "y", "weights", "estimator", "folds", "scorer", "train", "nothing else"],
)
def test_changed_search_starts_again(data, interrupt, change):
    interrupt(2)
    search = fit_interrupted(new_search(scoring="r2"), data.X, data.y)
    trained = interrupt(None)
    X, y, fit = data.X, data.y, {}
    if change == "X":
        X = X + 1e-9
    elif change == "y":
        y = -y
    elif change == "weights":
        fit = {"sample_weight": data.weights}
    elif change == "estimator":
        search.set_params(estimator__max_iter=5)
    elif change == "folds":
        search.set_params(cv=ShuffleSplit(3, train_size=30, random_state=1))
    elif change == "scorer":
        search.set_params(scoring="neg_mean_absolute_error")
    elif change == "train":
        search.set_params(return_train_score=True)
    else:
        X, y = X.copy(), y.copy()
        search.set_params(refit=False, error_score="raise", n_jobs=1)
    search.fit(X, y, **fit)
    assert trained == ([6] if change == "nothing else" else [6] * 3)
    options = search.get_params(deep=False)
    for name in ("memory_budget", "time_limit", "verbose"):
        del options[name]
    assert_same_results(GridSearchCV(**options).fit(X, y, **fit), search)


def test_changed_candidates_reuse_finished_ones(data, interrupt):
    """If everything else is the same."""
    interrupt(2)
    search = fit_interrupted(new_search(), data.X, data.y)
    trained = interrupt(None)
    search.set_params(param_grid=GRID | {"tau": [0.5, 1.0]}).fit(data.X, data.y)
    assert sum(trained) == 3 * (2 + 2)


@pytest.mark.parametrize(("n_scored", "n_finished"), [(3, 0), (6, 2), (9, 2), (17, 5)])
def test_interruption_while_scoring(data, plain, interrupt, n_scored, n_finished):
    """Members are trained and scored once, and ``cv_results_`` has whole candidates."""
    scored = []

    def scorer(estimator, X, y):
        if len(scored) == n_scored:
            raise KeyboardInterrupt
        scored.append(estimator.get_params())
        return estimator.score(X, y)

    first = interrupt(None)
    search = fit_interrupted(new_search(scoring=scorer), data.X, data.y)
    if n_finished:
        assert len(search.cv_results_["params"]) == n_finished
        assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    else:
        assert not hasattr(search, "cv_results_")
    n_scored = -1
    second = interrupt(None)
    search.fit(data.X, data.y)
    assert first + second == [6] * 3 and len(scored) == 6 * 3
    name = "mean_test_score"
    assert_close(plain.cv_results_[name], search.cv_results_[name])


@pytest.fixture
def sigint():
    """Python's handler, even if the parent process ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.SIGINT
    signal.signal(signal.SIGINT, before)


def test_interruption_by_a_signal(data, plain, monkeypatch, sigint):
    """While a program trains."""
    train_group, begun = executor.train_group, []

    def train(*arguments):
        begun.append(True)
        if len(begun) == 3:
            signal.raise_signal(sigint)
        return train_group(*arguments)

    monkeypatch.setattr(executor, "train_group", train)
    search = fit_interrupted(new_search(n_jobs=2), data.X, data.y)
    assert len(begun) >= 3
    assert not hasattr(search, "best_estimator_")
    assert_same_results(plain, search.fit(data.X, data.y))


@pytest.mark.parametrize("warm_start", [False, True])
def test_interruption_of_an_epoch(data, monkeypatch, warm_start):
    """The search is interrupted, even if a single fit would keep its epochs."""
    bars = []

    @contextmanager
    def interrupted(*arguments):
        def report(epoch):
            bars.append(epoch)
            if len(bars) == 2:
                raise KeyboardInterrupt

        yield report

    monkeypatch.setattr(_fit, "epochs_reported", interrupted)
    search = new_search().set_params(estimator__warm_start=warm_start)
    with pytest.raises(KeyboardInterrupt):
        search.fit(data.X, data.y)
    assert len(bars) == 2  # the compiled loop may report several epochs at once


def test_interruption_of_the_refit(data, plain, interrupt, monkeypatch):
    """The next fit only repeats the refit."""

    def fail(self, X, y, **arguments):
        raise KeyboardInterrupt

    search = new_search()
    first = interrupt(None)
    with monkeypatch.context() as patch:
        patch.setattr(MCDropoutRegressor, "fit", fail)
        with pytest.raises(KeyboardInterrupt):
            search.fit(data.X, data.y)
    second = interrupt(None)
    search.fit(data.X, data.y)
    assert first == [6] * 3 and second == []
    assert_same_results(plain, search)


@pytest.mark.parametrize("error", [SystemExit, MemoryError, RuntimeError])
def test_other_exceptions_keep_finished_members(data, plain, interrupt, error):
    """Such as a killed worker; also if it happens twice."""
    search = new_search()
    done = []
    for _ in range(2):
        done.append(interrupt(1, error))
        with pytest.raises(error):
            search.fit(data.X, data.y)
        assert not hasattr(search, "cv_results_")
    last = interrupt(None)
    assert_same_results(plain, search.fit(data.X, data.y))
    assert done == [[6], [6]] and last == [6]


def test_failed_members_are_tried_again_after_an_exception(data, plain, interrupt):
    """They may have lacked memory; trained members are kept."""
    failing = [True]

    def scorer(estimator, X, y):
        if failing[0] and estimator.tau == 2.0:
            raise ValueError("no score")
        return estimator.score(X, y)

    search = new_search(scoring=scorer, error_score="raise")
    first = interrupt(None)
    with pytest.raises(ValueError, match="no score"):
        search.fit(data.X, data.y)
    failing[0] = False
    second = interrupt(None)
    search.fit(data.X, data.y)
    assert first == [6] * 3 and second == [3] * 3
    name = "mean_test_score"
    assert_close(plain.cv_results_[name], search.cv_results_[name])


def test_interrupted_search_drops_an_earlier_fit(data, interrupt):
    """It does not predict with the model of another fit."""
    search = new_search().fit(data.X, data.y)
    interrupt(1)
    fit_interrupted(search, data.X, data.y + 100)
    with pytest.raises((NotFittedError, AttributeError)):
        search.predict(data.X_new)
    with pytest.raises((NotFittedError, TypeError)):
        predict_interval(search, data.X_new)


def test_parameters_that_cannot_be_hashed(data, interrupt):
    """They are compared by identity."""

    def grid():
        functions = [lambda X: X**2, lambda X: np.tanh(X)]
        return {
            "functiontransformer__func": functions,
            "mcdropoutregressor__hidden_layer_sizes": [3, 4],
        }

    pipeline = make_pipeline(FunctionTransformer(), regressor())
    search = BatchedGridSearchCV(pipeline, grid(), cv=FOLDS)
    for new_grid, n_trained in ({}, 6), ({"param_grid": grid()}, 12):
        interrupt(1)
        fit_interrupted(search, data.X, data.y)
        trained = interrupt(None)
        search.set_params(**new_grid).fit(data.X, data.y)
        assert sum(trained) == n_trained
        plain = GridSearchCV(pipeline, search.param_grid, cv=FOLDS)
        assert_same_results(plain.fit(data.X, data.y), search)


def test_fingerprint_of_values_that_cannot_be_pickled():
    """Copies are equal; another function, or a changed nested parameter, is not."""

    def values(function, max_iter=3):
        pipeline = make_pipeline(
            FunctionTransformer(function), regressor(max_iter=max_iter)
        )
        return [("name", pipeline, {"tau": [1.0, 2.0]})], np.arange(5)

    def square(X):
        return X**2

    fingerprint = Fingerprint.from_values(*values(square))
    assert fingerprint == Fingerprint.from_values(*values(square))
    assert fingerprint != Fingerprint.from_values(*values(lambda X: X**2))
    assert fingerprint != Fingerprint.from_values(*values(square, max_iter=4))
    assert square in fingerprint.by_identity


def test_changed_estimator_that_cannot_be_hashed(data, interrupt):
    """Its parts are compared, since ``set_params`` changes the estimator in place."""
    pipeline = make_pipeline(FunctionTransformer(lambda X: X**2), regressor())
    grid = {"mcdropoutregressor__hidden_layer_sizes": [3, 4]}
    search = BatchedGridSearchCV(pipeline, grid, cv=FOLDS)
    last_step = "estimator__mcdropoutregressor__max_iter"
    for changes, n_trained in ({}, 3), ({last_step: 3}, 6):
        interrupt(1)
        fit_interrupted(search, data.X, data.y)
        trained = interrupt(None)
        search.set_params(**changes).fit(data.X, data.y)
        assert sum(trained) == n_trained
        plain = GridSearchCV(search.estimator, grid, cv=FOLDS)
        assert_same_results(plain.fit(data.X, data.y), search)


def test_interrupted_search_is_pickled(data, plain, interrupt):
    interrupt(2)
    search = fit_interrupted(new_search(), data.X, data.y)
    trained = interrupt(None)
    restored = pickle.loads(pickle.dumps(search)).fit(data.X, data.y)
    assert trained == [6]
    assert_same_results(plain, restored)


def test_randomized_search(data, interrupt):
    search_class = BatchedRandomizedSearchCV
    options = {"n_iter": 4, "random_state": 0}
    search = new_search(search_class, **options)
    first = interrupt(1)
    fit_interrupted(search, data.X, data.y)
    second = interrupt(None)
    search.fit(data.X, data.y)
    assert sum(first) + sum(second) == 4 * 3
    plain = PLAIN[search_class](regressor(), GRID, cv=FOLDS, **options)
    assert_same_results(plain.fit(data.X, data.y), search)


@pytest.fixture
def only_new_objects():
    """Speed up the garbage collector: it ignores objects created before the test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_memory_does_not_grow_with_the_candidates(
    data, monkeypatch, only_new_objects, n_jobs
):
    """Networks, tables and steps of finished candidates are freed."""
    monkeypatch.setattr(executor, "MEMBERS_AT_ONCE", 6)
    counted = {MCDropoutRegressor, Table, PCA, TrainingJob}

    def most_alive(n_settings):
        scored, most = [], []

        def scorer(estimator, X, y):
            scored.append(True)
            if len(scored) % 6 == 0:
                gc.collect()
                most.append(sum(type(o) in counted for o in gc.get_objects()))
            return 0.0

        pipeline = make_pipeline(PCA(), regressor(random_state=None))
        grid = [
            # Different settings of the steps before, failures, and different rows.
            {
                "pca__random_state": [i],
                "mcdropoutregressor__tau": [1.0, -1.0],
                "mcdropoutregressor__early_stopping": [True],
                "mcdropoutregressor__batch_size": [i],
                "mcdropoutregressor__dropout": [0.1, 0.2],
            }
            for i in range(8, 8 + n_settings)
        ]
        search = BatchedGridSearchCV(
            pipeline, grid, cv=FOLDS, scoring=scorer, refit=False, n_jobs=n_jobs
        )
        with quiet():
            search.fit(data.X, data.y)
        assert max(most) > 0
        return max(most)

    few, many = most_alive(4), most_alive(8)
    # With two workers, the number of objects alive varies by at most the objects that
    # the second worker holds.
    assert many <= few + (12 if n_jobs else 0)
