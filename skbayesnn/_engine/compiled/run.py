"""Train the members of a program by the compiled loop, on several threads."""

import math
import sys
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import fields
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  (the BLAS of the loop, for threadpoolctl)
import torch
from numba.core import event
from threadpoolctl import ThreadpoolController

from skbayesnn._engine.compiled import activations, families, likelihoods, loop
from skbayesnn._engine.config import (
    MemberParams,
    MemberTable,
    TableRows,
    TrainingConfig,
)
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.step import RowPerturbation, TrainingState
from skbayesnn._engine.training_random import EPOCHS_PER_BLOCK, epoch_seeds
from skbayesnn._families import FAMILIES, Family
from skbayesnn._families.variational_dropout import MAX_LOG_ALPHA, Variational
from skbayesnn._likelihoods import LIKELIHOODS, Heteroscedastic, Likelihood, StudentT
from skbayesnn._networks import Perceptron
from skbayesnn._runtime import wait_for

# Progress is reported this often, in seconds, if runs take long.
_SECONDS_PER_RUN = 0.25
# A run has at most this many times as many epochs as the one before.
_MAX_GROWTH = 8
# A thread notices Ctrl-C at least this many times in a run: between two members, or two
# parts of the epochs of one.
_PARTS = 8
# Runs take longer, up to these seconds, if threads would wait otherwise.
_MAX_SECONDS = 2.0
# A program with fewer members than cores and more values per layer of a batch than this
# is left to torch, which uses all cores for one product.
_MAX_VALUES_PER_THREAD = 1 << 20

# Parameters of a map other than mean and bias, and their fields of `families.MAP`.
_NOISE = {
    "concrete": {"logit": "noise"},
    "variational_correlated": {"log_alpha": "noise"},
    "mean_field": {"rho": "noise", "bias_rho": "bias_noise"},
    "fixed_width": {"rho": "noise", "bias_rho": "bias_noise"},
}
# Fields of `TrainingConfig` that the loop follows. If another one does not have its
# default, torch trains.
_FOLLOWED = {
    *("network", "likelihood", "prior", "dtype", "n_batches", "n_training_draws"),
    *("learning_rate", "cosine", "kl_weighting", "kl_warm_up", "perturbed"),
    *("patience", "tol", "keep_interrupted", "variance_source", "precision_ratio"),
}
# Fields of a member that the training changes.
_TRAINED = "values", "mean", "square"


def can_train(
    config: TrainingConfig, members: MemberParams, rows: TableRows, posterior: Posterior
) -> bool:
    """Whether the compiled loop can train a program."""
    network = config.network
    others = [field for field in fields(config) if field.name not in _FOLLOWED]
    if any(getattr(config, field.name) != field.default for field in others):
        return False
    if not isinstance(network, Perceptron) or posterior.device.type != "cpu":
        return False
    if network.activation not in activations.FUNCTIONS:
        return False
    if likelihood_name(config.likelihood) not in likelihoods.FUNCTIONS:
        return False
    n_values = int(config.batch_rows(rows.n_rows).max()) * network.widest
    if n_values > _MAX_VALUES_PER_THREAD and len(members.seeds) < n_threads():
        return False
    return all(map(_is_covered, network.families))


def _is_covered(family: Family) -> bool:
    name = family_name(family)
    if name not in families.CODES:
        return False
    # These need weights that all rows share.
    return not (family.shared_draw or family.sampled_kl)


def n_threads() -> int:
    """Threads for the members: torch's, which follow OMP_NUM_THREADS and the cores."""
    return torch.get_num_threads()


class _SingleThreadedBlas:
    """Context in which matrix products use one thread; several fits may share it."""

    def __init__(self):
        self._lock, self._n_users = threading.Lock(), 0
        self._controller: ThreadpoolController | None = None

    def __enter__(self):
        with self._lock:
            if self._controller is None:
                self._controller = ThreadpoolController().select(user_api="blas")
            if self._n_users == 0:
                self._limits = self._controller.limit(limits=1)
            self._n_users += 1

    def __exit__(self, *error):
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0:
                self._limits.restore_original_limits()


single_threaded_blas = _SingleThreadedBlas()


class _CompilationNote(event.Listener):
    """Writes one line to a terminal or notebook when numba starts to compile."""

    def __init__(self):
        self._is_written = False

    def on_start(self, event):
        """Write the note, once per process."""
        of_package = event.data["dispatcher"].__module__.startswith("skbayesnn.")
        if of_package and _is_watched() and not self._is_written:
            self._is_written = True
            print(
                "skbayesnn compiles its training loop for this kind of network. "
                "The first fit on a machine takes some 10 s longer.",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event):
        """Required by numba; the end needs no note."""


