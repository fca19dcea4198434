"""The embedding of neighbour models: networks, their calibration, and embedded rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Event
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from skbayesnn._distributions.map_factor import PRIOR_STD, least_density, log_mean_exp
from skbayesnn._engine.optimizer import BETA_1, BETA_2, EPSILON
from skbayesnn._runtime import on_threads, snapshot, warn

# ---- training: start, schedule and threads

# Rows whose log density a training step maximises.
N_QUERIES = 256
# Initial scale of the embedding.
START_SCALE = 0.3
# Training runs for this part at once. Then it notices Ctrl-C.
N_PARTS = 20


class Kernel(NamedTuple):
    """Initial parameters of the kernel, see ``_engine.compiled.neighbours``.

    Parameters
    ----------
    start, least : sequence of floats
        Initial values and lower bounds.
    is_learned : bool
    """

    start: Sequence[float] | np.ndarray
    least: Sequence[float] | np.ndarray
    is_learned: bool = True


class Fit(NamedTuple):
    """A trained network: its parameters, as a vector, and the loss of each pass."""

    values: np.ndarray
    losses: np.ndarray


@dataclass(frozen=True)
class EmbeddingTrainer:
    """Trains networks on the same rows.

    Parameters
    ----------
    features : ndarray of shape (rows, inputs)
    y : ndarray of shape (rows,) or (rows, targets)
        Standardised, or indices of classes.
    weights : ndarray of shape (rows,)
    groups : ndarray of shape (rows,), int
        Rows of the same group do not predict each other. Empty without groups.
    n_classes : int
        0 for a regression.
    kernel : Kernel
    n_hidden, n_embedding : int
    n_subset : int
        Rows of a step.
    min_steps : int
    learning_rate : float
    keep : ndarray of shape (2,)
        Probabilities that a hidden unit is kept.
    """

    features: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    groups: np.ndarray
    n_classes: int
    kernel: Kernel
    n_hidden: int
    n_embedding: int
    n_subset: int
    min_steps: int
    learning_rate: float
    keep: np.ndarray

    @property
    def fan_ins(self) -> list[int]:
        """Inputs of the three layers."""
        return [self.features.shape[1], self.n_hidden, self.n_hidden]

    @property
    def n_passes(self) -> int:
        """Passes over the rows, which are split into subsets."""
        return -(-self.min_steps // (len(self.y) // self.n_subset))

    @property
    def n_steps(self) -> int:
        """Number of training steps, a multiple of the number of subsets."""
        return self.n_passes * (len(self.y) // self.n_subset)

    @cached_property
    def _shapes(self) -> dict[str, tuple]:
        from skbayesnn._engine.compiled.neighbours import part_shapes

        sizes = self.features.shape[1], self.n_hidden, self.n_embedding
        return part_shapes(*sizes, (len(self.kernel.start) - 1) // 2)

    def targets(self, y) -> tuple[np.ndarray, np.ndarray]:
        """y, (targets, rows), and labels for the compiled loop; one is empty."""
        dtype = self.features.dtype
        if self.n_classes:
            return np.empty((1, 0), dtype), y.astype(np.int64)
        columns = np.ascontiguousarray(np.atleast_2d(y.T), dtype=dtype)
        return columns, np.empty(0, np.int64)

    @cached_property
    def rows(self):
        """The training rows, for the compiled loop."""
        from skbayesnn._engine.compiled.neighbours import Rows

        weights = (self.weights / self.weights.mean()).astype(self.features.dtype)
        groups = self.groups.astype(np.int64)
        targets = self.targets(self.y)
        return Rows(self.features, *targets, weights, groups, self.n_classes)

    def train(self, seeds: np.ndarray, length_scales: np.ndarray) -> list[Fit]:
        """Train a network for every seed, on threads.

        length_scales : (3,)
        """
        from skbayesnn._engine.compiled import run

        stop = Event()
        calls = [partial(self._train, s, length_scales, stop) for s in seeds.tolist()]
        with run.single_threaded_blas, run.noted_compilation():
            return on_threads(calls, run.n_threads(), stop)

    def _train(self, seed: int, length_scales, stop: Event) -> Fit:
        from skbayesnn._engine.compiled import neighbours

        random, dtype = np.random.default_rng(seed), self.features.dtype
        n_subsets = len(self.y) // self.n_subset
        sizes = neighbours.Sizes(
            self.features.shape[1],
            self.n_hidden,
            self.n_embedding,
            min(N_QUERIES, self.n_subset),
            self.n_subset,
        )
        values = vector(self._start(random), dtype)
        moments = np.zeros_like(values), np.zeros_like(values)
        curvature = vector(self._curvature(length_scales), dtype)
        seeds = random.integers(0, 2**63, size=(self.n_passes, 2), dtype=np.uint64)
        step_sizes, epsilons = _schedule(self.learning_rate, self.n_steps)
        losses = np.empty(self.n_passes)
        passes = np.arange(self.n_passes)
        for part in np.array_split(passes, min(N_PARTS, self.n_passes)):
            if stop.is_set():
                raise KeyboardInterrupt
            steps = slice(part[0] * n_subsets, (part[-1] + 1) * n_subsets)
            losses[part] = neighbours.train_steps(
                self.rows,
                sizes,
                values,
                *moments,
                curvature,
                self.kernel.is_learned,
                np.asarray(self.kernel.least, dtype=dtype),
                self.keep.astype(dtype),
                seeds[part],
                step_sizes[steps],
                epsilons[steps],
            )
        return Fit(values, losses)

    def _start(self, random) -> dict[str, np.ndarray]:
        """Initial parameters of one network."""
        start = {name: np.zeros(shape) for name, shape in self._shapes.items()}
        for name in ("w1", "w2", "w3", "linear"):
            shape = self._shapes[name]
            start[name] = random.standard_normal(shape) * math.sqrt(2 / shape[0])
        start["linear"] /= math.sqrt(2)
        for name in ("w3", "linear"):
            start[name] *= START_SCALE
        start["kernel"] = np.array(self.kernel.start)
        return start

    def _curvature(self, length_scales) -> dict[str, np.ndarray]:
        """Second derivative of the KL of dropout, for a loss per row."""
        first, second, third = np.square(length_scales) / self.weights.sum()
        values = {
            "w1": first,
            "w2": self.keep[0] * second,
            "w3": self.keep[1] * third,
            "linear": first,
        }
        return {
            name: np.full(shape, values.get(name, 0.0))
            for name, shape in self._shapes.items()
        }

    def parameters(self, fits: Sequence[Fit]) -> dict[str, np.ndarray]:
        """Parameters of some networks by name, (networks, ...) each."""
        vectors = np.stack([fit.values for fit in fits])
        ends = np.cumsum([math.prod(shape) for shape in self._shapes.values()])[:-1]
        pieces = np.split(vectors, ends, axis=1)
        return {
            name: np.ascontiguousarray(values.reshape(-1, *shape))
            for (name, shape), values in zip(self._shapes.items(), pieces, strict=True)
        }


def _schedule(rate: float, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Step sizes of Adam, which decay to zero, and its epsilons, (steps,) each."""
    step = np.arange(n_steps)
    first = 1 - BETA_1 ** (step + 1.0)
    root = np.sqrt(1 - BETA_2 ** (step + 1.0))
    decay = 0.5 * (1 + np.cos(np.pi * step / n_steps))
    return -rate * decay * root / first, EPSILON * root


