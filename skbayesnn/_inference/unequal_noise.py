"""Noise per row for members with different numbers of rows, as each has it alone."""

from collections.abc import Callable

import numpy as np
import torch

from skbayesnn._inference.training_noise import TrainingNoise


def noise_of(
    seeds: np.ndarray,
    n_rows: np.ndarray,
    n_batches: int,
    device: torch.device,
    dtype: torch.dtype,
) -> "TrainingNoise | UnequalNoise":
    """Noise of members with so many rows, (members,), in so many batches."""
    if (n_rows == n_rows[0]).all():
        return TrainingNoise(seeds, device, dtype)
    return UnequalNoise(seeds, n_rows, n_batches, device, dtype)


class UnequalNoise:
    """As :class:`TrainingNoise`; each size of the members' rows has one of its own.

    A request of noise for the rows of the largest batch is one for those of its own
    batch in each, with zeros below: padding rows, whose weight is zero.

    Parameters
    ----------
    seeds, n_rows : ndarray of shape (members,), int
    n_batches : int
        Of an epoch.
    device, dtype : of the noise
    """

    def __init__(
        self,
        seeds: np.ndarray,
        n_rows: np.ndarray,
        n_batches: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        sizes, of_member = np.unique(n_rows, return_inverse=True)
        members = [np.flatnonzero(of_member == i) for i in range(len(sizes))]
        self._batch_rows = [-(-int(size) // n_batches) for size in sizes]
        self._members = [torch.as_tensor(own).to(device) for own in members]
        self._noises = [TrainingNoise(seeds[own], device, dtype) for own in members]
        # From members of one size after the other to their own order.
        place = np.argsort(np.concatenate(members))
        self._place = torch.as_tensor(place).to(device)
        self._probabilities: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self.of_weights = _OfWeights(self)

    def start_epoch(self, epoch: int, n_steps: int = 1) -> None:
        """See ``TrainingNoise``."""
        for noise in self._noises:
            noise.start_epoch(epoch, n_steps)

    def next_step(self) -> None:
        """The requests that follow are those of the epoch's next step."""
        for noise in self._noises:
            noise.next_step()

    def order(self, n_rows: np.ndarray, n_batches: int) -> torch.Tensor:
        """As ``TrainingNoise.order``, each batch with zeros below its own rows."""

        def of_group(i, noise):
            own = noise.order(n_rows[self._members[i].cpu().numpy()], n_batches)
            return self._padded(own.unflatten(1, (n_batches, -1)), i, axis=2)

        return self._together(of_group).flatten(1)

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (members, \\*shape)."""
        p = self.split(probability)
        return self._of_rows(lambda i, n, own: n.bernoulli(p[i], *own), shape)

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (members, \\*shape)."""
        return self._of_rows(lambda i, n, own: n.normal(*own), shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (members, \\*shape)."""
        return self._of_rows(lambda i, n, own: n.uniform(*own), shape)

    def of_whole(self, request: Callable) -> torch.Tensor:
        """(number, noise) -> numbers of its members; those of all, unpadded."""
        return self._together(request)

    def split(self, probability: torch.Tensor) -> list[torch.Tensor]:
        """By size of the rows; the same tensors again for the same probability."""
        key = id(probability)
        if key not in self._probabilities:
            parts = [probability[own] for own in self._members]
            self._probabilities[key] = probability, parts
        return self._probabilities[key][1]

    def _of_rows(self, request: Callable, shape: tuple[int, ...]) -> torch.Tensor:
        """shape : rows of the largest batch, or a multiple of them, in front."""
        per_row = shape[0] // max(self._batch_rows)

        def of_group(i, noise):
            own = (self._batch_rows[i] * per_row, *shape[1:])
            return self._padded(request(i, noise, own), i, axis=1)

        return self._together(of_group)

    def _padded(self, values: torch.Tensor, i: int, axis: int) -> torch.Tensor:
        """Of the i-th size: zeros below, along an axis of its batch's rows."""
        n_own = self._batch_rows[i]
        lead, tail = list(values.shape[:axis]), list(values.shape[axis + 1 :])
        missing = values.shape[axis] // n_own * (max(self._batch_rows) - n_own)
        return torch.cat([values, values.new_zeros(*lead, missing, *tail)], dim=axis)

    def _together(self, of_group: Callable) -> torch.Tensor:
        """(number, noise) -> (members or 1, ...), put in the members' order."""
        parts = [
            values.expand(len(own), *values.shape[1:])
            for own, values in zip(
                self._members,
                (of_group(i, noise) for i, noise in enumerate(self._noises)),
                strict=True,
            )
        ]
        return torch.cat(parts).index_select(0, self._place)


class _OfWeights:
    """Requests that are not per row: every size's noise has the shape asked for."""

    def __init__(self, noise: UnequalNoise):
        self._noise = noise

    @property
    def of_weights(self) -> "_OfWeights":
        """Itself."""
        return self

    def bernoulli(self, probability: torch.Tensor, *shape: int) -> torch.Tensor:
        """Zeros and ones, (members, \\*shape)."""
        p = self._noise.split(probability)
        return self._noise.of_whole(lambda i, noise: noise.bernoulli(p[i], *shape))

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, (members, \\*shape)."""
        return self._noise.of_whole(lambda _, noise: noise.normal(*shape))

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), (members, \\*shape)."""
        return self._noise.of_whole(lambda _, noise: noise.uniform(*shape))
