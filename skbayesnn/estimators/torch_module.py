"""MC dropout predictions of networks trained in torch or skorch [GG16]."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from numbers import Integral
from typing import Any

import numpy as np
import sklearn
import torch
from scipy import sparse
from sklearn.utils.validation import check_array
from torch import nn

from skbayesnn._data.columns import TableReader, is_frame
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
from skbayesnn._runtime import warn
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    num_samples,
    safe_indexing,
)
from skbayesnn._validation import check_number, check_option
from skbayesnn.estimators._torch_dropout import (
    Examined,
    Inputs,
    SharedMaskNetwork,
    check_dropout,
    copied,
    few,
)

_PARALLEL = nn.DataParallel | nn.parallel.DistributedDataParallel
OUTPUTS = ("logits", "probabilities")
# Number of float64 copies of the outputs of all draws, for the memory estimate.
_N_COPIES = 5
# Memory of torch as a multiple of the results of its operators, for the same estimate.
_WORKSPACE = 3
# Rounding error of a sum of probabilities in half precision.
_ROUNDING = 0.02
# Number of rows from which outputs in [0, 1] are unlikely to be logits.
_ROWS_TO_WARN = 20


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

    def _check_outputs(self, examined: Examined) -> None:
        """Validate the number and the range of the module's outputs."""
        raise NotImplementedError

    def _predictive_of(self, outputs: np.ndarray) -> Any:
        """Return a function of rows that gives their predictive distribution.

        outputs : (draws, rows, outputs)
        """
        raise NotImplementedError

    def _open_predictive(self, X):
        if self.X_transform is None:
            _refuse_other_columns(X)
            X = check_array(X, allow_nd=True, input_name="X")
        n_rows = num_samples(X)
        if n_rows == 0:
            raise ValueError("`X` must have at least one row; got none.")
        network = SharedMaskNetwork(self.module)
        inputs_of = partial(_inputs, self.module, self.X_transform, X)
        examined = network.examine(inputs_of, n_rows)
        self._check_outputs(examined)

        def opened(rows: slice) -> PredictiveBlocks:
            n = rows.stop - rows.start
            outputs = network.draws(inputs_of(rows), n, self.n_draws, examined.calls)
            predictive = self._predictive_of(outputs)
            return PredictiveBlocks(n, predictive, min(BLOCK, n_at_once))

        draw_bytes = self.n_draws * examined.evaluated.shape[1] * 8 * _N_COPIES
        budget = sklearn.get_config()["working_memory"] * 2**20
        n_at_once = max(int(budget / (_WORKSPACE * examined.n_bytes + draw_bytes)), 1)
        return PredictiveBlocks.in_parts(n_rows, opened, n_at_once)


@dataclass(eq=False)
class _TorchRegressor(RegressionPredictiveMixin, RegressorMixin, TorchModule):
    noise_std: float | np.ndarray

    def _check_outputs(self, examined):
        n_targets = examined.evaluated.shape[1]
        shape = np.shape(self.noise_std)
        if shape not in ((), (n_targets,)):
            raise ValueError(
                "`noise_std` must be one number, or one for each of the "
                f"{n_targets} outputs of `module`; got {shape[0]}."
            )

    def _predictive_of(self, mean):
        _check_finite(np.isfinite(mean))
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

    def _check_outputs(self, examined):
        n_outputs, n_classes = examined.evaluated.shape[1], len(self.classes)
        if n_outputs == 1 and n_classes == 2:
            if self.outputs is None:
                raise ValueError(
                    "`outputs` must be 'logits' or 'probabilities' for a module with "
                    "one output; got None. The output is for the second of `classes`, "
                    f"{self.classes[1]!r}."
                )
        elif n_outputs != n_classes:
            raise ValueError(
                f"`module` must have an output for each of {n_classes} classes; got "
                f"{n_outputs}. Only for two classes is one output enough, for the "
                "second class."
            )
        elif self.outputs is None and _on_simplex(examined):
            raise ValueError(
                "`outputs` must be given for this module: its outputs are in [0, 1] "
                "and sum to one in every row, like probabilities, but the default is "
                "logits. Set outputs='probabilities' (or 'logits')."
            )
        elif self.outputs == "probabilities" and not _on_simplex(examined):
            raise ValueError(
                "`module` must return probabilities in [0, 1] that sum to one in every "
                f"row; got {few(examined.evaluated[0])}. If these are logits, set "
                "outputs='logits'."
            )

    def _predictive_of(self, outputs):
        if self.outputs == "probabilities":
            p = outputs
            p = np.concatenate([1 - p, p], 2) if p.shape[2] == 1 else p
            total = p.sum(2, keepdims=True)
            valid = (p >= -_ROUNDING) & (p <= 1 + _ROUNDING)
            valid &= np.abs(total - 1) <= _ROUNDING
            _check_finite(valid, "in [0, 1] and sum to one, also with dropout")
            p = p.clip(0, 1) / total
        else:
            if self.outputs is None:
                _warn_of_shares(outputs)
            if outputs.shape[2] == 1:
                outputs = np.concatenate([np.zeros_like(outputs), outputs], 2)
            p = torch.as_tensor(outputs).softmax(-1).numpy()
            # Check p, not the outputs: a logit of minus infinity is a probability of 0.
            _check_finite(np.isfinite(p))
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
        floats. The result may be an array, a tensor, a tuple
        (positional arguments) or a dict (keyword arguments), with the rows on any axis.
        Arrays and floating-point tensors are converted to the dtype of the parameters;
        integer and boolean tensors keep their dtype.
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
        recurrent layers, attention, TorchScript); if a dropout layer gets the rows on
        another axis than the first; if the outputs of a row depend on other rows; or if
        the module does not return one tensor of finite floats. Some of these errors are
        raised at the first prediction. The message names the layer.

    Notes
    -----
    The dropout layers of a copy of the module are replaced: ``Dropout`` (1d, 2d, 3d)
    and their subclasses. A subclass keeps its
    rate, but not its own ``forward``. As in training, every call has its own mask, also
    if a layer is called twice or once per time step. ``torch.nn.functional.dropout``
    and the ``dropout`` of recurrent layers, attention and transformers are refused: use
    layers instead.

    Each prediction first runs up to three rows, alone and as a batch, and compares the
    results. A dependence between rows is detected only if it shows in these rows. The
    network processes X in blocks of rows; scikit-learn's ``working_memory`` sets their
    size.

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
    if classes is not None:
        classes = _checked_classes(classes)
    if (classes is None) == (noise_std is None):
        raise TypeError(
            "either `classes` (for a classifier) or `noise_std` (for a regressor) must "
            f"be given; got {'neither' if classes is None else 'both'}."
        )
    module, is_skorch = _plain_module(module, outputs)
    if classes is not None:
        outputs = "probabilities" if is_skorch and outputs is None else outputs
        return _TorchClassifier(module, X_transform, n_draws, classes, outputs)
    if outputs is not None:
        raise ValueError(
            f"`outputs` is for classifiers; got {outputs!r} without `classes`. The "
            "outputs of a regressor are means of y."
        )
    if np.ndim(noise_std) == 0:
        noise_std = check_number("noise_std", noise_std, low=0, open_low=True)
    else:
        values = [
            check_number("noise_std", std, low=0, open_low=True) for std in noise_std
        ]
        noise_std = np.array(values)
    return _TorchRegressor(module, X_transform, n_draws, noise_std)


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
    values = chain(module.parameters(), module.buffers())
    if any(nn.parameter.is_lazy(value) for value in values):
        raise ValueError(
            "`module` must have parameters of known shape; got a lazy layer that was "
            "never called. Call the module once, and train it."
        )
    check_dropout(module)
    return copied(module).eval(), is_skorch


