"""Gaussian dropout: rows z_i m_i with z_i ~ N(p, p (1 - p)), p = keep.

The two moments of Bernoulli dropout; as N(1, alpha) on rows of mean p M it has
alpha = (1 - p) / p [Srivastava et al. 2014 section 10; KSW15 section 3].
"""

from dataclasses import dataclass

import torch

from skbayesnn._families.base import per_member
from skbayesnn._families.input_noise import InputNoise


@dataclass(frozen=True)
class Gaussian(InputNoise):
    """Rows of W are scaled; q's entropy in M is left out, as for Bernoulli."""

    def mask(self, keep, noise, *shape):
        """Normal numbers with the two moments of Bernoulli(p)."""
        p = per_member(keep, len(shape))
        return torch.addcmul(p, (p * (1 - p)).sqrt(), noise.normal(*shape))
