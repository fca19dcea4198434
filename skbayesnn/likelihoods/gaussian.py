"""Homoscedastic Gaussian likelihood N(y; f, 1 / tau), one precision per target."""

import math
from dataclasses import dataclass

import torch

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# A learned noise never falls below this share of y's own standard deviation, so that
# targets that a network can interpolate do not drive the precision to infinity.
SMALLEST_NOISE = 1e-3
LARGEST_LOG_TAU = -2 * math.log(SMALLEST_NOISE)
# Nor is it so large that a variance overflows (also in float32).
SMALLEST_LOG_TAU = -70.0


@dataclass(frozen=True)
class Gaussian:
    """tau given, or learned with the weights (``learned=True``).

    All quantities are in the network's scale (y standardised); nats.
    """

    n_targets: int
    learned: bool

    @property
    def n_outputs(self) -> int:
        """Outputs of the network: one mean per target."""
        return self.n_targets

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are learned."""
        return ("log_tau",) if self.learned else ()

    def init(self, tau: torch.Tensor) -> dict[str, torch.Tensor]:
        """tau : (members, targets), the given precision, or where learning starts."""
        return {"log_tau": tau.log()}

    def schedule(self, params: dict[str, torch.Tensor], progress: float) -> None:
        """Told before each epoch how far the training has come, in [0, 1]."""

    def log_tau(self, params: dict[str, torch.Tensor]) -> torch.Tensor:
        """Log precision, (members, 1, targets)."""
        log_tau = params["log_tau"].unsqueeze(1)
        if not self.learned:
            return log_tau
        return log_tau.clamp(SMALLEST_LOG_TAU, LARGEST_LOG_TAU)

    def nll(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """-log p(y | f), (..., members, rows).

        outputs : (..., members, rows, n_outputs)
        y : (members or 1, rows, targets)
        """
        return gaussian_nll(outputs, self.log_tau(params), y)

    def log_density(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """log p(y | f), (..., members, rows); shapes as in ``nll``."""
        return -self.nll(params, outputs, y)

    def components(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and noise variance of every draw.

        outputs : (draws, members, rows, targets)
        returns : two tensors (draws, members, rows, targets)
        """
        variance = self.log_tau(params).neg().exp()
        return outputs, variance.expand_as(outputs)


def gaussian_nll(
    mean: torch.Tensor, log_tau: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """-log N(y; mean, 1 / tau), summed over the last axis (targets).

    mean : (..., rows, targets); log_tau, y : of shapes that broadcast against it
    """
    if mean.shape[-2:] != y.shape[-2:]:
        raise ValueError(
            "outputs and y must agree in rows and targets; got "
            f"{tuple(mean.shape)} and {tuple(y.shape)}."
        )
    squares = (0.5 * log_tau.exp() * (y - mean).square()).sum(-1)
    return squares + (HALF_LOG_2PI - 0.5 * log_tau).sum(-1)
