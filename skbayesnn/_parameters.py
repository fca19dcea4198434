"""Values of parameters -> checked ones, with one kind of message."""

from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

LARGEST_LAYER = 1_000_000
# A prediction of one row by a small network takes seconds with so many.
LARGEST_N_DRAWS = 100_000


def check_number(name, value, *, kind=Real, low=None, high=None, open_low=False):
    """``value``, if it is a number of the kind inside [low, high).

    Raises
    ------
    TypeError, ValueError
        With the rule and the value.
    """
    word = "an integer" if kind is Integral else "a number"
    if isinstance(value, bool | np.bool_) or not isinstance(value, kind):
        raise TypeError(f"`{name}` must be {word}; got {value!r}.")
    value = int(value) if kind is Integral else float(value)
    too_low = low is not None and (value < low or (open_low and value == low))
    too_high = high is not None and value >= high
    if too_low or too_high or not np.isfinite(value):
        raise ValueError(
            f"`{name}` must be {_interval(low, high, open_low)}; got {value!r}."
        )
    return value


def _interval(low, high, open_low):
    if high is not None:
        return f"in {'(' if open_low else '['}{low:g}, {high:g})"
    if low is None:
        return "finite"
    return f"finite and {'>' if open_low else '>='} {low}"


def check_option(name, value, options):
    """``value``, if it is one of the options."""
    if not isinstance(value, str) or value not in options:
        wanted = ", ".join(repr(option) for option in options)
        raise ValueError(f"`{name}` must be one of {wanted}; got {value!r}.")
    return value


def check_named(name, value, options):
    """A string in the place of a number, if it is one of the options."""
    if value not in options:
        wanted = ", ".join(repr(option) for option in options)
        raise ValueError(f"`{name}` must be a number or {wanted}; got {value!r}.")
    return value


def numpy_random_state(value) -> np.random.RandomState:
    """`random_state` as a generator, by scikit-learn's rule."""
    try:
        return check_random_state(value)
    except ValueError as error:
        raise ValueError(
            "`random_state` must be None, an integer in [0, 2**32) or a "
            f"numpy.random.RandomState; got {value!r}."
        ) from error


def check_bool(name, value):
    """``value``, if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"`{name}` must be True or False; got {value!r}.")
    return bool(value)


def verbosity(value) -> int:
    """`verbose`: 0 is silent, and from 1 on progress is shown.

    As in scikit-learn, True is 1 and False is 0.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(value, bool | np.bool_ | Integral):
        raise TypeError(
            f"`verbose` must be True, False or an integer >= 0; got {value!r}."
        )
    if value < 0:
        raise ValueError(f"`verbose` must be >= 0; got {value!r}. Use 0 for silence.")
    return int(value)


def number_of_draws(value) -> int:
    """`n_draws`: posterior draws that a prediction is made of."""
    n_draws = check_number("n_draws", value, kind=Integral, low=1)
    if n_draws > LARGEST_N_DRAWS:
        raise ValueError(
            f"`n_draws` must be at most {LARGEST_N_DRAWS}; got {n_draws}. The error of "
            "a mean falls with the root of the number of draws only."
        )
    return n_draws


def hidden_sizes(value) -> tuple[int, ...]:
    """`hidden_layer_sizes`: units of each hidden layer; () is a linear model."""
    values = [value] if isinstance(value, Integral) else value
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise TypeError(
            f"`hidden_layer_sizes` must be an integer or a sequence of them; got "
            f"{value!r}."
        )
    return tuple(layer_size("hidden_layer_sizes", size) for size in values)


def layer_size(name: str, value) -> int:
    """Units, channels or features of one layer."""
    size = check_number(name, value, kind=Integral, low=1)
    if size > LARGEST_LAYER:
        raise ValueError(
            f"`{name}` must be at most {LARGEST_LAYER} per layer; got {size}. Weights "
            "grow with the product of neighbouring layers."
        )
    return size
