"""What the implementations that train one member at a time have in common.

Both `compiled` (a loop on a CPU) and `fused` (a kernel on a GPU) get the parameters of
a program as vectors, run several epochs in one call, and compute the random numbers of
a step themselves, from the seeds of its epoch.
"""

from abc import ABC, abstractmethod
from time import perf_counter
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from skbayesnn._engine.config import MemberParams, TableRows, TrainingConfig
from skbayesnn._engine.processes import Processes
from skbayesnn._engine.step import RowPerturbation, TrainingState
from skbayesnn._engine.training_random import EPOCHS_PER_BLOCK, epoch_seeds
from skbayesnn._families import FAMILIES, Family
from skbayesnn._likelihoods import LIKELIHOODS, Heteroscedastic, Likelihood
from skbayesnn._priors import Prior

# Progress is reported this often, in seconds, if runs take long.
_SECONDS_PER_RUN = 0.25
# A run has at most this many times as many epochs as the one before.
_MAX_GROWTH = 8
_NAME_OF_FAMILY = {kind: name for name, kind in FAMILIES.items()}
_NAME_OF_LIKELIHOOD = {kind: name for name, kind in LIKELIHOODS.items()}


def family_name(family: Family) -> str:
    """Key of the family in ``FAMILIES``; empty for a class that is not in it."""
    return _NAME_OF_FAMILY.get(type(family), "")


def likelihood_name(likelihood: Likelihood) -> str:
    """Key in ``LIKELIHOODS``; empty for other classes, also for subclasses."""
    return _NAME_OF_LIKELIHOOD.get(type(likelihood), "")


def prior_vectors(
    config: TrainingConfig, priors, state: TrainingState
) -> tuple[torch.Tensor, ...]:
    """Curvature and centre of the quadratic KL, and the prior's precision.

    priors : tuple of Prior, with normal distributions

    They are vectors like the parameters: the quadratic part of the KL is the sum of
    curvature / 2 (value - centre)^2 over the means and biases.
    """
    vectors = tuple(torch.zeros_like(state.parameters.values) for _ in range(3))
    curvature, centre, precision = (
        state.parameters.posterior(vector).layers for vector in vectors
    )
    groups = zip(config.network.families, priors, state.posterior.keep, strict=True)
    for i, (family, prior, keep) in enumerate(groups):
        for key, normal in (("mean", prior.weight), ("bias", prior.bias)):
            at = normal.precision
            factor = _curvature_factor(family, keep) if key == "mean" else 1.0
            if isinstance(factor, torch.Tensor):
                factor = factor.view(-1, *(1,) * (at.ndim - 1))
            curvature[i][key].copy_(at * factor)
            centre[i][key].copy_(normal.centre)
            precision[i][key].copy_(at)
    return vectors


def _curvature_factor(family: Family, keep: torch.Tensor) -> torch.Tensor | float:
    """Second derivative of the KL in a mean, in units of the prior's precision."""
    name = family_name(family)
    if name == "concrete":
        return 0.0  # The loop adds it, since the rate is learned.
    scales_curvature = name in ("bernoulli", "gaussian", "dropconnect")
    return keep if scales_curvature or family.spike else 1.0


class Epochs(NamedTuple):
    """Some epochs of a program.

    Parameters
    ----------
    seeds : ndarray of shape (epochs, 2, members), uint64
        Seeds of the words, and of the order of the rows.
    steps : ndarray of shape (schedules, epochs * batches, 3)
        Step size, epsilon of Adam, and weight of the KL.
    gain : ndarray of shape (schedules, epochs)
        Gain of heteroscedastic noise.
    n_left : ndarray of shape (members,), int
        Number of these epochs that a member trains.
    """

    seeds: np.ndarray
    steps: np.ndarray
    gain: np.ndarray
    n_left: np.ndarray


