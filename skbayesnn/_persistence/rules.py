"""What an attribute of a fitted model may be: its type, and the kind of an array."""

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


def is_number(value) -> bool:
    """A real number, no bool."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def is_array(kinds: str, ndim: int | None = None) -> Callable[[Any], bool]:
    """An array of some kinds, of any or so many axes."""
    return lambda value: (
        isinstance(value, np.ndarray)
        and value.dtype.kind in kinds
        and ndim in (None, value.ndim)
    )


def is_fitted(value) -> bool:
    """A fitted estimator."""
    try:
        check_is_fitted(value)
    except (TypeError, NotFittedError):
        return False
    return True


def none_or(rule: Rule) -> Rule:
    """None, too."""
    return Rule(f"None or {rule.what}", lambda v: v is None or rule.holds(v))


def either(first: Rule, second: Rule) -> Rule:
    """One of two rules."""
    what = f"{first.what} or {second.what}"
    return Rule(what, lambda v: first.holds(v) or second.holds(v))


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


def of_type(kind: type) -> Rule:
    """An object of a class."""
    return Rule(f"a {kind.__name__}", lambda v: isinstance(v, kind))


def with_attribute(name: str, rule: Rule) -> Rule:
    """An object, an attribute of which follows the rule."""
    what = f"an object whose `{name}` is {rule.what}"
    return Rule(what, lambda v: rule.holds(getattr(v, name, None)))


FLAG = Rule("True or False", lambda v: isinstance(v, bool | np.bool_))
INTEGER = Rule("an integer", lambda v: is_number(v) and isinstance(v, Integral))
NUMBER = Rule("a number", is_number)
TEXT = Rule("a string", lambda v: isinstance(v, str))
DICT = Rule("a dict", lambda v: isinstance(v, dict))
ESTIMATOR = Rule("an estimator", lambda v: hasattr(v, "fit"))
FITTED = Rule("a fitted estimator", is_fitted)
FLOATS = Rule("an array of floating-point numbers", is_array("f"))
FLOATS_1D = Rule("an array of floating-point numbers with one axis", is_array("f", 1))
INTEGERS_1D = Rule("an array of integers with one axis", is_array("i", 1))
NUMBERS = Rule("an array of numbers", is_array("iuf"))
LABELS = Rule("an array of labels with one axis", is_array("biufUSO", 1))
NAMES = Rule(
    "an array of strings with one axis",
    lambda v: is_array("O", 1)(v) and all(type(name) is str for name in v),
)
SEEDS = Rule(
    "an array of 64-bit integers with one axis",
    lambda v: is_array("i", 1)(v) and v.dtype.itemsize == 8,
)
NUMBER_OR_FLOATS = either(NUMBER, FLOATS)
NONE = Rule("None", lambda v: v is None)
