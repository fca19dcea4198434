"""Every constructor parameter of a network has a rule for files, or needs none."""

from inspect import signature

from skbayesnn import estimators
from skbayesnn._persistence.schema import NETWORK_SETTINGS
from skbayesnn.estimators._base import BayesianNetwork

# A loaded model predicts without these. The next `fit` checks them.
USED_BY_FIT_ONLY = {
    "activation",
    "alpha_per",
    "batch_size",
    "bias_length_scale",
    "class_weight",
    "dtype",
    "early_stopping",
    "gradient",
    "hidden_layer_sizes",
    "kl",
    "kl_approximation",
    "kl_warm_up",
    "kl_weighting",
    "learning_rate",
    "likelihood",
    "likelihood_options",
    "max_iter",
    "n_features",
    "n_iter_no_change",
    "noise",
    "noisy_targets",
    "pi",
    "prior",
    "prior_step",
    "s1",
    "s2",
    "sigma",
    "standardize",
    "validation_fraction",
    "verbose",
    "warm_start",
}
# Predictions check it themselves.
CHECKED_BY_PREDICTIONS = {"device"}


def test_every_parameter_has_a_rule_or_needs_none():
    kinds = [getattr(estimators, name) for name in estimators.__all__]
    parameters = {
        name
        for kind in kinds
        if issubclass(kind, BayesianNetwork)
        for name in signature(kind).parameters
    }
    without_rule = USED_BY_FIT_ONLY | CHECKED_BY_PREDICTIONS
    assert sorted(parameters - NETWORK_SETTINGS.keys() - without_rule) == []
    assert sorted(NETWORK_SETTINGS.keys() & without_rule) == []
    assert sorted(without_rule - parameters) == []
