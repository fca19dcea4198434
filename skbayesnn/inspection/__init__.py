"""Reasons of predictions and of their uncertainty; drifted rows and columns."""

from skbayesnn.inspection._attributions import Attributions, attributions
from skbayesnn.inspection._drift import DriftMonitor

__all__ = ["Attributions", "DriftMonitor", "attributions"]
