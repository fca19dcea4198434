"""MC dropout predictions of networks trained in torch or skorch [GG16]."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import check_array
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from skbayesnn._data.sources import working_memory
from skbayesnn._distributions.components import Gaussians, columns_of
from skbayesnn._engine.resources import as_tensor
from skbayesnn._predictive.blocks import BLOCK, PredictiveBlocks
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import (
    ClassificationPredictiveMixin,
    PredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    num_samples,
    safe_indexing,
)
from skbayesnn._validation import check_number, check_option

_PARALLEL = nn.DataParallel | nn.parallel.DistributedDataParallel
OUTPUTS = ("logits", "probabilities")
# Most rows of a pass of the network, and an estimate of its memory: copies of the
# outputs of all draws, and memory as a multiple of the inputs.
_MAX_ROWS, _N_COPIES, _WORKSPACE = 8192, 5, 64
# Rounding error of a sum of probabilities in half precision.
_ROUNDING = 0.02
# Kinds of dropout whose units are independent, and whose channels are.
_OF_UNITS, _OF_CHANNELS = nn.Dropout, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d
_LAYERS = "Dropout, Dropout1d, Dropout2d or Dropout3d"
# Positional arguments and keyword arguments of a module's forward.
Inputs = tuple[tuple, dict]


# ---- estimators


@dataclass(eq=False)
class TorchModule(PredictiveMixin, BaseEstimator):
    """What ``from_torch`` returns."""

    module: nn.Module
    X_transform: Callable | None
    n_draws: int

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y=None):
        """Do nothing: the network is already trained, as in a `FrozenEstimator`."""
        return self

    def _check_outputs(self, outputs: np.ndarray) -> None:
        """Validate the number and the range of outputs, (rows, outputs)."""
        raise NotImplementedError

    def _predictive_of(self, outputs: np.ndarray) -> Any:
        """Return a function of rows that gives their predictive distribution.

        outputs : (draws, rows, outputs)
        """
        raise NotImplementedError

    def _open_predictive(self, X):
        if self.X_transform is None:
            X = check_array(X, allow_nd=True, input_name="X")
        n_rows = num_samples(X)
        if n_rows == 0:
            raise ValueError("`X` must have at least one row; got none.")
        network = SharedMaskNetwork(self.module)
        inputs_of = partial(_inputs, self.module, self.X_transform, X)
        outputs = network.examine(inputs_of, n_rows)
        self._check_outputs(outputs)

        def opened(rows: slice) -> PredictiveBlocks:
            n, inputs = rows.stop - rows.start, inputs_of(rows)
            draws = [network.run(inputs, n, k).numpy() for k in range(self.n_draws)]
            predictive = self._predictive_of(np.stack(draws))
            return PredictiveBlocks(n, predictive, min(BLOCK, n))

        args, kwargs = inputs_of(slice(0, 1))
        n_bytes = _WORKSPACE * sum(x.nbytes for x in (*args, *kwargs.values()))
        n_bytes += self.n_draws * outputs.shape[1] * 8 * _N_COPIES
        n_at_once = min(working_memory() // n_bytes, _MAX_ROWS)
        return PredictiveBlocks.in_parts(n_rows, opened, max(int(n_at_once), 1))


@dataclass(eq=False)
class _TorchRegressor(RegressionPredictiveMixin, RegressorMixin, TorchModule):
    noise_std: np.ndarray

    def _check_outputs(self, outputs):
        n_targets = outputs.shape[1]
        if self.noise_std.shape not in ((), (n_targets,)):
            raise ValueError(
                "`noise_std` must be one number, or one for each of the "
                f"{n_targets} outputs of `module`; got {len(self.noise_std)}."
            )

    def _predictive_of(self, mean):
        _check_valid(np.isfinite(mean))
        variance, flat = np.empty_like(mean), mean.shape[2] == 1
        variance[:] = np.square(self.noise_std)
        return lambda rows: MixturePredictive(
            Gaussians(mean[:, rows], variance[:, rows]), flat
        )


@dataclass(eq=False)
class _TorchClassifier(ClassificationPredictiveMixin, ClassifierMixin, TorchModule):
    classes: np.ndarray
    outputs: str | None

    @property
    def classes_(self):
        """Class labels, sorted."""
        return np.sort(self.classes)

    def _check_outputs(self, outputs):
        n_outputs, n_classes = outputs.shape[1], len(self.classes)
        if n_outputs != n_classes and (n_outputs, n_classes) != (1, 2):
            raise ValueError(
                f"`module` must have an output for each of {n_classes} classes; got "
                f"{n_outputs}. Only for two classes is one output enough, for the "
                "second class."
            )
        if self.outputs is None and (
            n_outputs == 1 or _are_probabilities(outputs).all()
        ):
            raise ValueError(
                "`outputs` must be 'logits' or 'probabilities' for a module with one "
                "output, which is for the second of `classes`, or with outputs that "
                "sum to one in every row; got None."
            )

    def _predictive_of(self, outputs):
        if self.outputs == "probabilities":
            p = outputs
            p = np.concatenate([1 - p, p], 2) if p.shape[2] == 1 else p
            valid = np.broadcast_to(_are_probabilities(p)[..., np.newaxis], p.shape)
            _check_valid(valid, "probabilities, or give outputs='logits'")
            p = p.clip(0, 1)
            p /= p.sum(2, keepdims=True)
        else:
            if outputs.shape[2] == 1:
                outputs = np.concatenate([np.zeros_like(outputs), outputs], 2)
            p = torch.as_tensor(outputs).softmax(-1).numpy()
            # Check p, not the outputs: a logit of minus infinity is a probability of 0.
            _check_valid(np.isfinite(p))
        # Reorder from `classes` (as given) to `classes_` (sorted).
        classes = self.classes_
        p = p[..., columns_of(classes, self.classes)]
        return lambda rows: ClassPredictive(p[:, rows], classes)


class _SkorchModule(nn.Module):
    """The module of a skorch net, followed by skorch's ``predict_nonlinearity``."""

    def __init__(self, net, nonlinearity):
        super().__init__()
        self.module = net.module_
        self.nonlinearity = nonlinearity
        self.is_classification = isinstance(net, ClassifierMixin)

    def forward(self, *args, **kwargs):
        output = self.module(*args, **kwargs)
        output = output[0] if isinstance(output, tuple) else output
        if self.nonlinearity is None:
            return output
        # For two classes, skorch's functions require a vector.
        if self.is_classification and output.ndim == 2 and output.shape[1] == 1:
            output = output[:, 0]
        return self.nonlinearity(output)


