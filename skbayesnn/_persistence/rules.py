"""Rules for the attributes of stored objects: types and possible values.

Values must be finite unless a rule allows more. ``RECORD`` and ``RECORDS`` allow any
value: scores, times and curves, on which no prediction depends.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted


@dataclass(frozen=True)
class Rule:
    """A property of a value, as text and as a test."""

    what: str
    holds: Callable[[Any], bool]


Rules = Mapping[str, Rule]


@dataclass(frozen=True)
class Values:
    """Allowed values, as text and as an elementwise test of an array."""

    what: str
    allowed: Callable[[np.ndarray], np.ndarray]


ANY = Values("", lambda v: np.ones(v.shape, dtype=bool))
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


# ---- numbers and arrays


def number(values: Values = FINITE) -> Rule:
    """Rule for a real number."""

    def holds(value):
        if not is_number(value):
            return False
        try:
            return bool(values.allowed(np.asarray(float(value))))
        except OverflowError:  # a very large integer
            return False

    return Rule(f"a number{_suffix(values)}", holds)


def integer(low: int, high: int | None = None) -> Rule:
    """Rule for an integer, at least ``low`` and at most ``high``."""
    bounds = f">= {low}" if high is None else f"from {low} to {high}"

    def holds(value):
        is_integer = is_number(value) and isinstance(value, Integral)
        return is_integer and low <= value and (high is None or value <= high)

    return Rule(f"an integer {bounds}", holds)


def floats(values: Values = FINITE, ndim: int | None = None) -> Rule:
    """Rule for an array of floats."""
    return _array("floats", "f", values, ndim)


def numbers(values: Values = FINITE, ndim: int | None = None) -> Rule:
    """Rule for an array of integers or floats."""
    return _array("integers or floats", "iuf", values, ndim)


def integers(values: Values = NOT_NEGATIVE, ndim: int | None = 1) -> Rule:
    """Rule for an array of integers."""
    return _array("integers", "i", values, ndim)


def _array(what: str, kinds: str, values: Values, ndim: int | None) -> Rule:
    axes = {None: "", 1: " with one axis"}[ndim]

    def holds(value):
        return (
            isinstance(value, np.ndarray)
            and value.dtype.kind in kinds
            and ndim in (None, value.ndim)
            and bool(values.allowed(value).all())
        )

    return Rule(f"an array of {what}{axes}{_suffix(values)}", holds)


def _suffix(values: Values) -> str:
    return f", {values.what}" if values.what else ""


# ---- rules that combine rules


def none_or(rule: Rule) -> Rule:
    """Rule that also allows None."""
    return Rule(f"None or {rule.what}", lambda v: v is None or rule.holds(v))


def either(first: Rule, second: Rule) -> Rule:
    """Rule that holds if one of two rules holds."""
    what = f"{first.what} or {second.what}"
    return Rule(what, lambda v: first.holds(v) or second.holds(v))


def both(first: Rule, second: Rule) -> Rule:
    """Rule that holds if both rules hold; the second is tested after the first."""
    what = f"{first.what}, {second.what}"
    return Rule(what, lambda v: first.holds(v) and second.holds(v))


def list_of(rule: Rule) -> Rule:
    """Rule for a list whose entries follow a rule."""
    return Rule(
        f"a list, each {rule.what}",
        lambda v: isinstance(v, list) and all(map(rule.holds, v)),
    )


def dict_of(rule: Rule) -> Rule:
    """Rule for a dict with strings as keys, and with values that follow a rule."""
    return Rule(
        f"a dict by name, each {rule.what}",
        lambda v: (
            isinstance(v, dict)
            and all(
                isinstance(key, str) and rule.holds(item) for key, item in v.items()
            )
        ),
    )


def one_or_each(values: Values) -> Rule:
    """Rule for a parameter: None, a string, a number, or a sequence of numbers."""

    def holds(value):
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            return isinstance(value, str)
        return value is None or bool(values.allowed(array).all())

    return Rule(f"a string, or numeric values{_suffix(values)}", holds)


def of_type(required_type: type) -> Rule:
    """Rule for an instance of a class."""
    return Rule(f"a {required_type.__name__}", lambda v: isinstance(v, required_type))


def one_of(*values: str) -> Rule:
    """Rule for one of several strings."""
    return Rule(
        f"one of {', '.join(map(repr, values))}",
        lambda v: isinstance(v, str) and v in values,
    )


def with_attribute(name: str, rule: Rule) -> Rule:
    """Rule for an object with an attribute that follows a rule."""
    what = f"an object whose `{name}` is {rule.what}"
    return Rule(what, lambda v: rule.holds(getattr(v, name, None)))


def _rises(value: np.ndarray) -> bool:
    return bool((np.diff(value) > 0).all())


def _does_not_fall(value: np.ndarray) -> bool:
    return bool((np.diff(value, axis=0) >= 0).all())


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
    if not isinstance(value, str) or not re.fullmatch(r"[\w/+:-]{1,64}", value, re.A):
        return False
    if re.fullmatch(r"(UTC)?[+-]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", value):
        return True
    try:
        ZoneInfo(value)
    except (KeyError, OSError, ValueError):  # not found, a folder, not a name
        return False
    return True


def _are_bounds(value) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2
    return is_pair and all(map(number(NOT_NAN).holds, value)) and value[0] <= value[1]


FLAG = Rule("True or False", lambda v: isinstance(v, bool | np.bool_))
TEXT = Rule("a string", lambda v: isinstance(v, str))
TEXTS = Rule(
    "a tuple of strings",
    lambda v: isinstance(v, tuple) and all(isinstance(text, str) for text in v),
)
POSITIONS = Rule(
    "a tuple of integers >= 0",
    lambda v: (
        isinstance(v, tuple)
        and len(v) > 0
        and all(type(i) is int and i >= 0 for i in v)
    ),
)
DICT = Rule("a dict", lambda v: isinstance(v, dict))
NONE = Rule("None", lambda v: v is None)
FUNCTION = Rule("a function", callable)
ESTIMATOR = Rule("an estimator", lambda v: hasattr(v, "fit"))
FITTED = Rule("a fitted estimator", is_fitted)

COUNT, POSITIVE_COUNT = integer(0), integer(1)
NUMBER, POSITIVE_NUMBER = number(), number(POSITIVE)
FLOATS, FLOATS_1D = floats(), floats(ndim=1)
BOOLS_1D = _array("booleans", "b", ANY, 1)
POSITIVE_FLOATS, POSITIVE_FLOATS_1D = floats(POSITIVE), floats(POSITIVE, ndim=1)
SHARES_1D = floats(SHARE, ndim=1)
# Values that may be NaN or infinite.
RECORD, RECORDS, RECORDS_1D = number(ANY), floats(ANY), floats(ANY, ndim=1)

SCALE = either(POSITIVE_NUMBER, POSITIVE_FLOATS)
RATE = either(number(SHARE), floats(SHARE))
SIZE = either(number(NOT_NEGATIVE), floats(NOT_NEGATIVE))
LABELS = both(
    Rule(
        "an array of labels with one axis",
        lambda v: (
            isinstance(v, np.ndarray) and v.ndim == 1 and v.dtype.kind in "biufUSO"
        ),
    ),
    Rule("finite and each only once", _are_distinct),
)
_ARRAY_OF_NAMES = Rule(
    "an array of strings with one axis",
    lambda v: (
        isinstance(v, np.ndarray)
        and v.dtype.kind == "O"
        and v.ndim == 1
        and all(type(name) is str for name in v)
    ),
)
# Estimators of other packages may store a list, which a meta-estimator copies.
NAMES = either(_ARRAY_OF_NAMES, list_of(TEXT))
SEEDS = both(
    integers(),
    Rule("of 64 bits", lambda v: v.dtype.itemsize == 8),
)
# The state of a generator is validated when it is decoded.
SEED = either(
    none_or(integer(0, 2**32 - 1)),
    of_type(np.random.RandomState),
)
EDGES = both(FLOATS_1D, Rule("rising", _rises))
SORTED = Rule("not falling", _does_not_fall)
# Columns of a frame have names; columns of an array have positions.
COLUMN_NAME = either(
    TEXT,
    Rule("an integer", lambda v: is_number(v) and isinstance(v, Integral)),
)
COLUMN_CHOICE = Rule(
    "None, a string, or a sequence of strings, integers, bools or tuples of them",
    _is_choice_of_columns,
)
TIME_ZONE = Rule("the name of a time zone", _is_time_zone)
BOUNDS = Rule("a tuple of two numbers, the smaller one first", _are_bounds)
