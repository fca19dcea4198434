"""Searches whose candidates and folds are trained as members of one program.

``BatchedGridSearchCV`` and ``BatchedRandomizedSearchCV`` over any parameters, and of
every estimator the form that finds its own tau, ``MCDropoutRegressorCV`` and others.
"""

from skbayesnn.model_selection.search import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from skbayesnn.model_selection.tau_path import (
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
]
