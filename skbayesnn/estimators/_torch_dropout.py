"""Forward passes of a torch module with one dropout mask for all rows.

torch draws a separate mask for every row of a batch. Here a draw has the mask of a
batch with one row, and all rows share it. So a prediction does not depend on the other
rows.

A `TorchDispatchMode` intercepts every operator of a pass, whether layers, functions,
attention or TorchScript call it. Under `torch.inference_mode` it receives operators as
called, before torch decomposes them. The mode acts on one thread only. Nothing in torch
is replaced, and no global random generator is used.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode

from skbayesnn._engine.resources import is_out_of_memory

_aten = torch.ops.aten
# Minus the limit of SELU at minus infinity; alpha dropout sets units to -_ALPHA.
_ALPHA = 1.7580993408473766
# Number of rows that are predicted one by one, and compared with the batch.
_N_COMPARED_ROWS = 3
# Number of draws of this comparison.
_N_COMPARED_DRAWS = 2
# Dropout rate in that comparison. With small rates, different masks are often equal.
_COMPARED_RATE = 0.5

# Positional arguments and keyword arguments of a module's forward.
Inputs = tuple[tuple, dict]

NO_DROPOUT = (
    "`module` must use dropout with a rate > 0 in its forward pass, or all draws are "
    "equal; got none. Use torch's Dropout, Dropout1d, Dropout2d, Dropout3d, "
    "AlphaDropout or FeatureAlphaDropout, their functions, or the dropout of RNN, "
    "LSTM, GRU, MultiheadAttention, Transformer or scaled_dot_product_attention."
)


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


def may_have_dropout(module: nn.Module) -> bool:
    """Whether a forward pass may call dropout; False if it certainly does not."""
    return any(
        _rate(layer) > 0 or not _is_torch_layer(layer) for layer in module.modules()
    )


def _rate(layer) -> float:
    if isinstance(layer, _DropoutNd):
        return layer.p
    if isinstance(layer, nn.RNNBase):
        return layer.dropout if layer.num_layers > 1 else 0
    return layer.dropout if isinstance(layer, nn.MultiheadAttention) else 0


def _is_torch_layer(layer) -> bool:
    # torch.nn.utils.parametrize derives a class from the class of the layer.
    names = [base.__module__ for base in type(layer).__mro__]
    first = next(name for name in names if name != "torch.nn.utils.parametrize")
    return first.startswith("torch.nn.")


def _has_flag(layer) -> bool:
    """Whether dropout may depend on ``layer.training``.

    True for user-defined layers, whose code is unknown, and for torch layers with
    dropout. Other torch layers stay in evaluation mode.
    """
    if not hasattr(layer, "training") or isinstance(layer, _NormBase):
        return False
    if isinstance(layer, torch.jit.ScriptModule):
        return not str(layer.original_name).startswith(("BatchNorm", "InstanceNorm"))
    kinds = _DropoutNd | nn.RNNBase | nn.MultiheadAttention
    in_transformer = type(layer).__module__ == "torch.nn.modules.transformer"
    return isinstance(layer, kinds) or in_transformer or not _is_torch_layer(layer)


# ---- position of the rows in the inputs of dropout


class _Call(NamedTuple):
    """A call of dropout: the calling module, the rate, and the input."""

    where: str
    p: float
    x: torch.Tensor


@dataclass(frozen=True)
class Layout:
    """Position of the rows of a batch in the input of a call of dropout.

    Parameters
    ----------
    where : str
        Calling module.
    p : float
        Dropout rate.
    shape : tuple of int
        Shape of the input for a batch with one row.
    axis : int, optional
        Axis of the rows. None if all rows have the same input, for instance weights.
    squeezed : bool
        Whether the module drops this axis for a batch with one row.
    rows_vary_fastest : bool
        Order on the axis, if it combines the rows with another index.
    """

    where: str
    p: float
    shape: tuple[int, ...]
    axis: int | None = None
    squeezed: bool = False
    rows_vary_fastest: bool = False

    def shape_of(self, n_rows: int) -> tuple[int, ...]:
        """Shape of the input for a batch with ``n_rows``."""
        if self.axis is None or (self.squeezed and n_rows == 1):
            return self.shape
        if self.squeezed:
            return *self.shape[: self.axis], n_rows, *self.shape[self.axis :]
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        return *before, n_rows * self.shape[self.axis], *after

    def joined(self, singles) -> torch.Tensor:
        """Combine the inputs of single rows to the input of a batch."""
        if self.axis is None:
            return singles[0]
        if self.squeezed:
            return torch.stack(singles, self.axis)
        if self.rows_vary_fastest:
            return torch.stack(singles, self.axis + 1).flatten(self.axis, self.axis + 1)
        return torch.cat(singles, self.axis)

    def repeated(self, mask: torch.Tensor, n_rows: int) -> torch.Tensor:
        """Repeat the mask of one row for all rows of a batch."""
        if self.axis is None or (self.squeezed and n_rows == 1):
            return mask
        if self.squeezed:
            return mask.unsqueeze(self.axis)
        # An axis of length 1 broadcasts.
        if n_rows == 1 or mask.shape[self.axis] == 1:
            return mask
        if self.rows_vary_fastest:
            return mask.repeat_interleave(n_rows, self.axis)
        return torch.cat([mask] * n_rows, self.axis)

    @classmethod
    def infer(cls, call: _Call, singles: Sequence[_Call]) -> "Layout":
        """Find the layout that best combines inputs of single rows to a batch input.

        Raises
        ------
        ValueError
            If the rates differ, or no layout gives the shape of the batch's input.
        """
        inputs = [single.x for single in singles]
        shape, batch_shape = tuple(inputs[0].shape), tuple(call.x.shape)
        new = partial(cls, call.where, call.p, shape)
        layouts = [new()]
        for axis in range(len(batch_shape)):
            layouts.append(new(axis, squeezed=True))
            if axis < len(shape):
                layouts += [new(axis), new(axis, rows_vary_fastest=True)]
        n_rows = len(inputs)
        candidates = [
            layout for layout in layouts if layout.shape_of(n_rows) == batch_shape
        ]
        shapes = sorted({tuple(x.shape) for x in inputs})
        rates = sorted({c.p for c in (call, *singles)})
        if not candidates or len(shapes) > 1 or len(rates) > 1:
            raise ValueError(
                "`module` must give dropout one rate, and inputs of one shape per row; "
                f"{call.where} gives it rate {' and '.join(map(str, rates))}, and an "
                f"input of shape {batch_shape} for {n_rows} rows and of shape "
                f"{' and '.join(map(str, shapes))} for each row alone. Let `module` "
                "and `X_transform` treat every row separately, and pad sequences to a "
                "fixed length."
            )
        return min(candidates, key=lambda c: (c.joined(inputs) - call.x).abs().sum())


def _agree(a: torch.Tensor, b: torch.Tensor, atol: torch.Tensor) -> bool:
    """Whether outputs are equal up to a tolerance per output, (rows, outputs)."""
    if a.shape != b.shape:
        return False
    return bool(((a == b) | ((a - b).abs() <= atol) | (a.isnan() & b.isnan())).all())


# ---- one pass


class _Masks:
    """Masks of one draw, in the order of the calls of dropout.

    Parameters
    ----------
    draw : int
        Seed of the random numbers.
    layouts : list of Layout
        Layouts of all calls.
    n_rows : int
        Number of rows of the batch.
    rate : float, optional
        Probability of dropping a unit; by default the rate of the call.
    """

    def __init__(self, draw: int, layouts: list[Layout], n_rows: int, rate=None):
        self.generator = torch.Generator().manual_seed(draw)
        self.layouts, self.n_rows, self.rate = layouts, n_rows, rate
        self.n_calls = 0

    def next(self, shape, p, n_mask_axes) -> torch.Tensor:
        """Draw the mask of units that the next call keeps; its shape broadcasts.

        n_mask_axes : as in ``_Pass.kept``
        """
        if self.n_calls == len(self.layouts):
            raise ValueError(_unequal_calls(self.n_calls + 1, self.layouts))
        layout = self.layouts[self.n_calls]
        if layout.p != p or layout.shape_of(self.n_rows) != tuple(shape):
            raise ValueError(
                "`module` must give dropout one rate, and inputs of one shape per row; "
                f"{layout.where} gives it rate {p:g} and an input of shape "
                f"{tuple(shape)} for {self.n_rows} rows; in the first passes it was "
                f"{layout.p:g} and {layout.shape_of(self.n_rows)}. Pad sequences to a "
                "fixed length, and keep no state between calls."
            )
        self.n_calls += 1
        mask_shape = layout.shape[:n_mask_axes]
        mask_shape += (1,) * (len(layout.shape) - len(mask_shape))
        uniform = torch.rand(
            mask_shape, generator=self.generator, dtype=torch.float32, device="cpu"
        )
        kept = uniform >= (p if self.rate is None else self.rate)
        return layout.repeated(kept, self.n_rows)

    def check_all_used(self):
        """Raise if a pass had fewer calls of dropout than expected."""
        if self.n_calls < len(self.layouts):
            raise ValueError(_unequal_calls(self.n_calls, self.layouts))


def _unequal_calls(n_calls, expected) -> str:
    return (
        f"`module` must call dropout equally often for all rows; got {n_calls} calls "
        f"for some, and {len(expected)} for others. Let no branch depend on the rows, "
        "and keep no state between calls."
    )


class _Pass(TorchDispatchMode):
    """Mode that replaces torch's dropout masks during one forward pass.

    Parameters
    ----------
    path : list of str
        Modules that are running, outermost first.
    masks : _Masks, optional
        Masks to use. None disables dropout and records its calls.
    training : bool
        Whether the training flags are set. If so, a call of dropout with
        ``train=False`` is an error.
    """

    def __init__(self, path, masks=None, training=True):
        super().__init__()
        self.path, self.masks, self.training = path, masks, training
        self.calls: list[_Call] = []
        self.n_bytes, self.eps = 0, 0.0
        self.error: Exception | None = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operator = getattr(func, "overloadpacket", None)
        if operator in _HANDLERS:
            output = _HANDLERS[operator](self, func, args, kwargs)
        elif torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self.refuse(
                "`module` must use random numbers only in torch's dropout; "
                f"{self.path[-1]} calls torch.ops.{func}, whose random numbers differ "
                "from row to row. Use torch.nn.Dropout or torch.nn.functional.dropout "
                "instead, or set its rate to zero."
            )
        elif self.training and operator in _WITHOUT_DROPOUT:
            self._refuse_switched_off(f"torch.ops.{func}")
        else:
            output = func(*args, **kwargs)
        if self.masks is None:
            self._measure(func, output)
        return output

    def refuse(self, message: str):
        """Raise an error, and store it, since code of the module may catch it."""
        self.error = self.error or ValueError(message)
        raise self.error

    def _refuse_switched_off(self, what):
        self.refuse(
            f"`module` must use dropout if its training flag is set; {what} in "
            f"{self.path[-1]} is disabled, as in a module that was traced in "
            "evaluation mode. Give the module as it was trained, or set this rate to "
            "zero."
        )

    def kept(self, x, p, train, n_mask_axes=None) -> torch.Tensor | None:
        """Mask of the units that a call keeps; None if it keeps all.

        n_mask_axes : number of leading axes along which the mask varies; None for all
        """
        if p == 0:
            return None
        if not train:
            if self.training:
                self._refuse_switched_off(f"dropout with rate {p:g}")
            return None
        if self.masks is None:
            # Copy x, since it may be changed in place.
            x_now = x.cpu().clone().double()
            self.calls.append(_Call(self.path[-1], p, x_now))
            self.n_bytes += x.nbytes
            return None
        try:
            kept = self.masks.next(x.shape, p, n_mask_axes)
        except ValueError as error:
            self.error = error
            raise
        return kept.to(x.device)

    def _measure(self, func, output):
        """Add up the memory of an operator's results, and store their precision."""
        results = output if isinstance(output, list | tuple) else [output]
        for x in results:
            if isinstance(x, torch.Tensor) and not getattr(func, "is_view", False):
                self.n_bytes += x.nbytes
                if x.is_floating_point():
                    self.eps = max(self.eps, torch.finfo(x.dtype).eps)


