"""MC dropout of a network that was trained in torch or skorch [GG16]."""

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

from skbayesnn._distributions.components import Gaussians, columns_of
from skbayesnn._engine.resources import tensor_of
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import (
    BLOCK,
    PredictiveBlocks,
    PredictiveMixin,
    RegressionPredictiveMixin,
    mean_and_covariance,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._runtime import default_settings, warn
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    num_samples,
    safe_indexing,
)
from skbayesnn._validation import check_number, check_one_of_std_and_cov, check_option
from skbayesnn.estimators._torch_dropout import (
    NO_DROPOUT,
    Examined,
    Inputs,
    SharedMaskNetwork,
    copied,
    few,
    may_have_dropout,
)

_PARALLEL = nn.DataParallel | nn.parallel.DistributedDataParallel
OUTPUTS = ("logits", "probabilities")
# Copies of the outputs of all draws that are held at once, in float64, and what torch
# takes in addition to the results of its operators.
_N_COPIES, _WORKSPACE = 5, 1.5
# Of a sum of probabilities in half precision.
_ROUNDING = 0.02
# Rows from which outputs in [0, 1] are no accident.
_ROWS_TO_WARN = 20


@dataclass(eq=False)
class _TorchModule(PredictiveMixin, BaseEstimator):
    module: nn.Module
    X_transform: Callable | None
    n_draws: int

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y=None):
        """Do nothing: the network is trained already, as in a `FrozenEstimator`."""
        return self

    def _check_outputs(self, found: Examined) -> None:
        raise NotImplementedError

    def _predictive_of(self, outputs: np.ndarray) -> Any:
        raise NotImplementedError

    def _open_predictive(self, X):
        if self.X_transform is None:
            X = check_array(X, allow_nd=True, input_name="X")
        n_rows = num_samples(X)
        if n_rows == 0:
            raise ValueError("`X` must have at least one row; got none.")
        network = SharedMaskNetwork(self.module)
        inputs_of = partial(_inputs, self.module, self.X_transform, X)
        found = network.examine(inputs_of, n_rows)
        self._check_outputs(found)

        def opened(rows: slice) -> PredictiveBlocks:
            n = rows.stop - rows.start
            outputs = network.draws(inputs_of(rows), n, self.n_draws, found.layouts)
            predictive = self._predictive_of(outputs)
            return PredictiveBlocks(n, predictive, min(BLOCK, n_at_once))

        of_draws = self.n_draws * found.evaluated.shape[1] * 8 * _N_COPIES
        budget = sklearn.get_config()["working_memory"] * 2**20
        n_at_once = max(int(budget / (_WORKSPACE * found.n_bytes + of_draws)), 1)
        return PredictiveBlocks.in_parts(n_rows, opened, n_at_once)


@dataclass(eq=False)
class _TorchRegressor(RegressionPredictiveMixin, RegressorMixin, _TorchModule):
    noise_std: float | np.ndarray

    def _check_outputs(self, found):
        n_targets = found.evaluated.shape[1]
        given = np.shape(self.noise_std)
        if given not in ((), (n_targets,)):
            raise ValueError(
                "`noise_std` must be one number, or one for each of the "
                f"{n_targets} outputs of `module`; got {given[0]}."
            )

    def _predictive_of(self, mean):
        _check_finite(np.isfinite(mean))
        variance, flat = np.empty_like(mean), mean.shape[2] == 1
        variance[:] = np.square(self.noise_std)
        return lambda rows: MixturePredictive(
            Gaussians(mean[:, rows], variance[:, rows]), flat
        )

    @default_settings
    def predict(self, X, return_std=False, return_cov=False):
        """Predictive mean, and the total predictive standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), or what ``X_transform`` takes
        return_std : bool, default=False
        return_cov : bool, default=False
            Whether to return the covariance of the targets; not with ``return_std``.

        Returns
        -------
        mean : ndarray of shape (n_samples[, n_targets])
            Over the draws, in y's units.
        std : ndarray of the same shape
            Only with ``return_std=True``; in y's units, noise included (eq. 6).
        cov : ndarray of shape (n_samples, n_targets, n_targets)
            Only with ``return_cov=True``.
        """
        if return_cov:
            check_one_of_std_and_cov(return_std)
            return mean_and_covariance(self._open_predictive(X))
        parts = [
            (one.mean(), one.uncertainty(["total"])["total"] if return_std else None)
            for _, one in self._open_predictive(X).blocks()
        ]
        means, stds = zip(*parts, strict=True)
        mean = np.concatenate(means)
        return (mean, np.concatenate(stds)) if return_std else mean


