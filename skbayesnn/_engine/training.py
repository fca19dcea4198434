"""The training loop, which trains all members of one program together.

Members do not interact: the loss is a sum over members, Adam is elementwise, and early
stopping, best weights and failures are tracked per member. So a member gets the same
result, up to rounding, as if it were trained alone.
"""

import math
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from skbayesnn._engine.objective import at_anchors, at_values, make_priors
from skbayesnn._engine.optimizer import FlatParameters
from skbayesnn._engine.posterior import Posterior, select_members
from skbayesnn._engine.processes import (
    LostProcessError,
    ProcessError,
    Processes,
    present_processes,
)
from skbayesnn._engine.random import initial_normal
from skbayesnn._engine.residual_variance import with_residual_variance
from skbayesnn._engine.resources import (
    is_out_of_memory,
    keep_freed_memory,
    torch_threads,
)
from skbayesnn._engine.step import (
    Batches,
    RowPerturbation,
    Step,
    StepOfPart,
    TrainingState,
    concatenate_arrays,
    concatenate_states,
    select_arrays,
    select_state,
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
            select_members(x, members),
            select_members(y, members),
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
            outputs = subset.outputs_of(select_members(x, members), n_draws)
            draws = subset.likelihood.held_out_draws(
                subset.likelihood_params, outputs, select_members(y, members)
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


@dataclass
class Trained:
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
    nll: np.ndarray
    kl: np.ndarray
    validation: np.ndarray | None
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
    def concatenate(cls, parts: "Sequence[Trained]") -> "Trained":
        """Concatenate the members of several trainings with one configuration."""
        n_epochs = max(len(part.nll) for part in parts)

        def per_epoch(name: str) -> np.ndarray:
            values = [getattr(part, name) for part in parts]
            missing = [((0, n_epochs - len(v)), (0, 0)) for v in values]
            pairs = zip(values, missing, strict=True)
            return np.concatenate(
                [np.pad(v, m, constant_values=np.nan) for v, m in pairs], axis=1
            )

        def per_member(name: str) -> np.ndarray:
            return np.concatenate([getattr(part, name) for part in parts])

        bounds = [part.bound for part in parts]
        return cls(
            posterior=Posterior.concatenate([part.posterior for part in parts]),
            nll=per_epoch("nll"),
            kl=per_epoch("kl"),
            validation=(
                None if parts[0].validation is None else per_epoch("validation")
            ),
            n_epochs=per_member("n_epochs"),
            failed=per_member("failed"),
            kl_constant=per_member("kl_constant"),
            interrupted=any(part.interrupted for part in parts),
            optimizer=concatenate_states(
                [part.optimizer for part in parts],
                [part.posterior.n_members for part in parts],
            ),
            progress=concatenate_arrays([part.progress for part in parts]),
            finished=all(part.finished for part in parts),
            bound=Bound.concatenate([bound for bound in bounds if bound is not None]),
            engine=parts[0].engine,
        )

    def select(self, members: np.ndarray) -> "Trained":
        """Select members by index."""
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
            progress=select_arrays(self.progress, members),
            bound=None if self.bound is None else self.bound.select(members),
        )


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


def train(
    config: TrainingConfig,
    members: MemberParams,
    rows: MemberRows,
    posterior: Posterior,
    optimizer_state: dict[str, np.ndarray] | None = None,
    first_epoch: int = 0,
    hooks: Sequence[Hook] = (),
    compute_bound: bool = False,
    perturbation: RowPerturbation | None = None,
    before: Trained | None = None,
    until: int | None = None,
) -> Trained:
    """Minimise F / (N tau) of every member, starting from ``posterior``.

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

    Raises
    ------
    ProcessError
        If processes share the training, and one of them is lost, or has different data.
        If the members' state is kept after an interruption, it is returned with the
        error.
    """
    if before is not None:
        posterior, optimizer_state = before.posterior, before.optimizer
    program = config, members, rows, posterior, optimizer_state
    options = compute_bound, perturbation, until
    processes = present_processes()
    if processes is None:
        return _train(*program, first_epoch, hooks, *options, before)
    processes.check_same(
        "data, parameters and `random_state`", repr(config), _summary(members, rows)
    )
    n_members = len(members.seeds)
    # A hook that reads the posterior needs all members in every epoch.
    reads = any(hook.every_epoch for hook in hooks)
    if isinstance(rows, TableRows) and n_members >= processes.count and not reads:
        own = processes.part_of(n_members)
        of_all = _train_separately(
            processes,
            config,
            members.select(own),
            rows.select(own),
            posterior.select(own),
            select_state(optimizer_state, own) if optimizer_state else None,
            first_epoch,
            [*hooks, _StoppedTogether(processes)],
            *options,
            None if before is None else before.select(own),
        )
        parts = [_on(rows, part) for part in of_all]
        return replace(Trained.concatenate(parts), n_processes=processes.count)
    n_rows = int(config.batch_rows(rows.n_rows).min())
    can_split = processes.can_split(n_rows, config.network.n_weights)
    if isinstance(rows, TableRows) and can_split:
        trained = _train_on_parts_of_rows(
            *program, first_epoch, hooks, *options, before, processes
        )
        return replace(trained, n_processes=processes.count)
    # Every process trains all; the others get the result of the first.
    hooks = [*hooks, _StoppedTogether(processes)]
    of_all = _train_separately(
        processes, *program, first_epoch, hooks, *options, before
    )
    return _on(rows, of_all[0])


def _train_on_parts_of_rows(*arguments) -> Trained:
    """Train together with the other processes, which compute other rows of the batches.

    arguments : arguments of ``_train``, with the processes
    """
    _, _, rows, *_, processes = arguments
    try:
        with processes.together_interrupted():
            trained = _train(*arguments)
            if not trained.interrupted:
                return _on(rows, processes.of_first(_on(None, trained)))
            if not (isinstance(trained.lost, ProcessError) or processes.has_stopped):
                processes.close()  # A hook has ended the training of this one alone.
            return trained
    except ProcessError:
        raise
    except KeyboardInterrupt:
        if not processes.has_stopped:
            processes.close()
        raise
    except Exception as error:
        processes.close()
        if is_out_of_memory(error):
            # This process alone must not try a smaller program.
            raise LostProcessError(
                f"process {processes.rank} is out of memory. ({error})"
            ) from error
        raise


def _train_separately(processes: Processes, *arguments) -> list[Trained]:
    """What the processes have trained, in their order, on the CPU.

    arguments : arguments of ``_train``

    Raises
    ------
    Exception, KeyboardInterrupt
        In all processes, if it was raised in one of them.
    """
    result: Trained | BaseException
    with processes.together_interrupted():
        with processes.separate_work():
            try:
                result = _on(None, _train(*arguments))
            except (Exception, KeyboardInterrupt) as error:
                result = _sendable(error)
        of_all = processes.gather(result)
        if any(isinstance(r, KeyboardInterrupt) or _is_cut(r) for r in of_all):
            processes.has_stopped = True
    for result in of_all:
        if isinstance(result, BaseException):
            raise result
    return of_all


def _is_cut(result: Trained | BaseException) -> bool:
    return isinstance(result, Trained) and result.interrupted


class _StoppedTogether(Hook):
    """Hook that ends the training when this process or another was interrupted."""

    every_epoch = False

    def __init__(self, processes: Processes):
        self._processes = processes

    def epoch_end(self, n_done, posterior):
        """Raise KeyboardInterrupt after an interruption."""
        if self._processes.wants_to_stop:
            self._processes.stop_training()


def _sendable(error: BaseException) -> BaseException:
    """The error without its traceback, or its text if it cannot be pickled."""
    error = error.with_traceback(None)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _on(rows: MemberRows | None, trained: Trained) -> Trained:
    """The trained networks on the device of the rows; None: the CPU."""
    device = torch.device("cpu") if rows is None else rows.mean_weight.device
    posterior = trained.posterior
    return replace(trained, posterior=posterior.to(device, posterior.dtype))


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


def _train(
    config: TrainingConfig,
    members: MemberParams,
    rows: MemberRows,
    posterior: Posterior,
    optimizer_state: dict[str, np.ndarray] | None,
    first_epoch: int,
    hooks: Sequence[Hook],
    compute_bound: bool,
    perturbation: RowPerturbation | None,
    until: int | None,
    before: Trained | None,
    processes: Processes | None = None,
) -> Trained:
    """Train the members in this process, or with others; see ``train``.

    processes : the processes over which the rows of every batch are split
    """
    if perturbation is None:
        perturbation = None
        if config.perturbed:
            perturbation = RowPerturbation(config, members.seeds, rows)
    keep_freed_memory()
    # Tensors created in a caller's inference mode cannot be trained.
    with torch.inference_mode(False), torch.no_grad():
        posterior = replace(
            posterior,
            keep=tuple(p.clone() for p in posterior.keep),
            likelihood_params=config.likelihood.in_training(
                posterior.likelihood_params
            ),
        )
        flat = FlatParameters(posterior)
        progress, epochs_done, failed = None, 0, np.zeros(len(members.seeds), dtype=int)
        if before is not None:
            progress, epochs_done, failed = (
                before.progress,
                before.epochs_done,
                before.failed,
            )
            if config.patience is not None:
                # `posterior` has the best parameters so far.
                posterior = flat.posterior(flat.to_vector(progress, "value"))
        priors = make_priors(config, members, posterior)
        state = optimizer_state, epochs_done
        runner = choose_runner(
            config, members, rows, posterior, priors, state, perturbation, processes
        )
        history = TrainingHistory(failed, epochs_done)
        best = BestWeights(
            runner.state.parameters,
            members.n_epochs,
            config.patience,
            config.tol,
            flat.values,
            progress,
        )
        run = _Run(
            config,
            members,
            rows,
            priors,
            runner,
            history,
            best,
            epochs_done,
            until,
            processes,
        )
        interrupted, lost = False, None
        try:
            run.epochs(first_epoch, hooks)
        except (KeyboardInterrupt, ProcessError) as error:
            if not config.keep_interrupted or not history.has_epochs:
                raise
            interrupted = True
            lost = error if isinstance(error, OSError) else error.__cause__
        trained = replace(run.outcome(interrupted, compute_bound), lost=lost)
        if compute_bound and (trained.finished or interrupted):
            with torch_threads(_threads_of_step(config, members, rows)):
                bound = estimate_bound(
                    config,
                    members,
                    rows,
                    at_values(best.posterior, priors),
                    priors,
                    perturbation,
                )
            trained = replace(trained, bound=bound)
        return trained


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


def _threads_of_step(config, members, rows) -> int | None:
    """Threads of torch for the rows of a step: one if they are few, else None (all)."""
    n_rows = int(config.batch_rows(rows.n_rows).max())
    n_units = len(members.seeds) * n_rows * config.network.widest
    return 1 if n_units < _SINGLE_THREAD_UNITS else None


class TorchRunner:
    """Runs one epoch at a time with torch, all members together."""

    engine = "torch"
    max_epochs = 1

    def __init__(self, config, members, rows, step: Step, perturbation):
        self.state, self._step, self._n_batches = step, step, config.n_batches
        self._n_epochs = members.n_epochs
        part = step.part if isinstance(step, StepOfPart) else None
        self._batches = Batches(rows, config, perturbation, part)
        self._n_threads = _threads_of_step(config, members, rows)

    def run(self, first, epoch, n_epochs):
        step = self._step
        with torch_threads(self._n_threads):
            step.start_epoch(first + epoch, self._n_batches)
            step_nlls = map(step, self._batches.epoch_batches(step.random))
            nll_sum = reduce(torch.Tensor.add_, step_nlls)
            nll = step.epoch_nll(nll_sum) / self._n_batches
            step.end_members(self._n_epochs == epoch + 1)
            return nll.unsqueeze(0), step.penalty.kl().unsqueeze(0)


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


def choose_runner(
    config,
    members,
    rows,
    posterior,
    priors,
    state,
    perturbation,
    processes: Processes | None = None,
) -> Runner:
    """Choose the implementation: the fastest that covers the program.

    state : ``optimizer_state`` and ``epochs_done`` of ``train``
    """
    arguments = config, members, rows, posterior, priors, *state
    compiled = None
    if (
        isinstance(rows, TableRows)
        and posterior.device.type == "cpu"
        and os.environ.get(ENGINE_VARIABLE) != "torch"
    ):
        compiled = _compiled_loop()
    if compiled:
        can_train, runner_type = compiled
        covers = can_train(config, members, rows, posterior)
        if processes:  # It depends on the number of threads.
            covers = processes.of_first(covers)
        if covers:
            state = TrainingState(*arguments)
            options = (perturbation, processes) if processes else (perturbation,)
            return runner_type(config, members, rows, priors, state, *options)
    if processes:
        step: Step = StepOfPart(processes, *arguments)
    else:
        step = step_class(config, members, rows.mean_weight.device)(*arguments)
    return TorchRunner(config, members, rows, step, perturbation)


@dataclass
class _Run:
    """State of a training."""

    config: TrainingConfig
    members: MemberParams
    rows: MemberRows
    priors: tuple[Prior, ...]
    runner: Runner
    history: TrainingHistory
    best: BestWeights
    epochs_done: int = 0
    until: int | None = None
    processes: Processes | None = None

    def epochs(self, first_epoch: int, hooks: Sequence[Hook]) -> None:
        """Train until all members have finished, or up to the epoch ``until``."""
        runner, history, n_batches = self.runner, self.history, self.config.n_batches
        last, epoch = int(self.members.n_epochs.max()), self.epochs_done
        if self.until is not None:
            last = min(last, self.until)
        stops_early = self.config.patience is not None
        n_threads = _threads_of_step(self.config, self.members, self.rows)
        one_by_one = stops_early or any(hook.every_epoch for hook in hooks)
        while epoch < last and not self.best.have_finished(history):
            n = 1 if one_by_one else min(runner.max_epochs, last - epoch)
            if self.processes:
                n = self.processes.of_first(n)
            losses = runner.run(first_epoch, epoch, n)
            self._synchronize(*losses)
            history.add(*losses)
            epoch += n
            posterior = runner.state.posterior
            with torch_threads(n_threads):
                if stops_early:
                    kept = at_values(posterior, self.priors)
                    score = validation_score(kept, self.rows, _N_VALIDATION_DRAWS)
                    if self.processes:
                        self.processes.copy_first(score)
                    history.validation.append(score)
                if epoch * n_batches % _CHECK_EVERY < n * n_batches:
                    history.find_failures(self.best.last_epoch)
                self.best.update(history, n)
            for i in range(epoch - n, epoch):
                for hook in hooks:
                    hook.epoch_end(i + 1, posterior)

    def _synchronize(self, *values: torch.Tensor) -> None:
        """Give all processes the state of the first one, and its values.

        Processors of different types round differently, and would drift apart.
        """
        if self.processes:
            state = self.runner.state
            tensors = state.parameters.values, *state.moments(), *values
            self.processes.copy_first(*tensors)

    def _kl_constant(self, posterior: Posterior) -> np.ndarray:
        layers, keep = posterior.layers, posterior.keep
        constant = posterior.network.kl_constant(layers, keep, self.priors)
        return constant.double().cpu().numpy()

    def outcome(self, interrupted: bool, is_last: bool) -> Trained:
        """The result without the bound, after the estimate of the noise variance.

        is_last : whether the weights get the values of a discrete prior at the end
        """
        history, best, posterior = self.history, self.best, self.best.posterior
        history.find_failures(best.last_epoch)
        finished = not interrupted and best.have_finished(history)
        if is_last and (finished or interrupted):
            posterior = at_values(posterior, self.priors)
        curvature = self.runner.state.penalty.curvature
        posterior = with_residual_variance(self.config, self.rows, posterior, curvature)
        nll, kl, validation = history.arrays()
        return Trained(
            posterior=posterior,
            nll=nll,
            kl=kl,
            validation=validation,
            n_epochs=best.n_epochs,
            kl_constant=self._kl_constant(posterior),
            failed=history.failed,
            interrupted=interrupted,
            optimizer=self.runner.state.optimizer_state(),
            progress=best.progress(),
            finished=finished,
            engine=self.runner.engine,
        )
