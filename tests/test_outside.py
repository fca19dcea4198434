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

from skbayesnn import LaplaceRegressor

FOLDER = Path(__file__).parent.parent / "benchmarks" / "outside"
README = (FOLDER / "README.md").read_text(encoding="utf-8")


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
    [entry] = re.findall(r'^ *("\w+": lambda: .*),$', README, re.MULTILINE)
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


class SampleBased:
    """Draws several values in one call, as the multivariate benchmark does."""

    N_SAMPLES = 300

    def predict_ensemble(self, X):
        samples = np.asarray(self._draw_samples(X, self.N_SAMPLES), dtype=np.float64)
        assert samples.ndim == 3 and np.isfinite(samples).all()
        return samples


def test_scoringbench_of_several_targets(rows, monkeypatch):
    X, y = rows
    noise = np.random.default_rng(3).standard_normal((60, 1))
    Y = np.stack([y, -2 * y, X[:, 1]], axis=1) + noise
    Y[5, 1] = np.nan
    name = "scoringbench_stub"
    sample_based = {"SampleBasedWrapper": SampleBased}
    modules = {f"{name}.base": {}, f"{name}.sample_based": sample_based}
    modules = {name: {"__path__": []}, **modules}
    module = loaded("scoringbench_multivariate", monkeypatch, **modules)
    [entry] = re.findall(r"^ *MODELS\[.*\] = (.*)$", README, re.MULTILINE)
    factory = eval(entry, vars(module))
    model, other = factory(), factory()
    assert model is not other
    model.pool = [("linear", LaplaceRegressor(max_iter=5, random_state=0))]
    assert model.fit(X, Y) is model
    samples, mean = model.predict_ensemble(X[:7]), model.predict(X[:7])
    assert samples.shape == (7, 300, 3) and mean.shape == (7, 3)
    # The mean of 300 draws is within five standard errors.
    error = samples.std(1) / np.sqrt(300)
    np.testing.assert_array_less(np.abs(samples.mean(1) - mean), 5 * error)


class System:
    """Gives the fit its arguments, and keeps them for nothing else."""

    def __init__(
        self, problem_type, eval_metric, *, validation_metadata, fit_kwargs=None
    ):
        self.problem_type, self.eval_metric = problem_type, eval_metric
        self.validation_metadata = validation_metadata
        self.fit_kwargs = fit_kwargs or {}

    def _declared_warmup(self):
        return ["declared"]

    def fit(self, X, y, seed):
        given = ("num_cpus", "num_gpus", "memory_limit", "time_limit")
        return self._fit_system(
            X.copy(),
            y,
            target_name="y",
            problem_type=self.problem_type,
            eval_metric=self.eval_metric,
            validation_metadata=self.validation_metadata,
            **{name: self.fit_kwargs.get(name) for name in given},
            random_state=seed,
        )


def test_tabarena(rows, monkeypatch):
    pandas = pytest.importorskip("pandas")
    modules = {n: {"__path__": []} for n in ("tabarena", "tabarena.benchmark")}
    modules["tabarena.benchmark.exec_models"] = {"ExternalSystemModel": System}
    module = loaded("tabarena_system", monkeypatch, **modules)
    X = pandas.DataFrame(rows[0], columns=["a", "b"], index=np.arange(60)[::-1])
    y = pandas.Series(rows[1], index=X.index)
    labels = pandas.Series(np.where(y > 0, "high", "low"), index=X.index)
    X["time"], X["site"] = np.random.default_rng(2).permutation(60), np.arange(60) % 9

    def system_of(problem_type, fit_kwargs=None, **metadata):
        metadata = {"group_on": None, "time_on": None} | metadata
        return module.BayesianStackingSystemModel(
            problem_type=problem_type,
            eval_metric=None,
            validation_metadata=SimpleNamespace(**metadata),
            fit_kwargs=fit_kwargs,
        )

    limits = {"num_cpus": torch.get_num_threads() + 1, "time_limit": 60.0}
    n_threads = torch.get_num_threads()
    for problem_type, seed, fit_kwargs, metadata in (
        ("regression", 3, limits, {}),
        ("regression", None, None, {"time_on": "time"}),
        ("binary", 3, limits, {"group_on": "site"}),
        ("multiclass", 4, limits, {"group_on": ["site"]}),
    ):
        classifies = problem_type != "regression"
        candidate = LogisticRegression() if classifies else BayesianRidge()
        system = system_of(problem_type, fit_kwargs, **metadata)
        assert system.pool == "auto"
        system.pool = [("linear", candidate)]
        assert system.fit(X, labels if classifies else y, seed) is system
        assert torch.get_num_threads() == n_threads
        limit = system._model.time_limit
        assert limit is None if fit_kwargs is None else 0 < limit <= 60
        predicted = (system._predict_proba if classifies else system._predict)(X[:5])
        assert predicted.index.equals(X.index[:5])
        if classifies:
            assert predicted.columns.tolist() == ["high", "low"]
        system.cleanup()
    with pytest.raises(ValueError, match=r"problem_type.*'quantile'"):
        system_of("quantile").fit(X, y, 0)
    calls = []
    monkeypatch.setattr("skbayesnn.warm_up", lambda: calls.append("compiled"))
    assert system.warmup_fn() == ["declared"] and calls == ["compiled"]
