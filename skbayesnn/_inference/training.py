"""The training loop: all members of one program, side by side.

Members never touch each other: the loss is a sum over members, Adam works element by
element, and stopping, best weights and failures are kept per member. So member i
gets the result (to rounding) that it gets when it is trained alone.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import numpy as np
import torch

from skbayesnn._inference.memory import keep_freed_memory
from skbayesnn._inference.noise import initial_normal
from skbayesnn._inference.objective import Objective, kl_weight
from skbayesnn._inference.optimizer import Adam, FlatParameters
from skbayesnn._inference.penalty import Penalty
from skbayesnn._inference.posterior import Posterior
from skbayesnn._inference.record import Best, Record
from skbayesnn._inference.training_noise import TrainingNoise
from skbayesnn._likelihoods import Likelihood
from skbayesnn._networks import MLP
from skbayesnn._priors import PRIORS, Prior

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]

# Draws that score the validation rows after each epoch.
_VALIDATION_DRAWS = 8
# Steps between two looks for members whose loss is no longer finite.
_STEPS_BETWEEN_CHECKS = 200
# Below this size of a layer's activations a second thread costs more than it gains,
# and many times more where the processors are busy with something else.
_UNITS_OF_ONE_THREAD = 1 << 19


@dataclass(frozen=True)
class Plan:
    """What the members of one program share.

    Parameters
    ----------
    network, likelihood : MLP, Likelihood
    n_epochs : int
    batch_size : int
        Upper bound: an epoch is cut into equal batches.
    learning_rate : float
        Adam's step size at the start.
    cosine : bool
        Whether it decays to zero along half a cosine over ``n_epochs``.
    patience : int or None
        Epochs without improvement of the validation score (by more than ``tol``)
        after which a member stops; None: no early stopping.
    tol : float
    keep_interrupted : bool
        Whether a KeyboardInterrupt ends the training instead of passing through.
    horizon : int or None
        Steps that count as a whole training for the warm-ups; by default those of
        ``n_epochs``.
    prior : str
        A key of ``PRIORS``.
    kl_weighting : {"uniform", "geometric"}
        How the KL is spread over the batches of an epoch.
    kl_warm_up : float in [0, 1]
        Share of the training over which the KL's weight rises from 0 to 1.
    score_function : bool
        Gradients by the score function instead of through the network.
    """

    network: MLP
    likelihood: Likelihood
    n_epochs: int
    batch_size: int
    learning_rate: float
    cosine: bool = True
    patience: int | None = None
    tol: float = 0.0
    keep_interrupted: bool = False
    horizon: int | None = None
    prior: str = "gaussian"
    kl_weighting: str = "uniform"
    kl_warm_up: float = 0.0
    score_function: bool = False

    def kl_weight_at(self, batch: int, n_batches: int, progress: float) -> float:
        """Weight of the KL in one batch, after a share ``progress`` of the training."""
        weight = kl_weight(self.kl_weighting, batch, n_batches)
        if progress >= self.kl_warm_up:
            return weight
        return weight * progress / self.kl_warm_up

    def learning_rate_at(self, progress: float) -> float:
        """Adam's step size after a share ``progress`` of the training."""
        if not self.cosine:
            return self.learning_rate
        return 0.5 * self.learning_rate * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Members:
    """What may differ between the members of one program.

    Parameters
    ----------
    seeds : ndarray of shape (members,), int
    keep : ndarray of shape (layers, members)
    prior : list of dict of ndarray
        Per layer the fields of the prior, (members, ...) each.
    tau : ndarray of shape (members, targets)
        Precision in the network's scale: given, or where learning starts.
    statistics : ndarray of shape (members, numbers)
        What the likelihood has said of the training rows.
    """

    seeds: np.ndarray
    keep: np.ndarray
    prior: list[dict[str, np.ndarray]]
    tau: np.ndarray
    statistics: np.ndarray

    @classmethod
    def concatenate(cls, parts: "list[Members]") -> "Members":
        """All members of the parts, one after the other."""
        return cls(
            seeds=np.concatenate([part.seeds for part in parts]),
            keep=np.concatenate([part.keep for part in parts], axis=1),
            prior=[
                {
                    name: np.concatenate([fields[name] for fields in of_parts])
                    for name in of_parts[0]
                }
                for of_parts in zip(*(part.prior for part in parts), strict=True)
            ],
            tau=np.concatenate([part.tau for part in parts]),
            statistics=np.concatenate([part.statistics for part in parts]),
        )


