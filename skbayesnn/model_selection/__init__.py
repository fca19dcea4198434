"""Searches whose candidates and folds are trained as members of one program."""

from skbayesnn.model_selection.search import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)

__all__ = ["BatchedGridSearchCV", "BatchedRandomizedSearchCV"]
