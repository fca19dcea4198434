"""Programs on the backends of joblib: threads, processes, a Dask and a Ray cluster."""

import random
import threading
import warnings

import joblib
import numpy as np
import pytest
import torch
from joblib.externals.loky import get_reusable_executor
from joblib.parallel import ThreadingBackend
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.parallel import Parallel

from skbayesnn._batch import executor
from skbayesnn._engine.compiled import ENGINE_VARIABLE
from skbayesnn.estimators import _workers
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.scoring import log_density_scorer
from tests.helpers.comparison import assert_same_results, quiet, regressor

GRID = {
    "mcdropoutregressor__hidden_layer_sizes": [3, 4],
    "mcdropoutregressor__tau": [0.5, 2.0],
    "standardscaler__with_mean": [True, False],
}
# Three folds of 47 rows have two sizes: two networks give four programs.
N_PROGRAMS = 4


def assert_same_on(backend, data, n_jobs=None, **options):
    """The results equal scikit-learn's search without a backend."""
    estimator = make_pipeline(StandardScaler(), regressor(standardize=False))
    plain = GridSearchCV(estimator, GRID, cv=3).fit(data.X, data.y)
    search = BatchedGridSearchCV(estimator, GRID, cv=3, n_jobs=n_jobs)
    with joblib.parallel_config(backend=backend, **options):
        search.fit(data.X, data.y)
    assert_same_results(plain, search)
    assert (search.cv_results_["mean_fit_time"] > 0).all()
    # Some backends return read-only arrays; the best network can be trained further.
    best = search.best_estimator_[-1]
    with quiet():
        best.partial_fit(data.X, data.y)
        best.set_params(warm_start=True).fit(data.X, data.y)


@pytest.mark.parametrize("options", [{"n_jobs": 2}, {"n_jobs": -1}, {}], ids=repr)
def test_number_of_jobs(data, options):
    """As a parameter of the search, or of the context around it."""
    estimator = make_pipeline(StandardScaler(), regressor(standardize=False))
    plain = GridSearchCV(estimator, GRID, cv=3).fit(data.X, data.y)
    search = BatchedGridSearchCV(estimator, GRID, cv=3, **options).fit(data.X, data.y)
    assert_same_results(plain, search)
    with joblib.parallel_config(**options):
        search.fit(data.X, data.y)
    assert_same_results(plain, search)


@pytest.mark.parametrize(
    ("n_jobs", "context", "expected"),
    [(None, {}, 3), (1, {}, 1), (2, {}, 2), (None, {"n_jobs": 2}, 2)],
    ids=["torch's own", "one", "two", "the context's"],
)
def test_n_jobs_is_the_number_of_threads_in_one_process(
    data, monkeypatch, n_jobs, context, expected
):
    """Programs are trained in turn, each with all threads."""
    threads = []
    train_group = executor.train_group

    def train(*arguments):
        threads.append((torch.get_num_threads(), threading.current_thread().name))
        return train_group(*arguments)

    monkeypatch.setattr(executor, "train_group", train)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with joblib.parallel_config(**context):
            search = BatchedGridSearchCV(regressor(), {"tau": [0.5, 2.0]}, cv=3)
            search.set_params(n_jobs=n_jobs).fit(data.X, data.y)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    # Three folds of 47 rows are of two sizes.
    assert threads == [(expected, threading.current_thread().name)] * 2


@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_one_process(data, backend):
    assert_same_on(backend, data, n_jobs=2)
    if backend == "threading":
        with joblib.parallel_config(backend=backend, n_jobs=2):
            assert_same_on(backend, data)


def test_backend_that_returns_all_results_at_the_end(data, monkeypatch):
    """Such as Ray and multiprocessing."""

    class AllAtOnce(ThreadingBackend):
        supports_return_generator = False

    monkeypatch.setitem(joblib.parallel.BACKENDS, "all_at_once", AllAtOnce)
    assert_same_on("all_at_once", data, n_jobs=2)


def test_a_killed_process_of_joblib(monkeypatch):
    """The error contains a reason and what to do."""

    class TerminatedWorkerError(Exception):
        """The name of the exception that joblib raises."""

    class Killed(Parallel):
        def __call__(self, calls):
            yield from super().__call__(list(calls)[:2])
            raise TerminatedWorkerError

    monkeypatch.setattr(_workers, "Parallel", Killed)
    results = _workers.results_of(_workers.workers(), [(pow, i, 2) for i in range(7)])
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(RuntimeError, match=r"`n_jobs` was killed.*Lower `n_jobs`"):
        next(results)


def test_exception_of_a_call_is_raised_at_once():
    results = _workers.results_of(_workers.workers(), [(pow, 0, -i) for i in range(3)])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.slow
def test_processes(data):
    try:
        for n_jobs in (None, 2):
            with joblib.parallel_config(n_jobs=2):
                assert_same_on("loky", data, n_jobs=n_jobs)
        assert_scores_come_from_processes(data)
    finally:
        get_reusable_executor().shutdown(wait=True)


def assert_scores_come_from_processes(data):
    """scikit-learn's search, with a scorer of the package."""
    search = GridSearchCV(
        regressor(), {"tau": [0.1, 1.0]}, scoring=log_density_scorer, cv=3, n_jobs=2
    ).fit(data.X, data.y)
    expected = clone(search).set_params(n_jobs=None).fit(data.X, data.y)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
    )


@pytest.fixture
def python_generator_restored():
    """Restore Python's random generator, from which clusters draw."""
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.slow
def test_dask(data, python_generator_restored, monkeypatch):
    """Both processes of the cluster train."""
    monkeypatch.setenv(ENGINE_VARIABLE, "torch")  # which need not be compiled
    distributed = pytest.importorskip(
        "distributed", reason="a Dask cluster needs distributed (in the extra `test`)"
    )
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for n_jobs in (None, 2):
            with distributed.get_task_stream(client) as tasks:
                assert_same_on("dask", data, n_jobs=n_jobs)
            assert len(tasks.data) == N_PROGRAMS
            assert len({task["worker"] for task in tasks.data}) == 2
        assert_same_members(data)


def assert_same_members(data):
    """The networks of one ensemble are trained by two workers."""
    ensemble = regressor(n_estimators=3)
    alone = clone(ensemble).fit(data.X, data.y)
    with joblib.parallel_config("dask"):
        ensemble.fit(data.X, data.y)
    assert (alone.n_processes_, ensemble.n_processes_) == (1, 2)
    np.testing.assert_allclose(ensemble.predict(data.X), alone.predict(data.X))


@pytest.mark.slow
def test_ray(data, python_generator_restored):
    """ray runs the searches with two workers."""
    ray = pytest.importorskip(
        "ray", reason="Ray is in no extra: `pip install ray` to test with it"
    )
    from ray.util.joblib import register_ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own.
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        register_ray()
    try:
        for n_jobs in (None, 2):
            assert_same_on("ray", data, n_jobs=n_jobs)
    finally:
        ray.shutdown()
