"""The configuration of a training: shared settings and per-member parameters.

Also the hooks that are called during the training. A *program* trains several networks,
its *members*, as one batch of tensors.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from skbayesnn._engine.members import ByMember
from skbayesnn._engine.posterior import Posterior
from skbayesnn._likelihoods import Likelihood
from skbayesnn._networks import Network

# ---- hooks


class Hook:
    """Callback that a training calls after its epochs; it does nothing by default.

    Hooks are called without autograd. Members that have stopped early still change with
    every step, but their result is the one of their best epoch.
    """

    # Whether the hook needs the posterior of every epoch. If no hook does, they may be
    # called once for several epochs, after the last.
    every_epoch = True

    def epoch_end(self, n_done: int, posterior: Posterior) -> None:
        """Called after each epoch.

        n_done : epochs of this run; earlier runs of a stream do not count
        posterior : views of the parameters in training. Clone what you keep. The next
            step uses values that a hook writes in place, as ``HeldOutTauUpdater`` does
            with tau. The parameter "mean" of a family is M of its definition;
            ``mean_weights(posterior)`` returns E W (p M with dropout).
        """


# ---- configuration


def kl_weight(weighting: str, batch: np.ndarray, n_batches: int) -> np.ndarray:
    """Weights of the KL in the loss of batches of an epoch, whose mean is one.

    "uniform", or "geometric" [BBB15 eq. 9]: the prior dominates the first batches of an
    epoch, the data the later ones. Batch i of B, i from 1, has the share
    2^(B - i) / (2^B - 1) of the KL.
    """
    if weighting == "uniform":
        return np.ones(np.shape(batch))
    return n_batches * 0.5 ** (batch + 1) / (1 - 0.5**n_batches)


# Rows of a batch times weights from which "auto" trains a perceptron on a GPU.
MIN_PRODUCTS_ON_A_GPU = 1 << 22


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of the training that a method sets.

    Parameters
    ----------
    kl_weighting : {"uniform", "geometric"}
        Distribution of the KL over the batches of an epoch.
    kl_warm_up : float in [0, 1]
        Share of the training over which the KL's weight rises from 0 to its last value.
    precision_ratio : float
        Ratio of the precision of the training to tau, if tau is learned. The KL's last
        weight is the inverse: with both factors eq. 1 has the same minimum.
    n_training_draws : int
        Draws of the weights per step. Their gradients are averaged.
    perturbed : bool
        Whether every member is trained on its own row perturbation.
    variance_source : {"residuals", "held_out", "training"}
        How a learned observation noise variance is estimated after the training: from
        the residuals of the training rows, where they are suitable; from held-out rows,
        by the estimator; or not again.
    """

    kl_weighting: str = "uniform"
    kl_warm_up: float = 0.0
    precision_ratio: float = 1.0
    n_training_draws: int = 1
    perturbed: bool = False
    variance_source: str = "residuals"


