"""Fixtures that use the engine without an estimator."""

import pytest

from tests.helpers.engine import Engine


@pytest.fixture
def engine():
    return Engine
