"""Gaussian dropout: rows z_i m_i with z_i ~ N(p, p (1 - p)), p = keep.

The two moments of Bernoulli dropout; as N(1, alpha) on rows of mean p M it has
alpha = (1 - p) / p [Srivastava et al. 2014 section 10; KSW15 section 3].
"""

import math
from dataclasses import dataclass

import torch

from skbayesnn._families.base import per_member
from skbayesnn._families.input_noise import InputNoise


@dataclass(frozen=True)
class Gaussian(InputNoise):
    """Rows of W are scaled; q's entropy in M is left out, as for Bernoulli.

    NOTE[DIFF]: the entropy of a row is that of z plus log ||m_i||, which is left out.
    With it the objective would be q's free energy, and a row that is not needed would
    be held off zero, where -log ||m_i|| has no bound [Hron et al. 2018]; without it
    the noise is the regulariser that [Srivastava et al. 2014] train with. What is left
    out of a row, but for constants, is -log(l ||m_i||): 3.0, 1.6, 0.7 and 0 nats at
    l ||m_i|| = 0.05, 0.2, 0.5 and 1. ``VariationalIndependent`` has it.
    """

    def mask(self, keep, noise, *shape):
        """Normal numbers with the two moments of Bernoulli(p)."""
        p = per_member(keep, len(shape))
        return torch.addcmul(p, (p * (1 - p)).sqrt(), noise.normal(*shape))

    def entropy(self, keep):
        """log sqrt(2 pi e p (1 - p))."""
        return 0.5 * (2 * math.pi * math.e * keep * (1 - keep)).log()
