"""The fixtures of the searches."""

from tests.model_selection.conftest import data, programs

__all__ = ["data", "programs"]
