"""The training loop, which trains all members of one program together.

Members do not interact: the loss is a sum over members, Adam is elementwise, and early
stopping, best weights and failures are tracked per member. So a member gets the same
result, up to rounding, as if it were trained alone.
"""

import math
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from typing import Protocol

import numpy as np
import torch

from skbayesnn._engine.bound import Bound, estimate_bound
from skbayesnn._engine.compiled import ENGINE_VARIABLE
from skbayesnn._engine.config import (
    Hook,
    MemberParams,
    MemberRows,
    TableRows,
    TrainingConfig,
)
from skbayesnn._engine.cuda_graph import step_class
from skbayesnn._engine.members import ByMember, select
from skbayesnn._engine.objective import at_anchors, at_values, make_priors
from skbayesnn._engine.optimizer import FlatParameters
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.processes import Processes, present_processes
from skbayesnn._engine.random import initial_normal
from skbayesnn._engine.residual_variance import with_residual_variance
from skbayesnn._engine.resources import keep_freed_memory, torch_threads
from skbayesnn._engine.step import (
    Batches,
    RowPerturbation,
    Step,
    TrainingState,
    collapse_equal,
)
from skbayesnn._priors import Prior
from skbayesnn._runtime import warn

# ---- history of each member: losses, failures, best epoch