def from_torch(
    module, X_transform=None, *, classes=None, outputs=None, noise_std=None, n_draws=50
) -> Any:
    """Wrap a trained torch module as an estimator with MC dropout predictions.

    Use it for a network that was trained with dropout layers in torch or skorch. These
    run as in training, everything else runs in evaluation mode. All rows share the mask
    of a draw, so the prediction for a row does not depend on the other rows, up to
    rounding.

    Parameters
    ----------
    module : torch.nn.Module, or a fitted skorch net
        Trained network, which is copied. It returns the means of y,
        (n_samples[, n_targets]), or one output for each class, (n_samples, n_classes).
        For a skorch net, skorch's ``predict_nonlinearity`` is applied to the first
        output.
    X_transform : callable, default=None
        Function that converts rows of X to the input of the module, such as the
        ``transform`` of a fitted :class:`~skbayesnn.preprocessing.TableEncoder` for a
        frame with categories. None requires X to be an array or a frame of finite
        floats. The result may be an array, a tensor, a tuple of them (positional
        arguments) or a dict of them (keyword arguments). Arrays and floating-point
        tensors are converted to the dtype of the parameters; integer and boolean
        tensors keep their dtype.
    classes : array-like of shape (n_classes,), default=None
        Distinct labels, in the order of the outputs. Give them for a classifier. As
        usual in scikit-learn, its ``classes_`` and the columns of ``predict_proba`` are
        sorted.
    outputs : {"logits", "probabilities"}, default=None
        Kind of the outputs of a classifier. Log probabilities are also logits. With two
        classes, a single output belongs to ``classes[1]``. None means probabilities for
        a skorch net and logits for a module. A module with one output, or with outputs
        that sum to one, requires an explicit value.
    noise_std : float > 0, or array-like of shape (n_targets,), default=None
        Standard deviation of the observation noise, in the units of y. Give it for a
        regressor. Estimate it from residuals on held-out rows.
    n_draws : int, default=50
        Number of dropout masks. The time of a prediction is proportional to it.

    Returns
    -------
    model : object
        A fitted regressor or classifier, with ``predict``, ``predict_proba``,
        ``predict_uncertainty``, ``predict_interval``, ``log_predictive_density``,
        ``sample_y`` and other methods of the estimators.

    Raises
    ------
    ValueError, TypeError
        If the module has no dropout layer; if it uses dropout elsewhere (functions,
        recurrent layers, attention); if a dropout layer gets the rows on another axis
        than the first; if the outputs of a row depend on other rows; or if the module
        does not return one tensor of finite floats. Some of these errors are raised at
        the first prediction. The message names the layer.

    Notes
    -----
    The dropout layers of a copy of the module are replaced: ``Dropout`` (1d, 2d, 3d)
    and their subclasses. A subclass keeps its
    rate, but not its own ``forward``. As in training, every call has its own mask, also
    if a layer is called twice or once per time step. ``torch.nn.functional.dropout``
    and the ``dropout`` of recurrent layers, attention and transformers are refused: use
    layers instead.

    Each prediction first runs the first and the last row, alone and as a batch, and
    compares the results. A dependence between rows is detected only if it shows in
    these rows. The network processes X in blocks of at most 8,192 rows, fewer if they
    would take more than scikit-learn's ``working_memory``.

    References
    ----------
    Gal & Ghahramani (2016), "Dropout as a Bayesian approximation: representing model
    uncertainty in deep learning", ICML.

    Examples
    --------
    >>> from torch import nn
    >>> from skbayesnn import from_torch
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 1))
    >>> from_torch(net, noise_std=0.1).predict_interval([[1.0, 2.0, 3.0]]).shape
    (1, 2)
    """
    n_draws = check_number("n_draws", n_draws, kind=Integral, low=1)
    if outputs is not None:
        check_option("outputs", outputs, OUTPUTS)
    if (classes is None) == (noise_std is None):
        raise TypeError(
            "either `classes` (for a classifier) or `noise_std` (for a regressor) must "
            f"be given; got {'neither' if classes is None else 'both'}."
        )
    module, is_skorch = _plain_module(module, outputs)
    if classes is not None:
        labels = np.asarray(classes)
        if labels.ndim != 1 or not 2 <= len(labels) == len(np.unique(labels)):
            raise ValueError(
                "`classes` must be at least 2 different labels, one for each output "
                f"of the module; got {classes!r}."
            )
        outputs = "probabilities" if is_skorch and outputs is None else outputs
        return _TorchClassifier(module, X_transform, n_draws, labels, outputs)
    if outputs is not None:
        raise ValueError(
            f"`outputs` is for classifiers; got {outputs!r} without `classes`. The "
            "outputs of a regressor are means of y."
        )
    std = np.asarray(noise_std, dtype=np.float64)
    if std.ndim > 1 or not (np.isfinite(std) & (std > 0)).all():
        raise ValueError(
            "`noise_std` must be a finite number > 0, or one for each target; got "
            f"{noise_std!r}."
        )
    return _TorchRegressor(module, X_transform, n_draws, std)