def _arguments(func, args, kwargs) -> dict[str, Any]:
    """All arguments of an operator by name, in their order."""
    declared = func._schema.arguments
    given = dict(zip((arg.name for arg in declared), args, strict=False)) | kwargs
    return {arg.name: given.get(arg.name, arg.default_value) for arg in declared}


def _dropout(current: _Pass, func, args, kwargs, *, n_mask_axes=None, alpha=False):
    x, p, train = _arguments(func, args, kwargs).values()
    kept = current.kept(x, p, train, n_mask_axes)
    output = x if kept is None else _masked(x, kept, p, alpha)
    if output is not x and func._schema.is_mutable:
        return x.copy_(output)
    return output


def _masked(x, kept, p, alpha=False):
    """Apply a mask of dropout or alpha dropout.

    Alpha dropout: Klambauer et al. (2017), "Self-normalizing neural networks", NeurIPS,
    section 3.
    """
    kept = kept.to(x.dtype)
    if p == 1 or not alpha:
        return x * (kept / max(1 - p, 1e-12))
    scale = 1 / math.sqrt((_ALPHA**2 * p + 1) * (1 - p))
    return x * (kept * scale) + ((kept - 1) * (_ALPHA * scale) + _ALPHA * scale * p)


def _attention(current: _Pass, func, args, kwargs):
    """Scaled dot product attention with dropout of its weights, by its definition."""
    given = _arguments(func, args, kwargs)
    p, key, value = given["dropout_p"], given["key"], given["value"]
    if p == 0:
        return func(*args, **kwargs)
    query, mask, scale = given["query"], given["attn_mask"], given["scale"]
    if given.get("enable_gqa"):
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)
    if given["is_causal"]:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(above.triu(1), -math.inf)
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if is_bool else scores + mask
    # A query that may not attend to any key has zero weights.
    no_keys = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.softmax(-1).masked_fill(no_keys, 0)
    kept = current.kept(weights, p, True)
    weights = weights if kept is None else _masked(weights, kept, p)
    return weights.to(value.dtype) @ value


