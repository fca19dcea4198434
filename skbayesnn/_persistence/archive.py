"""Bytes of arrays and a document <-> one file, with checksums.

A zip archive without compression: ``model.json``, its checksum in the format of
``sha256sum``, and members named by their SHA-256: arrays in NumPy's format (``.npy``),
and objects of other packages as archives of skops (``.skops``).
"""

import hashlib
import json
import os
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from io import BytesIO, TextIOBase
from pathlib import Path
from typing import Any, BinaryIO

DOCUMENT, CHECKSUM = "model.json", "model.json.sha256"
ARRAY, FOREIGN = ".npy", ".skops"
File = str | os.PathLike | BinaryIO
_NOT_BINARY = (
    "`file` must be a binary file object; got {}. Open it in mode 'rb' or 'wb'."
)
_AGAIN = "Copy it again from where it was saved, or save the model again."
_NOT_OURS = (
    "skbayesnn.save has not written it. Load it with what wrote it: joblib.load for a "
    "pickle, skops.io.load for a file of skops."
)


def digest_of(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def packed(document: dict[str, Any], members: Mapping[str, bytes]) -> bytes:
    """The content of a file; the same for the same document and members.

    members : by name, a checksum with its ending
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    about = {DOCUMENT: text, CHECKSUM: f"{digest_of(text)}  {DOCUMENT}\n".encode()}
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, member in {**about, **members}.items():
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
        raise ValueError(f"it does not begin as an archive: {_NOT_OURS}")
    members = members_of(content)
    if DOCUMENT not in members or CHECKSUM not in members:
        raise ValueError(f"it has no {DOCUMENT} with a checksum: {_NOT_OURS}")
    text = members.pop(DOCUMENT)
    if members.pop(CHECKSUM) != f"{digest_of(text)}  {DOCUMENT}\n".encode():
        raise ValueError(
            f"the checksum of {DOCUMENT} is not that of the file. {_AGAIN}"
        )
    for name, member in members.items():
        if digest_of(member) != Path(name).stem:
            raise ValueError(
                f"the checksum of {name} is not that of the file. {_AGAIN}"
            )
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise ValueError(f"{DOCUMENT} is nested too deeply.") from None
    return document, members


# ---- where files are


def name_of(file) -> str:
    """A path or a file object, for messages."""
    if _is_path(file):
        return repr(os.fspath(file))
    return f"the file object {getattr(file, 'name', file)!r}"


def read(file: File) -> bytes:
    """The content of a file, or of what a binary file object has left."""
    if _is_path(file) or not hasattr(file, "read"):
        return _path_of(file).read_bytes()
    content = file.read()
    if not isinstance(content, bytes):
        raise TypeError(_NOT_BINARY.format(name_of(file)))
    return content


def write(file: File, content: bytes) -> None:
    """Write to a file object, or a file, whole or not at all."""
    if hasattr(file, "write") and not _is_path(file):
        if isinstance(file, TextIOBase):
            raise TypeError(_NOT_BINARY.format(name_of(file)))
        file.write(content)
        return
    path = _path_of(file)
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


def _is_path(file) -> bool:
    """Some paths have methods ``read`` and ``write``, too."""
    return isinstance(file, str | os.PathLike)


def _path_of(file) -> Path:
    """The path of a file; the file itself need not exist."""
    if isinstance(file, bytes | bytearray | memoryview):
        raise TypeError(
            "`file` must be a path or a binary file object; got bytes. Their functions "
            "are skbayesnn.dumps and skbayesnn.loads."
        )
    if not _is_path(file):
        raise TypeError(
            f"`file` must be a path or a binary file object; got {type(file).__name__}."
        )
    if not os.fspath(file):
        raise FileNotFoundError("`file` must be the path of a file; got ''.")
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(
            f"`file` must be the path of a file; got the folder {os.fspath(file)!r}. "
            "Give the name of a file in it."
        )
    return path


def members_of(content: bytes) -> dict[str, bytes]:
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
