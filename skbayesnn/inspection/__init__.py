"""Why a prediction is uncertain, and whether rows have drifted away."""

from skbayesnn.inspection._drift import DriftMonitor
from skbayesnn.inspection._importance import uncertainty_importance

__all__ = ["DriftMonitor", "uncertainty_importance"]
