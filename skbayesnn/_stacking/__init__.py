"""Bayesian stacking: candidates weighted by their out-of-fold log densities."""
