"""The training loop, which trains all members of one program side by side.

Members do not interact: the loss is a sum over members, Adam works element by element,
and stopping, best weights and failures are recorded per member. So a member gets the
result (to rounding) that it gets when it is trained alone.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch

from skbayesnn._engine.bound import Bound, bound_of
from skbayesnn._engine.config import Hook, MemberParams, Rows, TrainingConfig
from skbayesnn._engine.cuda_graph import step_class
from skbayesnn._engine.objective import at_anchors, priors_of
from skbayesnn._engine.optimizer import FlatParameters
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.random import initial_normal
from skbayesnn._engine.residual_variance import with_residual_variance
from skbayesnn._engine.resources import keep_freed_memory, torch_threads
from skbayesnn._engine.step import Batches, RowPerturbation, Step, select_state

# ---- history of each member: losses, failures, best epoch


class TrainingHistory:
    """What happened in each epoch, per member; kept on the device until asked for."""

    def __init__(self, n_members: int):
        self._nll: list[torch.Tensor] = []
        self._kl: list[torch.Tensor] = []
        self.validation: list[torch.Tensor] = []
        self.failed = np.zeros(n_members, dtype=int)
        self._checked = 0

    def add(self, nll: torch.Tensor, kl: torch.Tensor) -> None:
        """nll, kl : (members,), means over the epoch's steps, per row."""
        self._nll.append(nll)
        self._kl.append(kl)

    def find_failures(self) -> None:
        """Note the first epoch with a loss that is not finite."""
        if self._checked == len(self._nll):
            return
        loss = torch.stack(self._nll[self._checked :]) + torch.stack(
            self._kl[self._checked :]
        )
        bad = ~torch.isfinite(loss).cpu().numpy()
        first = self._checked + 1 + bad.argmax(0)
        new = bad.any(0) & (self.failed == 0)
        self.failed[new] = first[new]
        self._checked = len(self._nll)

    def history(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """nll, kl and validation score, (epochs, members) each."""
        nll, kl = (torch.stack(v).double().cpu().numpy() for v in (self._nll, self._kl))
        if not self.validation:
            return nll, kl, None
        return nll, kl, torch.stack(self.validation).double().cpu().numpy()


class BestWeights:
    """Which parameters are kept: the last epoch's, or each member's best ones.

    Parameters
    ----------
    flat : FlatParameters
        The parameters in training.
    most_epochs : ndarray of shape (members,), int
        After which a member stops.
    patience : int or None
        Epochs without an improvement of the validation score by more than ``tol``
        after which it stops before; None keeps the last epoch's.
    tol : float
    """

    def __init__(
        self,
        flat: FlatParameters,
        most_epochs: np.ndarray,
        patience: int | None,
        tol: float,
    ):
        self._flat, self._patience, self._tol = flat, patience, tol
        self._most_epochs, n_members = most_epochs, len(most_epochs)
        self._score = np.full(n_members, -np.inf)
        self._epoch = np.zeros(n_members, dtype=int)
        self.stopped = np.zeros(n_members, dtype=bool)
        self.n_epochs = np.zeros(n_members, dtype=int)
        self._kept = flat.values.clone()

    def update(self, record: TrainingHistory) -> bool:
        """After an epoch; returns whether no member is left to be trained."""
        running = ~self.stopped & (record.failed == 0)
        self.n_epochs[running] += 1
        if self._patience is None:
            self._kept.copy_(self._flat.values)
        else:
            self._stop_early(running, record, self._patience)
        self.stopped |= self.n_epochs == self._most_epochs
        return bool(self.stopped[record.failed == 0].all())

    def _stop_early(
        self, running: np.ndarray, record: TrainingHistory, patience: int
    ) -> None:
        score = record.validation[-1].double().cpu().numpy()
        better = running & (score > self._score + self._tol)
        self._keep(better)
        self._score[better] = score[better]
        self._epoch[better] = self.n_epochs[better]
        self.stopped |= running & (self.n_epochs - self._epoch >= patience)

    def _keep(self, members: np.ndarray) -> None:
        chosen = torch.as_tensor(members).to(self._flat.values.device)
        chosen = chosen[self._flat.member_of]
        self._kept = torch.where(chosen, self._flat.values, self._kept)

    @property
    def posterior(self) -> Posterior:
        """The posterior to go on with, of parameters of its own."""
        return self._flat.posterior(self._kept)


# ---- densities and draws of validation rows


def validation_score(posterior: Posterior, rows: Rows, n_draws: int) -> torch.Tensor:
    """Mean log predictive density of each member's validation rows, (members,)."""
    x, y, weights = rows.validation()
    density = _log_density(posterior, x, y, n_draws)
    return (density * weights).sum(1) / weights.sum(1)


def validation_density(
    posterior: Posterior, rows: Rows, n_draws: int, parts: Iterable[np.ndarray]
) -> Iterator[torch.Tensor]:
    """Log predictive density of the validation rows (eq. 8), (members, rows).

    Rows that a member has fewer than others are filled up behind its own.

    parts : members by index, some at a time
    """
    x, y, _ = rows.validation()
    for members in parts:
        yield _log_density(
            posterior.select(members), _of(x, members), _of(y, members), n_draws
        )


def validation_draws(
    posterior: Posterior, rows: Rows, n_draws: int, parts: Iterable[np.ndarray]
) -> Iterator[torch.Tensor]:
    """The likelihood's ``held_out_draws`` for the validation rows.

    returns : (members, rows, ..., targets) by part, as ``validation_density``
    """
    x, y, _ = rows.validation()
    for members in parts:
        some = posterior.select(members)
        with torch.no_grad():
            outputs = some.outputs_of(_of(x, members), n_draws)
            yield some.likelihood.held_out_draws(
                some.likelihood_params, outputs, _of(y, members)
            )


def _log_density(posterior: Posterior, x, y, n_draws: int) -> torch.Tensor:
    with torch.no_grad():
        outputs = posterior.outputs_of(x, n_draws)
        density = posterior.likelihood.log_density(
            posterior.likelihood_params, outputs, y
        )
        return density.logsumexp(0) - math.log(len(outputs))


def _of(values: torch.Tensor, members: np.ndarray) -> torch.Tensor:
    """Some members' share of what may be the same for all."""
    return values if len(values) == 1 else values[torch.as_tensor(members)]


# ---- the loop

# Draws that score the validation rows after each epoch.
_VALIDATION_DRAWS = 8
# Steps between two looks for members whose loss is no longer finite.
_STEPS_BETWEEN_CHECKS = 200
# Below this size of a layer's activations a second thread costs more than it gains,
# and many times more where the processors are busy with something else.
_UNITS_OF_ONE_THREAD = 1 << 18


@dataclass
class Trained:
    """Outcome of :func:`train`.

    ``nll`` and ``kl`` (epochs, members) are per training row, in nats of the
    network's scale; ``validation`` likewise, higher is better, None without early
    stopping; past a member's end they mean nothing. ``n_epochs`` (members,) counts
    the epochs until a member stopped; ``failed`` (members,) is the epoch in which the
    loss was first not finite, or 0. ``kl_constant`` (members,) is what the KL lacks,
    nats. ``bound`` is that of the parameters that are kept, before hooks change them,
    where asked for.
    """

    posterior: Posterior
    nll: np.ndarray
    kl: np.ndarray
    validation: np.ndarray | None
    n_epochs: np.ndarray
    failed: np.ndarray
    kl_constant: np.ndarray
    interrupted: bool
    optimizer: dict[str, np.ndarray]
    bound: Bound | None = None

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
            kl_constant=self.kl_constant[members],
            optimizer=select_state(self.optimizer, members),
            bound=None if self.bound is None else self.bound.select(members),
        )


