"""Draws -> predictive distributions -> arrays."""
