"""The file format: a zip archive of a document and its arrays, with checksums.

The archive is not compressed. It holds ``model.json``, its checksum in the format of
``sha256sum``, and members named by their SHA-256: arrays in NumPy's format (``.npy``)
and objects of other packages as archives of skops (``.skops``). Small arrays are
numbers in the document. Arrays are read without pickles, and a member must match what
the document states about it.
"""

import hashlib
import json
import math
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO, TextIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

# ---- archive

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


# ---- files


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


# ---- arrays

# An array of at most so many numbers, and bytes, stands in the document.
FEW, FEW_BYTES = 32, 1 << 16
# Booleans, integers, floating-point numbers, strings and bytes.
KINDS, LARGEST_NUMBER = "biufUS", 8


def is_small(values: np.ndarray) -> bool:
    """Whether the document may hold them, as JSON's numbers and strings, exactly."""
    finite = values.dtype.kind != "f" or np.isfinite(values).all()
    # Without entries, nested lists do not tell the shape.
    is_few = 0 < values.size <= FEW and values.nbytes <= FEW_BYTES
    return is_few and finite and values.dtype.kind != "S"


def is_plain(dtype: np.dtype) -> bool:
    """Whether it is one of the kinds, of the byte order that files have."""
    numbers = dtype.kind in "US" or dtype.itemsize <= LARGEST_NUMBER
    return dtype.kind in KINDS and numbers and dtype.str[0] in "<|"


def as_stored(values: np.ndarray) -> np.ndarray:
    """With the byte order that files have."""
    return values.astype(values.dtype.newbyteorder("<"), copy=False)


def as_member(values: np.ndarray) -> bytes:
    """The content of a member."""
    file = BytesIO()
    np.lib.format.write_array(file, values, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def dtype_named(text: Any) -> np.dtype:
    """Of its name in a document.

    Raises
    ------
    ValueError
        For another kind, or another spelling.
    """
    try:
        dtype = np.dtype(text) if isinstance(text, str) and len(text) < 16 else None
    except (TypeError, ValueError):  # NumPy knows none of that name or size.
        dtype = None
    if dtype is None or dtype.str != text or not is_plain(dtype):
        raise ValueError(
            f"an array has the dtype {text!r:.40}, which skbayesnn.save does not write."
        )
    return dtype


def of_few(text: Any, values: Any) -> np.ndarray:
    """An array of a document's nested lists, which hold at most ``FEW`` entries."""
    dtype, entries = dtype_named(text), list(_entries(values))
    longest = max((len(one) for one in entries if isinstance(one, str)), default=0)
    most_bytes = max(FEW_BYTES, FEW * np.dtype(f"U{longest}").itemsize)
    if len(entries) > FEW or len(entries) * dtype.itemsize > most_bytes:
        raise ValueError(
            f"an array in the document must have at most {FEW} entries and "
            f"{most_bytes} bytes; got {len(entries)} of dtype {text!r}."
        )
    found = np.array(values, dtype=dtype)
    if repr(found.tolist()) != repr(values):
        raise ValueError(f"an array is not of the dtype {text!r}: {values!r}.")
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def of_member(content: bytes, text: Any, shape: Any, fortran: Any) -> np.ndarray:
    """The array of a member that is as the document says."""
    file = BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("a member has another version of NumPy's format than 1.0.")
    told = np.lib.format.read_array_header_1_0(file)
    n_stored = len(content) - file.tell()
    dtype = dtype_named(text)
    if list(told[0]) != shape or told[1] is not fortran or told[2] != dtype:
        raise ValueError(
            f"the document has an array of shape {shape} and dtype {text!r}; its "
            f"member is of shape {list(told[0])} and dtype {told[2].str!r}."
        )
    if math.prod(shape) * dtype.itemsize != n_stored:
        raise ValueError(f"an array of shape {shape} has {n_stored} bytes.")
    numbers = np.frombuffer(content, dtype, offset=file.tell())
    found = numbers.reshape(shape[::-1]).T if fortran else numbers.reshape(shape)
    return found.astype(dtype.newbyteorder("="), order="K", copy=True)


def _entries(values: Any) -> Iterator[Any]:
    """Of nested lists."""
    if isinstance(values, list):
        for one in values:
            yield from _entries(one)
    else:
        yield values
