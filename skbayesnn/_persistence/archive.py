"""Bytes of arrays and a document <-> one file, with checksums.

A zip archive without compression: ``model.json``, its checksum in the format of
``sha256sum``, and arrays in NumPy's format, each named by its SHA-256.
"""

import hashlib
import json
import os
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

DOCUMENT, CHECKSUM, ARRAYS = "model.json", "model.json.sha256", ".npy"
_AGAIN = "Copy it again from where it was saved, or save the model again."
_FOREIGN = (
    "skbayesnn.save has not written it. Load it with what wrote it: joblib.load for a "
    "pickle, skops.io.load for a file of skops."
)


def digest_of(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def packed(document: dict[str, Any], arrays: Mapping[str, bytes]) -> bytes:
    """The content of a file; the same for the same model.

    arrays : of each its file, by its checksum
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    members = {DOCUMENT: text, CHECKSUM: f"{digest_of(text)}  {DOCUMENT}\n".encode()}
    members |= {digest + ARRAYS: content for digest, content in arrays.items()}
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member)
    return file.getvalue()


def unpacked(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Undo ``packed``.

    Raises
    ------
    ValueError
        For anything else than the whole, unchanged content of a file.
    """
    if content and not content.startswith(b"PK"):
        raise ValueError(f"it does not begin as an archive: {_FOREIGN}")
    members = _members(content)
    if DOCUMENT not in members or CHECKSUM not in members:
        raise ValueError(f"it has no {DOCUMENT} with a checksum: {_FOREIGN}")
    text = members.pop(DOCUMENT)
    if members.pop(CHECKSUM) != f"{digest_of(text)}  {DOCUMENT}\n".encode():
        raise ValueError(
            f"the checksum of {DOCUMENT} is not that of the file. {_AGAIN}"
        )
    arrays = {}
    for name, member in members.items():
        digest = name.removesuffix(ARRAYS)
        if digest_of(member) != digest:
            raise ValueError(
                f"the checksum of {name} is not that of the file. {_AGAIN}"
            )
        arrays[digest] = member
    document = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    return document, arrays


def written(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"a model is saved in a folder that there is; got {str(path)!r}, and there "
            f"is no {str(path.parent)!r}. Make it first."
        )
    path = path.resolve()  # A link stays one.
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open(beside, "xb") as file:
            if path.exists():
                shutil.copymode(path, beside)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _members(content: bytes) -> dict[str, bytes]:
    """Of an archive, by name; nothing is decompressed, so that nothing grows."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            entries = archive.infolist()
            if not _is_plain(entries, len(content)):
                raise ValueError("it has compressed, overlapping or repeated members")
            return {entry.filename: archive.read(entry) for entry in entries}
    # What zipfile raises for damaged archives is not one kind of error.
    except Exception as error:
        raise ValueError(
            f"it is no whole archive of skbayesnn.save ({error}). {_AGAIN}"
        ) from error


def _is_plain(entries: list[zipfile.ZipInfo], n_bytes: int) -> bool:
    """Whether the members, as they are, fit into the file beside each other."""
    sizes = [entry.file_size for entry in entries]
    stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
    as_they_are = sizes == [entry.compress_size for entry in entries]
    names = {entry.filename for entry in entries}
    return stored and as_they_are and len(names) == len(sizes) and sum(sizes) < n_bytes


def _once(pairs) -> dict:
    """A JSON object, no name of which is repeated."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"{DOCUMENT} repeats a name among {sorted(found)}.")
    return found


def _no_number(text):
    raise ValueError(f"{DOCUMENT} has {text}, which is no number of JSON.")
