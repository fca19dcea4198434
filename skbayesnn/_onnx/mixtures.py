"""Draws of y in a graph: distributions of tensors, and their shares in a mixture.

All tensors are float64, which costs little after the networks.
"""

from typing import Any, NamedTuple

import numpy as np

from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.mixtures import GaussianMixtures
from skbayesnn._engine.posterior import Posterior
from skbayesnn._onnx.graph import Graph, Tensor

# Classes with normal components, which have quantiles in the graph.
NORMAL = Gaussians, GaussianMixtures


class Normals(NamedTuple):
    """Normal distributions with their shares in a mixture, (draws, rows, targets)."""

    share: Tensor
    mean: Tensor
    variance: Tensor


class Draws(NamedTuple):
    """Draws of y in a mixture.

    Parameters
    ----------
    uses : ndarray of shape (draws, places), bool
        The places of the whole mixture that contain each draw; after versions of rows
        were mixed, the shares of the draws.
    components : Components
        Distributions of y, (draws, rows, targets), whose arrays are tensors.
    """

    uses: np.ndarray | Tensor
    components: Any

    @property
    def share(self) -> Tensor:
        """Weight of each draw in the whole mixture, (draws, 1, 1)."""
        return shares(self.components._first.graph, self.uses)

    def normals(self) -> Normals:
        """All normal distributions as draws with their own shares."""
        found: Any = self.components
        if not isinstance(found, GaussianMixtures):
            return Normals(self.share, found.mean, found.variance)
        share = self.share.unsqueeze(-1) * found.weight
        variance = found.scale * found.scale
        return Normals(*map(_components_first, (share, found.location, variance)))


def shares(graph: Graph, uses: np.ndarray | Tensor) -> Tensor:
    """Weight of each draw in a mixture, (draws, 1, 1).

    uses : (draws, places), whether a place of the mixture contains the draw; or the
        weights
    """
    if isinstance(uses, Tensor):
        return uses
    return graph.constant(uses.mean(1)[:, None, None])


def components_of(posterior: Posterior, outputs: Tensor) -> tuple[Tensor, ...]:
    """The likelihood's components, with a first axis of networks.

    The likelihood itself computes them from tensors.

    outputs : (networks, rows, outputs); draws of one member, or one draw of members
    """
    likelihood: Any = posterior.likelihood
    axis = int(posterior.n_members == 1)
    params = {name: v.double() for name, v in posterior.likelihood_params.items()}
    found = likelihood.components(params, outputs.unsqueeze(axis))
    return tuple(values.squeeze(axis) for values in found)


def _components_first(values: Tensor) -> Tensor:
    """Reshape (draws, rows, targets, K) to (draws K, rows, targets)."""
    ends = values.op("Shape", start=1, end=3)
    shape = ends.graph.op("Concat", np.array([-1]), ends, axis=0)
    return values.op("Transpose", perm=[0, 3, 1, 2]).op("Reshape", shape)
