"""Likelihoods as ONNX operators: weighted components of y, or class probabilities.

All tensors are float64, which costs little after the networks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.mixtures import GaussianMixtures
from skbayesnn._engine.posterior import Posterior
from skbayesnn._likelihoods.base import OfLabels
from skbayesnn._likelihoods.gaussian import LOG_VARIANCE_RANGE, MAX_LOG_PRECISION
from skbayesnn._likelihoods.poisson import LOG_RATE_BOUNDS
from skbayesnn._onnx.graph import Graph, Tensor

# Classes with normal components, which have quantiles in the graph.
NORMAL = Gaussians, GaussianMixtures


class Normals(NamedTuple):
    """Normal distributions whose mixture is a draw, (draws, rows, targets, K).

    ``share`` contains their weights, which sum to one over K.
    """

    share: Tensor
    mean: Tensor
    variance: Tensor


class Moments(NamedTuple):
    """Draws of y, (draws, rows, targets).

    ``uses`` are the places of the whole mixture that contain each draw, (draws,
    places), bool; after versions of rows were mixed, the shares of the draws.
    ``normals`` are the parts of draws that are mixtures themselves.
    """

    uses: np.ndarray | Tensor
    mean: Tensor
    variance: Tensor
    normals: Normals | None = None

    @classmethod
    def of_normals(cls, uses: np.ndarray, normals: Normals) -> "Moments":
        """Moments of draws that are mixtures."""
        mean = (normals.share * normals.mean).sum(-1)
        squares = normals.variance + (normals.mean - mean.unsqueeze(-1)).square()
        return cls(uses, mean, (normals.share * squares).sum(-1), normals)

    @property
    def share(self) -> Tensor:
        """Weight of each draw in the whole mixture, (draws, 1, 1)."""
        return shares(self.mean.graph, self.uses)

    def mapped(self, uses: np.ndarray | Tensor, function: Callable[[Tensor], Tensor]):
        """Apply a function to all tensors."""
        normals = self.normals and Normals(*map(function, self.normals))
        return Moments(uses, function(self.mean), function(self.variance), normals)

    def rescaled(self, shift, factor) -> "Moments":
        """Moments of shift + factor y.

        shift : array or tensor (..., targets); factor : array of shape (targets,)
        """
        normals = self.normals
        if normals is not None:
            is_array = isinstance(shift, np.ndarray)
            columns = shift[..., None] if is_array else shift.unsqueeze(-1)
            normals = Normals(
                normals.share,
                normals.mean * factor[:, None] + columns,
                normals.variance * np.square(factor)[:, None],
            )
        mean, variance = self.mean * factor + shift, self.variance * np.square(factor)
        return Moments(self.uses, mean, variance, normals)

    def components(self) -> Normals:
        """All normal distributions as draws with their own shares."""
        if self.normals is None:
            return Normals(self.share, self.mean, self.variance)
        share = self.share.unsqueeze(-1) * self.normals.share
        mean, variance = self.normals.mean, self.normals.variance
        return Normals(*map(_components_first, (share, mean, variance)))


def shares(graph: Graph, uses: np.ndarray | Tensor) -> Tensor:
    """Weight of each draw in a mixture, (draws, 1, 1).

    uses : (draws, places), whether a place of the mixture contains the draw; or the
        weights
    """
    if isinstance(uses, Tensor):
        return uses
    return graph.constant(uses.mean(1)[:, None, None])


def moments(posterior: Posterior, uses: np.ndarray, outputs: Tensor) -> Moments:
    """Mixture components of a regression, in the scale of the network.

    uses : (networks, places), as in ``Moments``
    outputs : (networks, rows, outputs)
    """
    likelihood, params = posterior.likelihood, _double(posterior.likelihood_params)
    found = _MOMENTS[likelihood.name](likelihood, params, outputs)
    if isinstance(found, Normals):
        return Moments.of_normals(uses, found)
    return Moments(uses, *found)


def probabilities(posterior: Posterior, outputs: Tensor) -> Tensor:
    """Label probabilities, (networks, rows, labels).

    outputs : (networks, rows, outputs)
    """
    likelihood, params = posterior.likelihood, _double(posterior.likelihood_params)
    assert isinstance(likelihood, OfLabels)
    probability = _PROBABILITIES[likelihood.name](likelihood, params, outputs)
    if likelihood.ranks is None:
        return probability
    # Rank -1 selects the padding: labels without rows have probability zero.
    pad = np.array([0, 0, 0, 0, 0, 1])
    padded = probability.op("Pad", pad, np.array(0.0))
    return padded.take(np.array(likelihood.ranks), axis=2)


# ---- a formula for each likelihood: the likelihood, its parameters in double precision
# with members on their first axis, and outputs of networks (networks, rows, outputs)


def _constant_noise(likelihood: Any, params, outputs) -> tuple[Tensor, Tensor]:
    """Components whose variance does not depend on the outputs."""
    n_members = max((len(value) for value in params.values()), default=1)
    zeros = torch.zeros(1, n_members, 1, likelihood.n_outputs, dtype=torch.float64)
    arrays = (v.flatten(0, 1).numpy() for v in likelihood.components(params, zeros))
    variance = outputs.graph.constant(likelihood.components_class(*arrays).variance)
    return outputs, variance.expand_as(outputs)


def _heteroscedastic(likelihood: Any, params, outputs) -> tuple[Tensor, Tensor]:
    n = likelihood.n_targets
    mean, s = (outputs.take(np.arange(n) + i * n, axis=2) for i in range(2))
    gain = params["gain"].unsqueeze(1).numpy()
    log_tau = likelihood.log_tau(params).numpy() - gain * _bounded(s)
    log_tau = log_tau.op("Min", np.array(MAX_LOG_PRECISION))
    lowest = -params["largest_log_variance"].unsqueeze(1).numpy()
    log_tau = lowest + (8.0 * (log_tau - lowest)).op("Softplus") / 8.0
    log_factor = likelihood.log_noise_factor(params)
    return mean, (np.asarray(log_factor) - log_tau).op("Exp")


def _mixture(likelihood: Any, params, outputs) -> Normals:
    """Networks whose draws are mixtures of Gaussians."""
    shape = [0, 0, 3, likelihood.n_targets, likelihood.n_components]
    parts = outputs.op("Reshape", np.array(shape))
    logits, location, s = (parts.take(np.array(i), axis=2) for i in range(3))
    location = location + params["centres"][:, None, None].numpy()
    log_tau = likelihood.log_tau(params).unsqueeze(-1).numpy() - _bounded(s)
    log_tau = log_tau.op("Min", np.array(MAX_LOG_PRECISION))
    weight = logits.op("Softmax", axis=-1)
    variance = (-log_tau).op("Exp")
    if "log_added" in params:
        variance = variance + params["log_added"].exp()[:, None, :, None].numpy()
    return Normals(weight, location, variance)


def _components_first(values: Tensor) -> Tensor:
    """Reshape (draws, rows, targets, K) to (draws K, rows, targets)."""
    ends = values.op("Shape", start=1, end=3)
    shape = ends.graph.op("Concat", np.array([-1]), ends, axis=0)
    return values.op("Transpose", perm=[0, 3, 1, 2]).op("Reshape", shape)


def _poisson(likelihood: Any, params, outputs) -> tuple[Tensor, Tensor]:
    log_rate = outputs + params["offset"].unsqueeze(1).numpy()
    rate = log_rate.op("Clip", *map(np.array, LOG_RATE_BOUNDS)).op("Exp")
    return rate, rate


def _categorical(likelihood: Any, params, outputs) -> Tensor:
    scaled = outputs * np.asarray(likelihood.inverse_temperature(params))
    return scaled.op("Softmax", axis=-1)


def _ordinal(likelihood: Any, params, outputs) -> Tensor:
    first, log_gaps = params["cuts"].unsqueeze(1).tensor_split([1], dim=-1)
    cut_points = torch.cat([first, first + log_gaps.exp().cumsum(-1)], dim=-1)
    up_to = (cut_points.numpy() - outputs).op("Sigmoid")
    pads = [np.array([0, 0, a, 0, 0, b]) for a, b in ((1, 0), (0, 1))]
    below = up_to.op("Pad", pads[0], np.array(0.0))
    return up_to.op("Pad", pads[1], np.array(1.0)) - below


_MOMENTS: dict[str, Callable[..., Normals | tuple[Tensor, Tensor]]] = {
    "gaussian": _constant_noise,
    "student_t": _constant_noise,
    "heteroscedastic": _heteroscedastic,
    "mixture": _mixture,
    "poisson": _poisson,
}
_PROBABILITIES: dict[str, Callable[..., Tensor]] = {
    "categorical": _categorical,
    "ordinal": _ordinal,
}
SUPPORTED = frozenset(_MOMENTS) | frozenset(_PROBABILITIES)


def _bounded(s: Tensor) -> Tensor:
    """Bound log variances, as the heteroscedastic likelihood does."""
    return LOG_VARIANCE_RANGE * (s / LOG_VARIANCE_RANGE).op("Tanh")


def _double(params):
    return {name: values.double() for name, values in params.items()}
