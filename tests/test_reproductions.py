"""The reproductions run in their quick form, and their results are documented."""

import importlib
import re
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "reproductions"
SCRIPTS = sorted(
    path.stem for path in FOLDER.glob("*.py") if path.stem != "side_by_side"
)
PAGE = (ROOT / "docs" / "reproductions.md").read_text(encoding="utf-8")
SECTIONS = dict(
    re.findall(
        r"^## (\w+)\.py\n(.*?)(?=^## |\Z)",
        (FOLDER / "RESULTS.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
)


@pytest.fixture(scope="module")
def shared():
    """The module of the shared parts; scripts are imported from its folder."""
    pytest.importorskip("matplotlib")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module("side_by_side")
    for name in (*SCRIPTS, "side_by_side"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", SCRIPTS)
def test_quick_form(name, shared, monkeypatch, tmp_path, capsys):
    """It returns lines with verdicts, and draws the pictures of the page."""
    monkeypatch.setitem(shared.PICTURES, True, tmp_path)
    if name == "gal2016_co2":
        pytest.importorskip("statsmodels")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            report = importlib.import_module(name).main(quick=True)
        except SystemExit as end:
            assert not end.code
            pytest.skip(capsys.readouterr().out.removeprefix("Skipped: "))
    assert len(report.lines) >= 2
    assert all(len(line) == len(shared.HEADER) for line in report.lines)
    assert re.search(r"\d+ of \d+ agree with the paper\.$", str(report))
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == set(re.findall(rf"reproductions/({name}\w*\.png)", PAGE))


def test_results_are_complete():
    """Each script has a section of results and a line on the page, with its count."""
    assert sorted(SECTIONS) == SCRIPTS
    counts = {
        name: re.search(r"(\d+ of \d+) agree", text)[1]
        for name, text in SECTIONS.items()
    }
    lines = re.findall(r"\[`(\w+)\.py`\].* \| (\d+ of \d+) \|$", PAGE, re.MULTILINE)
    assert dict(lines) == counts


def test_verdicts(shared):
    report = shared.Report("source", "setting")
    report.number("equal", 1.0, 1.1, 0.2)
    report.number("far", 1.0, 1.5, 0.2)
    report.number("nan", 1.0, float("nan"), 0.2)
    report.number("lower is better", 1.0, 0.5, 0.2, higher=False)
    report.number("higher is better", 1.0, 0.5, 0.2, higher=True)
    report.statement("true", "1 < 2", True)
    report.statement("false", "2 < 1", False)
    report.show("no verdict", "1", "2")
    assert [line[-1] for line in report.lines] == [
        "within",
        "outside",
        "outside",
        "outside, better",
        "outside, worse",
        "agrees",
        "differs",
        "not compared",
    ]
    assert str(report).endswith("2 of 7 agree with the paper.")


def test_write_section(shared, monkeypatch, tmp_path):
    """A section is replaced or inserted; the other sections stay."""
    file = tmp_path / "RESULTS.md"
    file.write_text("# Title\n\nText.\n\n## b.py\n\nold\n\n## c.py\n\nkept\n")
    monkeypatch.setattr(shared, "RESULTS", file)
    shared.write_section("b.py", "new")
    shared.write_section("a.py", "first")
    shared.write_section("d.py", "last")
    assert file.read_text() == (
        "# Title\n\nText.\n\n## a.py\n\nfirst\n\n## b.py\n\nnew\n\n## c.py\n\nkept\n\n"
        "## d.py\n\nlast\n"
    )
