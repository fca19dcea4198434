"""The engine: noise, objective, training, posterior, predictive."""
