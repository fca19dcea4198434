"""The compiled loop trains the networks that torch trains, up to rounding."""

import ast
import importlib
import itertools
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse, special
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from skbayesnn._engine import compiled, training
from skbayesnn._engine.compiled import activations, families, likelihoods, run
from skbayesnn._engine.config import TrainingConfig
from skbayesnn._engine.training import ENGINE_VARIABLE
from skbayesnn._engine.training_random import SplitMix, to_normal, to_uniform
from skbayesnn._families import FAMILIES
from skbayesnn._likelihoods import LIKELIHOODS
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.networks import ConvNet

ROWS, INPUTS, TARGETS, CLASSES = 43, 5, 2, 3
SIZES = (7, 6)
EXACT = {
    "hidden_layer_sizes": SIZES,
    "dtype": "float64",
    "device": "cpu",
    "batch_size": 9,
    "max_iter": 3,
    "n_estimators": 2,
    "early_stopping": False,
    "length_scale": 1.5,
}
RELAXED = {"dropout": 0.2, "tau": 2.0}
# Sums are taken in another order: a few roundings, which training magnifies.
ROUNDING = {"rtol": 1e-10, "atol": 1e-11}

DROPOUT = MCDropoutRegressor(dropout=0.2)
# One case for each family of the compiled loop.
POSTERIORS = {
    "point": MCDropoutRegressor(dropout=0.0),
    "bernoulli": MCDropoutRegressor(dropout=0.2),
    "gaussian": MCDropoutRegressor(dropout=0.2, noise="gaussian"),
    "concrete": MCDropoutRegressor(dropout="auto"),
    "mean_field": BBBRegressor(),
    "mean_field, spikes": BBBRegressor(dropout=0.3),
    "fixed_width": VariationalGPRegressor(),
    "anchored": AnchoredEnsembleRegressor(),
    "variational_correlated, unit": VariationalDropoutRegressor(),
    "variational_correlated, layer": VariationalDropoutRegressor(
        alpha_per="layer", kl_approximation="kingma"
    ),
}


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    X = random.normal(size=(ROWS, INPUTS))
    Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1)
    return X, Y + 0.3 * random.normal(size=Y.shape), random.uniform(0.3, 2, size=ROWS)


def exact(model, seed, **params):
    accepted = model.get_params(deep=False)
    fixed = {name: value for name, value in EXACT.items() if name in accepted}
    return clone(model).set_params(**fixed | {"random_state": seed} | params)


def both(model, *args, monkeypatch, method="fit"):
    """The estimator, trained by torch and by the compiled loop."""
    results = []
    for engine in ("torch", "compiled"):
        monkeypatch.setenv(ENGINE_VARIABLE, engine)
        trained = getattr(clone(model), method)(*args)
        assert trained.engine_ == engine
        results.append(trained)
    return results


def assert_same_training(expected, actual, **tolerance):
    """Compare parameters, moments of Adam, losses and the evidence bound."""
    for name in ("parameters_", "optimizer_", "history_"):
        values, references = getattr(actual, name), getattr(expected, name)
        assert values.keys() == references.keys()
        for key, reference in references.items():
            np.testing.assert_allclose(
                values[key], reference, **tolerance, err_msg=f"{name}[{key!r}]"
            )
    assert actual.elbo_ == pytest.approx(expected.elbo_, rel=1e-8)


# ---- every family, likelihood and activation


@pytest.mark.parametrize("name", POSTERIORS)
def test_families(name, table, seed, monkeypatch):
    """Values, gradients (Adam's moments) and KL after a few steps."""
    X, Y, weights = table
    model = exact(POSTERIORS[name], seed)
    expected, actual = both(model, X, Y, weights, monkeypatch=monkeypatch)
    assert_same_training(expected, actual, **ROUNDING)


