"""Pages for users: their code prints the output they show, and their links exist."""

import contextlib
import io
import itertools
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from skbayesnn._families import FAMILIES
from skbayesnn._likelihoods import LIKELIHOODS
from skbayesnn._networks import NETWORKS

ROOT = Path(__file__).parent.parent
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), CONTRIBUTING]
LINKED = [
    *PAGES,
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "reproductions").glob("*.md")),
]

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def _name(page):
    return str(page.relative_to(ROOT))


def _code_and_output(page):
    """Python blocks of a page, each with the output block after it, or None."""
    blocks = FENCED.findall(page.read_text(encoding="utf-8"))
    following = [*blocks, ("", "")][1:]
    return [
        (code, after if next_kind == "text" else None)
        for (kind, code), (next_kind, after) in zip(blocks, following, strict=True)
        if kind == "python"
    ]


WITH_CODE = [page for page in PAGES if _code_and_output(page)]


def test_pages_have_code():
    assert {README, CONTRIBUTING, ROOT / "docs" / "index.md"} <= set(WITH_CODE)
    assert sum(len(_code_and_output(page)) for page in WITH_CODE) >= 15


@pytest.fixture
def tables():
    """Files that the skeletons append a line to; restored afterwards."""
    tables = FAMILIES, LIKELIHOODS, NETWORKS
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.fixture
def generators():
    """Restore the global generators: of scikit-learn, torch's layers and MLflow."""
    state, python = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        yield
    np.random.set_state(state)
    random.setstate(python)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=_name)
@pytest.mark.usefixtures("tables", "generators")
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """Blocks run in order and share names. They print what the page shows."""
    blocks = _code_and_output(page)
    for code, _ in blocks:
        for library in re.findall(r"^(?:import|from) (\w+)", code, flags=re.MULTILINE):
            pytest.importorskip(library)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), names)
        if shown is not None:
            assert _differences(printed.getvalue(), shown) == []


def _differences(printed, shown):
    """Lines of an output that differ from the page by more than rounding.

    Processors and versions of torch round differently, so a training ends with other
    weights: values may differ by a tenth, or by two units of their last digit. A mean
    that is printed with its standard error ("0.235 +- 0.112") may differ by that error.
    """
    if len(printed.splitlines()) != len(shown.splitlines()):
        return [printed]
    return [
        (line, expected)
        for line, expected in zip(printed.splitlines(), shown.splitlines(), strict=True)
        if NUMBER.sub("", line).split() != NUMBER.sub("", expected).split()
        or not all(map(_close, NUMBER.findall(line), *_values_and_errors(expected)))
    ]


def _values_and_errors(line):
    """Numbers of a line, and the standard error that follows each, or 0."""
    found = list(NUMBER.finditer(line))
    errors = [
        float(error[0]) if line[value.end() : error.start()].strip() == "+-" else 0.0
        for value, error in itertools.pairwise(found)
    ]
    return [value[0] for value in found], [*errors, 0.0][: len(found)]


def _close(value, expected, standard_error):
    last_digit = 10.0 ** -len(expected.partition(".")[2])
    allowed = max(0.1 * abs(float(expected)), 2.5 * last_digit, standard_error)
    return abs(float(value) - float(expected)) <= allowed


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize("page", LINKED, ids=_name)
def test_links_exist(page):
    """Relative links lead to files of the repository, and to headings in them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


def _anchors(file):
    """Anchors that GitHub and PyPI make of a page's headings."""
    text = FENCED.sub("", file.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in headings
    }


def test_cited_pages_and_sections_exist():
    """Comments and docstrings cite pages, scripts and sections that exist."""
    broken = []
    for file in (
        file
        for folder in ("skbayesnn", "tests", "examples", "benchmarks", "reproductions")
        for file in (ROOT / folder).rglob("*.py")
    ):
        lines = file.read_text(encoding="utf-8").splitlines()
        text = " ".join(line.strip().removeprefix("#").strip() for line in lines)
        for path in re.findall(r"(?<![\w/])((?:docs|benchmarks)/\w+\.(?:md|py))", text):
            if not (ROOT / path).exists():
                broken.append((_name(file), path))
        for section in re.findall(r'docs/defaults\.md, "([^"]+)"', text):
            anchor = re.sub(r"[^\w\- ]", "", section.lower()).replace(" ", "-")
            if anchor not in _anchors(ROOT / "docs" / "defaults.md"):
                broken.append((_name(file), section))
    assert not broken