def start(plan: TrainingConfig, members: MemberParams, device, dtype) -> Posterior:
    """The untrained posterior: start values, or anchors, from the members' seeds."""

    def normal(group: int, *shape: int) -> torch.Tensor:
        numbers = initial_normal(members.seeds, group, *shape)
        return torch.as_tensor(numbers).to(device, dtype)

    keep = tuple(torch.as_tensor(p).to(device, dtype) for p in members.keep)
    tau, statistics = (
        torch.as_tensor(values).to(device, dtype)
        for values in (members.tau, members.statistics)
    )
    posterior = Posterior(
        network=plan.network,
        likelihood=plan.likelihood,
        layers=plan.network.init(normal, keep),
        likelihood_params=plan.likelihood.init(tau, statistics),
        keep=keep,
        seeds=members.seeds,
    )
    return at_anchors(posterior, priors_of(plan, members, posterior))


def train(
    plan: TrainingConfig,
    members: MemberParams,
    rows: Rows,
    posterior: Posterior,
    optimizer_state: dict[str, np.ndarray] | None = None,
    first_epoch: int = 0,
    hooks: Sequence[Hook] = (),
    bounded: bool = False,
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
    hooks : sequence of Hook
        Told about every epoch, and given the trained posterior, one after the other.
    bounded : bool
        Whether the evidence lower bound is computed at the end.
    """
    perturbation = _perturbation(plan, members, rows, first_epoch)
    batches = Batches(rows, plan, perturbation)
    n_units = len(members.seeds) * batches.n_rows * plan.network.widest
    keep_freed_memory()
    # Tensors of a caller's inference mode could not be trained.
    with torch.inference_mode(False), torch.no_grad():
        posterior = replace(
            posterior,
            keep=tuple(p.clone() for p in posterior.keep),
            likelihood_params=plan.likelihood.in_training(posterior.likelihood_params),
        )
        kind = step_class(plan, members, rows.mean_weight.device)
        step = kind(plan, members, rows, posterior, optimizer_state)
        record = TrainingHistory(len(members.seeds))
        best = BestWeights(step.parameters, members.n_epochs, plan.patience, plan.tol)
        run = _Run(plan, members, rows, batches, step, record, best)
        interrupted = False
        try:
            with torch_threads(1 if n_units < _UNITS_OF_ONE_THREAD else None):
                run.epochs(first_epoch, hooks)
        except KeyboardInterrupt:
            if not plan.keep_interrupted or not best.n_epochs.any():
                raise
            interrupted = True
        bound = None
        if bounded:
            bound = bound_of(plan, members, rows, best.posterior, perturbation)
        return run.outcome(bound, interrupted, hooks)


def _perturbation(plan, members, rows, first_epoch) -> RowPerturbation | None:
    """Of rows that are there for the first time, or as they were before."""
    if not plan.perturbed:
        return None
    place = 0 if plan.horizon is None else first_epoch
    return RowPerturbation(plan, members.seeds, rows, place)


@dataclass
class _Run:
    """A training and what it has come to."""

    plan: TrainingConfig
    members: MemberParams
    rows: Rows
    batches: Batches
    step: Step
    record: TrainingHistory
    best: BestWeights

    def epochs(self, first_epoch: int, hooks: Sequence[Hook]) -> None:
        """Until every member has ended, stopped or failed."""
        n_batches, n_epochs = self.plan.n_batches, self.members.n_epochs
        last = int(n_epochs.max())
        ends_of_some = set(n_epochs.tolist()) - {last}
        for epoch in range(last):
            self.step.start_epoch(first_epoch + epoch, n_batches)
            self._one_epoch()
            if (epoch + 1) * n_batches % _STEPS_BETWEEN_CHECKS < n_batches:
                self.record.find_failures()
            done = self.best.update(self.record)
            if epoch + 1 in ends_of_some:
                self.step.end_members(n_epochs == epoch + 1)
            for hook in hooks:
                hook.epoch_end(epoch + 1, self.step.posterior)
            if done:
                break

    def _one_epoch(self) -> None:
        step, record = self.step, self.record
        moves = map(step, self.batches.of_epoch(step.noise))
        nll = reduce(torch.Tensor.add_, moves).mean(1) / self.plan.n_batches
        record.add(nll, step.penalty.kl())
        if self.plan.patience is not None:
            score = validation_score(step.posterior, self.rows, _VALIDATION_DRAWS)
            record.validation.append(score)

    def _kl_constant(self, posterior: Posterior) -> np.ndarray:
        priors = priors_of(self.plan, self.members, posterior)
        layers, keep = posterior.layers, posterior.keep
        constant = posterior.network.kl_constant(layers, keep, priors)
        return constant.double().cpu().numpy()

    def outcome(
        self, bound: Bound | None, interrupted: bool, hooks: Sequence[Hook]
    ) -> Trained:
        """The best parameters, as the hooks hand them on, and the record."""
        record, best, posterior = self.record, self.best, self.best.posterior
        record.find_failures()
        # What happens to a member after it has stopped is no failure of its own.
        late = best.stopped & (record.failed > best.n_epochs)
        for hook in hooks:
            posterior = hook.training_end(posterior)
        curvature = self.step.penalty.curvature
        posterior = with_residual_variance(self.plan, self.rows, posterior, curvature)
        nll, kl, validation = record.history()
        return Trained(
            posterior=posterior,
            nll=nll,
            kl=kl,
            validation=validation,
            n_epochs=best.n_epochs,
            kl_constant=self._kl_constant(posterior),
            failed=np.where(late, 0, record.failed),
            interrupted=interrupted,
            optimizer=self.step.state(),
            bound=bound,
        )
