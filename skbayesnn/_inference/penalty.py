"""KL / (N tau), the part of the objective that does not see the rows."""

import torch

from skbayesnn._families import Noise, Params
from skbayesnn._inference.objective import Objective
from skbayesnn._inference.optimizer import FlatParameters
from skbayesnn._inference.posterior import Posterior


class Penalty:
    """The KL of all members: its gradient in every step, its value after each epoch.

    Where every family's KL is quadratic, KL / (N tau) is lambda ||theta - a||^2 (eq.
    4), a the prior's centre: its gradient is one product per step, its value another.

    Parameters
    ----------
    flat : FlatParameters
        The parameters in training.
    q : Posterior
        With views of them.
    objective : Objective
    noise : Noise
        Of whole networks, for families that estimate their KL by a draw.

    Attributes
    ----------
    curvature : list of dict of tensor, or None
        Where the KL is quadratic: its second derivatives, like the parameters.
    """

    def __init__(
        self, flat: FlatParameters, q: Posterior, objective: Objective, noise: Noise
    ):
        self._flat, self._q, self._objective, self._noise = flat, q, objective, noise
        # 1 / (N tau) per parameter, or 2 lambda where the KL is quadratic.
        self._factor = objective.kl_scale[flat.member_of]
        self._quadratic = q.network.quadratic_kl
        # Where it is: its minimum, or None where that is zero.
        self._centre: torch.Tensor | None = None
        self.curvature: list[Params] | None = None
        if self._quadratic:
            ones = torch.ones_like(flat.values)
            at_zero = self._kl_gradient(flat.posterior(torch.zeros_like(ones)))
            slope = self._kl_gradient(flat.posterior(ones)).sub_(at_zero)
            pulled = slope != 0
            centre = torch.where(pulled, -at_zero / slope, 0.0)
            if centre.any():
                self._centre = centre
            self.curvature = flat.posterior(slope).layers
            self._factor.mul_(slope)
            # What is left of the KL where it pulls to.
            rest = torch.where(pulled, centre, flat.values)
            self._constant = objective.kl(flat.posterior(rest), noise)

    def add_gradient(self, gradient: torch.Tensor, weight: torch.Tensor | None) -> None:
        """Add the gradient of ``weight`` (None: one) times the penalty, in place."""
        of = self._from_centre() if self._quadratic else self._kl_gradient(self._q)
        gradient.addcmul_(of if weight is None else of * weight, self._factor)

    def kl(self) -> torch.Tensor:
        """KL(q || p) per row, (members,), nats."""
        if not self._quadratic:
            return self._objective.kl(self._q, self._noise)
        squares = self._from_centre().square().mul_(self._factor)
        half = self._flat.sum_by_member(squares) / 2
        return self._constant + half / self._objective.scale

    def _from_centre(self) -> torch.Tensor:
        values = self._flat.values
        return values if self._centre is None else values - self._centre

    def _kl_gradient(self, q: Posterior) -> torch.Tensor:
        return self._flat.vector(self._objective.kl_gradient(q, self._noise), {})
