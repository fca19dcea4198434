"""Files for benchmarks of other projects, with small stand-ins of their interfaces."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
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
    """Models are factories without arguments, which are called for each fold."""
    X, y = rows
    y = y.copy()
    y[3] = np.nan
    prediction = SimpleNamespace(
        from_multi_quantile=lambda q, alphas, mean=None, *, train_range: (
            q,
            alphas,
            mean,
            train_range,
        )
    )
    base = {"ProbabilisticWrapper": Wrapper, "DistributionPrediction": prediction}
    name = "scoringbench_stub"
    modules = {name: {"__path__": []}, f"{name}.base": base}
    module = loaded("scoringbench_wrapper", monkeypatch, **modules)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    [entry] = re.findall(r'^ *("\w+": lambda: .*),$', readme, re.MULTILINE)
    [factory] = eval(f"{{{entry}}}", vars(module)).values()
    model, other = factory(), factory()
    assert model is not other
    assert model.pool == other.pool == "auto"
    model.pool = [("linear", BayesianRidge())]
    assert model.fit(X, y) is model
    quantiles, levels, mean, train_range = model.predict_distribution(X[:7])
    assert (np.diff(levels) > 0).all() and 0 < levels[0] < 0.001
    np.testing.assert_allclose(levels + levels[::-1], 1)
    assert quantiles.shape == (7, len(levels))
    assert (np.diff(quantiles, axis=1) > 0).all()
    np.testing.assert_array_equal(mean, model.predict(X[:7]))
    assert train_range == (np.nanmin(y), np.nanmax(y))


class System:
    def __init__(self, *, fit_kwargs=None, **kwargs):
        assert not kwargs


def context(problem_type, **metadata):
    """Arguments of the fit of a system."""
    return {
        "target_name": "y",
        "problem_type": problem_type,
        "eval_metric": None,
        "validation_metadata": SimpleNamespace(
            **{"group_on": None, "time_on": None} | metadata
        ),
        "num_cpus": torch.get_num_threads() + 1,
        "num_gpus": 0,
        "memory_limit": 8.0,
        "time_limit": 60.0,
        "random_state": 3,
    }


def test_tabarena(rows, monkeypatch):
    pandas = pytest.importorskip("pandas")
    modules = {n: {"__path__": []} for n in ("tabarena", "tabarena.benchmark")}
    modules["tabarena.benchmark.exec_models"] = {"ExternalSystemModel": System}
    module = loaded("tabarena_system", monkeypatch, **modules)
    X = pandas.DataFrame(rows[0], columns=["a", "b"], index=np.arange(60)[::-1])
    y = pandas.Series(rows[1], index=X.index)
    labels = pandas.Series(np.where(y > 0, "high", "low"), index=X.index)
    X["time"], X["site"] = np.random.default_rng(2).permutation(60), np.arange(60) % 9
    n_threads = torch.get_num_threads()
    for problem_type, metadata in (
        ("regression", {}),
        ("regression", {"time_on": "time"}),
        ("binary", {"group_on": "site"}),
        ("multiclass", {"group_on": ["site"]}),
    ):
        classifies = problem_type != "regression"
        candidate = LogisticRegression() if classifies else BayesianRidge()
        system = module.BayesianStackingSystemModel(fit_kwargs={})
        assert system.pool == "auto"
        system.pool = [("linear", candidate)]
        fit = context(problem_type, **metadata)
        assert system._fit_system(X, labels if classifies else y, **fit) is system
        assert torch.get_num_threads() == n_threads
        predicted = (system._predict_proba if classifies else system._predict)(X[:5])
        assert predicted.index.equals(X.index[:5])
        if classifies:
            assert predicted.columns.tolist() == ["high", "low"]
        system.cleanup()
    with pytest.raises(ValueError, match=r"problem_type.*'quantile'"):
        system._fit_system(X, y, **context("quantile"))
