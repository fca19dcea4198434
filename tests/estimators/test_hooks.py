"""An estimator asks for hooks by what it brings to a fit; nothing else is touched."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from skbayesnn import MCDropoutRegressor
from skbayesnn._engine.config import Hook
from skbayesnn._engine.posterior import Posterior

ROWS, INPUTS, EPOCHS = 31, 3, 5


class Halved(Hook):
    """Counts epochs, and passes a posterior of half the weights."""

    made: ClassVar[list] = []

    def __init__(self):
        self.epochs = []
        self.made.append(self)

    def epoch_end(self, n_done, posterior):
        self.epochs.append(n_done)

    def training_end(self, posterior: Posterior) -> Posterior:
        for params in posterior.layers:
            params["mean"].mul_(0.5)
        return posterior


@pytest.fixture
def halved():
    """A regressor that asks for the hook."""

    class HalvedRegressor(MCDropoutRegressor):
        def _variational(self, fan_ins):
            return replace(super()._variational(fan_ins), hooks=(Halved,))

    Halved.made = []
    return HalvedRegressor


def test_hooks_are_made_for_each_fit_and_hand_on_the_posterior(halved, seed):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(ROWS, INPUTS)), random.normal(size=ROWS)
    settings = {"max_iter": EPOCHS, "random_state": seed, "device": "cpu", "tau": 2.0}
    plain = MCDropoutRegressor((4,), **settings).fit(X, y)
    ours = halved((4,), **settings).fit(X, y)
    for name, values in plain.parameters_.items():
        factor = 0.5 if name.endswith("mean") else 1.0
        np.testing.assert_array_equal(ours.parameters_[name], factor * values)
    ours.fit(X, y)
    assert [hook.epochs for hook in Halved.made] == [[1, 2, 3, 4, 5]] * 2