class MemberRunner(ABC):
    """Runs epochs of all members of a program, as ``training.TorchRunner``.

    A subclass trains the members one at a time.

    Parameters
    ----------
    config : TrainingConfig
    members : MemberParams
    rows : TableRows
    priors : tuple of Prior
    state : TrainingState
        Its parameters and moments are trained in place.
    perturbation : RowPerturbation or None
    processes : Processes or None
        The processes over which the rows of every batch are split.
    """

    engine: ClassVar[str]

    def __init__(
        self,
        config: TrainingConfig,
        members: MemberParams,
        rows: TableRows,
        priors: tuple[Prior, ...],
        state: TrainingState,
        perturbation: RowPerturbation | None,
        processes: Processes | None = None,
    ):
        self._config, self._members, self.state = config, members, state
        self._processes = processes
        self._n_members = len(members.seeds)
        self._batch_rows = config.batch_rows(rows.n_rows)
        self._seeds: dict[int, np.ndarray] = {}
        self.max_epochs = 1
        self._prepare(rows, perturbation, prior_vectors(config, priors, state))
        # The loops leave out terms that the training does not change.
        self._kl_constant = state.penalty.kl().double() - self._kl()

    def run(self, first: int, epoch: int, n_epochs: int):
        """Train all members for some epochs; return nll and KL, (epochs, members).

        first : epochs of earlier runs
        epoch : epochs of this run so far
        """
        start = perf_counter()
        nll, kl = self._train(self._epochs(first, epoch, n_epochs))
        self.state.count_steps(n_epochs * self._config.n_batches)
        seconds = perf_counter() - start
        fitting = int(n_epochs * min(_SECONDS_PER_RUN / seconds, _MAX_GROWTH))
        self.max_epochs = self._epochs_at_once(max(fitting, 1), seconds / n_epochs)
        return nll, kl + self._kl_constant.to(kl)

    @abstractmethod
    def _prepare(
        self,
        rows: TableRows,
        perturbation: RowPerturbation | None,
        of_prior: tuple[torch.Tensor, ...],
    ) -> None:
        """Prepare the arguments of the loop.

        of_prior : ``prior_vectors``
        """

    @abstractmethod
    def _kl(self) -> torch.Tensor:
        """KL per row at the present parameters, up to a constant, (members,)."""

    @abstractmethod
    def _train(self, epochs: Epochs) -> tuple[torch.Tensor, torch.Tensor]:
        """Train all members; return nll and KL up to a constant, (epochs, members)."""

    @abstractmethod
    def _epochs_at_once(self, n_epochs: int, seconds: float) -> int:
        """Number of epochs of the next run: ``n_epochs``, or what suits the device.

        seconds : duration of an epoch in the last run
        """

    def _epochs(self, first: int, epoch: int, n_epochs: int) -> Epochs:
        """The next ``n_epochs`` epochs; see ``run``."""
        config, schedule = self._config, self.state.schedule
        n_batches = config.n_batches
        n_done = range(epoch * n_batches, (epoch + n_epochs) * n_batches)
        steps = schedule.arrays(n_done, self.state.parameters.values.dtype)
        gain = np.zeros((len(steps), n_epochs))
        if isinstance(config.likelihood, Heteroscedastic):
            for i, start in enumerate(n_done[::n_batches]):
                progress = schedule.progress_of(start)
                gain[:, i] = [config.likelihood.gain_at(share) for share in progress]
        numbers = range(first + epoch, first + epoch + n_epochs)
        return Epochs(
            seeds=np.stack([self._epoch_seeds(number) for number in numbers]),
            steps=steps,
            gain=gain,
            n_left=np.clip(self._members.n_epochs - epoch, 0, n_epochs),
        )

    def _epoch_seeds(self, epoch: int) -> np.ndarray:
        """Seeds of an epoch, (2, members)."""
        block, position = divmod(epoch, EPOCHS_PER_BLOCK)
        if block not in self._seeds:
            distinct, index = np.unique(self._members.seeds, return_inverse=True)
            self._seeds = {block: epoch_seeds(distinct.tolist(), block)[..., index]}
        return self._seeds[block][position]
