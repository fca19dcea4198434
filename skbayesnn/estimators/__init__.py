"""The estimators: one file for each method."""

from skbayesnn.estimators._docs import complete_docstrings as _complete_docstrings
from skbayesnn.estimators.anchored_ensemble import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
)
from skbayesnn.estimators.bayes_by_backprop import BBBClassifier, BBBRegressor
from skbayesnn.estimators.laplace import LaplaceClassifier, LaplaceRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators.neighbours import NeighbourClassifier, NeighbourRegressor
from skbayesnn.estimators.variational_dropout import (
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)
from skbayesnn.estimators.variational_gp import VariationalGPRegressor

__all__ = [
    "AnchoredEnsembleClassifier",
    "AnchoredEnsembleRegressor",
    "BBBClassifier",
    "BBBRegressor",
    "LaplaceClassifier",
    "LaplaceRegressor",
    "MCDropoutClassifier",
    "MCDropoutRegressor",
    "NeighbourClassifier",
    "NeighbourRegressor",
    "VariationalDropoutClassifier",
    "VariationalDropoutRegressor",
    "VariationalGPRegressor",
]

_complete_docstrings([globals()[name] for name in __all__])
