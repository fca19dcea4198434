"""Distributions of y, one per posterior draw, and the mixtures that they make."""
