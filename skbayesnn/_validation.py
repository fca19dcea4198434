"""Check the values of constructor parameters, with one form of error message."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import MISSING, fields
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight

from skbayesnn._sklearn_compat import check_sample_weight

# ---- single values

MAX_LAYER = 1_000_000
# With this many draws, predicting one row with a small network takes seconds.
MAX_N_DRAWS = 100_000


def check_auto_or_integer(name, value, *, low) -> None:
    """Raise unless ``value`` is "auto" or an integer of at least ``low``."""
    if isinstance(value, str):
        check_option(name, value, ["auto"])
    else:
        check_number(name, value, kind=Integral, low=low)


def check_number(name, value, *, kind=Real, low=None, high=None, open_low=False):
    """Return ``value`` if it is a number of this kind in [low, high).

    Raises
    ------
    TypeError, ValueError
        The message contains the rule and the value.
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


def check_option(name, value, options, rule: str = "one of"):
    """Return ``value`` if it is one of the options; rule : words before them."""
    if not isinstance(value, str) or value not in options:
        allowed_options = ", ".join(repr(option) for option in options)
        raise ValueError(f"`{name}` must be {rule} {allowed_options}; got {value!r}.")
    return value


def check_named(name, value, options):
    """Return the string that replaces a number if it is one of the options."""
    return check_option(name, value, options, "a number or")


def check_levels(name, value) -> list[float]:
    """Check one level or a sequence of levels, each in (0, 1); return a list.

    Raises
    ------
    TypeError, ValueError
    """
    rule = f"`{name}` must be a number in (0, 1), or a list of them"
    levels = np.asarray(value, dtype=object)
    if levels.ndim > 1:
        raise ValueError(f"{rule}; got an array of shape {levels.shape}.")
    if levels.size == 0:
        raise ValueError(f"{rule}; got none.")
    for level in levels.ravel():
        if isinstance(level, bool | np.bool_) or not isinstance(
            level, int | float | np.number
        ):
            raise TypeError(f"{rule}; got {level!r}.")
        if not 0 < level < 1:
            hint = f" For {level:g} % give {level / 100:g}." * bool(10 <= level < 100)
            raise ValueError(f"`{name}` must be in (0, 1); got {float(level)!r}.{hint}")
    return [float(level) for level in levels.ravel()]


def numpy_random_state(value) -> np.random.RandomState:
    """Convert `random_state` to a generator, as scikit-learn does."""
    try:
        return check_random_state(value)
    except ValueError as error:
        raise ValueError(
            "`random_state` must be None, an integer in [0, 2**32) or a "
            f"numpy.random.RandomState; got {value!r}."
        ) from error


def check_bool(name, value):
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"`{name}` must be True or False; got {value!r}.")
    return bool(value)