def vector(parts: dict[str, np.ndarray], dtype) -> np.ndarray:
    """Parameters of one network as a vector."""
    return np.concatenate([values.ravel() for values in parts.values()]).astype(dtype)


def report_failures(n_failed: int, n_members: int, rate: float) -> None:
    """Warn of networks that diverged, if any; raise if all did."""
    if not n_failed:
        return
    reason = (
        f"the loss of {n_failed} of {n_members} networks became infinite or NaN. Lower "
        f"learning_rate_init ({rate:g} here)."
    )
    if n_failed == n_members:
        raise ValueError(reason)
    warn("SKB101", f"{reason} They were left out.", ConvergenceWarning)


# ---- training rows as a posterior draw embeds them


class Draw(NamedTuple):
    """One posterior draw of one network.

    Parameters
    ----------
    member : int
    masks : ndarray of shape (2, hidden_size)
    columns : ndarray of shape (embedding_size, rows)
        z of the training rows.
    offsets : ndarray of shape (rows,)
        log s - |z|^2.
    """

    member: int
    masks: np.ndarray
    columns: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, member: int, masks, z, weights) -> "Draw":
        """The draw with embeddings z, (rows, embedding_size); weights : s."""
        offsets = np.log(weights) - np.square(z.astype(np.float64)).sum(1)
        columns = np.ascontiguousarray(z.T)
        return cls(member, masks, columns, offsets.astype(z.dtype))


