"""Homoscedastic Gaussian likelihood N(y; f, 1 / tau), one precision per target."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

# Gradient of the rows' nll (members or 1, rows or 1) -> gradients of the outputs, and
# of the learned parameters by name.
LikelihoodPullback = Callable[
    [torch.Tensor], tuple[torch.Tensor, dict[str, torch.Tensor]]
]

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# A learned noise never falls below this share of y's own standard deviation, so that
# targets that a network can interpolate do not drive the precision to infinity.
SMALLEST_NOISE = 1e-3
LARGEST_LOG_TAU = -2 * math.log(SMALLEST_NOISE)
# Nor is it so large that a variance overflows (also in float32).
SMALLEST_LOG_TAU = -70.0


@dataclass(frozen=True)
class Precision:
    """A noise precision per target, given, or learned with the weights.

    All quantities are in the network's scale (y standardised); nats.
    """

    n_targets: int
    learned: bool

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are learned."""
        return ("log_tau",) if self.learned else ()

    def log_tau(self, params: dict[str, torch.Tensor]) -> torch.Tensor:
        """Log precision, (members, 1, targets)."""
        log_tau = params["log_tau"].unsqueeze(1)
        if not self.learned:
            return log_tau
        return log_tau.clamp(SMALLEST_LOG_TAU, LARGEST_LOG_TAU)


@dataclass(frozen=True)
class Gaussian(Precision):
    """Noise that is the same for all rows."""

    @property
    def n_outputs(self) -> int:
        """Outputs of the network: one mean per target."""
        return self.n_targets

    def init(self, tau: torch.Tensor) -> dict[str, torch.Tensor]:
        """tau : (members, targets), the given precision, or where learning starts."""
        return {"log_tau": tau.log()}

    def schedule(self, params: dict[str, torch.Tensor], progress: float) -> None:
        """Told before each epoch how far the training has come, in [0, 1]."""

    def nll(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """-log p(y | f), (..., members, rows).

        outputs : (..., members, rows, n_outputs)
        y : (members or 1, rows, targets)
        """
        return gaussian_nll(outputs, self.log_tau(params), y)

    def nll_vjp(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, LikelihoodPullback]:
        """``nll`` and its pullback, by hand: it is most of a small network's step."""
        log_tau = self.log_tau(params)
        tau = log_tau.exp()
        residual = outputs - y
        scaled = tau * residual
        squares = scaled * residual
        twice = _over_targets(squares) - _over_targets(log_tau)
        constant = _number(self.n_targets * HALF_LOG_2PI, twice)
        nll = torch.add(constant, twice, alpha=0.5)

        def pullback(gradient):
            gradient = gradient.unsqueeze(-1)
            of_outputs = scaled * gradient
            if not self.learned:
                return of_outputs, {}
            inside = params["log_tau"] == log_tau.squeeze(1)
            of_log_tau = (squares - _number(1.0, squares)).mul_(gradient).sum(1)
            of_log_tau.mul_(inside).mul_(_number(0.5, squares))
            return of_outputs, {"log_tau": of_log_tau}

        return nll, pullback

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


def _number(value: float, like: torch.Tensor) -> torch.Tensor:
    """A number as a tensor, which costs a small product half as much."""
    return _cached_number(value, like.dtype, like.device)


@lru_cache(maxsize=64)
def _cached_number(value, dtype, device):
    return torch.tensor(value, dtype=dtype, device=device)


def _over_targets(values: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis; for one target a view of it."""
    return values.squeeze(-1) if values.shape[-1] == 1 else values.sum(-1)


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
