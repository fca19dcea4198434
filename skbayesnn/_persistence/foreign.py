"""Objects of other packages as archives of skops, and the types in these archives.

skops constructs objects of all types that it trusts, and validates no values. A file
with such parts is therefore loaded only if the user trusts every type in them, also
scikit-learn's. Estimators of this package inside of such objects are validated.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from skbayesnn._persistence.file_format import FOREIGN, members_of
from skbayesnn._persistence.schema import stored_class_of, trusted_names
from skbayesnn._runtime import required

# Types of Python values and of NumPy arrays, which need no trust.
_PLAIN = {
    "builtins.NoneType",
    "builtins.bool",
    "builtins.dict",
    "builtins.float",
    "builtins.int",
    "builtins.list",
    "builtins.set",
    "builtins.slice",
    "builtins.str",
    "builtins.tuple",
    "numpy.dtype",
    "numpy.ma.MaskedArray",
    "numpy.ndarray",
} | {f"numpy.{scalar_type.__name__}" for scalar_type in np.sctypeDict.values()}
# Plain types that skops does not trust.
_NOT_OF_SKOPS = "builtins.slice", "numpy.dtype"


class UntrustedTypes(ValueError):
    """A file contains types that the user does not trust."""


def stored(value: Any) -> bytes:
    """Archive of skops with an object."""
    return _skops().dumps(value)


def loaded(content: bytes, trusted: Collection[str]) -> Any:
    """Undo ``stored``, and validate estimators of this package.

    trusted : contains all ``types_of(content)``, which the caller must check
    """
    trusted = [*trusted, *_package_types(), *_NOT_OF_SKOPS]
    value = _skops().loads(content, trusted=trusted)
    for item in _reachable(value):
        stored_class = stored_class_of(item)
        if stored_class is not None:
            stored_class.check(item)
    return value


def types_of(content: bytes) -> set[str]:
    """Full names of the types in an archive of skops, without plain and package types.

    They include the types of scikit-learn and NumPy that skops trusts by default. skops
    checks their names only, and values of some of them can crash the process.
    """
    # Members are not compressed: a small archive cannot need much memory.
    schema = json.loads(members_of(content)["schema.json"])
    names = set(_named_types(schema)) | set(_skops().get_untrusted_types(data=content))
    return names - _PLAIN - _package_types()


def untrusted_types(members: Mapping[str, bytes], trusted: Iterable = ()) -> list[str]:
    """Sorted names of the types in all skops parts of a file that are not trusted."""
    types = [
        types_of(content) for name, content in members.items() if name.endswith(FOREIGN)
    ]
    # Without such types the user would have nothing to trust, and skops would construct
    # an object without consent.
    if not all(types):
        raise ValueError("it has a part of skops without types of other packages.")
    return sorted(set().union(*types) - set(trusted))


def names_of(trusted: Iterable | None) -> set[str]:
    """Full names of types, which are names or types."""
    if trusted is None:
        return set()
    if isinstance(trusted, str | bool) or not isinstance(trusted, Iterable):
        raise TypeError(
            f"`trusted` must be a list of names or types; got {trusted!r}. "
            "skbayesnn.get_untrusted_types returns the types of a file."
        )
    return {
        item if isinstance(item, str) else f"{item.__module__}.{item.__name__}"
        for item in trusted
    }


@cache
def _package_types() -> frozenset[str]:
    return frozenset(trusted_names())


def _named_types(schema: Any) -> Iterator[str]:
    """Full names of all types in a schema of skops."""
    if isinstance(schema, dict):
        if "__class__" in schema:
            yield f"{schema.get('__module__')}.{schema['__class__']}"
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            yield from _named_types(item)


def _reachable(value: Any) -> Iterator[Any]:
    """An object, and all objects reachable through attributes and entries."""
    todo, seen = [value], set()
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, str | bytes | type):
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, np.ndarray):
            todo += item.ravel().tolist() if item.dtype.kind == "O" else []
        elif isinstance(item, Mapping):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            todo += item
        else:
            todo += getattr(item, "__dict__", {}).values()


def _skops():
    """Import skops, or raise with the command that installs it."""
    user = "objects of other packages are stored by"
    return required("skops.io", user, 'pip install "skbayesnn[skops]"')
