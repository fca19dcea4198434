"""Which members share a program, how much memory it takes, and on which device."""

import threading
import warnings
import weakref

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit

from skbayesnn._batch import executor
from skbayesnn._batch.jobs import FoldFit
from skbayesnn.estimators import _fit
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._training_data import training_data
from skbayesnn.model_selection import BatchedGridSearchCV
from tests.helpers.comparison import (
    SMALL,
    assert_same_results,
    classifier,
    regressor,
)

SHARED = {
    "tau": [0.5, 2.0],
    "dropout": [0.1, 0.2],
    "length_scale": [0.1, 0.3],
    "random_state": [3, 4],
}
# All folds have 30 training rows.
EQUAL = ShuffleSplit(3, train_size=30, random_state=0)


def batched_search(data, grid, **options):
    search = BatchedGridSearchCV(regressor(), grid, **{"refit": False} | options)
    return search.fit(data.X, data.y)


def plain_search(data, grid, **options):
    search = GridSearchCV(regressor(), grid, **{"refit": False} | options)
    return search.fit(data.X, data.y)


# ---- members of a program


def test_candidates_that_may_differ_share_a_program(data, programs):
    search = batched_search(data, SHARED, cv=EQUAL)
    assert sorted(programs) == [3 * 16]
    assert_same_results(plain_search(data, SHARED, cv=EQUAL), search)


@pytest.mark.parametrize(
    ("parameter", "n_programs"),
    [
        ({"hidden_layer_sizes": [3, 4, (3, 3)]}, 3),
        ({"max_iter": [2, 3]}, 2),
        ({"noise": ["bernoulli", "gaussian"]}, 2),
        ({"tau": ["auto", 1.0]}, 2),
        ({"dtype": ["float32", "float64"]}, 2),
        ({"likelihood": ["gaussian", "heteroscedastic"]}, 2),
        ({"n_draws": [2, 3]}, 1),
        ({"standardize": [True, False]}, 1),
        ({"n_estimators": [1, 2]}, 1),
    ],
    ids=repr,
)
def test_number_of_programs(data, programs, parameter, n_programs):
    batched_search(data, {"length_scale": [0.1, 0.2]} | parameter, cv=EQUAL)
    assert len(programs) == n_programs
    assert sum(programs) == 3 * 2 * len(next(iter(parameter.values())))


def test_folds_of_unequal_size(data, programs):
    """47 rows in four folds: three of 12, one of 11."""
    batched_search(data, {"tau": [0.5, 2.0]}, cv=KFold(4))
    assert sorted(programs) == [2, 6]


