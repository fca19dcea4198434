"""The Gaussian prior p(W) = N(0, I / l^2)."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class GaussianPrior:
    """Independent N(0, 1 / l^2) on every weight, l the prior length scale.

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l, in the units of the standardised inputs; 0 is the flat (improper) prior.
    """

    length_scale: torch.Tensor

    def cross_entropy(self, second_moment: torch.Tensor) -> torch.Tensor:
        """E_q[-log p(W)] up to the prior's log normaliser: (l^2 / 2) E_q ||W||^2.

        second_moment : (members,), E_q ||W||^2
        returns : (members,), nats
        """
        return 0.5 * self.length_scale.square() * second_moment