@pytest.mark.parametrize("tau", [2.0, "auto"], ids=["tau given", "tau learned"])
@pytest.mark.parametrize(
    ("likelihood", "options"),
    [
        ("gaussian", None),
        ("heteroscedastic", None),
        ("student_t", None),
        ("student_t", {"df": 4.5}),
        ("poisson", None),
        ("negative_binomial", None),
    ],
    ids=str,
)
def test_likelihoods(likelihood, options, tau, table, seed, monkeypatch):
    X, Y, weights = table
    model = MCDropoutRegressor(likelihood=likelihood, likelihood_options=options)
    params = {"dropout": 0.2, "tau": tau, "max_iter": 8}
    if likelihood in ("poisson", "negative_binomial"):
        Y, params["tau"] = np.floor(np.abs(3 * Y)), 1.3
    model = exact(model, seed).set_params(**params)
    expected, actual = both(model, X, Y, weights, monkeypatch=monkeypatch)
    assert_same_training(expected, actual, **ROUNDING)


@pytest.mark.parametrize("tau", [2.0, "auto"], ids=["tau given", "tau learned"])
@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
@pytest.mark.parametrize(
    "settings",
    [
        {"y_bounds": (-0.2, 0.8)},
        {"y_bounds": (0, None), "point_mass": 0.0},
        {"target_scale": "log", "y_bounds": (0, 0.8), "point_mass": 0.0},
    ],
    ids=str,
)
def test_likelihoods_of_intervals(settings, likelihood, tau, table, seed, monkeypatch):
    X, Y, weights = table
    Y = Y.clip(max(0.0, settings["y_bounds"][0]), 0.8)
    model = MCDropoutRegressor(likelihood=likelihood, **settings)
    model = exact(model, seed, dropout=0.2, tau=tau, max_iter=8)
    expected, actual = both(model, X, Y, weights, monkeypatch=monkeypatch)
    assert actual.network_["likelihood"]["name"] == f"interval_{likelihood}"
    assert_same_training(expected, actual, **ROUNDING)


def test_likelihood_of_classes(table, seed, monkeypatch):
    X, Y, weights = table
    labels = np.digitize(Y[:, 0], [-0.4, 0.4])
    model = MCDropoutClassifier(dropout=0.2, tau=1.7)
    model = exact(model, seed)
    expected, actual = both(model, X, labels, weights, monkeypatch=monkeypatch)
    assert_same_training(expected, actual, **ROUNDING)


@pytest.mark.parametrize("activation", activations.FUNCTIONS)
def test_activations(activation, table, seed, monkeypatch):
    X, Y, _ = table
    model = exact(MCDropoutRegressor(activation=activation), seed, **RELAXED)
    expected, actual = both(model, X, Y, monkeypatch=monkeypatch)
    assert_same_training(expected, actual, **ROUNDING)


def test_tables_are_covered():
    """What is left to torch is listed here."""
    families_of_torch = {"dropconnect", "additive", "variational_independent"}
    assert FAMILIES.keys() - families.CODES.keys() == families_of_torch
    assert LIKELIHOODS.keys() - likelihoods.FUNCTIONS.keys() == {"mixture", "ordinal"}
    assert ACTIVATIONS.keys() == activations.FUNCTIONS.keys()
    assert {field.name for field in fields(TrainingConfig)} - run._FOLLOWED == set()


# ---- options of the training


@pytest.mark.parametrize(
    ("model", "params"),
    [
        (DROPOUT, {"batch_size": "auto", "learning_rate": "constant"}),
        (DROPOUT, {"hidden_layer_sizes": ()}),
        (DROPOUT, {"dropout": [0.0, 0.1, 0.4]}),
        (DROPOUT, {"early_stopping": True, "max_iter": 12}),
        (DROPOUT, {"n_training_draws": 3}),
        (BBBRegressor(), {"kl_warm_up": 0.5, "kl_weighting": "geometric"}),
        (AnchoredEnsembleRegressor(), {"likelihood": "student_t"}),
        (AnchoredEnsembleRegressor(), {"tau": 3.0}),
    ],
    ids=str,
)
def test_options(model, params, table, seed, monkeypatch):
    X, Y, weights = table
    model = exact(model, seed).set_params(**params)
    expected, actual = both(model, X, Y, weights, monkeypatch=monkeypatch)
    assert_same_training(expected, actual, **ROUNDING)


