"""Modules of the public names, for type checkers and for the package itself."""

from skbayesnn import acquisition as acquisition
from skbayesnn import decision as decision
from skbayesnn import estimators as estimators
from skbayesnn import gradient_estimators as gradient_estimators
from skbayesnn import inspection as inspection
from skbayesnn import metrics as metrics
from skbayesnn import model_selection as model_selection
from skbayesnn import networks as networks
from skbayesnn import plotting as plotting
from skbayesnn import preprocessing as preprocessing
from skbayesnn import scoring as scoring
from skbayesnn._data.target import interval_target
from skbayesnn._distillation import distill
from skbayesnn._meta.abstention import Abstainer
from skbayesnn._meta.calibration import CalibratedUncertaintyRegressor
from skbayesnn._meta.conformal import ConformalClassifier, ConformalRegressor
from skbayesnn._meta.find import find_estimator
from skbayesnn._meta.functions import (
    crps,
    log_predictive_density,
    predict_distribution,
    predict_interval,
    predict_quantile,
    predict_uncertainty,
    predictive_cdf,
    report,
    sample_f,
    sample_y,
)
from skbayesnn._onnx.export import to_onnx
from skbayesnn._persistence.functions import (
    dumps,
    get_untrusted_types,
    load,
    loads,
    save,
    trusted_types,
)
from skbayesnn._predictive.distribution import PredictiveDistribution
from skbayesnn._stacking.classifier import BayesianStackingClassifier
from skbayesnn._stacking.pool import default_pool
from skbayesnn._stacking.regressor import BayesianStackingRegressor
from skbayesnn._version import __version__ as __version__
from skbayesnn._warm_up import warm_up
from skbayesnn.estimators._weight_decay import tau_from_weight_decay
from skbayesnn.estimators.anchored_ensemble import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
)
from skbayesnn.estimators.bayes_by_backprop import BBBClassifier, BBBRegressor
from skbayesnn.estimators.laplace import LaplaceClassifier, LaplaceRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators.neighbours import NeighbourClassifier, NeighbourRegressor
from skbayesnn.estimators.torch_module import from_torch
from skbayesnn.estimators.variational_dropout import (
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)
from skbayesnn.estimators.variational_gp import VariationalGPRegressor

__all__: list[str] = [
    "Abstainer",
    "AnchoredEnsembleClassifier",
    "AnchoredEnsembleRegressor",
    "BBBClassifier",
    "BBBRegressor",
    "BayesianStackingClassifier",
    "BayesianStackingRegressor",
    "CalibratedUncertaintyRegressor",
    "ConformalClassifier",
    "ConformalRegressor",
    "LaplaceClassifier",
    "LaplaceRegressor",
    "MCDropoutClassifier",
    "MCDropoutRegressor",
    "NeighbourClassifier",
    "NeighbourRegressor",
    "PredictiveDistribution",
    "VariationalDropoutClassifier",
    "VariationalDropoutRegressor",
    "VariationalGPRegressor",
    "crps",
    "default_pool",
    "distill",
    "dumps",
    "find_estimator",
    "from_torch",
    "get_untrusted_types",
    "interval_target",
    "load",
    "loads",
    "log_predictive_density",
    "predict_distribution",
    "predict_interval",
    "predict_quantile",
    "predict_uncertainty",
    "predictive_cdf",
    "report",
    "sample_f",
    "sample_y",
    "save",
    "tau_from_weight_decay",
    "to_onnx",
    "trusted_types",
    "warm_up",
]
