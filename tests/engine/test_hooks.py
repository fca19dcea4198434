"""Hooks are called after every epoch, and do not change the training."""

import numpy as np
import pytest

from skbayesnn._engine.config import Hook


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


def test_hooks_do_not_change_the_training(engine, setup):
    weights, plain = Weights(), engine.parameters(engine.train(*setup).posterior)
    watched = engine.train(*setup, hooks=[weights, Hook()])
    assert len(weights.epochs) == 7
    assert (np.std(weights.epochs, axis=0) > 0).all()
    for name, values in engine.parameters(watched.posterior).items():
        np.testing.assert_array_equal(values, plain[name])