def test_torch_trains_with_settings_that_the_loop_does_not_follow(table, monkeypatch):
    X, Y, _ = table
    monkeypatch.setattr(run, "_FOLLOWED", run._FOLLOWED - {"n_training_draws"})
    engines = {1: "compiled", 2: "torch"}
    for n, engine in engines.items():
        model = exact(DROPOUT, 0, n_training_draws=n, **RELAXED).fit(X, Y)
        assert model.engine_ == engine


def test_fifty_steps(table, seed, monkeypatch):
    X, Y, _ = table
    model = exact(MCDropoutRegressor(activation="silu", **RELAXED), seed, max_iter=10)
    expected, actual = both(model, X, Y, monkeypatch=monkeypatch)
    assert_same_training(expected, actual, rtol=1e-6, atol=1e-7)


def test_single_precision_is_as_accurate_as_torch(table, seed, monkeypatch):
    """Distance of the predictions from float64, in units of torch's distance."""
    X, Y, _ = table
    model = exact(MCDropoutRegressor(activation="tanh", **RELAXED), seed, max_iter=20)
    double, _ = both(model, X, Y, monkeypatch=monkeypatch)
    single = model.set_params(dtype="float32")
    distances = [
        np.abs(trained.predict(X) - double.predict(X)).mean()
        for trained in both(single, X, Y, monkeypatch=monkeypatch)
    ]
    # Rounding errors are random: at any seed within a factor of a few.
    assert distances[1] < 5 * distances[0] + 1e-7


@pytest.mark.parametrize("method", ["stream", "warm start"])
def test_continued_training(method, table, seed, monkeypatch):
    X, Y, _ = table
    model = exact(BBBRegressor(), seed, warm_start=True)
    results = []
    for engine in ("torch", "compiled"):
        monkeypatch.setenv(ENGINE_VARIABLE, engine)
        trained = clone(model)
        for _ in range(2):
            if method == "stream":
                trained.partial_fit(X, Y, n_epochs=2)
            else:
                trained.fit(X, Y)
        assert trained.engine_ == engine
        results.append(trained)
    assert_same_training(*results, **ROUNDING)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_members_with_other_rows_and_epochs(
    is_sparse, table, sparse_table, seed, monkeypatch
):
    """In a search: folds of unequal sizes and other scales, and numbers of epochs."""
    X, Y = sparse_table[1:] if is_sparse else table[:2]
    grid = {"tau": [1.0, 3.0], "max_iter": [2, 3]}
    results = []
    for engine in ("torch", "compiled"):
        monkeypatch.setenv(ENGINE_VARIABLE, engine)
        model = exact(MCDropoutRegressor(dropout=0.2), seed)
        search = BatchedGridSearchCV(model, grid, cv=KFold(3)).fit(X, Y)
        results.append(search.cv_results_["mean_test_score"])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9)


@pytest.fixture(scope="module")
def sparse_table(table):
    """A dense table with zeros, and the same as CSR with explicit zeros."""
    X, Y, _ = table
    X = np.where(np.abs(X) > 0.8, X + 3, 0.0)
    X[:, 2] *= 1e4
    stored = sparse.csr_array(X)
    stored.data[::7] = 0.0
    return stored.toarray(), stored, Y


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", [DROPOUT, BBBRegressor()], ids=["scaled", "sampled"])
def test_sparse_inputs(model, dtype, sparse_table, seed, monkeypatch):
    """As torch with the same inputs, and as the same loop with dense inputs."""
    dense, X, Y = sparse_table
    model = exact(model, seed)
    expected, actual = both(model, X.astype(dtype), Y, monkeypatch=monkeypatch)
    assert_same_training(expected, actual, **ROUNDING)
    of_dense = clone(model).fit(dense.astype(dtype), Y)
    assert of_dense.engine_ == "compiled"
    # Means of sparse columns are summed in another order, in the precision of X.
    rtol = {"float64": 1e-10, "float32": 1e-6}[dtype]
    assert_same_training(of_dense, actual, rtol=rtol, atol=rtol)


