"""Distributions of y, one per posterior draw, and the mixtures of the draws."""
