"""Priors over the weights and biases of one affine map, and their table.

Each has a part ``weight`` and a part ``bias`` with what families ask for: ``energy``
and ``spread`` (closed forms, normal priors), ``log_density``. The fields of a prior are
tensors with the members axis in front; they may differ between members.
"""

from skbayesnn._priors.anchored import AnchoredPrior
from skbayesnn._priors.log_uniform import LogUniformPrior
from skbayesnn._priors.posterior import GaussianPrior, PosteriorPrior
from skbayesnn._priors.scale_mixture import ScaleMixturePrior

Prior = (
    GaussianPrior | PosteriorPrior | ScaleMixturePrior | LogUniformPrior | AnchoredPrior
)

PRIORS: dict[str, type] = {
    "gaussian": GaussianPrior,
    "scale_mixture": ScaleMixturePrior,
    "log_uniform": LogUniformPrior,
    "previous": PosteriorPrior,
    "anchored": AnchoredPrior,
}

__all__ = [
    "PRIORS",
    "AnchoredPrior",
    "GaussianPrior",
    "LogUniformPrior",
    "PosteriorPrior",
    "Prior",
    "ScaleMixturePrior",
]