def test_sparse_inputs_that_cannot_be_written(sparse_table, seed, monkeypatch):
    """Arrays that joblib maps into memory, and long indices."""
    monkeypatch.setenv(ENGINE_VARIABLE, "compiled")
    _, X, Y = sparse_table
    model = exact(DROPOUT, seed)
    expected = clone(model).fit(X, Y)
    X = X.copy()
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    for values in (X.indices, X.indptr, X.data):
        values.flags.writeable = False
    actual = clone(model).fit(X, Y)
    for key, values in expected.parameters_.items():
        np.testing.assert_array_equal(actual.parameters_[key], values)


def test_members_are_bitwise_equal_alone(table, seed, monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, "compiled")
    X, Y, _ = table
    model = exact(MCDropoutRegressor(**RELAXED), seed, n_estimators=3, dtype="float32")
    together = clone(model).fit(X, Y)
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        on_threads = clone(model).fit(X, Y)
    finally:
        torch.set_num_threads(torch_threads)
    alone = clone(model).set_params(n_estimators=1).fit(X, Y)
    for key, values in together.parameters_.items():
        np.testing.assert_array_equal(on_threads.parameters_[key], values)
    np.testing.assert_array_equal(
        alone.parameters_["layers/1/mean"][0], together.parameters_["layers/1/mean"][0]
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.001, [1, 8, 64, 27]), (0.125, [1, 2, 4, 8, 16, 32, 37]), (1.0, [1] * 100)],
)
def test_epochs_of_a_run(seconds, expected, table, monkeypatch):
    """About 0.25 s, at most eight times as many as before."""
    clock, n_epochs, train = (
        itertools.count(step=seconds),
        [],
        run.CompiledRunner._train,
    )

    def record(runner, epochs):
        n_epochs.append(len(epochs.seeds))
        return train(runner, epochs)

    monkeypatch.setattr(run, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(run, "n_threads", lambda: 1)
    monkeypatch.setattr(run.CompiledRunner, "_train", record)
    model = exact(MCDropoutRegressor(**RELAXED), 0, max_iter=100)
    model.fit(*table[:2])
    assert n_epochs == expected


def test_threads_get_the_same_number_of_epochs():
    """Unless that number of epochs takes long."""
    for n_threads, n_members in [(2, 3), (4, 6), (3, 3), (5, 7), (1, 4)]:
        for n_epochs, seconds in [(1, 0.2), (10, 0.025), (16, 0.015), (160, 0.0005)]:
            n = run._epochs_at_once(n_epochs, seconds, n_threads, n_members)
            assert n * n_members % n_threads == 0
            assert abs(n - n_epochs) < n_threads
        assert run._epochs_at_once(1, 3.0, n_threads, n_members) == 1


@pytest.mark.parametrize("n_threads", [1, 2])
def test_interruption(n_threads, table, seed, monkeypatch):
    """Ctrl-C in the third part; the estimator is unchanged and can be fitted again."""
    monkeypatch.setenv(ENGINE_VARIABLE, "compiled")
    X, Y, _ = table
    model = exact(MCDropoutRegressor(**RELAXED), seed)
    expected = clone(model).fit(X, Y).predict(X)
    plain, calls = run.CompiledRunner._train_member, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(*args)

    monkeypatch.setattr(run, "n_threads", lambda: n_threads)
    with monkeypatch.context() as patch:
        patch.setattr(run.CompiledRunner, "_train_member", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
    assert not hasattr(model, "parameters_")
    np.testing.assert_array_equal(model.fit(X, Y).predict(X), expected)


def test_networks_that_diverge_are_left_out(table, seed, monkeypatch):
    """The loss of one network becomes NaN in its second epoch."""
    monkeypatch.setenv(ENGINE_VARIABLE, "compiled")
    X, Y, _ = table
    model = exact(MCDropoutRegressor(**RELAXED), seed, n_estimators=3)
    whole = clone(model).fit(X, Y)
    plain = run.CompiledRunner._train_member

    def diverging(self, m, epochs, part, losses):
        n = plain(self, m, epochs, part, losses)
        if m == 1 and part.start + n == losses.shape[1]:
            losses[0, part.start + n - 1] = np.nan
        return n

    monkeypatch.setattr(run.CompiledRunner, "_train_member", diverging)
    with pytest.warns(ConvergenceWarning, match="1 of 3 networks were left out"):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.seeds_, whole.seeds_[[0, 2]])
    np.testing.assert_array_equal(
        model.parameters_["layers/0/mean"], whole.parameters_["layers/0/mean"][[0, 2]]
    )


@pytest.mark.parametrize(
    "model",
    [
        MCDropoutRegressor(likelihood="mixture"),
        BBBRegressor(prior="scale_mixture", kl="sampled"),
    ],
    ids=str,
)
def test_other_programs_are_left_to_torch(model, table, seed, monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, "compiled")
    X, Y, _ = table
    assert exact(model, seed).fit(X, Y[:, 0]).engine_ == "torch"


def test_other_networks_are_left_to_torch(seed, monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, "compiled")
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(12, 16)), random.normal(size=12)
    model = MCDropoutRegressor(network=ConvNet((1, 4, 4), channels=(2,)), max_iter=1)
    assert model.set_params(random_state=seed).fit(X, y).engine_ == "torch"


