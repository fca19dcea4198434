"""Fitted posterior -> outputs of its draws.

The weights of the draws that prediction uses are constants of the graph. A mask on the
inputs of a map is kept as a mask: the weights stand there once, and not for every draw.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from skbayesnn._engine.posterior import Posterior
from skbayesnn._networks import MLP, Network
from skbayesnn._onnx.graph import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda h: h.op("Relu"),
    "tanh": lambda h: h.op("Tanh"),
    "logistic": lambda h: h.op("Sigmoid"),
    "erf": lambda h: h.op("Erf"),
    "silu": lambda h: h * h.op("Sigmoid"),
    "identity": lambda h: h,
}


def outputs_of(
    posterior: Posterior, n_draws: int, counts: np.ndarray | None, x: Tensor
) -> Iterator[tuple[Posterior, np.ndarray, Tensor]]:
    """Outputs of networks side by side, a few at a time.

    Masks differ from draw to draw and weights from member to member: with masks every
    member comes by itself.

    n_draws : distinct ones
    counts : how often each network counts, draws before members; None: once
    x : (rows, inputs), float32, standardised
    yields : the members that they are of; how often each network counts, (networks,);
        outputs (networks, rows, outputs), float64
    """
    if counts is None:
        counts = np.ones(n_draws * posterior.n_members)
    of_draws = counts.reshape(n_draws, posterior.n_members)
    if n_draws == 1:
        [of_members] = of_draws
        used = np.flatnonzero(of_members)
        members = posterior.select(used)
        layers = [tuple(_array(v)[0] for v in d) for d in _drawn(members, 1)]
        yield members, of_members[used], _applied(members.network, layers, x)
        return
    for i, of_member in enumerate(of_draws.T):
        used = np.flatnonzero(of_member)
        if len(used):
            member = posterior.select(np.array([i]))
            layers = [
                tuple(_some(_array(v)[:, 0], used) for v in draw)
                for draw in _drawn(member, n_draws)
            ]
            yield member, of_member[used], _applied(member.network, layers, x)


def _drawn(posterior: Posterior, n_draws: int):
    """Weights (draws or 1, members, inputs, outputs), biases, masks if there are."""
    network = posterior.network
    assert isinstance(network, MLP)
    placed = [
        family.with_mask_shape((n_inputs,))
        for family, n_inputs in zip(network.families, network.fan_ins, strict=True)
    ]
    apart = network.with_families(tuple(placed))
    layers = replace(posterior, network=apart).draw(range(n_draws))
    return [
        (weight, bias if bias.ndim == 3 else bias.unsqueeze(0), *masks)
        for weight, bias, *masks in layers
    ]


def _applied(network: Network, layers, x: Tensor) -> Tensor:
    """layers : weights (networks or 1, inputs, outputs), biases, masks, float32."""
    assert isinstance(network, MLP)
    h = x
    for i, (weight, bias, *masks) in enumerate(layers):
        if i:
            h = ACTIVATIONS[network.activation](h)
        for mask in masks:
            h = h * _of_rows(mask)
        # A matrix for all networks makes one product of all rows.
        h = h @ (weight[0] if len(weight) == 1 else weight)
        h = h + _of_rows(bias)
    of_one = all(len(values) == 1 for layer in layers for values in layer)
    return (h.unsqueeze(0) if of_one else h).cast(np.float64)


def _of_rows(values: np.ndarray) -> np.ndarray:
    """(networks, units) with an axis for the rows; of one network without axes."""
    return values[0] if len(values) == 1 else values[:, None]


def _array(values) -> np.ndarray:
    return values.cpu().numpy()


def _some(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Of some draws; of one that stands for all, itself."""
    return values if len(values) == 1 else values[draws]