def _plain_module(module, outputs) -> tuple[nn.Module, bool]:
    """Copy a module in evaluation mode; also return whether it is a skorch net."""
    is_skorch = hasattr(module, "_get_predict_nonlinearity")
    if is_skorch and hasattr(module, "module_"):
        function = None if outputs else module._get_predict_nonlinearity()
        module = _SkorchModule(module, function)
    if not isinstance(module, nn.Module):
        raise TypeError(
            "`module` must be a torch.nn.Module or a fitted skorch net; got "
            f"{type(module).__name__}{', which is not fitted' if is_skorch else ''}."
        )
    # Unwrap parallel and compiled modules.
    while isinstance(module, _PARALLEL) or hasattr(module, "_orig_mod"):
        module = module.module if isinstance(module, _PARALLEL) else module._orig_mod
    _check_dropout(module)
    return copy.deepcopy(module).eval(), is_skorch


def _check_dropout(module: nn.Module) -> None:
    """Raise if the dropout of a module cannot be replaced, or if it has none."""
    found = False
    for where, layer in _named(module):
        is_dropout = isinstance(layer, _DropoutNd) and layer.p > 0
        recurrent = isinstance(layer, nn.RNNBase) and layer.num_layers > 1
        fused = recurrent or isinstance(layer, nn.MultiheadAttention)
        inside = fused and bool(layer.dropout)
        if inside or (is_dropout and not isinstance(layer, _OF_UNITS | _OF_CHANNELS)):
            raise ValueError(
                f"`module` must use no other dropout than torch.nn's {_LAYERS}, whose "
                f"masks all rows can share; {where} has its own. Set its dropout to "
                "zero, and put torch.nn.Dropout behind the layer."
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


def _inputs(module, X_transform, X, rows) -> Inputs:
    """Arguments of the module for some rows of X.

    rows : slice, or array of row indices
    """
    values = safe_indexing(X, rows)
    if X_transform is not None:
        values = X_transform(values)
    tensors = [*module.parameters(), *module.buffers()]
    device = next((tensor.device for tensor in tensors), torch.device("cpu"))
    dtypes = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
    dtype = next(dtypes, torch.float32)

    def converted(value):
        value = value.toarray() if sparse.issparse(value) else value
        if not isinstance(value, torch.Tensor):
            return as_tensor(np.asarray(value, dtype=np.float64)).to(device, dtype)
        return value.to(device, dtype if value.is_floating_point() else None)

    if isinstance(values, Mapping):
        return (), {name: converted(value) for name, value in values.items()}
    values = values if isinstance(values, tuple) else (values,)
    return tuple(map(converted, values)), {}


def _check_valid(valid, rule="finite") -> None:
    """Raise if some outputs are not valid, (draws, rows, outputs)."""
    invalid = ~valid.all((0, 2))
    if invalid.any():
        raise ValueError(
            f"`module` must return outputs that are {rule}; got others in "
            f"{invalid.sum()} of {len(invalid)} rows, first in row {invalid.argmax()} "
            "of its block. Check that X has the units of the training data and no "
            "missing values."
        )


def _are_probabilities(p: np.ndarray) -> np.ndarray:
    """Whether rows are the probabilities of the classes, (..., rows, outputs)."""
    inside = (p >= -_ROUNDING) & (p <= 1 + _ROUNDING)
    return inside.all(-1) & (np.abs(p.sum(-1) - 1) <= _ROUNDING)


# ---- a draw for all rows


class _SharedDropout(nn.Module):
    """Replaces a dropout layer; all rows share its masks.

    Parameters
    ----------
    where : str
        Name of the layer for messages.
    layer : _DropoutNd
        Of a subclass, the rate is used, and not its forward.
    network : SharedMaskNetwork
        It has the random numbers of the present pass.
    """

    def __init__(self, where: str, layer: _DropoutNd, network: "SharedMaskNetwork"):
        super().__init__()
        self.where, self.p, self._network = where, layer.p, network
        self.by_channel = isinstance(layer, _OF_CHANNELS)

    def forward(self, x):
        network = self._network
        if x.ndim < 2 + self.by_channel or len(x) != network.n_rows:
            axes = "(rows, channels, ...)" if self.by_channel else "(rows, ...)"
            raise ValueError(
                f"dropout layers of `module` must get inputs of shape {axes}; "
                f"{self.where} gets {tuple(x.shape)} for {network.n_rows} rows. Put "
                "the rows on the first axis there."
            )
        network.n_calls += 1
        if network.generator is None:
            return x
        shape = x.shape[1:]
        if self.by_channel:
            shape = shape[:1] + (1,) * (len(shape) - 1)
        generator = network.generator
        uniform = torch.rand(1, *shape, generator=generator, dtype=torch.float32)
        return x * ((uniform >= self.p).to(x) / max(1 - self.p, 1e-12))


class SharedMaskNetwork:
    """A copy of a module whose dropout masks are the same for all rows.

    torch draws a separate mask for every row of a batch. Here all rows share the mask
    of a draw, so that a prediction does not depend on the other rows.

    Parameters
    ----------
    module : nn.Module
        Module in evaluation mode.
    """

    def __init__(self, module: nn.Module):
        self.module = copy.deepcopy(module)
        self.n_rows = self.n_calls = 0
        self.generator: torch.Generator | None = None
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

    def run(self, inputs: Inputs, n_rows: int, draw: int | None = None) -> torch.Tensor:
        """Outputs of one forward pass, (rows, outputs), float64.

        draw : seed of the masks; None switches dropout off

        Raises
        ------
        ValueError
            If the module does not return one tensor with the rows first.
        """
        self.n_rows, self.n_calls = n_rows, 0
        self.generator = None if draw is None else torch.Generator().manual_seed(draw)
        # Copy the inputs, since layers may change them in place.
        args = [value.clone() for value in inputs[0]]
        kwargs = {name: value.clone() for name, value in inputs[1].items()}
        with torch.inference_mode():
            output = self.module(*args, **kwargs)
        shape, kind = getattr(output, "shape", ()), getattr(output, "dtype", None)
        is_valid = shape[:1] == (n_rows,) and len(shape) < 3 and output.numel() > 0
        if not is_valid or not output.is_floating_point():
            raise ValueError(
                "`module` must return one tensor of real numbers, (n_samples[, "
                f"n_outputs]); got {type(output).__name__} of shape {tuple(shape)} and "
                f"type {kind} for {n_rows} rows."
            )
        return output.cpu().double().reshape(n_rows, -1)

    def examine(self, inputs_of: Callable[[Any], Inputs], n_rows: int) -> np.ndarray:
        """Check the assumptions on the module with two rows; return their outputs.

        Without dropout, the training flags must not change the outputs. With the masks
        of a draw, the outputs of a row must be the same alone and in a batch.

        inputs_of : function of row numbers that returns ``Inputs``

        Raises
        ------
        ValueError
            If an assumption does not hold.
        """
        rows = np.array([0, n_rows - 1])
        batch = inputs_of(rows)
        evaluated = self.run(batch, 2)
        if not self.n_calls:
            raise ValueError(
                "`module` must call its dropout layers in its forward pass, or all "
                "draws are equal; it calls none."
            )
        for draw in (None, 0):
            together = self.run(batch, 2, draw)
            alone = [self.run(inputs_of(rows[[i]]), 1, draw) for i in range(2)]
            self._check_equal(
                torch.cat(alone),
                together,
                "treat every row separately, without batch statistics, a state or "
                "random numbers; a row alone has another output than in a "
                "batch",
            )
        for where, layer in self._flagged.items():
            layer.training = True
            self._check_equal(
                self.run(batch, 2),
                evaluated,
                "differ between training and evaluation by its dropout layers only; "
                f"{where} still differs without them",
            )
            layer.training = False
        return evaluated.numpy()

    def _check_equal(self, a: torch.Tensor, b: torch.Tensor, rule: str) -> None:
        """Raise if outputs differ by more than rounding errors."""
        values = [*self.module.parameters(), *self.module.buffers()]
        eps = max(
            (torch.finfo(v.dtype).eps for v in values if v.is_floating_point()),
            default=0.0,
        )
        on_cpu = all(value.device.type == "cpu" for value in values)
        # TensorFloat-32 on a GPU; rounding errors grow from layer to layer.
        tolerance = 4 * max(eps, 1e-9 if on_cpu else 2.0**-11) ** 0.5
        scale = b.nan_to_num(0, 0, 0).abs().max()
        if not torch.allclose(a, b, 0, float(tolerance * scale), equal_nan=True):
            raise ValueError(
                f"`module` must {rule}: {a.tolist()} and {b.tolist()}. Replace "
                "torch.nn.functional.dropout, dropout of attention and own masks by "
                f"torch.nn's {_LAYERS}."
            )