class TrainingHistory:
    """Losses of each epoch and member; they stay on the device until requested.

    Parameters
    ----------
    failed : ndarray of shape (members,), int
        First epoch in which the loss was not finite, or 0, in a run to continue.
    epochs_done : int
        Number of epochs of that run.
    """

    def __init__(self, failed: np.ndarray, epochs_done: int = 0):
        self._nll: list[torch.Tensor] = []
        self._kl: list[torch.Tensor] = []
        self.validation: list[torch.Tensor] = []
        self.failed = failed.copy()
        self._checked, self._n_epochs_checked = 0, epochs_done

    def add(self, nll: torch.Tensor, kl: torch.Tensor) -> None:
        """Add some epochs.

        nll, kl : (epochs, members), per row, means over the steps of the epoch
        """
        self._nll.append(nll)
        self._kl.append(kl)

    @property
    def has_epochs(self) -> bool:
        """Whether an epoch is finished."""
        return bool(self._nll)

    def find_failures(self, last_epoch: np.ndarray) -> None:
        """Store the first epoch in which a member's loss was not finite.

        last_epoch : (members,), int; later losses mean nothing, and may be NaN
        """
        if self._checked == len(self._nll):
            return
        loss = torch.cat(self._nll[self._checked :]) + torch.cat(
            self._kl[self._checked :]
        )
        bad = ~torch.isfinite(loss).cpu().numpy()
        epoch = self._n_epochs_checked + 1 + np.arange(len(bad))
        bad &= epoch[:, np.newaxis] <= last_epoch
        first = epoch[0] + bad.argmax(0)
        new = bad.any(0) & (self.failed == 0)
        self.failed[new] = first[new]
        self._checked = len(self._nll)
        self._n_epochs_checked += len(loss)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return nll, KL and validation score, (epochs, members) each."""
        if not self.has_epochs:
            return *np.empty((2, 0, len(self.failed))), None
        nll, kl = (torch.cat(v).double().cpu().numpy() for v in (self._nll, self._kl))
        if not self.validation:
            return nll, kl, None
        return nll, kl, torch.stack(self.validation).double().cpu().numpy()


class BestWeights:
    """Parameters to return: of the last epoch, or of each member's best epoch.

    Parameters
    ----------
    flat : FlatParameters
        The parameters in training.
    most_epochs : ndarray of shape (members,), int
        Maximal number of epochs of each member.
    patience : int or None
        A member stops early after this many epochs without an improvement of its
        validation score by more than ``tol``. None: keep the last epoch's parameters.
    tol : float
    best : tensor like ``flat.values``
        The best parameters so far.
    progress : dict, optional
        ``progress()`` of the run to continue.
    """

    def __init__(
        self,
        flat: FlatParameters,
        most_epochs: np.ndarray,
        patience: int | None,
        tol: float,
        best: torch.Tensor,
        progress: dict[str, np.ndarray] | None = None,
    ):
        self._flat, self._patience, self._tol = flat, patience, tol
        self._most_epochs, n_members = most_epochs, len(most_epochs)
        self._best = best
        progress = progress or {
            "score": np.full(n_members, -np.inf),
            "best_epoch": np.zeros(n_members, dtype=int),
            "stopped": np.zeros(n_members, dtype=bool),
            "n_epochs": np.zeros(n_members, dtype=int),
        }
        self._score = progress["score"].copy()
        self._epoch = progress["best_epoch"].copy()
        self.stopped = progress["stopped"].copy()
        self.n_epochs = progress["n_epochs"].copy()

    def progress(self) -> dict[str, np.ndarray]:
        """State from which a run can continue by name, (members, ...) each.

        With early stopping it contains the present parameters, as "value/...".
        """
        values = {}
        if self._patience is not None:
            values = self._flat.to_arrays(self._flat.values)
        return {
            "score": self._score,
            "best_epoch": self._epoch,
            "stopped": self.stopped,
            "n_epochs": self.n_epochs,
        } | {f"value/{name}": value.copy() for name, value in values.items()}

    @property
    def last_epoch(self) -> np.ndarray:
        """Last epoch of every member: where it stopped, or the planned one."""
        return np.where(self.stopped, self.n_epochs, self._most_epochs)

    def have_finished(self, history: TrainingHistory) -> bool:
        """Whether all members have finished, stopped early or failed."""
        return bool(self.stopped[history.failed == 0].all())

    def update(self, history: TrainingHistory, n_epochs: int = 1) -> None:
        """Update after some epochs.

        n_epochs : 1 with early stopping
        """
        running = ~self.stopped & (history.failed == 0)
        self.n_epochs[running] += n_epochs
        np.minimum(self.n_epochs, self._most_epochs, out=self.n_epochs)
        if self._patience is None:
            self._best.copy_(self._flat.values)
        else:
            self._stop_early(running, history, self._patience)
        self.stopped |= self.n_epochs == self._most_epochs

    def _stop_early(
        self, running: np.ndarray, history: TrainingHistory, patience: int
    ) -> None:
        score = history.validation[-1].double().cpu().numpy()
        better = running & (score > self._score + self._tol)
        self._score[better] = score[better]
        self._epoch[better] = self.n_epochs[better]
        self.stopped |= running & (self.n_epochs - self._epoch >= patience)
        is_better = torch.as_tensor(better).to(self._flat.values.device)
        is_better = is_better[self._flat.member_of]
        self._best = torch.where(is_better, self._flat.values, self._best)

    @property
    def posterior(self) -> Posterior:
        """The posterior with a copy of the best parameters."""
        return self._flat.posterior(self._best)


# ---- densities and draws of validation rows


def validation_score(
    posterior: Posterior, rows: MemberRows, n_draws: int
) -> torch.Tensor:
    """Mean log predictive density of each member's validation rows, (members,)."""
    x, y, weights = rows.validation()
    density = _log_density(posterior, x, y, n_draws)
    return (density * weights).sum(1) / weights.sum(1)


def validation_density(
    posterior: Posterior, rows: MemberRows, n_draws: int, parts: Iterable[np.ndarray]
) -> Iterator[torch.Tensor]:
    """Log predictive density of the validation rows (eq. 8), (members, rows).

    Members with fewer rows than others are padded at the end.

    parts : groups of member indices; one result per group
    """
    x, y, _ = rows.validation()
    for members in parts:
        yield _log_density(
            posterior.select(members),
            select(x, members, shared=True),
            select(y, members, shared=True),
            n_draws,
        )


def validation_draws(
    posterior: Posterior, rows: MemberRows, n_draws: int, parts: Iterable[np.ndarray]
) -> Iterator[torch.Tensor]:
    """The likelihood's ``held_out_draws`` for the validation rows.

    returns : (members, rows, ..., targets) per part, as ``validation_density``
    """
    x, y, _ = rows.validation()
    for members in parts:
        subset = posterior.select(members)
        with torch.no_grad():
            outputs = subset.outputs_of(select(x, members, shared=True), n_draws)
            draws = subset.likelihood.held_out_draws(
                subset.likelihood_params, outputs, select(y, members, shared=True)
            )
        # Outside of `with`: a suspended generator would leave autograd disabled.
        yield draws


