"""The order of the classes of y, and which of them have training rows.

``classes_`` is sorted, as in scikit-learn. The likelihood may number the classes
differently: it uses the order that y declares, if any, and leaves out classes without
training rows.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from skbayesnn._runtime import warn

# Labels that alphabetical order sorts correctly: single characters, leading digits.
_SORTABLE = re.compile(r".|\d.*", re.DOTALL)


class OrderedLabels(np.ndarray):
    """Labels with the declared order of their categories, which rows of them keep.

    Parameters
    ----------
    labels : array-like of shape (rows,) or (rows, 1)
    orders : tuple of tuple
        Categories from first to last. Parts of a table may declare different orders;
        the order of a part that declares none is empty.
    """

    orders: tuple[tuple, ...]

    def __new__(cls, labels, orders: Iterable[tuple]):
        array = label_array(labels).view(cls)
        # Sorted: the same in every process.
        array.orders = tuple(sorted(set(orders), key=repr))
        return array

    def __array_finalize__(self, other):
        self.orders = getattr(other, "orders", ())

    def __reduce__(self):
        return OrderedLabels, (np.asarray(self), self.orders)


def if_ordered(y) -> OrderedLabels | None:
    """The labels if y declares an order of its categories, otherwise None.

    y : a pandas ``Categorical`` or Series of it (or a frame of one column), and a
        pyarrow dictionary (also in pandas), declare an order if they are ordered; a
        polars ``Enum`` does
    """
    if isinstance(y, OrderedLabels):
        return y if y.orders else None
    is_frame = len(getattr(y, "shape", ())) == 2 and hasattr(y, "dtypes")
    kinds = list(y.dtypes) if is_frame else [getattr(y, "dtype", None)]
    kind: Any = kinds[0] if len(kinds) == 1 else None
    # In pandas an attribute declares the order; a polars Enum is always ordered.
    if getattr(kind, "ordered", type(kind).__name__ == "Enum"):
        return OrderedLabels(y, [tuple(kind.categories)])
    if getattr(getattr(kind, "pyarrow_dtype", None), "ordered", False):  # of pandas
        y = (y.iloc[:, 0] if is_frame else y).array.__arrow_array__()
    if getattr(getattr(y, "type", None), "ordered", False):
        # In pyarrow each part of a column has its categories.
        parts = [part.dictionary.to_pylist() for part in getattr(y, "chunks", [y])]
        if parts:
            return OrderedLabels(y, map(tuple, parts))
    return None


def label_array(labels) -> np.ndarray:
    """Labels as an array; missing ones of pyarrow are None.

    NumPy would convert a missing value of a pyarrow dictionary to one of its values.
    """
    if getattr(labels, "null_count", 0) and hasattr(labels, "to_pylist"):
        return np.array(labels.to_pylist(), dtype=object)
    return np.asarray(labels)


def joined_labels(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate labels of parts of a table, with the orders that they declare."""
    labels = np.concatenate([np.asarray(part) for part in parts])
    if not any(isinstance(part, OrderedLabels) for part in parts):
        return labels
    orders = (getattr(part, "orders", [()]) for part in parts)
    return OrderedLabels(labels, chain.from_iterable(orders))


def declared_order(y) -> list | None:
    """Return the categories of y from first to last, or None if y declares no order.

    y : see ``if_ordered``

    Raises
    ------
    ValueError
        If parts of y declare different orders.
    """
    ordered = if_ordered(y)
    if ordered is None:
        return None
    if len(ordered.orders) > 1:
        shown = [_in_order(order) or "none" for order in ordered.orders]
        raise ValueError(
            "an ordered y must have the same categories in all parts of the table; "
            f"got {shown[0]} in one part and {shown[1]} in another. Write all parts "
            "with the same categories."
        )
    return list(ordered.orders[0])


def warn_of_sorted_text(classes) -> None:
    """Warn that text labels are ordered alphabetically, unless that looks correct."""
    texts = [label for label in classes.tolist() if isinstance(label, str)]
    if len(classes) > 2 and not all(map(_SORTABLE.fullmatch, texts)):
        warn(
            "SKB205",
            "likelihood='ordinal' takes the labels of y in alphabetical order: "
            f"{_in_order(texts)}. Is this their order? Give y as an ordered "
            "pandas.Categorical (or a polars Enum), or as integers.",
        )


def class_ranks(classes, order, present) -> tuple[int, ...] | None:
    """Index of every class in the likelihood, -1 for a class without training rows.

    None if all indices are the same as in ``classes``.

    Parameters
    ----------
    classes : ndarray of shape (classes,), sorted
    order : list or None
        Classes from first to last, may have more than ``classes``; None is sorted.
    present : ndarray of bool, (classes,)
        Whether each class has training rows.
    """
    position = np.arange(len(classes))
    if order is not None:
        positions = {label: i for i, label in enumerate(order)}
        unknown = [label for label in classes.tolist() if label not in positions]
        if unknown:
            raise ValueError(
                "the categories of an ordered y must contain every class; "
                f"{unknown} are not among {_in_order(order)}."
            )
        position = np.array([positions[label] for label in classes.tolist()])
    sequence = np.argsort(position)
    sequence = sequence[present[sequence]]
    ranks = np.full(len(classes), -1)
    ranks[sequence] = np.arange(len(sequence))
    if np.array_equal(ranks, np.arange(len(classes))):
        return None
    return tuple(ranks.tolist())


def continued_ranks(classes, order, ranks) -> tuple[int, ...] | None:
    """Return the ranks of a model whose training continues, if y does not change them.

    Raises
    ------
    ValueError
        If y orders the classes differently.
    """
    old_ranks = np.arange(len(classes)) if ranks is None else np.array(ranks)
    if order is not None and class_ranks(classes, order, old_ranks >= 0) != ranks:
        before = classes[np.argsort(old_ranks)[(old_ranks < 0).sum() :]].tolist()
        raise ValueError(
            "continued training (warm_start, partial_fit) must keep the order of the "
            f"classes; it was {_in_order(before)}, y has {_in_order(order)}. Give y "
            "the same categories, or fit a clone."
        )
    return ranks


def _in_order(labels) -> str:
    return " < ".join(map(repr, labels))