_note = _CompilationNote()


def noted_compilation():
    """Context in which a compilation by numba writes a line."""
    return event.install_listener("numba:compile", _note)


def _epochs_at_once(
    n_epochs: int, seconds: float, n_threads: int, n_members: int
) -> int:
    """About ``n_epochs``, so that no thread waits if an epoch takes ``seconds``."""
    # With a multiple of this number, all threads get the same number of epochs.
    even = n_threads // math.gcd(n_threads, n_members)
    if even * seconds < _MAX_SECONDS:
        return max(n_epochs // even, 1) * even
    return n_epochs


def _is_watched() -> bool:
    """Whether somebody sees what is written to stderr."""
    return sys.stderr is not None and (hasattr(sys, "ps1") or sys.stderr.isatty())


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


class CompiledRunner:
    """Train the members of a program by the compiled loop, on several threads.

    Like ``training.TorchRunner``, but a thread trains one member at a time, several
    epochs in one call.

    Parameters
    ----------
    config : TrainingConfig
    members : MemberParams
    rows : TableRows
    state : TrainingState
        Its parameters and moments are trained in place.
    perturbation : RowPerturbation or None
    """

    engine = "compiled"

    def __init__(
        self,
        config: TrainingConfig,
        members: MemberParams,
        rows: TableRows,
        state: TrainingState,
        perturbation: RowPerturbation | None,
    ):
        self._config, self._members, self.state = config, members, state
        self._n_members = len(members.seeds)
        self._seeds: dict[int, np.ndarray] = {}
        self.max_epochs = 1
        self._n_threads = min(n_threads(), self._n_members)
        self._pool = ThreadPoolExecutor(self._n_threads)
        self._vectors = [vector.numpy() for vector in state.vectors()]
        self._places, self._schedule_index = _places(state), state.schedule.index
        with noted_compilation():
            self._program, maps = _program(config, state)
        self._loop_members = _loop_members(
            config, members, rows, state, maps, self._places
        )
        self._tables = [_table(rows, m, perturbation) for m in range(self._n_members)]
        self._failed = np.zeros(self._n_members, dtype=bool)
        # The loop leaves out terms that the training does not change.
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
        self.max_epochs = _epochs_at_once(
            max(fitting, 1), seconds / n_epochs, self._n_threads, self._n_members
        )
        return nll, kl + self._kl_constant.to(kl)

    def _kl(self) -> torch.Tensor:
        """KL per row at the present parameters, up to a constant, (members,)."""
        kl = [
            loop.kl_value(member, _arrays(member)) / member.total_weight
            for member in self._loop_members
        ]
        return torch.tensor(kl, dtype=torch.float64)

    def _train(self, epochs: Epochs) -> torch.Tensor:
        """Train all members; return (2, epochs, members): nll, KL up to a constant."""
        self._load()
        n_epochs = len(epochs.seeds)
        losses = np.full((2, n_epochs, self._n_members), np.nan)
        left = epochs.n_left
        left[self._failed] = 0
        members_per_thread = -(-self._n_members // self._n_threads)
        part = -(-n_epochs * members_per_thread // _PARTS)
        done = np.zeros(self._n_members, dtype=int)
        waiting = deque(np.flatnonzero(left).tolist())
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                try:
                    m = waiting.popleft()
                except IndexError:
                    return
                end = min(done[m] + part, left[m])
                n = self._train_member(m, epochs, slice(done[m], end), losses[..., m])
                done[m] += n
                if not np.isfinite(losses[:, done[m] - 1, m]).all():
                    self._failed[m] = True
                elif done[m] < left[m]:
                    waiting.append(m)

        with single_threaded_blas, noted_compilation():
            if self._n_threads == 1:
                work()
            else:
                futures: list[Future[None]] = []
                try:
                    for _ in range(self._n_threads):
                        futures.append(self._pool.submit(work))
                    wait_for(futures)
                finally:
                    stop.set()  # After Ctrl-C the threads finish their present parts.
                    wait(futures)
        self._store()
        return torch.as_tensor(losses).to(self.state.parameters.values.dtype)

    def _epochs(self, first: int, epoch: int, n_epochs: int) -> Epochs:
        """The next ``n_epochs`` epochs; see ``run``."""
        config, schedule = self._config, self.state.schedule
        n_batches = config.n_batches
        n_done = range(epoch * n_batches, (epoch + n_epochs) * n_batches)
        steps = schedule.arrays(n_done, self.state.parameters.values.dtype)
        gain = np.zeros((len(steps), n_epochs))
        if isinstance(config.likelihood, Heteroscedastic):
            progress = schedule.progress_of(np.asarray(n_done[::n_batches]))
            gain[:] = config.likelihood.gain_at(progress)
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

    def _load(self) -> None:
        """Copy the program's parameters and moments to the members.

        Hooks may have changed them.
        """
        for index, member in zip(self._places, self._loop_members, strict=True):
            for vector, name in zip(self._vectors, _TRAINED, strict=True):
                getattr(member, name)[:] = vector[index]

    def _store(self) -> None:
        """Copy the members' parameters and moments to the vectors of the program."""
        for index, member in zip(self._places, self._loop_members, strict=True):
            for vector, name in zip(self._vectors, _TRAINED, strict=True):
                vector[index] = getattr(member, name)

    def _train_member(self, m: int, epochs: Epochs, part: slice, losses) -> int:
        """Train a member for a part of the epochs; return the number of trained ones.

        losses : nll and KL, (2, epochs), written
        """
        n_batches, schedule = self._config.n_batches, self._schedule_index[m]
        per_step = slice(part.start * n_batches, part.stop * n_batches)
        steps = epochs.steps[schedule, per_step].T.astype(np.float64, order="C")
        out = np.empty((2, part.stop - part.start))
        n = loop.train_epochs(
            self._program,
            self._loop_members[m],
            _arrays(self._loop_members[m]),
            self._tables[m],
            loop.Steps(
                seeds=np.ascontiguousarray(epochs.seeds[part, :, m]),
                gain=epochs.gain[schedule, part],
                step_size=steps[0],
                epsilon=steps[1],
                kl_weight=steps[2],
            ),
            out[0],
            out[1],
        )
        losses[:, part.start : part.start + n] = out[:, :n]
        return n


# ---- a program as numbers


def family_name(family: Family) -> str:
    """Key of the family in ``FAMILIES``; empty for a class that is not in it."""
    return _key_of(type(family), FAMILIES)


def likelihood_name(likelihood: Likelihood) -> str:
    """Key in ``LIKELIHOODS``; empty for other classes, also for subclasses."""
    return _key_of(type(likelihood), LIKELIHOODS)


def _key_of(kind: type, classes: Mapping[str, type]) -> str:
    return next((name for name, other in classes.items() if other is kind), "")


def prior_vectors(
    config: TrainingConfig, state: TrainingState
) -> tuple[torch.Tensor, ...]:
    """Curvature and centre of the quadratic KL, and the prior's precision.

    They are vectors like the parameters: the quadratic part of the KL is the sum of
    curvature / 2 (value - centre)^2 over the means and biases.
    """
    vectors = tuple(torch.zeros_like(state.parameters.values) for _ in range(3))
    curvature, centre, precision = (
        state.parameters.posterior(vector).layers for vector in vectors
    )
    priors: Any = state.objective.prior  # with normal distributions
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
    scales_curvature = name in ("bernoulli", "gaussian")
    return keep if scales_curvature or family.spike else 1.0


def _program(
    config: TrainingConfig, state: TrainingState
) -> tuple[loop.Program, np.ndarray]:
    """Compile the functions of a program; return its numbers and its maps."""
    network, likelihood = config.network, config.likelihood
    assert isinstance(network, Perceptron)
    spans, dtype = _spans(state.posterior), state.parameters.values.numpy().dtype
    maps = np.zeros(len(network.families), families.MAP)
    for i, (family, m) in enumerate(zip(network.families, maps, strict=True)):
        name = family_name(family)
        m["family"] = families.CODES[name]
        m["is_sampled"] = families.is_sampled(m["family"])
        m["has_spike"], m["is_first"] = family.spike, i == 0
        m["n_inputs"], m["n_outputs"] = network.sizes[i : i + 2]
        if isinstance(family, Variational):
            m["kingma"] = family.approximation == "kingma"
            m["max_log_alpha"] = MAX_LOG_ALPHA[family.approximation]
        m["mean"], m["bias"] = spans[i, "mean"], spans[i, "bias"]
        for key, field in _NOISE.get(name, {}).items():
            m[field] = spans[i, key]
        m["n_noise"] = m["noise"]["stop"] - m["noise"]["start"]
    families.compile_functions(maps, network.activation, dtype)
    function = likelihoods.FUNCTIONS[likelihood.name]
    # Classes have one label.
    n_targets = getattr(likelihood, "n_targets", 1)
    program = loop.Program(
        options=likelihoods.Options(
            bool(likelihood.learned),
            _given_df(likelihood),
            likelihood.row_noise,
            getattr(likelihood, "has_point", False),
        ),
        likelihood_address=likelihoods.KIND.address(function, dtype),
        is_heteroscedastic=isinstance(likelihood, Heteroscedastic),
        first_of_likelihood=min(
            start for (group, _), (start, _) in spans.items() if group == len(maps)
        ),
        n_targets=int(n_targets),
        n_outputs=likelihood.n_outputs,
        n_batches=config.n_batches,
        n_draws=state.n_draws,
    )
    return program, maps


def _given_df(likelihood: Likelihood) -> float:
    """Given degrees of freedom; 0 if they are learned, and for other likelihoods."""
    if not isinstance(likelihood, StudentT) or likelihood.df is None:
        return 0.0
    return float(likelihood.df)


def _groups(posterior: Posterior) -> list[dict[str, torch.Tensor]]:
    """Parameters of the maps, and of the likelihood."""
    return [*posterior.layers, posterior.likelihood_params]


def _spans(posterior: Posterior) -> dict[tuple[int, str], tuple[int, int]]:
    """First and last parameter of each array of one member, by group and name."""
    spans, start = {}, 0
    for i, group in enumerate(_groups(posterior)):
        for name, values in group.items():
            spans[i, name] = start, start + values[0].numel()
            start = spans[i, name][1]
    return spans


def _places(state: TrainingState) -> np.ndarray:
    """Positions of the members' parameters in the vector, (members, parameters)."""
    positions = torch.arange(len(state.parameters.values))
    groups = _groups(state.parameters.posterior(positions))
    arrays = [values for group in groups for values in group.values()]
    return torch.cat([values.flatten(1) for values in map(_matrix, arrays)], 1).numpy()


def _matrix(values: torch.Tensor) -> torch.Tensor:
    return values.view(len(values), -1)


def _loop_members(
    config: TrainingConfig,
    members: MemberParams,
    rows: TableRows,
    state: TrainingState,
    maps: np.ndarray,
    places: np.ndarray,
) -> list[loop.Member]:
    """Copy the members' parameters from the vectors of the program."""
    vectors = [v.numpy() for v in (*state.vectors(), *prior_vectors(config, state))]
    keep = np.stack([p.numpy() for p in state.posterior.keep], axis=1)
    spans, learned = _spans(state.posterior), config.likelihood.trainable
    by_rows = {}
    for n in np.unique(config.batch_rows(rows.n_rows)):
        by_rows[n] = maps.copy()
        by_rows[n]["n_rows"] = n
        families.lay_out(by_rows[n])

    def is_fixed(m: int, group: int, name: str) -> bool:
        if group < len(maps):
            return name in config.network.families[group].constants
        return name not in learned or not members.learns_likelihood[m]

    loop_members = []
    for m, n in enumerate(config.batch_rows(rows.n_rows)):
        values, mean, square, curvature, centre, precision = (
            vector[places[m]] for vector in vectors
        )
        own_maps = by_rows[n].copy()
        own_maps["keep"] = keep[m]
        fixed = [span for key, span in spans.items() if is_fixed(m, *key)]
        loop_members.append(
            loop.Member(
                values=values,
                mean=mean,
                square=square,
                maps=own_maps,
                precision=precision,
                curvature=curvature,
                centre=centre,
                fixed=np.array(fixed, dtype=np.int64).reshape(-1, 2),
                kl_scale=float(state.objective.kl_scale[m]),
                total_weight=float(rows.total_weight[m]),
                data_scale=float(state.objective.scale[m]),
            )
        )
    return loop_members


def _arrays(member: loop.Member) -> families.Arrays:
    """The member's parameters, and space for a step."""
    dtype, maps = member.values.dtype, member.maps
    widest = max(maps["n_inputs"].max(), maps["n_outputs"].max())
    return families.Arrays(
        parameters=member.values,
        gradients=np.empty_like(member.values),
        precision=member.precision,
        workspace=np.empty(maps["input_gradients"]["stop"].max(), dtype),
        words=np.empty(maps[0]["n_rows"] * widest + 1, np.uint64),
        stream=np.zeros(1, families.STREAM),
    )


def _table(
    rows: TableRows, member: int, perturbation: RowPerturbation | None
) -> MemberTable:
    """Training rows of a member, with their perturbation."""
    if perturbation is None:
        return rows.member_table(member)
    values = perturbation.of_member(member)[: rows.n_rows[member]]
    if perturbation.on_y:
        return rows.member_table(member, y_shift=values)
    return rows.member_table(member, weight_factor=values[:, 0])
