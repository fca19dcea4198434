"""Several devices in one process; two names of the CPU stand for two GPUs."""

import contextlib
import signal
import threading

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import skbayesnn
from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn._data.training_rows import TrainingRows
from skbayesnn._engine import training
from skbayesnn._persistence import functions
from skbayesnn._validation import device_for_fit
from skbayesnn.estimators import _continuation
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._training_data import training_data
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.networks import ConvNet

ROWS, INPUTS = 61, 4
DEVICES = ["cpu:0", "cpu:1"]


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(2)
    X = random.normal(size=(ROWS, INPUTS))
    return X, X[:, 0] * X[:, 1] + 0.1 * random.normal(size=ROWS)


def ensemble(device, **params):
    """Three networks with settings that no rows are held out for."""
    params = {"n_estimators": 3, "hidden_layer_sizes": (5,)} | params
    model = MCDropoutRegressor(device=device, dtype="float64", random_state=0)
    params = {"max_iter": 4, "length_scale": 1.0, "tau": 1.0} | params
    return model.set_params(**params)


def test_networks_are_spread(table, monkeypatch, tmp_path):
    """Each device trains its networks, at the same time as the other."""
    to, seen, both = TrainingRows.to, [], threading.Barrier(2, timeout=60)

    def to_device(rows, device):
        seen.append((str(device), len(rows.n_rows)))
        both.wait()
        return to(rows, device)

    X, y = table
    alone = ensemble("cpu").fit(X, y)
    monkeypatch.setattr(TrainingRows, "to", to_device)
    model = ensemble(DEVICES).fit(X, y)
    assert sorted(seen) == [("cpu:0", 2), ("cpu:1", 1)]
    # Members of programs of other sizes: the order of sums may differ.
    np.testing.assert_allclose(model.predict(X), alone.predict(X), rtol=1e-10)
    assert clone(model).device == DEVICES
    skbayesnn.save(model, tmp_path / "model.skb")
    loaded = skbayesnn.load(tmp_path / "model.skb")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_held_out_networks_are_spread(table, monkeypatch):
    """The networks that select the length scale: five folds times the candidates."""
    to, seen = TrainingRows.to, []

    def to_device(rows, device):
        seen.append((str(device), len(rows.n_rows)))
        return to(rows, device)

    X, y = table
    params = {"length_scale": "auto", "tau": "auto", "n_estimators": 1}
    params |= {"likelihood": "gaussian"}  # no further training for another one
    alone = ensemble("cpu", **params).fit(X, y)
    monkeypatch.setattr(TrainingRows, "to", to_device)
    model = ensemble(DEVICES, **params).fit(X, y)
    # The final training has one network, which stays on the first device.
    assert sorted(device for device, _ in seen) == DEVICES
    assert sum(n for _, n in seen) >= 5
    np.testing.assert_array_equal(model.length_scale_, alone.length_scale_)
    np.testing.assert_allclose(model.predict(X), alone.predict(X), rtol=1e-10)


