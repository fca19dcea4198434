"""Find drifted rows, and the columns that make predictions uncertain."""

from skbayesnn.inspection._drift import DriftMonitor
from skbayesnn.inspection._importance import uncertainty_importance

__all__ = ["DriftMonitor", "uncertainty_importance"]
