"""The scikit-learn face."""

from skbayesnn.estimators.anchored_ensemble import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
)
from skbayesnn.estimators.bayes_by_backprop import BBBClassifier, BBBRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators.variational_dropout import (
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)

__all__ = [
    "AnchoredEnsembleClassifier",
    "AnchoredEnsembleRegressor",
    "BBBClassifier",
    "BBBRegressor",
    "MCDropoutClassifier",
    "MCDropoutRegressor",
    "VariationalDropoutClassifier",
    "VariationalDropoutRegressor",
]
