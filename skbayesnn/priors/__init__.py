"""Priors over the weights of one linear map."""

from skbayesnn.priors.gaussian import GaussianPrior

__all__ = ["GaussianPrior"]