def _recurrent(current: _Pass, func, args, kwargs):
    """Stacked recurrent layers, run one by one if there is dropout between them."""
    given = _arguments(func, args, kwargs)
    p, n_layers = given["dropout"], given["num_layers"]
    if p == 0 or n_layers == 1:
        return func(*(given | {"train": False}).values())
    if not given["train"]:
        if current.training:
            current._refuse_switched_off(f"dropout with rate {p:g}")
        return func(*given.values())
    if "batch_sizes" in given:
        current.refuse(
            "`module` must give a recurrent layer with dropout a padded tensor; "
            f"{current.path[-1]} gets a packed sequence, whose rows are not on one "
            "axis. Do not pack it, or set its `dropout` to zero."
        )
    several = not isinstance(given["hx"], torch.Tensor)
    states = list(given["hx"]) if several else [given["hx"]]
    n_ways, n_params = 1 + given["bidirectional"], len(given["params"]) // n_layers
    x, final_states = given["input"], []
    for layer in range(n_layers):
        initial = [state[layer * n_ways : (layer + 1) * n_ways] for state in states]
        layer_arguments: dict[str, Any] = {
            "input": x,
            "hx": initial if several else initial[0],
            "params": given["params"][layer * n_params : (layer + 1) * n_params],
            **{"num_layers": 1, "dropout": 0.0, "train": False},
        }
        x, *final = func(*(given | layer_arguments).values())
        final_states.append(final)
        kept = current.kept(x, p, True) if layer < n_layers - 1 else None
        x = x if kept is None else _masked(x, kept, p)
    return x, *(torch.cat(layers) for layers in zip(*final_states, strict=True))


