"""The order of the classes of y, and which of them have training rows.

``classes_`` is sorted, as in scikit-learn. The likelihood may number the classes
differently: it uses the order that y declares, if any, and leaves out classes without
training rows.
"""

import re
from typing import Any

import numpy as np

from skbayesnn._runtime import warn

# Labels that alphabetical order sorts correctly: single characters, leading digits.
_SORTABLE = re.compile(r".|\d.*", re.DOTALL)


def declared_order(y) -> list | None:
    """Return the categories of y from first to last, or None if y declares no order.

    y : a pandas Series (or frame of one column) of an ordered ``Categorical``, and a
        polars Series of an ``Enum``, declare an order
    """
    is_frame = len(getattr(y, "shape", ())) == 2 and hasattr(y, "dtypes")
    dtypes: list[Any] = list(y.dtypes) if is_frame else [getattr(y, "dtype", None)]
    # In pandas an attribute declares the order; a polars Enum is always ordered.
    ordered = [
        list(dtype.categories)
        for dtype in dtypes
        if getattr(dtype, "ordered", type(dtype).__name__ == "Enum")
    ]
    return ordered[0] if len(dtypes) == len(ordered) == 1 else None


def if_ordered(y):
    """Return y if it declares an order of its categories, otherwise None."""
    return None if declared_order(y) is None else y


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
