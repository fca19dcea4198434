"""Hooks: weights averaged over the last epochs."""

import numpy as np
import pytest
import torch

from skbayesnn._engine.config import Hook


class Swag(Hook):
    """First two moments of the weights over the last epochs [Maddox et al. 2019]."""

    def __init__(self, first_epoch):
        self.first_epoch, self.n = first_epoch, 0
        self.mean, self.square = 0.0, 0.0

    def epoch_end(self, n_done, posterior):
        if n_done >= self.first_epoch:
            weights = torch.cat(
                [layer["mean"].flatten(1) for layer in posterior.layers], 1
            )
            self.n += 1
            self.mean = self.mean + (weights - self.mean) / self.n
            self.square = self.square + (weights.square() - self.square) / self.n


class Weights(Hook):
    """Records the weights of every epoch."""

    def __init__(self):
        self.epochs = []

    def epoch_end(self, n_done, posterior):
        assert n_done == len(self.epochs) + 1
        means = [layer["mean"].flatten(1).numpy() for layer in posterior.layers]
        self.epochs.append(np.concatenate(means, axis=1))


@pytest.fixture
def setup(engine, seed):
    config = engine.config()
    members = engine.members(config, [seed, seed + 1], 0.8, 1.0, 3.0, n_epochs=7)
    return config, members, engine.rows(config, 2, seed)


def test_moments_over_the_last_epochs(engine, setup):
    swag, weights = Swag(first_epoch=4), Weights()
    engine.train(*setup, hooks=[swag, weights])
    last = np.array(weights.epochs[3:])
    assert len(last) == 4
    np.testing.assert_allclose(swag.mean, last.mean(0), rtol=1e-12)
    np.testing.assert_allclose(swag.square, (last**2).mean(0), rtol=1e-12)
    assert (last.std(0) > 0).all()


def test_hooks_do_not_change_the_training(engine, setup):
    plain = engine.parameters(engine.train(*setup).posterior)
    watched = engine.train(*setup, hooks=[Swag(1), Hook()])
    for name, values in engine.parameters(watched.posterior).items():
        np.testing.assert_array_equal(values, plain[name])