def test_a_checkpoint_has_all_networks(table, monkeypatch, tmp_path):
    """The devices train in legs, to the same result."""
    monkeypatch.setattr(_continuation, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(_continuation, "_SHARE_OF_TIME", np.inf)
    X, y = table
    path, written = tmp_path / "fit.skb", []

    def save(model, file, original=functions.save):
        written.append(model)
        original(model, file)

    alone = ensemble("cpu").fit(X, y)
    monkeypatch.setattr(functions, "save", save)
    model = ensemble(DEVICES).fit(X, y, checkpoint=path)
    assert [model.n_iter_ for model in written] == [1, 2, 3, 4]
    assert all(len(model.seeds_) == 3 for model in written)
    for fitted in (model, skbayesnn.load(path), written[1].fit(X, y)):
        np.testing.assert_allclose(fitted.predict(X), alone.predict(X), rtol=1e-10)


@pytest.mark.parametrize("failing", DEVICES)
def test_an_error_on_one_device_ends_the_others(failing, table, monkeypatch):
    """The error is raised, not the interruption of the other part."""
    to = TrainingRows.to

    def to_device(rows, device):
        if str(device) == failing:
            raise MemoryError(failing)
        return to(rows, device)

    monkeypatch.setattr(TrainingRows, "to", to_device)
    model = ensemble(DEVICES).set_params(max_iter=10_000_000)
    with pytest.raises(MemoryError, match=failing):
        model.fit(*table)


def test_candidates_are_spread(table):
    """The networks of a search and of a stack."""
    X, y = table
    for device in ("cpu", DEVICES):
        search = BatchedGridSearchCV(
            ensemble(device, n_estimators=1), {"dropout": [0.1, 0.3]}, cv=3
        )
        stack = BayesianStackingRegressor(
            [("network", ensemble(device, n_estimators=1), {"dropout": [0.1, 0.3]})],
            n_refits=1,
            random_state=0,
        )
        scores = search.fit(X, y).cv_results_["mean_test_score"]
        predictions = stack.fit(X, y).predict(X)
        if device == "cpu":
            expected = scores, predictions
    np.testing.assert_allclose(scores, expected[0], rtol=1e-10)
    np.testing.assert_allclose(predictions, expected[1], rtol=1e-10)


@pytest.mark.parametrize("warm_start", [False, True])
def test_interruption_ends_all_parts(table, warm_start, monkeypatch):
    """They keep their finished epochs only for a warm start."""
    add, threads = training.TrainingHistory.add, set()

    def interrupt(*args):
        add(*args)
        before = len(threads)
        threads.add(threading.get_ident())
        if before < len(threads) == len(DEVICES):  # All have finished some epochs.
            # A thread that waits for a lock does not see the signal of another one.
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(training.TrainingHistory, "add", interrupt)
    model = ensemble(DEVICES, warm_start=warm_start).set_params(max_iter=1_000_000)
    with contextlib.ExitStack() as stack:
        if warm_start:
            stack.enter_context(pytest.warns(ConvergenceWarning, match="interrupted"))
        else:
            stack.enter_context(pytest.raises(KeyboardInterrupt))
        model.fit(*table)
    assert hasattr(model, "parameters_") == warm_start
    if warm_start:
        assert 0 < model.n_iter_ < 1_000_000


def test_continued_training_is_spread(table, monkeypatch):
    """A warm start and a stream."""
    to, seen = TrainingRows.to, []

    def to_device(rows, device):
        seen.append(str(device))
        return to(rows, device)

    X, y = table
    alone = ensemble("cpu").partial_fit(X, y).set_params(warm_start=True).fit(X, y)
    monkeypatch.setattr(TrainingRows, "to", to_device)
    model = ensemble(DEVICES).partial_fit(X, y).set_params(warm_start=True).fit(X, y)
    assert sorted(seen) == ["cpu:0"] * 2 + ["cpu:1"] * 2
    np.testing.assert_allclose(model.predict(X), alone.predict(X), rtol=1e-10)


def test_no_device(table):
    with pytest.raises(ValueError, match="at least one device; got an empty list"):
        ensemble([]).fit(*table)
    with pytest.raises(ValueError, match=r"`device` must be 'auto'.*got 'gpu'"):
        ensemble(["cpu", "gpu"]).fit(*table)
    with pytest.raises(TypeError, match="or a list of these; got 1"):
        ensemble(1).fit(*table)


def test_gpu_of_a_process(monkeypatch):
    """Under torchrun, the processes of a computer have different GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert device_for_fit("auto") == device_for_fit("cuda") == torch.device("cuda:1")
    assert device_for_fit("cuda:0") == torch.device("cuda:0")
    monkeypatch.delenv("LOCAL_RANK")
    assert device_for_fit("auto") == torch.device("cuda")


@pytest.mark.parametrize(
    ("n_rows", "hidden", "network", "expected"),
    [
        (1000, (50, 50), None, "cpu"),
        (4000, (50, 50), None, "cpu"),
        (50_000, (50, 50), None, "cpu"),
        (50_000, (200, 200), None, "cuda"),
        (1000, (400, 400), None, "cuda"),
        (100, None, ConvNet((1, 2, 4), pool=1), "cuda"),
    ],
)
def test_auto_is_the_faster_device(n_rows, hidden, network, expected, monkeypatch):
    """A GPU for large batches of wide networks, and for images."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    X = np.random.default_rng(0).normal(size=(n_rows, 8))
    model = MCDropoutRegressor(hidden or (50, 50), network=network)
    job = training_job(model, training_data(model, X, X[:, 0]))
    assert [device.type for device in job.devices("auto")] == [expected]
    assert [device.type for device in job.devices("cpu")] == ["cpu"]
