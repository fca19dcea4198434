"""Pages of the documentation that list parts of the package are complete."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from tests.test_public_api import MODULES, PACKAGES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "skbayesnn"
# Papers have equation numbers, too: a citation of theirs has a comma, a bracket or a
# year before "eq".
OWN_EQUATION = re.compile(r"(?<![,\]] )(?<!is )\beq\. (\d)(?: (?:and|to) (\d))?")


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def test_reference_lists_every_public_name():
    """And nothing else; the estimators of ``skbayesnn.estimators`` once."""
    listed = set()
    parts = re.split(r"^\.\. currentmodule:: (\S+)$", page("api.md"), flags=re.M)[1:]
    for module, text in zip(parts[::2], parts[1::2], strict=True):
        names = re.findall(r"^   (\w+)$", text, flags=re.MULTILINE)
        assert len(names) == len(set(names))
        listed |= {f"{module}.{name}" for name in names}
    public = {
        f"{path}.{name}"
        for path in [*PACKAGES, *MODULES]
        if path != "skbayesnn.estimators"
        for name in importlib.import_module(path).__all__
    }
    assert sorted(listed ^ public) == []
    estimators = importlib.import_module("skbayesnn.estimators").__all__
    assert {f"skbayesnn.{name}" for name in estimators} <= listed


def test_index_of_how_to_pages_lists_every_page():
    """Once for readers of the file, and once in the navigation of the site."""
    text = page("howto/index.md")
    pages = {path.stem for path in (DOCS / "howto").glob("*.md")} - {"index"}
    for pattern in (r"\]\((\w+)\.md\)", r"<(\w+)>$"):
        assert set(re.findall(pattern, text, flags=re.MULTILINE)) >= pages


def test_table_of_abilities():
    """Written by ``python tools/which_estimator.py``."""
    pytest.importorskip("onnx")
    path = ROOT / "tools" / "which_estimator.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = tool.PAGE.read_text(encoding="utf-8")
    assert tool.page_with_table(text) == text
    for stem in tool.families():
        assert f"`{stem}" in text.split(tool.START)[0].replace("Regressor", "")


def _codes_of_warnings():
    """Code of every call of a function that warns, or None.

    ``_warn`` of the diagnostics passes its ``code`` on.
    """
    place = {"warn": 0, "warn_once": 0, "warn_of_rows": 1, "_warn": 0}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(getattr(node, "func", None), "id", None)
            if name in place and path.name != "_runtime.py":
                code = node.args[place[name]]
                if getattr(code, "id", None) != "code":
                    yield getattr(code, "value", None)


def _codes_of_errors():
    """Codes of errors: in messages, or as attributes of classes."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from re.findall(r"SKB6\d\d", path.read_text(encoding="utf-8"))


def test_codes_of_warnings_and_errors():
    """Each warning has a code, and each code a section."""
    codes = [*_codes_of_warnings(), *_codes_of_errors()]
    assert len(codes) > 30
    sections = re.findall(r"^### (.+)$", page("troubleshooting.md"), flags=re.MULTILINE)
    assert sections == sorted(set(sections))
    assert sorted(set(codes)) == sections
    assert all(re.fullmatch(r"SKB\d{3}", code) for code in sections)


def test_equation_numbers():
    """Equations that the package cites by number are in the theory."""
    labels = [
        label
        for path in sorted((DOCS / "theory").glob("*.md"))
        for label in re.findall(
            r"^\$\$ \(eq-(\d+)\)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    ]
    numbers = sorted(map(int, labels))
    assert numbers == list(range(1, len(numbers) + 1))
    cited = {
        int(number)
        for path in (PACKAGE / "_engine", PACKAGE / "_predictive")
        for file in path.rglob("*.py")
        for match in OWN_EQUATION.findall(file.read_text(encoding="utf-8"))
        for number in match
        if number
    }
    assert cited and cited <= set(numbers)
