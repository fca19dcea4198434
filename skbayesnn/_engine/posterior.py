"""The approximate posterior q(W) of several networks, and predictions of its draws.

Predictions of many rows or draws are computed in blocks, within a budget of memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from skbayesnn._engine.random import DrawRandom
from skbayesnn._engine.resources import is_out_of_memory, keep_freed_memory
from skbayesnn._families import Draw, Params
from skbayesnn._likelihoods import Likelihood
from skbayesnn._networks import Network

# ---- the posterior and its draws

# The networks of some parts of the draws.
Drawn = list[Callable[[torch.Tensor], torch.Tensor]]
# Units of the layers that are held at once, of some draws.
_LIVE_UNITS = 1 << 26
# Weights of draws that are kept from one prediction to the next.
_CACHE_BYTES = 1 << 25


@dataclass(frozen=True)
class Posterior:
    """q(W) in the network's scale.

    Parameters
    ----------
    network, likelihood : Network, Likelihood
        What the members have in common.
    layers : list of dict of tensor
        The network's groups of parameters, members first.
    likelihood_params : dict of tensor
        The likelihood's parameters, members first.
    keep : tuple of tensor of shape (members,)
        p = 1 - dropout of every group.
    seeds : ndarray of shape (members,), int
    """

    network: Network
    likelihood: Likelihood
    layers: list[Params]
    likelihood_params: Params
    keep: tuple[torch.Tensor, ...]
    seeds: np.ndarray
    # Of parts of the draws, from one prediction to the next.
    _cache: dict[tuple[tuple[range, ...], bool], Drawn] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def n_members(self) -> int:
        """Networks side by side."""
        return len(self.seeds)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.keep[0].device

    @property
    def dtype(self) -> torch.dtype:
        """In what precision the parameters are."""
        return self.keep[0].dtype

    def distinct_draws(self, n_draws: int) -> int:
        """Draws that can differ: one where the weights are deterministic."""
        return n_draws if self.network.stochastic else 1

    def learned_keep(self) -> list[torch.Tensor]:
        """p = 1 - dropout of every group, (members,), learned where a family does."""
        return self.network.learned_keep(self.layers, self.keep)

    def draw(self, draws: range) -> list[Draw]:
        """Weights of the draws ``draws`` of every member, for ``network.apply``."""
        return self.network.draw(self.layers, self.keep, self._noise(draws))

    def drawn(
        self, draws: range, apart: bool = False
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """The networks of these draws: ``outputs`` as a function of x.

        apart : whether every draw has a product of its own, as sparse inputs need
        """
        if apart:
            return partial(self.network.apply, self.draw(draws))
        noise = self._noise(draws)
        return self.network.drawn(self.layers, self.keep, noise, len(draws))

    def shares_draws(self, n_draws: int) -> bool:
        """Whether these are quickest for many draws and few rows at a time."""
        return self.network.shares_draws(self.layers, self.keep, n_draws)

    @property
    def n_dropped(self) -> int:
        """Inputs of a map that a draw drops on average, of the map that has most."""
        pairs = zip(self.network.fan_ins, self.learned_keep(), strict=True)
        return int(max(n * float((1 - p).max()) for n, p in pairs))

    def _noise(self, draws: range):
        return DrawRandom(self.seeds, draws, self.device, self.dtype)

    def bytes_of(self, n_draws: int, apart: bool = False) -> int:
        """What ``drawn`` keeps of so many draws: weights, or what draws do not share.

        The latter are masks, and weights that they drop; twice as many as on average.
        """
        item = self.keep[0].element_size() * self.n_members
        n_weights = self.network.n_weights
        if apart or not self.shares_draws(n_draws):
            return item * n_draws * n_weights
        dropped = max(float((1 - p).max()) for p in self.learned_keep())
        of_draw = 2 * dropped * n_weights + self.network.n_units
        return item * int(n_weights + n_draws * of_draw)

    def cached(self, parts: tuple[range, ...], apart: bool = False) -> Drawn:
        """``drawn`` of every part; kept for the next time where they are few."""
        key = parts, apart
        known = self._cache.get(key)
        if known is None:
            known = [self.drawn(draws, apart) for draws in parts]
            if self.bytes_of(parts[-1].stop, apart) <= _CACHE_BYTES:
                self._cache.clear()
                self._cache[key] = known
        return known

    def outputs(self, x: torch.Tensor, draws: range) -> torch.Tensor:
        """Noise-free outputs of the draws ``draws``.

        x : (members or 1, rows, inputs), standardised
        returns : (draws, members, rows, outputs)
        """
        return self.drawn(draws)(x)

    def outputs_of(self, x: torch.Tensor, n_draws: int) -> torch.Tensor:
        """``outputs`` of so many draws, as far as they differ.

        Some at a time: hidden layers are larger than what comes out.
        """
        units = self.n_members * x.shape[1] * self.network.peak_activation_size
        at_once = max(1, _LIVE_UNITS // units)
        draws = range(self.distinct_draws(n_draws))
        parts = [draws[start : start + at_once] for start in draws[::at_once]]
        return torch.cat([self.outputs(x, part) for part in parts])

    def components(self, outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the likelihood makes of outputs (draws, members, rows, outputs)."""
        return self.likelihood.components(self.likelihood_params, outputs)

    def select(self, members: np.ndarray) -> "Posterior":
        """Some of the members, by index."""
        index = torch.as_tensor(members, device=self.device)
        return replace(
            self,
            layers=[_take(params, index) for params in self.layers],
            likelihood_params=_take(self.likelihood_params, index),
            keep=tuple(p[index] for p in self.keep),
            seeds=self.seeds[members],
        )

    def with_predictive_params(
        self, noise: Mapping[str, np.ndarray | torch.Tensor]
    ) -> "Posterior":
        """With a noise of predictions that is not that of the training.

        noise : the likelihood's ``predictive_params``, (members or 1, targets) each
        """
        of_members = {
            name: torch.as_tensor(values)
            .to(self.device, self.dtype)
            .expand(self.n_members, -1)
            for name, values in noise.items()
        }
        params = self.likelihood.with_predictive_params(
            self.likelihood_params, of_members
        )
        return replace(self, likelihood_params=params)

    def with_noise_of(self, other: "Posterior") -> "Posterior":
        """With the noise of another's predictions, if that is one of their own."""
        params = self.likelihood.with_noise_of(
            self.likelihood_params, other.likelihood_params
        )
        return replace(self, likelihood_params=params)

    def at_rates_of(self, other: "Posterior") -> "Posterior":
        """The same weights at another's ``keep``, and with what follows from it.

        That is what families hold constant; what they learn stays.
        """
        layers = self.network.with_constants_of(self.layers, other.layers)
        return replace(self, layers=layers, keep=other.keep)

    def reseed(self, stream: int) -> "Posterior":
        """The same q(W), with draws that are independent of this one's."""
        words = np.random.SeedSequence(stream).generate_state(len(self.seeds))
        return replace(self, seeds=(self.seeds ^ words.astype(np.int64) << 31))


