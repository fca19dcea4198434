"""Files that fits write during the training, and fits that continue from them."""

import copy
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import clone

import skbayesnn
from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn import _validation as validation
from skbayesnn.estimators import _continuation, _fit

ROWS, INPUTS = 130, 3


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(2)
    X = random.normal(size=(ROWS, INPUTS))
    return X, np.sin(X[:, 0]) + 0.2 * random.normal(size=ROWS)


@pytest.fixture(autouse=True)
def every_epoch(monkeypatch):
    """Write after every epoch."""
    monkeypatch.setattr(_continuation, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(_continuation, "_SHARE_OF_TIME", np.inf)


class Stop(Exception):
    """Ends a fit, as a failure of the computer would."""


def stop_at(n, monkeypatch):
    """End the next fit when this number of epochs is done."""
    epoch_end = _fit._Reported.epoch_end

    def stop(hook, n_done, posterior):
        if n_done == n:
            raise Stop
        epoch_end(hook, n_done, posterior)

    monkeypatch.setattr(_fit._Reported, "epoch_end", stop)


def stopped_file(model, path, *table, at, **fit):
    """The model of the file after the end of a fit."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        stop_at(at, monkeypatch)
        with pytest.raises(Stop):
            clone(model).fit(*table, checkpoint=path, **fit)
    return skbayesnn.load(path)


def assert_same_fit(model, other):
    # Steps from the same state: exactly the same, unless the machine splits sums in
    # other ways.
    for name, values in model.parameters_.items():
        np.testing.assert_allclose(
            other.parameters_[name], values, rtol=1e-6, atol=1e-7, err_msg=name
        )
    np.testing.assert_allclose(other.loss_curve_, model.loss_curve_, rtol=1e-6)
    np.testing.assert_allclose(other.elbo_, model.elbo_, rtol=1e-5)
    assert other.n_iter_ == model.n_iter_
    assert other.n_epochs_seen_ == model.n_epochs_seen_


# Selected settings; early stopping, at different epochs; estimated noise; labels.
MODELS = {
    "dropout": MCDropoutRegressor(max_iter=6),
    "early stopping": MCDropoutRegressor(
        max_iter=40, early_stopping=True, n_iter_no_change=2, n_estimators=3
    ),
    "anchored": AnchoredEnsembleRegressor(max_iter=6, n_estimators=2),
    "mean field": BBBRegressor(max_iter=6, warm_start=True),
    "classes": MCDropoutClassifier(max_iter=6, class_weight="balanced"),
}


@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, "compiled") for name in MODELS] + [("early stopping", "torch")],
)
def test_the_file_continues_the_fit(name, engine, table, seed, tmp_path, monkeypatch):
    monkeypatch.setenv("SKBAYESNN_ENGINE", engine)
    X, y = table
    y = y > 0 if name == "classes" else y
    model = clone(MODELS[name]).set_params(
        hidden_layer_sizes=(5,), random_state=seed, dtype="float64"
    )
    expected = clone(model).fit(X, y)
    written = clone(model).fit(X, y, checkpoint=tmp_path / "whole.skb")
    assert_same_fit(expected, written)
    whole = skbayesnn.load(tmp_path / "whole.skb")
    np.testing.assert_array_equal(whole.predict(X), written.predict(X))
    assert not hasattr(whole, "unfinished_")
    loaded = stopped_file(model, tmp_path / "part.skb", X, y, at=4)
    assert loaded.n_iter_ == 3
    assert loaded.predict(X).shape == (ROWS,)
    assert_same_fit(expected, loaded.fit(X, y, checkpoint=tmp_path / "part.skb"))
    assert not hasattr(loaded, "unfinished_")
    assert not hasattr(skbayesnn.load(tmp_path / "part.skb"), "unfinished_")


def test_fresh_seeds_are_kept(table, tmp_path, monkeypatch):
    """Without a seed, the file has the one that was drawn."""
    monkeypatch.setattr(validation.secrets, "randbits", lambda n: 7)
    model = MCDropoutRegressor((5,), max_iter=6, early_stopping=True)
    expected = clone(model).fit(*table, checkpoint=tmp_path / "whole.skb")
    loaded = stopped_file(model, tmp_path / "part.skb", *table, at=3)
    monkeypatch.setattr(validation.secrets, "randbits", lambda n: 8)
    assert_same_fit(expected, loaded.fit(*table))


def test_other_fits_do_not_continue(table, tmp_path):
    """The warning names what has changed."""
    X, y = table
    model = MCDropoutRegressor((5,), max_iter=6, random_state=0)
    loaded = stopped_file(model, tmp_path / "fit.skb", X, y, at=3)
    changed = clone(model).set_params(dropout=0.2)
    with pytest.warns(UserWarning, match="but the parameters dropout have changed"):
        fit = copy.deepcopy(loaded).set_params(dropout=0.2)
        fit.fit(X, y)
    assert_same_fit(changed.fit(X, y), fit)
    with pytest.warns(UserWarning, match="but the rows have changed"):
        loaded.fit(X, y[::-1])
    assert_same_fit(model.fit(X, y[::-1]), loaded)


def test_the_file_continues_a_warm_start(table, tmp_path):
    model = MCDropoutRegressor((5,), max_iter=6, random_state=0, warm_start=True)
    model.fit(*table)
    expected = copy.deepcopy(model).fit(*table)
    with pytest.MonkeyPatch.context() as monkeypatch:
        stop_at(3, monkeypatch)
        with pytest.raises(Stop):
            model.fit(*table, checkpoint=tmp_path / "fit.skb")
    loaded = skbayesnn.load(tmp_path / "fit.skb")
    assert (loaded.n_iter_, loaded.n_epochs_seen_) == (2, 8)
    assert_same_fit(expected, loaded.fit(*table))


def test_a_full_disk_does_not_end_the_fit(table, tmp_path, monkeypatch):
    """The file keeps the epochs of the last write that succeeded."""
    path, fsync, n = tmp_path / "fit.skb", os.fsync, []

    def full(file):
        n.append(file)
        if len(n) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", full)
    model = MCDropoutRegressor((5,), max_iter=6, random_state=0)
    with pytest.warns(UserWarning, match=r"fit\.skb' could not be written \(No space"):
        written = clone(model).fit(*table, checkpoint=path)
    assert len(n) == 6
    assert skbayesnn.load(path).n_iter_ == 2
    assert os.listdir(tmp_path) == ["fit.skb"]
    assert_same_fit(model.fit(*table), written)
    assert_same_fit(model, skbayesnn.load(path).fit(*table))


def test_bad_paths(table, tmp_path):
    model = MCDropoutRegressor((5,), max_iter=2, random_state=0)
    with pytest.raises(TypeError, match="must be the path of a file; got bool, True"):
        model.fit(*table, checkpoint=True)
    with pytest.raises(FileNotFoundError, match="folder of `checkpoint` must exist"):
        model.fit(*table, checkpoint=tmp_path / "nowhere" / "fit.skb")
    with pytest.raises(IsADirectoryError, match="the folder"):
        model.fit(*table, checkpoint=tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n" * 20)
    with pytest.raises(FileExistsError, match="which has other content"):
        model.fit(*table, checkpoint=tmp_path / "rows.csv")
    assert not hasattr(model, "parameters_")
    (tmp_path / "fit.skb").touch()
    for _ in range(2):  # A finished fit is replaced.
        model.fit(*table, checkpoint=tmp_path / "fit.skb")


def test_interruption_writes_the_last_epoch(table, tmp_path, monkeypatch):
    """Epochs since the last write are in the file, too."""
    monkeypatch.setattr(_continuation, "_SECONDS_BETWEEN", 1e9)
    epoch_end, path = _fit._Reported.epoch_end, tmp_path / "fit.skb"

    def interrupt(hook, n_done, posterior):
        epoch_end(hook, n_done, posterior)
        if n_done == 5:
            raise KeyboardInterrupt

    monkeypatch.setenv("SKBAYESNN_ENGINE", "torch")
    model = MCDropoutRegressor((5,), max_iter=8, random_state=0)
    expected = clone(model).fit(*table)
    with monkeypatch.context() as patch:
        patch.setattr(_fit._Reported, "epoch_end", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*table, checkpoint=path)
    assert not hasattr(model, "parameters_")
    loaded = skbayesnn.load(path)
    assert loaded.n_iter_ == 5
    assert_same_fit(expected, loaded.fit(*table))


def test_files_are_checked(table, tmp_path):
    loaded = stopped_file(
        MCDropoutRegressor((5,), max_iter=6, random_state=0),
        tmp_path / "fit.skb",
        *table,
        at=3,
    )
    state = loaded.unfinished_
    changes = {
        "the keys and types of UnfinishedFit": {"seed": 1},
        "keys and types": {"n_epochs": "6"},
        "epochs": {"nll": state["nll"][:1]},
        "networks": {"kl_constant": np.zeros(2)},
    }
    for words, change in changes.items():
        loaded.unfinished_ = state | change
        with pytest.raises(ValueError, match=words):
            skbayesnn.dumps(loaded)


# ---- a killed process

KILLED = """
import os, signal, sys
import sklearn
from skbayesnn import MCDropoutRegressor
from skbayesnn.estimators import _continuation, _fit
from tests.estimators.test_checkpoint import source_model

_continuation._SECONDS_BETWEEN = 0.0
_continuation._SHARE_OF_TIME = float("inf")
epoch_end = _fit._Reported.epoch_end

def kill(hook, n_done, posterior):
    epoch_end(hook, n_done, posterior)
    if n_done == 6:
        os.kill(os.getpid(), signal.SIGKILL)

_fit._Reported.epoch_end = kill
with sklearn.config_context(working_memory=0.07):
    source_model().fit(sys.argv[1], y="y", checkpoint=sys.argv[2])
"""


def _rows(folder):
    """700 rows in a file."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    random = np.random.default_rng(1)
    frame = pandas.DataFrame(random.normal(size=(700, 3)), columns=list("abc"))
    path = folder / "rows.parquet"
    frame.astype(np.float32).assign(y=frame["a"] ** 2).to_parquet(
        path, row_group_size=50, index=False
    )
    return frame, path


def source_model():
    return MCDropoutRegressor((6,), max_iter=4, batch_size=32, random_state=0)


def test_other_working_memory_does_not_continue(tmp_path):
    """It changes the sample, and the rows of an epoch."""
    _, rows = _rows(tmp_path)
    with sklearn.config_context(working_memory=0.07):
        model = stopped_file(source_model(), tmp_path / "fit.skb", rows, "y", at=3)
    with sklearn.config_context(working_memory=0.05):
        expected = source_model().fit(rows, y="y")
        with pytest.warns(UserWarning, match=r"working_memory have changed.*SKB111"):
            assert_same_fit(expected, model.fit(rows, y="y"))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_fit_to_files_continues(tmp_path):
    """It has a checkpoint after every part of the table that is in memory."""
    frame, rows = _rows(tmp_path)
    path = tmp_path / "fit.skb"
    root = Path(__file__).parents[2]
    folders = [str(root), os.environ.get("PYTHONPATH", "")]
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(rows), str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        cwd=root,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    loaded = skbayesnn.load(path)
    with sklearn.config_context(working_memory=0.07):
        expected = source_model().fit(rows, y="y")
        # A pass has several parts, which are the epochs of the training.
        assert len(loaded.unfinished_["nll"]) == 5
        assert loaded.n_iter_ < 4
        assert np.isfinite(loaded.predict(frame.astype(np.float32))).all()
        assert_same_fit(expected, loaded.fit(rows, y="y"))
