"""How linear maps are wired into a network."""

from skbayesnn.networks.mlp import MLP

__all__ = ["MLP"]
