"""Bayesian stacking: a pool of candidates, weighted by what they say out of fold."""