def verbosity(value, further: str = "") -> int:
    """Check `verbose`: 0 is silent; 1 and larger values show progress.

    As in scikit-learn, True is 1 and False is 0.

    further : values that the caller accepts, for the message, such as "'auto', "

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(value, bool | np.bool_ | Integral):
        raise TypeError(
            f"`verbose` must be {further}True, False or an integer >= 0; got {value!r}."
        )
    if value < 0:
        raise ValueError(f"`verbose` must be >= 0; got {value!r}. Use 0 for no output.")
    return int(value)


def check_n_draws(value) -> int:
    """Check `n_draws`, the number of posterior draws of a prediction."""
    n_draws = check_number("n_draws", value, kind=Integral, low=1)
    if n_draws > MAX_N_DRAWS:
        raise ValueError(
            f"`n_draws` must be at most {MAX_N_DRAWS}; got {n_draws}. More draws "
            "hardly help: the error decreases with the square root of `n_draws`."
        )
    return n_draws


def hidden_sizes(value) -> tuple[int, ...]:
    """Check `hidden_layer_sizes`, the units of each layer; () is a linear model."""
    values = [value] if isinstance(value, Integral) else value
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise TypeError(
            "`hidden_layer_sizes` must be an integer or a sequence of integers; got "
            f"{value!r}."
        )
    return tuple(layer_size("hidden_layer_sizes", size) for size in values)


def layer_size(name: str, value) -> int:
    """Check the number of units, channels or features of one layer."""
    size = check_number(name, value, kind=Integral, low=1)
    if size > MAX_LAYER:
        raise ValueError(
            f"`{name}` must be at most {MAX_LAYER} per layer; got {size}. Weights "
            "grow with the product of consecutive layers."
        )
    return size


# ---- parameters of the estimators

# Least epochs of `max_iter="auto"`, for large data sets.
MIN_EPOCHS = 10
# `batch_size="auto"`: this many batches per epoch, within the bounds.
BATCHES_PER_EPOCH = 40
BATCH_BOUNDS = (128, 1024)
# Its square, and the prior's part of the loss, do not overflow in single precision.
MAX_LENGTH_SCALE = 1e15


def check_one_of_std_and_cov(return_std) -> None:
    """Raise an error if ``return_std`` is set with ``return_cov``, as scikit-learn."""
    if return_std:
        raise ValueError(
            "at most one of `return_std` and `return_cov` can be True; got both. The "
            "standard deviations are the square roots of the covariance's diagonal."
        )


def per_layer(name, value, n_layers, *, low, high=None) -> np.ndarray:
    """Check one number for all weight layers, or one per layer; return (layers,)."""
    rule = (
        "be a number or contain one per weight layer, starting at the input: "
        f"{n_layers} here (hidden layers + 1; convolutions and the two maps of a "
        "recurrent cell also count)"
    )
    values = _one_each(name, value, n_layers, rule)
    return np.array([check_number(name, v, low=low, high=high) for v in values])


def _one_each(name, value, n: int, rule: str) -> list:
    """The n values of a sequence, or one value n times; rule : what it must do."""
    is_sequence = isinstance(value, Sequence | np.ndarray)
    if isinstance(value, str) or not is_sequence or getattr(value, "ndim", 1) == 0:
        return [value] * n
    if len(value) != n:
        raise ValueError(f"`{name}` must {rule}; got {len(value)} values: {value!r}.")
    return list(value)


def dropout_rates(value, n_layers) -> np.ndarray:
    """Check `dropout`; return the rate of each weight layer, (layers,), in [0, 1)."""
    return per_layer("dropout", value, n_layers, low=0, high=1)


def length_scales(value, fan_ins, auto) -> np.ndarray:
    """Check `length_scale`; return its value for each weight layer, (layers,).

    "fan_in" is l^2 = fan-in.

    auto : ndarray of shape (layers,), the values for "auto"
    """
    if not isinstance(value, str):
        largest = MAX_LENGTH_SCALE
        return per_layer("length_scale", value, len(fan_ins), low=0, high=largest)
    check_named("length_scale", value, ["auto", "fan_in"])
    return np.sqrt(fan_ins) if value == "fan_in" else auto


def precisions(value, n_targets) -> np.ndarray | None:
    """Check `tau`; return it per target, (targets,), in y's units; None for "auto"."""
    if isinstance(value, str):
        check_named("tau", value, ["auto"])
        return None
    rule = "be a number"
    if n_targets > 1:
        rule += f" or contain one per target: {n_targets} here"
    values = _one_each("tau", value, n_targets, rule)
    return np.array([check_number("tau", v, low=0, open_low=True) for v in values])


def check_option_dict(name, value, options_class) -> dict:
    """Check a dict of optional fields of a dataclass; None is an empty dict."""
    allowed = [f.name for f in fields(options_class) if f.default is not MISSING]
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"`{name}` must be a dict or None; got {value!r}.")
    unknown = [key for key in value if key not in allowed]
    if unknown:
        raise ValueError(
            f"`{name}` of {options_class.name!r} may only contain "
            f"{_listed(allowed) or 'nothing'}; got {_listed(unknown)}."
        )
    return dict(value)


def _listed(names) -> str:
    return ", ".join(map(repr, names))


def batch_rows(value, n_rows) -> int:
    """`batch_size` for ``n_rows`` rows, at most ``n_rows``."""
    if isinstance(value, str):
        check_named("batch_size", value, ["auto"])
        size = 2 ** round(np.log2(max(n_rows / BATCHES_PER_EPOCH, 1)))
        return int(min(np.clip(size, *BATCH_BOUNDS), n_rows))
    size = check_number("batch_size", value, kind=Integral, low=1)
    return min(size, n_rows)


def epochs(value, n_rows, n_batches, steps_per_root) -> int:
    """`max_iter` in epochs; "auto" means ``steps_per_root`` sqrt(N) steps."""
    if isinstance(value, str):
        check_named("max_iter", value, ["auto"])
        n_epochs = steps_per_root * np.sqrt(n_rows) / n_batches
        return int(max(np.ceil(n_epochs), MIN_EPOCHS))
    return check_number("max_iter", value, kind=Integral, low=1)


