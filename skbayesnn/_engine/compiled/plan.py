"""Plans of compiled predictions: the operations of all draws of a perceptron.

Draws that drop units share operations: at a rate of 0.01, a mask of a hundred units
drops one unit on average. Draws with the same units up to some layer have the same
activations there, and follow each other. A draw subtracts the units that it drops from
the products with all units, or it adds the units that it keeps, whichever are fewer.
"""

from typing import NamedTuple

import numpy as np
import torch

from skbayesnn._engine.compiled.blocks import ACTIVATIONS
from skbayesnn._likelihoods import Categorical, Heteroscedastic

# Layer; kind; starts of the weights and biases; first and last of the units that are
# added or subtracted.
OPERATION = np.dtype(
    [(n, np.int64) for n in ("layer", "kind", "weights", "biases", "first", "last")]
)
# Kinds: the biases plus the kept units; the biases plus all units, which several draws
# use; these minus the dropped units.
KEPT, ALL, DROPPED = range(3)


# The outputs themselves; means and variances of `Heteroscedastic`; probabilities of
# `Categorical`.
OUTPUTS, MOMENTS, PROBABILITIES = range(3)


class Plan(NamedTuple):
    """Operations of the draws of all members, in an order in which draws share them.

    Parameters
    ----------
    sizes : ndarray of shape (layers + 1,), int64
        Inputs, units of hidden layers, outputs.
    places : ndarray of shape (layers + 2,), int64
        Units before each of them.
    activation, outcome : int
        Codes of the activation, and of what is computed from the outputs.
    weights, biases : ndarray
        Of all draws, flat.
    operations : ndarray of OPERATION
    units : ndarray, int64
        Indices of units, parts of which belong to an operation.
    ends : ndarray of shape (draws,), int64
        Number of operations up to each draw.
    position : ndarray of shape (draws,), int64
        Position of each draw in the results; members are the last axis.
    noise : ndarray of shape (members, 4, targets)
    """

    sizes: np.ndarray
    places: np.ndarray
    activation: int
    outcome: int
    weights: np.ndarray
    biases: np.ndarray
    operations: np.ndarray
    units: np.ndarray
    ends: np.ndarray
    position: np.ndarray
    noise: np.ndarray


class _Layer(NamedTuple):
    """Draws of one layer; all arrays have the draws of all members as first axis.

    Parameters
    ----------
    parent, node : ndarray of int
        Number of the distinct inputs of the layer, and of its distinct outputs.
    weights, biases : ndarray of int
        Their starts.
    is_dropped : ndarray of shape (draws, inputs)
    subtracts : ndarray of bool, for every distinct input
        Whether its draws subtract the units that they drop.
    """

    parent: np.ndarray
    node: np.ndarray
    weights: np.ndarray
    biases: np.ndarray
    is_dropped: np.ndarray
    subtracts: np.ndarray

    @classmethod
    def of(cls, parent, weights, biases, is_dropped, may_share: bool) -> "_Layer":
        patterns = np.packbits(is_dropped, axis=1)
        keys = np.column_stack([parent, weights, biases, patterns])
        _, first, node = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        # Of every distinct input: its distinct outputs, and the units that they drop.
        n_outputs = np.bincount(parent[first])
        n_dropped = np.bincount(parent[first], is_dropped[first].sum(1))
        n_inputs = is_dropped.shape[1]
        subtracts = n_inputs + 2 * n_dropped < n_outputs * n_inputs
        return cls(
            parent, node.ravel(), weights, biases, is_dropped, subtracts & may_share
        )


def _starts(values: torch.Tensor, n_draws: int) -> np.ndarray:
    """Start of the values of every draw and member, flat.

    values : (draws or 1, members, ...)
    """
    starts = np.arange(values.shape[0] * values.shape[1]) * values[0, 0].numel()
    return np.broadcast_to(starts.reshape(len(values), -1), (n_draws, values.shape[1]))


