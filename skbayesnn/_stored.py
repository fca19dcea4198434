"""What objects store: annotations of their attributes, and the check of these.

A class declares the type, the values and the named axes of each attribute once::

    coef_: Annotated[Floats, "targets, columns"]
    noise_variance_: Annotated[Floats, "targets", POSITIVE]
    n_features_in_: NumberOfColumns

An axis has the same size in all attributes of an object. Lists, tuples and dicts have
one axis, and so have numbers, of size 1. ``"levels + 1"`` is one more than the size of
``"levels"``; ``"_"`` and a last ``"..."`` are axes without a name. Floats must be
finite unless an annotation allows other values. An annotation in an annotation is a
further rule, which type checkers do not read: ``Annotated[Any, int | None]``.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from zoneinfo import ZoneInfo

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skbayesnn._typing import Array

# ---- parts of annotations


@dataclass(frozen=True)
class Values:
    """Allowed values of a number or of an array, as text and as an elementwise test."""

    what: str
    allowed: Callable[[np.ndarray], Any]


@dataclass(frozen=True)
class Property:
    """A property of a value, as text and as a test."""

    what: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Kinds:
    """Kinds of an array's dtype, as text and as characters."""

    what: str
    kinds: str


@dataclass(frozen=True)
class Size:
    """The number is the size of an axis."""

    axis: str


@dataclass(frozen=True)
class Index:
    """The numbers are positions on an axis; some may be ``low`` instead."""

    axis: str
    low: int = 0


class _Optional:
    """Marks an attribute that some fitted objects do not have."""


OPTIONAL = _Optional()


def between(low: float, high: float) -> Values:
    """Values in a closed interval."""
    return Values(f"from {low} to {high}", lambda v: (v >= low) & (v <= high))


ANY = Values("", lambda v: True)
FINITE = Values("finite", np.isfinite)
POSITIVE = Values("finite and > 0", lambda v: np.isfinite(v) & (v > 0))
NOT_NEGATIVE = Values("finite and >= 0", lambda v: np.isfinite(v) & (v >= 0))
SHARE = Values("in [0, 1]", lambda v: (v >= 0) & (v <= 1))
PROPER_SHARE = Values("in [0, 1)", lambda v: (v >= 0) & (v < 1))
NOT_NAN = Values("not NaN", lambda v: ~np.isnan(v))
# For weights: a standard deviation of zero has the logarithm -inf.
NOT_NAN_OR_INF = Values("neither NaN nor inf", lambda v: v < np.inf)


