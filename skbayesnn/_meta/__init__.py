"""The predictive through, and corrected by, meta-estimators."""
