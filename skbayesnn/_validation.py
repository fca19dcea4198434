"""Check the values of constructor parameters, with one form of error message."""

import secrets
from collections.abc import Sequence
from dataclasses import MISSING, fields
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight

# ---- single values

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


# ---- parameters of the estimators

# Epochs of `max_iter="auto"`, at least: large tables see every row often enough.
FEWEST_EPOCHS = 10
# `batch_size="auto"`: this many batches to an epoch, within the bounds.
BATCHES_PER_EPOCH = 40
BATCH_BOUNDS = (128, 1024)
# Its square is a float in single precision, and so is the prior's part of a loss.
LARGEST_LENGTH_SCALE = 1e15


def check_one_of_std_and_cov(return_std) -> None:
    """Refuse ``return_std`` beside ``return_cov``, as scikit-learn does."""
    if return_std:
        raise ValueError(
            "at most one of `return_std` and `return_cov` can be asked for; got both "
            "True. The standard deviations are the roots of the covariance's diagonal."
        )


def per_layer(name, value, n_layers, *, low, high=None) -> np.ndarray:
    """A number for all weight layers, or one for each; (layers,)."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        if len(value) != n_layers:
            raise ValueError(
                f"`{name}` must be a number or hold one per weight layer, the "
                f"input's first: {n_layers} here (hidden layers + 1; of other "
                "networks, convolutions, or maps of a cell, count too); got "
                f"{len(value)}: {value!r}."
            )
        values = value
    else:
        values = [value] * n_layers
    return np.array([check_number(name, v, low=low, high=high) for v in values])


def dropout_rates(value, n_layers) -> np.ndarray:
    """`dropout` per weight layer, (layers,), each in [0, 1)."""
    return per_layer("dropout", value, n_layers, low=0, high=1)


def length_scales(value, fan_ins, auto) -> np.ndarray:
    """`length_scale` per weight layer, (layers,); "fan_in" is l^2 = fan-in.

    auto : ndarray of shape (layers,), what "auto" is
    """
    if not isinstance(value, str):
        largest = LARGEST_LENGTH_SCALE
        return per_layer("length_scale", value, len(fan_ins), low=0, high=largest)
    check_named("length_scale", value, ["auto", "fan_in"])
    return np.sqrt(fan_ins) if value == "fan_in" else auto


def precisions(value, n_targets) -> np.ndarray | None:
    """`tau` per target in y's units, (targets,); None where it is to be learned."""
    if isinstance(value, str):
        check_named("tau", value, ["auto"])
        return None
    if isinstance(value, Sequence | np.ndarray) and np.ndim(value) > 0:
        if len(value) != n_targets:
            allowed = "be a number"
            if n_targets > 1:
                allowed += f" or hold one per target: {n_targets} here"
            raise ValueError(
                f"`tau` must {allowed}; got {len(value)} numbers: {value!r}."
            )
        values = value
    else:
        values = [value] * n_targets
    return np.array([check_number("tau", v, low=0, open_low=True) for v in values])


def options_of(name, value, kind) -> dict:
    """A dict of fields of a dataclass that have defaults; None is an empty one."""
    known = [f.name for f in fields(kind) if f.default is not MISSING]
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"`{name}` must be a dict or None; got {value!r}.")
    unknown = [key for key in value if key not in known]
    if unknown:
        raise ValueError(
            f"`{name}` of {kind.name!r} may hold {_listed(known) or 'nothing'}; got "
            f"{_listed(unknown)}."
        )
    return dict(value)


def _listed(names) -> str:
    return ", ".join(map(repr, names))


def batch_rows(value, n_rows) -> int:
    """`batch_size` for a table of ``n_rows``: never more than there are."""
    if isinstance(value, str):
        check_named("batch_size", value, ["auto"])
        size = 2 ** round(np.log2(max(n_rows / BATCHES_PER_EPOCH, 1)))
        return int(min(np.clip(size, *BATCH_BOUNDS), n_rows))
    size = check_number("batch_size", value, kind=Integral, low=1)
    return min(size, n_rows)


def epochs(value, n_rows, n_batches, steps_per_root) -> int:
    """`max_iter` in epochs; "auto" is ``steps_per_root`` sqrt(N) steps."""
    if isinstance(value, str):
        check_named("max_iter", value, ["auto"])
        wanted = steps_per_root * np.sqrt(n_rows) / n_batches
        return int(max(np.ceil(wanted), FEWEST_EPOCHS))
    return check_number("max_iter", value, kind=Integral, low=1)


def stops_early(value, n_rows, from_rows) -> bool:
    """`early_stopping` for a table of ``n_rows``; "auto" is so from ``from_rows``."""
    if isinstance(value, str):
        check_named("early_stopping", value, ["auto"])
        return n_rows >= from_rows
    if not isinstance(value, bool | np.bool_):
        raise TypeError(
            f"`early_stopping` must be True, False or 'auto'; got {value!r}."
        )
    return bool(value)


def random_source(value) -> np.random.RandomState:
    """`random_state` as a generator; None is fresh entropy, no global state."""
    return numpy_random_state(secrets.randbits(32) if value is None else value)


def training_draws(estimator) -> int:
    """`n_training_draws`."""
    return check_number(
        "n_training_draws", estimator.n_training_draws, kind=Integral, low=1
    )


def precision(value) -> torch.dtype:
    """`dtype` of the training."""
    return getattr(torch, check_option("dtype", value, ["float32", "float64"]))


def device_for_fit(value) -> torch.device:
    """`device` as a torch.device that exists here.

    Raises
    ------
    ValueError
        Unknown name, or a device that this machine does not have.
    """
    device = _device(value)
    reason = _why_absent(device)
    if reason:
        raise ValueError(
            f"`device` must be present on this machine; got {str(value)!r}, but "
            f"{reason}. Use device='cpu' or device='auto'."
        )
    return device


def device_for_prediction(value) -> torch.device:
    """`device`, or the CPU where this machine does not have it."""
    device = _device(value)
    return torch.device("cpu") if _why_absent(device) else device


def _device(value) -> torch.device:
    if isinstance(value, torch.device):
        return value
    if not isinstance(value, str):
        raise TypeError(f"`device` must be a name or a torch.device; got {value!r}.")
    if value == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
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


def _why_absent(device: torch.device) -> str:
    """Why a device cannot be used here; empty where it can."""
    if device.type == "cuda":
        if not torch.cuda.is_available():
            return "torch sees no CUDA GPU"
        if (device.index or 0) >= torch.cuda.device_count():
            return f"torch sees {torch.cuda.device_count()} CUDA GPUs"
    if device.type == "mps" and not torch.backends.mps.is_available():
        return "torch sees no Apple GPU"
    return ""


def weights_of_classes(class_weight, labels) -> np.ndarray:
    """`class_weight` of each row, (rows,)."""
    weights = compute_sample_weight(class_weight, labels)
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if wrong.size:
        raise ValueError(
            f"`class_weight` must be finite and not negative; got {wrong[0]:g} in "
            f"{class_weight!r}. Weight 0 leaves a class out."
        )
    return weights
