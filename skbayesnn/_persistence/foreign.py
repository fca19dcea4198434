"""Objects of other packages <-> archives of skops, and the types that these name.

skops constructs an object of any type that it is told to trust, and checks none of its
values. A file that has such parts is therefore loaded only if its reader trusts every
type in them, scikit-learn's own too. Estimators of this package that are inside of such
an object are checked as all others.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from skbayesnn._persistence.file_format import FOREIGN, members_of
from skbayesnn._persistence.schema import kind_of, trusted_names

# Values of plain Python, and what arrays are made of.
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
} | {f"numpy.{kind.__name__}" for kind in np.sctypeDict.values()}
# Those of them that skops does not trust by itself.
_NOT_OF_SKOPS = "builtins.slice", "numpy.dtype"


class UntrustedTypes(ValueError):
    """A file has parts of types that its reader has not trusted."""


def stored(value: Any) -> bytes:
    """An object as an archive of skops."""
    return _skops().dumps(value)


def loaded(content: bytes, trusted: Collection[str]) -> Any:
    """Undo ``stored``.

    trusted : at least all ``types_of`` it; the caller has compared them
    """
    value = _skops().loads(content, trusted=[*trusted, *_own(), *_NOT_OF_SKOPS])
    for one in _inside(value):
        kind = kind_of(one)
        if kind is not None:
            kind.check(one)
    return value


def types_of(content: bytes) -> set[str]:
    """Full names of all types in an archive of skops, but plain and our own ones.

    skops itself leaves out those of scikit-learn and NumPy that it trusts. It checks
    their names only: values of some of them can crash the process.
    """
    # Members are not compressed, so that nothing grows when it is read.
    schema = json.loads(members_of(content)["schema.json"])
    named = set(_named(schema)) | set(_skops().get_untrusted_types(data=content))
    return named - _PLAIN - _own()


def untrusted_types(members: Mapping[str, bytes], trusted: Iterable = ()) -> list[str]:
    """Types of all parts of a file that are not trusted, sorted."""
    parts = [one for name, one in members.items() if name.endswith(FOREIGN)]
    types = [types_of(one) for one in parts]
    # Else skops would construct something that nobody has been asked for.
    if not all(types):
        raise ValueError("it has a part of skops without types of other packages.")
    return sorted(set().union(*types) - set(trusted))


def names_of(trusted: Iterable | None) -> set[str]:
    """The full names of types, given as names or as the types themselves."""
    if trusted is None:
        return set()
    if isinstance(trusted, str | bool) or not isinstance(trusted, Iterable):
        raise TypeError(
            f"`trusted` must be a list of names or types; got {trusted!r}. "
            "skbayesnn.get_untrusted_types lists those of a file."
        )
    return {one if isinstance(one, str) else _name_of(one) for one in trusted}


def _name_of(one) -> str:
    return f"{one.__module__}.{one.__name__}"


@cache
def _own() -> frozenset[str]:
    return frozenset(trusted_names())


def _named(schema: Any) -> Iterator[str]:
    """All types that a schema of skops names."""
    if isinstance(schema, dict):
        if "__class__" in schema:
            yield f"{schema.get('__module__')}.{schema['__class__']}"
        schema = list(schema.values())
    if isinstance(schema, list):
        for one in schema:
            yield from _named(one)


def _inside(value: Any) -> Iterator[Any]:
    """An object and all that can be reached through its attributes and entries."""
    todo, seen = [value], set()
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, str | bytes | type):
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, np.ndarray):
            todo += one.ravel().tolist() if one.dtype.kind == "O" else []
        elif isinstance(one, Mapping):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            todo += one
        else:
            todo += getattr(one, "__dict__", {}).values()


def _skops():
    """The library, or how to get it."""
    try:
        import skops.io
    except ImportError as error:
        raise ImportError(
            "objects of other packages are stored by skops, which is not installed: "
            'pip install "skbayesnn[skops]"'
        ) from error
    return skops.io
