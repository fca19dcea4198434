"""Several processes train what one process trains, up to rounding."""

import copy
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.base import clone

import skbayesnn
from skbayesnn import MCDropoutRegressor
from skbayesnn._batch import executor
from skbayesnn._batch.outcomes import Outcome
from skbayesnn._engine import processes, training
from skbayesnn._engine.processes import TIMEOUT_VARIABLE, ProcessError, Processes
from skbayesnn._persistence import functions
from skbayesnn.estimators import _continuation, _fit
from skbayesnn.model_selection import BatchedGridSearchCV
from tests.engine import launched
from tests.engine.test_compiled import ROUNDING, assert_same_training, exact

ROWS, INPUTS, TARGETS = 43, 5, 2


class ThreadsAsProcesses(Processes):
    """One of several threads that take the place of processes."""

    def __init__(self, shared, rank):
        self.rank, self.count, self._shared = rank, len(shared.values), shared

    def gather(self, value, after_separate_work=False):
        self._shared.values[self.rank] = value
        self._shared.barrier.wait()
        values = list(self._shared.values)
        self._shared.barrier.wait()
        return values

    def of_first(self, value):
        # A copy, as between processes: the first one may change its own.
        return self.gather(copy.deepcopy(value) if self.rank == 0 else None)[0]


class _Shared:
    def __init__(self, count):
        self.values = [None] * count
        self.barrier = threading.Barrier(count, timeout=60)


def fitted_together(model, *args, monkeypatch, count=2):
    """The estimators that ``count`` processes get."""
    local = threading.local()
    monkeypatch.setattr(
        training, "present_processes", lambda: getattr(local, "processes", None)
    )

    def fit(processes):
        local.processes = processes
        return clone(model).fit(*args)

    return run_together(fit, count)


def run_together(function, count=2):
    """The results of a function of the processes, in all of them."""
    shared = _Shared(count)

    def run(rank):
        try:
            return function(ThreadsAsProcesses(shared, rank))
        except BaseException:
            shared.barrier.abort()
            raise

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def assert_all_same(model, *args, monkeypatch, count=2, **tolerance):
    alone = clone(model).fit(*args)
    assert alone.n_processes_ == 1
    results = fitted_together(model, *args, monkeypatch=monkeypatch, count=count)
    for result in results:
        assert result.n_processes_ == count
        assert result.engine_ == alone.engine_
        assert_same_training(alone, result, **(tolerance or ROUNDING))
    for key, values in results[0].parameters_.items():
        assert all(np.array_equal(values, r.parameters_[key]) for r in results)


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    X = random.normal(size=(ROWS, INPUTS))
    Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1)
    return X, Y + 0.3 * random.normal(size=Y.shape), random.uniform(0.3, 2, size=ROWS)


def test_members_are_split(table, seed, monkeypatch):
    model = exact(MCDropoutRegressor(), seed, n_estimators=5, early_stopping=True)
    assert_all_same(model, *table, monkeypatch=monkeypatch, count=3)


def test_fewer_members_than_processes(table, seed, monkeypatch):
    """All processes have the result of the first."""
    model = exact(MCDropoutRegressor(), seed, n_estimators=2)
    alone = clone(model).fit(*table)
    for result in fitted_together(model, *table, monkeypatch=monkeypatch, count=3):
        assert result.n_processes_ == 1
        assert_same_training(alone, result, **ROUNDING)