def _take(params: Params, index: torch.Tensor) -> Params:
    return {name: value[index] for name, value in params.items()}


# ---- predictions in blocks

# Activations of one chunk, measured; a GPU wants larger ones.
_CHUNK_BYTES = {"cpu": 1 << 23}
_LARGE_CHUNK_BYTES = 1 << 30
_ROWS_OF_HELD_WEIGHTS = 1024
# Of draws that share what they compute: rows, and chunks of the others' size.
_FEWEST_ROWS, _SHARED = 32, 4
# Weights of all draws that are held, or the inputs of a chunk where they are not.
_MOST_HELD_BYTES = 1 << 27
# Inputs of a chunk beside held weights, and activations of a draw where none are held.
_MOST_BYTES = 1 << 26
# Of an input while it is standardised, in double precision.
_BYTES_OF_INPUT = 16
# What all draws predict for the rows of a block.
_BLOCK_BYTES = 1 << 24


class PosteriorPredictor:
    """Predictions of the draws of a posterior, some rows after the other.

    The drawn weights are held where they fit, few of them for other rows too, and drawn
    again for every chunk of rows where they do not.

    Parameters
    ----------
    posterior : Posterior
    rows : callable
        Slice of rows -> standardised inputs on the device, (rows, inputs), or
        ``SparseInputs``.
    n_rows, n_draws : int
    budget : int
        Bytes that the temporaries of one chunk may take.
    is_sparse : bool
        Whether ``rows`` returns ``SparseInputs``.
    """

    def __init__(
        self,
        posterior: Posterior,
        rows: Callable[[slice], Any],
        n_rows: int,
        n_draws: int,
        budget: int,
        is_sparse: bool = False,
    ):
        keep_freed_memory()
        self._posterior, self._rows, self.n_rows = posterior, rows, n_rows
        self._is_sparse, self._budget = is_sparse, budget
        n_draws = posterior.distinct_draws(n_draws)
        kept = posterior.bytes_of(n_draws, is_sparse)
        hold = kept <= min(budget // 2, _MOST_HELD_BYTES)
        self._row_step, draw_step = chunk_sizes(
            posterior, n_rows, n_draws, budget, hold, is_sparse
        )
        self._draws = [
            range(start, min(start + draw_step, n_draws))
            for start in range(0, n_draws, draw_step)
        ]
        self._held = posterior.cached(tuple(self._draws), is_sparse) if hold else None

    @property
    def block(self) -> int:
        """Rows to ask ``whole`` for at once: it holds all of their draws."""
        posterior = self._posterior
        n_numbers = posterior.n_members * posterior.likelihood.n_outputs
        of_row = posterior.keep[0].element_size() * self._draws[-1].stop * n_numbers
        most = min(self._budget // 4, _BLOCK_BYTES) // of_row
        return int(np.clip(most, 1, self._row_step))

    def chunks(self, rows: slice | None = None) -> Iterator[slice]:
        """The rows, so many at a time as are best computed at once."""
        first, last, _ = (rows or slice(None)).indices(self.n_rows)
        for start in range(first, last, self._row_step):
            yield slice(start, min(start + self._row_step, last))

    def by_rows(
        self, rows: slice | None = None
    ) -> Iterator[tuple[slice, Iterator[Any]]]:
        """Chunks of the rows, each with the components of its draws, some at a time.

        All draws of a chunk come before the next rows, in an order that does not
        depend on the chunks. An item is (draws * members, rows, ...), of the class
        that the likelihood names.
        """
        for chunk in self.chunks(rows):
            x = self._rows(chunk)
            x = x if self._is_sparse else x.unsqueeze(0)
            yield chunk, map(partial(self._components, x), range(len(self._draws)))

    def whole(self, rows: slice | None = None) -> Any:
        """All draws of some rows in one object."""
        kind = self._posterior.likelihood.components_class
        n_draws = self._draws[-1].stop * self._posterior.n_members
        parts = [kind.collected(parts, n_draws) for _, parts in self.by_rows(rows)]
        return _joined(parts, axis=1)

    def _components(self, x, i: int) -> Any:
        """Of the draws with number i, x (1, rows, inputs).

        Where memory runs out it goes on with half as many rows at a time.
        """
        n_rows = x.shape[1]
        try:
            return self._at_once(x, i)
        except Exception as error:
            if n_rows == 1 or not is_out_of_memory(error):
                raise
        # Outside of `except`, whose traceback holds what did not fit.
        halves = x.split(-(-n_rows // 2), dim=1)
        return _joined([self._components(half, i) for half in halves], axis=1)

    def _at_once(self, x, i: int) -> Any:
        posterior, draws = self._posterior, self._draws[i]
        with torch.inference_mode():
            if self._held:
                drawn = self._held[i]
            else:
                drawn = posterior.drawn(draws, self._is_sparse)
            outputs = drawn(x)
            outputs = outputs.expand(len(draws), posterior.n_members, -1, -1)
            values = posterior.components(outputs)
        return posterior.likelihood.components_class(
            *(value.flatten(0, 1).cpu().numpy() for value in values)
        )


def _joined(parts: list, axis: int):
    return parts[0] if len(parts) == 1 else type(parts[0]).concatenated(parts, axis)


def chunk_sizes(
    posterior: Posterior,
    n_rows: int,
    n_draws: int,
    budget: int,
    held: bool,
    is_sparse: bool = False,
) -> tuple[int, int]:
    """Rows and draws of one chunk, so that all of it stays within the budget.

    That are inputs, activations, and the weights of so many draws. Where these are not
    held they are drawn again for every chunk of rows, which is then as large as it may
    be. Draws that share what they compute are taken together, of as few rows as that
    leaves.
    """
    network, quarter = posterior.network, budget // 4
    item = posterior.keep[0].element_size() * posterior.n_members
    per_row = item * network.peak_activation_size
    most_rows = n_rows
    if not is_sparse:
        most = min(quarter, _MOST_BYTES if held else _MOST_HELD_BYTES)
        most_rows = min(n_rows, max(1, most // (_BYTES_OF_INPUT * network.widest)))
    target = min(quarter, _CHUNK_BYTES.get(posterior.device.type, _LARGE_CHUNK_BYTES))
    if held and not is_sparse and posterior.shares_draws(n_draws):
        # A few times as much as they keep: most of it is shared.
        target = min(quarter, _SHARED * target)
        # Of every draw the units that it drops are copied.
        per_row += item * posterior.n_dropped
        draw_step = int(np.clip(target // (_FEWEST_ROWS * per_row), 1, n_draws))
        return int(np.clip(target // (per_row * draw_step), 1, most_rows)), draw_step
    if held:
        most_rows = min(most_rows, _ROWS_OF_HELD_WEIGHTS)
    of_rows = target if held else min(quarter, _MOST_BYTES)
    row_step = int(np.clip(of_rows // per_row, 1, most_rows))
    per_draw = per_row * row_step + item * network.n_weights
    return row_step, int(np.clip(target // per_draw, 1, n_draws))


# ---- mean weights: every random number is replaced by its mean


class ExpectedRandom:
    """A :class:`RandomSource` of one draw with the means of what is asked for.

    Families whose weights are linear in their noise draw E W from it.

    Parameters
    ----------
    like : tensor of shape (members,)
        Of the device and precision of the numbers.
    """

    def __init__(self, like: torch.Tensor):
        self._like = like

    @property
    def of_weights(self) -> "ExpectedRandom":
        """Itself: all of it is."""
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
    """A posterior all of whose draws are E W and E b."""

    @classmethod
    def of(cls, posterior: Posterior) -> "MeanWeightPosterior":
        """Of another's."""
        names = [field.name for field in fields(Posterior) if field.init]
        return cls(**{name: getattr(posterior, name) for name in names})

    def distinct_draws(self, n_draws: int) -> int:
        """One."""
        return 1

    def _noise(self, draws):
        return ExpectedRandom(self.keep[0])


def mean_weights(posterior: Posterior) -> list[Draw]:
    """E W and E b of every group, as one draw."""
    return MeanWeightPosterior.of(posterior).draw(range(1))
