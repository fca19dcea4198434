"""What an entry of a table needs elsewhere: saved models, ONNX, documentation."""

import inspect
import re
from pathlib import Path

import skbayesnn
from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._likelihoods import LIKELIHOODS
from tests.persistence import models

ROOT = Path(skbayesnn.__file__).parents[1]


def _lacking(text: str) -> list[str]:
    """Likelihoods whose quoted names are not in a text."""
    return [name for name in LIKELIHOODS if f'"{name}"' not in text]


def test_every_likelihood_is_saved_in_a_test():
    saved = {
        getattr(model, "likelihood", None) for model, _ in models.every_kind(0).values()
    }
    assert sorted(LIKELIHOODS.keys() - saved) == []


def test_every_likelihood_is_documented():
    """On its page of the documentation, and in the docstrings of the estimators."""
    page = (ROOT / "docs" / "howto" / "noise.md").read_text(encoding="utf-8")
    # The entry of the parameter: an activation may have the same name.
    entry = re.compile(r"^likelihood : .*?(?=^\w+ : )", re.DOTALL | re.MULTILINE)
    kinds = MCDropoutRegressor, MCDropoutClassifier
    entries = [entry.search(inspect.getdoc(kind))[0] for kind in kinds]
    assert _lacking(page) == []
    assert _lacking("".join(entries)) == []