# ---- compilation and its cache


@pytest.fixture
def compile_entry(numerics, tmp_path, monkeypatch):
    """Function that compiles ``plain`` as in a new process, with an empty cache."""
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def plain(x):
        return 2 * x

    return lambda: numerics.entry(plain)


def test_cache_follows_all_sources(compile_entry, numerics, monkeypatch):
    """A change of another file may change what a function calls."""

    def was_cached():
        function = compile_entry()
        assert function(3) == 6
        return sum(function.stats.cache_hits.values()) == 1

    assert [was_cached(), was_cached()] == [False, True]
    with monkeypatch.context() as patch:
        patch.setattr(numerics, "_hash_of_sources", lambda: "other sources")
        assert not was_cached()
    assert was_cached()


PACKAGE = Path(compiled.__file__).parents[2]


@cache
def file_and_tree(module):
    file = Path(importlib.import_module(module).__file__)
    return file, ast.parse(file.read_text())


def loaded_names(nodes):
    names = (n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def names_defined_by(node):
    """Names of a function or class, or of the values that are assigned."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return {getattr(node, "name", None)}


def imports_of(tree):
    """Module and name of what a module imports from the package, by its own name."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("skbayesnn")
        for alias in node.names
    }


def files_behind(module, name, seen):
    """Files on which a name of a module depends."""
    if (module, name) in seen:
        return set()
    seen.add((module, name))
    file, tree = file_and_tree(module)
    if name in imports_of(tree):
        return {file} | files_behind(*imports_of(tree)[name], seen)
    files = {file}
    for node in tree.body:
        if name in names_defined_by(node):
            for used in loaded_names([node]):
                files |= files_behind(module, used, seen)
    return files


