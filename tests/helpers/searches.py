"""Searches and estimators that several test files use."""

GRID = {"tau": [0.5, 2.0], "dropout": [0.05, 0.2]}


STOPPING = {
    "early_stopping": True,
    "validation_fraction": 0.3,
    "n_iter_no_change": 2,
    "tol": 0.05,
    "max_iter": 15,
}
