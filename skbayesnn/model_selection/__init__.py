"""Searches and cross-validation that train all candidates and folds in one program.

``BatchedGridSearchCV`` and ``BatchedRandomizedSearchCV`` search over any parameters,
``TauCV`` over the precision tau. ``cross_val_predict_uncertainty`` returns out-of-fold
predictions.
"""

from skbayesnn.model_selection._cross_val_predict import cross_val_predict_uncertainty
from skbayesnn.model_selection._search import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from skbayesnn.model_selection._tau_cv import TauCV

__all__ = [
    "BatchedGridSearchCV",
    "BatchedRandomizedSearchCV",
    "TauCV",
    "cross_val_predict_uncertainty",
]