@dataclass(frozen=True)
class TrainingConfig(TrainingOptions):
    """Settings that all members of one program share, with those of their method.

    Parameters
    ----------
    network, likelihood : Network, Likelihood
    n_batches : int
        Number of equal batches per epoch.
    learning_rate : float
        Adam's initial step size.
    cosine : bool
        Whether the step size decays to zero along half a cosine over a member's epochs.
    patience : int or None
        A member stops after this many epochs without an improvement of its validation
        score by more than ``tol``. None: no early stopping.
    tol : float
    keep_interrupted : bool
        Whether a KeyboardInterrupt ends the training and keeps the weights. If False,
        it is raised.
    prior : str
        A key of ``PRIORS``.
    dtype : torch.dtype
        Floating-point type of the training.
    """

    network: Network
    likelihood: Likelihood
    n_batches: int
    learning_rate: float
    cosine: bool = True
    patience: int | None = None
    tol: float = 0.0
    keep_interrupted: bool = False
    prior: str = "gaussian"
    dtype: torch.dtype = torch.float64

    @property
    def uses_residuals(self) -> bool:
        """Whether the observation noise variance is estimated from the residuals.

        This requires that the width of q is given, that the training ends at the mode
        of the weights (so no early stopping), and that the rows are not perturbed.
        """
        return (
            self.variance_source == "residuals"
            and self.network.quadratic_kl
            and self.patience is None
            and not self.perturbed
        )

    @property
    def training_ratio(self) -> float:
        """``precision_ratio``, or 1 if tau is given."""
        return self.precision_ratio if self.likelihood.learned else 1.0

    def suits_gpu(self, n_rows: int) -> bool:
        """Whether a training on a GPU takes less time than on a CPU.

        Perceptrons train on a CPU in a compiled loop; on a GPU a step takes about as
        long for many products as for few (docs/defaults.md, "Device").
        """
        products = self.batch_rows(n_rows) * self.network.n_weights
        return not self.network.is_compiled or products >= MIN_PRODUCTS_ON_A_GPU

    def computed_in(self, device: torch.device) -> torch.dtype:
        """Precision of the training on a device: Apple's GPUs have float32 only."""
        return torch.float32 if device.type == "mps" else self.dtype

    def batch_rows(self, n_rows):
        """Rows per batch, given the number of rows (an int or an array)."""
        return -(-n_rows // self.n_batches)

    def kl_weights(self, batch: np.ndarray, progress: np.ndarray) -> np.ndarray:
        """Weights of the KL in batches after shares ``progress`` of the training."""
        weight = kl_weight(self.kl_weighting, batch, self.n_batches)
        weight = weight / self.training_ratio
        is_warm = progress >= self.kl_warm_up
        return np.where(is_warm, weight, weight * progress / (self.kl_warm_up or 1.0))

    def learning_rates(self, progress: np.ndarray) -> np.ndarray:
        """Adam's step sizes after shares ``progress`` of the training.

        The cosines are the C library's; NumPy's have other last bits on some
        processors.
        """
        if not self.cosine:
            return np.full(len(progress), self.learning_rate)
        cosines = np.array([math.cos(math.pi * share) for share in progress.tolist()])
        return 0.5 * self.learning_rate * (1 + cosines)


@dataclass(frozen=True)
class MemberParams(ByMember):
    """Parameters that may differ between the members of one program.

    Parameters
    ----------
    seeds : ndarray of shape (members,), int
    keep : ndarray of shape (groups, members)
        Keep probability p = 1 - dropout of each parameter group.
    prior : list of dict of ndarray
        Fields of the prior of each parameter group, (members, ...) each.
    tau : ndarray of shape (members, targets)
        Precision in the network's scale: given, or the initial value if it is learned.
    statistics : ndarray of shape (members, statistics)
        The likelihood's ``statistics`` of the training rows.
    n_epochs : ndarray of shape (members,), int
        Number of epochs of each member.
    learns_likelihood : ndarray of shape (members,), bool
        Whether the likelihood's parameters are learned with the weights. If False, they
        keep their initial values.
    """

    seeds: np.ndarray
    keep: np.ndarray = field(metadata={"axis": 1})
    prior: list[dict[str, np.ndarray]]
    tau: np.ndarray
    statistics: np.ndarray
    n_epochs: np.ndarray
    learns_likelihood: np.ndarray


# ---- rows


class Batch(NamedTuple):
    """Rows of a step. The members axis has length 1 if all members share the rows.

    Parameters
    ----------
    x : (members or 1, rows, inputs)
    y : (members or 1, rows, targets), or class indices (members or 1, rows)
    weights : (members or 1, rows), or None if all are 1
    y_perturbation : (members, rows, targets), in units of the std of the observation
        noise, or None
    """

    x: torch.Tensor
    y: torch.Tensor
    weights: torch.Tensor | None
    y_perturbation: torch.Tensor | None = None

    def with_own_x(self) -> "Batch":
        """The same batch with a copy of x, which may be overwritten."""
        return Batch(self.x.clone(), self.y, self.weights, self.y_perturbation)


class MemberRows(Protocol):
    """The training and validation rows of every member, on the device."""

    n_rows: np.ndarray  # (members,), int
    mean_weight: torch.Tensor  # (members,), mean weight of these rows
    total_weight: torch.Tensor  # (members,), total weight of all rows seen so far

    @property
    def weights(self) -> torch.Tensor | None:
        """Row weights, (members or 1, most rows of a member), or None if all are 1."""

    def batches(self, order: torch.Tensor, size: int) -> Iterator[Batch]:
        """Iterate over batches of ``size`` rows, without a perturbation of y.

        order : (members or 1, rows of all batches), row indices of each member
        """

    def validation(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Inputs, y and weights of all validation rows.

        Members with fewer rows than others are padded with rows of weight zero.
        """


class MemberTable(NamedTuple):
    """Training rows of one member as arrays, for a loop on a CPU.

    The columns of x and y may have a shift and factor to the member's scale. Inputs are
    dense or sparse; the arrays of the other kind are empty.

    Parameters
    ----------
    x : ndarray of shape (rows of the table, inputs)
        Dense inputs; no rows if they are sparse.
    indptr, indices, data : ndarrays of int64, int32 and floats
        The stored values of sparse inputs, as in SciPy's CSR format.
    x_of_zero : ndarray of shape (inputs,)
        Of sparse inputs: standardised zeros, which are the values that are not stored.
    y : ndarray of shape (rows of the table, targets)
        Or (0, 1) for classes.
    labels : ndarray of shape (rows of the table,), int64
        Class indices; empty for regression.
    rows : ndarray of shape (R,), int64
        The member's rows of the table.
    weights : ndarray of shape (R,)
        Divided by their mean; empty if all are one.
    y_shift : ndarray of shape (R, targets)
        Perturbation of y, in units of the std of the observation noise; or (0, 1).
    x_affine, y_affine : ndarray of shape (2, columns)
        Shift and factor of the columns, or (2, 0).
    """

    x: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    x_of_zero: np.ndarray
    y: np.ndarray
    labels: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    y_shift: np.ndarray
    x_affine: np.ndarray
    y_affine: np.ndarray


@runtime_checkable
class TableRows(MemberRows, Protocol):
    """Rows of one table, which members can be trained on one at a time."""

    def member_table(
        self,
        member: int,
        weight_factor: np.ndarray | None = None,
        y_shift: np.ndarray | None = None,
    ) -> MemberTable:
        """The rows of one member, on the CPU.

        weight_factor : (R,), factors of the weights; None if all are one
        y_shift : (R, targets), perturbation of y, or None
        """

    def select(self, members: np.ndarray) -> "TableRows":
        """The rows of some members, by index."""

    def to(self, device: torch.device) -> "TableRows":
        """The rows on another device."""
