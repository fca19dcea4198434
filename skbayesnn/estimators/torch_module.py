"""MC dropout of a network that was trained in torch [GG16]: its predictive, as ours."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from torch import nn

from skbayesnn._distributions.gaussian import Gaussians
from skbayesnn._inference.memory import tensor_of
from skbayesnn._parameters import check_number
from skbayesnn._predictive import mixin
from skbayesnn._predictive.labels import LabelPredictive
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._settings import undisturbed

# The first drops single units, the others whole channels, (rows, channels, ...).
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass(eq=False)
class _TorchModule(BaseEstimator):
    module: nn.Module
    X_transform: Callable | None
    n_draws: int

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y=None):
        """Nothing is done: it is trained already, as a `FrozenEstimator` is."""
        return self

    def _draws(self, X) -> np.ndarray:
        """Outputs of all draws, (draws, rows, outputs)."""
        X = X if self.X_transform is None else self.X_transform(X)
        # Of its own: masks of other threads are no masks of this one.
        module, generator = copy.deepcopy(self.module), torch.Generator()
        for layer in module.modules():
            if type(layer) in _DROPOUTS:
                layer.register_forward_hook(partial(_masked, generator))
        first = next(module.parameters())
        x = tensor_of(X).to(first.device, first.dtype)
        outputs = []
        with torch.inference_mode():
            for draw in range(self.n_draws):
                generator.manual_seed(draw)
                outputs.append(module(x).double().cpu().numpy())
        return np.stack(outputs).reshape(self.n_draws, len(x), -1)


@dataclass(eq=False)
class _TorchRegressor(mixin.RegressionPredictiveMixin, RegressorMixin, _TorchModule):
    noise_std: float

    def _open_predictive(self, X):
        mean = self._draws(X)
        variance, flat = np.full_like(mean, self.noise_std**2), mean.shape[2] == 1
        return mixin.OpenPredictive(
            mean.shape[1],
            lambda r: MixturePredictive(Gaussians(mean[:, r], variance[:, r]), flat),
        )

    @undisturbed
    def predict(self, X):
        """Mean over the draws."""
        return self._open_predictive(X).whole().mean()


@dataclass(eq=False)
class _TorchClassifier(mixin.PredictiveMixin, ClassifierMixin, _TorchModule):
    classes_: np.ndarray

    def _open_predictive(self, X):
        logits = self._draws(X)
        if logits.shape[2] != len(self.classes_):
            raise ValueError(
                f"`module` must have a logit for each of {len(self.classes_)} classes; "
                f"got {logits.shape[2]}. Of two, a single logit z is (0, z)."
            )
        p = torch.as_tensor(logits).softmax(-1).numpy()
        return mixin.OpenPredictive(
            p.shape[1], lambda rows: LabelPredictive(p[:, rows], self.classes_)
        )

    @undisturbed
    def predict_proba(self, X):
        """Mean over the draws."""
        return self._open_predictive(X).whole().probability.mean(0)

    def predict(self, X):
        """The likeliest class."""
        return self.classes_[self.predict_proba(X).argmax(1)]


def from_torch(module, X_transform=None, *, classes=None, noise_std=None, n_draws=50):
    """MC dropout predictions of a trained network, behind the methods of this package.

    Dropout layers stay on, all others are as in evaluation. A draw has one mask for all
    rows, so that a row's prediction does not depend on the others.

    Parameters
    ----------
    module : torch.nn.Module, or a fitted skorch net
        Rows to means of y, (n_samples[, n_targets]), or to logits (n_samples,
        n_classes). It is copied.
    X_transform : callable, default=None
        From X to what the module takes.
    classes : array-like of shape (n_classes,), default=None
        Labels, in the order of the logits: makes a classifier.
    noise_std : float > 0
        Needed for a regressor: the noise of y in its units, as held-out rows have it.
    n_draws : int, default=50

    Returns
    -------
    model : object
        With ``predict``, ``predict_proba`` of classes, and all methods of a predictive.

    Examples
    --------
    >>> from torch import nn
    >>> from skbayesnn import from_torch
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 1))
    >>> from_torch(net, noise_std=0.1).predict_interval([[1.0, 2.0, 3.0]]).shape
    (1, 2)
    """
    module = copy.deepcopy(getattr(module, "module_", module)).eval()
    if not any(m.p > 0 for m in module.modules() if type(m) in _DROPOUTS):
        raise ValueError(
            "`module` must have a layer torch.nn.Dropout (1d, 2d, 3d) with p > 0; got "
            "none, so that all draws would be the same. Train it with dropout."
        )
    n_draws = check_number("n_draws", n_draws, kind=Integral, low=1)
    common = module, X_transform, n_draws
    if classes is not None:
        return _TorchClassifier(*common, np.asarray(classes))
    noise_std = check_number("noise_std", noise_std, low=0, open_low=True)
    return _TorchRegressor(*common, noise_std)


def _masked(generator, layer, inputs, output):
    """With one mask for all rows."""
    n_own = output.ndim if type(layer) is nn.Dropout else 2
    shape = 1, *output.shape[1:n_own], *(1,) * (output.ndim - n_own)
    kept = torch.rand(shape, generator=generator) >= layer.p
    return output * kept.to(output) / max(1 - layer.p, 1e-12)