def _log_density(posterior: Posterior, x, y, n_draws: int) -> torch.Tensor:
    with torch.no_grad():
        outputs = posterior.outputs_of(x, n_draws)
        density = posterior.likelihood.log_density(
            posterior.likelihood_params, outputs, y
        )
        return density.logsumexp(0) - math.log(len(outputs))


# ---- the loop

# Number of draws for the validation score after each epoch.
_N_VALIDATION_DRAWS = 8
# Steps between two checks for members whose loss is not finite.
_CHECK_EVERY = 200
# With fewer activations per layer, a second thread costs more than it gains, and far
# more when the processors are busy with other work.
_SINGLE_THREAD_UNITS = 1 << 18


@dataclass(frozen=True)
class Trained(ByMember):
    """Result of :func:`train`.

    ``nll`` and ``kl`` (epochs, members) are per training row, in nats of the network's
    scale. ``validation`` is the validation score (higher is better), or None without
    early stopping. All three are meaningless after a member's last epoch. ``n_epochs``
    (members,) is the number of epochs until a member stopped. ``failed`` (members,) is
    the first epoch with a loss that is not finite, or 0. ``kl_constant`` (members,) is
    the constant that the KL omits, nats. ``bound`` is the evidence lower bound of the
    best parameters; None unless requested. ``engine`` is the runner's. ``n_processes``
    is the number of processes that shared the training. ``lost`` is the error that
    ended it, such as a lost process, or rows that a hook could not read. ``finished``
    is False if it was interrupted, or paused: then ``train`` continues from this
    result.
    """

    posterior: Posterior
    nll: np.ndarray = field(metadata={"axis": 1})
    kl: np.ndarray = field(metadata={"axis": 1})
    validation: np.ndarray | None = field(metadata={"axis": 1})
    n_epochs: np.ndarray
    failed: np.ndarray
    kl_constant: np.ndarray
    interrupted: bool
    optimizer: dict[str, np.ndarray]
    progress: dict[str, np.ndarray]
    finished: bool = True
    bound: Bound | None = None
    engine: str = "torch"
    n_processes: int = 1
    lost: BaseException | None = None

    @property
    def epochs_done(self) -> int:
        """Number of epochs of this training."""
        return len(self.nll)

    def after(self, before: "Trained | None") -> "Trained":
        """Prepend the history of the run that this one continued."""
        if before is None:
            return self

        def joined(first, second):
            return first if second is None else np.concatenate([first, second])

        return replace(
            self,
            nll=joined(before.nll, self.nll),
            kl=joined(before.kl, self.kl),
            validation=joined(before.validation, self.validation),
        )

    @classmethod
    def concatenate(cls, parts):
        """Concatenate the members of several trainings with one configuration."""
        n_epochs = max(part.epochs_done for part in parts)
        return replace(
            super().concatenate([part._padded(n_epochs) for part in parts]),
            interrupted=any(part.interrupted for part in parts),
            finished=all(part.finished for part in parts),
        )._with_equal_steps()

    def _padded(self, n_epochs: int) -> "Trained":
        """Losses of ``n_epochs`` epochs, and the steps of every member."""
        missing = (0, n_epochs - self.epochs_done), (0, 0)
        nll, kl, validation = (
            None if values is None else np.pad(values, missing, constant_values=np.nan)
            for values in (self.nll, self.kl, self.validation)
        )
        steps = np.broadcast_to(self.optimizer["step"], self.n_epochs.shape)
        optimizer = self.optimizer | {"step": steps}
        assert nll is not None and kl is not None
        return replace(self, nll=nll, kl=kl, validation=validation, optimizer=optimizer)

    def select(self, members: np.ndarray) -> "Trained":
        """Select members by index."""
        return super().select(members)._with_equal_steps()

    def _with_equal_steps(self) -> "Trained":
        steps = collapse_equal(self.optimizer["step"])
        return replace(self, optimizer=self.optimizer | {"step": steps})

    def on_device_of(self, rows: MemberRows | None) -> "Trained":
        """The trained networks on the device of the rows; None: the CPU."""
        device = torch.device("cpu") if rows is None else rows.mean_weight.device
        posterior = self.posterior.to(device, self.posterior.dtype)
        return replace(self, posterior=posterior)


