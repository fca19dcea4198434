"""Train the members of a program by the compiled loop, on several threads."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  (the BLAS of the loop, for threadpoolctl)
import torch
from threadpoolctl import ThreadpoolController

from skbayesnn._engine.compiled import activations, families, likelihoods, loop
from skbayesnn._engine.config import MemberParams, TrainingConfig
from skbayesnn._engine.objective import priors_of
from skbayesnn._engine.optimizer import EPSILON
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.step import RowPerturbation, Step
from skbayesnn._engine.training_random import EPOCHS_PER_BLOCK, epoch_seeds
from skbayesnn._families import FAMILIES, Family
from skbayesnn._families.variational_dropout import HIGHEST_LOG_ALPHA, Variational
from skbayesnn._networks import MLP
from skbayesnn._priors import (
    AnchoredPrior,
    GaussianPrior,
    LogUniformPrior,
    PosteriorPrior,
)

# Progress is reported, and Ctrl-C is noticed, this often, in seconds.
_SECONDS = 0.1
# Parts of this time that a thread works on one member, to balance unequal members.
_PARTS = 4
# A program with fewer members than cores and more values per layer of a batch than this
# is left to torch, which uses all cores for one product.
_MAX_VALUES_PER_THREAD = 1 << 20

_NAME_OF_FAMILY = {kind: name for name, kind in FAMILIES.items()}
# Parameters of a map other than mean and bias.
_FURTHER = {
    "concrete": ("logit",),
    "additive": ("variance",),
    "mean_field": ("rho", "bias_rho"),
    "fixed_width": ("rho", "bias_rho"),
}
_PRIORS = GaussianPrior, PosteriorPrior, AnchoredPrior, LogUniformPrior


def covers(
    config: TrainingConfig, members: MemberParams, rows, posterior: Posterior
) -> bool:
    """Whether the compiled loop can train a program.

    rows : TrainingRows
    """
    network = config.network
    if not isinstance(network, MLP) or posterior.device.type != "cpu":
        return False
    if network.activation not in activations.CODES or config.gradient != "pathwise":
        return False
    if config.likelihood.name not in likelihoods.CODES or not rows.is_dense:
        return False
    n_values = int(config.batch_rows(rows.n_rows).max()) * network.widest
    if n_values > _MAX_VALUES_PER_THREAD and len(members.seeds) < n_threads():
        return False
    return all(map(_is_covered, network.families))


def _is_covered(family: Family) -> bool:
    name = _NAME_OF_FAMILY.get(type(family))
    if name not in families.CODES:
        return False
    # These need weights that all rows share.
    return not (getattr(family, "shared_draw", False) or getattr(family, "sampled_kl", False))


def n_threads() -> int:
    """Threads for the members: torch's, which follow OMP_NUM_THREADS and the cores."""
    return torch.get_num_threads()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


