"""Searches and cross-validation that train all candidates and folds in one program.

``BatchedGridSearchCV`` and ``BatchedRandomizedSearchCV`` search over any parameters.
``cross_val_predict_uncertainty`` returns out-of-fold predictions.
"""

from skbayesnn.model_selection._cross_val_predict import cross_val_predict_uncertainty
from skbayesnn.model_selection._search import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)

__all__ = [
    "BatchedGridSearchCV",
    "BatchedRandomizedSearchCV",
    "cross_val_predict_uncertainty",
]
