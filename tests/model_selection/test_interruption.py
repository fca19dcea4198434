"""Ctrl-C keeps what is done, and a further fit goes on from there."""

import pickle
import warnings
from contextlib import suppress

import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from skbayesnn import MCDropoutRegressor, predict_interval
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
    plan,
)
from tests.model_selection.comparison import (
    PLAIN,
    assert_close,
    assert_same_results,
    regressor,
)

# Three programs of six members; all folds have 30 training rows.
GRID = {"hidden_layer_sizes": [3, 4, 5], "tau": [0.5, 2.0]}
FOLDS = ShuffleSplit(3, train_size=30, random_state=0)


@pytest.fixture
def interrupt(monkeypatch):
    """A function: the programs after the first n raise KeyboardInterrupt."""
    train_group = plan.train_group

    def after(n_programs):
        trained = []

        def train(jobs, device=None):
            if len(trained) == n_programs:
                raise KeyboardInterrupt
            trained.append(len(jobs))
            return train_group(jobs, device)

        monkeypatch.setattr(plan, "train_group", train)
        return trained

    return after


def new_search(kind=BatchedGridSearchCV, **options):
    return kind(regressor(), GRID, cv=FOLDS, **options)


def plain(data):
    return GridSearchCV(regressor(), GRID, cv=FOLDS).fit(data.X, data.y)


def fit_interrupted(search, X, y):
    """Fit, with the interruption told of or passed through."""
    with suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search was interrupted")
        search.fit(X, y)
    return search


@pytest.mark.parametrize("n_programs", [1, 2])
def test_finished_candidates_are_kept(data, interrupt, n_programs):
    """``cv_results_`` is a part of the table, and that is said."""
    interrupt(n_programs)
    search = new_search()
    with warnings.catch_warnings(record=True) as caught, suppress(KeyboardInterrupt):
        warnings.simplefilter("always")
        search.fit(data.X, data.y)
    told = [str(w.message) for w in caught if w.category is ConvergenceWarning]
    assert len(told) == 1
    assert f"`cv_results_` has {2 * n_programs} of 6 candidates" in told[0]
    whole = plain(data).cv_results_
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
def test_goes_on_from_there(data, interrupt, n_programs):
    """Nothing is trained twice, and the result is that of an unbroken search."""
    first = interrupt(n_programs)
    search = fit_interrupted(new_search(), data.X, data.y)
    second = interrupt(None)
    search.fit(data.X, data.y)
    assert first == [6] * n_programs and second == [6] * (3 - n_programs)
    assert_same_results(plain(data), search)
    # What was kept is used once: a further fit is a fit like any other.
    third = interrupt(None)
    search.fit(data.X, data.y)
    assert third == [6] * 3


def test_interrupted_twice(data, interrupt):
    search = new_search()
    for _ in range(2):
        interrupt(1)
        fit_interrupted(search, data.X, data.y)
    last = interrupt(None)
    search.fit(data.X, data.y)
    assert last == [6]
    assert_same_results(plain(data), search)


@pytest.mark.parametrize(
    "change", ["X", "y", "weights", "estimator", "folds", "nothing else"]
)
def test_other_data_are_begun_anew(data, interrupt, change):
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
    else:
        X, y = X.copy(), y.copy()
        search.set_params(refit=False, return_train_score=True, n_jobs=1)
    search.fit(X, y, **fit)
    assert trained == ([6] if change == "nothing else" else [6] * 3)
    options = search.get_params(deep=False)
    del options["memory_budget"], options["devices"]
    assert_same_results(GridSearchCV(**options).fit(X, y, **fit), search)


def test_other_candidates_use_what_is_known(data, interrupt):
    """As long as the rest is the same."""
    interrupt(2)
    search = fit_interrupted(new_search(), data.X, data.y)
    trained = interrupt(None)
    search.set_params(param_grid=GRID | {"tau": [0.5, 1.0]}).fit(data.X, data.y)
    assert sum(trained) == 3 * (2 + 2)


def test_interruption_of_the_scoring(data, interrupt):
    """Trained members are kept."""
    calls = []

    def scorer(estimator, X, y):
        calls.append(estimator)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return estimator.score(X, y)

    first = interrupt(None)
    search = new_search(scoring=scorer)
    with pytest.raises(KeyboardInterrupt):
        search.fit(data.X, data.y)
    second = interrupt(None)
    search.fit(data.X, data.y)
    assert first == [6] * 3 and second == []
    name = "mean_test_score"
    assert_close(plain(data).cv_results_[name], search.cv_results_[name])


def test_interruption_of_the_refit(data, interrupt, monkeypatch):
    """The search itself is not done again."""

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
    assert_same_results(plain(data), search)


def test_nothing_is_left_of_an_earlier_fit(data, interrupt):
    """An interrupted search does not predict with the model of another one."""
    search = new_search().fit(data.X, data.y)
    interrupt(1)
    fit_interrupted(search, data.X, data.y + 100)
    with pytest.raises((NotFittedError, AttributeError)):
        search.predict(data.X_new)
    with pytest.raises((NotFittedError, TypeError)):
        predict_interval(search, data.X_new)


def test_pickled_in_between(data, interrupt):
    interrupt(2)
    search = fit_interrupted(new_search(), data.X, data.y)
    trained = interrupt(None)
    restored = pickle.loads(pickle.dumps(search)).fit(data.X, data.y)
    assert trained == [6]
    assert_same_results(plain(data), restored)


def test_randomised(data, interrupt):
    kind = BatchedRandomizedSearchCV
    options = {"n_iter": 4, "random_state": 0}
    search = new_search(kind, **options)
    first = interrupt(1)
    fit_interrupted(search, data.X, data.y)
    second = interrupt(None)
    search.fit(data.X, data.y)
    assert sum(first) + sum(second) == 4 * 3
    whole = PLAIN[kind](regressor(), GRID, cv=FOLDS, **options)
    assert_same_results(whole.fit(data.X, data.y), search)
