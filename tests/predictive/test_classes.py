"""The predictive distribution of labels, with classes in any order."""

import numpy as np
import pytest

from skbayesnn._predictive.classes import ClassPredictive

DRAWS, ROWS = 4, 5


@pytest.mark.parametrize("classes", [["a", "b", "c"], ["low", "mid", "high"]])
def test_density_of_labels(classes, seed):
    classes = np.array(classes)
    p = np.random.default_rng(seed).dirichlet(np.ones(3), size=(DRAWS, ROWS))
    column = np.arange(ROWS) % 3
    density = ClassPredictive(p, classes).log_density(classes[column])
    np.testing.assert_allclose(density, np.log(p.mean(0)[np.arange(ROWS), column]))


def test_members_with_different_classes_are_pooled(seed):
    """Each class has the mean of its probabilities, zero where a member lacks it."""
    p = np.random.default_rng(seed).dirichlet(np.ones(2), size=(2, DRAWS, ROWS))
    members = [
        ClassPredictive(p[0], np.array(["c", "a"])),
        ClassPredictive(p[1], np.array(["b", "c"])),
    ]
    a, b, c = p[0, ..., 1].mean(0), p[1, ..., 0].mean(0), p[0, ..., 0] + p[1, ..., 1]
    pooled = ClassPredictive.pooled(members, [DRAWS, DRAWS])
    expected = np.stack([a, b, c.mean(0)], -1) / 2
    np.testing.assert_allclose(pooled.mean(), expected)
