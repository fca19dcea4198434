"""Progress of long fits by tqdm."""

import re
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor


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
