"""A trained q(W) of several networks side by side, and its draws as functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import torch

from skbayesnn._families import Draw, Params
from skbayesnn._inference.noise import DrawNoise
from skbayesnn._likelihoods import Likelihood
from skbayesnn._networks import Network

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
        return DrawNoise(self.seeds, draws, self.device, self.dtype)

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
        units = self.n_members * x.shape[1] * self.network.live_units
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

    def with_noise(self, noise: Mapping[str, np.ndarray | torch.Tensor]) -> "Posterior":
        """With a noise of predictions that is not that of the training.

        noise : the likelihood's ``noise_of_predictions``, (members or 1, targets) each
        """
        of_members = {
            name: torch.as_tensor(values)
            .to(self.device, self.dtype)
            .expand(self.n_members, -1)
            for name, values in noise.items()
        }
        params = self.likelihood.with_noise(self.likelihood_params, of_members)
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
