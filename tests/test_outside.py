"""Files for benchmarks of other projects, with small stand-ins of their interfaces."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import BayesianRidge, LogisticRegression

FOLDER = Path(__file__).parent.parent / "benchmarks" / "outside"


def loaded(name, monkeypatch, **modules):
    """Load a file, with stand-ins for the modules that it imports."""
    for full_name, contents in modules.items():
        module = ModuleType(full_name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, full_name, module)
    package = next((m.rpartition(".")[0] for m in modules if m.endswith(".base")), "")
    place = FOLDER / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{package}.{name}".strip("."), place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(1)
    X = random.standard_normal((60, 2))
    return X, X[:, 0] + 0.3 * random.standard_normal(60)


class Wrapper:
    def _set_train_range(self, y):
        self._y_train_range = (y.min(), y.max())


def test_scoringbench(rows, monkeypatch):
    X, y = rows
    y = y.copy()
    y[3] = np.nan
    prediction = SimpleNamespace(
        from_multi_quantile=lambda q, levels, mean, train_range: (q, levels, mean)
    )
    base = {"ProbabilisticWrapper": Wrapper, "DistributionPrediction": prediction}
    name = "scoringbench_stub"
    modules = {name: {"__path__": []}, f"{name}.base": base}
    module = loaded("scoringbench_wrapper", monkeypatch, **modules)
    model = module.BayesianStackingWrapper(
        [("linear", BayesianRidge())], n_quantiles=9
    ).fit(X, y)
    quantiles, levels, mean = model.predict_distribution(X[:7])
    assert quantiles.shape == (7, 9) and (np.diff(quantiles, axis=1) > 0).all()
    np.testing.assert_allclose(levels, np.arange(1, 10) / 10)
    np.testing.assert_array_equal(mean, model.predict(X[:7]))


class Model:
    problem_type = "binary"

    def __init__(self):
        self.params = {}
        self._set_default_params()

    def preprocess(self, X, is_train):
        return X

    def _get_model_params(self):
        return self.params

    def _set_default_param_value(self, name, value):
        self.params[name] = value

    def _get_default_auxiliary_params(self):
        return {"valid_raw_types": ["int"], "other": 1}


def test_tabarena(rows, monkeypatch):
    X, y = rows
    modules = {n: {"__path__": []} for n in ("autogluon", "autogluon.core")}
    modules["autogluon.core.models"] = {"AbstractModel": Model}
    module = loaded("tabarena_model", monkeypatch, **modules)
    model = module.BayesianStackingModel()
    assert model.params == {"estimators": "auto", "random_state": 0}
    assert "category" in model._get_default_auxiliary_params()["valid_raw_types"]
    model.params = {"estimators": [("linear", LogisticRegression())]}
    labels = np.where(y > 0, "high", "low")
    model._fit(X, labels)
    assert model.model.predict_proba(X[:5]).shape == (5, 2)
    model.problem_type = "regression"
    model.params = {"estimators": [("linear", BayesianRidge())]}
    model._fit(X, y)
    assert model.model.predict(X[:5]).shape == (5,)
