"""Bayesian neural networks that are ordinary scikit-learn estimators."""

from skbayesnn.abstention import Abstainer
from skbayesnn.calibration import CalibratedUncertaintyRegressor
from skbayesnn.conformal import ConformalClassifier, ConformalRegressor
from skbayesnn.estimators.bayes_by_backprop import BBBClassifier, BBBRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators.variational_dropout import (
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)
from skbayesnn.meta import (
    log_predictive_density,
    predict_interval,
    predict_quantile,
    predict_uncertainty,
    predictive_cdf,
    sample_f,
    sample_y,
)

__version__ = "0.1.0"

__all__ = [
    "Abstainer",
    "BBBClassifier",
    "BBBRegressor",
    "CalibratedUncertaintyRegressor",
    "ConformalClassifier",
    "ConformalRegressor",
    "MCDropoutClassifier",
    "MCDropoutRegressor",
    "VariationalDropoutClassifier",
    "VariationalDropoutRegressor",
    "log_predictive_density",
    "predict_interval",
    "predict_quantile",
    "predict_uncertainty",
    "predictive_cdf",
    "sample_f",
    "sample_y",
]