def plan_of(posterior, maps: list, n_draws: int, share: bool) -> Plan:
    """Operations of draws.

    maps : of every layer, weights (draws or 1, members, inputs, outputs), biases, and
        possibly masks (draws, members, inputs)
    share : whether draws may share operations
    """
    network, likelihood = posterior.network, posterior.likelihood
    n_members = posterior.n_members
    if "log_temperature" in posterior.likelihood_params:
        # Scaled weights of the last layer give scaled logits.
        scale = likelihood.inverse_temperature(posterior.likelihood_params)
        weight, bias, *masks = maps[-1]
        maps = [*maps[:-1], (weight * scale, bias * scale[:, 0], *masks)]
    node = np.tile(np.arange(n_members), n_draws)
    layers: list[_Layer] = []
    weights: list[torch.Tensor] = []
    biases: list[torch.Tensor] = []
    n_weights = n_biases = 0
    for weight, bias, *masks in maps:
        bias = bias if bias.ndim == 3 else bias.unsqueeze(0)
        is_dropped = np.zeros((n_draws, n_members, weight.shape[2]), dtype=bool)
        if masks:
            is_dropped[:] = masks[0].numpy() == 0
        layer = _Layer.of(
            node,
            n_weights + _starts(weight, n_draws).ravel(),
            n_biases + _starts(bias, n_draws).ravel(),
            is_dropped.reshape(n_draws * n_members, -1),
            share and len(weight) == len(bias) == 1,
        )
        layers, node = [*layers, layer], layer.node
        weights, biases = [*weights, weight.ravel()], [*biases, bias.ravel()]
        n_weights, n_biases = n_weights + weight.numel(), n_biases + bias.numel()
    # Nodes are numbered in the order of their parents.
    order = np.argsort(node, kind="stable")
    operations, ends, units = _operations(layers, order)
    return Plan(
        sizes=np.array(network.sizes),
        places=np.cumsum([0, *network.sizes]),
        activation=ACTIVATIONS[network.activation],
        outcome=_OUTCOMES.get(type(likelihood), OUTPUTS),
        weights=torch.cat(weights).numpy(),
        biases=torch.cat(biases).numpy(),
        operations=operations,
        units=units,
        ends=ends,
        position=order,
        noise=_noise(posterior),
    )


def _operations(layers: list[_Layer], order) -> tuple[np.ndarray, ...]:
    """Operations, their number up to each draw, and the indices of units.

    order : of the draws
    """
    units = [np.arange(layer.is_dropped.shape[1]) for layer in layers]
    ends_of_all = np.cumsum([len(part) for part in units])
    n_units = int(ends_of_all[-1])
    operations: list[tuple[int, ...]] = []
    ends, previous = [], None
    for draw in order:
        for i, layer in enumerate(layers):
            if previous is not None and layer.node[draw] == layer.node[previous]:
                continue
            starts = [layer.weights[draw], layer.biases[draw]]
            parent, is_dropped = layer.parent[draw], layer.is_dropped[draw]
            everything = ends_of_all[i] - len(is_dropped), ends_of_all[i]
            kind = DROPPED if layer.subtracts[parent] else KEPT
            if kind == DROPPED and (
                previous is None or layer.parent[previous] != parent
            ):
                operations.append((i, ALL, *starts, *everything))
            if kind == KEPT and not is_dropped.any():
                operations.append((i, KEPT, *starts, *everything))
                continue
            part = np.flatnonzero(is_dropped if kind == DROPPED else ~is_dropped)
            operations.append((i, kind, *starts, n_units, n_units + len(part)))
            units.append(part)
            n_units += len(part)
        ends.append(len(operations))
        previous = draw
    return np.array(operations, OPERATION), np.array(ends), np.concatenate(units)


_OUTCOMES: dict[type, int] = {Heteroscedastic: MOMENTS, Categorical: PROBABILITIES}


def _noise(posterior) -> np.ndarray:
    """Parameters of heteroscedastic noise, (members, 4, targets)."""
    likelihood, params = posterior.likelihood, posterior.likelihood_params
    if not isinstance(likelihood, Heteroscedastic):
        return np.empty((posterior.n_members, 4, 0), posterior.keep[0].numpy().dtype)
    log_tau = likelihood.log_tau(params)
    values = (
        log_tau,
        params["gain"].unsqueeze(1).expand_as(log_tau),
        -params["largest_log_variance"].unsqueeze(1),
        torch.zeros_like(log_tau) + likelihood.log_noise_factor(params),
    )
    return torch.cat(values, 1).numpy()
