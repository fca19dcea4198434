"""Forward passes of a torch module with one dropout mask for all rows.

torch draws a mask of its own for every row of a batch. Here the mask of a draw is that
of a batch of one row, and all rows share it, so that a prediction does not depend on
the other rows.

A `TorchDispatchMode` sees every operator of a pass, whatever code calls it: layers,
functions, attention, TorchScript. Under `torch.inference_mode` operators arrive as they
are called, not in the parts that they consist of. The mode is of one thread. Nothing in
torch is replaced, and no global generator is used.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode

from skbayesnn._inference.memory import is_out_of_memory

_aten = torch.ops.aten
# The value of SELU at minus infinity, with the sign changed: what alpha dropout sets.
_ALPHA = 1.7580993408473766
# Rows that are compared alone and in a batch, and draws in which they are.
_N_COMPARED_ROWS, _N_COMPARED_DRAWS = 3, 2
# Rate of the masks in that comparison: at small rates two masks are often equal.
_COMPARED_RATE = 0.5

# Positional arguments and keyword arguments of a module's forward.
Inputs = tuple[tuple, dict]

NO_DROPOUT = (
    "`module` must use dropout with a rate > 0 in its forward pass; got none, so that "
    "all draws would be the same. Known are the layers and functions of torch: "
    "Dropout, Dropout1d to 3d, AlphaDropout, FeatureAlphaDropout, and the dropout of "
    "RNN, LSTM, GRU, MultiheadAttention, Transformer and scaled_dot_product_attention."
)


# ---- modules


def copied(module: nn.Module, share_parameters=False) -> nn.Module:
    """A deep copy, with parameters of its own or with the same ones.

    Raises
    ------
    TypeError
        A module that cannot be copied.
    """
    memo: dict[int, Any] = {}
    if share_parameters:
        memo |= {id(value): value for value in module.parameters()}
    for layer in module.modules():
        for value in vars(layer).values():
            values = value.values() if isinstance(value, dict) else value
            for one in values if isinstance(value, dict | list | tuple) else [value]:
                # torch copies no tensor that autograd has computed (weight_norm).
                if isinstance(one, torch.Tensor) and not one.is_leaf:
                    memo[id(one)] = one.detach().clone()
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise TypeError(
            "`module` must be a module that copy.deepcopy can copy; it raised "
            f"{type(error).__name__}: {error}"
        ) from error


def may_have_dropout(module: nn.Module) -> bool:
    """Whether a forward pass may call dropout; False only if it is certain."""
    return any(_rate(layer) > 0 or not _is_of_torch(layer) for layer in module.modules())


def _rate(layer) -> float:
    if isinstance(layer, _DropoutNd):
        return layer.p
    if isinstance(layer, nn.RNNBase):
        return layer.dropout if layer.num_layers > 1 else 0
    return layer.dropout if isinstance(layer, nn.MultiheadAttention) else 0


def _is_of_torch(layer) -> bool:
    # torch.nn.utils.parametrize puts a class of its own before that of the layer.
    names = [kind.__module__ for kind in type(layer).__mro__]
    first = next(name for name in names if name != "torch.nn.utils.parametrize")
    return first.startswith("torch.nn.")


def _has_flag(layer) -> bool:
    """Whether dropout may depend on ``layer.training``.

    Other layers of torch stay as in evaluation. Of other classes nothing is known.
    """
    if not _is_of_torch(layer):
        return not isinstance(layer, _NormBase)
    kinds = _DropoutNd | nn.RNNBase | nn.MultiheadAttention
    of_transformer = type(layer).__module__ == "torch.nn.modules.transformer"
    return isinstance(layer, kinds) or of_transformer


# ---- where the rows are


@dataclass(frozen=True)
class Layout:
    """Where the rows of a batch are in the input of a dropout call.

    Parameters
    ----------
    where : str
        The module that calls dropout.
    shape : tuple of int
        Of the input for a batch of one row.
    axis : int, optional
        Of the rows. None where the input is the same for all rows, as weights are.
    squeezed : bool
        Whether the module drops this axis for a batch of one row.
    rows_vary_fastest : bool
        The order on an axis that the rows share with something else.
    """

    where: str
    shape: tuple[int, ...]
    axis: int | None = None
    squeezed: bool = False
    rows_vary_fastest: bool = False

    def shape_of(self, n_rows: int) -> tuple[int, ...]:
        """Shape of the input for a batch."""
        if self.axis is None or (self.squeezed and n_rows == 1):
            return self.shape
        if self.squeezed:
            return *self.shape[: self.axis], n_rows, *self.shape[self.axis :]
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        return *before, n_rows * self.shape[self.axis], *after

    def joined(self, singles) -> torch.Tensor:
        """The input of a batch, from those of its rows."""
        if self.axis is None:
            return singles[0]
        if self.squeezed:
            return torch.stack(singles, self.axis)
        if self.rows_vary_fastest:
            return torch.stack(singles, self.axis + 1).flatten(self.axis, self.axis + 1)
        return torch.cat(singles, self.axis)

    def repeated(self, mask: torch.Tensor, n_rows: int) -> torch.Tensor:
        """The mask of one row for all rows of a batch."""
        if self.axis is None or (self.squeezed and n_rows == 1):
            return mask
        if self.squeezed:
            return mask.unsqueeze(self.axis)
        # An axis of length one is broadcast.
        if n_rows == 1 or mask.shape[self.axis] == 1:
            return mask
        if self.rows_vary_fastest:
            return mask.repeat_interleave(n_rows, self.axis)
        return torch.cat([mask] * n_rows, self.axis)

    @classmethod
    def found(cls, call, singles, tolerance: float) -> "Layout":
        """The layout that makes the batch's input from those of its rows."""
        batch, n_rows = call.x, len(singles)
        shape = tuple(singles[0].shape)
        layouts = [cls(call.where, shape)]
        for axis in range(batch.ndim):
            layouts.append(cls(call.where, shape, axis, squeezed=True))
            if axis < len(shape):
                layouts.append(cls(call.where, shape, axis))
                layouts.append(cls(call.where, shape, axis, rows_vary_fastest=True))
        if all(one.shape == singles[0].shape for one in singles):
            for layout in layouts:
                if layout.shape_of(n_rows) == batch.shape and _agree(
                    layout.joined(singles), batch, tolerance
                ):
                    return layout
        shapes = sorted({tuple(one.shape) for one in singles})
        raise ValueError(
            "`module` must give dropout an input whose values and shape for a row do "
            f"not depend on the other rows; {call.where} gives it one of shape "
            f"{tuple(batch.shape)} for {n_rows} rows and of shape "
            f"{' or '.join(map(str, shapes))} for a row alone. Let `module` and "
            "`X_transform` treat every row by itself, and pad sequences to a fixed "
            "length."
        )


