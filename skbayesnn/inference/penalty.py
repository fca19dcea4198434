"""KL / (N tau), the part of the objective that does not see the rows."""

import torch

from skbayesnn.families import Noise
from skbayesnn.inference.objective import Objective
from skbayesnn.inference.parameters import FlatParameters
from skbayesnn.inference.posterior import Posterior


class Penalty:
    """The KL of all members: its gradient in every step, its value after each epoch.

    Where every family's KL is quadratic, KL / (N tau) is lambda ||theta||^2 (eq. 4):
    its gradient is one product per step, and its value another.

    Parameters
    ----------
    flat : FlatParameters
        The parameters in training.
    q : Posterior
        With views of them.
    objective : Objective
    noise : Noise
        For families that estimate their KL by a draw.
    """

    def __init__(
        self, flat: FlatParameters, q: Posterior, objective: Objective, noise: Noise
    ):
        self._flat, self._q, self._objective, self._noise = flat, q, objective, noise
        self._share = (objective.scale / objective.total_weight)[flat.member_of]
        self._decay: torch.Tensor | None = None
        if q.network.quadratic_kl:
            ones = flat.posterior(torch.ones_like(flat.values))
            self._decay = self._share * self._kl_gradient(ones)  # 2 lambda
            # What is left of the KL without the parameters that it pulls to zero.
            rest = flat.values.masked_fill(self._decay != 0, 0.0)
            self._constant = objective.kl(flat.posterior(rest), noise)

    def add_gradient(self, gradient: torch.Tensor, weight: float) -> None:
        """Add the gradient of ``weight`` times the penalty, in place."""
        if self._decay is not None:
            gradient.addcmul_(self._flat.values, self._decay, value=weight)
        else:
            gradient.addcmul_(self._kl_gradient(self._q), self._share, value=weight)

    def kl(self) -> torch.Tensor:
        """KL(q || p) per row, (members,), nats."""
        if self._decay is None:
            return self._objective.kl(self._q, self._noise)
        squares = self._flat.values.square().mul_(self._decay)
        quadratic = self._flat.sum_by_member(squares) / (2 * self._objective.scale)
        return self._constant + quadratic

    def _kl_gradient(self, q: Posterior) -> torch.Tensor:
        return self._flat.vector(self._objective.kl_gradient(q, self._noise), {})
