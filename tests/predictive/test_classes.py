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
    pooled = ClassPredictive.pooled(members, np.array(["b", "c", "a"]))
    expected = np.stack([b, c.mean(0), a], -1) / 2
    np.testing.assert_allclose(pooled.mean(), expected)


@pytest.mark.parametrize("labels", [["a", "b", "c"], [-1, 0, 1], [1, 2, 3]])
def test_members_have_positions_or_labels(labels, seed):
    """Fitted by a meta-estimator to integers, or fitted before to labels."""
    p = np.random.default_rng(seed).dirichlet(np.ones(3), size=(DRAWS, ROWS))
    labels = np.array(labels)
    for classes_of_member in (np.arange(3), labels):
        labelled = ClassPredictive(p, classes_of_member).labelled(labels)
        np.testing.assert_array_equal(labelled.classes, labels)
    with pytest.raises(ValueError, match="labels of the ensemble"):
        ClassPredictive(p, np.array(["x", "y", "z"])).labelled(labels)
