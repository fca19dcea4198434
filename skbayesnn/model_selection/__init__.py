"""Searches whose candidates and folds are trained as members of one program.

``BatchedGridSearchCV`` and ``BatchedRandomizedSearchCV`` search any parameters,
``TauCV`` the precision tau. ``cross_val_predict_uncertainty`` predicts out of fold.
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
