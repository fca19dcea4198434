"""File format: a zip archive of a document and its arrays, with checksums.

The archive is not compressed. It contains ``model.json``, its checksum in the format of
``sha256sum``, and members named by their SHA-256: arrays in NumPy's format (``.npy``)
and objects of other packages as archives of skops (``.skops``). The document contains
small arrays itself. Arrays are read without pickles.
"""

import hashlib
import json
import math
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO, TextIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from skbayesnn._runtime import replaced

# ---- archive

DOCUMENT, CHECKSUM = "model.json", "model.json.sha256"
# Position of the name of the first member in an archive.
_NAME_AT = 30
ARRAY, FOREIGN = ".npy", ".skops"
File = str | os.PathLike | BinaryIO
_NOT_BINARY = (
    "`file` must be a binary file object; got {}. Open it in mode 'rb' or 'wb'."
)
_AGAIN = "Copy it again from where it was saved, or save the model again."
_NOT_OURS = (
    "skbayesnn.save has not written it. Load a pickle with joblib.load, and a file of "
    "skops with skops.io.load."
)


def compute_digest(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def packed(document: dict[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Content of a file; equal for equal documents and members.

    members : by name, which is a checksum with a suffix
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    about = {DOCUMENT: text, CHECKSUM: f"{compute_digest(text)}  {DOCUMENT}\n".encode()}
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, member in {**about, **members}.items():
            archive.writestr(zipfile.ZipInfo(name), member)
    return file.getvalue()


def is_model_file(path: Path) -> bool:
    """Whether a file is empty, or starts as ``packed`` does."""
    with path.open("rb") as file:
        start = file.read(_NAME_AT + len(DOCUMENT))
    return not start or start[_NAME_AT:] == DOCUMENT.encode()


def unpacked(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Undo ``packed``.

    Raises
    ------
    ValueError
        If this is not the whole, unchanged content of a file.
    """
    if content and not content.startswith(b"PK"):
        raise ValueError(f"it does not begin as an archive: {_NOT_OURS}")
    members = members_of(content)
    if DOCUMENT not in members or CHECKSUM not in members:
        raise ValueError(f"it has no {DOCUMENT} with a checksum: {_NOT_OURS}")
    text = members.pop(DOCUMENT)
    if members.pop(CHECKSUM) != f"{compute_digest(text)}  {DOCUMENT}\n".encode():
        raise ValueError(
            f"the checksum of {DOCUMENT} does not match its content. {_AGAIN}"
        )
    for name, member in members.items():
        if compute_digest(member) != Path(name).stem:
            raise ValueError(
                f"the checksum of {name} does not match its content. {_AGAIN}"
            )
    try:
        document = json.loads(
            text, object_pairs_hook=_without_repeats, parse_constant=_no_constants
        )
    except RecursionError:
        raise ValueError(f"{DOCUMENT} is nested too deeply.") from None
    return document, members


# ---- files


def name_of(file) -> str:
    """Description of a path or file object, for messages."""
    if _is_path(file):
        return repr(os.fspath(file))
    return f"the file object {getattr(file, 'name', file)!r}"


def read(file: File) -> bytes:
    """Content of a file, or of a binary file object from its current position on."""
    if _is_path(file) or not hasattr(file, "read"):
        return _path_of(file).read_bytes()
    content = file.read()
    if not isinstance(content, bytes):
        raise TypeError(_NOT_BINARY.format(name_of(file)))
    return content


def write(file: File, content: bytes) -> None:
    """Write to a file object, or to a path, which is replaced only if this succeeds."""
    if hasattr(file, "write") and not _is_path(file):
        if isinstance(file, TextIOBase):
            raise TypeError(_NOT_BINARY.format(name_of(file)))
        file.write(content)
        return
    path = _path_of(file)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"the folder of `file` must exist; got {str(path)!r}. Create "
            f"{str(path.parent)!r} first."
        )
    if path.is_file() and not is_model_file(path):
        raise FileExistsError(
            "`file` must be a new file, or one of skbayesnn.save, which is replaced; "
            f"got {str(path)!r}, which has other content. Give another name, or remove "
            "the file."
        )
    with replaced(path) as part, open(part, "xb") as opened:
        if path.exists():
            shutil.copymode(path, part)
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def _is_path(file) -> bool:
    """Whether this is a path; some paths have methods ``read`` and ``write``, too."""
    return isinstance(file, str | os.PathLike)


def _path_of(file) -> Path:
    """Path of a file, which need not exist."""
    if isinstance(file, bytes | bytearray | memoryview):
        raise TypeError(
            "`file` must be a path or a binary file object; got bytes. Use "
            "skbayesnn.dumps and skbayesnn.loads for bytes."
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
    """Members of an archive by name.

    Members must not be compressed: a small file must not need much memory.
    """
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            entries = archive.infolist()
            if not _is_plain(entries, len(content)):
                raise ValueError("it has compressed, overlapping or repeated members")
            return {entry.filename: archive.read(entry) for entry in entries}
    # zipfile raises several types of errors for damaged archives.
    except Exception as error:
        raise ValueError(
            f"it is no whole archive of skbayesnn.save ({error}). {_AGAIN}"
        ) from error


def _is_plain(entries: list[zipfile.ZipInfo], n_bytes: int) -> bool:
    """Whether the members are uncompressed, distinct and do not overlap."""
    sizes = [entry.file_size for entry in entries]
    is_stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
    has_sizes = sizes == [entry.compress_size for entry in entries]
    is_distinct = len({entry.filename for entry in entries}) == len(sizes)
    return is_stored and has_sizes and is_distinct and sum(sizes) < n_bytes


def _without_repeats(pairs) -> dict:
    """A JSON object as dict; raise if a name is repeated."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError(f"{DOCUMENT} repeats a name among {sorted(entries)}.")
    return entries


def _no_constants(text):
    raise ValueError(f"{DOCUMENT} contains {text}, which is not valid JSON.")


# ---- arrays

# Largest number of entries of an array that the document contains.
FEW = 32
# Largest number of bytes of an array that the document contains.
FEW_BYTES = 1 << 16
# Kinds of dtypes: booleans, integers, floats, strings and bytes.
DTYPE_KINDS = "biufUS"
# Largest number of bytes of a numeric entry.
MAX_NUMBER = 8


def is_small(values: np.ndarray) -> bool:
    """Whether the document can contain the array exactly, as JSON."""
    is_finite = values.dtype.kind != "f" or np.isfinite(values).all()
    # Nested lists without entries do not determine the shape.
    is_few = 0 < values.size <= FEW and values.nbytes <= FEW_BYTES
    return is_few and is_finite and values.dtype.kind != "S"


def is_plain(dtype: np.dtype) -> bool:
    """Whether a dtype is supported, with the byte order of files."""
    has_size = dtype.kind in "US" or dtype.itemsize <= MAX_NUMBER
    return dtype.kind in DTYPE_KINDS and has_size and dtype.str[0] in "<|"


def as_stored(values: np.ndarray) -> np.ndarray:
    """Convert to the byte order of files."""
    return values.astype(values.dtype.newbyteorder("<"), copy=False)


def as_member(values: np.ndarray) -> bytes:
    """Content of a member in NumPy's format."""
    file = BytesIO()
    np.lib.format.write_array(file, values, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def dtype_named(text: Any) -> np.dtype:
    """dtype from its string in a document.

    Raises
    ------
    ValueError
        If the dtype is not supported, or is spelled differently.
    """
    try:
        dtype = np.dtype(text) if isinstance(text, str) and len(text) < 16 else None
    except (TypeError, ValueError):  # no dtype has this name or size
        dtype = None
    if dtype is None or dtype.str != text or not is_plain(dtype):
        raise ValueError(
            f"an array has the dtype {text!r:.40}, which skbayesnn.save does not write."
        )
    return dtype


def small_array(text: Any, values: Any) -> np.ndarray:
    """Array from nested lists in a document, with at most ``FEW`` entries."""
    dtype, entries = dtype_named(text), list(_entries(values))
    longest = max(
        (len(entry) for entry in entries if isinstance(entry, str)), default=0
    )
    most_bytes = max(FEW_BYTES, FEW * np.dtype(f"U{longest}").itemsize)
    if len(entries) > FEW or len(entries) * dtype.itemsize > most_bytes:
        raise ValueError(
            f"an array in the document must have at most {FEW} entries and "
            f"{most_bytes} bytes; got {len(entries)} of dtype {text!r}."
        )
    array = np.array(values, dtype=dtype)
    if repr(array.tolist()) != repr(values):
        raise ValueError(f"an array must have the dtype {text!r}; got {values!r}.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def member_array(content: bytes) -> np.ndarray:
    """Array of a member; its header is compared with the size of the content."""
    file = BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("a member has another version of NumPy's format than 1.0.")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    n_bytes = len(content) - file.tell()
    if not is_plain(dtype) or math.prod(shape) * dtype.itemsize != n_bytes:
        raise ValueError(
            f"a member has an array of shape {shape} and dtype {dtype.str!r:.40} in "
            f"{n_bytes} bytes, which skbayesnn.save does not write."
        )
    flat = np.frombuffer(content, dtype, offset=file.tell())
    array = flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)
    return array.astype(dtype.newbyteorder("="), order="K", copy=True)


def _entries(values: Any) -> Iterator[Any]:
    """Entries of nested lists."""
    if isinstance(values, list):
        for value in values:
            yield from _entries(value)
    else:
        yield values
