"""Interrupted and failed fits of stacks, and their progress."""

import io
import pickle
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

from skbayesnn import BayesianStackingRegressor
from skbayesnn._batch import executor
from skbayesnn._batch.outcomes import Outcome, ProgramResult, ResultStore
from skbayesnn._stacking import base, candidates
from skbayesnn._stacking import pool as pools
from skbayesnn._stacking.candidates import expand_pool
from skbayesnn.estimators import _progress
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from tests.helpers.stacks import NETWORK, ROWS, regressor


def _candidates(estimators):
    items = pools.pool_items(estimators)
    return expand_pool(
        [pools.given_spec(item, 0, is_classification=False) for item in items]
    )


def _interrupted_fit(monkeypatch, model, X, y):
    """Stop when the candidates are trained out of fold."""
    predict_held_out = base.predict_held_out

    def interrupted(*arguments):
        yield from predict_held_out(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(base, "predict_held_out", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)


@pytest.mark.parametrize(
    ("random_state", "error"),
    [(1, KeyboardInterrupt), (None, KeyboardInterrupt), (1, MemoryError)],
)
def test_interrupted_fit_continues(table, monkeypatch, random_state, error):
    """Trained models are kept; the result equals an uninterrupted fit."""
    X, y = table
    expected = regressor().fit(X, y).predict(X)
    model, trained_before = regressor(random_state=random_state), []
    predict_held_out = base.predict_held_out

    def interrupted(*arguments):
        n_done = 0
        for results in predict_held_out(*arguments):
            yield results
            n_done += len(results.outcomes)
            if n_done > 4:
                raise error

    monkeypatch.setattr(base, "predict_held_out", interrupted)
    with pytest.raises(error):
        model.fit(X, y)
    assert not hasattr(model, "estimators_")

    def recorded(*arguments):
        trained_before.append(len(arguments[-1]))
        yield from predict_held_out(*arguments)

    monkeypatch.setattr(base, "predict_held_out", recorded)
    model.fit(X, y)
    assert trained_before[0] > 4
    assert len(pickle.dumps(model)) < 2 * len(pickle.dumps(regressor().fit(X, y)))
    if random_state is not None:
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9)


def test_interruption_between_training_and_prediction(table, monkeypatch):
    """The trained networks are kept, and then predict their held-out rows."""
    expected = regressor().fit(*table).predict(table[0])
    model, trained = regressor(), []
    train_group = executor.train_group

    def recorded(group, *arguments):
        trained.append(len(group))
        return train_group(group, *arguments)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(executor, "train_group", recorded)
    with monkeypatch.context() as patch:
        patch.setattr(candidates, "held_out_outcome", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*table)
    monkeypatch.setattr(base, "refit_to_all_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*table)
    assert sum(trained) == 3 * len(_candidates(model.estimators))
    monkeypatch.undo()
    np.testing.assert_allclose(model.fit(*table).predict(table[0]), expected, rtol=1e-9)


def test_random_state_after_an_interruption(table, monkeypatch):
    """The seed is drawn once, unless ``random_state`` is replaced."""
    seeds, make_folds = [], base.make_folds

    def recorded(*arguments, seed, **options):
        seeds.append(seed)
        return make_folds(*arguments, seed=seed, **options)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "make_folds", recorded)
    monkeypatch.setattr(base, "predict_held_out", stop)
    model = regressor()
    for state in (None, np.random.RandomState(0), 5):
        model.set_params(random_state=state)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                model.fit(*table)
    assert seeds[0::2] == seeds[1::2] and len(set(seeds)) == 3


def test_changed_pool_does_not_reuse_trained_models(table, monkeypatch):
    """The networks differ, although scikit-learn prints them alike."""
    X, y = table
    network, changed = (
        clone(NETWORK).set_params(hidden_layer_sizes=(2,) * 39 + (last,), max_iter=1)
        for last in (2, 3)
    )
    assert repr(network) == repr(changed)
    model = BayesianStackingRegressor([("deep", network)], cv=2, random_state=0)
    _interrupted_fit(monkeypatch, model, X, y)
    model.set_params(estimators=[("deep", changed)]).fit(X, y)
    fresh = clone(model).fit(X, y)
    np.testing.assert_array_equal(model.oof_prediction_, fresh.oof_prediction_)