def _agree(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    """Whether two tensors are equal, up to a share of their largest finite value."""
    if a.shape != b.shape:
        return False
    a, b = a.double(), b.double()
    both = torch.stack([a, b])
    finite = both[both.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(a, b, rtol=0, atol=tolerance * largest, equal_nan=True)


# ---- one pass


class _Call(NamedTuple):
    """A call of dropout: the module that makes it, and its input."""

    where: str
    x: torch.Tensor


class _Masks:
    """The masks of one draw, in the order of the calls of dropout.

    Parameters
    ----------
    draw : int
        The seed.
    layouts : list of Layout, optional
        Of all calls; not needed for a batch of one row.
    n_rows : int
        In the batch.
    rate : float, optional
        The probability of dropping a unit; None takes that of the call.
    """

    def __init__(self, draw: int, layouts=None, n_rows=1, rate=None):
        self.generator = torch.Generator().manual_seed(draw)
        self.layouts = layouts if n_rows > 1 else None
        self.n_rows = n_rows
        self.rate = rate
        self.n_calls = 0

    def next(self, where, shape, p, n_own) -> torch.Tensor:
        """Which units are kept, for all rows; in a shape that broadcasts."""
        layout = Layout(where, tuple(shape))
        if self.layouts is not None:
            known = self.n_calls < len(self.layouts)
            layout = self.layouts[self.n_calls] if known else layout
            if not known or layout.shape_of(self.n_rows) != tuple(shape):
                raise ValueError(
                    "`module` must call dropout equally often, and with inputs of one "
                    f"shape per row, for all rows; call {self.n_calls + 1} in {where} "
                    f"has an input of shape {tuple(shape)} for {self.n_rows} rows. Pad "
                    "sequences to a fixed length, and let no branch depend on the "
                    "values of the rows."
                )
        self.n_calls += 1
        own = layout.shape[:n_own]
        own += (1,) * (len(layout.shape) - len(own))
        rate = p if self.rate is None else self.rate
        uniform = torch.rand(
            own, generator=self.generator, dtype=torch.float32, device="cpu"
        )
        return layout.repeated(uniform >= rate, self.n_rows)

    def check_all_used(self):
        """Refuse a pass with fewer calls of dropout than expected."""
        if self.layouts is not None and self.n_calls != len(self.layouts):
            raise ValueError(
                "`module` must call dropout equally often for all rows; got "
                f"{self.n_calls} calls where there were {len(self.layouts)} for others. "
                "Let no branch depend on the values of the rows."
            )


class _Pass(TorchDispatchMode):
    """Puts our masks in place of torch's during one forward pass.

    Parameters
    ----------
    path : list of str
        The modules that are running, outermost first.
    masks : _Masks, optional
        None switches dropout off and records its calls.
    training : bool
        Whether the training flags are set. A call that is switched off is then an
        error.
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
                "`module` must take random numbers only for torch's dropout; "
                f"{self.path[-1]} calls torch.ops.{func}, whose masks would differ "
                "from row to row. Use torch.nn.Dropout or torch.nn.functional.dropout "
                "there, or set its rate to zero."
            )
        elif self.training and operator in _WITHOUT_DROPOUT:
            self._refuse_switched_off(f"torch.ops.{func}")
        else:
            output = func(*args, **kwargs)
        if self.masks is None:
            self._measure(func, output)
        return output

    def refuse(self, message: str):
        """End the pass; code around the operator may hide the exception."""
        self.error = self.error or ValueError(message)
        raise self.error

    def _refuse_switched_off(self, what):
        self.refuse(
            f"`module` must use dropout where its training flag is set; {what} in "
            f"{self.path[-1]} is switched off, as in a module that was traced in "
            "evaluation. Give the module as it was trained, or set this rate to zero."
        )

    def kept(self, x, p, train, n_own=None, shape=None) -> torch.Tensor | None:
        """Which units a call keeps; None for all.

        n_own : int, axes in front that have masks of their own; None for all
        shape : of x, where only that is known
        """
        if p == 0:
            return None
        if not train:
            if self.training:
                self._refuse_switched_off(f"dropout with rate {p:g}")
            return None
        if self.masks is None:
            # A copy: x may be changed in place.
            self.calls.append(_Call(self.path[-1], x.detach().to("cpu", copy=True)))
            self.n_bytes += x.numel() * x.element_size()
            return None
        shape = x.shape if shape is None else shape
        try:
            kept = self.masks.next(self.path[-1], shape, p, n_own)
        except ValueError as error:
            self.error = error
            raise
        return kept.to(x.device)

    def _measure(self, func, output):
        tensors = output if isinstance(output, list | tuple) else [output]
        for one in tensors:
            if isinstance(one, torch.Tensor) and not getattr(func, "is_view", False):
                self.n_bytes += one.numel() * one.element_size()
                if one.is_floating_point():
                    self.eps = max(self.eps, torch.finfo(one.dtype).eps)


def _arguments(func, args, kwargs) -> dict[str, Any]:
    """All arguments of an operator by name, in their order."""
    declared = func._schema.arguments
    given = dict(zip((one.name for one in declared), args, strict=False)) | kwargs
    return {one.name: given.get(one.name, one.default_value) for one in declared}


def _dropout(one: _Pass, func, args, kwargs, *, n_own=None, alpha=False):
    x, p, train = _arguments(func, args, kwargs).values()
    kept = one.kept(x, p, train, n_own)
    output = x if kept is None else _masked(x, kept, p, alpha)
    if output is not x and func._schema.is_mutable:
        return x.copy_(output)
    return output


def _masked(x, kept, p, alpha=False):
    """Dropout, or alpha dropout (Klambauer et al. 2017, "Self-normalizing neural
    networks", NeurIPS, section 3), with this mask."""
    kept = kept.to(x.dtype)
    if p == 1 or not alpha:
        return x * (kept / max(1 - p, 1e-12))
    scale = 1 / math.sqrt((_ALPHA**2 * p + 1) * (1 - p))
    return x * (kept * scale) + ((kept - 1) * (_ALPHA * scale) + _ALPHA * scale * p)


def _attention(one: _Pass, func, args, kwargs):
    """Attention whose weights are dropped, by its definition instead of one kernel."""
    given = _arguments(func, args, kwargs)
    p = given["dropout_p"]
    if p == 0:
        return func(*args, **kwargs)
    query, key, value = given["query"], given["key"], given["value"]
    options = ("is_causal", "scale", "enable_gqa")
    attend = partial(
        _aten._scaled_dot_product_attention_math,
        query,
        key,
        value,
        given["attn_mask"],
        **{name: given[name] for name in options if name in given},
    )
    if one.masks is None:
        output, weights = attend()
        one.kept(weights, p, True)
        return output
    batch = query.shape[:-2]
    if not given.get("enable_gqa"):
        batch = torch.broadcast_shapes(batch, key.shape[:-2])
    shape = *batch, query.shape[-2], key.shape[-2]
    kept = one.kept(query, p, True, shape=shape)
    return attend(dropout_p=p, dropout_mask=kept)[0]


def _recurrent(one: _Pass, func, args, kwargs):
    """Recurrent layers, one by one where there is dropout between them."""
    given = _arguments(func, args, kwargs)
    p, n_layers = given["dropout"], given["num_layers"]
    if p == 0 or n_layers == 1:
        return func(*(given | {"train": False}).values())
    if not given["train"]:
        if one.training:
            one._refuse_switched_off(f"dropout with rate {p:g}")
        return func(*given.values())
    if "batch_sizes" in given:
        one.refuse(
            "`module` must give a recurrent layer with dropout a padded tensor; "
            f"{one.path[-1]} takes a packed sequence, whose rows do not lie on one "
            "axis. Do not pack it, or set its `dropout` to zero."
        )
    several = not isinstance(given["hx"], torch.Tensor)
    states = list(given["hx"]) if several else [given["hx"]]
    n_ways, n_params = 1 + given["bidirectional"], len(given["params"]) // n_layers
    x, last = given["input"], []
    for layer in range(n_layers):
        start = [one[layer * n_ways : (layer + 1) * n_ways] for one in states]
        own = {
            "input": x,
            "hx": start if several else start[0],
            "params": given["params"][layer * n_params : (layer + 1) * n_params],
            **{"num_layers": 1, "dropout": 0.0, "train": False},
        }
        x, *end = func(*(given | own).values())
        last.append(end)
        kept = one.kept(x, p, True) if layer < n_layers - 1 else None
        x = x if kept is None else _masked(x, kept, p)
    return x, *(torch.cat(each) for each in zip(*last, strict=True))


def _as_in_evaluation(one: _Pass, func, args, kwargs, *, flag):
    """An operator of which training is no dropout."""
    given = _arguments(func, args, kwargs)
    # Without running moments those of the batch are taken in evaluation, too.
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
for _name, _options in {
    "dropout": {},
    "alpha_dropout": {"alpha": True},
    # Whole channels, (rows, channels, ...).
    "feature_dropout": {"n_own": 2},
    "feature_alpha_dropout": {"n_own": 2, "alpha": True},
}.items():
    for _suffix in ("", "_"):
        _HANDLERS[getattr(_aten, _name + _suffix)] = partial(_dropout, **_options)
# Kernels for evaluation alone.
_WITHOUT_DROPOUT = {
    _aten._transformer_encoder_layer_fwd,
    _aten._native_multi_head_attention,
}


# ---- all passes of a prediction


@dataclass(frozen=True)
class Examined:
    """What is known of a module before its draws.

    Parameters
    ----------
    layouts : list of Layout
        Of all calls of dropout.
    evaluated : Tensor of shape (rows, outputs)
        Without dropout, of the rows that were compared.
    tolerance : float
        Of what rounding alone changes, as a share of the largest value.
    n_bytes : int
        Of memory for a row in a batch.
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
        In evaluation. It is copied, but for its parameters.
    """

    def __init__(self, module: nn.Module):
        self.module = copied(module, share_parameters=True)
        # Modules that are running, and how often dropout was called before each.
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
        """One forward pass.

        Parameters
        ----------
        inputs : Inputs
        n_rows : int
        masks : _Masks, optional
            None switches dropout off.
        training : bool
            Whether dropout runs as in training.
        but : nn.Module, optional
            A layer that runs as in evaluation all the same.

        Returns
        -------
        output : Tensor of shape (rows, outputs)
        record : _Pass

        Raises
        ------
        ValueError
            The module fails, or does something that no masks can be shared in.
        """
        for layer in self._flagged.values():
            flag = training and layer is not but
            if layer.training != flag:
                layer.training = flag
        self._path[:], self._n_calls[:] = ["`module`"], []
        self._pass = one = _Pass(self._path, masks, training and but is None)
        # Layers may work in place.
        args, kwargs = _each_tensor(inputs, torch.clone)
        try:
            with torch.inference_mode(), one:
                output = self.module(*args, **kwargs)
        except Exception as error:
            if one.error is not None:
                raise one.error from None
            if is_out_of_memory(error):
                raise
            flags = " with its training flag set" if training else ""
            raise ValueError(
                "`module` must take X, or what `X_transform` makes of it; it raised"
                f"{flags} {type(error).__name__}: {error} Its inputs were "
                f"{_described(inputs)}. Arrays are cast to the precision of the "
                "parameters; a tensor of integers stays as it is."
            ) from error
        if one.error is not None:
            raise one.error
        if masks is not None:
            masks.check_all_used()
        return _rows_of(output, n_rows), one

    def draws(self, inputs: Inputs, n_rows: int, n_draws: int, layouts) -> np.ndarray:
        """Outputs of all draws, (draws, rows, outputs)."""
        outputs = []
        for draw in range(n_draws):
            masks = _Masks(draw, layouts, n_rows)
            outputs.append(self.run(inputs, n_rows, masks)[0].numpy())
        return np.stack(outputs)

    def examine(self, inputs_of: Callable[[Any], Inputs], n_rows: int) -> Examined:
        """Check with a few rows what is assumed of all.

        Without dropout a pass is as in evaluation. With the masks of a draw the
        outputs of a row are the same alone and in a batch.

        inputs_of : callable, row numbers -> ``Inputs``

        Raises
        ------
        ValueError
        """
        rows = np.unique(np.linspace(0, n_rows - 1, _N_COMPARED_ROWS).astype(int))
        rows = rows if len(rows) > 1 else np.zeros(2, int)
        batch = inputs_of(rows)
        singles = [inputs_of(rows[i : i + 1]) for i in range(len(rows))]
        evaluated, _ = self.run(batch, len(rows), training=False)
        self._without_call.clear()
        together, record = self.run(batch, len(rows))
        tolerance = self._tolerance(record.eps)
        if not _agree(evaluated, together, tolerance):
            self._refuse_training_behaviour(batch, together, tolerance)
        self._check_dropout(record.calls)
        alone = [self.run(one, 1) for one in singles]
        _check_alone(together, [output for output, _ in alone], tolerance)
        layouts = _layouts(record.calls, [one.calls for _, one in alone], tolerance)
        for draw in range(_N_COMPARED_DRAWS):
            masks = _Masks(draw, layouts, len(rows), _COMPARED_RATE)
            together, _ = self.run(batch, len(rows), masks)
            outputs = [
                self.run(one, 1, _Masks(draw, layouts, 1, _COMPARED_RATE))[0]
                for one in singles
            ]
            _check_alone(together, outputs, tolerance)
        # They cost time, and the names of the modules are known.
        for hook in self._hooks:
            hook.remove()
        n_bytes = max(record.n_bytes - alone[0][1].n_bytes, 0) // (len(rows) - 1)
        return Examined(layouts, evaluated, tolerance, n_bytes)

    def _tolerance(self, eps: float) -> float:
        """Of rounding, which grows from layer to layer."""
        if any(value.device.type != "cpu" for value in self.module.parameters()):
            eps = max(eps, 2.0**-11)  # TensorFloat-32
        elif torch.get_float32_matmul_precision() != "highest":
            eps = max(eps, 2.0**-8)  # bfloat16
        return math.sqrt(max(eps, torch.finfo(torch.float64).eps))

    def _check_dropout(self, calls):
        if self._without_call:
            raise ValueError(
                "layers of dropout in `module` must call torch's dropout; "
                f"{', '.join(sorted(self._without_call))} does not. Use "
                "torch.nn.Dropout or torch.nn.functional.dropout there, or set its "
                "`p` to zero."
            )
        if not calls:
            raise ValueError(NO_DROPOUT)

    def _refuse_training_behaviour(self, batch, together, tolerance):
        """Name the layers of which training is more than dropout."""
        found = []
        for where, layer in self._flagged.items():
            try:
                output, _ = self.run(batch, len(together), but=layer)
            except ValueError:
                continue
            if not _agree(output, together, tolerance):
                found.append(where)
        raise ValueError(
            "`module` must differ between training and evaluation by dropout alone; "
            f"with dropout switched off, {', '.join(found) or 'it'} still does. Let "
            "`forward` use `self.training` for dropout only."
        )


def _layouts(together, alone, tolerance) -> list[Layout]:
    """Of every call, from the calls for a batch and for each of its rows."""
    if {len(calls) for calls in alone} != {len(together)}:
        raise ValueError(
            "`module` must call dropout equally often for all rows; got "
            f"{len(together)} calls for {len(alone)} rows, and "
            f"{[len(calls) for calls in alone]} for each of them alone. Let no branch "
            "depend on the values of the rows."
        )
    return [
        Layout.found(call, [calls[i].x for calls in alone], tolerance)
        for i, call in enumerate(together)
    ]


def _check_alone(together, alone, tolerance):
    """Refuse outputs for a row that depend on the batch."""
    if not all(_agree(one, together[[i]], tolerance) for i, one in enumerate(alone)):
        raise ValueError(
            "`module` and `X_transform` must treat every row by itself, and return the "
            f"same at every call; the outputs for {len(alone)} rows are "
            f"{together.tolist()} in a batch and {[one.tolist() for one in alone]} "
            "alone, with the same dropout masks. Moments of the batch, or a padding "
            "that depends on it, mix the rows; random numbers other than torch's "
            "dropout differ between calls."
        )


def _rows_of(output, n_rows: int) -> torch.Tensor:
    """What a module returns, (rows, outputs) in float64 on the CPU."""
    rule = "`module` must return one tensor of real numbers, (n_samples[, n_outputs]); "
    if not isinstance(output, torch.Tensor):
        raise ValueError(
            f"{rule}got {type(output).__name__}. Give a module that returns the tensor "
            "of the predictions alone."
        )
    if not output.is_floating_point():
        raise ValueError(
            f"{rule}got {output.dtype}. Classes are predicted from logits or "
            "probabilities, not from labels."
        )
    lengths = [length for length in output.shape if length != 1]
    expected = [n_rows] if n_rows > 1 else []
    if output.numel() == 0 or lengths[:-1] != expected and lengths != expected:
        raise ValueError(
            f"{rule}got shape {tuple(output.shape)} for {n_rows} row"
            f"{'s' if n_rows > 1 else ''}. The rows come first."
        )
    return output.cpu().double().reshape(n_rows, -1)


def _each_tensor(inputs: Inputs, function) -> Inputs:
    args, kwargs = inputs

    def changed(one):
        return function(one) if isinstance(one, torch.Tensor) else one

    return tuple(map(changed, args)), {k: changed(v) for k, v in kwargs.items()}


def _described(inputs: Inputs) -> str:
    args, kwargs = inputs
    return ", ".join(
        f"{tuple(one.shape)} of {one.dtype}"
        if isinstance(one, torch.Tensor)
        else type(one).__name__
        for one in (*args, *kwargs.values())
    )
