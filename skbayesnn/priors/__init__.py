"""Priors over the weights and biases of one affine map, and their table.

Each has a part ``weight`` and a part ``bias`` with what families ask for: ``energy``
and ``spread`` (closed forms, normal priors), ``log_density``. The fields of a prior are
tensors with the members axis in front; they may differ between members.
"""

from skbayesnn.priors.log_uniform import LogUniformPrior
from skbayesnn.priors.normal import GaussianPrior, NormalPrior
from skbayesnn.priors.scale_mixture import ScaleMixturePrior

Prior = GaussianPrior | NormalPrior | ScaleMixturePrior | LogUniformPrior

PRIORS: dict[str, type] = {
    "gaussian": GaussianPrior,
    "scale_mixture": ScaleMixturePrior,
    "log_uniform": LogUniformPrior,
    "previous": NormalPrior,
}

__all__ = [
    "PRIORS",
    "GaussianPrior",
    "LogUniformPrior",
    "NormalPrior",
    "Prior",
    "ScaleMixturePrior",
]
