"""Likelihoods p(y | f): network outputs -> nats, and -> predictive components.

One file each, and a line of the table; what one is: ``_likelihoods/base.py``.
"""

from skbayesnn._likelihoods.base import Likelihood
from skbayesnn._likelihoods.categorical import Categorical, Ordinal
from skbayesnn._likelihoods.gaussian import Gaussian, Heteroscedastic
from skbayesnn._likelihoods.mixture import Mixture
from skbayesnn._likelihoods.poisson import Poisson
from skbayesnn._likelihoods.student_t import StudentT

LIKELIHOODS: dict[str, type[Likelihood]] = {
    likelihood.name: likelihood
    for likelihood in (
        Gaussian,
        Heteroscedastic,
        StudentT,
        Poisson,
        Mixture,
        Categorical,
        Ordinal,
    )
}

__all__ = [
    "LIKELIHOODS",
    "Categorical",
    "Gaussian",
    "Heteroscedastic",
    "Likelihood",
    "Mixture",
    "Ordinal",
    "Poisson",
    "StudentT",
    "likelihood_from",
    "likelihood_named",
]


def likelihood_named(name) -> type[Likelihood] | None:
    """The likelihood of that name, or None where it is none."""
    return LIKELIHOODS.get(name) if isinstance(name, str) else None


def likelihood_from(about: dict) -> Likelihood:
    """The likelihood that has described itself so."""
    options = {key: value for key, value in about.items() if key != "name"}
    return LIKELIHOODS[about["name"]](**options)