class CompiledRunner:
    """Runs epochs of all members of a program, as ``training.TorchRunner``.

    Parameters
    ----------
    config : TrainingConfig
    members : MemberParams
    rows : TrainingRows
    step : Step
        Its parameters and moments are trained in place.
    perturbation : RowPerturbation or None
    """

    engine = "compiled"

    def __init__(
        self,
        config: TrainingConfig,
        members: MemberParams,
        rows,
        step: Step,
        perturbation: RowPerturbation | None,
    ):
        self._config, self._members, self.step = config, members, step
        self._batch_rows = config.batch_rows(rows.n_rows)
        self._n_threads = min(n_threads(), len(members.seeds))
        self._network = _network_code(config, step.posterior)
        self._vectors = _vectors(config, members, step)
        self._member_codes = _member_codes(config, members, rows, step)
        n_members = len(members.seeds)
        self._tables = [_table(rows, m, perturbation) for m in range(n_members)]
        at_start = [
            loop.kl_value(self._network, member, self._vectors) / member.total_weight
            for member in self._member_codes
        ]
        self._kl_constant = step.penalty.kl().double().numpy() - at_start
        self._n_epochs, self._seconds = 1, 0.0
        self._failed = np.zeros(n_members, dtype=bool)
        self._seeds: dict[int, np.ndarray] = {}

    @property
    def max_epochs(self) -> int:
        """Epochs that take about ``_SECONDS``."""
        if self._seconds:
            self._n_epochs = max(1, int(self._n_epochs * min(_SECONDS / self._seconds, 8)))
        return self._n_epochs

    def run(self, first: int, epoch: int, n_epochs: int):
        """Train all members for some epochs; return nll and KL, (epochs, members).

        first : epochs of earlier runs
        epoch : epochs of this run so far
        """
        start = perf_counter()
        n_members = len(self._member_codes)
        nll = np.full((n_epochs, n_members), np.nan)
        kl = np.full((n_epochs, n_members), np.nan)
        left = np.clip(self._members.n_epochs - epoch, 0, n_epochs)
        left[self._failed] = 0
        part = max(1, n_epochs // _PARTS)
        lock, done, busy = threading.Lock(), np.zeros(n_members, int), set()
        steps = self._steps(first, epoch, n_epochs)

        def next_member() -> int | None:
            waiting = [m for m in range(n_members) if m not in busy and done[m] < left[m]]
            return min(waiting, key=lambda m: done[m] - left[m]) if waiting else None

        def work() -> None:
            while True:
                with lock:
                    m = next_member()
                    if m is None:
                        return
                    busy.add(m)
                chunk = slice(done[m], min(done[m] + part, left[m]))
                n = self._train(m, steps[m], chunk, nll, kl)
                with lock:
                    busy.remove(m)
                    done[m] += n
                    if n < chunk.stop - chunk.start or not np.isfinite(
                        nll[done[m] - 1, m] + kl[done[m] - 1, m]
                    ):
                        self._failed[m], left[m] = True, done[m]

        if self._n_threads == 1:
            work()
        else:
            with _blas().limit(limits=1), ThreadPoolExecutor(self._n_threads) as pool:
                for future in [pool.submit(work) for _ in range(self._n_threads)]:
                    future.result()
        self.step.count_steps(n_epochs * self._config.n_batches)
        self._n_epochs, self._seconds = n_epochs, perf_counter() - start
        kl += self._kl_constant
        dtype = self.step.parameters.values.dtype
        return torch.as_tensor(nll).to(dtype), torch.as_tensor(kl).to(dtype)

    def _train(self, m: int, steps: loop.Steps, chunk: slice, nll, kl) -> int:
        n_batches = self._config.n_batches
        per_step = slice(chunk.start * n_batches, chunk.stop * n_batches)
        steps = steps._replace(
            seeds=steps.seeds[chunk],
            gain=steps.gain[chunk],
            step_size=steps.step_size[per_step],
            epsilon=steps.epsilon[per_step],
            kl_weight=steps.kl_weight[per_step],
        )
        out_nll = np.empty(chunk.stop - chunk.start)
        out_kl = np.empty_like(out_nll)
        n = loop.train_epochs(
            self._network,
            self._member_codes[m],
            self._vectors,
            self._tables[m],
            steps,
            int(self._batch_rows[m]),
            out_nll,
            out_kl,
        )
        nll[chunk.start : chunk.start + n, m] = out_nll[:n]
        kl[chunk.start : chunk.start + n, m] = out_kl[:n]
        return n

    def _steps(self, first: int, epoch: int, n_epochs: int) -> list[loop.Steps]:
        """Schedule of every member for some epochs."""
        config, schedule = self._config, self.step.schedule
        n_batches = config.n_batches
        n_done = range(epoch * n_batches, (epoch + n_epochs) * n_batches)
        values, gains = schedule.arrays(n_done), []
        if config.likelihood.name == "heteroscedastic":
            for start in n_done[::n_batches]:
                gains.append(
                    [_gain(config.likelihood, p) for p in schedule.progress_of(start)]
                )
        seeds = np.stack([self._epoch_seeds(first + epoch + i) for i in range(n_epochs)])
        steps = []
        for m, course in enumerate(schedule.course_index):
            gain = [row[course] for row in gains] or [0.0] * n_epochs
            step_size, epsilon, kl_weight = values[course].T
            steps.append(
                loop.Steps(
                    seeds=np.ascontiguousarray(seeds[:, :, m]),
                    gain=np.array(gain),
                    step_size=np.ascontiguousarray(step_size),
                    epsilon=EPSILON * epsilon,
                    kl_weight=np.ascontiguousarray(kl_weight),
                    n_batches=n_batches,
                    n_draws=self.step.n_draws,
                )
            )
        return steps

    def _epoch_seeds(self, epoch: int) -> np.ndarray:
        """Seeds of an epoch, (2, members)."""
        block, position = divmod(epoch, EPOCHS_PER_BLOCK)
        if block not in self._seeds:
            distinct, index = np.unique(self._members.seeds, return_inverse=True)
            self._seeds = {block: epoch_seeds(distinct.tolist(), block)[..., index]}
        return self._seeds[block][position]


def _gain(likelihood, progress: float) -> float:
    params = {"gain": torch.zeros(1, dtype=torch.float64)}
    likelihood.schedule(params, progress)
    return float(params["gain"][0])


# ---- a program as numbers


def _network_code(config: TrainingConfig, posterior: Posterior) -> loop.NetworkCode:
    network, likelihood = config.network, config.likelihood
    assert isinstance(network, MLP)
    n_maps = len(network.families)
    options = np.zeros((n_maps, families.N_OPTIONS), dtype=np.int64)
    highest = np.zeros(n_maps)
    for i, family in enumerate(network.families):
        options[i, families.SPIKE] = getattr(family, "spike", False)
        if isinstance(family, Variational):
            options[i, families.PER_WEIGHT] = "log_variance" in posterior.layers[i]
            options[i, families.LOG_UNIFORM] = config.prior == "log_uniform"
            options[i, families.KINGMA] = family.approximation == "kingma"
            highest[i] = HIGHEST_LOG_ALPHA[family.approximation]
    codes = [families.CODES[_NAME_OF_FAMILY[type(f)]] for f in network.families]
    n_targets = 1 if likelihood.of_classes else likelihood.n_targets  # type: ignore
    return loop.NetworkCode(
        sizes=np.array(network.sizes, dtype=np.int64),
        activation=activations.CODES[network.activation],
        likelihood=likelihoods.CODES[likelihood.name],
        learned=bool(likelihood.learned),
        given_df=float(getattr(likelihood, "df", None) or 0.0),
        families=np.array(codes, dtype=np.int64),
        options=options,
        highest=highest,
        n_targets=int(n_targets),
    )


def _further(family: Family, params: dict) -> tuple[str, ...]:
    """Names of the parameters of a map other than mean and bias."""
    if isinstance(family, Variational):
        return tuple(name for name in ("log_alpha", "log_variance") if name in params)
    return _FURTHER.get(_NAME_OF_FAMILY[type(family)], ())


def _member_codes(config, members, rows, step: Step) -> list[loop.MemberCode]:
    posterior, places = step.posterior, step.parameters.places()
    n_maps, n_members = len(config.network.families), len(members.seeds)
    learned = set(config.likelihood.trainable)
    codes = []
    for m in range(n_members):
        blocks, trained = [], []
        for i, family in enumerate(config.network.families):
            names = ("mean", "bias", *_further(family, posterior.layers[i]))
            for name in names:
                start, size = places[i, name]
                blocks.append((start + m * size, size))
                trained.append(name not in family.constants)
            for _ in range(4 - len(names)):
                blocks.append((0, 0))
                trained.append(False)
        for name in posterior.likelihood_params:
            start, size = places[n_maps, name]
            blocks.append((start + m * size, size))
            trained.append(name in learned and bool(members.learns_noise[m]))
        codes.append(
            loop.MemberCode(
                keep=np.array([float(p[m]) for p in posterior.keep]),
                blocks=np.array(blocks, dtype=np.int64),
                trained=np.array(trained),
                kl_scale=float(step.objective.kl_scale[m]),
                total_weight=float(rows.total_weight[m]),
                data_scale=float(step.objective.scale[m]),
            )
        )
    return codes


def _vectors(config, members, step: Step) -> loop.Vectors:
    """Views of the parameters and moments, and the prior of every parameter."""
    values = step.parameters.values
    curvature, centre, precision = (torch.zeros_like(values) for _ in range(3))
    layers = [step.parameters.posterior(v).layers for v in (curvature, centre, precision)]
    priors = priors_of(config, members, step.posterior)
    keep = step.posterior.keep
    for i, (family, prior) in enumerate(zip(config.network.families, priors, strict=True)):
        name = _NAME_OF_FAMILY[type(family)]
        for key, part in (("mean", prior.weight), ("bias", prior.bias)):
            factor = torch.ones_like(keep[i])
            if key == "mean":
                if name == "concrete":
                    factor = torch.zeros_like(factor)  # it depends on the learned rate
                elif name in ("bernoulli", "gaussian", "dropconnect") or getattr(
                    family, "spike", False
                ):
                    factor = keep[i]
            at = part.precision
            layers[0][i][key].copy_(at * factor.view(-1, *(1,) * (at.ndim - 1)))
            layers[1][i][key].copy_(part.centre)
            layers[2][i][key].copy_(at)
    mean, square = step.moments()
    return loop.Vectors(
        *(v.numpy() for v in (values, mean, square, curvature, centre, precision))
    )


def _table(rows, member: int, perturbation: RowPerturbation | None) -> loop.Table:
    table = rows.member_table(member)
    x = table.x
    if perturbation is None:
        shift = np.empty((0, 1), x.dtype)
        weights = table.weights
    else:
        values = perturbation.of_member(member)[: len(table.rows)]
        if perturbation.on_y:
            shift, weights = values, table.weights
        else:
            shift = np.empty((0, 1), x.dtype)
            weights = values[:, 0] if table.weights is None else table.weights * values[:, 0]
    if weights is None:
        weights = np.empty(0, x.dtype)
    else:
        weights = weights / float(rows.mean_weight[member])
    none = np.empty((2, 0), x.dtype)
    return loop.Table(
        x=x,
        y=np.empty((0, 1), x.dtype) if table.y.ndim == 1 else table.y,
        labels=table.y if table.y.ndim == 1 else np.empty(0, np.int64),
        rows=table.rows,
        weights=np.ascontiguousarray(weights, dtype=x.dtype),
        shift=np.ascontiguousarray(shift, dtype=x.dtype),
        x_affine=none if table.x_affine is None else table.x_affine,
        y_affine=none if table.y_affine is None else table.y_affine,
    )
