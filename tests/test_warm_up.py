"""After ``warm_up`` default fits and predictions compile and import nothing."""

import subprocess
import sys
import warnings

import pytest

SCRIPT = """
import sys
from numba.core import event
from sklearn.datasets import make_friedman1
import skbayesnn

class Note(event.Listener):
    def on_start(self, event): print("compiles", event.data["dispatcher"])
    def on_end(self, event): pass

skbayesnn.warm_up()
before = set(sys.modules)
X, y = make_friedman1(210, random_state=0)
with event.install_listener("numba:compile", Note()):
    model = skbayesnn.BayesianStackingRegressor("fast").fit(X, y)
    model.predict_interval(X[:3])
    skbayesnn.MCDropoutClassifier(max_iter=5).fit(X, y > 14).predict_uncertainty(X)
print("imports", sorted(set(sys.modules) - before))
"""


def test_default_fits_compile_and_import_nothing():
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "imports []\n", done.stderr


def test_a_cache_that_cannot_be_written_warns_once(monkeypatch):
    from skbayesnn._engine.compiled import numerics

    def no_folder(function):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(numerics, "_Cache", no_folder)
    numerics._warn_of_cache.cache_clear()
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR.*SKB115"):
        assert numerics.entry(lambda x: x + 1)(2) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numerics.compiled(lambda x: x + 2) is not None
    numerics._warn_of_cache.cache_clear()
