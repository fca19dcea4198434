"""The configuration of a program: what its members share, and what may differ.

Also hooks, which are called during the training.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import torch

from skbayesnn._engine.posterior import Posterior
from skbayesnn._likelihoods import Likelihood
from skbayesnn._networks import Network

# ---- hooks


class Hook:
    """Told about the training of a program; each method does nothing by default."""

    def epoch_end(self, n_done: int, posterior: Posterior) -> None:
        """After ``n_done`` epochs.

        posterior : views of what is in training: clone what is to be kept
        """

    def training_end(self, posterior: Posterior) -> Posterior:
        """The posterior to go on with, by default the trained one."""
        return posterior


# ---- configuration

# Inputs, y, and weights or None.
RowsOfBatch = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def kl_weight(weighting: str, batch: int, n_batches: int) -> float:
    """Weight of the KL in the loss of batch ``batch`` of an epoch; its mean is one.

    "uniform", or "geometric" [BBB15 eq. 9]: the first batches of an epoch are led by
    the prior, the later ones by the data, 2^(B - i) / (2^B - 1) of B, i from 1.
    """
    if weighting == "uniform":
        return 1.0
    return n_batches * 0.5 ** (batch + 1) / (1 - 0.5**n_batches)


@dataclass(frozen=True)
class TrainingConfig:
    """What the members of one program share.

    Parameters
    ----------
    network, likelihood : Network, Likelihood
    n_batches : int
        Equal batches that an epoch is cut into.
    learning_rate : float
        Adam's step size at the start.
    cosine : bool
        Whether it decays to zero along half a cosine over a member's epochs.
    patience : int or None
        Epochs without improvement of the validation score (by more than ``tol``)
        after which a member stops; None: no early stopping.
    tol : float
    keep_interrupted : bool
        Whether a KeyboardInterrupt ends the training instead of passing through.
    horizon : int or None
        Steps that count as a whole training for the warm-ups; by default those of
        a member's epochs.
    prior : str
        A key of ``PRIORS``.
    kl_weighting : {"uniform", "geometric"}
        How the KL is spread over the batches of an epoch.
    kl_warm_up : float in [0, 1]
        Share of the training over which the KL's weight rises from 0 to 1.
    gradient : str
        A key of ``DATA_GRADIENTS``.
    n_training_draws : int
        Draws of the noise in every step, whose gradients are averaged.
    perturbed : bool
        Whether every member has its own noise on the rows.
    variance_source : {"residuals", "held_out", "training"}
        What makes a learned noise anew once the weights are trained: residuals of the
        training rows, where that is for them to say; rows without which an estimator
        has other networks trained; or nothing.
    dtype : torch.dtype
        Precision of the training.
    hooks : tuple of callable
        Each makes a :class:`~skbayesnn._engine.config.Hook` for a program.
    """

    network: Network
    likelihood: Likelihood
    n_batches: int
    learning_rate: float
    cosine: bool = True
    patience: int | None = None
    tol: float = 0.0
    keep_interrupted: bool = False
    horizon: int | None = None
    prior: str = "gaussian"
    kl_weighting: str = "uniform"
    kl_warm_up: float = 0.0
    gradient: str = "pathwise"
    n_training_draws: int = 1
    perturbed: bool = False
    variance_source: str = "residuals"
    dtype: torch.dtype = torch.float64
    hooks: tuple[Callable[[], Hook], ...] = ()

    @property
    def asks_residuals(self) -> bool:
        """Whether residuals may make the noise anew, of whatever rows.

        Where q's width is given; where the training ends with the weights at their
        mode, as it does not with early stopping; and where the rows are all that were
        seen, and bear no noise of the members' own.
        """
        return (
            self.variance_source == "residuals"
            and self.network.quadratic_kl
            and self.patience is None
            and self.horizon is None
            and not self.perturbed
        )

    def batch_rows(self, n_rows):
        """Rows of a batch of ``n_rows``, a number or an array."""
        return -(-n_rows // self.n_batches)

    def kl_weight_at(self, batch: int, progress: float) -> float:
        """Weight of the KL in one batch, after a share ``progress`` of the training."""
        weight = kl_weight(self.kl_weighting, batch, self.n_batches)
        if progress >= self.kl_warm_up:
            return weight
        return weight * progress / self.kl_warm_up

    def learning_rate_at(self, progress: float) -> float:
        """Adam's step size after a share ``progress`` of the training."""
        if not self.cosine:
            return self.learning_rate
        return 0.5 * self.learning_rate * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class MemberParams:
    """What may differ between the members of one program.

    Parameters
    ----------
    seeds : ndarray of shape (members,), int
    keep : ndarray of shape (groups, members)
    prior : list of dict of ndarray
        Per group the fields of the prior, (members, ...) each.
    tau : ndarray of shape (members, targets)
        Precision in the network's scale: given, or where learning starts.
    statistics : ndarray of shape (members, numbers)
        What the likelihood has said of the training rows.
    n_epochs : ndarray of shape (members,), int
        After which a member's training ends, whatever the others do.
    learns_noise : ndarray of shape (members,), bool
        Whether the likelihood's parameters are learned with the weights, where the
        likelihood has some; else they stay where they start.
    """

    seeds: np.ndarray
    keep: np.ndarray
    prior: list[dict[str, np.ndarray]]
    tau: np.ndarray
    statistics: np.ndarray
    n_epochs: np.ndarray
    learns_noise: np.ndarray

    @classmethod
    def concatenate(cls, parts: "list[MemberParams]") -> "MemberParams":
        """All members of the parts, one after the other."""
        by_member = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if field.name not in ("keep", "prior")
        }
        return cls(
            keep=np.concatenate([part.keep for part in parts], axis=1),
            prior=[
                {
                    name: np.concatenate([of_part[name] for of_part in of_parts])
                    for name in of_parts[0]
                }
                for of_parts in zip(*(part.prior for part in parts), strict=True)
            ],
            **by_member,
        )

    def select(self, index: np.ndarray) -> "MemberParams":
        """Some of the members, by index; the same one several times, if asked for."""
        by_member = {
            field.name: getattr(self, field.name)[index]
            for field in fields(self)
            if field.name not in ("keep", "prior")
        }
        prior = [
            {name: values[index] for name, values in of_layer.items()}
            for of_layer in self.prior
        ]
        return MemberParams(keep=self.keep[:, index], prior=prior, **by_member)


class Rows(Protocol):
    """The training rows of every member, on the device."""

    n_rows: np.ndarray  # (members,), int
    mean_weight: torch.Tensor  # (members,), of these rows
    total_weight: torch.Tensor  # (members,), of all rows that count as seen

    @property
    def weights(self) -> torch.Tensor | None:
        """(members or 1, most rows of a member), or None where all are one."""

    def batches(self, order: torch.Tensor, size: int) -> Iterator[RowsOfBatch]:
        """Inputs, y and weights of ``size`` rows after the other.

        order : (members or 1, rows of all batches), each in range of the member's rows
        """

    def validation(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Held-out rows, all of them: inputs, y, weights; zero where a member has
        fewer than others.
        """
