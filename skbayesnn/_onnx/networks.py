"""Networks of a fitted posterior as ONNX operators.

The graph contains the weights of the posterior draws as constants. A mask on the inputs
of a layer remains a mask, so that the graph contains the weights once and not per draw.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from skbayesnn._engine.posterior import Posterior
from skbayesnn._networks import Network, Perceptron
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._onnx.graph import Tensor


def outputs_of(
    posterior: Posterior, n_draws: int, uses: np.ndarray, x: Tensor
) -> Iterator[tuple[Posterior, np.ndarray, Tensor]]:
    """Outputs of the networks, a few networks at a time.

    Masks differ between draws, and weights between members. With masks the members are
    therefore evaluated separately.

    n_draws : number of distinct draws
    uses : (networks, places), bool, the places of the mixture that contain each
        network, draws before members
    x : (rows, inputs), float32, standardised
    yields : posterior of the members; their part of ``uses``; outputs (networks, rows,
        outputs), float64
    """
    uses_per_draw = uses.reshape(n_draws, posterior.n_members, -1)
    if n_draws == 1:
        [member_uses] = uses_per_draw
        used = np.flatnonzero(member_uses.any(1))
        members = posterior.select(used)
        layers = [tuple(_array(v)[0] for v in layer) for layer in _drawn(members, 1)]
        yield members, member_uses[used], _applied(members.network, layers, x)
        return
    for i, draw_uses in enumerate(uses_per_draw.swapaxes(0, 1)):
        used = np.flatnonzero(draw_uses.any(1))
        if len(used):
            member = posterior.select(np.array([i]))
            layers = [
                tuple(_select_draws(_array(v)[:, 0], used) for v in layer)
                for layer in _drawn(member, n_draws)
            ]
            yield member, draw_uses[used], _applied(member.network, layers, x)


def _drawn(posterior: Posterior, n_draws: int):
    """Weights (draws or 1, members, inputs, outputs), bias and masks of each layer."""
    network = posterior.network
    assert isinstance(network, Perceptron)
    families = tuple(
        family.with_mask_shape((n_inputs,))
        for family, n_inputs in zip(network.families, network.fan_ins, strict=True)
    )
    with_masks = network.with_families(families)
    layers = replace(posterior, network=with_masks).draw(range(n_draws))
    return [
        (weight, bias if bias.ndim == 3 else bias.unsqueeze(0), *masks)
        for weight, bias, *masks in layers
    ]


def _applied(network: Network, layers, x: Tensor) -> Tensor:
    """Outputs of a perceptron, float64.

    layers : weights (networks or 1, inputs, outputs), bias, masks, float32
    """
    assert isinstance(network, Perceptron)
    h: Any = x
    for i, (weight, bias, *masks) in enumerate(layers):
        if i:
            h = ACTIVATIONS[network.activation].function(h)
        for mask in masks:
            h = h * _with_row_axis(mask)
        # If all networks share the weights, one matrix product suffices.
        h = h @ (weight[0] if len(weight) == 1 else weight)
        h = h + _with_row_axis(bias)
    is_single = all(len(values) == 1 for layer in layers for values in layer)
    return (h.unsqueeze(0) if is_single else h).cast(np.float64)


def _with_row_axis(values: np.ndarray) -> np.ndarray:
    """Reshape (networks, units) to (networks, 1, units); one network to (units,)."""
    return values[0] if len(values) == 1 else values[:, None]


def _array(values) -> np.ndarray:
    return values.cpu().numpy()


def _select_draws(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Select draws, unless all draws share the values."""
    return values if len(values) == 1 else values[draws]