def stops_early(value, n_rows, from_rows) -> bool:
    """`early_stopping` for ``n_rows`` rows; "auto" stops early from ``from_rows``."""
    if isinstance(value, str):
        check_named("early_stopping", value, ["auto"])
        return n_rows >= from_rows
    if not isinstance(value, bool | np.bool_):
        raise TypeError(
            f"`early_stopping` must be True, False or 'auto'; got {value!r}."
        )
    return bool(value)


def random_source(value) -> np.random.RandomState:
    """Convert `random_state` to a generator; None does not use NumPy's global state."""
    return numpy_random_state(secrets.randbits(32) if value is None else value)


def training_draws(estimator) -> int:
    """Check and return `n_training_draws`."""
    return check_number(
        "n_training_draws", estimator.n_training_draws, kind=Integral, low=1
    )


def precision(value) -> torch.dtype:
    """Convert `dtype` to a torch.dtype."""
    return getattr(torch, check_option("dtype", value, ["float32", "float64"]))


def devices_for_fit(value, suits_gpu: bool = True) -> list[torch.device]:
    """Convert `device`, one or a list, to devices that are available.

    suits_gpu : whether ``"auto"`` is a GPU, if there is one

    Raises
    ------
    TypeError, ValueError
        If a name is unknown, a device is not available, or the list is empty.
    """
    devices = []
    for name in _as_list(value):
        device = _device(name, suits_gpu)
        reason = _why_unavailable(device)
        if reason:
            raise ValueError(
                f"`device` must be available on this computer; got {str(name)!r}, but "
                f"{reason}. Use device='cpu' or device='auto'."
            )
        devices.append(device)
    return devices


def device_for_fit(value) -> torch.device:
    """Convert `device` to a torch.device that is available: the first of a list.

    Raises
    ------
    TypeError, ValueError
        As ``devices_for_fit``.
    """
    return devices_for_fit(value)[0]


def device_for_prediction(value, suits_gpu: bool = True) -> torch.device:
    """Convert `device` to a torch.device; the CPU if it is not available.

    suits_gpu : as in ``devices_for_fit``
    """
    device = _device(_as_list(value)[0], suits_gpu)
    return torch.device("cpu") if _why_unavailable(device) else device


def _as_list(value) -> list:
    """The devices of `device`, which is one of them or a list."""
    if not isinstance(value, list | tuple):
        return [value]
    if not value:
        raise ValueError("`device` must have at least one device; got an empty list.")
    return list(value)


def _device(value, suits_gpu: bool = True) -> torch.device:
    if isinstance(value, torch.device):
        return value
    if not isinstance(value, str):
        raise TypeError(
            "`device` must be a name, a torch.device or a list of these; got "
            f"{value!r}."
        )
    if value == "auto":
        value = "cuda" if suits_gpu and torch.cuda.is_available() else "cpu"
    local_rank = os.environ.get("LOCAL_RANK")
    if value == "cuda" and local_rank and torch.cuda.is_available():
        # Under torchrun, each process of a computer has its own GPU.
        return torch.device("cuda", int(local_rank) % torch.cuda.device_count())
    try:
        device = torch.device(value)
    except RuntimeError as error:
        raise ValueError(_unknown_device(value)) from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise ValueError(_unknown_device(value))
    return device


def _unknown_device(value):
    return (
        "`device` must be 'auto', 'cpu', 'cuda', 'cuda:1' (any number), 'mps' or a "
        f"torch.device; got {value!r}."
    )


def _why_unavailable(device: torch.device) -> str:
    """The reason why a device is not available; empty if it is available."""
    if device.type == "cuda":
        if not torch.cuda.is_available():
            return "torch finds no CUDA GPU"
        if (device.index or 0) >= torch.cuda.device_count():
            return f"torch finds {torch.cuda.device_count()} CUDA GPUs"
    if device.type == "mps" and not torch.backends.mps.is_available():
        return "torch finds no Apple GPU"
    return ""


def compute_class_weights(class_weight, labels) -> np.ndarray:
    """Weight of each row by `class_weight`, (rows,)."""
    weights = compute_sample_weight(class_weight, labels)
    invalid = weights[~(np.isfinite(weights) & (weights >= 0))]
    if invalid.size:
        raise ValueError(
            f"`class_weight` must be finite and >= 0; got {invalid[0]:g} in "
            f"{class_weight!r}. Weight 0 excludes a class."
        )
    return weights


def check_row_weights(sample_weight, X):
    """Check row weights, (rows,), float64, finite and not negative; ones by default.

    X : table or array with the rows
    """
    weights = check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    if not weights.any():
        raise ValueError(
            "`sample_weight` must be positive for at least one row; got zeros only."
        )
    return weights
