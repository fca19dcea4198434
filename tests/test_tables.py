"""What an entry of a table needs elsewhere: saved models, ONNX, documentation."""

import inspect
import re
from pathlib import Path

import skbayesnn
from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._likelihoods import LIKELIHOODS, OF_INTERVALS
from tests.persistence import models

ROOT = Path(skbayesnn.__file__).parents[1]


def _lacking(text: str) -> list[str]:
    """Likelihoods a user can choose whose quoted names are not in a text."""
    names = [name for name, kind in LIKELIHOODS.items() if not kind.of_intervals]
    return [name for name in names if f'"{name}"' not in text]


def test_every_likelihood_is_saved_in_a_test():
    saved = set()
    for model, target in models.every_kind(0).values():
        name = getattr(model, "likelihood", None)
        has_intervals = target in ("intervals", "floored")
        saved.add(OF_INTERVALS[name].name if has_intervals else name)
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
