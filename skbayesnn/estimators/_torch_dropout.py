"""Forward passes of a torch module with one dropout mask for all rows.

torch draws a separate mask for every row of a batch. Here the dropout layers of a copy
of the module are replaced by layers with one mask per draw, which all rows share. So a
prediction does not depend on the other rows. Everything else runs in evaluation mode.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from skbayesnn._engine.resources import is_out_of_memory

# Number of rows that are predicted one by one, and compared with the batch.
_N_COMPARED_ROWS = 3
# Number of draws of this comparison.
_N_COMPARED_DRAWS = 2
# Dropout rate in that comparison. With small rates, different masks are often equal.
_COMPARED_RATE = 0.5

# Positional arguments and keyword arguments of a module's forward.
Inputs = tuple[tuple, dict]

# Kinds of dropout whose units are independent, and whose channels are.
_OF_UNITS, _OF_CHANNELS = nn.Dropout, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d
_LAYERS = "Dropout, Dropout1d, Dropout2d or Dropout3d"


# ---- modules


def copied(module: nn.Module) -> nn.Module:
    """Deep copy of a module.

    Raises
    ------
    TypeError
        If the module cannot be copied.
    """
    memo: dict[int, Any] = {}
    for layer in module.modules():
        for value in vars(layer).values():
            values = value.values() if isinstance(value, dict) else value
            for item in values if isinstance(value, dict | list | tuple) else [value]:
                # deepcopy fails for tensors computed by autograd (weight_norm).
                if isinstance(item, torch.Tensor) and not item.is_leaf:
                    memo[id(item)] = item.detach().clone()
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise TypeError(
            "`module` must be a module that copy.deepcopy can copy; it raised "
            f"{type(error).__name__}: {error}"
        ) from error


def check_dropout(module: nn.Module) -> None:
    """Raise if the dropout of a module cannot be replaced, or if it has none.

    Raises
    ------
    ValueError
    """
    found = False
    for where, layer in _named(module):
        if isinstance(layer, torch.jit.ScriptModule):
            raise ValueError(
                f"`module` must be a module before TorchScript; {where} is compiled, "
                "and its dropout layers cannot be replaced. Give the original module."
            )
        recurrent = isinstance(layer, nn.RNNBase) and layer.num_layers > 1
        if (recurrent or isinstance(layer, nn.MultiheadAttention)) and layer.dropout:
            raise ValueError(
                "`module` must use dropout in dropout layers only; "
                f"{where} has dropout={layer.dropout:g} inside of torch's fused "
                "operator, where all rows cannot share a mask. Set it to zero, and "
                "put torch.nn.Dropout behind the layer."
            )
        is_dropout = isinstance(layer, _DropoutNd) and layer.p > 0
        if is_dropout and not isinstance(layer, _OF_UNITS | _OF_CHANNELS):
            raise ValueError(
                f"`module` must have dropout that sets units to zero; {where} sets "
                "them to another value. Train it with torch.nn.Dropout."
            )
        found |= is_dropout
    if not found:
        raise ValueError(
            "`module` must have a dropout layer with a rate > 0, or all draws are "
            f"equal; got none. Use torch.nn's {_LAYERS}. Calls of "
            "torch.nn.functional.dropout are not recognised: replace them by layers."
        )


def _named(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every layer, with its name and type for messages."""
    for name, layer in module.named_modules():
        yield f"`{name or 'module'}` ({type(layer).__name__})", layer


def _is_torch_layer(layer) -> bool:
    # torch.nn.utils.parametrize derives a class from the class of the layer.
    names = [base.__module__ for base in type(layer).__mro__]
    first = next(name for name in names if name != "torch.nn.utils.parametrize")
    return first.startswith("torch.nn.")


