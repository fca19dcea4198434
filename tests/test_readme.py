"""The pages for users: their code runs, prints what they show, and their links exist."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINKED += sorted((ROOT / "benchmarks").glob("*.md"))

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def _name(page):
    return str(page.relative_to(ROOT))


def _code_and_output(page):
    """Python blocks of a page, each with the output block after it, or None."""
    blocks = FENCED.findall(page.read_text(encoding="utf-8"))
    following = [*blocks[1:], ("", "")]
    return [
        (code, after if next_kind == "text" else None)
        for (kind, code), (next_kind, after) in zip(blocks, following, strict=True)
        if kind == "python"
    ]


WITH_CODE = [page for page in PAGES if _code_and_output(page)]


def test_pages_have_code():
    assert {"README.md", "docs/guide.md"} <= set(map(_name, WITH_CODE))
    assert sum(len(_code_and_output(page)) for page in WITH_CODE) >= 15


@pytest.mark.parametrize("page", WITH_CODE, ids=_name)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """Blocks run in order with common names; all print, and as the page shows."""
    blocks = _code_and_output(page)
    for code, _ in blocks:
        for library in re.findall(r"^(?:import|from) (\w+)", code, flags=re.MULTILINE):
            pytest.importorskip(library)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    names = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), names)
        assert printed.getvalue()
        if shown is not None:
            assert _differences(printed.getvalue(), shown) == []


def _differences(printed, shown):
    """Lines of an output that differ from those shown by more than other rounding.

    Processors and versions of torch round differently, by which a training ends
    elsewhere: values may differ by a tenth, or by two units of their last digit.
    """
    if len(printed.splitlines()) != len(shown.splitlines()):
        return [printed]
    return [
        (line, expected)
        for line, expected in zip(
            printed.splitlines(), shown.splitlines(), strict=True
        )
        if NUMBER.sub("", line).split() != NUMBER.sub("", expected).split()
        or not all(map(_close, NUMBER.findall(line), NUMBER.findall(expected)))
    ]


def _close(value, expected):
    last_digit = 10.0 ** -len(expected.partition(".")[2])
    allowed = max(0.1 * abs(float(expected)), 2.5 * last_digit)
    return abs(float(value) - float(expected)) <= allowed


def test_the_readme_is_short():
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= 200


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
    """Headings of a page as GitHub and PyPI make anchors of them."""
    text = FENCED.sub("", file.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in headings
    }
