"""The axis of members: select and concatenate the members of trees of arrays.

A tree is an array or tensor, or a dict, list, tuple or :class:`ByMember` of trees.
Arrays without axes and other values belong to all members.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch

_Tree = TypeVar("_Tree")


class ByMember:
    """Base of dataclasses whose arrays have an axis of members.

    It is the first axis, unless the field has the metadata {"axis": ...}.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def select(self, members: np.ndarray) -> Self:
        """Select members by index; an index may occur several times."""
        return select(self, members)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the members of several parts."""
        return _concatenate(parts)


def mapped(function: Callable, *trees: Any, axis: int = 0) -> Any:
    """Call ``function(axis, *arrays)`` for the arrays of trees of one structure.

    Trees that are None are left out.
    """
    trees = tuple(tree for tree in trees if tree is not None)
    if not trees:
        return None
    first = trees[0]
    if isinstance(first, np.ndarray | torch.Tensor):
        return function(axis, *trees) if first.ndim else first
    if isinstance(first, ByMember):
        changes = {
            field.name: mapped(
                function,
                *(getattr(tree, field.name) for tree in trees),
                axis=field.metadata.get("axis", 0),
            )
            for field in fields(first)
            if field.init
        }
        return replace(first, **changes)
    if isinstance(first, dict):
        return {
            name: mapped(function, *(tree[name] for tree in trees), axis=axis)
            for name in first
        }
    if isinstance(first, list | tuple):
        items = [
            mapped(function, *parts, axis=axis) for parts in zip(*trees, strict=True)
        ]
        is_named = hasattr(first, "_fields")
        return type(first)(*items) if is_named else type(first)(items)
    return first


def select(
    tree: _Tree, members: np.ndarray | torch.Tensor, shared: bool = False
) -> _Tree:
    """Select members by index; an index may occur several times.

    shared : whether an axis of length 1 stands for all members
    """

    def selected(axis, values):
        if shared and values.shape[axis] == 1:
            return values
        if isinstance(values, np.ndarray):
            return values.take(members, axis)
        return values.index_select(axis, torch.as_tensor(members).to(values.device))

    return mapped(selected, tree)


def on_device(
    tree: _Tree, device: torch.device, dtype: torch.dtype | None = None
) -> _Tree:
    """Move tensors to a device, in a precision; NumPy's arrays stay."""

    def moved(_, values):
        is_tensor = isinstance(values, torch.Tensor)
        return values.to(device, dtype) if is_tensor else values

    return mapped(moved, tree)


def _concatenate(trees: Sequence[_Tree]) -> _Tree:
    def joined(axis, *parts):
        if isinstance(parts[0], np.ndarray):
            return np.concatenate(parts, axis)
        return torch.cat(parts, axis)

    return mapped(joined, *trees)
