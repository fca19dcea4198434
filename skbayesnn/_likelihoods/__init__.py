"""Likelihoods p(y | f) and the table of their names.

A likelihood computes log densities and predictive components from network outputs. Each
one is a file, or shares one with a related likelihood, and a line of the table. See
``_likelihoods/base.py`` for the base class.
"""

from skbayesnn._likelihoods.base import Likelihood
from skbayesnn._likelihoods.categorical import Categorical, Ordinal
from skbayesnn._likelihoods.gaussian import Gaussian, Heteroscedastic
from skbayesnn._likelihoods.intervals import Intervals, UnequalIntervals
from skbayesnn._likelihoods.mixture import Mixture
from skbayesnn._likelihoods.poisson import NegativeBinomial, Poisson
from skbayesnn._likelihoods.student_t import StudentT

LIKELIHOODS: dict[str, type[Likelihood]] = {
    likelihood.name: likelihood
    for likelihood in (
        Gaussian,
        Heteroscedastic,
        Intervals,
        UnequalIntervals,
        StudentT,
        Poisson,
        NegativeBinomial,
        Mixture,
        Categorical,
        Ordinal,
    )
}

# A value of the regressors' parameter ``likelihood``, and the likelihoods among which
# held-out rows select. The first is used if no rows are held out.
AUTO = "auto"
LIKELIHOODS_OF_AUTO = (Gaussian.name, Heteroscedastic.name)
# Values of the parameter for a y with intervals, and the likelihoods that they mean.
OF_INTERVALS: dict[str, type[Intervals]] = {
    AUTO: Intervals,
    Gaussian.name: Intervals,
    Heteroscedastic.name: UnequalIntervals,
}

__all__ = [
    "AUTO",
    "LIKELIHOODS",
    "LIKELIHOODS_OF_AUTO",
    "OF_INTERVALS",
    "Categorical",
    "Gaussian",
    "Heteroscedastic",
    "Likelihood",
    "Mixture",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "StudentT",
    "likelihood_from",
    "likelihood_named",
]


def likelihood_named(name) -> type[Likelihood] | None:
    """The likelihood with this name, or None if the name is unknown.

    For "auto", the first of its likelihoods: all have the same kind of y.
    """
    name = LIKELIHOODS_OF_AUTO[0] if isinstance(name, str) and name == AUTO else name
    return LIKELIHOODS.get(name) if isinstance(name, str) else None


def likelihood_from(description: dict) -> Likelihood:
    """Construct a likelihood from its ``describe()``."""
    options = {key: value for key, value in description.items() if key != "name"}
    return LIKELIHOODS[description["name"]](**options)
