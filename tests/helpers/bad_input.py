"""Estimators and targets of the tests of bad input."""

import pytest

from skbayesnn import (
    MCDropoutClassifier,
    MCDropoutRegressor,
)

KINDS = [MCDropoutRegressor, MCDropoutClassifier]


BOTH = pytest.mark.parametrize("kind", KINDS)


def target(kind, data):
    return data.y if kind is MCDropoutRegressor else data.labels