class _Masks:
    """The masks of one pass, in the order of the calls of dropout layers.

    Parameters
    ----------
    n_rows : int
        Rows of the batch.
    draw : int, optional
        Seed of the random numbers. None switches dropout off.
    rate : float, optional
        Probability that a unit is dropped; by default the rate of the layer.
    """

    def __init__(self, n_rows: int, draw: int | None = None, rate: float | None = None):
        self.n_rows, self.rate = n_rows, rate
        self.generator = None if draw is None else torch.Generator().manual_seed(draw)
        # Calling layer, and shape of the mask.
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def applied(self, layer: "_SharedDropout", x: torch.Tensor) -> torch.Tensor:
        """Apply the next mask to an input with the rows on the first axis."""
        if x.ndim < 2 + layer.by_channel or len(x) != self.n_rows:
            axes = "(rows, channels, ...)" if layer.by_channel else "(rows, ...)"
            raise ValueError(
                f"dropout layers of `module` must get inputs of shape {axes}; "
                f"{layer.where} gets {tuple(x.shape)} for {self.n_rows} row"
                f"{'s' * (self.n_rows > 1)}. Put the rows on the first axis there."
            )
        shape = x.shape[1:]
        if layer.by_channel:
            shape = shape[:1] + (1,) * (len(shape) - 1)
        self.calls.append((layer.where, tuple(shape)))
        if self.generator is None:
            return x
        uniform = torch.rand(1, *shape, generator=self.generator, dtype=torch.float32)
        kept = uniform >= (layer.p if self.rate is None else self.rate)
        return x * (kept.to(x) / max(1 - layer.p, 1e-12))


class _SharedDropout(nn.Module):
    """Replaces a dropout layer; all rows share its masks.

    Parameters
    ----------
    where : str
        Name of the layer for messages.
    layer : _DropoutNd
        Of a subclass, the rate is used, and not its forward.
    network : SharedMaskNetwork
        It has the masks of the present pass.
    """

    def __init__(self, where: str, layer: _DropoutNd, network: "SharedMaskNetwork"):
        super().__init__()
        self.where, self.p, self._network = where, layer.p, network
        self.by_channel = isinstance(layer, _OF_CHANNELS)

    def forward(self, x):
        return self._network.masks.applied(self, x)


# ---- all passes of a prediction


@dataclass(frozen=True)
class Examined:
    """Results of the check of a module before its draws.

    Parameters
    ----------
    calls : list of (str, tuple of int)
        Layer and shape of the mask of every call of a dropout layer.
    evaluated : Tensor of shape (rows, outputs)
        Outputs without dropout, for the compared rows.
    tolerance : float
        Bound of rounding errors, as a share of the largest value.
    n_bytes : int
        Memory for each row of a batch.
    """

    calls: list[tuple[str, tuple[int, ...]]]
    evaluated: torch.Tensor
    tolerance: float
    n_bytes: int


