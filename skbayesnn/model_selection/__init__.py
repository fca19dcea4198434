"""Searches whose candidates and folds are trained as members of one program.

``BatchedGridSearchCV`` and ``BatchedRandomizedSearchCV`` over any parameters, and of
every estimator the form that finds its own tau, ``MCDropoutRegressorCV`` and others.
``cross_val_predict_uncertainty`` is what they say of rows that they have not seen.
"""

from skbayesnn.model_selection._cross_val_predict import cross_val_predict_uncertainty
from skbayesnn.model_selection._search import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from skbayesnn.model_selection._tau_cv import (
    BBBClassifierCV,
    BBBRegressorCV,
    MCDropoutClassifierCV,
    MCDropoutRegressorCV,
    VariationalDropoutClassifierCV,
    VariationalDropoutRegressorCV,
)

__all__ = [
    "BBBClassifierCV",
    "BBBRegressorCV",
    "BatchedGridSearchCV",
    "BatchedRandomizedSearchCV",
    "MCDropoutClassifierCV",
    "MCDropoutRegressorCV",
    "VariationalDropoutClassifierCV",
    "VariationalDropoutRegressorCV",
    "cross_val_predict_uncertainty",
]
