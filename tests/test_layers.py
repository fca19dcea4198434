"""The house's rule: imports point downward only (CONTRIBUTING.md, design section 4)."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skbayesnn

PACKAGE = Path(skbayesnn.__file__).parent

# Floors from the ground up; parts that are not named here are above all of them.
FLOORS = [
    {"_runtime", "_sklearn_compat", "_typing", "_validation", "_version"},
    {"_distributions"},
    {"_families", "_likelihoods", "_priors", "gradient_estimators"},
    {"_networks"},
    {"_engine"},
    {"_data", "_predictive", "metrics", "networks", "preprocessing"},
    {"estimators"},
    {"_batch"},
    {"_meta"},
    {"scoring"},
    {"model_selection"},
    {"inspection"},
    {"plotting"},
    {"_stacking"},
]
ENGINE = set().union(*FLOORS[1:5])
# What is torch's arithmetic alone; distribution functions of y are SciPy's, too.
GROUND = {"_families", "_priors", "gradient_estimators"}
WITH_SCIPY = {"_distributions", "_likelihoods"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def _floor(part):
    """The floor of a folder or module directly below the package."""
    return next((i for i, parts in enumerate(FLOORS) if part in parts), len(FLOORS))


def _part(path):
    """The folder or module directly below the package that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _imports(path):
    """Full names of what a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by a relative name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _name(path):
    return str(path.relative_to(PACKAGE))


def test_the_drawing_shows_these_floors():
    """Each box of the drawing holds some floors, one below the other."""
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawing = text.split("against this drawing:")[1].split("```")[1]
    # Names stand before two spaces or at the end of a line, over one to three lines.
    names = [
        re.findall(r"^  (\S.*?)(?:  |$)", box, re.MULTILINE)
        for box in drawing.split("       v\n")
    ]
    boxes = [set(re.findall(r"\w+", " ".join(of_box))) for of_box in names]
    floors = [*FLOORS, {"_onnx", "_persistence"}]
    for box in boxes[::-1]:
        found = set()
        while floors and floors[0] <= box:
            found |= floors.pop(0)
        assert box == found
    assert not floors


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_point_downward(path):
    upward = [
        name
        for name in _imports(path)
        if name.startswith("skbayesnn.")
        and _floor(name.split(".")[1]) > _floor(_part(path))
    ]
    assert not upward, f"{_name(path)} imports from above: {', '.join(upward)}"


@pytest.mark.parametrize("path", [p for p in MODULES if _part(p) in ENGINE], ids=_name)
def test_engine_knows_no_scikit_learn(path):
    roots = {name.split(".")[0] for name in _imports(path)}
    above = {"sklearn", "scipy", "pandas", "joblib", "matplotlib"}
    assert not roots & (above - {"scipy"} if _part(path) in WITH_SCIPY else above)


@pytest.mark.parametrize("path", [p for p in MODULES if _part(p) in GROUND], ids=_name)
def test_ground_floor_is_torch_only(path):
    roots = {name.split(".")[0] for name in _imports(path)}
    assert roots <= {"torch", "skbayesnn", *sys.stdlib_module_names}


def test_no_module_imports_in_a_circle():
    """Also within a floor or a folder; graphlib names the circle."""
    names = {".".join(("skbayesnn", *_dotted(path))): path for path in MODULES}
    arrows = {
        name: {_module_of(one, names) for one in _imports(path)} - {None, name}
        for name, path in names.items()
    }
    graphlib.TopologicalSorter(arrows).prepare()


def _dotted(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _module_of(name, names):
    """The module that a full name is, or is in; None for other packages'."""
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name or None


def test_every_floor_is_there():
    """The names above are those of the package; later floors may be missing yet."""
    parts = {_part(path) for path in MODULES}
    assert ENGINE <= parts
    assert {"_data", "_predictive", "estimators"} <= parts


def test_import_is_light():
    """`import skbayesnn` imports nothing that is only needed for pictures or bars."""
    program = (
        "import sys, skbayesnn; "
        "heavy = {'matplotlib', 'onnx', 'pandas', 'tqdm', 'skops'} & set(sys.modules); "
        "print(*sorted(heavy))"
    )
    # What torch and scikit-learn import by themselves is not ours.
    others = program.replace("skbayesnn", "sklearn.base, torch.optim")
    loaded, not_ours = (
        set(
            subprocess.run(
                [sys.executable, "-c", text],
                cwd=PACKAGE.parent,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
        )
        for text in (program, others)
    )
    assert "matplotlib" not in loaded
    assert loaded <= not_ours
