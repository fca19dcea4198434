"""Every Python block of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_there_are_blocks():
    assert len(BLOCKS) == 14


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block, capsys, tmp_path, monkeypatch):
    for library in re.findall(r"^(?:import|from) (\w+)", block, flags=re.MULTILINE):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, README.name, "exec"), {})
    assert capsys.readouterr().out