class SharedMaskNetwork:
    """A module whose dropout masks are the same for all rows.

    Parameters
    ----------
    module : nn.Module
        Module in evaluation mode, which ``check_dropout`` accepts. It is copied.
    """

    def __init__(self, module: nn.Module):
        self.module = copied(module)
        self.masks = _Masks(0)
        # Layers whose code may depend on their training flag.
        self._flagged: dict[str, nn.Module] = {}
        replaced: dict[int, _SharedDropout] = {}
        for where, layer in list(_named(self.module)):
            if isinstance(layer, _DropoutNd) and layer.p > 0:
                replaced[id(layer)] = _SharedDropout(where, layer, self)
            elif isinstance(layer, nn.TransformerEncoderLayer):
                layer.training = True  # In evaluation torch leaves out its layers.
            elif not (_is_torch_layer(layer) or isinstance(layer, _NormBase)):
                self._flagged[where] = layer
        if id(self.module) in replaced:
            self.module = replaced[id(self.module)]
        # A layer may have several names, and be inside of another dropout layer.
        names = self.module.named_modules(remove_duplicate=False)
        for path, layer in reversed(list(names)):
            if path and id(layer) in replaced:
                parent, _, name = path.rpartition(".")
                setattr(self.module.get_submodule(parent), name, replaced[id(layer)])

    def run(self, inputs: Inputs, masks: _Masks) -> torch.Tensor:
        """Run one forward pass; return its output, (rows, outputs).

        Raises
        ------
        ValueError
            If the module raises an error, or its rows cannot share masks.
        """
        self.masks = masks
        # Copy the inputs, since layers may change them in place.
        args, kwargs = _each_tensor(inputs, torch.clone)
        try:
            with torch.inference_mode():
                output = self.module(*args, **kwargs)
        except Exception as error:
            if is_out_of_memory(error) or "dropout layers of `module`" in str(error):
                raise
            raise ValueError(
                "`module` must accept any number of rows of X, or of the result of "
                f"`X_transform`; for {masks.n_rows} rows it raised "
                f"{type(error).__name__}: {error}\nThe inputs were "
                f"{_described(inputs)}. Arrays are converted to the dtype of the "
                "parameters, integer tensors are not."
            ) from error
        return _rows_of(output, masks.n_rows)

    def draws(self, inputs: Inputs, n_rows: int, n_draws: int, calls) -> np.ndarray:
        """Outputs of all draws, (draws, rows, outputs).

        calls : of ``Examined``
        """
        outputs = []
        for draw in range(n_draws):
            masks = _Masks(n_rows, draw)
            outputs.append(self.run(inputs, masks).numpy())
            _check_calls(masks.calls, calls)
        return np.stack(outputs)

    def examine(self, inputs_of: Callable[[Any], Inputs], n_rows: int) -> Examined:
        """Check the assumptions on the module with a few rows.

        Without dropout, the training flags must not change the outputs. With the masks
        of a draw, the outputs of a row must be the same alone and in a batch.

        inputs_of : function of row numbers that returns ``Inputs``

        Raises
        ------
        ValueError
            If an assumption does not hold.
        """
        rows = np.unique(np.linspace(0, n_rows - 1, _N_COMPARED_ROWS).astype(int))
        rows = rows if len(rows) > 1 else np.zeros(2, int)
        n, batch = len(rows), inputs_of(rows)
        singles = [inputs_of(rows[i : i + 1]) for i in range(n)]
        masks = _Masks(n)
        with _Measured(self.module) as measured:
            evaluated = self.run(batch, masks)
        if not masks.calls:
            raise ValueError(
                "`module` must call its dropout layers in its forward pass, or all "
                "draws are equal; it calls none."
            )
        passes = []
        for draw in (None, *range(_N_COMPARED_DRAWS)):
            of_batch = _Masks(n, draw, _COMPARED_RATE)
            outputs = [self.run(batch, of_batch)]
            for row in singles:
                of_row = _Masks(1, draw, _COMPARED_RATE)
                outputs.append(self.run(row, of_row))
                _check_calls(of_row.calls, of_batch.calls)
            passes.append(outputs)
        tolerance = self._tolerance(measured.eps)
        atol = tolerance * _largest([together for together, *_ in passes])
        self._check_functions(batch, evaluated, passes[0][0], atol)
        for together, *alone in passes:
            _check_alone(together, alone, atol)
        n_bytes = (measured.n_bytes + _n_bytes(batch)) // n
        return Examined(masks.calls, evaluated, tolerance, n_bytes)

    def _tolerance(self, eps: float) -> float:
        """Bound of rounding errors, which grow from layer to layer, relative."""
        if any(value.device.type != "cpu" for value in self.module.parameters()):
            eps = max(eps, 2.0**-11)  # TensorFloat-32
        elif torch.get_float32_matmul_precision() != "highest":
            eps = max(eps, 2.0**-8)  # bfloat16
        return min(4 * math.sqrt(max(eps, torch.finfo(torch.float64).eps)), 0.1)

    def _check_functions(self, batch, evaluated, again, atol):
        """Raise if anything but the dropout layers is random, or differs in training.

        evaluated, again : outputs of two passes without dropout
        """
        if not _agree(evaluated, again, atol):
            raise ValueError(
                "`module` must return the same outputs at every call without its "
                "dropout layers; got different ones. Replace "
                "torch.nn.functional.dropout and other random numbers by torch.nn's "
                f"{_LAYERS} as attributes of the module, and keep no state between "
                "calls."
            )
        differ = []
        for where, layer in self._flagged.items():
            layer.training = True
            try:
                output = self.run(batch, _Masks(len(evaluated)))
            except ValueError:
                output = evaluated
            finally:
                layer.training = False
            if not _agree(output, evaluated, atol):
                differ.append(where)
        if differ:
            raise ValueError(
                "`module` must differ between training and evaluation by its dropout "
                f"layers only; {', '.join(differ)} still differs without them. Replace "
                "torch.nn.functional.dropout, dropout of attention and own masks by "
                f"torch.nn's {_LAYERS}."
            )