def _as_in_evaluation(current: _Pass, func, args, kwargs, *, flag):
    """Run an operator without dropout in evaluation mode."""
    given = _arguments(func, args, kwargs)
    # Without running moments, batch moments are used in evaluation mode, too.
    if given.get("running_mean", 0) is not None:
        given[flag] = False
    return func(*given.values())


_HANDLERS: dict[Any, Callable] = {
    _aten.scaled_dot_product_attention: _attention,
    **dict.fromkeys(
        (_aten.lstm, _aten.gru, _aten.rnn_tanh, _aten.rnn_relu), _recurrent
    ),
    _aten.batch_norm: partial(_as_in_evaluation, flag="training"),
    _aten.instance_norm: partial(_as_in_evaluation, flag="use_input_stats"),
    _aten.rrelu: partial(_as_in_evaluation, flag="training"),
    _aten.rrelu_: partial(_as_in_evaluation, flag="training"),
}
# Feature dropout drops whole channels, (rows, channels, ...).
_HANDLERS |= {
    operator: partial(_dropout, n_mask_axes=n_mask_axes, alpha=alpha)
    for name, n_mask_axes, alpha in (
        ("dropout", None, False),
        ("alpha_dropout", None, True),
        ("feature_dropout", 2, False),
        ("feature_alpha_dropout", 2, True),
    )
    for operator in (getattr(_aten, name), getattr(_aten, f"{name}_"))
}
# Fused kernels that torch calls only in evaluation mode.
_WITHOUT_DROPOUT = {
    _aten._transformer_encoder_layer_fwd,
    _aten._native_multi_head_attention,
}


