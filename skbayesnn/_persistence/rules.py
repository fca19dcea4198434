"""Rules for the attributes of a fitted model: their types, and which numbers they hold.

Numbers are finite unless a rule allows more. ``RECORD`` and ``RECORDS`` allow any
number: for scores, times and curves, which no prediction is computed from.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted


@dataclass(frozen=True)
class Rule:
    """A property of a value, and that in words."""

    what: str
    holds: Callable[[Any], bool]


Rules = Mapping[str, Rule]


@dataclass(frozen=True)
class Values:
    """Which numbers are allowed, in words and as a test of every entry of an array."""

    what: str
    allowed: Callable[[np.ndarray], np.ndarray]


ANY = Values("", lambda v: np.ones(v.shape, dtype=bool))
FINITE = Values("finite", np.isfinite)
POSITIVE = Values("finite and > 0", lambda v: np.isfinite(v) & (v > 0))
NOT_NEGATIVE = Values("finite and >= 0", lambda v: np.isfinite(v) & (v >= 0))
SHARE = Values("in [0, 1]", lambda v: (v >= 0) & (v <= 1))
PROPER_SHARE = Values("in [0, 1)", lambda v: (v >= 0) & (v < 1))
NOT_NAN = Values("not NaN", lambda v: ~np.isnan(v))
# Of weights: a standard deviation of zero has the logarithm -inf.
NOT_NAN_OR_INF = Values("neither NaN nor inf", lambda v: v < np.inf)


def is_number(value) -> bool:
    """A real number, no bool."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def is_fitted(value) -> bool:
    """A fitted estimator."""
    try:
        check_is_fitted(value)
    except (TypeError, NotFittedError):
        return False
    return True


# ---- numbers and arrays of them


def number(values: Values = FINITE) -> Rule:
    """A real number."""

    def holds(value):
        if not is_number(value):
            return False
        try:
            return bool(values.allowed(np.asarray(float(value))))
        except OverflowError:  # of an integer
            return False

    return Rule(f"a number{_that_is(values)}", holds)


def integer(low: int, high: int | None = None) -> Rule:
    """An integer, at least ``low`` and at most ``high``."""
    bounds = f">= {low}" if high is None else f"from {low} to {high}"

    def holds(value):
        is_integer = is_number(value) and isinstance(value, Integral)
        return is_integer and low <= value and (high is None or value <= high)

    return Rule(f"an integer {bounds}", holds)


def floats(values: Values = FINITE, ndim: int | None = None) -> Rule:
    """An array of floating-point numbers."""
    return _array("floating-point numbers", "f", values, ndim)


def numbers(values: Values = FINITE, ndim: int | None = None) -> Rule:
    """An array of integers or floating-point numbers."""
    return _array("numbers", "iuf", values, ndim)


def integers(values: Values = NOT_NEGATIVE, ndim: int | None = 1) -> Rule:
    """An array of integers."""
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

    return Rule(f"an array of {what}{axes}{_that_is(values)}", holds)


def _that_is(values: Values) -> str:
    return f", {values.what}" if values.what else ""


# ---- rules made of others


def none_or(rule: Rule) -> Rule:
    """None, too."""
    return Rule(f"None or {rule.what}", lambda v: v is None or rule.holds(v))


def either(first: Rule, second: Rule) -> Rule:
    """One of two rules."""
    what = f"{first.what} or {second.what}"
    return Rule(what, lambda v: first.holds(v) or second.holds(v))


def both(first: Rule, second: Rule) -> Rule:
    """Two rules; the second is asked only of what follows the first."""
    what = f"{first.what}, {second.what}"
    return Rule(what, lambda v: first.holds(v) and second.holds(v))


def list_of(rule: Rule) -> Rule:
    """A list, each of whose entries follows the rule."""
    return Rule(
        f"a list, each {rule.what}",
        lambda v: isinstance(v, list) and all(map(rule.holds, v)),
    )


def dict_of(rule: Rule) -> Rule:
    """A dict of names, each of whose values follows the rule."""
    return Rule(
        f"a dict by name, each {rule.what}",
        lambda v: (
            isinstance(v, dict)
            and all(isinstance(key, str) and rule.holds(one) for key, one in v.items())
        ),
    )


def one_or_each(values: Values) -> Rule:
    """A parameter: None, a string, a number, or a sequence or array of numbers."""

    def holds(value):
        try:
            found = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            return isinstance(value, str)
        return value is None or bool(values.allowed(found).all())

    return Rule(f"a string, or numbers{_that_is(values)}", holds)


def of_type(kind: type) -> Rule:
    """An object of a class."""
    return Rule(f"a {kind.__name__}", lambda v: isinstance(v, kind))


def with_attribute(name: str, rule: Rule) -> Rule:
    """An object, an attribute of which follows the rule."""
    what = f"an object whose `{name}` is {rule.what}"
    return Rule(what, lambda v: rule.holds(getattr(v, name, None)))


def _rises(value: np.ndarray) -> bool:
    return bool((np.diff(value) > 0).all())


def _does_not_fall(value: np.ndarray) -> bool:
    return bool((np.diff(value, axis=0) >= 0).all())


def _are_distinct(value: np.ndarray) -> bool:
    labels = value.tolist()
    are_finite = all(not is_number(one) or math.isfinite(one) for one in labels)
    return are_finite and len(set(labels)) == len(labels)


FLAG = Rule("True or False", lambda v: isinstance(v, bool | np.bool_))
TEXT = Rule("a string", lambda v: isinstance(v, str))
DICT = Rule("a dict", lambda v: isinstance(v, dict))
NONE = Rule("None", lambda v: v is None)
FUNCTION = Rule("a function", callable)
ESTIMATOR = Rule("an estimator", lambda v: hasattr(v, "fit"))
FITTED = Rule("a fitted estimator", is_fitted)

COUNT, POSITIVE_COUNT = integer(0), integer(1)
NUMBER, POSITIVE_NUMBER = number(), number(POSITIVE)
FLOATS, FLOATS_1D = floats(), floats(ndim=1)
POSITIVE_FLOATS, POSITIVE_FLOATS_1D = floats(POSITIVE), floats(POSITIVE, ndim=1)
SHARES_1D = floats(SHARE, ndim=1)
# What is written down, and may be NaN or infinite.
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
# A meta-estimator has those of the estimator inside, which may be another package's.
NAMES = either(_ARRAY_OF_NAMES, list_of(TEXT))
SEEDS = both(
    integers(),
    Rule("of 64 bits", lambda v: v.dtype.itemsize == 8),
)
# A generator is checked where it is read.
SEED = either(
    none_or(integer(0, 2**32 - 1)),
    of_type(np.random.RandomState),
)
EDGES = both(FLOATS_1D, Rule("rising", _rises))
SORTED = Rule("not falling", _does_not_fall)
