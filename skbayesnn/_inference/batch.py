"""What a step sees."""

from typing import NamedTuple

import torch


class Batch(NamedTuple):
    """Rows of a step, with a members axis, of length 1 where all have the same.

    Parameters
    ----------
    x : (members or 1, rows, inputs)
    y : (members or 1, rows, targets), or class numbers (members or 1, rows)
    weights : (members or 1, rows), or None where all are one
    noise_on_y : (members, rows, targets), in stds of the likelihood's noise, or None
    """

    x: torch.Tensor
    y: torch.Tensor
    weights: torch.Tensor | None
    noise_on_y: torch.Tensor | None = None

    def with_own_x(self) -> "Batch":
        """The same with a copy of x, to be overwritten."""
        return Batch(self.x.clone(), self.y, self.weights, self.noise_on_y)
