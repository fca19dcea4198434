"""What both kinds of variational dropout [KSW15] share: the learned alpha.

Weights are theta (1 + sqrt(alpha) e), e standard normal. alpha is learned as a
logarithm, one per layer, per input unit or per weight, within bounds: below the lower
one noise cannot be told from none, above the upper one a weight is noise alone, and
single draws of such weights can be arbitrarily large [MAV17 section 4.2].
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch

from skbayesnn._families.base import Family, Params
from skbayesnn._priors import log_uniform

LOWEST_LOG_ALPHA = -10.0
HIGHEST_LOG_ALPHA = {"kingma": 0.0, "molchanov": 4.0}
KL = {
    "kingma": (log_uniform.kingma, log_uniform.kingma_slope),
    "molchanov": (log_uniform.molchanov, log_uniform.molchanov_slope),
}


@dataclass(frozen=True)
class Variational(Family):
    """Multiplicative normal noise of a learned variance; biases have none.

    Parameters
    ----------
    alpha : {"layer", "unit", "weight"}
        What has an alpha of its own; a unit is an input of the layer.
    approximation : {"kingma", "molchanov"}
        Of the KL to the log-uniform prior; kingma holds for alpha <= 1 only, which is
        enforced.
    """

    alpha: str = "unit"
    approximation: str = "molchanov"

    @abstractmethod
    def log_alpha_of(self, params: Params) -> torch.Tensor:
        """log alpha of every weight, within its bounds, (members, inputs, outputs)."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest log alpha."""
        return LOWEST_LOG_ALPHA, HIGHEST_LOG_ALPHA[self.approximation]

    def bounded(self, log_alpha: torch.Tensor) -> torch.Tensor:
        """log alpha within its bounds, where it also has no gradient beyond them."""
        return log_alpha.clamp(*self.bounds)

    def start(self, mean: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """log alpha at (1 - p) / p, (members, inputs or 1, outputs or 1)."""
        shape = {
            "layer": (1, 1),
            "unit": (mean.shape[1], 1),
            "weight": tuple(mean.shape[1:]),
        }[self.alpha]
        log_alpha = self.bounded(((1 - keep) / keep).log())
        return log_alpha.view(-1, 1, 1).expand(-1, *shape).clone()
