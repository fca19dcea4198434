"""How linear maps are wired into a network."""

from skbayesnn._networks.mlp import MLP

__all__ = ["MLP"]