def test_cache_knows_the_files_of_all_constants(numerics):
    """Compiled code contains the values of constants, also of other modules."""
    constants = (int, float, np.number, tuple, np.ndarray)
    needed = set()
    for file in Path(compiled.__file__).parent.glob("*.py"):
        name = f"{compiled.__name__}.{file.stem}"
        module, (_, tree) = importlib.import_module(name), file_and_tree(name)
        statements = (ast.Assign, ast.AnnAssign)
        at_top = loaded_names(n for n in tree.body if isinstance(n, statements))
        for imported, source in imports_of(tree).items():
            value = getattr(module, imported)
            computes = imported in at_top and not isinstance(value, type)
            if computes or isinstance(value, constants):
                needed |= files_behind(*source, set())
    paths = {file.relative_to(PACKAGE) for file in needed}
    assert Path("_families/dropout.py") in paths
    listed = set(map(Path, numerics._SOURCES))
    assert not {path for path in paths if not listed & {path, path.parent}}


def test_without_a_folder_for_the_cache(compile_entry, numerics, monkeypatch):
    def no_folder(function):
        raise RuntimeError("no locator available")

    monkeypatch.setattr(numerics, "_Cache", no_folder)
    assert compile_entry()(3) == 6


def test_functions_called_by_address(numerics):
    """Results, conversions of scalars, errors, and types of arrays."""
    numba = pytest.importorskip("numba")
    types = numba.types

    @numba.njit
    def first(x, i):
        return x[i]

    @numba.njit
    def second(x, i):
        if i > 1:
            raise ValueError("too large")
        return x[i] + 0.5

    kind = numerics.FunctionKind(lambda real: real(real[::1], types.int64))
    call = kind.call

    @numba.njit
    def called(address, x, i):
        return call(address, x, i)

    for dtype in (np.float32, np.float64):
        x = np.array([2, 3], dtype)
        assert called(kind.address(first, dtype), x, np.int8(1)) == 3
        assert called(kind.address(second, dtype), x, 0) == 2.5
        with pytest.raises(ValueError, match="too large"):
            called(kind.address(second, dtype), x, 2)
    with pytest.raises(numba.TypingError):
        called(kind.address(first, np.float64), np.ones((2, 2)), 0)


def test_only_functions_that_are_needed_have_an_address():
    maps = np.zeros(2, dtype=families.MAP)
    maps["family"][1] = families.BERNOULLI
    families.compile_functions(maps, "relu", np.float64)
    written = [name for name in families.MAP.names if "address" in name]
    assert [[n for n in written if m[n]] for m in maps] == [
        [],
        ["activation_address", "factors_address"],
    ]


@pytest.mark.parametrize("watched", [True, False])
def test_note_of_the_compilation(watched, table, seed, monkeypatch, capsys):
    """One line when numba starts to compile; none if the cache has everything."""
    event = pytest.importorskip("numba.core.event")
    monkeypatch.setenv(ENGINE_VARIABLE, "compiled")
    X, Y, _ = table
    model = exact(MCDropoutRegressor(**RELAXED), seed, max_iter=1).fit(X, Y)
    note = run._CompilationNote()
    monkeypatch.setattr(run, "_is_watched", lambda: watched)
    monkeypatch.setattr(run, "_note", note)
    model.fit(X, Y)
    assert "compiles" not in capsys.readouterr().err
    for _ in range(2):
        data = {"dispatcher": run.loop.train_epochs}
        with (
            event.install_listener("numba:compile", note),
            event.trigger_event("numba:compile", data),
        ):
            pass
    assert capsys.readouterr().err.count("compiles its training loop") == watched


# ---- elementary functions and random numbers


@pytest.fixture(scope="module")
def numerics():
    return pytest.importorskip("skbayesnn._engine.compiled.numerics")


def _map(function):
    numba = pytest.importorskip("numba")

    @numba.njit(error_model="numpy")
    def mapped(x, out):
        for i in range(x.size):
            out[i] = function(x[i])
        return out

    return mapped