def test_changed_folds_do_not_reuse_trained_models(monkeypatch, seed):
    """The folds differ, although NumPy prints them alike."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(2100, 1))
    y = X[:, 0] + 0.1 * random.normal(size=len(X))
    rows = np.arange(len(X))
    middle = np.concatenate([rows[:3], random.permutation(rows[3:-3]), rows[-3:]])
    folds, changed = ([(part[1000:], part[:1000])] for part in (rows, middle))
    changed = [(np.r_[a[:-3], rows[-3:]], np.r_[rows[:3], b[3:]]) for a, b in changed]
    pool = [("network", clone(NETWORK).set_params(max_iter=1))]
    model = BayesianStackingRegressor(pool, cv=folds, random_state=0)
    _interrupted_fit(monkeypatch, model, X, y)
    model.set_params(cv=changed).fit(X, y)
    fresh = clone(model).fit(X, y)
    np.testing.assert_array_equal(model.oof_prediction_, fresh.oof_prediction_)


def test_changed_groups_do_not_reuse_trained_models(table, monkeypatch):
    """The folds are the same; the candidates hold out other rows.

    The error is a late one, in the summary.
    """
    X, y = table
    cv = list(KFold(3).split(X))
    groups, changed = np.arange(ROWS) % 8, np.arange(ROWS) % 9
    pool = [("network", clone(NETWORK).set_params(length_scale="auto"))]
    model = BayesianStackingRegressor(pool, cv=cv, random_state=0)
    trained, predict_held_out = [], base.predict_held_out

    def recorded(*arguments):
        for results in predict_held_out(*arguments):
            trained.append(len(results.outcomes))
            yield results

    monkeypatch.setattr(base, "predict_held_out", recorded)
    for first, second, n_trained in ((groups, groups, 0), (groups, changed, 3)):
        with monkeypatch.context() as patch:
            patch.setattr(BayesianStackingRegressor, "_summary", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                model.fit(X, y, groups=first)
        trained.clear()
        model.fit(X, y, groups=second)
        assert sum(trained) == n_trained


def test_verbose_prints_progress_and_summary(table, capsys):
    model = regressor(verbose=True).fit(*table)
    assert str(model.summary_) in model._repr_html_()
    assert str(model.summary_) in model._repr_mimebundle_()["text/html"]
    assert "out of fold:" not in regressor()._repr_html_()
    output = capsys.readouterr().out
    assert "networks out of fold" in output
    assert str(model.summary_) in output
    assert "log density" in str(model.summary_)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_fit_shows_one_line_in_a_terminal(table, monkeypatch, capsys):
    """And nothing elsewhere, or with verbose=False; the line is removed at the end."""
    monkeypatch.setattr(_progress, "_PATIENCE", 1e-3)
    monkeypatch.setattr(_progress, "_UPDATE", 1e-3)

    def shown(stream, **parameters):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            regressor(**parameters).fit(*table)
        return stream.getvalue()

    lines = shown(Terminal()).split("\r")
    assert any("BayesianStackingRegressor: 0 s, " in line for line in lines)
    assert any("networks out of fold" in line for line in lines)
    assert "\n" not in "".join(lines)
    assert set(lines[-2]) == {" "} and lines[-1] == "", "removed"
    assert shown(io.StringIO()) == shown(Terminal(), verbose=False) == ""
    assert capsys.readouterr().out == ""
    threads = {thread.name for thread in threading.enumerate()}
    assert not any("_rewrite" in name for name in threads)


def test_a_long_search_shows_one_line_in_a_terminal(table, monkeypatch, capsys):
    monkeypatch.setattr(_progress, "_PATIENCE", 1e-3)
    monkeypatch.setattr(_progress, "_UPDATE", 1e-3)
    network = clone(NETWORK)
    grid = {"tau": [1.0, 2.0]}
    for search, name in (
        (BatchedGridSearchCV(network, grid, cv=2), "BatchedGridSearchCV: 0 s"),
        (BatchedRandomizedSearchCV(network, grid, n_iter=2, cv=2), "BatchedRandomized"),
    ):
        stream = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            search.fit(*table)
        lines = stream.getvalue().split("\r")
        assert any(line.startswith(name) for line in lines), lines
        assert lines[-1] == "" and capsys.readouterr().out == ""


def test_a_fit_within_a_fit_has_no_line(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(_progress, "_PATIENCE", 1e-3)
    with _progress.FitProgress("Outer", None), _progress.FitProgress("Inner", None):
        while not stream.getvalue():
            time.sleep(1e-3)
    assert "Outer: 0 s" in stream.getvalue() and "Inner" not in stream.getvalue()


def test_printed_progress_is_never_silent_for_long(monkeypatch, capsys):
    monkeypatch.setattr(_progress, "_SILENCE", 0.0)
    monkeypatch.setattr(_progress, "_UPDATE", 1e-3)
    with _progress.FitProgress("Model", 1) as log:
        log("3 of 8 fitted")
        printed = ""
        while "s: in progress" not in printed:
            time.sleep(1e-3)
            printed += capsys.readouterr().out
    # On a busy machine a line of progress may come first.
    assert "s: 3 of 8 fitted" in printed


@pytest.mark.parametrize(("value", "error"), [("yes", TypeError), (-1, ValueError)])
def test_verbose_is_checked(table, value, error):
    with pytest.raises(error, match="`verbose` must be"):
        regressor(verbose=value).fit(*table)


def test_time_left_is_estimated(monkeypatch):
    """From the mean time of the models after the first program."""
    now = 0.0

    def trained():
        nonlocal now
        first = 0
        for n_done, seconds in [(2, 12.0), (3, 10.0), (6, 14.0), (8, 6.0)]:
            now += seconds
            folds = range(first, n_done)
            yield ProgramResult({("network", fold): Outcome() for fold in folds})
            first = n_done

    texts, networks = [], [SimpleNamespace(name="network")]
    clock = SimpleNamespace(perf_counter=lambda: now)
    monkeypatch.setattr(_progress, "time", clock)
    base._collect(trained(), ResultStore(), networks, range(8), "fits", texts.append)
    assert texts == [
        "2 of 8 fits",
        "3 of 8 fits, about 50 s left",
        "6 of 8 fits, about 12 s left",
        "8 of 8 fits",
    ]
