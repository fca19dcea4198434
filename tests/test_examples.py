"""Every example runs in its short form and writes the pictures that it names."""

import random
import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))


def test_examples_exist():
    assert len(EXAMPLES) >= 10


@pytest.fixture
def short(monkeypatch):
    """Make examples run in their short form, in this process.

    A new process would import everything again, which takes longer than most examples.
    """
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("SKBAYESNN_EXAMPLES", "short")
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.delitem(sys.modules, "_common", raising=False)
    # Dask draws from Python's generator.
    state = random.getstate()
    yield
    random.setstate(state)
    sys.modules.pop("_common", None)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path, short, capsys):
    with warnings.catch_warnings():
        # Examples do not use deprecated functions.
        for kind in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("error", category=kind, module="__main__")
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            assert not end.code
    printed = capsys.readouterr().out
    if printed.startswith("Skipped: "):
        pytest.skip(printed.removeprefix("Skipped: "))
    pictures = re.findall(r"^picture: (.+\.png)$", printed, flags=re.MULTILINE)
    assert pictures
    assert all((ROOT / picture).stat().st_size > 1_000 for picture in pictures)
