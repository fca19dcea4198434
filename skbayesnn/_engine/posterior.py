"""The approximate posterior q(W) of several networks, and predictions of its draws.

Predictions for many rows or draws are computed in chunks, within a memory budget. On a
CPU a compiled loop computes perceptrons, except for a few rows of one network: torch is
as fast for them, and numba takes .3 s to import.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch

from skbayesnn._engine.compiled import ENGINE_VARIABLE
from skbayesnn._engine.members import ByMember, on_device
from skbayesnn._engine.random import DrawRandom
from skbayesnn._engine.resources import is_out_of_memory, keep_freed_memory
from skbayesnn._families import Draw, Params
from skbayesnn._likelihoods import Likelihood
from skbayesnn._networks import Network

# ---- the posterior and its draws

# Sampled networks, one function of x per part of the draws.
SampledNetworks = list[Callable[[torch.Tensor], torch.Tensor]]
# Activations that are in memory at once.
_LIVE_UNITS = 1 << 26
# Sampled weights up to this size are cached between predictions.
_CACHE_BYTES = 1 << 25
# Fewest rows of a prediction by the compiled loop, times the number of networks.
MIN_COMPILED_ROWS = 4


@cache
def _compiled_draws():
    """The module of the compiled loop; None without numba."""
    try:
        from skbayesnn._engine.compiled import predict
    except Exception:  # e.g. a NumPy that numba refuses; the training warns
        return None
    return predict


@dataclass(frozen=True)
class Posterior(ByMember):
    """q(W) of all members of a program, in the network's scale.

    Parameters
    ----------
    network, likelihood : Network, Likelihood
        Shared by all members.
    layers : list of dict of tensor
        The network's parameter groups, members first.
    likelihood_params : dict of tensor
        The likelihood's parameters, members first.
    keep : tuple of tensor of shape (members,)
        Keep probability p = 1 - dropout of every group.
    seeds : ndarray of shape (members,), int
    """

    network: Network
    likelihood: Likelihood
    layers: list[Params]
    likelihood_params: Params
    keep: tuple[torch.Tensor, ...]
    seeds: np.ndarray
    # Sampled networks of the last prediction: by parts of the draws, or compiled.
    _cache: dict[tuple, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def n_members(self) -> int:
        """Number of networks."""
        return len(self.seeds)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.keep[0].device

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the parameters."""
        return self.keep[0].dtype

    def distinct_draws(self, n_draws: int) -> int:
        """Number of draws that can differ: 1 if the weights are deterministic."""
        return self.network.distinct_draws(n_draws)

    def learned_keep(self) -> list[torch.Tensor]:
        """Keep probability of every group, (members,), as learned or given."""
        return self.network.learned_keep(self.layers, self.keep)

    def draw(self, draws: range) -> list[Draw]:
        """Sample weights for the draws ``draws``, for ``network.apply``."""
        return self.network.draw(self.layers, self.keep, self._random_source(draws))

    def sample_network(self, draws: range) -> Callable[[torch.Tensor], torch.Tensor]:
        """Sample networks; return ``outputs`` as a function of x."""
        return partial(self.network.apply, self.draw(draws))

    def _random_source(self, draws: range):
        return DrawRandom(self.seeds, draws, self.device, self.dtype)

    def estimate_bytes(self, n_draws: int) -> int:
        """Memory of the weights of ``n_draws`` draws."""
        itemsize = self.keep[0].element_size() * self.n_members
        return itemsize * n_draws * self.network.n_weights

    def cached(self, parts: tuple[range, ...]) -> SampledNetworks:
        """``sample_network`` for every part, cached if the weights are small."""
        networks = self._cache.get(parts)
        if networks is None:
            networks = [self.sample_network(draws) for draws in parts]
            if self.estimate_bytes(parts[-1].stop) <= _CACHE_BYTES:
                self._cache.clear()
                self._cache[parts] = networks
        return networks

    def compiled(self, draws: range, n_rows: int, budget: int):
        """The draws for the compiled loop; None if torch predicts them.

        budget : bytes that the weights may take
        """
        is_small = n_rows * self.n_members < MIN_COMPILED_ROWS
        if is_small or os.environ.get(ENGINE_VARIABLE) == "torch":
            return None
        module = _compiled_draws()
        if module is None or not module.can_predict(self, len(draws), budget):
            return None
        key = "compiled", draws
        compiled = self._cache.get(key)
        if compiled is None:
            random = partial(self._random_source, draws)
            compiled = module.CompiledDraws(self, len(draws), random)
            self._cache.clear()
            self._cache[key] = compiled
        return compiled

    def outputs(self, x: torch.Tensor, draws: range) -> torch.Tensor:
        """Outputs of the draws ``draws``, without observation noise.

        x : (members or 1, rows, inputs), standardised
        returns : (draws, members, rows, outputs)
        """
        return self.sample_network(draws)(x)

    def outputs_of(self, x: torch.Tensor, n_draws: int) -> torch.Tensor:
        """``outputs`` of ``n_draws`` draws, or of one if the draws are equal.

        Draws are computed in parts, because hidden layers are larger than the outputs.
        """
        units = self.n_members * x.shape[1] * self.network.peak_activation_size
        at_once = max(1, _LIVE_UNITS // units)
        draws = range(self.distinct_draws(n_draws))
        parts = [draws[start : start + at_once] for start in draws[::at_once]]
        return torch.cat([self.outputs(x, part) for part in parts])

    def components(self, outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The likelihood's components for outputs (draws, members, rows, outputs)."""
        return self.likelihood.components(self.likelihood_params, outputs)

    def predictive_components(
        self, outputs: torch.Tensor, dtype: torch.dtype | None = None
    ) -> Any:
        """The likelihood's ``components_class``, with arrays (draws * members, ...).

        outputs : (draws, members, rows, outputs)
        dtype : precision of the arrays; by default the precision of the outputs
        """
        values = (v.flatten(0, 1).cpu() for v in self.components(outputs))
        arrays = (v.to(dtype or v.dtype).numpy() for v in values)
        return self.likelihood.components_class(*arrays)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Posterior":
        """The same posterior on a device, in a precision."""
        return on_device(self, device, dtype)

    def with_predictive_params(
        self, values: Mapping[str, np.ndarray | torch.Tensor]
    ) -> "Posterior":
        """Replace the observation noise that predictions use.

        values : the likelihood's ``predictive_params``, (members or 1, targets) each
        """
        per_member = {
            name: torch.as_tensor(value)
            .to(self.device, self.dtype)
            .expand(self.n_members, -1)
            for name, value in values.items()
        }
        params = self.likelihood.with_predictive_params(
            self.likelihood_params, per_member
        )
        return replace(self, likelihood_params=params)

    def copy_predictive_params(self, source: "Posterior") -> "Posterior":
        """Copy the ``predictive_params`` of another posterior, if it has any."""
        params = self.likelihood.copy_predictive_params(
            self.likelihood_params, source.likelihood_params
        )
        return replace(self, likelihood_params=params)

    def at_rates_of(self, source: "Posterior") -> "Posterior":
        """Copy ``keep`` and the families' constants of another posterior.

        Learned parameters do not change.
        """
        layers = self.network.with_constants_of(self.layers, source.layers)
        return replace(self, layers=layers, keep=source.keep)


# ---- predictions in chunks

# Size of the activations of one chunk: the fastest as measured; larger on a GPU.
_CHUNK_BYTES = {"cpu": 1 << 23}
_LARGE_CHUNK_BYTES = 1 << 30
_MAX_ROWS_WITH_HELD_WEIGHTS = 1024
# Weights of all draws that are held, or else the inputs of a chunk.
_MAX_HELD_BYTES = 1 << 27
# Inputs of a chunk if weights are held, or else the activations of a draw.
_MAX_CHUNK_BYTES = 1 << 26
# Memory of an input value while it is standardised, in double precision.
_INPUT_BYTES = 16
# Predictions of all draws for the rows of a block.
_BLOCK_BYTES = 1 << 24


class PosteriorPredictor:
    """Predictions of the draws of a posterior, chunk by chunk of the rows.

    Sampled weights are held in memory if they fit, and cached for later predictions if
    they are small. Otherwise they are sampled again for every chunk of rows.

    Parameters
    ----------
    posterior : Posterior
    rows : callable
        Takes a slice and returns the standardised inputs of these rows on the device,
        (rows, inputs) or ``SparseInputs``.
    n_rows, n_draws : int
    budget : int
        Bytes that the temporary arrays of one chunk may take.
    is_sparse : bool
        Whether ``rows`` returns ``SparseInputs``.
    first_draw : int
        Number of the first draw.
    """

    def __init__(
        self,
        posterior: Posterior,
        rows: Callable[[slice], Any],
        n_rows: int,
        n_draws: int,
        budget: int,
        is_sparse: bool = False,
        first_draw: int = 0,
    ):
        keep_freed_memory()
        self._posterior, self._rows, self.n_rows = posterior, rows, n_rows
        self._is_sparse, self._budget = is_sparse, budget
        n_draws = posterior.distinct_draws(n_draws)
        draws = range(first_draw, first_draw + n_draws)
        self._n_draws, self._held, self._compiled = n_draws, None, None
        if not is_sparse:
            self._compiled = posterior.compiled(draws, n_rows, budget // 2)
        if self._compiled:
            self._draws, self._row_step = [draws], _MAX_ROWS_WITH_HELD_WEIGHTS
            self._row_step = self.block
            return
        n_bytes = posterior.estimate_bytes(n_draws)
        holds_weights = n_bytes <= min(budget // 2, _MAX_HELD_BYTES)
        self._row_step, draw_step = chunk_sizes(
            posterior, n_rows, n_draws, budget, holds_weights, is_sparse
        )
        self._draws = [draws[i : i + draw_step] for i in range(0, n_draws, draw_step)]
        if holds_weights:
            self._held = posterior.cached(tuple(self._draws))

    @property
    def block(self) -> int:
        """Rows per call of ``whole``, which holds all of their draws in memory."""
        max_rows = min(self._budget // 4, _BLOCK_BYTES) // self._row_bytes
        return _bounded(max_rows, self._row_step)

    @property
    def _row_bytes(self) -> int:
        """Memory of the outputs of all draws, for one row."""
        posterior = self._posterior
        n_outputs = posterior.n_members * posterior.likelihood.n_outputs
        return posterior.keep[0].element_size() * self._n_draws * n_outputs

    def chunks(self, rows: slice | None = None) -> Iterator[slice]:
        """Split the rows into chunks that are computed at once."""
        first, last, _ = (rows or slice(None)).indices(self.n_rows)
        for start in range(first, last, self._row_step):
            yield slice(start, min(start + self._row_step, last))

    def by_rows(
        self, rows: slice | None = None
    ) -> Iterator[tuple[slice, Iterator[Any]]]:
        """Iterate over chunks of rows, each with an iterator over parts of its draws.

        The order of the draws does not depend on the chunks. An item is
        (draws * members, rows, ...), of the likelihood's ``components_class``.
        """
        for chunk in self.chunks(rows):
            x = self._rows(chunk)
            x = x if self._is_sparse else x.unsqueeze(0)
            yield chunk, map(partial(self._components, x), range(len(self._draws)))

    def whole(self, rows: slice | None = None) -> Any:
        """Return all draws of some rows in one object."""
        components_type = self._posterior.likelihood.components_class
        n_draws = self._n_draws * self._posterior.n_members
        parts = [
            components_type.collected(parts, n_draws) for _, parts in self.by_rows(rows)
        ]
        return _concatenate(parts, axis=1)

    def moments(self) -> tuple[np.ndarray, ...] | None:
        """Mean of y, epistemic and aleatoric variance, (rows, targets) each.

        None if the draws must be accumulated ``by_rows``.
        """
        return self._compiled and self._compiled.moments(self._rows, self.n_rows)

    def mean_probability(self) -> np.ndarray | None:
        """Mean class probabilities, (rows, classes); None as for ``moments``."""
        compiled = self._compiled
        return compiled and compiled.mean_probability(self._rows, self.n_rows)

    def _components(self, x, i: int) -> Any:
        """Components of part i of the draws, x (1, rows, inputs).

        If memory runs out, the rows are split in halves.
        """
        n_rows = x.shape[1]
        try:
            return self._at_once(x, i)
        except Exception as error:
            if n_rows == 1 or not is_out_of_memory(error):
                raise
        # Outside of `except`: the traceback keeps the tensors that did not fit alive.
        halves = x.split(-(-n_rows // 2), dim=1)
        return _concatenate([self._components(half, i) for half in halves], axis=1)

    def _at_once(self, x, i: int) -> Any:
        if self._compiled:
            return self._compiled.components(x[0])
        posterior, draws = self._posterior, self._draws[i]
        with torch.inference_mode():
            if self._held:
                sampled = self._held[i]
            else:
                sampled = posterior.sample_network(draws)
            outputs = sampled(x)
            outputs = outputs.expand(len(draws), posterior.n_members, -1, -1)
            return posterior.predictive_components(outputs)


def _concatenate(parts: list, axis: int):
    return parts[0] if len(parts) == 1 else type(parts[0]).concatenated(parts, axis)


def _bounded(value: int, highest: int) -> int:
    """The value, at least 1 and at most ``highest``."""
    return min(max(value, 1), highest)


def chunk_sizes(
    posterior: Posterior,
    n_rows: int,
    n_draws: int,
    budget: int,
    held: bool,
    is_sparse: bool = False,
) -> tuple[int, int]:
    """Rows and draws per chunk, such that the chunk stays within the budget.

    The budget covers inputs, activations and weights. Weights that are not held are
    sampled again for every chunk, so the chunk has as many rows as possible.
    """
    network, quarter = posterior.network, budget // 4
    itemsize = posterior.keep[0].element_size() * posterior.n_members
    per_row = itemsize * network.peak_activation_size
    most_rows = n_rows
    if not is_sparse:
        max_bytes = min(quarter, _MAX_CHUNK_BYTES if held else _MAX_HELD_BYTES)
        most_rows = min(n_rows, max(1, max_bytes // (_INPUT_BYTES * network.widest)))
    target = min(quarter, _CHUNK_BYTES.get(posterior.device.type, _LARGE_CHUNK_BYTES))
    if held:
        most_rows = min(most_rows, _MAX_ROWS_WITH_HELD_WEIGHTS)
    chunk_bytes = target if held else min(quarter, _MAX_CHUNK_BYTES)
    row_step = _bounded(chunk_bytes // per_row, most_rows)
    per_draw = per_row * row_step + itemsize * network.n_weights
    return row_step, _bounded(target // per_draw, n_draws)


# ---- mean weights: every random number is replaced by its expectation


class ExpectedRandom:
    """A :class:`RandomSource` of equal draws that returns expectations.

    Families whose weights are linear in the random numbers draw E W from it.

    Parameters
    ----------
    like : tensor of shape (members,)
        Tensor with the device and type of the numbers.
    draws : range
        Indices of the draws.
    """

    def __init__(self, like: torch.Tensor, draws: range = range(1)):
        self._like, self.draws = like, draws

    @property
    def shared_by_rows(self) -> "ExpectedRandom":
        return self

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """The probabilities, (1, members, *shape)."""
        lead = probability.view(1, -1, *(1,) * len(shape))
        return lead.expand(1, -1, *shape).to(self._like)

    def normal(self, *shape: int) -> torch.Tensor:
        """Zeros, (1, members, *shape)."""
        return self._filled(0.0, shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        """One half, (1, members, *shape)."""
        return self._filled(0.5, shape)

    def _filled(self, value: float, shape: Sequence[int]) -> torch.Tensor:
        return self._like.new_full((1, len(self._like), *shape), value)


@dataclass(frozen=True)
class MeanWeightPosterior(Posterior):
    """A posterior with a single draw, E W and E b."""

    @classmethod
    def of(cls, posterior: Posterior) -> "MeanWeightPosterior":
        """Construct it from another posterior."""
        names = [field.name for field in fields(Posterior) if field.init]
        return cls(**{name: getattr(posterior, name) for name in names})

    def distinct_draws(self, n_draws: int) -> int:
        return 1

    def compiled(self, draws, n_rows, budget):
        return None  # One draw takes little time.

    def _random_source(self, draws):
        return ExpectedRandom(self.keep[0], draws)


def mean_weights(posterior: Posterior) -> list[Draw]:
    """E W and E b of every group, as one draw."""
    return MeanWeightPosterior.of(posterior).draw(range(1))