@dataclass(eq=False)
class _TorchClassifier(ClassifierMixin, _TorchModule):
    classes: np.ndarray
    outputs: str | None

    @property
    def classes_(self):
        """All labels, sorted."""
        return np.sort(self.classes)

    def _check_outputs(self, found):
        n_outputs, n_classes = found.evaluated.shape[1], len(self.classes)
        if n_outputs == 1 and n_classes == 2:
            if self.outputs is None:
                raise ValueError(
                    "`outputs` must be 'logits' or 'probabilities' for a module of one "
                    f"output; got None. It is that of {self.classes[1]!r}, the second "
                    "of `classes`."
                )
        elif n_outputs != n_classes:
            raise ValueError(
                f"`module` must have an output for each of {n_classes} classes; got "
                f"{n_outputs}. Only two classes may have one output, that of the "
                "second."
            )
        elif self.outputs is None and _on_simplex(found):
            raise ValueError(
                "`outputs` must be given for this module: its outputs are in [0, 1] "
                "and sum to one in every row, as probabilities do, and by default they "
                "are logits. Set outputs='probabilities' (or 'logits')."
            )
        elif self.outputs == "probabilities" and not _on_simplex(found):
            raise ValueError(
                "`module` must return probabilities in [0, 1] that sum to one in every "
                f"row; got {few(found.evaluated[0])}. If these are logits, set "
                "outputs='logits'."
            )

    def _predictive_of(self, outputs):
        if self.outputs == "probabilities":
            p = outputs
            p = np.concatenate([1 - p, p], 2) if p.shape[2] == 1 else p
            total = p.sum(2, keepdims=True)
            right = (p >= -_ROUNDING) & (p <= 1 + _ROUNDING)
            right &= np.abs(total - 1) <= _ROUNDING
            _check_finite(right, "in [0, 1] and sum to one, with dropout, too")
            p = p.clip(0, 1) / total
        else:
            if self.outputs is None:
                _warn_of_shares(outputs)
            if outputs.shape[2] == 1:
                outputs = np.concatenate([np.zeros_like(outputs), outputs], 2)
            p = torch.as_tensor(outputs).softmax(-1).numpy()
            # A logit of minus infinity is a probability of zero.
            _check_finite(np.isfinite(p))
        # From the order of the outputs to that of `classes_`.
        classes = self.classes_
        p = p[..., columns_of(classes, self.classes)]
        return lambda rows: ClassPredictive(p[:, rows], classes)

    @default_settings
    def predict_proba(self, X):
        """Mean over the draws of the class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), or what ``X_transform`` takes

        Returns
        -------
        probability : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        blocks = self._open_predictive(X).blocks()
        return np.concatenate([one.mean() for _, one in blocks])

    @default_settings
    def predict_log_proba(self, X):
        """Logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X):
        """The class of the largest mean probability."""
        return self.classes_[self.predict_proba(X).argmax(1)]


class _SkorchModule(nn.Module):
    """The module of a skorch net and the function that skorch puts behind it."""

    def __init__(self, net, nonlinearity):
        super().__init__()
        self.module = net.module_
        self.nonlinearity = nonlinearity
        self.of_classes = isinstance(net, ClassifierMixin)

    def forward(self, *args, **kwargs):
        output = self.module(*args, **kwargs)
        output = output[0] if isinstance(output, tuple) else output
        if self.nonlinearity is None:
            return output
        # skorch's functions for two classes take a vector.
        if self.of_classes and output.ndim == 2 and output.shape[1] == 1:
            output = output[:, 0]
        return self.nonlinearity(output)


