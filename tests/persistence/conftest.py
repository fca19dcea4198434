"""Small tables for the tests of saving and loading."""

import pytest

from tests.helpers.seed import SEED
from tests.persistence import models


@pytest.fixture(scope="session")
def data():
    """Training rows, targets and new rows; see ``models.made_up``."""
    return models.made_up(SEED)
