"""Predictive distributions inside of, and corrected by, meta-estimators."""
