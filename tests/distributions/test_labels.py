"""Class probabilities and their labels."""

import numpy as np
import pytest

from skbayesnn._distributions.components import columns_of


@pytest.mark.parametrize(
    "classes", [["a", "b", "c"], ["c", "a", "b"], [3.0, -1.0, 2.0]]
)
def test_columns_of_the_labels(classes):
    """For any order of the classes and any shape of the labels."""
    columns = np.array([[2, 0], [1, 1], [0, 2], [2, 2]])
    labels = np.array(classes)[columns]
    np.testing.assert_array_equal(columns_of(labels, np.array(classes)), columns)