# ---- all passes of a prediction


@dataclass(frozen=True)
class Examined:
    """Results of the check of a module before its draws.

    Parameters
    ----------
    layouts : list of Layout
        Layouts of all calls of dropout.
    evaluated : Tensor of shape (rows, outputs)
        Outputs without dropout, for the compared rows.
    tolerance : float
        Bound of rounding errors, as a share of the largest value.
    n_bytes : int
        Memory for each row of a batch.
    """

    layouts: list[Layout]
    evaluated: torch.Tensor
    tolerance: float
    n_bytes: int


class SharedMaskNetwork:
    """A module whose dropout masks are the same for all rows.

    Parameters
    ----------
    module : nn.Module
        Module in evaluation mode. It is copied, so that `forward` cannot change it.
    """

    def __init__(self, module: nn.Module):
        self.module = copied(module)
        # Running modules, and the number of calls of dropout before each.
        self._path: list[str] = []
        self._n_calls: list[int] = []
        self._without_call: set[str] = set()
        self._pass = _Pass(self._path)
        self._flagged: dict[str, nn.Module] = {}
        self._hooks: list[Any] = []
        for name, layer in self.module.named_modules():
            where = f"`{name or 'module'}` ({type(layer).__name__})"
            if _has_flag(layer):
                self._flagged[where] = layer
            if not isinstance(layer, torch.jit.ScriptModule):
                enter = partial(self._enter, where)
                leave = self._leave
                self._hooks += [
                    layer.register_forward_pre_hook(enter),
                    layer.register_forward_hook(leave, always_call=True),
                ]

    def _enter(self, where, layer, inputs):
        self._path.append(where)
        self._n_calls.append(len(self._pass.calls))

    def _leave(self, layer, inputs, output):
        where, n_calls = self._path.pop(), self._n_calls.pop()
        is_dropout = isinstance(layer, _DropoutNd) and layer.p > 0
        if is_dropout and len(self._pass.calls) == n_calls:
            self._without_call.add(where)

    def run(self, inputs: Inputs, n_rows: int, masks=None, training=True, but=None):
        """Run one forward pass.

        Parameters
        ----------
        inputs : Inputs
        n_rows : int
        masks : _Masks, optional
            Dropout masks; None disables dropout.
        training : bool
            Whether layers with dropout are in training mode.
        but : nn.Module, optional
            A layer that stays in evaluation mode.

        Returns
        -------
        output : Tensor of shape (rows, outputs)
        record : _Pass

        Raises
        ------
        ValueError
            If the module raises an error, or its rows cannot share masks.
        """
        for layer in self._flagged.values():
            flag = training and layer is not but
            if layer.training != flag:
                layer.training = flag
        self._path[:], self._n_calls[:] = ["`module`"], []
        self._pass = record = _Pass(self._path, masks, training and but is None)
        # Copy the inputs, since layers may change them in place.
        args, kwargs = _each_tensor(inputs, torch.clone)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        record.n_bytes = 2 * sum(tensor.nbytes for tensor in tensors)
        try:
            with torch.inference_mode(), record:
                output = self.module(*args, **kwargs)
        except Exception as error:
            if record.error is None and not is_out_of_memory(error):
                how = "as in training" if training else "in evaluation"
                record.error = ValueError(
                    "`module` must accept any number of rows of X, or of the result of "
                    f"`X_transform`; for {n_rows} rows, {how}, it raised "
                    f"{type(error).__name__}: {error}\nThe inputs were "
                    f"{_described(inputs)}. Arrays are converted to the dtype of the "
                    "parameters, integer tensors are not. Only dropout may depend on "
                    "`self.training`."
                )
            raise (record.error or error) from error
        # Code of the module may have caught the error.
        if record.error is not None:
            raise record.error
        if masks is not None:
            masks.check_all_used()
        return _rows_of(output, n_rows), record

    def draws(self, inputs: Inputs, n_rows: int, n_draws: int, layouts) -> np.ndarray:
        """Outputs of all draws, (draws, rows, outputs)."""
        outputs = []
        for draw in range(n_draws):
            masks = _Masks(draw, layouts, n_rows)
            outputs.append(self.run(inputs, n_rows, masks)[0].numpy())
        return np.stack(outputs)

    def examine(self, inputs_of: Callable[[Any], Inputs], n_rows: int) -> Examined:
        """Check the assumptions on the module with a few rows.

        Without dropout, training mode must not change the outputs. With the masks of a
        draw, the outputs of a row must be the same alone and in a batch.

        inputs_of : function of row numbers that returns ``Inputs``

        Raises
        ------
        ValueError
            If an assumption does not hold.
        """
        rows = np.unique(np.linspace(0, n_rows - 1, _N_COMPARED_ROWS).astype(int))
        rows = rows if len(rows) > 1 else np.zeros(2, int)
        batch = inputs_of(rows)
        singles = [inputs_of(rows[i : i + 1]) for i in range(len(rows))]
        evaluated, _ = self.run(batch, len(rows), training=False)
        self._without_call.clear()
        together, record = self.run(batch, len(rows))
        self._check_dropout(record.calls)
        alone, records = zip(*(self.run(row, 1) for row in singles), strict=True)
        layouts = _layouts(record.calls, [single.calls for single in records])
        passes = [(together, alone)]
        for draw in range(_N_COMPARED_DRAWS):
            masks = _Masks(draw, layouts, len(rows), _COMPARED_RATE)
            together, _ = self.run(batch, len(rows), masks)
            alone = tuple(
                self.run(row, 1, _Masks(draw, layouts, 1, _COMPARED_RATE))[0]
                for row in singles
            )
            passes.append((together, alone))
        tolerance = self._tolerance(record.eps)
        atol = tolerance * _largest([together for together, _ in passes])
        if not _agree(evaluated, passes[0][0], atol):
            self._refuse_training_behaviour(batch, passes[0][0], atol)
        for together, alone in passes:
            _check_alone(together, alone, atol)
        # The hooks take time, and module names are no longer needed.
        for hook in self._hooks:
            hook.remove()
        n_bytes = max(record.n_bytes - records[0].n_bytes, 0) // (len(rows) - 1)
        return Examined(layouts, evaluated, tolerance, n_bytes)

    def _tolerance(self, eps: float) -> float:
        """Bound of rounding errors, which grow from layer to layer, relative."""
        if any(value.device.type != "cpu" for value in self.module.parameters()):
            eps = max(eps, 2.0**-11)  # TensorFloat-32
        elif torch.get_float32_matmul_precision() != "highest":
            eps = max(eps, 2.0**-8)  # bfloat16
        return min(4 * math.sqrt(max(eps, torch.finfo(torch.float64).eps)), 0.1)

    def _check_dropout(self, calls):
        if self._without_call:
            raise ValueError(
                "dropout layers of `module` must call torch's dropout; "
                f"{', '.join(sorted(self._without_call))} does not. Use "
                "torch.nn.Dropout or torch.nn.functional.dropout instead, or set its "
                "`p` to zero."
            )
        if not calls:
            raise ValueError(NO_DROPOUT)

    def _refuse_training_behaviour(self, batch, together, atol):
        """Raise and name the layers where training mode changes more than dropout."""
        again, _ = self.run(batch, len(together))
        if not _agree(again, together, atol):
            raise ValueError(
                "`module` must return the same outputs at every call without dropout; "
                "got different ones. Keep no state between calls, and draw random "
                "masks with torch.nn.Dropout or torch.nn.functional.dropout."
            )
        names = []
        for where, layer in self._flagged.items():
            try:
                output, _ = self.run(batch, len(together), but=layer)
            except ValueError:
                continue
            if not _agree(output, together, atol):
                names.append(where)
        raise ValueError(
            "`module` must differ between training and evaluation mode by dropout "
            f"only; without dropout, {', '.join(names) or 'it'} still differs. Let "
            "`forward` use `self.training` for dropout only."
        )


def _layouts(together, alone) -> list[Layout]:
    """Infer the layout of every call from calls for a batch and for its single rows."""
    unequal = [len(calls) for calls in alone if len(calls) != len(together)]
    if unequal:
        raise ValueError(_unequal_calls(unequal[0], together))
    return [
        Layout.infer(call, [calls[i] for calls in alone])
        for i, call in enumerate(together)
    ]


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
                "Avoid batch statistics and padding that depends on the batch, and "
                "draw all masks with torch."
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
