"""Every example runs, in its short form, and writes the pictures that it names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path):
    pytest.importorskip("matplotlib")
    # What is deprecated is not what an example shows.
    kinds = "DeprecationWarning", "FutureWarning"
    strict = [f"-Werror::{kind}:__main__" for kind in kinds]
    told = subprocess.run(
        [sys.executable, *strict, str(path)],
        capture_output=True,
        text=True,
        env=os.environ
        | {
            "SKBAYESNN_EXAMPLES": "short",
            "MPLBACKEND": "Agg",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert told.returncode == 0, told.stderr
    if told.stdout.startswith("Skipped: "):
        pytest.skip(told.stdout.removeprefix("Skipped: "))
    pictures = re.findall(r"^picture: (.+\.png)$", told.stdout, flags=re.MULTILINE)
    assert pictures
    assert all((ROOT / picture).stat().st_size > 1_000 for picture in pictures)
