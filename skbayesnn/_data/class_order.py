"""The order of the classes of y, and which of them have training rows.

``classes_`` is sorted, as in scikit-learn. A likelihood numbers its classes otherwise
where y has an order of its own, and leaves out classes without training rows.
"""

import re
from typing import Any

import numpy as np

from skbayesnn._runtime import warn

# Texts of which sorting shows the order that is meant.
_SORTABLE = re.compile(r".|\d.*", re.DOTALL)


def declared_order(y) -> list | None:
    """Categories of y from first to last; None where it does not order them.

    y : a pandas Series (or frame of one column) of an ordered ``Categorical``, or a
        polars Series of an ``Enum``, has an order; all else has none
    """
    is_frame = len(getattr(y, "shape", ())) == 2 and hasattr(y, "dtypes")
    dtypes: list[Any] = list(y.dtypes) if is_frame else [getattr(y, "dtype", None)]
    # pandas has it as an attribute; an Enum is always ordered.
    ordered = [
        list(dtype.categories)
        for dtype in dtypes
        if getattr(dtype, "ordered", type(dtype).__name__ == "Enum")
    ]
    return ordered[0] if len(dtypes) == len(ordered) == 1 else None


def if_ordered(y):
    """y as it is, if its categories have an order; else None."""
    return None if declared_order(y) is None else y


def warn_of_sorted_text(classes) -> None:
    """Say that labels which are texts are in the order of the alphabet."""
    texts = [label for label in classes.tolist() if isinstance(label, str)]
    if len(classes) > 2 and not all(map(_SORTABLE.fullmatch, texts)):
        warn(
            "likelihood='ordinal' takes the labels of y in alphabetical order: "
            f"{_in_order(texts)}. Is this their order? Give y as an ordered "
            "pandas.Categorical (or a polars Enum), or as integers."
        )


def class_ranks(classes, order, present) -> tuple[int, ...] | None:
    """The number of every class in the likelihood, -1 for one without training rows.

    None where that is its number in ``classes``.

    Parameters
    ----------
    classes : ndarray of shape (classes,), sorted
    order : list or None
        Of at least these classes, from first to last; None is sorted.
    present : ndarray of bool, (classes,)
        Whether each has training rows.
    """
    place = np.arange(len(classes))
    if order is not None:
        places = {label: i for i, label in enumerate(order)}
        unknown = [label for label in classes.tolist() if label not in places]
        if unknown:
            raise ValueError(
                "the categories of an ordered y must hold every class; "
                f"{unknown} are not among {_in_order(order)}."
            )
        place = np.array([places[label] for label in classes.tolist()])
    sequence = np.argsort(place)
    sequence = sequence[present[sequence]]
    ranks = np.full(len(classes), -1)
    ranks[sequence] = np.arange(len(sequence))
    if np.array_equal(ranks, np.arange(len(classes))):
        return None
    return tuple(ranks.tolist())


def ranks_going_on(classes, order, ranks) -> tuple[int, ...] | None:
    """Those of a model that is trained further, where y does not order them otherwise.

    Raises
    ------
    ValueError
        For classes in another order.
    """
    known = np.arange(len(classes)) if ranks is None else np.array(ranks)
    if order is not None:
        asked = class_ranks(classes, order, known >= 0)
        if asked != ranks:
            before = classes[np.argsort(known)[(known < 0).sum() :]].tolist()
            raise ValueError(
                "training that goes on (warm_start, partial_fit) must keep the order "
                f"of the classes; it was {_in_order(before)}, y has "
                f"{_in_order(order)}. Give y the same categories, or fit a clone."
            )
    return ranks


def _in_order(labels) -> str:
    return " < ".join(map(repr, labels))
