"""Likelihoods p(y | f): network outputs -> nats, and -> predictive components."""

from skbayesnn.likelihoods.categorical import Categorical
from skbayesnn.likelihoods.gaussian import Gaussian
from skbayesnn.likelihoods.heteroscedastic import Heteroscedastic

__all__ = ["Categorical", "Gaussian", "Heteroscedastic"]
