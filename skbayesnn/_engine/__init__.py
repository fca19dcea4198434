"""The engine: random numbers, objective, training and posterior predictions."""
