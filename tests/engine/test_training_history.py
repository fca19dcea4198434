"""Losses that are not finite, of members with different numbers of epochs."""

import numpy as np
import torch

from skbayesnn._engine.training import TrainingHistory


def test_losses_after_the_last_epoch_are_no_failures():
    """The compiled loop leaves them NaN while other members are still trained."""
    nan = torch.nan
    nll = torch.tensor([[1.0, 1, 1], [1, 1, 1], [1, 1, nan], [nan, 1, 1], [nan, 1, 1]])
    for parts in ([5], [2, 3], [1, 3, 1]):
        history = TrainingHistory(np.zeros(3, dtype=int))
        for part in nll.split(parts):
            history.add(part, torch.zeros_like(part))
            history.find_failures(np.array([3, 5, 5]))
        np.testing.assert_array_equal(history.failed, [0, 0, 3])


def test_epochs_are_counted_from_the_first_run():
    """A run that is continued after four epochs: the first row is epoch five."""
    nll = torch.tensor([[1.0, torch.nan], [torch.nan, 1]])
    history = TrainingHistory(np.zeros(2, dtype=int), 4)
    history.add(nll, torch.zeros_like(nll))
    history.find_failures(np.array([5, 6]))
    np.testing.assert_array_equal(history.failed, [0, 5])
