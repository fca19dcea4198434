"""Public names: no underscore, listed in ``__all__``, documented and typed."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from typing import get_overloads

import skbayesnn

PACKAGES = {
    "skbayesnn": {
        "acquisition",
        "decision",
        "estimators",
        "explore",
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
        "laplace",
        "neighbours",
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
    "skbayesnn.acquisition",
    "skbayesnn.decision",
    "skbayesnn.explore",
    "skbayesnn.gradient_estimators",
    "skbayesnn.networks",
    "skbayesnn.scoring",
]
LISTED = {
    f"{path}.{name}": getattr(importlib.import_module(path), name)
    for path in [*PACKAGES, *MODULES]
    for name in importlib.import_module(path).__all__
}
CLASSES = {path: item for path, item in LISTED.items() if inspect.isclass(item)}
FUNCTIONS = {path: item for path, item in LISTED.items() if inspect.isfunction(item)}
METHODS = {
    f"{path}.{name}": method
    for path, item in CLASSES.items()
    for name, method in inspect.getmembers(item, inspect.isroutine)
    if not name.startswith("_") and method.__module__.startswith("skbayesnn")
}


def public(names):
    return {name for name in names if not name.startswith("_")}


def difference(path, names, expected):
    """Names of a module that are unexpected or missing, as lines of text."""
    return [f"{path}: {name} is not expected" for name in sorted(names - expected)] + [
        f"{path}: {name} is missing" for name in sorted(expected - names)
    ]


def missing_sections(item, *sections):
    """The numpydoc sections that are missing in a docstring."""
    text = inspect.getdoc(item) or ""
    return [name for name in sections if f"\n{name}\n{'-' * len(name)}\n" not in text]


def test_names_of_packages():
    """Completion offers the listed names only, not the imported ones."""
    offenders = []
    for path, expected in PACKAGES.items():
        package = importlib.import_module(path)
        modules = public(item.name for item in pkgutil.iter_modules(package.__path__))
        offenders += difference(path, modules, expected)
        for name in modules:
            importlib.import_module(f"{path}.{name}")
        names = public(dir(package))
        offenders += difference(path, names, set(package.__all__) | modules)
    assert not offenders, "\n".join(offenders)


def test_names_of_modules():
    """``__all__`` lists the names that a module defines, not those it imports."""
    offenders = []
    for path in MODULES:
        module = importlib.import_module(path)
        defined = set()
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Assign):
                defined |= {target.id for target in node.targets}
        offenders += difference(path, set(module.__all__), public(defined))
    assert not offenders, "\n".join(offenders)


def test_classes_and_functions_have_their_sections():
    wanted = dict.fromkeys(CLASSES, ("Parameters",))
    for path in FUNCTIONS:
        signature = inspect.signature(LISTED[path])
        parameters = ["Parameters"] if signature.parameters else []
        returns = [] if signature.return_annotation is None else ["Returns"]
        wanted[path] = (*parameters, *returns)
    assert CLASSES and FUNCTIONS
    offenders = [
        f"{path} has no section {section}"
        for path, sections in wanted.items()
        for section in missing_sections(LISTED[path], *sections)
    ]
    assert not offenders, "\n".join(offenders)


def test_methods_are_documented():
    """At least one sentence each; scikit-learn's methods do not count."""
    assert METHODS
    offenders = [path for path, method in METHODS.items() if not inspect.getdoc(method)]
    assert not offenders, f"no docstring: {', '.join(offenders)}"


def test_scorers_are_documented():
    """All public names are classes, functions or scorers."""
    scorers = {p: item for p, item in LISTED.items() if p not in CLASSES | FUNCTIONS}
    assert scorers
    offenders = [
        path
        for path, item in scorers.items()
        if not isinstance(item, skbayesnn.scoring.Scorer)
    ]
    assert not offenders, f"neither class, function nor scorer: {', '.join(offenders)}"
    bare = [path for path, item in scorers.items() if not item.__doc__]
    assert not bare, f"no docstring: {', '.join(bare)}"


def test_callables_are_typed():
    """Otherwise ``mypy --strict`` refuses the calls in a user's code."""
    constructors = {
        f"{path}()": item.__init__
        for path, item in CLASSES.items()
        if inspect.isfunction(item.__init__)
    }
    untyped = [
        path
        for path, item in (FUNCTIONS | METHODS | constructors).items()
        if inspect.signature(item).return_annotation is inspect.Signature.empty
        and not get_overloads(item)
    ]
    assert not untyped, f"no return type: {', '.join(untyped)}"


def test_signatures_are_readable():
    """``help`` shows names such as ArrayLike, and not the types that they stand for."""
    offenders = [
        path
        for path, item in (FUNCTIONS | METHODS).items()
        if item.__module__.startswith("skbayesnn")
        and "numpy._typing" in str(inspect.signature(item))
    ]
    assert not offenders


def test_imports_wait_until_they_are_needed():
    """Public names are imported at their first use.

    Compiled loops, pictures, files of other formats and applications are imported where
    they are used. What torch and scikit-learn import does not count.
    """
    late = (
        *("numba", "matplotlib", "onnx", "pandas", "polars", "tqdm"),
        *("skops", "dash", "plotly", "catboost"),
    )
    code = (
        "import sys, skbayesnn; print('torch' in sys.modules)\n"
        "skbayesnn.networks, skbayesnn.load; print('torch' in sys.modules)\n"
        "print(hasattr(skbayesnn, 'no_such_name'))\n"
        "import sklearn.base, torch.optim\n"
        f"before = {set(late)} & sys.modules.keys() - {{'matplotlib'}}\n"
        "from skbayesnn import *; MCDropoutRegressor\n"
        f"print(*sorted(({set(late)} & sys.modules.keys()) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True", "False"]
