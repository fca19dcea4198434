"""The file of results: a line of JSON per run; of several lines the last one counts."""

import json
from pathlib import Path

Key = tuple[str, str, int]


def key_of(record: dict) -> Key:
    """Task, contestant and split of a record."""
    return record["task"], record["contestant"], record["split"]


def read(path: Path) -> dict[Key, dict]:
    """All records by key; incomplete lines of interrupted runs are ignored."""
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
    """Append the line of a record; complete an interrupted line before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
