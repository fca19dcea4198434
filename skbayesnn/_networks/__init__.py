"""How affine maps are wired into a network, one file each, and their table."""

from typing import Any

from skbayesnn._networks.base import Keep, Network, NetworkPullback, StartNormal
from skbayesnn._networks.mlp import MLP

NETWORKS: dict[str, type[Network]] = {"mlp": MLP}


def network_from(about: dict[str, Any]) -> Network:
    """The network that has described itself so."""
    return NETWORKS[about["name"]].from_description(about)


__all__ = [
    "MLP",
    "NETWORKS",
    "Keep",
    "Network",
    "NetworkPullback",
    "StartNormal",
    "network_from",
]