# ---- scale of the embedding and of the kernel, by held-out rows

# Most draws of each network.
CALIBRATION_DRAWS = 2
# Range of the factors on embedding and kernel, and of log densities below most rows.
FACTORS, OUTLIER = (0.3, 3.0), 10.0
# Precision of the log of a factor.
LOG_PRECISION = 0.02


def calibrated(model, trainer: EmbeddingTrainer, held_out) -> dict[str, np.ndarray]:
    """Parameters with the scale of the embedding, and of the kernel of a regression.

    In training, the neighbours are a subset of the rows, and the embedding adapts to
    their y. So the best scale of the distances is another one in predictions: the one
    with which the other rows predict the held-out rows best.

    model : NeighbourModel, trained by ``trainer``
    held_out : (rows,), bool
    """
    part = of_other_rows(model, held_out)
    features = model._encoded(model.X_train_[held_out])
    queries = part._queries(features, part._embedded_draws())
    targets = trainer.targets(model.y_train_[held_out])
    density = partial(log_density, trainer.rows, *targets)
    best = partial(best_factor, model.weights_train_[held_out])
    parameters, least = dict(model.parameters_), model._least_kernel
    kernel = parameters["kernel"]
    factor = best(lambda log: density(kernel, scaled(queries, np.exp(log))))
    for name in ("w3", "linear"):
        values = parameters[name]
        parameters[name] = values * values.dtype.type(factor)
    if least is None:
        return parameters
    queries = scaled(queries, factor)

    def widened(log_factor):
        shift = np.full(len(least), log_factor)
        shift[-1] = 0.0
        return np.maximum(kernel + shift, least).astype(kernel.dtype)

    factor = best(lambda log: density(widened(log), queries))
    return parameters | {"kernel": widened(np.log(factor))}


def of_other_rows(model, held_out):
    """A model without the held-out rows, and with few draws."""
    part = snapshot(model)
    part.n_draws = min(model.n_draws, CALIBRATION_DRAWS)
    for name in ("X_train_", "y_train_", "weights_train_"):
        setattr(part, name, getattr(model, name)[~held_out])
    return part


def best_factor(weights, density) -> float:
    """Factor with the highest posterior density, given the held-out rows.

    The log factor has a normal prior. Densities are bounded below, so that outliers do
    not decide.

    weights : of the held-out rows
    density : their log density as a function of the log factor
    """
    bound = least_density(density(0.0), weights, OUTLIER)

    def loss(log_factor):
        values = np.maximum(density(log_factor), bound)
        return 0.5 * (log_factor / PRIOR_STD) ** 2 - weights @ values

    options = {"xatol": LOG_PRECISION}
    best = minimize_scalar(
        loss, bounds=np.log(FACTORS), method="bounded", options=options
    )
    return float(np.exp(np.round(best.x, 3)))


def log_density(rows, y, labels, kernel, queries) -> np.ndarray:
    """Log density of rows, in the units of the training, (queries,).

    rows : the training rows, for the compiled loop
    y, labels : of the queries; one is empty
    kernel : of each network
    queries : embeddings of the rows by each draw, with the draw
    """
    from skbayesnn._engine.compiled.neighbours import log_densities

    densities = np.empty((len(queries), len(queries[0][1])))
    for (draw, z), row in zip(queries, densities, strict=True):
        at = kernel[draw.member]
        log_densities(z, draw.columns, draw.offsets, rows, y, labels, at, row)
    return log_mean_exp(densities)


def scaled(queries, factor: float) -> list[tuple[Draw, np.ndarray]]:
    """Multiply the embeddings of queries and training rows by a factor."""
    scaled = []
    for draw, z in queries:
        squares, kind = np.square(draw.columns).sum(0), z.dtype.type
        draw = draw._replace(
            columns=draw.columns * kind(factor),
            offsets=draw.offsets + kind(1 - factor**2) * squares,
        )
        scaled.append((draw, z * kind(factor)))
    return scaled
