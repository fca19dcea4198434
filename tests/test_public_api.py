"""What is public: names without an underscore, listed, and documented."""

import ast
import importlib
import inspect
import pkgutil
from typing import get_overloads

import pytest

import skbayesnn

PACKAGES = {
    "skbayesnn": {
        "estimators",
        "gradient_estimators",
        "inspection",
        "metrics",
        "model_selection",
        "networks",
        "plotting",
        "preprocessing",
        "scoring",
    },
    "skbayesnn.estimators": {
        "anchored_ensemble",
        "bayes_by_backprop",
        "mc_dropout",
        "torch_module",
        "variational_dropout",
        "variational_gp",
    },
    "skbayesnn.inspection": set(),
    "skbayesnn.metrics": set(),
    "skbayesnn.model_selection": set(),
    "skbayesnn.plotting": set(),
    "skbayesnn.preprocessing": set(),
}
MODULES = [
    "skbayesnn.gradient_estimators",
    "skbayesnn.networks",
    "skbayesnn.scoring",
]
LISTED = {
    f"{path}.{name}": getattr(importlib.import_module(path), name)
    for path in [*PACKAGES, *MODULES]
    for name in importlib.import_module(path).__all__
}
CLASSES = {path: what for path, what in LISTED.items() if inspect.isclass(what)}
FUNCTIONS = {path: what for path, what in LISTED.items() if inspect.isfunction(what)}
METHODS = {
    f"{path}.{name}": method
    for path, what in CLASSES.items()
    for name, method in inspect.getmembers(what, inspect.isroutine)
    if not name.startswith("_") and method.__module__.startswith("skbayesnn")
}


def public(names):
    return {name for name in names if not name.startswith("_")}


def has(what, section):
    return f"\n{section}\n{'-' * len(section)}\n" in inspect.getdoc(what)


@pytest.mark.parametrize("path", PACKAGES)
def test_names_of_a_package(path):
    """What completion offers is what there is: nothing that was merely imported."""
    package = importlib.import_module(path)
    modules = public(module.name for module in pkgutil.iter_modules(package.__path__))
    assert modules == PACKAGES[path]
    for name in modules:
        importlib.import_module(f"{path}.{name}")
    assert public(dir(package)) == set(package.__all__) | modules


@pytest.mark.parametrize("path", MODULES)
def test_names_of_a_module(path):
    """What it defines; what it imports is there, too, but no part of it."""
    module = importlib.import_module(path)
    defined = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets}
    assert public(defined) == set(module.__all__)


@pytest.mark.parametrize("path", CLASSES)
def test_class_is_documented(path):
    assert has(CLASSES[path], "Parameters")


@pytest.mark.parametrize("path", FUNCTIONS)
def test_function_is_documented(path):
    assert has(FUNCTIONS[path], "Parameters")
    assert has(FUNCTIONS[path], "Returns")


@pytest.mark.parametrize("path", METHODS)
def test_method_is_documented(path):
    """A sentence at least, where it is not scikit-learn's."""
    assert inspect.getdoc(METHODS[path])


@pytest.mark.parametrize(
    "path", [path for path, what in LISTED.items() if path not in CLASSES | FUNCTIONS]
)
def test_scorer_is_documented(path):
    assert isinstance(LISTED[path], skbayesnn.scoring.Scorer)
    assert LISTED[path].__doc__


def test_all_that_is_called_is_typed():
    """Else ``mypy --strict`` refuses the calls in a user's code."""
    constructors = {
        f"{path}()": what.__init__
        for path, what in CLASSES.items()
        if inspect.isfunction(what.__init__)
    }
    untyped = [
        path
        for path, what in (FUNCTIONS | METHODS | constructors).items()
        if inspect.signature(what).return_annotation is inspect.Signature.empty
        and not get_overloads(what)
    ]
    assert not untyped, untyped