def initial_posterior(
    config: TrainingConfig, members: MemberParams, device, dtype
) -> Posterior:
    """The untrained posterior: initial values, or anchors, from the members' seeds."""

    def normal(group: int, *shape: int) -> torch.Tensor:
        values = initial_normal(members.seeds, group, *shape)
        return torch.as_tensor(values).to(device, dtype)

    keep = tuple(torch.as_tensor(p).to(device, dtype) for p in members.keep)
    tau, statistics = (
        torch.as_tensor(values).to(device, dtype)
        for values in (members.tau, members.statistics)
    )
    posterior = Posterior(
        network=config.network,
        likelihood=config.likelihood,
        layers=config.network.init(normal, keep),
        likelihood_params=config.likelihood.init(tau, statistics),
        keep=keep,
        seeds=members.seeds,
    )
    return at_anchors(posterior, make_priors(config, members, posterior))


@dataclass(frozen=True)
class Training(ByMember):
    """Members to train: with which rows, from where, and how far.

    Parameters
    ----------
    config : TrainingConfig
    members : MemberParams
    rows : MemberRows
    posterior : Posterior
        Initial parameters; it is not changed.
    optimizer_state : dict, optional
        ``Trained.optimizer`` of an earlier training.
    first_epoch : int
        Number of epochs of earlier runs; the random numbers continue from there.
    hooks : sequence of Hook
        Called in order after every epoch.
    compute_bound : bool
        Whether to compute the evidence lower bound at the end, after rounding the
        weights to the values of a discrete prior, if any.
    perturbation : RowPerturbation, optional
        By default the same for the rows in all epochs, if ``config.perturbed``.
    before : Trained, optional
        Unfinished result of this training, from which it continues; it replaces
        ``posterior`` and ``optimizer_state``.
    until : int, optional
        Epoch of this training after which it pauses. A paused training has no bound.
    """

    config: TrainingConfig
    members: MemberParams
    rows: MemberRows
    posterior: Posterior
    optimizer_state: dict[str, np.ndarray] | None = None
    first_epoch: int = 0
    hooks: Sequence[Hook] = ()
    compute_bound: bool = False
    perturbation: RowPerturbation | None = None
    before: Trained | None = None
    until: int | None = None

    def select(self, members: np.ndarray) -> "Training":
        """Select members by index."""
        assert isinstance(self.rows, TableRows)
        perturbation = self.perturbation and self.perturbation.select(members)
        return replace(
            super().select(members),
            rows=self.rows.select(members),
            perturbation=perturbation,
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> "Training":
        """This training on another device."""
        assert isinstance(self.rows, TableRows)
        before = self.before
        if before is not None:
            before = replace(before, posterior=before.posterior.to(device, dtype))
        posterior = self.posterior.to(device, dtype)
        rows = self.rows.to(device)
        return replace(self, rows=rows, posterior=posterior, before=before)

    @property
    def n_members(self) -> int:
        """Number of networks."""
        return len(self.members.seeds)

    @property
    def rows_of_batch(self) -> int:
        """Most rows of a batch, of any member."""
        return int(self.config.batch_rows(self.rows.n_rows).max())

    def threads_of_step(self) -> int | None:
        """Threads of torch for the rows of a step: one if few, else None (all)."""
        n_units = self.n_members * self.rows_of_batch * self.config.network.widest
        return 1 if n_units < _SINGLE_THREAD_UNITS else None


def train(training: Training) -> Trained:
    """Minimise F / (N tau) of every member.

    Raises
    ------
    ProcessError
        If processes share the training, and one of them is lost, or has different data.
    """
    before, processes = training.before, present_processes()
    if before is not None:
        training = replace(
            training, posterior=before.posterior, optimizer_state=before.optimizer
        )
    if processes is None:
        return _train(training)
    return _train_together(training, processes)


# ---- several processes


def _train_together(training: Training, processes: Processes) -> Trained:
    """Train with the other processes, which have the same data."""
    config, rows, n_members = training.config, training.rows, training.n_members
    processes.check_same(
        "data, parameters and `random_state`",
        repr(config),
        _summary(training.members, rows),
    )
    # A hook that reads the posterior needs all members in every epoch.
    reads = any(hook.every_epoch for hook in training.hooks)
    if isinstance(rows, TableRows) and n_members >= processes.count and not reads:
        part = training.select(processes.part_of(n_members))
        trained = Trained.concatenate(_train_separately(part, processes))
        return replace(trained.on_device_of(rows), n_processes=processes.count)
    # Every process trains all; the others get the result of the first.
    of_all = _train_separately(training, processes)
    interrupted = any(trained.interrupted for trained in of_all)
    return replace(of_all[0].on_device_of(rows), interrupted=interrupted)


def _train_separately(training: Training, processes: Processes) -> list[Trained]:
    """What the processes have trained, in their order, on the CPU.

    Raises
    ------
    Exception, KeyboardInterrupt
        In all processes, if it was raised in one of them.
    """
    result: Trained | BaseException
    try:
        result = _train(training).on_device_of(None)
    except (Exception, KeyboardInterrupt) as error:
        result = _sendable(error)
    of_all = processes.gather(result, after_separate_work=True)
    for result in of_all:
        if isinstance(result, BaseException):
            raise result
    return of_all


def _sendable(error: BaseException) -> BaseException:
    """The error without its traceback, or its text if it cannot be pickled."""
    error = error.with_traceback(None)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# Rows by which the data of several processes are compared.
_COMPARED_ROWS = 1000


def _summary(members: MemberParams, rows: MemberRows) -> np.ndarray:
    """Figures that differ between programs with different data, parameters or seeds."""
    n_rows = rows.n_rows.min()
    positions = np.linspace(0, n_rows - 1, min(n_rows, _COMPARED_ROWS), dtype=np.int64)
    order = torch.as_tensor(positions).unsqueeze(0).to(rows.mean_weight.device)
    batch = next(iter(rows.batches(order, len(positions))))
    parts = [batch.x.double().mean(2), batch.y.double()]
    if batch.weights is not None:
        parts.append(batch.weights.double())
    sums = [_weighted_sums(part.cpu().numpy()[0]) for part in parts]
    sums += [_weighted_sums(members.tau), _weighted_sums(members.keep)]
    for group in members.prior:
        sums += [_weighted_sums(group[name]) for name in sorted(group)]
    # Not the seeds, whose relative differences are small.
    seeds = np.cos(members.seeds.astype(float))
    counts = [len(seeds), rows.n_rows.sum(), float(rows.total_weight.sum())]
    return np.concatenate(
        [counts, members.n_epochs, seeds, *(part.ravel() for part in sums)]
    )


def _weighted_sums(values: np.ndarray) -> np.ndarray:
    """Sums along the first axis, with weights by which another order is noticed."""
    return np.tensordot(np.cos(np.arange(len(values))), values, axes=1)


# ---- one process


def _train(training: Training) -> Trained:
    """Train the members in this process; see ``train``."""
    keep_freed_memory()
    # Tensors created in a caller's inference mode cannot be trained.
    with torch.inference_mode(False), torch.no_grad():
        run = _Run.of(training)
        interrupted, lost = False, None
        try:
            run.epochs()
        except KeyboardInterrupt as error:
            if not training.config.keep_interrupted or not run.history.has_epochs:
                raise
            interrupted, lost = True, error.__cause__
        return replace(run.outcome(interrupted), lost=lost)


# ---- epochs of a program, by torch or by a compiled loop


class Runner(Protocol):
    """Trains the members of a program, some epochs at a time."""

    engine: str

    @property
    def state(self) -> TrainingState:
        """Parameters and moments, which ``run`` changes in place."""

    @property
    def max_epochs(self) -> int:
        """Number of epochs to run at once."""

    def run(
        self, first: int, epoch: int, n_epochs: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Train all members; return nll and KL per row, (epochs, members) each.

        first, epoch : epochs of earlier runs, and of this run so far
        """


class TorchRunner:
    """Runs one epoch at a time with torch, all members with equal row counts together.

    Parameters
    ----------
    training : Training
    epochs_done : int
    make_step : callable
        Returns the ``Step`` for arguments of ``TrainingState``.
    """

    engine = "torch"
    max_epochs = 1

    def __init__(self, training: Training, epochs_done: int, make_step: Callable):
        self._n_threads = training.threads_of_step()
        self._n_epochs = training.members.n_epochs
        n_rows = training.rows.n_rows
        if (n_rows == n_rows[0]).all():
            [program] = self._programs = [_Program(training, epochs_done, make_step)]
            self.state: TrainingState = program.step
            return
        self.state = TrainingState(*_arguments_of_state(training, epochs_done))
        self._programs = []
        for n in np.unique(n_rows):
            members = np.flatnonzero(n_rows == n)
            part = training.select(members)
            places = self.state.parameters.places(members)
            program = _Program(part, epochs_done, make_step, members, places)
            self._programs.append(program)

    def run(self, first, epoch, n_epochs):
        losses = self.state.parameters.values.new_empty(2, len(self._n_epochs))
        with torch_threads(self._n_threads):
            for program in self._programs:
                losses[:, program.members] = program.run(self.state, first, epoch)
            if len(self._programs) > 1:
                self.state.count_steps(self._programs[0].n_batches)
            self.state.end_members(self._n_epochs == epoch + 1)
        return losses.unsqueeze(1).unbind()


class _Program:
    """Members with equal row counts, which torch trains together.

    Parameters
    ----------
    training, epochs_done, make_step : as in ``TorchRunner``
    members : ndarray of int or slice
        Indices of the members among all.
    places : tensor of int, optional
        Positions of their parameters among all. None if the step changes these.
    """

    def __init__(
        self,
        training: Training,
        epochs_done: int,
        make_step: Callable,
        members: np.ndarray | slice = slice(None),
        places: torch.Tensor | None = None,
    ):
        self.step: Step = make_step(*_arguments_of_state(training, epochs_done))
        config, rows = training.config, training.rows
        self.members, self._places, self.n_batches = members, places, config.n_batches
        self._n_epochs = int(training.members.n_epochs.max())
        self._batches = Batches(rows, config, training.perturbation)

    def run(self, state: TrainingState, first: int, epoch: int) -> torch.Tensor:
        """Run an epoch; return nll and KL per row, (2, members), NaN after the last.

        state : of all members; the own part is changed
        first, epoch : as in ``Runner.run``
        """
        if epoch >= self._n_epochs:
            return state.parameters.values.new_full((), math.nan)
        step, pairs = self.step, []
        if self._places is not None:
            pairs = list(zip(step.vectors(), state.vectors(), strict=True))
        for own, of_all in pairs:
            own.copy_(of_all[self._places])
        step.start_epoch(first + epoch, self.n_batches)
        step_nlls = map(step, self._batches.epoch_batches(step.random))
        nll = reduce(torch.Tensor.add_, step_nlls).mean(1) / self.n_batches
        for own, of_all in pairs:
            of_all[self._places] = own
        return torch.stack([nll, step.penalty.kl()])


def _arguments_of_state(training: Training, epochs_done: int) -> tuple:
    """Arguments of ``TrainingState``."""
    config, members, posterior = training.config, training.members, training.posterior
    return (
        config,
        members,
        training.rows,
        posterior,
        make_priors(config, members, posterior),
        training.optimizer_state,
        epochs_done,
    )


@cache
def _compiled_loop():
    """``can_train`` and runner of the compiled loop; None and a warning if it fails."""
    try:
        from skbayesnn._engine.compiled.run import CompiledRunner, can_train
    except Exception as error:  # e.g. a NumPy that numba refuses
        warn(
            "SKB502",
            f"numba cannot be imported ({error}), so torch trains the networks, which "
            "takes several times as long. Install a numba that supports your NumPy, or "
            f"set the environment variable {ENGINE_VARIABLE}=torch.",
        )
        return None
    return can_train, CompiledRunner


def choose_runner(training: Training, epochs_done: int) -> Runner:
    """Choose the implementation: the fastest that covers the program.

    epochs_done : epochs of the unfinished result to continue
    """
    config, members, rows = training.config, training.members, training.rows
    compiled = None
    if (
        isinstance(rows, TableRows)
        and training.posterior.device.type == "cpu"
        and os.environ.get(ENGINE_VARIABLE) != "torch"
    ):
        compiled = _compiled_loop()
    if compiled:
        can_train, runner_type = compiled
        if can_train(config, members, rows, training.posterior):
            state = TrainingState(*_arguments_of_state(training, epochs_done))
            return runner_type(config, members, rows, state, training.perturbation)
    step_type = step_class(config, members, rows.mean_weight.device)
    return TorchRunner(training, epochs_done, step_type)


@dataclass
class _Run:
    """State of a training."""

    training: Training
    runner: Runner
    history: TrainingHistory
    best: BestWeights
    epochs_done: int

    @classmethod
    def of(cls, training: Training) -> "_Run":
        """The state before the first epoch, or the state to continue from."""
        config, members, before = training.config, training.members, training.before
        posterior = replace(
            training.posterior,
            keep=tuple(p.clone() for p in training.posterior.keep),
            likelihood_params=config.likelihood.in_training(
                training.posterior.likelihood_params
            ),
        )
        flat = FlatParameters(posterior)
        progress, epochs_done, failed = None, 0, np.zeros(training.n_members, dtype=int)
        if before is not None:
            progress, epochs_done = before.progress, before.epochs_done
            failed = before.failed
            if config.patience is not None:
                # `posterior` has the best parameters so far.
                posterior = flat.posterior(flat.to_vector(progress, "value"))
        training = replace(training, posterior=posterior)
        if training.perturbation is None and config.perturbed:
            perturbation = RowPerturbation(config, members.seeds, training.rows)
            training = replace(training, perturbation=perturbation)
        runner = choose_runner(training, epochs_done)
        best = BestWeights(
            runner.state.parameters,
            members.n_epochs,
            config.patience,
            config.tol,
            flat.values,
            progress,
        )
        history = TrainingHistory(failed, epochs_done)
        return cls(training, runner, history, best, epochs_done)

    @property
    def _priors(self) -> tuple[Prior, ...]:
        return self.runner.state.objective.prior

    def epochs(self) -> None:
        """Train until all members have finished, or up to the epoch ``until``."""
        training, runner, history = self.training, self.runner, self.history
        config, hooks = training.config, training.hooks
        last, epoch = int(training.members.n_epochs.max()), self.epochs_done
        if training.until is not None:
            last = min(last, training.until)
        stops_early = config.patience is not None
        one_by_one = stops_early or any(hook.every_epoch for hook in hooks)
        while epoch < last and not self.best.have_finished(history):
            n = 1 if one_by_one else min(runner.max_epochs, last - epoch)
            losses = runner.run(training.first_epoch, epoch, n)
            history.add(*losses)
            epoch += n
            posterior = runner.state.posterior
            with torch_threads(training.threads_of_step()):
                if stops_early:
                    kept = at_values(posterior, self._priors)
                    score = validation_score(kept, training.rows, _N_VALIDATION_DRAWS)
                    history.validation.append(score)
                steps, new_steps = epoch * config.n_batches, n * config.n_batches
                if steps % _CHECK_EVERY < new_steps:
                    history.find_failures(self.best.last_epoch)
                self.best.update(history, n)
            for hook in hooks:
                hook.epoch_end(epoch, posterior)

    def outcome(self, interrupted: bool) -> Trained:
        """The result, with the noise variance after the training, and the bound."""
        training, history, best = self.training, self.history, self.best
        config, rows, posterior = training.config, training.rows, best.posterior
        history.find_failures(best.last_epoch)
        finished = not interrupted and best.have_finished(history)
        bound = None
        if training.compute_bound and (finished or interrupted):
            posterior = at_values(posterior, self._priors)
            with torch_threads(training.threads_of_step()):
                bound = estimate_bound(
                    config,
                    training.members,
                    rows,
                    posterior,
                    self._priors,
                    training.perturbation,
                )
        curvature = self.runner.state.penalty.curvature
        posterior = with_residual_variance(config, rows, posterior, curvature)
        constant = posterior.network.kl_constant(
            posterior.layers, posterior.keep, self._priors
        )
        nll, kl, validation = history.arrays()
        return Trained(
            posterior=posterior,
            nll=nll,
            kl=kl,
            validation=validation,
            n_epochs=best.n_epochs,
            kl_constant=constant.double().cpu().numpy(),
            failed=history.failed,
            interrupted=interrupted,
            optimizer=self.runner.state.optimizer_state(),
            progress=best.progress(),
            finished=finished,
            bound=bound,
            engine=self.runner.engine,
        )