@pytest.mark.parametrize(
    ("name", "reference", "tolerance"),
    [
        ("exp", np.exp, 2e-7),
        ("softplus", lambda x: np.logaddexp(0, x), 4e-7),
        ("sigmoid", special.expit, 3e-7),
        ("tanh", np.tanh, 3e-7),
        ("erf", special.erf, 6e-7),
    ],
)
def test_elementary_functions(name, reference, tolerance, numerics):
    """Relative errors: a few units in the last place, 6e-8 in float32."""
    mapped = _map(getattr(numerics, name))
    x = np.linspace(-30, 30, 20_001)
    for dtype, most in ((np.float32, tolerance), (np.float64, 1e-14)):
        values = x.astype(dtype)
        expected = reference(values.astype(np.float64))
        actual = mapped(values, np.empty_like(values))
        # Float32 has no smaller normal numbers than 1e-38.
        np.testing.assert_allclose(actual, expected, rtol=most, atol=1e-37)


def test_logarithm(numerics):
    mapped = _map(numerics.log)
    for dtype, most in ((np.float32, 2e-7), (np.float64, 1e-15)):
        x = np.exp(np.linspace(-80, 80, 20_001)).astype(dtype)
        actual = mapped(x, np.empty_like(x))
        np.testing.assert_allclose(actual, np.log(x.astype(np.float64)), rtol=most)


def test_log_of_the_normal_distribution_function():
    """Also far in the tail, where a series is used."""
    x = np.concatenate([np.linspace(-40, 10, 5001), -np.geomspace(40, 1e6, 101)])
    mapped = _map(likelihoods._log_ndtr)
    actual = mapped(x, np.empty_like(x))
    np.testing.assert_allclose(actual, special.log_ndtr(x), rtol=1e-12, atol=1e-15)


def test_digamma():
    x = np.geomspace(0.5, 300, 1001)
    mapped = _map(likelihoods.digamma)
    actual = mapped(x, np.empty_like(x))
    np.testing.assert_allclose(actual, special.digamma(x), rtol=1e-11, atol=1e-12)


def test_random_numbers_equal_those_of_torch(seed):
    numba = pytest.importorskip("numba")
    from skbayesnn._engine.compiled.numerics import (
        fill_normal,
        fill_order,
        fill_uniform,
        fill_words,
    )

    @numba.njit
    def numbers(words, sequence, normal, uniform, order, keys, spare):
        fill_words(words, sequence, 3)
        fill_normal(normal, words)
        fill_uniform(uniform, words)
        fill_order(order, words, keys, spare)

    n, sequence = 96, np.uint64(seed + 12345678901234567890 % 2**63)
    stream = SplitMix(torch.device("cpu"))
    stream.prepare(np.array([[sequence]], dtype=np.uint64))
    stream.start(0)
    stream.words(3)
    expected = stream.words(n)
    stream.start(0)
    stream.words(3)
    order = stream.permutations(n)[0].numpy()
    for dtype, most in ((np.float32, 2e-6), (np.float64, 1e-14)):
        words, actual_order = np.empty(n, np.uint64), np.empty(n, np.int64)
        normal, uniform = np.empty(n, dtype), np.empty(n, dtype)
        keys, spare = np.empty(n, np.uint32), np.empty(n, np.uint64)
        numbers(words, sequence, normal, uniform, actual_order, keys, spare)
        torch_dtype = torch.from_numpy(normal).dtype
        np.testing.assert_array_equal(words, expected.numpy().view(np.uint64)[0])
        np.testing.assert_array_equal(uniform, to_uniform(expected, torch_dtype)[0])
        np.testing.assert_allclose(
            normal, to_normal(expected, torch_dtype)[0], rtol=most, atol=most
        )
        np.testing.assert_array_equal(actual_order, order)


def test_torch_trains_if_numba_cannot_be_imported(table, seed, monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, "compiled")
    monkeypatch.setitem(sys.modules, "skbayesnn._engine.compiled.run", None)
    monkeypatch.delattr(compiled, "run")
    training._compiled_loop.cache_clear()
    X, Y, _ = table
    try:
        with pytest.warns(UserWarning, match="numba cannot be imported"):
            trained = exact(MCDropoutRegressor(**RELAXED), seed).fit(X, Y)
    finally:
        training._compiled_loop.cache_clear()
    assert trained.engine_ == "torch"