def test_candidates_that_fail_are_not_trained(data, programs):
    grid = {"tau": [-1.0, 0.5, 2.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batched_search(data, grid, cv=EQUAL)
    assert sorted(programs) == [2 * 3]


def test_equal_candidates_are_trained_once(data, programs):
    batched_search(data, {"tau": [0.5, 0.5, 2.0]}, cv=EQUAL)
    assert sorted(programs) == [2 * 3]


def test_members_are_in_the_order_of_their_tables(data):
    """Not in the order of memory addresses, which would change the last bits."""
    estimator = regressor()
    tables = [training_data(estimator, data.X, data.y) for _ in range(4)]
    tables.sort(key=lambda rows: id(rows.table), reverse=True)
    jobs = [training_job(estimator, rows) for rows in tables]
    fits = [FoldFit(("", i), estimator, estimator, job) for i, job in enumerate(jobs)]
    [group] = executor.group_into_programs(fits, 2**40)
    assert [fit.key for fit in group] == [fit.key for fit in fits]


# ---- memory


def test_memory_budget_splits_programs(data, programs):
    """Members that do not fit together are trained one after the other."""
    grid = {"tau": [0.5, 2.0], "dropout": [0.1, 0.2]}
    expected = plain_search(data, grid, cv=EQUAL)
    assert_same_results(
        expected, batched_search(data, grid, cv=EQUAL, memory_budget=1e-6)
    )
    assert sorted(programs) == [1] * 12
    programs.clear()
    assert_same_results(
        expected, batched_search(data, grid, cv=EQUAL, memory_budget=500)
    )
    assert sorted(programs) == [12]


def test_estimated_memory_is_large_enough(data):
    """It is at least the memory of weights and activations."""
    estimates = []
    for units, n_estimators in ((5, 1), (50, 1), (50, 3)):
        estimator = regressor(hidden_layer_sizes=units, n_estimators=n_estimators)
        prepared = training_data(estimator, data.X, data.y)
        task = training_job(estimator, prepared)
        job = FoldFit(("", 0), estimator, estimator, task)
        estimates.append(executor.estimate_bytes([job]))
        weights = n_estimators * 8 * (units * (4 + 1) + units + 1)
        activations = n_estimators * 8 * SMALL["batch_size"] * (4 + units + 1)
        # At least values, gradient and two moments of Adam.
        assert estimates[-1] > 4 * weights + activations
    assert estimates[0] < estimates[1] < estimates[2]


def test_estimated_memory_depends_on_the_dtype(data):
    """Of the training, whatever the dtype of X."""
    estimates = {}
    for dtype in ("float32", "float64"):
        estimator = regressor(dtype=dtype, hidden_layer_sizes=500)
        for X in (data.X, data.X.astype(np.float32)):
            prepared = training_data(estimator, X, data.y)
            task = training_job(estimator, prepared)
            job = FoldFit(("", 0), estimator, estimator, task)
            estimates.setdefault(dtype, set()).add(executor.estimate_bytes([job]))
    [single], [double] = estimates.values()
    assert 1.9 * single < double <= 2 * single


def fail_in_python():
    raise MemoryError("too much")


def fail_in_torch():
    torch.empty(2**60, dtype=torch.int8)


def fail_on_gpu():
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.fixture
def little_memory(monkeypatch):
    """A function that makes programs with more than n members fail."""
    train_together, tried = _fit.train_together, []

    def little(n_members, fail=fail_in_python):
        def train(estimators, *arguments):
            if len(estimators) > 1:
                tried.append(len(estimators))
            if len(estimators) > n_members:
                fail()
            return train_together(estimators, *arguments)

        monkeypatch.setattr(_fit, "train_together", train)
        return tried

    return little


@pytest.mark.parametrize("fail", [fail_in_python, fail_in_torch, fail_on_gpu])
def test_program_is_halved_if_out_of_memory(data, little_memory, fail):
    grid = {"tau": [0.5, 2.0], "dropout": [0.1, 0.2]}
    expected = plain_search(data, grid, cv=EQUAL)
    tried = little_memory(3, fail)
    with warnings.catch_warnings(record=True) as caught:
        # Python's default filter shows a warning with the same text and place once.
        warnings.simplefilter("default")
        search = batched_search(data, grid, cv=EQUAL)
    assert tried[:2] == [12, 6] and tried.count(3) == 4 and set(tried) == {12, 6, 3}
    messages = [str(w.message) for w in caught if "out of memory" in str(w.message)]
    assert len(messages) == 2
    for message, size in zip(messages, (12, 6), strict=True):
        assert f"{size} members" in message and "memory_budget" in message
    assert_same_results(expected, search)


def test_memory_of_a_failed_program_is_freed_before_its_halves_train(data, monkeypatch):
    """The traceback of the error would keep its tensors."""
    train_together, failed = _fit.train_together, []

    def train(estimators, *arguments):
        tensor = torch.zeros(3)
        if len(estimators) > 3:
            failed.append(weakref.ref(tensor))
            raise MemoryError
        alive.extend(reference() is not None for reference in failed)
        return train_together(estimators, *arguments)

    alive = []
    monkeypatch.setattr(_fit, "train_together", train)
    with pytest.warns(UserWarning, match="out of memory with 6 members"):
        batched_search(data, {"tau": [0.5, 2.0]}, cv=EQUAL)
    assert alive == [False, False]


def test_too_large_size_is_tried_once(data, little_memory):
    """Not once per program."""
    grid = {"tau": [0.5, 2.0], "hidden_layer_sizes": [3, 4, 5]}
    tried = little_memory(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batched_search(data, grid, cv=EQUAL)
    assert tried.count(6) == 1


def test_out_of_memory_with_one_member(data, little_memory):
    """The member counts as failed."""
    little_memory(0)
    with pytest.warns(UserWarning, match="out of memory with [23] members"):
        with pytest.raises(ValueError, match=r"All the 3 fits failed[\s\S]*too much"):
            batched_search(data, {"tau": [0.5]}, cv=EQUAL)
        with pytest.raises(MemoryError, match="too much"):
            batched_search(data, {"tau": [0.5]}, cv=EQUAL, error_score="raise")


@pytest.mark.parametrize("metrics", [1, 2])
def test_out_of_memory_while_scoring(data, programs, metrics):
    """Members that ran out of memory are trained again, in smaller programs."""
    scored = []

    def score(estimator, X, y):
        scored.append(estimator)
        largest = programs[-1]
        if largest > 3 and len(scored) % 2:
            fail_in_torch()
        return -estimator.tau

    scoring = score if metrics == 1 else {"score": score, "r2": "r2"}
    grid = {"tau": [0.5, 2.0], "dropout": [0.1, 0.2]}
    with pytest.warns(UserWarning, match="out of memory with 12 members"):
        search = batched_search(data, grid, cv=EQUAL, scoring=scoring)
    # Six of 12 members are left. They are halved, since 12 was too large.
    assert sorted(programs) == [3, 3, 12]
    np.testing.assert_array_equal(
        search.cv_results_["mean_test_score"],
        -search.cv_results_["param_tau"].data.astype(float),
    )


def test_out_of_memory_while_scoring_one_member(data):
    """Its score is NaN."""

    def score(estimator, X, y):
        if estimator.tau == 2.0:
            fail_in_python()
        return -estimator.tau

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = batched_search(data, {"tau": [0.5, 2.0]}, cv=EQUAL, scoring=score)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], [-0.5, np.nan])


def test_other_errors_are_not_out_of_memory(data, monkeypatch):
    tried = []

    def fail(estimators, *arguments):
        tried.append(len(estimators))
        raise RuntimeError("something else")

    monkeypatch.setattr(_fit, "train_together", fail)
    with pytest.raises(ValueError, match="something else"):
        batched_search(data, {"tau": [0.5, 2.0]}, cv=EQUAL)
    assert tried == [6]


# ---- devices and threads


def test_programs_with_two_jobs(data, programs):
    """As many programs as with one job; torch's number of threads is restored."""
    grid = {"hidden_layer_sizes": [3, 4], "tau": [0.5, 2.0]}
    n_threads = torch.get_num_threads()
    search = batched_search(data, grid, cv=EQUAL, n_jobs=2)
    assert torch.get_num_threads() == n_threads
    assert sorted(programs) == [6, 6]
    assert_same_results(plain_search(data, grid, cv=EQUAL), search)


@pytest.mark.cuda
def test_members_on_a_gpu(data):
    grid = {"tau": [0.5, 2.0], "hidden_layer_sizes": [3, 4]}
    batched = BatchedGridSearchCV(
        regressor(device="cuda"), grid, cv=EQUAL, refit=False
    ).fit(data.X, data.y)
    plain = GridSearchCV(regressor(device="cuda"), grid, cv=EQUAL, refit=False)
    assert_same_results(plain.fit(data.X, data.y), batched)


def test_searches_in_threads_are_independent(data):
    """Two searches of different kinds at the same time."""
    searches = {}

    def search(name, estimator, y):
        result = BatchedGridSearchCV(estimator, {"tau": [0.5, 2.0]}, cv=3)
        searches[name] = result.fit(data.X, y)

    threads = [
        threading.Thread(target=search, args=arguments)
        for arguments in (
            ("values", regressor(), data.y),
            ("labels", classifier(), data.labels),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, y in (("values", data.y), ("labels", data.labels)):
        plain = GridSearchCV(searches[name].estimator, {"tau": [0.5, 2.0]}, cv=3)
        assert_same_results(plain.fit(data.X, y), searches[name])
