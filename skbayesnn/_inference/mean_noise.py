"""Noise that is not there: every random number is its mean."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from skbayesnn._families import Draw
from skbayesnn._inference.posterior import Posterior


class MeanNoise:
    """A :class:`Noise` of one draw with the means of what is asked for.

    Families whose weights are linear in their noise draw E W from it.

    Parameters
    ----------
    like : tensor of shape (members,)
        Of the device and precision of the numbers.
    """

    def __init__(self, like: torch.Tensor):
        self._like = like

    @property
    def of_weights(self) -> "MeanNoise":
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
class MeanWeights(Posterior):
    """A posterior all of whose draws are E W and E b."""

    @classmethod
    def of(cls, posterior: Posterior) -> "MeanWeights":
        """Of another's."""
        names = [field.name for field in fields(Posterior) if field.init]
        return cls(**{name: getattr(posterior, name) for name in names})

    def distinct_draws(self, n_draws: int) -> int:
        """One."""
        return 1

    def _noise(self, draws):
        return MeanNoise(self.keep[0])


def mean_weights(posterior: Posterior) -> list[Draw]:
    """E W and E b of every group, as one draw."""
    return MeanWeights.of(posterior).draw(range(1))