class _Measured:
    """Context that adds up the memory of all layers' outputs, and finds the precision.

    Attributes
    ----------
    n_bytes : int
    eps : float
        The largest distance of two numbers near 1.
    """

    def __init__(self, module: nn.Module):
        self._module, self.n_bytes, self.eps = module, 0, 0.0

    def __enter__(self):
        layers = self._module.modules()
        self._hooks = [layer.register_forward_hook(self._add) for layer in layers]
        return self

    def __exit__(self, *error):
        for hook in self._hooks:
            hook.remove()

    def _add(self, layer, inputs, output) -> None:
        for x in output if isinstance(output, list | tuple) else [output]:
            if isinstance(x, torch.Tensor):
                self.n_bytes += x.nbytes
                if x.is_floating_point():
                    self.eps = max(self.eps, torch.finfo(x.dtype).eps)


def _n_bytes(inputs: Inputs) -> int:
    args, kwargs = inputs
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    return 2 * sum(tensor.nbytes for tensor in tensors)


def _check_calls(calls: Sequence, expected: Sequence) -> None:
    """Raise if two passes differ in their calls of dropout layers."""
    if calls != expected:
        raise ValueError(
            "`module` must call the same dropout layers with inputs of the same shape "
            f"for all rows; got {calls} for some, and {expected} for others. Let no "
            "branch depend on the rows, pad sequences to a fixed length, and keep no "
            "state between calls."
        )


def _agree(a: torch.Tensor, b: torch.Tensor, atol: torch.Tensor) -> bool:
    """Whether outputs are equal up to a tolerance per output, (rows, outputs)."""
    if a.shape != b.shape:
        return False
    return bool(((a == b) | ((a - b).abs() <= atol) | (a.isnan() & b.isnan())).all())


def _largest(outputs) -> torch.Tensor:
    """Largest finite absolute value of each output over several passes, (outputs,).

    Includes passes with dropout, since without it an output may be zero by chance.
    """
    stacked = torch.stack(outputs).abs()
    return stacked.where(stacked.isfinite(), 0).amax((0, 1))


def _check_alone(together, alone, atol):
    """Raise if outputs for a row depend on the batch."""
    for i, output in enumerate(alone):
        if not _agree(output, together[[i]], atol):
            raise ValueError(
                "`module` and `X_transform` must treat every row separately; with the "
                f"same dropout masks `module` returns {few(together[i])} for a row in "
                f"a batch of {len(alone)} and {few(output[0])} for the row alone. "
                "Avoid batch statistics and padding that depends on the batch."
            )


def few(outputs) -> str:
    """Format the first values for a message."""
    shown = ", ".join(f"{value:.6g}" for value in outputs[:3].tolist())
    return f"[{shown}{', ...' if len(outputs) > 3 else ''}]"


def _rows_of(output, n_rows: int) -> torch.Tensor:
    """Validate the output of a module; convert to (rows, outputs), float64, CPU."""
    rule = "`module` must return one tensor of real numbers, (n_samples[, n_outputs]); "
    if not isinstance(output, torch.Tensor):
        raise ValueError(
            f"{rule}got {type(output).__name__}. Give a module that returns only the "
            "tensor of the predictions."
        )
    if not output.is_floating_point():
        raise ValueError(
            f"{rule}got {output.dtype}. Classes are predicted from logits or "
            "probabilities, not from labels."
        )
    lengths = [length for length in output.shape if length != 1]
    expected = [n_rows] if n_rows > 1 else []
    if output.numel() == 0 or expected not in (lengths, lengths[:-1]):
        raise ValueError(
            f"{rule}got shape {tuple(output.shape)} for {n_rows} row"
            f"{'s' if n_rows > 1 else ''}. The rows come first."
        )
    return output.cpu().double().reshape(n_rows, -1)


def _each_tensor(inputs: Inputs, function) -> Inputs:
    args, kwargs = inputs

    def changed(value):
        return function(value) if isinstance(value, torch.Tensor) else value

    return tuple(map(changed, args)), {k: changed(v) for k, v in kwargs.items()}


def _described(inputs: Inputs) -> str:
    args, kwargs = inputs
    return ", ".join(
        f"{tuple(value.shape)} of {value.dtype}"
        if isinstance(value, torch.Tensor)
        else type(value).__name__
        for value in (*args, *kwargs.values())
    )
