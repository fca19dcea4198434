"""Variational dropout makes weights needless; here they are dropped [MAV17]."""

from dataclasses import replace
from itertools import pairwise

import torch

from skbayesnn._inference.posterior import Posterior
from skbayesnn._networks import MLP

# log alpha above which a weight is noise: a dropout rate of 0.95 [MAV17 section 5].
THRESHOLD = 3.0


def n_weights(sizes) -> int:
    """Weights of one network, biases apart."""
    return sum(a * b for a, b in pairwise(sizes))


def n_used(posterior: Posterior, threshold: float) -> float:
    """Weights that are neither zero nor noise, mean over the networks."""
    used = sum(int(of_layer.sum()) for of_layer in _used(posterior, threshold))
    return used / posterior.n_members


def log_alpha(posterior: Posterior) -> list[torch.Tensor]:
    """Of every weight, per layer (members, inputs, outputs); -inf without noise."""
    return [
        torch.where(params["mean"] == 0, -torch.inf, family.log_alpha_of(params))
        for family, params in zip(
            posterior.network.families, posterior.layers, strict=True
        )
    ]


def prune(posterior: Posterior, threshold: float) -> Posterior:
    """Without the weights of a higher log alpha, and the units that nothing uses.

    Of perceptrons: what a unit feeds is the next layer.
    """
    layers = [
        params | {"mean": params["mean"] * used}
        for params, used in zip(
            posterior.layers, _used(posterior, threshold), strict=True
        )
    ]
    perceptron = MLP.from_description(posterior.network.describe())
    sizes = list(perceptron.sizes)
    # From the outputs down: a unit that only fed removed units is not used either.
    for i in reversed(range(1, len(layers))):
        units = (layers[i]["mean"] != 0).any(2).any(0).nonzero().flatten()
        units = units if len(units) else torch.zeros(1, dtype=torch.int64)
        layers[i - 1] = _take(layers[i - 1], units, axis=2)
        layers[i] = _take(layers[i], units, axis=1)
        sizes[i] = len(units)
    network = replace(perceptron, sizes=tuple(sizes))
    return replace(posterior, network=network, layers=layers)


def _used(posterior: Posterior, threshold: float) -> list[torch.Tensor]:
    """Per layer (members, inputs, outputs), bool."""
    return [
        (params["mean"] != 0) & (of_layer <= threshold)
        for params, of_layer in zip(posterior.layers, log_alpha(posterior), strict=True)
    ]


def _take(params, units: torch.Tensor, axis: int):
    """Some of a layer's inputs (axis 1) or outputs (axis 2), where there is an axis.

    Parameters have three axes, members first; the bias has the outputs only.
    """
    taken = {}
    for name, value in params.items():
        of_value = axis - 1 if value.ndim == 2 else axis
        shared = value.shape[of_value] == 1 and value.ndim == 3
        absent = of_value == 0
        taken[name] = value if shared or absent else value.index_select(of_value, units)
    return taken
