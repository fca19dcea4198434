"""Progress of long fits: tqdm, and scikit-learn's callbacks if they exist."""

import re
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor

# ---- tqdm


def test_verbose_shows_a_progress_bar(data, small, capsys):
    pytest.importorskip("tqdm")
    model = MCDropoutRegressor(verbose=True, **small).fit(data.X, data.y)
    shown = capsys.readouterr()
    assert "MCDropoutRegressor" in shown.err and "20/20" in shown.err
    assert re.search(r"\[\d\d:\d\d<[\d?]", shown.err), "time passed < time left"
    assert shown.out == ""
    for verbose in (1, 2, np.int64(3)):
        clone(model).set_params(verbose=verbose).fit(data.X, data.y)
        assert "20/20" in capsys.readouterr().err
    quiet = clone(model).set_params(verbose=0).fit(data.X, data.y)
    assert capsys.readouterr() == ("", "")
    np.testing.assert_array_equal(quiet.predict(data.X_new), model.predict(data.X_new))


def test_bar_is_closed_after_an_error(data, small, capsys):
    pytest.importorskip("tqdm")
    model = MCDropoutRegressor(verbose=True, **small | {"learning_rate_init": 1e150})
    with pytest.raises(FloatingPointError), warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        model.fit(data.X, data.y)
    assert "MCDropoutRegressor" in capsys.readouterr().err


def test_verbose_partial_fit(data, small, capsys):
    pytest.importorskip("tqdm")
    MCDropoutClassifier(verbose=True, **small).partial_fit(
        data.X, data.labels, n_epochs=1
    )
    assert "1/1" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_verbose_without_tqdm(data, small, kind, monkeypatch):
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, None)
    model = kind(verbose=True, **small)
    with pytest.raises(
        ImportError, match="tqdm, which is not installed: pip install tqdm, or set"
    ):
        model.fit(data.X, data.codes)
    assert not hasattr(model, "n_features_in_")
    model.set_params(verbose=False).fit(data.X, data.codes)


# ---- sklearn.callback (scikit-learn >= 1.9)


class Recorder:
    """Records the events of a callback as (hook, estimator, task)."""

    requires_fit_predict = False

    def __init__(self):
        self.events = []

    def _record(self, hook, estimator, context):
        # A search fits clones of the estimator, which share their callbacks.
        self.events.append((hook, type(estimator).__name__, context.task_name))

    def setup(self, estimator, context):
        self._record("setup", estimator, context)

    def on_fit_task_begin(self, estimator, context, **kwargs):
        self._record("begin", estimator, context)

    def on_fit_task_end(self, estimator, context, **kwargs):
        self._record("end", estimator, context)

    def teardown(self, estimator, context):
        self._record("teardown", estimator, context)

    def count(self, hook, task=None):
        return sum(h == hook and task in (None, t) for h, _, t in self.events)


@pytest.fixture
def recorder():
    pytest.importorskip("sklearn.callback")
    return Recorder()


@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_callback_gets_every_epoch(data, small, recorder, kind):
    model = kind(**small).set_callbacks(recorder)
    model.fit(data.X, data.codes)
    hooks = [hook for hook, _, _ in recorder.events]
    assert hooks[0] == "setup" and hooks[-1] == "teardown"
    assert recorder.count("setup") == recorder.count("teardown") == 1
    assert recorder.count("begin", "epoch") == recorder.count("end", "epoch") == 20
    assert recorder.count("begin") == recorder.count("end") == 21  # and the fit
    assert {name for _, name, _ in recorder.events} == {kind.__name__}
    plain = kind(**small).fit(data.X, data.codes)
    np.testing.assert_array_equal(plain.predict(data.X_new), model.predict(data.X_new))


def test_callback_with_early_stopping(data, small, recorder):
    model = MCDropoutRegressor(
        early_stopping=True, n_iter_no_change=2, tol=100.0, **small
    )
    model.set_callbacks(recorder).fit(data.X, data.y)
    assert model.n_iter_ < 20
    assert recorder.count("begin", "epoch") == model.n_iter_  # the last one, too
    assert recorder.count("teardown") == 1


def test_callback_is_torn_down_after_an_error(data, small, recorder):
    model = MCDropoutRegressor(**small | {"learning_rate_init": 1e150})
    with pytest.raises(FloatingPointError):
        model.set_callbacks(recorder).fit(data.X, data.y)
    assert recorder.count("setup") == recorder.count("teardown") == 1


def test_callback_of_the_last_step_of_a_pipeline(data, small, recorder):
    pipeline = make_pipeline(StandardScaler(), MCDropoutRegressor(**small))
    pipeline[-1].set_callbacks(recorder)
    pipeline.fit(data.X, data.y)
    assert recorder.count("begin", "epoch") == 20


def test_callback_of_a_network_in_a_search(data, small, recorder):
    """It gets the epochs of every fit."""
    network = MCDropoutRegressor(**small | {"max_iter": 4}).set_callbacks(recorder)
    search = GridSearchCV(network, {"tau": [1.0, 2.0]}, cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about callbacks on the inner estimator
        search.fit(data.X, data.y)
    n_fits = 2 * 3 + 1
    assert recorder.count("begin", "epoch") == 4 * n_fits
    assert recorder.count("end", "epoch") == 4 * n_fits


def test_progress_bar_of_scikit_learn(data, small, recorder, capsys):
    callback = pytest.importorskip("sklearn.callback")
    pytest.importorskip("rich")
    model = MCDropoutRegressor(**small).set_callbacks(callback.ProgressBar())
    model.fit(data.X, data.y)
    assert "MCDropoutRegressor" in capsys.readouterr().out


def test_callbacks_get_no_events_of_predictions(data, small, recorder):
    model = MCDropoutRegressor(**small).set_callbacks(recorder).fit(data.X, data.y)
    n_events = len(recorder.events)
    model.predict(data.X_new)
    assert len(recorder.events) == n_events
