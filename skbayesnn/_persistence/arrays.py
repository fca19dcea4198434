"""Arrays <-> members in NumPy's format, or numbers of the document where they are few.

What the document says of an array and what its member says must agree; members are read
without pickles.
"""

import math
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np

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
