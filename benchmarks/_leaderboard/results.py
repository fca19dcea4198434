"""What was found: a line of JSON per task, contestant and split; the last counts."""

import json
from pathlib import Path

Key = tuple[str, str, int]


def key_of(record: dict) -> Key:
    """Task, contestant, split."""
    return record["task"], record["contestant"], record["split"]


def read(path: Path) -> dict[Key, dict]:
    """All records by their key; a line that was cut off by the end of a run is none."""
    records = {}
    lines = path.read_text().splitlines() if path.is_file() else []
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        records[key_of(record)] = record
    return records


def append(path: Path, record: dict) -> None:
    """Write a record's line, after the end of one that was cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