def _checked_classes(classes) -> np.ndarray:
    labels = np.asarray(classes)
    if labels.ndim != 1 or len(labels) < 2:
        raise ValueError(
            f"`classes` must be a list of at least 2 labels; got {classes!r}."
        )
    try:
        n_different = len(np.unique(labels))
    except TypeError as error:
        raise TypeError(
            "`classes` must contain labels that can be sorted, all of one type; got "
            f"{labels.tolist()}."
        ) from error
    if n_different < len(labels):
        raise ValueError(
            f"`classes` must contain each label once; got {labels.tolist()}. Give a "
            "label for each output of the module, in their order."
        )
    return labels


def _refuse_other_columns(X) -> None:
    """Raise an error with the names of a frame's columns that are not all numbers."""
    if not is_frame(X):
        return
    reader = TableReader(X)
    others = [column.name for column in reader if not column.is_complete_number()]
    if others:
        raise ValueError(
            "every column of X must contain numbers, none of them missing; got other "
            f"values in {', '.join(map(repr, others))}. Give `X_transform`, which "
            "converts rows of X to the input of the module."
        )


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
    convert = partial(_tensor, device=device, dtype=next(dtypes, torch.float32))
    if isinstance(values, Mapping):
        return (), {name: convert(value) for name, value in values.items()}
    # Not isinstance: a packed sequence is a named tuple, but one argument.
    return tuple(map(convert, values if type(values) is tuple else (values,))), {}


def _tensor(value, device, dtype):
    """Convert an array or a tensor for the module; return other objects unchanged."""
    if sparse.issparse(value):
        value = value.toarray()
    if not isinstance(value, torch.Tensor):
        has_tensors = isinstance(value, list) and any(
            isinstance(item, torch.Tensor) for item in value
        )
        if has_tensors or not (isinstance(value, list) or hasattr(value, "__array__")):
            return value
        value = np.asarray(value)
        if value.dtype.kind not in "fiub":
            raise TypeError(
                "`X_transform` must return numeric arrays; got an array of "
                f"{value.dtype}. Encode categories as integers."
            )
        value = as_tensor(value).to(dtype)
    value = value.to(device)
    if not value.is_floating_point():
        return value
    if value.isnan().any():
        raise ValueError(
            "`X_transform` must return no NaN; got some. Impute missing values in it, "
            "or before the estimator."
        )
    return value.to(dtype)


def _check_finite(valid, rule="finite") -> None:
    """Raise if some outputs are not valid, (draws, rows, outputs)."""
    invalid = ~valid.all((0, 2))
    if invalid.any():
        raise ValueError(
            f"`module` must return outputs that are {rule}; got others in "
            f"{invalid.sum()} of {len(invalid)} rows, first in row {invalid.argmax()} "
            "of its block. Check that X has the units of the training data."
        )


def _on_simplex(examined: Examined) -> bool:
    """Whether the outputs are probabilities of the classes."""
    p, tolerance = examined.evaluated, examined.tolerance
    inside = (p > -tolerance) & (p < 1 + tolerance)
    total = (p.sum(1) - 1).abs() < tolerance
    return bool(inside.all() and total.all())


def _warn_of_shares(outputs) -> None:
    """Warn if logits may be probabilities of one class against the others."""
    if outputs.shape[1] >= _ROWS_TO_WARN and ((outputs >= 0) & (outputs <= 1)).all():
        warn(
            "SKB405",
            "all outputs of `module` are in [0, 1], but they are treated as logits. "
            "If they are probabilities of one class against the others, give the "
            "module without its last sigmoid. If they are logits, set "
            "outputs='logits'.",
        )