def is_number(value) -> bool:
    """Whether this is a real number, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def is_fitted(value) -> bool:
    """Whether this is a fitted estimator."""
    try:
        check_is_fitted(value)
    except (TypeError, NotFittedError):
        return False
    return True


def _are_distinct(value: np.ndarray) -> bool:
    labels = value.tolist()
    are_finite = all(not is_number(label) or math.isfinite(label) for label in labels)
    return are_finite and len(set(labels)) == len(labels)


def _is_choice_of_columns(value) -> bool:
    if value is None or isinstance(value, str):
        return True
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.ndim == 1 else None
    names = str | bool | np.bool_ | Integral
    return isinstance(value, list | tuple) and all(
        isinstance(v, names)
        # The name of a column of a frame with levels of names.
        or (isinstance(v, tuple) and all(isinstance(part, names) for part in v))
        for v in value
    )


def _is_time_zone(value) -> bool:
    """Whether pandas or polars know a time zone: a name, or an offset from UTC."""
    if not re.fullmatch(r"[\w/+:-]{1,64}", value, re.A):
        return False
    if re.fullmatch(r"(UTC)?[+-]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", value):
        return True
    try:
        ZoneInfo(value)
    except (KeyError, OSError, ValueError):  # not found, a folder, not a name
        return False
    return True


def each(values: Values) -> Property:
    """Of a parameter: None, a string, a number, or a sequence of numbers."""

    def holds(value):
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            return isinstance(value, str)
        return value is None or bool(np.all(values.allowed(array)))

    return Property(f"a string, or numeric values, {values.what}", holds)


# Of the inputs of each weight layer.
Rates = Annotated[Any, each(PROPER_SHARE)]
RISING = Property("rising", lambda v: bool((np.diff(v, axis=0) > 0).all()))
SORTED = Property("not falling", lambda v: bool((np.diff(v, axis=0) >= 0).all()))
# Compiled functions read arrays of these sizes.
BITS_16 = Property("of 16 bits", lambda v: v.dtype.itemsize == 2)
BITS_32 = Property("of 32 bits", lambda v: v.dtype.itemsize == 4)
BITS_64 = Property("of 64 bits", lambda v: v.dtype.itemsize == 8)

Floats = Annotated[Array, Kinds("floats", "f")]
Integers = Annotated[Array, Kinds("integers", "i")]
Numbers = Annotated[Array, Kinds("integers or floats", "iuf")]
Bools = Annotated[Array, Kinds("booleans", "b")]
# Scores, times and curves, on which no prediction depends.
Record = Annotated[float, ANY]
Records = Annotated[Floats, ANY]
Count = Annotated[int, NOT_NEGATIVE]
PositiveCount = Annotated[int, POSITIVE]
PositiveFloat = Annotated[float, POSITIVE]
PerTarget = Annotated[
    Any, Annotated[float, "targets", POSITIVE] | Annotated[Floats, "targets", POSITIVE]
]
PerLayer = Annotated[
    Any, Annotated[float, NOT_NEGATIVE] | Annotated[Floats, NOT_NEGATIVE]
]
NumberOfColumns = Annotated[int, POSITIVE, Size("columns")]
Labels = Annotated[
    Array,
    Kinds("labels", "biufUSO"),
    "classes",
    Property("finite and each only once", _are_distinct),
]
Seeds = Annotated[Integers, "networks", NOT_NEGATIVE, BITS_64]
# The state of a generator is checked when it is decoded.
Seed = Annotated[
    Any, Annotated[int, between(0, 2**32 - 1)] | np.random.RandomState | None
]
Estimator = Annotated[Any, Property("an estimator", lambda v: hasattr(v, "fit"))]
Fitted = Annotated[Any, Property("a fitted estimator", is_fitted)]
# Columns of a frame have names; columns of an array have positions.
ColumnName = str | int
ColumnNames = (
    list[str]
    | Annotated[
        Array,
        Kinds("strings", "O"),
        "columns",
        Property("strings only", lambda v: all(type(name) is str for name in v)),
    ]
)
ColumnChoice = Annotated[
    Any,
    Property(
        "None, a string, or a sequence of strings, integers, bools or tuples of them",
        _is_choice_of_columns,
    ),
]
TimeZone = Annotated[str, Property("the name of a time zone", _is_time_zone)]


# ---- check


class Axes:
    """Sizes of the axes of one object, each with the attribute that has it first."""

    def __init__(self):
        self._sizes: dict[str, tuple[int, str]] = {}
        self._positions: list[tuple[str, Index, Any]] = []
        self.attribute = ""

    def agree(self, axis: str, size: int, where: str | None = None) -> None:
        """Raise if an earlier attribute has another size of this axis."""
        where = where or f"`{self.attribute}`"
        first, first_where = self._sizes.setdefault(axis, (size, where))
        if first != size:
            raise ValueError(
                f"{first_where} and {where} must agree in the number of {axis}; got "
                f"{first} and {size}."
            )

    def has(self, names: str, shape: tuple[int, ...]) -> bool:
        """Whether a shape has these axes; their sizes must agree."""
        axes = names.split(", ")
        if axes[-1] == "...":
            axes.pop()
            shape = shape[: len(axes)]
        if len(axes) != len(shape):
            return False
        for axis, size in zip(axes, shape, strict=True):
            axis, _, more = axis.partition(" + ")
            if axis.isdigit() and size != int(axis):
                return False
            if not (axis.isdigit() or axis == "_"):
                self.agree(axis, size - int(more or 0))
        return True

    def add_positions(self, index: Index, values) -> bool:
        """Store positions, which ``check_positions`` checks."""
        self._positions.append((self.attribute, index, values))
        return True

    def check_positions(self) -> None:
        """Raise if a position does not exist."""
        for attribute, index, values in self._positions:
            size, low = self._sizes.get(index.axis, (0, ""))[0], index.low
            if np.size(values) and not low <= np.min(values) <= np.max(values) < size:
                raise ValueError(
                    f"`{attribute}` must be from {low} to {size - 1}, the positions of "
                    f"{index.axis}; got {np.min(values)} to {np.max(values)}."
                )


@dataclass(frozen=True)
class Rule:
    """The rule of an annotation, as text and as a test that collects sizes of axes."""

    what: str
    holds: Callable[[Any, Axes], bool]


def check_stored(
    state: Mapping[str, Any], annotations: Mapping[str, Any], name: str
) -> Axes:
    """Check the attributes in a state that have an annotation.

    name : of the class, for messages

    Raises
    ------
    ValueError
        If an attribute breaks its rule, or two attributes differ in the size of an
        axis.
    """
    axes = Axes()
    for attribute in filter(state.__contains__, annotations):
        axes.attribute = attribute
        rule, stored = rule_of(annotations[attribute]), state[attribute]
        if not rule.holds(stored, axes):
            raise ValueError(
                f"`{attribute}` of {name} must be {rule.what}; got {stored!r:.200}."
            )
    axes.check_positions()
    return axes


def annotations_of(kind: type) -> dict[str, Any]:
    """Annotations of the attributes of a class and of its bases."""
    return get_type_hints(kind, include_extras=True)


@cache
def rule_of(annotation: Any) -> Rule:
    """The rule of an annotation."""
    kind, marks = annotation, []
    if get_origin(annotation) is Annotated:
        kind, *marks = get_args(annotation)
    if kind is float or np.ndarray in (kind, get_origin(kind)):
        dtypes = [mark.kinds for mark in marks if isinstance(mark, Kinds)]
        has_floats = not dtypes or "f" in dtypes[0]
        if has_floats and not any(isinstance(mark, Values) for mark in marks):
            marks.append(FINITE)
    rules = [_rule_of_type(kind)]
    rules += [_rule_of_mark(mark) for mark in marks if mark is not OPTIONAL]
    return Rule(
        "".join(rule.what for rule in rules).removeprefix(", "),
        lambda v, axes: all(rule.holds(v, axes) for rule in rules),
    )


def _rule_of_mark(mark: Any) -> Rule:
    if isinstance(mark, str):
        return Rule(
            f" with axes ({mark})", lambda v, axes: axes.has(mark, _shape_of(v))
        )
    if isinstance(mark, Kinds):
        return Rule(f" of {mark.what}", lambda v, axes: v.dtype.kind in mark.kinds)
    if isinstance(mark, Size):
        return Rule("", lambda v, axes: axes.has(mark.axis, (v,)))
    if isinstance(mark, Index):
        return Rule("", lambda v, axes: axes.add_positions(mark, v))
    if isinstance(mark, Values):
        what, holds = mark.what, lambda v, axes: _allows(mark, v)
    elif isinstance(mark, Property):
        what, holds = mark.what, lambda v, axes: mark.holds(v)
    else:
        what, holds = rule_of(mark).what, rule_of(mark).holds
    return Rule(f", {what}" if what else "", holds)


def _shape_of(value) -> tuple[int, ...]:
    if isinstance(value, np.ndarray):
        return value.shape
    return (1,) if is_number(value) else (len(value),)


_NUMBERS = {int: ("an integer", Integral), float: ("a number", Real)}
_NAMES = {str: "a string", bool: "True or False", np.ndarray: "an array"}


def _rule_of_type(kind: Any) -> Rule:
    """The rule of a type without its marks."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return Rule("", lambda v, axes: True)
    if kind in (None, NoneType):
        return Rule("None", lambda v, axes: v is None)
    if kind in _NUMBERS:
        what, number = _NUMBERS[kind]
        return Rule(what, lambda v, axes: is_number(v) and isinstance(v, number))
    if origin in (Union, UnionType):
        rules = [rule_of(arg) for arg in args]
        return Rule(
            " or ".join(rule.what for rule in rules),
            lambda v, axes: any(rule.holds(v, axes) for rule in rules),
        )
    if origin is Literal:
        return Rule(
            f"one of {', '.join(map(repr, args))}",
            lambda v, axes: type(v) is type(args[0]) and v in args,
        )
    if is_typeddict(kind):
        return _rule_of_keys(kind)
    if origin is dict:
        rule = rule_of(args[1])
        return Rule(
            f"a dict by name{_each(rule)}",
            lambda v, axes: (
                isinstance(v, dict)
                and all(isinstance(key, str) for key in v)
                and all(rule.holds(item, axes) for item in v.values())
            ),
        )
    if origin is tuple and args[-1] is not ...:
        rules = [rule_of(arg) for arg in args]
        return Rule(
            f"a tuple of {len(rules)}: {', '.join(rule.what for rule in rules)}",
            lambda v, axes: (
                isinstance(v, tuple)
                and len(v) == len(rules)
                and all(r.holds(i, axes) for r, i in zip(rules, v, strict=True))
            ),
        )
    if origin in (list, tuple):
        rule = rule_of(args[0])
        return Rule(
            f"a {origin.__name__}{_each(rule)}",
            lambda v, axes: (
                isinstance(v, origin) and all(rule.holds(item, axes) for item in v)
            ),
        )
    kind = origin or kind
    accepted = (bool, np.bool_) if kind is bool else kind
    return Rule(
        _NAMES.get(kind, f"a {kind.__name__}"), lambda v, axes: isinstance(v, accepted)
    )


def _each(rule: Rule) -> str:
    return f" (each {rule.what})" if rule.what else ""


def _rule_of_keys(kind: Any) -> Rule:
    """The rule of a dict with fixed keys."""
    rules = {key: rule_of(item) for key, item in annotations_of(kind).items()}
    return Rule(
        f"with the keys and types of {kind.__name__}",
        lambda v, axes: (
            isinstance(v, dict)
            and kind.__required_keys__ <= v.keys() <= rules.keys()
            and all(rules[key].holds(item, axes) for key, item in v.items())
        ),
    )


def _allows(values: Values, value) -> bool:
    """Whether all numbers are allowed; other kinds of arrays have no rule."""
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(float(value))
    except OverflowError:  # a very large integer
        return False
    return array.dtype.kind not in "iuf" or bool(np.all(values.allowed(array)))