def from_torch(
    module, X_transform=None, *, classes=None, outputs=None, noise_std=None, n_draws=50
) -> Any:
    """MC dropout predictions of a trained network, with the methods of this package.

    Use it for a network that was trained with dropout in torch or skorch. All dropout
    runs as in training, also in layers that are in evaluation mode; everything else
    runs as in evaluation. A draw has one mask for all rows: up to rounding, the
    prediction for a row does not depend on the other rows.

    Parameters
    ----------
    module : torch.nn.Module, or a fitted skorch net
        Maps rows to means of y, (n_samples[, n_targets]), or to one output for each
        class, (n_samples, n_classes). It is copied. Of a skorch net the first output
        is used, and the function that skorch applies to it (``predict_nonlinearity``).
    X_transform : callable, default=None
        From some rows of X to the input of the module. A tensor of integers or booleans
        keeps its dtype. Floating-point tensors and arrays get the dtype of the
        parameters. A tuple holds positional arguments, a dict keyword arguments. The
        rows may be on any axis. None means that X is an array of finite numbers.
    classes : array-like of shape (n_classes,), default=None
        Labels in the order of the outputs, each once; makes a classifier. Its
        ``classes_`` and the columns of ``predict_proba`` are sorted, as scikit-learn's
        are.
    outputs : {"logits", "probabilities"}, default=None
        What the module returns for classes. Log probabilities are logits, too. If it
        returns one output for two classes, that is of ``classes[1]``. None means
        probabilities for a skorch net and logits otherwise; a module with one output,
        or with outputs that sum to one, then needs an explicit value.
    noise_std : float > 0, or array-like of shape (n_targets,), default=None
        Standard deviation of the noise of y, in its units; makes a regressor. Estimate
        it from residuals on held-out rows.
    n_draws : int, default=50
        Dropout masks. The time of a prediction is proportional to it.

    Returns
    -------
    model : object
        A fitted regressor or classifier: ``predict(X, return_std=True)`` or
        ``predict_proba``, ``predict_uncertainty``, ``predict_interval``,
        ``log_predictive_density``, ``sample_y`` and the others.

    Raises
    ------
    ValueError, TypeError
        At once or at a prediction. The module has no dropout, or some that the rows
        cannot share: masks of its own code, packed sequences, a traced module. Or its
        rows depend on each other, training changes more than dropout, or it does not
        return one tensor of finite numbers. The message names the layer.

    Notes
    -----
    Dropout is every call of a layer or function of torch: ``Dropout`` (1d, 2d, 3d),
    ``AlphaDropout``, ``FeatureAlphaDropout``, their functions and subclasses, and the
    dropout of ``RNN``, ``LSTM``, ``GRU``, ``MultiheadAttention``, ``Transformer`` and
    ``scaled_dot_product_attention``. As in training, every call has its own mask, also
    where a layer is called twice or once per time step.

    Each prediction first runs up to three rows alone and together and compares them.
    A dependence between rows is found only if these rows show it. The rows of X go
    through the network in blocks; scikit-learn's ``working_memory`` sets their size.

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
            "either `classes`, for a classifier, or `noise_std`, for a regressor, must "
            f"be given; got {'neither' if classes is None else 'both'}."
        )
    module, of_skorch = _plain_module(module, outputs)
    if classes is not None:
        outputs = "probabilities" if of_skorch and outputs is None else outputs
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
            check_number("noise_std", one, low=0, open_low=True) for one in noise_std
        ]
        noise_std = np.array(values)
    return _TorchRegressor(module, X_transform, n_draws, noise_std)


def _plain_module(module, outputs) -> tuple[nn.Module, bool]:
    """A copy in evaluation, and whether it holds the function of a skorch net."""
    of_skorch = hasattr(module, "_get_predict_nonlinearity")
    if of_skorch and hasattr(module, "module_"):
        function = None if outputs else module._get_predict_nonlinearity()
        module = _SkorchModule(module, function)
    if not isinstance(module, nn.Module):
        raise TypeError(
            "`module` must be a torch.nn.Module or a fitted skorch net; got "
            f"{type(module).__name__}{', which is not fitted' if of_skorch else ''}."
        )
    # Wrappers that run the module elsewhere or otherwise.
    while isinstance(module, _PARALLEL) or hasattr(module, "_orig_mod"):
        module = module.module if isinstance(module, _PARALLEL) else module._orig_mod
    values = chain(module.parameters(), module.buffers())
    if any(nn.parameter.is_lazy(value) for value in values):
        raise ValueError(
            "`module` must have parameters of known shape; got a lazy layer that no "
            "rows went through. Call the module once, and train it."
        )
    if not may_have_dropout(module):
        raise ValueError(NO_DROPOUT)
    return copied(module).eval(), of_skorch


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
            f"`classes` must have labels of one kind, which can be sorted; got "
            f"{labels.tolist()}."
        ) from error
    if n_different < len(labels):
        raise ValueError(
            f"`classes` must have each label once; got {labels.tolist()}. Give a label "
            "for each output of the module, in their order."
        )
    return labels


def _inputs(module, X_transform, X, rows) -> Inputs:
    """What the module takes of some rows; a slice or an array of numbers."""
    given = safe_indexing(X, rows)
    if X_transform is not None:
        given = X_transform(given)
    of_module = [*module.parameters(), *module.buffers()]
    device = next((one.device for one in of_module), torch.device("cpu"))
    dtypes = (one.dtype for one in of_module if one.is_floating_point())
    convert = partial(_tensor, device=device, dtype=next(dtypes, torch.float32))
    if isinstance(given, Mapping):
        return (), {name: convert(one) for name, one in given.items()}
    # A packed sequence is a tuple, too.
    return tuple(map(convert, given if type(given) is tuple else (given,))), {}


def _tensor(value, device, dtype):
    """An array or a tensor as the module takes it; other objects as they are."""
    if sparse.issparse(value):
        value = value.toarray()
    if not isinstance(value, torch.Tensor):
        of_tensors = isinstance(value, list) and any(
            isinstance(one, torch.Tensor) for one in value
        )
        if of_tensors or not (isinstance(value, list) or hasattr(value, "__array__")):
            return value
        value = np.asarray(value)
        if value.dtype.kind not in "fiub":
            raise TypeError(
                "`X_transform` must return numbers; got an array of "
                f"{value.dtype}. Categories need numbers, too."
            )
        value = tensor_of(value).to(dtype)
    value = value.to(device)
    if not value.is_floating_point():
        return value
    if value.isnan().any():
        raise ValueError(
            "`X_transform` must return no NaN; got some. Impute missing values there, "
            "or before."
        )
    return value.to(dtype)


def _check_finite(right, what="finite") -> None:
    """Refuse draws of which some values are wrong, (draws, rows, outputs)."""
    lacking = ~right.all((0, 2))
    if lacking.any():
        raise ValueError(
            f"`module` must return outputs that are {what}; got others in "
            f"{lacking.sum()} of {len(lacking)} rows, first in row {lacking.argmax()} "
            "of its block. Are they in the units of the training?"
        )


def _on_simplex(found: Examined) -> bool:
    """Whether the outputs are probabilities of the classes."""
    p = found.evaluated
    inside = (p > -found.tolerance) & (p < 1 + found.tolerance)
    total = (p.sum(1) - 1).abs() < found.tolerance
    return bool(inside.all() and total.all())


def _warn_of_shares(outputs) -> None:
    """Warn where logits may be probabilities of one class against the others."""
    if outputs.shape[1] >= _ROWS_TO_WARN and ((outputs >= 0) & (outputs <= 1)).all():
        warn(
            "all outputs of `module` are in [0, 1] and are taken for logits. "
            "Probabilities of one class against the others are no logits: give the "
            "module without its last sigmoid. If they are logits, set "
            "outputs='logits'."
        )
