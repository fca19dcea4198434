"""Searches whose candidates and folds are trained as members of one program.

``BatchedGridSearchCV`` and ``BatchedRandomizedSearchCV`` over any parameters, and of
every estimator the form that finds its own tau, ``MCDropoutRegressorCV`` and others.
"""

from skbayesnn.model_selection._cross_validated import (
    BBBClassifierCV,
    BBBRegressorCV,
    MCDropoutClassifierCV,
    MCDropoutRegressorCV,
    VariationalDropoutClassifierCV,
    VariationalDropoutRegressorCV,
)
from skbayesnn.model_selection._search import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
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
]
