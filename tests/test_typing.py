"""A type checker accepts correct code of a user and refuses wrong code."""

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skbayesnn

PARTS = ".inspection", ".model_selection", ".plotting", ".preprocessing"
CONFIG = """
[mypy]
strict = True
ignore_missing_imports = True
follow_imports = silent

[mypy-joblib.*,matplotlib.*,pandas.*,scipy.*,torch.*]
follow_imports = skip
"""

RIGHT = """
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.pipeline import make_pipeline

import skbayesnn
from skbayesnn import inspection, metrics, model_selection, plotting, preprocessing

X, y = load_diabetes(return_X_y=True)
network = skbayesnn.MCDropoutRegressor((16,), tau=1.0, verbose=1, random_state=0)
network.fit(X, y, sample_weight=np.ones(len(y))).set_params(n_draws=50)
mean, std = network.predict(X, return_std=True)
_, covariance = network.predict(X, return_cov=True)
lower, upper = network.predict_interval(X, coverage=[0.5, 0.9], kind="equal_tailed").T
total = network.predict_uncertainty(X).max()
parts = network.predict_uncertainty(X, "all")["epistemic"] + total
several = network.predict_uncertainty(X, kind=["total"]).keys()
frame = network.predict_uncertainty(X, as_frame=True).head()
draws = network.sample_y(X, n_samples=3, random_state=0).shape + mean.shape
scores = network.log_predictive_density(X, y) - network.crps(X, y) + std
print(network.score(X, y) + network.tau, network.loss_curve_[-1], network.get_params())

stack = skbayesnn.BayesianStackingRegressor(verbose=True).fit(X, y)
print(stack.summary_, stack.weights_["weight"], stack.predict(X, True)[1].mean())
labels = skbayesnn.BBBClassifier().partial_fit(X, y > 100, classes=[False, True])
best = labels.predict_proba(X).argmax(axis=1), labels.predict(X) == labels.classes_[0]

pipeline = make_pipeline(preprocessing.PiecewiseLinearEncoder(n_bins=8), network)
search = model_selection.BatchedGridSearchCV(pipeline, {"tau": [1.0]}, cv=3).fit(X, y)
print(search.best_params_, search.cv_results_["mean_fit_time"], search.score(X, y))
print(skbayesnn.find_estimator(search).noise_std_, search.predict(X, return_std=True))
skbayesnn.save(search, "model.skb")
loaded = skbayesnn.load("model.skb")
skbayesnn.crps(loaded, X, y) + skbayesnn.predict_interval(loaded, X).mean()
skbayesnn.predict_uncertainty(loaded, X, "all")["total"].mean()

monitor = inspection.DriftMonitor(network, false_alarm_rate=0.01).fit(X, y)
alarm = monitor.p_value(X) < 0.01 or bool((monitor.predict(X) < 0).any())
conformal = skbayesnn.ConformalRegressor(network, method="cv+").fit(X, y)
widths = metrics.interval_width(conformal.predict_interval(X, 0.9))
from_torch = skbayesnn.from_torch(loaded, noise_std=1.0).predict(X)
display = plotting.PredictionIntervalDisplay.from_estimator(stack, X, y, feature=0)
display.plot(ax=None).ax_.set_title("intervals")
"""

WRONG = """
import numpy as np
import skbayesnn

X, y = np.zeros((9, 2)), np.zeros(9)
model = skbayesnn.MCDropoutRegressor().fit(X, y)
model.predict_intervall(X)  # attr-defined
model.fit(X)  # call-arg
model.fit(X, None)  # arg-type
model.fit(X, y).predict(X, return_stds=True)  # call-overload
skbayesnn.BayesianStackingClassifier(n_refit=3)  # call-arg
skbayesnn.ConformalRegressor(model).fit(X, y).predict_set(X)  # attr-defined
"""


def classes():
    """Public names of all classes with attributes: estimators and displays."""
    for part in ("", *PARTS):
        module = importlib.import_module(f"skbayesnn{part}")
        for name in module.__all__:
            kind = getattr(module, name)
            if inspect.isclass(kind) and "\nAttributes\n" in inspect.getdoc(kind):
                yield f"skbayesnn{part}.{name}", kind


def attributes(kind):
    """Names of its parameters and of the attributes that its docstring lists."""
    yield from inspect.signature(kind).parameters
    section = re.compile(r"\nAttributes\n-+\n(.*?)(?:\n\n|\Z)", re.DOTALL)
    listed = section.search(inspect.getdoc(kind))[1]
    for line in re.findall(r"^\w.*$", listed, re.MULTILINE):
        yield from re.findall(r"\w+_\b", line.split(" : ")[0])


def with_each_attribute():
    """A script that uses all attributes of all classes, and a misspelt one."""
    lines = [f"import skbayesnn{part}" for part in PARTS]
    for i, (name, kind) in enumerate(classes()):
        lines += [f"def function_{i}(model: {name}) -> None:"]
        lines += [f"    model.{attribute}" for attribute in attributes(kind)]
        lines += ["    model.misspelt  # attr-defined"]
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy")
def test_mypy_finds_exactly_the_errors(tmp_path):
    """``mypy --strict`` finds the errors that the comments of these scripts name."""
    scripts = {"right": RIGHT, "wrong": WRONG, "attributes": with_each_attribute()}
    expected = set()
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if "  # " in line:
                expected.add((f"{name}.py", number, line.split("  # ")[1]))
    (tmp_path / "mypy.ini").write_text(CONFIG, encoding="utf-8")
    options = ["--config-file", "mypy.ini", "--cache-dir", "cache"]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *(f"{name}.py" for name in scripts)],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(Path(skbayesnn.__file__).parents[1])},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    error = re.compile(r"^(\w+\.py):(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)
    errors = error.findall(result.stdout)
    actual = {(name, int(number), code) for name, number, code in errors}
    assert actual == expected, result.stdout + result.stderr
