"""Predictive distributions, as mixtures of posterior draws, and their summaries."""
