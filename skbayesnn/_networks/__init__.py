"""How affine maps are wired into a network, one file each, and their table."""

from typing import Any

from skbayesnn._networks.base import Keep, Network, NetworkPullback, StartNormal
from skbayesnn._networks.convolutional import Convolutional
from skbayesnn._networks.mlp import MLP
from skbayesnn._networks.recurrent import Recurrent

NETWORKS: dict[str, type[Network]] = {
    "mlp": MLP,
    "convolutional": Convolutional,
    "recurrent": Recurrent,
}


def network_from(about: dict[str, Any]) -> Network:
    """The network that has described itself so."""
    return NETWORKS[about["name"]].from_description(about)


__all__ = [
    "MLP",
    "NETWORKS",
    "Convolutional",
    "Keep",
    "Network",
    "NetworkPullback",
    "Recurrent",
    "StartNormal",
    "network_from",
]
