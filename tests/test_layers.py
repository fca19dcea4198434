"""Imports point downward only, as drawn in CONTRIBUTING.md.

Each rule is one test, which fails with the list of all offending files and lines.
"""

import ast
import graphlib
import re
import sys
from functools import cache
from pathlib import Path

import skbayesnn

PACKAGE = Path(skbayesnn.__file__).parent

# Floors from the ground up. `__init__` is above them.
FLOORS = [
    {"_runtime", "_sklearn_compat", "_stored", "_typing", "_validation", "_version"},
    {"_distributions"},
    {"_families", "_likelihoods", "_priors", "gradient_estimators"},
    {"_networks"},
    {"_engine"},
    {"_data", "_predictive", "metrics", "networks", "preprocessing"},
    {"estimators"},
    {"_batch"},
    {"_meta"},
    {"scoring"},
    {"decision"},
    {"model_selection"},
    {"inspection"},
    {"acquisition"},
    {"plotting"},
    {"_stacking"},
    {"_onnx", "_persistence"},
    {"_report"},
    {"_exploration"},
    {"explore"},
]
ENGINE = set().union(*FLOORS[1:5])
# These compute with torch alone. WITH_SCIPY also uses SciPy's distributions or BLAS.
GROUND = {"_families", "_priors", "gradient_estimators"}
WITH_SCIPY = {"_distributions", "_engine", "_likelihoods"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def _floor(part):
    """The floor of a folder or module directly below the package."""
    return next((i for i, parts in enumerate(FLOORS) if part in parts), len(FLOORS))


def _part(path):
    """The folder or module directly below the package that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def _imports(path):
    """Line and full name of every import of a file, wherever in the file.

    A relative import has a name that starts with dots.
    """
    imports = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            imports += [(node.lineno, f"{module}.{a.name}") for a in node.names]
    return imports


def _offenders(rule, paths=None):
    """Imports that break a rule, as ``file:line imports name``.

    rule : (path, full name) -> whether the import is wrong
    """
    return [
        f"{path.relative_to(PACKAGE)}:{line} imports {name}"
        for path in (MODULES if paths is None else paths)
        for line, name in _imports(path)
        if rule(path, name)
    ]


def _root(name):
    return name.split(".")[0]


def _assert_none(offenders, rule):
    assert not offenders, "\n".join([f"{rule}:", *offenders])


def test_the_drawing_shows_these_floors():
    """Each box of the drawing contains floors that follow each other."""
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawing = text.split("against this drawing:")[1].split("```")[1]
    # Names stand before two spaces or at the end of a line, over one to three lines.
    names = [
        re.findall(r"^  (\S.*?)(?:  |$)", box, re.MULTILINE)
        for box in drawing.split("       v\n")
    ]
    boxes = [set(re.findall(r"\w+", " ".join(lines))) for lines in names]
    floors = [*FLOORS]
    for box in boxes[::-1]:
        shown = set()
        while floors and floors[0] <= box:
            shown |= floors.pop(0)
        assert box == shown
    assert not floors


def test_imports_are_absolute():
    _assert_none(
        _offenders(lambda path, name: name.startswith(".")),
        "the package imports by full names",
    )


def test_imports_point_downward():
    def upward(path, name):
        root, *parts = name.split(".")
        return root == "skbayesnn" and _floor("".join(parts[:1])) > _floor(_part(path))

    _assert_none(
        _offenders(upward), "a part imports from its own floor or from below (FLOORS)"
    )


def test_engine_does_not_import_scikit_learn():
    above = {"sklearn", "scipy", "pandas", "joblib", "matplotlib"}

    def forbidden(path, name):
        allowed = {"scipy"} if _part(path) in WITH_SCIPY else set()
        return _root(name) in above - allowed

    paths = [path for path in MODULES if _part(path) in ENGINE]
    assert paths
    _assert_none(
        _offenders(forbidden, paths),
        f"the engine imports none of {', '.join(sorted(above))} "
        f"(scipy: only {', '.join(sorted(WITH_SCIPY))})",
    )


def test_ground_floor_is_torch_only():
    allowed = {"torch", "skbayesnn", *sys.stdlib_module_names}
    paths = [path for path in MODULES if _part(path) in GROUND]
    assert paths
    _assert_none(
        _offenders(lambda path, name: _root(name) not in allowed, paths),
        f"{', '.join(sorted(GROUND))} import torch and the standard library only",
    )


def test_no_circular_imports():
    """Modules of one floor or folder form no circle either; graphlib names a circle."""
    names = {".".join(("skbayesnn", *_dotted(path))): path for path in MODULES}
    arrows = {
        name: {_module_of(imported, names) for _, imported in _imports(path)}
        - {None, name}
        for name, path in names.items()
    }
    graphlib.TopologicalSorter(arrows).prepare()


def _dotted(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _module_of(name, names):
    """The module that a full name names or is in; None for other packages."""
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name or None


def test_every_floor_exists():
    """The floors name existing parts: a rule about no file checks nothing."""
    parts = {_part(path) for path in MODULES}
    assert ENGINE <= parts
    assert {"_data", "_predictive", "estimators"} <= parts
