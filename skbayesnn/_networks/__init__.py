"""Network architectures, one file each, and the table of their names."""

from typing import Any

from skbayesnn._networks.base import InitialNormal, Keep, Network, NetworkPullback
from skbayesnn._networks.convolutional import Convolutional
from skbayesnn._networks.mlp import Perceptron
from skbayesnn._networks.recurrent import Recurrent

NETWORKS: dict[str, type[Network]] = {
    "mlp": Perceptron,
    "convolutional": Convolutional,
    "recurrent": Recurrent,
}


def network_from(description: dict[str, Any]) -> Network:
    """Construct a network from its ``describe()``."""
    return NETWORKS[description["name"]].from_description(description)


__all__ = [
    "NETWORKS",
    "Convolutional",
    "InitialNormal",
    "Keep",
    "Network",
    "NetworkPullback",
    "Perceptron",
    "Recurrent",
    "network_from",
]