def test_members_are_split_between_checkpoints(table, seed, monkeypatch, tmp_path):
    """All processes stop for each of them; the first one writes all networks."""
    local, model = threading.local(), exact(MCDropoutRegressor(), seed, n_estimators=5)
    model.set_params(early_stopping=True, max_iter=12)
    alone = clone(model).fit(*table)
    for module in training, _continuation:
        monkeypatch.setattr(
            module, "present_processes", lambda: getattr(local, "processes", None)
        )
    monkeypatch.setattr(_continuation, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(_continuation, "_SHARE_OF_TIME", np.inf)
    path, written = tmp_path / "fit.skb", []

    def save(model, file, original=functions.save):
        written.append(model)
        original(model, file)

    monkeypatch.setattr(functions, "save", save)

    def fit(processes):
        local.processes = processes
        return clone(model).fit(*table, checkpoint=path)

    results = run_together(fit, 2)
    for result in (*results, skbayesnn.load(path)):
        assert_same_training(alone, result, **ROUNDING)
    n_epochs = [model.n_iter_ for model in written]
    assert n_epochs == [*range(1, alone.n_iter_), alone.n_iter_]
    assert all(len(model.seeds_) == 5 for model in written)


# ---- errors


def test_an_error_is_raised_in_all_processes(monkeypatch):
    """Otherwise a search would continue with other programs in one of them."""

    def fails_in_the_second(rank):
        if rank == 1:
            raise MemoryError("in the second")
        return SimpleNamespace(on_device_of=lambda rows: None)

    monkeypatch.setattr(training, "_train", fails_in_the_second)

    def error_of(processes):
        with pytest.raises(MemoryError) as caught:
            training._train_separately(processes.rank, processes)
        return str(caught.value)

    assert run_together(error_of) == ["in the second"] * 2


def test_memory_of_one_process(monkeypatch):
    """All processes train a program that is too large for one of them again."""
    local, keys = threading.local(), [("a", 0), ("b", 1)]
    monkeypatch.setattr(executor, "present_processes", lambda: local.processes)
    monkeypatch.setattr(
        executor, "_trained_together", lambda group: (dict.fromkeys(group), {})
    )

    def outcome(key, *_):
        fails = local.processes.rank == 1 and key == keys[1]
        return Outcome(MemoryError() if fails else None)

    def trained(processes):
        local.processes = processes
        result = executor.train_group(keys, outcome)
        return list(result.outcomes)

    assert run_together(trained) == [keys[:1]] * 2


OTHERS = {
    "tau": {"tau": 2.0},
    "prior": {"length_scale": 2.0},
    "keep": {"dropout": 0.3},
    "config": {"learning_rate_init": 0.02},
    "seed": {"random_state": 1},
    "weights": {},
}


@pytest.mark.parametrize("name", OTHERS)
def test_processes_must_have_the_same(name, table, monkeypatch):
    """A search does not take the error for the error of a candidate."""
    monkeypatch.setattr(training, "_train", None)
    local = threading.local()
    monkeypatch.setattr(
        training, "present_processes", lambda: getattr(local, "processes", None)
    )
    X, Y, weights = table

    def error_of(processes):
        local.processes, params, w = processes, {"tau": 1.0}, weights
        if processes.rank == 1:
            params, w = params | OTHERS[name], weights[::-1] if not OTHERS[name] else w
        model = exact(MCDropoutRegressor(), 0, n_estimators=2).set_params(
            length_scale=1.0, dropout=0.1
        )
        search = BatchedGridSearchCV(model.set_params(**params), {"max_iter": [2]})
        with pytest.raises(ProcessError) as caught:
            search.fit(X, Y, sample_weight=w)
        return str(caught.value)

    for error in run_together(error_of):
        assert "process 1 has different ones from process 0" in error


def test_errors_of_the_script_change_nothing(table, monkeypatch):
    """A callback may raise the errors that stand for a lost process elsewhere."""
    model = exact(MCDropoutRegressor(), 0, warm_start=True).fit(*table)
    before = {name: values.copy() for name, values in model.parameters_.items()}

    def fail(*_):
        raise ConnectionError("of the script")

    monkeypatch.setattr(_fit._Reported, "epoch_end", fail)
    with pytest.raises(ConnectionError, match="of the script"):
        model.fit(*table)
    for name, values in before.items():
        np.testing.assert_array_equal(model.parameters_[name], values)


def test_a_lost_process_in_partial_fit(table, monkeypatch):
    """It keeps the finished epochs, and raises the error."""
    run = _fit.run

    def loses_a_process(*args, **options):
        return replace(run(*args, **options), lost=ConnectionError("lost"))

    monkeypatch.setattr(_fit, "run", loses_a_process)
    model = exact(MCDropoutRegressor(), 0)
    with pytest.raises(ConnectionError, match="lost"):
        model.partial_fit(*table[:2], n_epochs=1)
    assert model.n_iter_ == 1


def test_a_forked_process_trains_alone(monkeypatch):
    """It has a copy of the group, but is not one of its processes."""
    monkeypatch.setattr(processes, "_present", SimpleNamespace(world=None))
    monkeypatch.delenv(processes.PROCESSES_VARIABLE, raising=False)
    assert processes.present_processes() is processes._present
    monkeypatch.setattr(processes, "_pid", os.getpid() + 1)
    assert processes.present_processes() is None


# ---- processes of torch.distributed


def _free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [str(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()


@pytest.fixture(scope="module")
def launched_results(tmp_path_factory):
    """What the two processes of ``launched.py`` return."""
    folder = tmp_path_factory.mktemp("launched")
    first, *further = _free_ports(3)
    root = Path(__file__).parents[2]
    environment = os.environ | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": first,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "tests.engine.launched", str(folder), *further]
    runs = [
        subprocess.Popen(command, env=environment | {"RANK": str(rank)}, cwd=root)
        for rank in range(2)
    ]
    try:
        for run in runs:
            assert run.wait(timeout=120) == 0
    finally:
        for run in runs:
            run.kill()
    results = [folder / f"{rank}.pickle" for rank in range(2)]
    return *(pickle.loads(path.read_bytes()) for path in results), folder


@pytest.mark.skipif(
    not torch.distributed.is_gloo_available(), reason="torch has no gloo"
)
def test_processes(launched_results):
    """Both processes have the same model: the one of a single process."""
    for name in launched.MODELS:
        models = [results[name] for results in launched_results[:2]]
        assert [model.n_processes_ for model in models] == [2, 2]
        for key, values in models[0].parameters_.items():
            np.testing.assert_array_equal(values, models[1].parameters_[key])
        if name != "no seed":
            assert_same_training(launched.fitted(name), models[0], **ROUNDING)
    assert not np.array_equal(models[0].seeds_, launched.fitted("no seed").seeds_)


@pytest.mark.skipif(
    not torch.distributed.is_gloo_available(), reason="torch has no gloo"
)
def test_failures_of_a_process(launched_results):
    first, _, folder = launched_results
    for results in launched_results[:2]:
        assert "same data" in results["other data"]
        assert "process 1 has" in results["other data"]
    assert first["late"].startswith("LateProcessError(")
    assert re.search("Ranks? 1 failed", first["late"])
    assert TIMEOUT_VARIABLE in first["late"]
    error, kept = first["lost"]
    assert error.startswith("LostProcessError(")
    # The second process ended in its third run, with one epoch in the first run.
    assert 1 <= kept.n_iter_ < kept.max_iter
    X, y = launched.table()
    assert np.isfinite(kept.predict(X)).all()
    # The last epochs are in the file, too, and a single process can continue.
    assert str(folder / "fit.skb") in error
    loaded = skbayesnn.load(folder / "fit.skb")
    assert loaded.n_iter_ == kept.n_iter_
    np.testing.assert_array_equal(loaded.predict(X), kept.predict(X))
    assert loaded.fit(X, y).n_iter_ == kept.max_iter


@pytest.mark.skipif(
    not torch.distributed.is_gloo_available(), reason="torch has no gloo"
)
def test_interruption_of_all_processes(launched_results):
    """They keep the same epochs, as after Ctrl-C in a single process."""
    (no_error, first), (_, second) = (r["interrupted"] for r in launched_results[:2])
    assert no_error == "no error"
    assert 3 <= first.n_iter_ == second.n_iter_ < first.max_iter
    assert len(first.seeds_) == 3
    for key, values in first.parameters_.items():
        np.testing.assert_array_equal(values, second.parameters_[key])