class Rows(Protocol):
    """The training rows of every member, on the device."""

    n_rows: int
    mean_weight: torch.Tensor  # (members,), of these rows
    total_weight: torch.Tensor  # (members,), of all rows that count as seen

    def batches(self, order: torch.Tensor, size: int) -> Iterator[Batch]:
        """Inputs, y and weights of ``size`` rows after the other.

        order : (members or 1, rows of all batches), in range(n_rows)
        """

    def validation(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Held-out rows, all of them: inputs, y, weights."""


@dataclass
class Trained:
    """Outcome of :func:`train`.

    ``nll`` and ``kl`` (epochs, members) are per training row, in nats of the
    network's scale; ``validation`` likewise, higher is better, None without early
    stopping. ``n_epochs`` (members,) counts the epochs until a member stopped;
    ``failed`` (members,) is the epoch in which the loss was first not finite, or 0.
    """

    posterior: Posterior
    nll: np.ndarray
    kl: np.ndarray
    validation: np.ndarray | None
    n_epochs: np.ndarray
    failed: np.ndarray
    interrupted: bool
    optimizer: dict[str, np.ndarray]

    def select(self, members: np.ndarray) -> "Trained":
        """Some of the members, by index."""
        return replace(
            self,
            posterior=self.posterior.select(members),
            nll=self.nll[:, members],
            kl=self.kl[:, members],
            validation=None if self.validation is None else self.validation[:, members],
            n_epochs=self.n_epochs[members],
            failed=self.failed[members],
            optimizer={
                name: value if value.ndim == 0 else value[members]
                for name, value in self.optimizer.items()
            },
        )


def start(plan: Plan, members: Members, device, dtype) -> Posterior:
    """The untrained posterior: start values from the members' seeds."""
    sizes = plan.network.sizes
    normal = [
        torch.as_tensor(
            initial_normal(members.seeds, i, sizes[i] + 1, sizes[i + 1])
        ).to(device, dtype)
        for i in range(len(sizes) - 1)
    ]
    keep = tuple(torch.as_tensor(p).to(device, dtype) for p in members.keep)
    tau, statistics = (
        torch.as_tensor(values).to(device, dtype)
        for values in (members.tau, members.statistics)
    )
    return Posterior(
        network=plan.network,
        likelihood=plan.likelihood,
        layers=plan.network.init(normal, keep),
        likelihood_params=plan.likelihood.init(tau, statistics),
        keep=keep,
        seeds=members.seeds,
    )


def train(
    plan: Plan,
    members: Members,
    rows: Rows,
    posterior: Posterior,
    optimizer_state: dict[str, np.ndarray] | None = None,
    first_epoch: int = 0,
    on_epoch: Callable[[int], None] = lambda epoch: None,
) -> Trained:
    """Minimise F / (N tau) of every member from ``posterior`` on.

    Parameters
    ----------
    plan, members, rows : Plan, Members, Rows
    posterior : Posterior
        Where to start; it is not changed.
    optimizer_state : dict, optional
        ``Trained.optimizer`` of the run that is continued.
    first_epoch : int
        Epochs that earlier runs have done: the noise goes on from there.
    on_epoch : callable
        Called with the number of epochs done, after each.
    """
    device, dtype = posterior.keep[0].device, posterior.keep[0].dtype
    flat = FlatParameters(posterior)
    q = flat.posterior()
    optimizer = Adam(flat, optimizer_state)
    noise = TrainingNoise(members.seeds, device, dtype)
    objective = Objective(
        _priors(plan, members, flat.values),
        rows.mean_weight,
        rows.total_weight,
        _loss_scale(plan, members, flat.values),
    )
    data_gradient = (
        objective.score_gradient if plan.score_function else objective.nll_gradient
    )
    penalty = Penalty(flat, q, objective, noise)
    n_batches = -(-rows.n_rows // plan.batch_size)
    n_steps = plan.n_epochs * n_batches
    horizon = plan.horizon or n_steps
    record = Record(len(members.seeds))
    best = Best(flat, len(members.seeds), plan.patience, plan.tol)
    interrupted = False
    first_step = optimizer.n_steps

    def move(number: int, batch: Batch) -> torch.Tensor:
        """One step on a batch; returns the nll of its rows, (members, batch rows)."""
        nll, of_layers, of_likelihood = data_gradient(q, *batch, noise)
        gradient = flat.vector(of_layers, of_likelihood)
        weight = plan.kl_weight_at(number, n_batches, optimizer.n_steps / horizon)
        penalty.add_gradient(gradient, weight)
        done = (optimizer.n_steps - first_step) / n_steps
        optimizer.step(gradient, plan.learning_rate_at(done))
        noise.next_step()
        return nll

    batch_size = -(-rows.n_rows // n_batches)
    batch_units = batch_size * max(plan.network.sizes)
    keep_freed_memory()
    try:
        with _few_threads(len(members.seeds) * batch_units), torch.no_grad():
            for epoch in range(plan.n_epochs):
                noise.start_epoch(first_epoch + epoch, n_batches)
                plan.likelihood.schedule(
                    q.likelihood_params, optimizer.n_steps / horizon
                )
                order = _order(noise, rows.n_rows, n_batches)
                batches = rows.batches(order, batch_size)
                moves = (move(*batch) for batch in enumerate(batches))
                nll = reduce(torch.Tensor.add_, moves).mean(1) / n_batches
                record.add(nll, penalty.kl())
                if plan.patience is not None:
                    record.validation.append(_validation_score(q, rows))
                if (epoch + 1) * n_batches % _STEPS_BETWEEN_CHECKS < n_batches:
                    record.find_failures()
                stop = best.update(record)
                on_epoch(epoch + 1)
                if stop:
                    break
    except KeyboardInterrupt:
        if not plan.keep_interrupted or not best.n_epochs.any():
            raise
        interrupted = True

    record.find_failures()
    # What happens to a member after it has stopped is no failure of its own.
    failed = np.where(best.stopped & (record.failed > best.n_epochs), 0, record.failed)
    nll_per_epoch, kl_per_epoch, validation = record.history()
    return Trained(
        posterior=flat.posterior(best.values),
        nll=nll_per_epoch,
        kl=kl_per_epoch,
        validation=validation,
        n_epochs=best.n_epochs,
        failed=failed,
        interrupted=interrupted,
        optimizer=optimizer.state(),
    )


def _order(noise: TrainingNoise, n_rows: int, n_batches: int) -> torch.Tensor:
    """The rows of an epoch's batches one after the other, (members or 1, rows).

    Batches are equal: the last one is filled up from the start of the order.
    """
    if n_batches == 1:
        return torch.arange(n_rows, device=noise.device).unsqueeze(0)
    order = noise.permutations(n_rows)
    missing = -n_rows % n_batches
    return torch.cat([order, order[:, :missing]], dim=1)


@contextmanager
def _few_threads(n_units: int) -> Iterator[None]:
    """One thread where the work of a step is small: the rest would only wait.

    n_units : activations of the widest layer, all members and rows of a batch
    """
    before = torch.get_num_threads()
    if n_units < _UNITS_OF_ONE_THREAD:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _loss_scale(plan: Plan, members: Members, like: torch.Tensor) -> torch.Tensor:
    """1 / tau per member where tau is given, so that the loss is eq. 3; else 1."""
    if plan.likelihood.learned:
        return like.new_ones(len(members.tau))
    return torch.as_tensor(1 / members.tau.mean(1)).to(like)


def _priors(plan: Plan, members: Members, like: torch.Tensor) -> tuple[Prior, ...]:
    """The prior of every layer."""
    return tuple(
        PRIORS[plan.prior](
            **{name: torch.as_tensor(value).to(like) for name, value in fields.items()}
        )
        for fields in members.prior
    )


def _validation_score(posterior: Posterior, rows: Rows) -> torch.Tensor:
    """Mean log predictive density of the validation rows (eq. 8), (members,)."""
    x, y, weights = rows.validation()
    n_draws = posterior.distinct_draws(_VALIDATION_DRAWS)
    with torch.no_grad():
        outputs = posterior.outputs(x, range(n_draws))
        density = posterior.likelihood.log_density(
            posterior.likelihood_params, outputs, y
        )
        density = density.logsumexp(0) - math.log(n_draws)
        return (density * weights).sum(1) / weights.sum(1)
